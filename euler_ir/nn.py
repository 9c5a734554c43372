"""Layers as graph builders. A module names its parameters by their path and adds ops to the current graph."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator

import numpy as np

from euler_ir.builder import constant, iota, zeros
from euler_ir.dtypes import DType, as_dtype, f32, f64
from euler_ir.errors import GraphError, user_location
from euler_ir.graph import Graph, Value, current_graph
from euler_ir.initializers import Initializer, Normal, Ones, Uniform, Zeros
from euler_ir.shapes import as_shape
from euler_ir.tensor import cast, cos, dropout, exp, flip, layer_norm, matmul, reshape, rms_norm, sin, stack, take

# Kept outside of Graph, which knows nothing of modules; an entry dies with its graph.
_parameters_of: weakref.WeakKeyDictionary[Graph, dict[str, Parameter]] = weakref.WeakKeyDictionary()


class _Member:
    """What sits in a module under a name; its path is the names from the outermost module inwards."""

    _owner: Module | None = None
    _name = ""

    @property
    def path(self) -> str:
        """Names from the outermost module down, joined by dots; the outermost module itself has the path ''."""
        names = []
        member = self
        while member._owner is not None:
            names.append(member._name)
            member = member._owner
        return ".".join(reversed(names))


class Parameter(_Member):
    """A trained tensor that belongs to a module. ``value`` is the tensor in the graph that is being built."""

    def __init__(self, shape, initializer: Initializer, dtype=f32) -> None:
        self.shape = as_shape(shape)
        self.initializer = initializer
        self.dtype: DType = as_dtype(dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def value(self) -> Value:
        """This parameter in the current graph; the same value however often it is asked for.

        Raises GraphError when no graph is being built, when the parameter belongs to no module, or when another
        parameter of that path is in the graph.
        """
        graph, path = current_graph(), self.path
        if not path:
            raise GraphError("a Parameter that belongs to no module has no name", hint="assign it to one's attribute")
        known = _parameters_of.setdefault(graph, {})
        if path not in known:
            graph.parameter(path, self.shape, self.initializer, self.dtype)
            known[path] = self
        if known[path] is not self:
            raise graph.explain(
                GraphError(f"graph {graph.name!r} already has another parameter {path!r}, of another module"),
                (graph.leaf(path),),
                hint="make both modules attributes of one Module, so that their paths differ",
            )
        return graph.leaf(path)

    def __repr__(self) -> str:
        return f"<Parameter {self.path or '(unnamed)'}: {self.dtype}{list(self.shape)}>"


class Module(_Member):
    """Base of all layers and models.

    Parameters and modules become members when they are assigned to an attribute, whose name is their part of the
    path. A member that is assigned twice keeps its first path, so that tied weights are one parameter. Subclasses
    define ``forward``; calling the module runs it with the module's path as the scope of the ops it makes.
    """

    def __setattr__(self, name: str, value) -> None:
        if name != "_owner":
            self._release(name)
            if isinstance(value, _Member):
                self._adopt(name, value)
            elif isinstance(value, (list, tuple)) and any(isinstance(item, _Member) for item in value):
                raise GraphError(
                    f"a {type(value).__name__} of modules would lose its parameters",
                    location=user_location(),
                    hint=f"write self.{name} = nn.ModuleList(...)",
                )
        super().__setattr__(name, value)

    def _adopt(self, name: str, member: _Member) -> None:
        outer = self
        while outer is not None:
            if outer is member:
                raise GraphError(
                    f"attribute {name!r} of {type(self).__name__} would make the module a part of itself",
                    location=user_location(),
                    hint="pass what the inner module needs from the outer one as an argument",
                )
            outer = outer._owner
        self.__dict__.setdefault("_members", {})[name] = member
        if member._owner is None:
            member._owner, member._name = self, name

    def _release(self, name: str) -> None:
        members = self.__dict__.get("_members", {})
        member = members.pop(name, None)
        if member is not None and (member._owner, member._name) == (self, name):
            again = next((other for other, held in members.items() if held is member), None)
            member._owner, member._name = (None, "") if again is None else (self, again)

    def __delattr__(self, name: str) -> None:
        self._release(name)
        super().__delattr__(name)

    def forward(self, *arguments, **options):
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *arguments, **options):
        with current_graph().scope(self.path):
            return self.forward(*arguments, **options)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Each parameter once, with its path, in the order of assignment."""
        seen: set[Parameter] = set()
        stack: list[_Member] = [self]
        while stack:
            member = stack.pop()
            if isinstance(member, Module):
                stack.extend(reversed(list(member.__dict__.get("_members", {}).values())))
            elif member not in seen:
                seen.add(member)
                yield member.path, member

    def parameters(self) -> list[Parameter]:
        """Each parameter once."""
        return [parameter for _, parameter in self.named_parameters()]

    def parameter_count(self) -> int:
        """The number of trained numbers; a tied parameter counts once."""
        return sum(parameter.size for parameter in self.parameters())


class ModuleList(Module):
    """Modules in a row, named by their position."""

    def __init__(self, modules) -> None:
        # Set past the check of attributes: these have their names by position.
        self.__dict__["_items"] = list(modules)
        for position, module in enumerate(self._items):
            if isinstance(module, Module):
                self._adopt(str(position), module)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._items)

    def __getitem__(self, position: int) -> Module:
        return self._items[position]

    def __len__(self) -> int:
        return len(self._items)


class Sequential(ModuleList):
    """Calls its steps one after the other; a step is a module or a function of one tensor, such as ``ei.relu``."""

    def __init__(self, *steps: Callable[[Value], Value]) -> None:
        super().__init__(steps)

    def forward(self, x: Value) -> Value:
        for step in self:
            x = step(x)
        return x


class Linear(Module):
    """``x @ weight + bias``: x [..., inputs] to [..., outputs]; weight [inputs, outputs], as GPT-2 stores it.

    By default both begin uniform within ``1 / sqrt(inputs)``, as in torch.
    """

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, initializer: Initializer | None = None, dtype=f32
    ) -> None:
        uniform = Uniform(1 / math.sqrt(inputs) if inputs else 0.0)
        self.weight = Parameter((inputs, outputs), initializer or uniform, dtype)
        self.bias = Parameter((outputs,), Zeros() if initializer else uniform, dtype) if bias else None

    def forward(self, x: Value) -> Value:
        product = matmul(x, self.weight.value)
        return product if self.bias is None else product + self.bias.value


class Embedding(Module):
    """Rows of ``weight`` [count, width] picked by integer indices [...], giving [..., width]."""

    def __init__(self, count: int, width: int, initializer: Initializer = Normal(0.02), dtype=f32) -> None:
        self.weight = Parameter((count, width), initializer, dtype)

    def forward(self, indices: Value) -> Value:
        return take(self.weight.value, indices, axis=0)


class LayerNorm(Module):
    """Layer normalisation over the last axis, of size ``width`` (Ba et al., arXiv:1607.06450)."""

    def __init__(self, width: int, epsilon: float = 1e-5, dtype=f32, bias: bool = True) -> None:
        self.weight = Parameter((width,), Ones(), dtype)
        self.bias = Parameter((width,), Zeros(), dtype) if bias else None
        self.epsilon = epsilon

    def forward(self, x: Value) -> Value:
        weight = self.weight.value
        bias = zeros(weight.shape, weight.dtype) if self.bias is None else self.bias.value
        return layer_norm(x, weight, bias, self.epsilon)


class RMSNorm(Module):
    """Root-mean-square normalisation over the last axis, of size ``width`` (Zhang and Sennrich, arXiv:1910.07467)."""

    def __init__(self, width: int, epsilon: float = 1e-5, dtype=f32) -> None:
        self.weight = Parameter((width,), Ones(), dtype)
        self.epsilon = epsilon

    def forward(self, x: Value) -> Value:
        return rms_norm(x, self.weight.value, self.epsilon)


class RotaryEmbedding(Module):
    """Turns pairs of features by angles that grow with the position (Su et al., arXiv:2104.09864, equation 34).

    Feature i of the first half and feature i of the second are a pair, as in Llama's checkpoints; at position p it is
    turned by ``p * base ** (-2 i / width)``. The scores of turned queries and keys depend on their distance alone.
    Raises ValueError for an odd ``width``.
    """

    def __init__(self, width: int, base: float = 10000.0) -> None:
        if width < 2 or width % 2:
            raise ValueError(f"rotary embeddings turn pairs of features: the width must be even, not {width}")
        self.width, self.base = width, base

    def turns(self, positions: Value) -> Value:
        """The cosines and sines of the angles at ``positions``, integer [..., T]: f32[..., T, 2, width / 2].

        They are rounded from f64: in f32 an angle at position 100,000 would be off by a hundredth.
        """
        pair = iota((self.width // 2,), 0, f64)
        angles = cast(positions, f64)[..., None] * exp(pair * (-2 * math.log(self.base) / self.width))
        return cast(stack((cos(angles), sin(angles)), -2), f32)

    def forward(self, x: Value, turns: Value) -> Value:
        """``x`` [..., T, heads, width] turned by ``turns`` [..., T, 2, width / 2] of its positions."""
        halves = reshape(x, (*x.shape[:-1], 2, self.width // 2))
        cosines, sines = turns[..., None, :1, :], turns[..., None, 1:, :]
        signs = constant(np.array([[-1], [1]], np.float32))
        # Exchanging the halves by a flip keeps every index affine: one vector load each, and no copy.
        turned = halves * cosines + flip(halves, -2) * (sines * signs)
        return reshape(cast(turned, x.dtype), x.shape)


class Dropout(Module):
    """Zeroes elements with probability ``rate`` and scales the rest, when given the randomness to do so.

    ``seed`` and ``step`` are integers or 0-d integer tensors; the mask changes with either. Without them, as in
    evaluation, x passes unchanged. Raises ValueError when only one is given.
    """

    def __init__(self, rate: float) -> None:
        if not 0 <= rate < 1:
            raise ValueError(f"dropout rate {rate} is outside of 0 <= rate < 1")
        self.rate = rate

    def forward(self, x: Value, seed: Value | int | None = None, step: Value | int | None = None) -> Value:
        if (seed is None) != (step is None):
            raise ValueError("dropout needs a seed and a step: with one alone every call drops the same elements")
        return x if seed is None else dropout(x, self.rate, seed, step)

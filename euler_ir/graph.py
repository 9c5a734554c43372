"""Graph IR: flat, typed SSA over tensors. A ``Graph`` holds ``Op``s in order; an ``Op`` defines ``Value``s."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from euler_ir.dtypes import accumulation_dtype, as_dtype, convert, f32, i64
from euler_ir.errors import DTypeError, EulerError, GraphError, Location, did_you_mean, user_location
from euler_ir.initializers import Initializer, Zeros
from euler_ir.names import Names, derived_name
from euler_ir.ops.definition import OPS, OpDefinition
from euler_ir.shapes import TensorType, as_shape
from euler_ir.tensor import TensorMethods, cast, floor

_current_graph: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("euler_ir_current_graph", default=None)


class Value(TensorMethods):
    """A tensor in a graph: result ``index`` of ``op``. No other value of its graph has its ``name``."""

    __slots__ = ("type", "op", "index", "name")

    def __init__(self, type: TensorType, op: Op, index: int, name: str) -> None:
        self.type = type
        self.op = op
        self.index = index
        self.name = name

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def dtype(self):
        return self.type.dtype

    @property
    def shape(self):
        return self.type.shape

    @property
    def size(self) -> int:
        return self.type.size

    @property
    def ndim(self) -> int:
        return self.type.rank

    def named(self, name: str) -> Value:
        """This value, called ``name`` from now on, or ``name#2``, ``name#3`` ... where another value is called so.

        Raises GraphError for what is no string.
        """
        if not isinstance(name, str):
            raise self.graph.explain(GraphError(f"a value is named by a string, not by {name!r}"), (self,))
        names = self.graph._names
        names.release(self.name)
        self.name = names.take(name)
        return self

    def describe(self) -> str:
        """How messages speak of this value: name, type and where it was made."""
        origin = f" from {self.op.location}" if self.op.location else ""
        return f"{self.name}: {self.type}{origin}"

    def __repr__(self) -> str:
        return f"<Value {self.name}: {self.type}>"

    def __reduce__(self):
        return Graph.value, (self.graph, self.name)


class Op:
    """One application of an operator. Immutable: a pass makes a new op instead of changing one.

    ``location`` is the user's line, ``scope`` the path of the module, and ``via`` what made the op for that line:
    transforms, passes and rules, the first one first. It is empty for what the user's program itself asked for.
    """

    __slots__ = ("definition", "operands", "attributes", "results", "graph", "location", "scope", "via")

    def __init__(
        self,
        definition: OpDefinition,
        operands: tuple[Value, ...],
        attributes: Mapping,
        types: Sequence[TensorType],
        names: Sequence[str],
        graph: Graph,
        location: Location | None = None,
        scope: str = "",
        via: tuple[str, ...] = (),
    ) -> None:
        self.definition = definition
        self.operands = operands
        # A view that is there already is shared: a graph's copies have most of their attributes in common.
        self.attributes = attributes if isinstance(attributes, MappingProxyType) else MappingProxyType(dict(attributes))
        self.graph = graph
        self.location = location
        self.scope = scope
        self.via = via
        if len(types) == 1:
            self.results = (Value(types[0], self, 0, names[0]),)
        else:
            self.results = tuple([Value(*made) for made in zip(types, (self,) * len(types), range(len(types)), names)])

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def result(self) -> Value:
        """The first result, which for nearly all operators is the only one."""
        return self.results[0]

    def __repr__(self) -> str:
        return f"<Op {self.name} -> {', '.join(str(value.type) for value in self.results)}>"

    def __reduce__(self):
        return operator.attrgetter("op"), (self.result,)


class Graph:
    """A static computation: ops in an order that defines before it uses.

    ``outputs`` maps names to the values that a call returns; ``updates`` maps the name of a parameter or state to the
    value that replaces it when a call ends. Parameters and state live outside of graphs, under their names, so that
    several graphs (train, evaluate, decode) share them.

    As a context manager a graph is the current one: ``input``, ``parameter`` and ``constant`` add to it.
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self.ops: list[Op] = []
        self.outputs: dict[str, Value] = {}
        self.updates: dict[str, Value] = {}
        self._names = Names()
        self._leaves: dict[str, Value] = {}
        self._origin: tuple[Op, str] | None = None
        self._scope = ""
        self._streams = 0
        self._tokens: list[contextvars.Token] = []

    def __enter__(self) -> Graph:
        self._tokens.append(_current_graph.set(self))
        return self

    def __exit__(self, *exception) -> None:
        _current_graph.reset(self._tokens.pop())

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.ops)} ops, outputs {list(self.outputs)}, updates {len(self.updates)}>"

    def __str__(self) -> str:
        from euler_ir.text.printer import print_graph

        return print_graph(self)

    def __reduce__(self):
        """A pickle holds the text, which nests no deeper for a deep graph. ``copy.deepcopy`` goes by it too."""
        from euler_ir.text import parser, printer

        return parser.unpickled_graph, (printer.print_graph(self, locations=True), os.getcwd())

    # -- building ------------------------------------------------------------------------------------------------------

    def emit(self, name: str, operands: Sequence[Value], /, **attributes):
        """Append the operator ``name``; its result, or a tuple when it has several.

        Raises ShapeError or DTypeError, with the operands and the user's line, when the types do not fit, and
        GraphError for a value of another graph.
        """
        operands = tuple(operands)
        for operand in operands:
            if not isinstance(operand, Value):
                raise self.explain(GraphError(f"{name}: {operand!r} is not a tensor of a graph"), ())
            if operand.op.graph is not self:
                raise self.explain(
                    GraphError(f"{name}: operand belongs to graph {operand.op.graph.name!r}, not to {self.name!r}"),
                    (operand,),
                    hint="build each graph from its own inputs; parameters are shared by name",
                )
        definition = OPS[name]
        try:
            types = definition.infer(tuple(operand.type for operand in operands), attributes)
        except EulerError as error:
            raise self.explain(error, operands, definition.operand_names) from None
        if self._origin is None:
            location, scope, via = user_location(), self._scope, ()
            called = self._names.of_line(location, scope, name)
        else:
            origin, by = self._origin
            location, scope, via = origin.location, origin.scope, extended_history(origin.via, by)
            called = derived_name(origin.results[0].name, name)
        names = [self._names.take(f"{called}.{index}" if index else called) for index in range(len(types))]
        op = Op(definition, operands, attributes, types, names, self, location, scope, via)
        self.ops.append(op)
        return op.results[0] if len(op.results) == 1 else op.results

    def explain(
        self, error: EulerError, operands: Iterable[Value], names: Sequence[str] = (), hint: str | None = None
    ) -> EulerError:
        """``error`` with the operands' names and types, the user's line and a hint, each unless it is there already."""
        if not error.details:
            labels = list(names) + [f"operand {position}" for position in range(len(names), 64)]
            error.details = tuple(f"{label}: {value.describe()}" for label, value in zip(labels, operands))
        error.location = error.location or (self._origin[0].location if self._origin else user_location())
        error.hint = error.hint or hint
        return error

    def input(self, name: str, shape, dtype=f32) -> Value:
        """A tensor that every call is given by name. Raises GraphError for a name that is taken."""
        return self._leaf("input", name, shape, dtype)

    def parameter(self, name: str, shape, initializer: Initializer, dtype=f32) -> Value:
        """A trained tensor under ``name``. Raises GraphError for a name that is taken."""
        return self._leaf("parameter", name, shape, dtype, initializer=initializer)

    def state(self, name: str, shape, initializer: Initializer = Zeros(), dtype=f32) -> Value:
        """A tensor that is kept from call to call, as an optimiser's moment. Raises GraphError for a taken name."""
        return self._leaf("state", name, shape, dtype, initializer=initializer)

    def _leaf(self, kind: str, name: str, shape, dtype, **attributes) -> Value:
        if not isinstance(name, str) or not name:
            raise self.explain(GraphError(f"{kind} needs a name, not {name!r}"), ())
        if name in self._leaves:
            raise self.explain(
                GraphError(f"graph {self.name!r} already has {self._leaves[name].op.name} {name!r}"),
                (self._leaves[name],),
                hint="give each input, parameter and state its own name; modules name theirs by their path",
            )
        value = self.emit(kind, (), name=name, shape=as_shape(shape), dtype=as_dtype(dtype), **attributes)
        self._leaves[name] = value.named(name)
        return value

    def leaf(self, name: str) -> Value | None:
        """The input, parameter or state of that name, or None."""
        return self._leaves.get(name)

    def constant(self, array, dtype=None) -> Value:
        """An array or number fixed in the graph. Python floats give f32, ints i64; an array keeps its dtype.

        Raises DTypeError for what ``dtype`` cannot hold: a float among integers, a number out of range.
        """
        data = np.asarray(array)
        if dtype is None and data.dtype == np.float64 and not isinstance(array, (np.ndarray, np.generic)):
            dtype = f32
        try:
            value = convert(data, as_dtype(dtype if dtype is not None else data.dtype))
        except DTypeError as error:
            raise self.explain(error, ()) from None
        value.flags.writeable = False
        return self.emit("constant", (), value=value)

    def random_uniform(self, shape, seed, step, dtype=f32) -> Value:
        """Uniform numbers in [0, 1): a function of (seed, step, this operator, element). See ops/random.py.

        Half types hold the top 11 (f16) or 8 (bf16) bits of the f32 numbers, so that none is rounded up to 1.
        """
        dtype = as_dtype(dtype)
        value = self._random("random_uniform", 1, shape, seed, step, dtype)
        if dtype.is_half:
            levels = 2048.0 if dtype.name == "f16" else 256.0
            value = floor(value * levels) * (1 / levels)
        return cast(value, dtype)

    def random_normal(self, shape, seed, step, dtype=f32) -> Value:
        """Standard normal numbers: a function of (seed, step, this operator, element). See ops/random.py."""
        return cast(self._random("random_normal", 2, shape, seed, step, as_dtype(dtype)), dtype)

    def _random(self, name: str, streams: int, shape, seed, step, dtype) -> Value:
        stream = self._streams + 1
        self._streams += streams
        words = tuple(self._random_word(word, label) for word, label in ((seed, "seed"), (step, "step")))
        return self.emit(name, words, shape=as_shape(shape), dtype=accumulation_dtype(dtype), stream=stream)

    def _random_word(self, word, label: str) -> Value:
        return cast(word if isinstance(word, Value) else self.constant(word, i64).named(label), i64)

    def set_outputs(self, /, **outputs: Value) -> None:
        """Name values that a call returns. Raises GraphError for a foreign value or a name that is taken."""
        for name, value in outputs.items():
            self._own(value, f"output {name!r}")
            if name in self.outputs:
                raise self.explain(GraphError(f"graph {self.name!r} already has an output {name!r}"), (value,))
            self.outputs[name] = value

    def set_update(self, leaf: Value, value: Value) -> None:
        """Let ``value`` replace the parameter or state ``leaf`` when a call ends.

        Raises GraphError when ``leaf`` is not one of this graph's, has an update already, or differs in type.
        """
        self._own(leaf, "update target")
        self._own(value, "update")
        if leaf.op.name not in ("parameter", "state"):
            raise self.explain(GraphError(f"only a parameter or a state can be updated, not {leaf.op.name}"), (leaf,))
        name = leaf.op.attributes["name"]
        if name in self.updates:
            raise self.explain(GraphError(f"{leaf.op.name} {name!r} already has an update"), (leaf, value))
        if leaf.type != value.type:
            raise self.explain(GraphError(f"update of {name!r} has another type"), (leaf, value), ("target", "update"))
        self.updates[name] = value

    def _own(self, value, label: str) -> None:
        if not isinstance(value, Value) or value.op.graph is not self:
            raise self.explain(GraphError(f"{label}: {value!r} is not a tensor of graph {self.name!r}"), ())

    @contextlib.contextmanager
    def scope(self, name: str):
        """Ops made inside carry ``name`` (a module's path) as their scope."""
        outer, self._scope = self._scope, name
        try:
            yield
        finally:
            self._scope = outer

    @contextlib.contextmanager
    def derived_from(self, op: Op, by: str):
        """Ops made inside are blamed on the user's line that ``op`` comes from: they carry its location and scope, a
        name like its own, and say in ``via`` that the transform, pass or rule ``by`` made them for it.
        """
        outer, self._origin = self._origin, (op, by)
        try:
            yield
        finally:
            self._origin = outer

    # -- reading -------------------------------------------------------------------------------------------------------

    def value(self, name: str) -> Value:
        """The value of that name. Raises GraphError when there is none."""
        for op in self.ops:
            for value in op.results:
                if value.name == name:
                    return value
        if name in self.outputs:
            hint = f"the output of that name is the value {self.outputs[name].name}"
        else:
            hint = did_you_mean(str(name), [value.name for op in self.ops for value in op.results])
        raise GraphError(f"graph {self.name!r} has no value {name!r}", hint=hint)

    def leaves(self, kind: str) -> list[Value]:
        """The values of all ``kind`` ('input', 'parameter' or 'state') ops, in order."""
        return [value for value in self._leaves.values() if value.op.name == kind]

    @property
    def inputs(self) -> list[Value]:
        return self.leaves("input")

    @property
    def parameters(self) -> list[Value]:
        return self.leaves("parameter")

    @property
    def states(self) -> list[Value]:
        return self.leaves("state")

    def results(self) -> list[Value]:
        """The values that a call must produce: outputs, then updates."""
        return [*self.outputs.values(), *self.updates.values()]

    def uses(self) -> dict[Value, list[Op]]:
        """For each used value the ops that read it, in order; an op stands once for each time it reads the value."""
        uses: dict[Value, list[Op]] = {}
        for op in self.ops:
            for operand in op.operands:
                uses.setdefault(operand, []).append(op)
        return uses

    def needed(self, values: Iterable[Value]) -> list[Op]:
        """The ops that ``values`` of this graph are computed by, in order."""
        wanted = set(values)
        for op in reversed(self.ops):
            if not wanted.isdisjoint(op.results):
                wanted.update(op.operands)
        return [op for op in self.ops if not wanted.isdisjoint(op.results)]


@functools.lru_cache(maxsize=4096)
def extended_history(via: tuple[str, ...], by: str) -> tuple[str, ...]:
    """``via`` and then ``by``, one tuple for all ops with the same history; ``by`` twice in a row is said once."""
    return via if via and via[-1] == by else (*via, by)


def current_graph() -> Graph:
    """The graph of the innermost ``with graph:``. Raises GraphError when there is none."""
    graph = _current_graph.get()
    if graph is None:
        raise GraphError(
            "no graph is being built here", location=user_location(), hint="write `with euler_ir.Graph():`"
        )
    return graph



"""The rules that every kernel keeps, checked one by one. Each has an id, which messages and tests use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from euler_ir.dtypes import DType, bool_, f32, f64, i64
from euler_ir.errors import EulerError, VerifyError, did_you_mean
from euler_ir.index import Axis, Condition, Index
from euler_ir.loops.bounds import apart, unwritten, within
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Nest,
    Reduction,
    Statement,
    Store,
)
from euler_ir.loops.printer import print_part
from euler_ir.ops import OPS
from euler_ir.shapes import TensorType

RULES = {
    "L01": "buffers have distinct names and a size of 0 or more; parameters are inputs or outputs, locals are local",
    "L02": "axes have an extent of 0 or more, and a name that no axis around them has",
    "L03": "a scalar is defined once in a nest",
    "L04": "a scalar is defined before it is used, and is in scope there",
    "L05": "an operation exists and takes those operands",
    "L06": "the dtype of a result is what its operation gives",
    "L07": "a constant is a number that its dtype holds exactly",
    "L08": "a buffer is a parameter or a local of the nest, and what is loaded or stored has its dtype",
    "L09": "inputs are not stored to, outputs are, as a whole; outputs and locals are loaded only after a store",
    "L10": "an index uses axes in scope, and dynamic indices that CheckIndex made with the same extent",
    "L11": "an index stays inside of its buffer",
    "L12": "points of a nest and lanes of a vector store to different elements",
    "L13": "reductions are 'sum', 'prod', 'max' or 'min'",
    "L14": "nothing accumulates in a half type: no reduction, no carry, no accumulating store",
    "L15": "a vector loop has an axis, no carries, and no vector around it",
}

MOST_FAULTS = 65535
COMBINES = ("sum", "prod", "max", "min")


def verify_kernel(kernel: Kernel) -> None:
    """Raise VerifyError, naming the rule and the statement, for the first rule of ``RULES`` that ``kernel`` breaks.

    ``subject`` of the error is the part of the kernel that it is about.
    """
    for nest in kernel.nests:
        verify_nest(nest, kernel.name)


def verify_nest(nest: Nest, kernel: str) -> None:
    """Raise VerifyError as `verify_kernel` does; ``kernel`` is the name of the kernel that ``nest`` is of."""
    _Verifier(kernel, nest).run()


@dataclass(frozen=True)
class _Scope:
    """What a statement can see: axes around it, dtypes of scalars, extents of checked indices, the axis of lanes."""

    axes: tuple[Axis, ...]
    scalars: dict[str, DType]
    checked: dict[str, int]
    lanes: Axis | None

    def inside(self, axes: tuple[Axis, ...], vector: bool) -> _Scope:
        lanes = axes[-1] if vector else self.lanes
        return _Scope(self.axes + axes, dict(self.scalars), dict(self.checked), lanes)


class _Verifier:
    """Walks over one nest. ``_defined`` and ``_stored`` are the names so far, in and out of scope."""

    def __init__(self, kernel_name: str, nest: Nest) -> None:
        self._kernel_name = kernel_name
        self._nest = nest
        self._buffers: dict[str, Buffer] = {}
        self._defined: set[str] = set()
        self._stored: set[str] = set()
        self._written: dict[str, list[Index]] = {}
        self._indices: dict[tuple[str, tuple[Axis, ...]], list[Index]] = {}  # where each buffer is stored to

    def run(self) -> None:
        nest = self._nest
        self._declare(nest.parameters, ("input", "output", "inout"))
        self._declare(nest.locals, ("local",))
        self._axes(nest, (), nest.axes)
        self._vector(nest, nest.vector, nest.axes, None)
        self._body(nest.body, _Scope((), {}, {}, None).inside(nest.axes, nest.vector))
        if 0 not in (axis.extent for axis in nest.axes):
            for buffer in nest.parameters:
                stored = buffer.role == "input" or buffer.size == 0 or buffer.name in self._stored
                self._expect(stored, "L09", f"output %{buffer.name} is never stored to", buffer)
                indices = self._written.get(buffer.name)
                if buffer.role == "output" and indices and not any(index.dynamics() for index in indices):
                    whole = not unwritten(indices, buffer.size)
                    self._expect(whole, "L09", f"elements of output %{buffer.name} are never stored to", buffer)

    def _expect(self, holds: bool, rule: str, message: str, where) -> None:
        if not holds:
            raise self._broken(f"{rule}: {message}", where)

    def _broken(self, message: str, where, hint: str | None = None) -> VerifyError:
        details = (f"in kernel {self._kernel_name!r}: {print_part(where)}",)
        return VerifyError(message, details=details, hint=hint, subject=where)

    # -- declarations --------------------------------------------------------------------------------------------------

    def _declare(self, buffers: tuple[Buffer, ...], roles: tuple[str, ...]) -> None:
        for buffer in buffers:
            self._expect(buffer.name not in self._buffers, "L01", f"two buffers are named %{buffer.name}", buffer)
            self._expect(buffer.size >= 0, "L01", f"buffer %{buffer.name} has size {buffer.size}", buffer)
            self._expect(buffer.role in roles, "L01", f"{buffer.role!r} is none of the roles {roles}", buffer)
            self._buffers[buffer.name] = buffer

    def _axes(self, where: Nest | Loop, around: tuple[Axis, ...], axes: tuple[Axis, ...]) -> None:
        names = {axis.name for axis in around}
        for axis in axes:
            self._expect(axis.extent >= 0, "L02", f"axis {axis.name!r} has extent {axis.extent}", where)
            self._expect(axis.name not in names, "L02", f"axis {axis.name!r} is already in scope", where)
            names.add(axis.name)

    def _vector(self, where: Nest | Loop, vector: bool, axes: tuple[Axis, ...], lanes: Axis | None) -> None:
        if vector:
            self._expect(bool(axes), "L15", "a vector needs an axis for its lanes", where)
            self._expect(lanes is None, "L15", f"a vector stands inside of the vector over {lanes}", where)

    def _define(self, scope: _Scope, name: str, dtype: DType, where) -> None:
        self._expect(name not in self._defined, "L03", f"scalar %{name} is defined twice", where)
        self._defined.add(name)
        scope.scalars[name] = dtype

    def _use(self, scope: _Scope, name: str, where) -> DType:
        if name not in scope.scalars:
            state = "out of scope" if name in self._defined else "not defined"
            raise self._broken(f"L04: scalar %{name} is {state} here", where, _value_like(name, scope.scalars))
        return scope.scalars[name]

    # -- statements ----------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Statement, ...], scope: _Scope) -> None:
        for statement in body:
            match statement:
                case Constant(result, dtype, value):
                    self._expect(_represents(dtype, value), "L07", f"{dtype} does not hold {value!r}", statement)
                    self._define(scope, result, dtype, statement)
                case IndexValue(result, dtype, index):
                    self._expect(dtype != bool_, "L06", "an index is a number, not a bool", statement)
                    self._index(scope, index, statement)
                    self._define(scope, result, dtype, statement)
                case CheckIndex():
                    self._check_index(scope, statement)
                case Compute():
                    self._compute(scope, statement)
                case Load():
                    self._load(scope, statement)
                case Store():
                    self._store(scope, statement)
                case Loop():
                    self._loop(scope, statement)

    def _check_index(self, scope: _Scope, check: CheckIndex) -> None:
        dtype = self._use(scope, check.value, check)
        self._expect(dtype.is_integer, "L05", f"an index is an integer, not {dtype}", check)
        self._expect(check.extent >= 1, "L05", f"no index is inside of extent {check.extent}", check)
        self._expect(check.fault <= MOST_FAULTS, "L05", f"faults have numbers up to {MOST_FAULTS}", check)
        self._conditions(scope, check.conditions, check)
        self._define(scope, check.result, i64, check)
        scope.checked[check.result] = check.extent

    def _compute(self, scope: _Scope, compute: Compute) -> None:
        dtypes = tuple(self._use(scope, operand, compute) for operand in compute.operands)
        if compute.operation == "philox":
            self._expect(0 <= compute.stream < 1 << 32, "L05", f"stream {compute.stream} is no 32-bit number", compute)
            self._expect(dtypes == (i64, i64, i64), "L05", f"philox takes three i64, not {dtypes}", compute)
            self._expect(compute.dtype in (f32, f64), "L06", f"philox gives f32 or f64, not {compute.dtype}", compute)
        else:
            given = self._result_dtype(compute, dtypes)
            self._expect(compute.dtype == given, "L06", f"{compute.operation} gives {given}", compute)
        self._define(scope, compute.result, compute.dtype, compute)

    def _result_dtype(self, compute: Compute, dtypes: tuple[DType, ...]) -> DType:
        """What the type rule of the operator says of scalars."""
        definition = OPS.get(compute.operation)
        known = definition is not None and definition.family == "elementwise"
        self._expect(known, "L05", f"{compute.operation!r} is not an elementwise operator", compute)
        wanted = len(definition.operand_names)
        self._expect(len(dtypes) == wanted, "L05", f"{compute.operation} takes {wanted} operands", compute)
        attributes = {"dtype": compute.dtype} if compute.operation == "cast" else {}
        try:
            return definition.infer(tuple(TensorType(dtype, ()) for dtype in dtypes), attributes)[0].dtype
        except EulerError as error:
            raise self._broken(f"L05: {error.message}", compute, error.hint) from error

    def _load(self, scope: _Scope, load: Load) -> None:
        buffer = self._buffer(load.buffer, load)
        self._expect(load.dtype == buffer.dtype, "L08", f"a load of {load.dtype} from {buffer.dtype}", load)
        ready = buffer.role == "input" or buffer.name in self._stored
        self._expect(ready, "L09", f"{buffer.role} %{buffer.name} is loaded before it is stored to", load)
        self._conditions(scope, load.conditions, load)
        self._access(scope, buffer, load.index, load.conditions, load)
        self._define(scope, load.result, load.dtype, load)

    def _store(self, scope: _Scope, store: Store) -> None:
        buffer, dtype = self._buffer(store.buffer, store), self._use(scope, store.value, store)
        self._expect(dtype == buffer.dtype, "L08", f"a store of {dtype} into {buffer.dtype}", store)
        self._expect(buffer.role != "input", "L09", f"input %{buffer.name} is stored to", store)
        self._expect(not (store.accumulate and dtype.is_half), "L14", f"a store accumulates in {dtype}", store)
        self._access(scope, buffer, store.index, (), store)
        self._distinct(scope, buffer, store)
        self._written.setdefault(buffer.name, []).append(store.index)
        self._stored.add(buffer.name)

    def _buffer(self, name: str, where) -> Buffer:
        if name not in self._buffers:
            raise self._broken(f"L08: there is no buffer %{name}", where, _value_like(name, self._buffers))
        return self._buffers[name]

    def _distinct(self, scope: _Scope, buffer: Buffer, store: Store) -> None:
        """Each point has locals of its own, so the lanes of a nest share outputs alone, those of a loop also locals.

        A dynamic index may depend on any axis, so only the interpreter sees whether it repeats.
        """
        lanes = (scope.lanes,) if scope.lanes and scope.lanes not in self._nest.axes else ()
        points = lanes if buffer.role == "local" else (*self._nest.axes, *lanes)
        stored = self._indices.setdefault((buffer.name, points), [])
        never_runs = any(axis.extent == 0 for axis in scope.axes)
        if not points or never_runs or store.index.dynamics() or store.index in stored:
            return
        stored.append(store.index)
        what = f"points of {', '.join(map(str, points))} may meet in an element of %{buffer.name}"
        self._expect(apart(stored, points), "L12", what, store)

    # -- indices -------------------------------------------------------------------------------------------------------

    def _index(self, scope: _Scope, index: Index, where) -> None:
        for axis in index.axes():
            self._expect(axis in scope.axes, "L10", f"axis {axis} of extent {axis.extent} is not in scope", where)
        for dynamic in index.dynamics():
            known = scope.checked.get(dynamic.name) == dynamic.extent
            self._expect(known, "L10", f"{dynamic} is not a checked index of extent {dynamic.extent}", where)

    def _conditions(self, scope: _Scope, conditions: tuple[Condition, ...], where) -> None:
        for condition in conditions:
            self._index(scope, condition.index, where)

    def _access(self, scope: _Scope, buffer: Buffer, index: Index, conditions: tuple[Condition, ...], where) -> None:
        self._index(scope, index, where)
        inside = any(axis.extent == 0 for axis in scope.axes) or within(index, buffer.size, conditions)
        self._expect(inside, "L11", f"{index} may leave %{buffer.name}, which has {buffer.size} elements", where)

    # -- loops ---------------------------------------------------------------------------------------------------------

    def _loop(self, scope: _Scope, loop: Loop) -> None:
        self._axes(loop, scope.axes, loop.axes)
        self._vector(loop, loop.vector, loop.axes, scope.lanes)
        self._expect(not (loop.vector and loop.carries), "L15", "a vector loop has carries", loop)
        inside = scope.inside(loop.axes, loop.vector)
        for carry in loop.carries:
            self._carry(inside, carry)
        self._body(loop.body, inside)
        for carry in loop.carries:
            dtype = self._use(inside, carry.update, carry)
            self._expect(dtype == carry.dtype, "L06", f"a carry of {carry.dtype} is updated with {dtype}", carry)
        for reduction in loop.reductions:
            self._reduction(inside, reduction)
            self._define(scope, reduction.result, reduction.dtype, reduction)

    def _carry(self, inside: _Scope, carry: Carry) -> None:
        dtype, initial = carry.dtype, carry.initial
        self._expect(not dtype.is_half, "L14", f"a carry is kept in {dtype}", carry)
        self._expect(_represents(dtype, initial), "L07", f"{dtype} does not hold {initial!r}", carry)
        self._define(inside, carry.name, carry.dtype, carry)

    def _reduction(self, inside: _Scope, reduction: Reduction) -> None:
        dtype = self._use(inside, reduction.value, reduction)
        self._expect(reduction.combine in COMBINES, "L13", f"{reduction.combine!r} is none of {COMBINES}", reduction)
        self._expect(dtype == reduction.dtype, "L06", f"a reduction to {reduction.dtype} of {dtype}", reduction)
        self._expect(not dtype.is_half, "L14", f"a reduction is kept in {dtype}", reduction)


def _value_like(name: str, known: Iterable[str]) -> str | None:
    return did_you_mean(f"%{name}", (f"%{each}" for each in known))


def _represents(dtype: DType, value: bool | int | float) -> bool:
    """Whether ``value`` is a Python number that ``dtype`` represents without rounding."""
    if type(value) not in (bool, int, float):
        return False
    try:
        with np.errstate(over="ignore"):
            kept = dtype.numpy.type(value)
    except (OverflowError, ValueError):
        return False
    exact = float(kept) if dtype.is_float else int(kept)
    return exact == value or (value != value and dtype.is_float)

"""Reductions in generated code: accumulators in each lane, combined at the end."""

from __future__ import annotations

from euler_ir.backends.cpu.scalar_ops import combine
from euler_ir.backends.cpu.writer import Code, Register, constant, register_element
from euler_ir.dtypes import DType
from euler_ir.loops.kernel import Reduction

_OPERATIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def _identity(combine: str, dtype: DType) -> bool | int | float:
    if combine == "sum":
        return 0
    if combine == "prod":
        return 1
    return dtype.lowest if combine == "max" else dtype.highest


class Accumulator:
    """The running value of one reduction in each of ``lanes`` lanes.

    A compensated one, for long sums of floats, adds up runs: `begin_run`, `add` for each value, `end_run`, and keeps
    the rounding errors of adding the runs (D. E. Knuth, TAOCP volume 2, 4.2.2, theorem B).
    """

    def __init__(self, code: Code, reduction: Reduction, lanes: int, is_long: bool) -> None:
        self._code = code
        self._dtype = reduction.dtype
        self._operation = _OPERATIONS[reduction.combine]
        identity = constant(_identity(reduction.combine, reduction.dtype), register_element(reduction.dtype))
        self._identity = code.splat(identity, lanes)
        self._value = code.slot(self._identity)
        self.compensated = is_long and reduction.combine == "sum" and reduction.dtype.is_float
        if self.compensated:
            self._total, self._error = code.slot(self._identity), code.slot(self._identity)

    def add(self, value: Register, mask: Register | None) -> None:
        """Take in ``value``, where ``mask`` holds."""
        if mask is not None:
            value = self._code.select(mask, value, self._identity)
        self._value.set(combine(self._code, self._operation, self._dtype, value, self._value.get()))

    def begin_run(self) -> None:
        if self.compensated:
            self._value.set(self._identity)

    def end_run(self) -> None:
        if not self.compensated:
            return
        code, old, run = self._code, self._total.get(), self._value.get()
        total = code.binary("fadd", old, run)
        of_run = code.binary("fsub", total, old)
        lost_of_old = code.binary("fsub", old, code.binary("fsub", total, of_run))
        lost = code.binary("fadd", lost_of_old, code.binary("fsub", run, of_run))
        self._total.set(total)
        self._error.set(code.binary("fadd", self._error.get(), lost))

    def result(self, across_lanes: bool) -> Register:
        """The value at the end, in each lane or of all lanes together (pairwise)."""
        value = self._compensated_total() if self.compensated else self._value.get()
        while across_lanes and value.lanes > 1:
            half = value.lanes // 2
            low, high = (self._part(value, first, half) for first in (0, half))
            value = combine(self._code, self._operation, self._dtype, low, high)
        return value

    def _compensated_total(self) -> Register:
        """Total and error together; of an infinite total the error is NaN or infinite and means nothing."""
        code, total = self._code, self._total.get()
        corrected = code.binary("fadd", total, self._error.get())
        return code.select(code.compare("fcmp ord", corrected, corrected), corrected, total)

    def _part(self, value: Register, first: int, count: int) -> Register:
        if count == 1:
            return self._code.emit(f"extractelement {value.typed}, i64 {first}", value.element)
        lanes = ", ".join(f"i32 {lane}" for lane in range(first, first + count))
        return self._code.emit(
            f"shufflevector {value.typed}, {value.type} poison, <{count} x i32> <{lanes}>", value.element, count
        )

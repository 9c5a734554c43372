"""Matrix products as calls: operands and result are strided views, so that no reshape or transpose is copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from euler_ir.dtypes import DType
from euler_ir.errors import LoweringError
from euler_ir.graph import Op, Value
from euler_ir.index import Axis, Index
from euler_ir.passes.views import (
    MAX_BATCH_AXES,
    MAX_LEADING,
    MatrixView,
    Strides,
    aligned_indices,
    layout_of,
    merged_batch,
    strides_of,
    views_of,
)


@dataclass(frozen=True)
class MatmulCall:
    """``result = left @ right`` for each point of ``batch``; left is ``rows x inner``, right ``inner x columns``.

    ``ops`` are the operators that the call does: the product and perhaps a transpose of its result.
    """

    dtype: DType
    batch: tuple[int, ...]
    rows: int
    columns: int
    inner: int
    left: MatrixView
    right: MatrixView
    result_view: MatrixView
    ops: tuple[Op, ...]

    @property
    def sources(self) -> tuple[Value, ...]:
        return self.left.source, self.right.source

    @property
    def results(self) -> tuple[Value, ...]:
        return (self.result_view.source,)


def match_matmul(
    op: Op, uses: Mapping[Value, Sequence[Op]], results: frozenset[Value], is_stored: Callable[[Value], bool]
) -> MatmulCall:
    """The call for the matmul ``op``. Raises LoweringError for rows of more than MAX_LEADING elements.

    Operands are read through movements as long as ``is_stored`` says that a value has no buffer of its own and the
    steps stay regular. A transpose of the result is done by the call when nothing else reads the result.
    """
    left, right = op.operands
    batch = tuple(Axis(f"b{position}", size) for position, size in enumerate(op.result.shape[:-2]))
    rows, columns = Axis("m", op.result.shape[-2]), Axis("n", op.result.shape[-1])
    transpose_left, transpose_right = op.attributes["transpose_left"], op.attributes["transpose_right"]
    inner = Axis("k", left.shape[-2 if transpose_left else -1])

    left_at = aligned_indices(left, batch, (inner, rows) if transpose_left else (rows, inner))
    right_at = aligned_indices(right, batch, (columns, inner) if transpose_right else (inner, columns))
    left_views = views_of(left, left_at, batch, (rows, inner), is_stored)
    right_views = views_of(right, right_at, batch, (inner, columns), is_stored)
    result_views = _result_views(op, uses, results, batch, rows, columns)
    # The last view of each list reaches furthest through movements; the first is always contiguous.
    for left_view, right_view, (result_view, ops) in (
        (left_views[-1], right_views[-1], result_views[-1]),
        (left_views[-1], right_views[-1], result_views[0]),
        (left_views[0], right_views[0], result_views[0]),
    ):
        call = _call(op, ops, batch, (rows, inner, columns), left_view, right_view, result_view)
        if call is not None:
            return call
    raise LoweringError(
        f"matmul of {left.type} and {right.type}: rows of more than {MAX_LEADING} elements", location=op.location
    )


def _result_views(op: Op, uses, results, batch, rows, columns) -> list[tuple[Strides, tuple[Op, ...]]]:
    """Where the result can go: its own buffer, or that of a transpose that alone reads it."""
    result = op.result
    indices = tuple(Index.of(axis) for axis in (*batch, rows, columns))
    views = [(strides_of(result, indices, batch, (rows, columns)), (op,))]
    readers = uses.get(result, ())
    if len(readers) == 1 and readers[0].name == "transpose" and result not in results:
        moved = readers[0].result
        permuted = tuple(indices[axis] for axis in readers[0].attributes["permutation"])
        view = strides_of(moved, permuted, batch, (rows, columns))
        if view is not None and not layout_of(view, rows.extent, columns.extent)[1]:
            views.append((view, (op, readers[0])))
    return views


def _call(op, ops, batch, sizes, left: Strides, right: Strides, result: Strides) -> MatmulCall | None:
    """The call on these views with batch axes merged where all three allow it, or None when too many remain."""
    rows, inner, columns = (axis.extent for axis in sizes)
    merged = merged_batch(batch, (left, right, result))
    # Items that share the right operand are more rows of one product, where their rows lie at even distances.
    extent, left_row, right_step, result_row = merged[-1] if merged else (1, 0, 1, 0)
    is_along_rows = (left.column == 1 or inner <= 1) and (result.column == 1 or columns <= 1)
    if right_step == 0 and rows > 1 and left_row == rows * left.row and result_row == rows * result.row:
        rows *= merged.pop()[0]
    elif right_step == 0 and rows == 1 and is_along_rows:
        if left_row >= max(inner, 1) and result_row >= max(columns, 1):
            merged.pop()
            rows = extent
            left = Strides(left.source, left.offset, left.batch, left_row, left.column)
            result = Strides(result.source, result.offset, result.batch, result_row, result.column)
    if len(merged) > MAX_BATCH_AXES:
        return None
    columns_of = {"left": (rows, inner), "right": (inner, columns), "result": (rows, columns)}
    views = {}
    for place, (label, strides) in enumerate((("left", left), ("right", right), ("result", result))):
        layout = layout_of(strides, *columns_of[label])
        if layout is None:
            return None
        batch_strides = tuple(step[place + 1] for step in merged)
        views[label] = MatrixView(strides.source, strides.offset, batch_strides, *layout)
    if views["result"].transposed:
        return None
    return MatmulCall(
        op.result.dtype,
        tuple(step[0] for step in merged),
        rows,
        columns,
        inner,
        views["left"],
        views["right"],
        views["result"],
        ops,
    )


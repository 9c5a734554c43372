"""Matrix products by OpenBLAS, called from our own threads: each runs single-threaded BLAS on pieces of the result.

Which pieces there are depends on the extents alone, never on the number of threads, so neither do the bits.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import scipy_openblas32

from euler_ir.backends.cpu import jit
from euler_ir.plan.plan import MadeOperand, MatmulStep, PlannedView

#: The largest extent and leading dimension that OpenBLAS is built for.
MAX_EXTENT = 2**31 - 1

# A product is halved along its longer side until there are this many pieces, so that 2 to 16 threads share them evenly,
# or until one is so small that packing its operands shows: 64 x 128 runs at 90 % of the rate of the whole product.
_ENOUGH_PIECES = 16
_SMALLEST_PIECE = 64 * 128

# With one row or one column there is nothing to pack: memory is the limit, and BLAS's product of a matrix and a vector
# reads it several times as fast as its product of matrices.
_SMALLEST_VECTOR_PIECE = 256


def gemm_ir() -> str:
    """Definitions of ``@eir_gemm_f32`` and ``@eir_gemm_f64``, as LLVM IR text with the declarations that they need.

    Each thread of a run calls ::

        void @eir_gemm_f32(i32 thread, i32 threads, i1 transpose_a, i1 transpose_b, i64 m, i64 n, i64 k,
                           float alpha, ptr a, i64 lda, ptr b, i64 ldb, float beta, ptr c, i64 ldc,
                           i64 batch0, i64 batch1,
                           i64 a_stride0, i64 a_stride1, i64 b_stride0, i64 b_stride1, i64 c_stride0, i64 c_stride1)

    and together they compute C[p, q] = alpha op(A[p, q]) op(B[p, q]) + beta C[p, q] for p < batch0, q < batch1, where
    op(A) is m x k and op(B) is k x n (the stored matrix or its transpose). Matrices are row-major; lda, ldb and ldc are
    the distances between their stored rows and the strides those between batch items, all in elements. As in BLAS,
    beta = 0 overwrites C whatever it holds, and k = 0 leaves beta C; a leading dimension is at least the length of a
    stored row and at least 1. Extents and leading dimensions are at most MAX_EXTENT, and C overlaps nothing. There is
    no barrier inside. In f64 the name ends in f64 and alpha and beta are double.
    """
    return _gemm_text("f32", "float", "eir_cblas_s") + _gemm_text("f64", "double", "eir_cblas_d")


def takes(step: MatmulStep) -> bool:
    """Whether the operands are in memory, and OpenBLAS counts as far as ``step`` needs."""
    if isinstance(step.left, MadeOperand) or isinstance(step.right, MadeOperand):
        return False
    leading = (view.leading for view in (step.left, step.right, step.result))
    return max(step.rows, step.columns, step.inner, *leading) <= MAX_EXTENT


def description() -> str:
    """The version of OpenBLAS, how it was built, and the kind of core that it runs as."""
    configuration, core = (
        getattr(_library(), f"scipy_openblas_get_{what}") for what in ("config", "corename")
    )
    configuration.restype = core.restype = ctypes.c_char_p
    return f"{configuration().decode()} as {core().decode()}"


def call(step: MatmulStep, left: str, right: str, result: str) -> str:
    """The call for ``step`` on these pointers, as a line of the step function."""
    scalar = {"f32": "float", "f64": "double"}[step.dtype.name]
    batch = (1, 1, *step.batch)[-2:]

    def strides(view: PlannedView) -> str:
        return ", ".join(f"i64 {stride}" for stride in (0, 0, *view.batch_strides)[-2:])

    arguments = [
        "i32 %thread, i32 %threads",
        f"i1 {str(step.left.transposed).lower()}, i1 {str(step.right.transposed).lower()}",
        f"i64 {step.rows}, i64 {step.columns}, i64 {step.inner}, {scalar} 1.0",
        f"ptr {left}, i64 {step.left.leading}",
        f"ptr {right}, i64 {step.right.leading}",
        f"{scalar} 0.0, ptr {result}, i64 {step.result.leading}",
        f"i64 {batch[0]}, i64 {batch[1]}",
        *(strides(view) for view in (step.left, step.right, step.result)),
    ]
    return f"  call void @eir_gemm_{step.dtype}({', '.join(arguments)})"


@functools.cache
def _library() -> ctypes.CDLL:
    directory = Path(scipy_openblas32.get_lib_dir())
    library = ctypes.CDLL(next(directory.glob(f"lib{scipy_openblas32.get_library()}.*")))
    library.scipy_openblas_set_num_threads(1)
    return library


def _address(symbol: str) -> int:
    return ctypes.cast(getattr(_library(), symbol), ctypes.c_void_p).value


for _routine in ("sgemm", "dgemm", "sgemv", "dgemv"):
    jit.register_symbol(f"eir_cblas_{_routine}", functools.partial(_address, f"scipy_cblas_{_routine}"))


def _gemm_text(dtype: str, scalar: str, cblas: str) -> str:
    # 101 is CblasRowMajor, 111 CblasNoTrans, 112 CblasTrans.
    return f"""
declare void @{cblas}gemm(i32, i32, i32, i32, i32, i32, {scalar}, ptr, i32, ptr, i32, {scalar}, ptr, i32)
declare void @{cblas}gemv(i32, i32, i32, i32, {scalar}, ptr, i32, ptr, i32, {scalar}, ptr, i32)

define internal void @eir_gemm_{dtype}(i32 %thread, i32 %threads, i1 %transpose.a, i1 %transpose.b,
    i64 %m, i64 %n, i64 %k, {scalar} %alpha, ptr %a, i64 %lda, ptr %b, i64 %ldb, {scalar} %beta, ptr %c, i64 %ldc,
    i64 %batch0, i64 %batch1, i64 %a0, i64 %a1, i64 %b0, i64 %b1, i64 %c0, i64 %c1) {{
entry:
  %items = mul i64 %batch0, %batch1
  %one.row = icmp eq i64 %m, 1
  %one.column = icmp eq i64 %n, 1
  %one.either = or i1 %one.row, %one.column
  ; BLAS's gemv returns at once where the sum is empty, without scaling C.
  %has.terms = icmp ne i64 %k, 0
  %is.vector = and i1 %one.either, %has.terms
  %smallest = select i1 %is.vector, i64 {_SMALLEST_VECTOR_PIECE}, i64 {_SMALLEST_PIECE}
  br label %halve

halve:
  %rows.parts = phi i64 [ 1, %entry ], [ %rows.parts.next, %half ]
  %columns.parts = phi i64 [ 1, %entry ], [ %columns.parts.next, %half ]
  %height = phi i64 [ %m, %entry ], [ %height.next, %half ]
  %width = phi i64 [ %n, %entry ], [ %width.next, %half ]
  %parts = mul i64 %rows.parts, %columns.parts
  %pieces = mul i64 %parts, %items
  %area = mul i64 %height, %width
  %few = icmp ult i64 %pieces, {_ENOUGH_PIECES}
  %large = icmp ugt i64 %area, %smallest
  %go.on = and i1 %few, %large
  br i1 %go.on, label %half, label %deal

half:
  %tall = icmp uge i64 %height, %width
  %rows.doubled = shl i64 %rows.parts, 1
  %columns.doubled = shl i64 %columns.parts, 1
  %height.half = lshr i64 %height, 1
  %width.half = lshr i64 %width, 1
  %rows.parts.next = select i1 %tall, i64 %rows.doubled, i64 %rows.parts
  %columns.parts.next = select i1 %tall, i64 %columns.parts, i64 %columns.doubled
  %height.next = select i1 %tall, i64 %height.half, i64 %height
  %width.next = select i1 %tall, i64 %width, i64 %width.half
  br label %halve

deal:
  ; Pieces of whole register tiles: a multiple of 16, rounded up, so the last of a row or column may be empty.
  %rows.up = add i64 %m, %rows.parts
  %rows.less = sub i64 %rows.up, 1
  %rows.exact = udiv i64 %rows.less, %rows.parts
  %rows.tiles = add i64 %rows.exact, 15
  %rows = and i64 %rows.tiles, -16
  %columns.up = add i64 %n, %columns.parts
  %columns.less = sub i64 %columns.up, 1
  %columns.exact = udiv i64 %columns.less, %columns.parts
  %columns.tiles = add i64 %columns.exact, 15
  %columns = and i64 %columns.tiles, -16

  %thread.wide = zext i32 %thread to i64
  %threads.wide = zext i32 %threads to i64
  %thread.next = add i64 %thread.wide, 1
  %first.scaled = mul i64 %pieces, %thread.wide
  %first = udiv i64 %first.scaled, %threads.wide
  %end.scaled = mul i64 %pieces, %thread.next
  %end = udiv i64 %end.scaled, %threads.wide

  %k.int = trunc i64 %k to i32
  %lda.int = trunc i64 %lda to i32
  %ldb.int = trunc i64 %ldb to i32
  %ldc.int = trunc i64 %ldc to i32
  %order.a = select i1 %transpose.a, i32 112, i32 111
  %order.b = select i1 %transpose.b, i32 112, i32 111
  %a.row = select i1 %transpose.a, i64 1, i64 %lda
  %b.column = select i1 %transpose.b, i64 %ldb, i64 1

  ; As a matrix and a vector: y = op(A) b, or for one row y = op(B)^T a.
  %b.is.plain = xor i1 %transpose.b, true
  %matrix.transposed = select i1 %one.row, i1 %b.is.plain, i1 %transpose.a
  %order.matrix = select i1 %matrix.transposed, i32 112, i32 111
  %matrix.stride = select i1 %one.row, i32 %ldb.int, i32 %lda.int
  %a.step = select i1 %transpose.a, i32 %lda.int, i32 1
  %b.step = select i1 %transpose.b, i32 1, i32 %ldb.int
  %x.step = select i1 %one.row, i32 %a.step, i32 %b.step
  %y.step = select i1 %one.row, i32 1, i32 %ldc.int
  br label %next

next:
  %piece = phi i64 [ %first, %deal ], [ %piece.next, %skip ]
  %more = icmp ult i64 %piece, %end
  br i1 %more, label %locate, label %done

locate:
  %item = udiv i64 %piece, %parts
  %part = urem i64 %piece, %parts
  %p = udiv i64 %item, %batch1
  %q = urem i64 %item, %batch1
  %row.part = udiv i64 %part, %columns.parts
  %column.part = urem i64 %part, %columns.parts
  %row = mul i64 %row.part, %rows
  %column = mul i64 %column.part, %columns
  %rows.left = sub i64 %m, %row
  %columns.left = sub i64 %n, %column
  %piece.rows = call i64 @llvm.smin.i64(i64 %rows, i64 %rows.left)
  %piece.columns = call i64 @llvm.smin.i64(i64 %columns, i64 %columns.left)
  %has.rows = icmp sgt i64 %piece.rows, 0
  %has.columns = icmp sgt i64 %piece.columns, 0
  %filled = and i1 %has.rows, %has.columns
  br i1 %filled, label %multiply, label %skip

multiply:
  %a.p = mul i64 %p, %a0
  %a.q = mul i64 %q, %a1
  %a.item = add i64 %a.p, %a.q
  %a.inner = mul i64 %row, %a.row
  %a.offset = add i64 %a.item, %a.inner
  %a.piece = getelementptr {scalar}, ptr %a, i64 %a.offset
  %b.p = mul i64 %p, %b0
  %b.q = mul i64 %q, %b1
  %b.item = add i64 %b.p, %b.q
  %b.inner = mul i64 %column, %b.column
  %b.offset = add i64 %b.item, %b.inner
  %b.piece = getelementptr {scalar}, ptr %b, i64 %b.offset
  %c.p = mul i64 %p, %c0
  %c.q = mul i64 %q, %c1
  %c.item = add i64 %c.p, %c.q
  %c.above = mul i64 %row, %ldc
  %c.inner = add i64 %c.above, %column
  %c.offset = add i64 %c.item, %c.inner
  %c.piece = getelementptr {scalar}, ptr %c, i64 %c.offset
  %rows.int = trunc i64 %piece.rows to i32
  %columns.int = trunc i64 %piece.columns to i32
  br i1 %is.vector, label %by.vector, label %by.matrix

by.vector:
  %y.length = select i1 %one.row, i32 %columns.int, i32 %rows.int
  %matrix.rows = select i1 %matrix.transposed, i32 %k.int, i32 %y.length
  %matrix.columns = select i1 %matrix.transposed, i32 %y.length, i32 %k.int
  %matrix = select i1 %one.row, ptr %b.piece, ptr %a.piece
  %x = select i1 %one.row, ptr %a.piece, ptr %b.piece
  call void @{cblas}gemv(i32 101, i32 %order.matrix, i32 %matrix.rows, i32 %matrix.columns,
    {scalar} %alpha, ptr %matrix, i32 %matrix.stride, ptr %x, i32 %x.step, {scalar} %beta, ptr %c.piece, i32 %y.step)
  br label %skip

by.matrix:
  call void @{cblas}gemm(i32 101, i32 %order.a, i32 %order.b, i32 %rows.int, i32 %columns.int, i32 %k.int,
    {scalar} %alpha, ptr %a.piece, i32 %lda.int, ptr %b.piece, i32 %ldb.int,
    {scalar} %beta, ptr %c.piece, i32 %ldc.int)
  br label %skip

skip:
  %piece.next = add i64 %piece, 1
  br label %next

done:
  ret void
}}
"""

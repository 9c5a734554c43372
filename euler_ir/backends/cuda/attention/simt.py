"""Attention on ordinary cores, computed in f32 or f64: for elements of these types, and for halves where tensor cores
do not serve. The score matrix is never stored, no two blocks write one element, and every sum has one order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from euler_ir.backends.cuda.attention.views import (
    C_TYPES,
    MOST_ROWS,
    NamedView,
    Sizes,
    inner_heads,
    kernel_in_c,
    named_views,
)
from euler_ir.backends.cuda.calls import Launch, Number, Source
from euler_ir.backends.cuda.limits import MOST_BLOCKS
from euler_ir.backends.cuda.sources import unit
from euler_ir.dtypes import DType, accumulation_dtype
from euler_ir.errors import LoweringError
from euler_ir.plan.plan import AttentionStep

# As in simt.cuh.
_THREADS = 128
_ROWS = 64
_PIECE_BYTES = 16
_BAND_BYTES = 8 * _PIECE_BYTES

_BLOCKS_AT_ONCE = 2
"""Of a multiprocessor, at least: as many as have 255 registers a thread, so that nothing is spilled."""
_MOST_BANDS = 4
"""How many bands of a result's columns a block sums in registers; if there are more, several blocks share them."""

_FOLDER = Path(__file__).parent
_FILES = ("target.cuh", *(_FOLDER / name for name in ("views.cuh", "simt.cuh", "simt_tasks.cuh")))


@dataclass(frozen=True)
class _Kernel:
    """A function ``call`` of the CUDA text in ``file`` with the views ``operands`` and ``results``.

    Its blocks own rows of the result ``of``, which are those of queries or of keys.
    """

    name: str
    file: str
    call: str
    operands: tuple[str, ...]
    of: str
    results: tuple[str, ...]


_FORWARD = ("query", "key", "value", "visible_from")
_GRADIENT = ("query", "key", "value", "logsumexp", "d_output", "delta", "visible_from")
_OF_KEYS = ("d_key", "d_value")
_KERNELS = {
    "attention": (
        _Kernel("attention", "simt_forward.cuh", "forward<{}>", _FORWARD, "output", ("output", "logsumexp")),
    ),
    "attention_gradient": tuple(
        _Kernel(
            f"attention_gradient_by_{by}", "simt_gradient.cuh", f"gradient<{{}}, eir::simt::By::{by}>", _GRADIENT,
            f"d_{by}", (f"d_{by}",),
        )
        for by in ("query", "key", "value")
    ),
}  # fmt: skip


@dataclass(frozen=True)
class _Kind:
    """What a kernel is made for, whatever the extents: ``Kind`` of simt_tasks.cuh."""

    dtype: DType
    bands: int
    visible_from: bool
    aligned: bool

    @property
    def sums(self) -> DType:
        return accumulation_dtype(self.dtype)

    @property
    def columns(self) -> int:
        """Of the result, that a block makes."""
        return self.bands * _BAND_BYTES // self.sums.itemsize

    def __str__(self) -> str:
        """As part of a name."""
        flags = "_visible_from" * self.visible_from + "_unaligned" * (not self.aligned)
        return f"{self.dtype}_{self.columns}_columns{flags}"

    @property
    def c_type(self) -> str:
        flags = (str(flag).lower() for flag in (self.visible_from, self.aligned))
        types = (C_TYPES[dtype.name] for dtype in (self.dtype, self.sums))
        return f"eir::simt::Kind<{', '.join((*types, str(self.bands), *flags))}>"


def simt_launches(step: AttentionStep) -> tuple[Launch, ...]:
    """The launches that compute ``step``. Raises LoweringError for extents beyond what 32-bit numbers can count."""
    if max(step.queries, step.keys) > MOST_ROWS:
        raise LoweringError(f"attention of {step.queries} queries and {step.keys} keys: {MOST_ROWS} are the most")
    launches = (_launch(step, kernel) for kernel in _KERNELS[step.operator])
    return tuple(launch for launch in launches if launch.blocks)


def _launch(step: AttentionStep, kernel: _Kernel) -> Launch:
    views = named_views(step, (*kernel.operands, *kernel.results))
    result, kind = views[kernel.of], _kind(step, views, views[kernel.of].columns)
    heads = math.prod(step.key_batch if kernel.of in _OF_KEYS else step.batch)
    blocks = heads * math.ceil(result.rows / _ROWS) * math.ceil(result.columns / kind.columns)
    if blocks > MOST_BLOCKS:
        raise LoweringError(f"attention of {heads} heads needs {blocks} blocks of threads, and CUDA has {MOST_BLOCKS}")
    ahead = step.keys - step.queries if step.causal else step.keys
    sizes = (step.queries, step.keys, step.width, step.value_width, inner_heads(step), step.group, ahead)
    arguments = (
        *(argument for view in views.values() for argument in view.arguments(step)),
        *(Number("i32", size) for size in sizes),
        Number(kind.sums.name, step.scale),
    )
    source = _source(kernel, kind, tuple((name, view.c_type) for name, view in views.items()))
    return Launch(source, source.name, blocks, _THREADS, 0, arguments, step.origins)


def _kind(step: AttentionStep, views: Mapping[str, NamedView], columns: int) -> _Kind:
    """That of a kernel whose result has so many ``columns``: its blocks share them evenly."""
    sums = accumulation_dtype(step.dtype)
    bands = max(math.ceil(columns * sums.itemsize / _BAND_BYTES), 1)
    bands = math.ceil(bands / math.ceil(bands / _MOST_BANDS))
    bytes_of_piece = _PIECE_BYTES // sums.itemsize * step.dtype.itemsize
    aligned = all(view.alignment >= bytes_of_piece for view in views.values() if view.is_matrix)
    return _Kind(step.dtype, bands, step.has_visible_from, aligned)


@functools.cache
def _source(kernel: _Kernel, kind: _Kind, types: tuple[tuple[str, str], ...]) -> Source:
    """The source of one kernel; ``types`` are the views that it takes, with their types in C++."""
    name, sums = f"{kernel.name}_{kind}", C_TYPES[kind.sums.name]
    call, order = f"eir::simt::{kernel.call.format(kind.c_type)}", (*kernel.operands, *kernel.results)
    sizes = Sizes(f"EIR_SIZES({sums})", f"EIR_SIZES_OF({sums})")
    text = kernel_in_c(name, (_THREADS, _BLOCKS_AT_ONCE), call, dict(types), order, sizes)
    return Source(name, unit(name, (*_FILES, _FOLDER / kernel.file), text), (name,))

"""FlashAttention for half types on tensor cores: one kernel forward, and two for the gradient, so that no sum needs
atomics and every run gives the same bits (T. Dao, arXiv:2307.08691).

Sources depend on the type, the widths and the kinds of mask, and on no extent: all layers of a model share them.
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
from euler_ir.backends.cuda.calls import Calls, Launch, Number, Source
from euler_ir.backends.cuda.limits import MOST_BLOCKS, REGISTERS_OF_THREAD, resident_blocks
from euler_ir.backends.cuda.sources import unit
from euler_ir.plan.plan import AttentionStep

WIDEST = 128
"""Columns of queries, keys and values that a block can sum in registers."""
_WARPS = 8
"""Of a multiprocessor: two for each of its schedulers, so that one computes while the other waits."""
_FIRST_ARCHITECTURE = 80  # with mma.m16n8k16 and cp.async

_FOLDER = Path(__file__).parent
_SIZES = Sizes(
    "int queries, int keys, int inner_heads, int group, float scale", "{queries, keys, inner_heads, group, scale}"
)
_FILES = ("target.cuh", *(_FOLDER / name for name in ("views.cuh", "flash_tile.cuh", "flash_mask.cuh")))


@dataclass(frozen=True)
class _Tiles:
    """How a block divides its work: each of its ``warps`` has 16 ``row_tiles`` rows of queries, or of keys in the
    kernel of their gradients. Of the other matrices ``stage_rows`` arrive in shared memory at a time, and ``step_rows``
    of them are worked on at a time.

    ``held`` says that queries stay in registers. Without it they are read from shared memory when they are needed.
    Without ``packed`` registers do not suffice for a mask by ``visible_from``.
    """

    warps: int
    row_tiles: int
    stage_rows: int
    step_rows: int
    held: bool = False
    packed: bool = True

    @property
    def rows(self) -> int:
        return self.warps * self.row_tiles * 16

    @property
    def threads(self) -> int:
        return self.warps * 32


@dataclass(frozen=True)
class _Kernel:
    """A function ``call`` of the CUDA text in ``file`` with the views ``operands`` and ``results``. Its blocks have
    rows of the result ``of``, which are those of queries or of keys.

    ``tiles`` are, up to a limit of the wider width, in order of preference: the first of which a multiprocessor holds
    _WARPS warps is taken, or else the last.
    """

    name: str
    file: str
    call: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    of: str
    tiles: tuple[tuple[int, tuple[_Tiles, ...]], ...]


_GRADIENT = ("query", "key", "value", "logsumexp", "d_output", "delta", "visible_from")

_KERNELS = {
    "attention": (
        _Kernel(
            "flash_attention", "flash_forward.cuh", "forward",
            ("query", "key", "value", "visible_from"), ("output", "logsumexp"), "output",
            (
                (64, (_Tiles(4, 2, 64, 64, held=True),)),
                (112, (_Tiles(4, 2, 64, 64), _Tiles(8, 1, 64, 64, held=True))),
                (128, (_Tiles(4, 2, 48, 48, packed=False), _Tiles(4, 2, 32, 32), _Tiles(8, 1, 64, 64))),
            ),
        ),
    ),
    "attention_gradient": (
        _Kernel(
            "flash_attention_gradient_by_keys", "flash_backward_keys.cuh", "backward_keys",
            _GRADIENT, ("d_key", "d_value"), "d_key",
            (
                (64, (_Tiles(4, 2, 64, 32), _Tiles(8, 1, 64, 64))),
                (96, (_Tiles(8, 1, 64, 64), _Tiles(8, 1, 32, 32))),
                (128, (_Tiles(8, 1, 64, 32), _Tiles(4, 1, 32, 32))),
            ),
        ),
        _Kernel(
            "flash_attention_gradient_by_queries", "flash_backward_queries.cuh", "backward_queries",
            _GRADIENT, ("d_query",), "d_query",
            (
                (64, (_Tiles(4, 2, 64, 32), _Tiles(8, 1, 64, 64))),
                (128, (_Tiles(4, 2, 32, 32), _Tiles(8, 1, 32, 32), _Tiles(4, 1, 32, 32))),
            ),
        ),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class _Config:
    """What a kernel is made for: ``Config`` of the CUDA text."""

    dtype: str
    width: int
    value_width: int
    causal: bool
    packed: bool
    aligned: bool
    tiles: _Tiles

    def __str__(self) -> str:
        """As part of a name."""
        widths = f"{self.width}" if self.width == self.value_width else f"{self.width}_{self.value_width}"
        flags = "_causal" * self.causal + "_visible_from" * self.packed + "_unaligned" * (not self.aligned)
        return f"{self.dtype}_{widths}{flags}"

    @property
    def text(self) -> str:
        tiles = self.tiles
        return (
            "struct Config {\n"
            f"    using type = {C_TYPES[self.dtype]};\n"
            f"    static constexpr int width = {self.width}, value_width = {self.value_width};\n"
            f"    static constexpr int warps = {tiles.warps}, row_tiles = {tiles.row_tiles};\n"
            f"    static constexpr int stage_rows = {tiles.stage_rows}, step_rows = {tiles.step_rows};\n"
            f"    static constexpr bool causal = {_c(self.causal)}, packed = {_c(self.packed)};\n"
            f"    static constexpr bool aligned = {_c(self.aligned)}, held = {_c(tiles.held)};\n"
            "};\n"
        )

    def shared_bytes(self, kernel: _Kernel) -> int:
        """Of shared memory that a block of ``kernel`` needs: as the CUDA text divides it."""
        tiles, row, value_row = self.tiles, _pitch(self.width), _pitch(self.value_width)
        stage = tiles.stage_rows * (row + value_row)
        if kernel.call == "backward_keys":
            return tiles.rows * (row + value_row) + 2 * (stage + tiles.stage_rows * 12)
        begins = 4 * tiles.rows * self.packed
        if kernel.call == "backward_queries":
            return tiles.rows * (row + value_row) + 2 * stage + begins
        return max(tiles.rows * row + stage + begins, tiles.rows * value_row)


def refusal(step: AttentionStep, architecture: str) -> str | None:
    """Why these kernels do not do ``step``, as part of a sentence; None if they do."""
    if step.dtype.name not in ("f16", "bf16"):
        return f"tensor cores are used for f16 and bf16, not {step.dtype}"
    if int("".join(filter(str.isdigit, architecture))) < _FIRST_ARCHITECTURE:
        return f"{architecture} is before sm_{_FIRST_ARCHITECTURE}"
    widest = max(step.width, step.value_width)
    if not (widest <= WIDEST and min(step.width, step.value_width) > 0):
        return f"heads are {widest} wide, and tensor cores are used up to {WIDEST}"
    if not 0 < step.scale < 2.0**127:
        return f"a scale of {step.scale:g} may turn the order of scores around"
    if max(step.queries, step.keys) > MOST_ROWS or math.prod(step.batch) * step.queries > MOST_BLOCKS:
        return "rows are more than 32 bits count"
    if max(view.leading for view in (*step.operands, *step.results)) >= 2**31:
        return "rows are farther apart than 32 bits count"
    return None


def flash_calls(step: AttentionStep, architecture: str) -> Calls:
    """What computes ``step``, which has no `refusal`, on a GPU of ``architecture``, such as 'sm_90'."""
    launches = (_launch(step, kernel, architecture) for kernel in _KERNELS[step.operator])
    return Calls(tuple(launch for launch in launches if launch.blocks))


def _launch(step: AttentionStep, kernel: _Kernel, architecture: str) -> Launch:
    views = named_views(step, (*kernel.operands, *kernel.results))
    config = _config(step, kernel, views, architecture)
    heads = math.prod(step.key_batch if kernel.of == "d_key" else step.batch)
    blocks = heads * math.ceil(views[kernel.of].rows / config.tiles.rows)
    arguments = (
        *(argument for view in views.values() for argument in view.arguments(step)),
        *(Number("i32", size) for size in (step.queries, step.keys, inner_heads(step), step.group)),
        Number("f32", step.scale),
    )
    source = _source(kernel, config, tuple((name, view.c_type) for name, view in views.items()))
    shared_bytes = config.shared_bytes(kernel)
    return Launch(source, source.name, blocks, config.tiles.threads, shared_bytes, arguments, step.origins)


def _config(step: AttentionStep, kernel: _Kernel, views: Mapping[str, NamedView], architecture: str) -> _Config:
    aligned = all(view.alignment == 16 and view.columns % 8 == 0 for view in views.values() if view.is_matrix)
    widest = max(step.width, step.value_width)
    for tiles in next(tiles for limit, tiles in kernel.tiles if widest <= limit):
        config = _Config(
            step.dtype.name, step.width, step.value_width, step.causal, step.has_visible_from, aligned, tiles
        )
        blocks = resident_blocks(architecture, tiles.threads, REGISTERS_OF_THREAD, config.shared_bytes(kernel))
        if blocks * tiles.warps >= _WARPS and config.packed <= tiles.packed:
            break
    return config


@functools.cache
def _source(kernel: _Kernel, config: _Config, types: tuple[tuple[str, str], ...]) -> Source:
    name = f"{kernel.name}_{config}"
    bounds = config.tiles.threads, 256 // config.tiles.threads  # threads that a multiprocessor has 255 registers for
    function, order = f"eir::flash::{kernel.call}<Config>", (*kernel.operands, *kernel.results)
    text = kernel_in_c(name, bounds, function, dict(types), order, _SIZES)
    return Source(name, unit(name, (*_FILES, _FOLDER / kernel.file), f"{config.text}\n{text}"), (name,))


def _pitch(width: int) -> int:
    """Bytes from one row of a tile in shared memory to the next."""
    return 2 * (math.ceil(width / 16) * 16 + 8)


def _c(flag: bool) -> str:
    return str(flag).lower()

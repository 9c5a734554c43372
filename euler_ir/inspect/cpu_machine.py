"""Who does what on the CPU: worker threads, lanes of vectors, register tiles and packed panels."""

from __future__ import annotations

from collections.abc import Iterator

from euler_ir.backends.cpu.placement import Placement
from euler_ir.index import Axis
from euler_ir.inspect.touches import SAMPLE, Steps, items_of, said
from euler_ir.loops.kernel import Loop, Statement
from euler_ir.plan.plan import AttentionStep, CopyStep, KernelStep, MatmulStep, Plan


class CpuMachine:
    """A `Machine`: the CPU with so many worker ``threads``, by default as many as `compile` takes."""

    def __init__(self, plan: Plan, threads: int | None) -> None:
        self.placement = Placement(plan, threads)
        self.threads = self.placement.threads

    def in_kernel(self, step: KernelStep, number: int) -> Steps:
        nest = step.kernel.nests[number]
        inner = {loop.axes[-1]: loop for loop in _loops(nest.body) if loop.vector and loop.axes}

        def steps(point: dict) -> tuple[set[int], dict]:
            thread, lane = self.placement.of_point(step, number, point)
            details = {"task": lane.task}
            if lane.width > 1:
                details |= {"vector": lane.vector, "lane": lane.lane, "lanes": lane.width, "masked": lane.masked}
            for axis, loop in inner.items():
                if axis in point:
                    position, width, masked = self.placement.of_loop(loop, point)
                    details |= {"lane": position, "lanes": width, "masked": masked}
            return {thread}, details

        return steps

    def in_product(self, step: MatmulStep, side: str) -> Steps:
        by_openblas = self.placement.by_openblas(step)

        def steps(point: dict) -> tuple[set[int], dict]:
            if by_openblas:
                return set(), {"library": "OpenBLAS"}
            at = {said(axis): position for axis, position in point.items()}
            items = items_of(step.batch, at)
            places = self.placement.of_product(step, side, items, at.get("row"), at.get("column"), at.get("inner"))
            shown = []
            for place in places[:SAMPLE]:
                each = {
                    "thread": place.thread,
                    "rows": [place.rows.start, place.rows.stop - 1],
                    "columns": [place.columns.start, place.columns.stop - 1],
                }
                if place.panel is not None:
                    panel = place.panel
                    each |= {"panel": panel.panel, "panel_step": panel.step, "panel_place": panel.place}
                    each |= {"line_block": panel.line_block, "inner_block": panel.inner_block}
                else:
                    each |= {"tile_row": place.tile_row, "vector": place.vector, "lane": place.lane}
                shown.append(each)
            return {place.thread for place in places}, {"places": shown}

        return steps

    def in_epilogue(self, step: MatmulStep) -> Steps:
        (nest,) = step.epilogue.kernel.nests
        in_product = self.in_product(step, "result")

        def steps(point: dict) -> tuple[set[int], dict]:
            row = 0
            for axis in nest.axes[:-1]:
                row = row * axis.extent + point[axis]
            return in_product({Axis("row", step.rows): row, Axis("column", step.columns): point[nest.axes[-1]]})

        return steps

    def in_attention(self, step: AttentionStep, rows: Axis, is_key: bool) -> Steps:
        def steps(point: dict) -> tuple[set[int], dict]:
            (head,) = items_of(step.batch, {said(axis): position for axis, position in point.items()})
            row, details = point[rows], {"head": head}
            if is_key:
                tile, place = self.placement.key_tile(row)
                return set(self.placement.of_keys(step, head, row)), details | {"key_tile": tile, "tile_row": place}
            block = self.placement.query_block(step, row)
            if block is not None:
                details |= {"query_block": block[0], "block_place": block[1]}
            return {self.placement.of_queries(step, head, row)}, details

        return steps

    def in_copy(self, step: CopyStep, byte: int) -> Steps:
        thread = self.placement.of_copy(step, byte)
        return lambda point: ({thread}, {})


def _loops(body: tuple[Statement, ...]) -> Iterator[Loop]:
    for statement in body:
        if isinstance(statement, Loop):
            yield statement
            yield from _loops(statement.body)

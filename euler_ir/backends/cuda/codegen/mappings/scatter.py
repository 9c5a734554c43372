"""The mapping for sums at places that indices name, such as gradients of embeddings: no floats are added atomically.

Three stages: all is made 0 (unless it is added to what is there), each place gets to know the first update that goes to
it, and the block of that update adds up all that go there, in order. Equal to the loop over all updates, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from euler_ir.backends.cuda.calls import ScratchPointer
from euler_ir.backends.cuda.codegen.mappings import points
from euler_ir.backends.cuda.codegen.sharing import accesses
from euler_ir.backends.cuda.codegen.stage import THREADS, WARP, WARPS, Mapped, Parameter, Spot, Stage, stage_of
from euler_ir.backends.cuda.codegen.statements import Statements
from euler_ir.backends.cuda.codegen.types import from_memory, literal, register_type, to_memory
from euler_ir.dtypes import i64
from euler_ir.index import Axis
from euler_ir.loops.hoist import indices
from euler_ir.loops.kernel import Buffer, CheckIndex, Compute, Loop, Nest, Statement, Store

SHORT = 32
"""Updates that one thread may well add one after the other."""
MOST_ELEMENTS = 4
"""Elements of an update that a thread adds up at once."""
_MOST = 2**31 - 1


@dataclass(frozen=True)
class _Scatter:
    """``loop`` adds an element of each update to ``store``'s place; ``check`` gives the place along the scattered axis,
    from the statements ``target`` alone. ``is_new`` says that a loop before it makes all elements 0.
    """

    loop: Loop
    target: tuple[Statement, ...]
    check: CheckIndex
    store: Store
    is_new: bool

    @property
    def updates(self) -> int:
        return self.loop.iterations


def suits(nest: Nest) -> bool:
    return _scatter_of(nest) is not None


def _scatter_of(nest: Nest) -> _Scatter | None:
    """What ``nest`` scatters, if it does nothing else, and not too little."""
    *before, loop = nest.body or (None,)
    if not isinstance(loop, Loop) or loop.carries or loop.reductions or nest.locals:
        return None
    *statements, store = loop.body
    if not isinstance(store, Store) or not store.accumulate or any(isinstance(s, (Loop, Store)) for s in statements):
        return None
    checks = [s for s in statements if isinstance(s, CheckIndex)]
    if len(checks) != 1 or [dynamic.name for dynamic in store.index.dynamics()] != [checks[0].result]:
        return None
    target = tuple(_needed(checks[0], statements))
    buffers = {buffer.name: buffer for buffer in nest.parameters}
    found = _Scatter(loop, target, checks[0], store, is_new=bool(before))
    is_alone = {axis for s in target for axis in _axes(s)} <= {*loop.axes}
    is_alone &= not {*store.index.axes()} & {*loop.axes} and not buffers[store.buffer].dtype.is_half
    is_alone &= all(access.is_store or access.buffer != store.buffer for access in accesses(loop))
    is_whole = not before or (len(before) == 1 and _is_zeros(before[0], store.buffer, buffers))
    fits = SHORT < found.updates <= _MOST // 2 and checks[0].extent <= _MOST // 2 and nest.points <= _MOST // 2
    return found if is_alone and is_whole and fits else None


def _needed(check: CheckIndex, statements: list[Statement]) -> Iterator[Statement]:
    """``check`` and those of ``statements`` before it that it depends on, in order."""
    names = {check.value}
    chosen: list[Statement] = [check]
    for statement in reversed(statements[: statements.index(check)]):
        if statement.result in names:
            chosen.append(statement)
            names.update(statement.operands if isinstance(statement, Compute) else ())
            names.update(dynamic.name for index in indices(statement) for dynamic in index.dynamics())
    return reversed(chosen)


def _axes(statement: Statement) -> Iterator[Axis]:
    for index in indices(statement):
        yield from index.axes()


def _is_zeros(statement: Statement, buffer: str, buffers: dict[str, Buffer]) -> bool:
    """Whether it is the loop with which a scatter begins its output."""
    if not isinstance(statement, Loop) or len(statement.body) != 2 or buffers[buffer].role != "output":
        return False
    constant, store = statement.body
    return isinstance(store, Store) and store.buffer == buffer and not getattr(constant, "value", True)


def map_nest(nest: Nest, in_place: frozenset[int]) -> Mapped:
    if in_place:
        return points.map_nest(nest, in_place)
    found = _scatter_of(nest)
    first_bytes = -(-4 * found.check.extent // 256) * 256
    first = Parameter("int*", "first", ScratchPointer(0))
    targets = Parameter("int*", "targets", ScratchPointer(first_bytes))
    stages = (_begun(nest, found, first), _found(nest, found, first, targets), _Sums(nest, found).write(first, targets))
    return Mapped(stages, first_bytes + 4 * found.updates)


def spot(nest: Nest, in_place: frozenset[int], point: Mapping[Axis, int]) -> Spot | None:
    return points.spot(nest, in_place, point) if in_place else None


def _statements(nest: Nest) -> Statements:
    return Statements(nest, "first", "targets", "point", "tried", "vote", "warp")


def _begun(nest: Nest, found: _Scatter, first: Parameter) -> Stage:
    """No update is known yet, and all elements of a new tensor are 0."""
    code, extent = _statements(nest), found.check.extent
    buffer = code.buffers[found.store.buffer]
    size = buffer.size if found.is_new else 0
    code.comment(f"{extent} places, no update known" + (f", and {size} elements, all 0" if size else ""))
    count = max(size, extent)
    element = code.thread_number("at", count)
    code.line(f"if ({element} < {extent}) first[{element}] = {found.updates};")
    if size:
        zero = to_memory(buffer.dtype, literal(buffer.dtype, 0))
        code.line(f"if ({element} < {size}) {code.pointer(buffer.name)}[{element}] = {zero};")
    return _stage(nest, code, -(-count // THREADS), (first,))


def _found(nest: Nest, found: _Scatter, first: Parameter, targets: Parameter) -> Stage:
    """The place of each update, and of each place the first update: the least number, whoever is first to say so."""
    code = _statements(nest)
    code.comment(f"{found.updates} updates, one a thread")
    update = code.thread_number("update", found.updates)
    code.place_axes(found.loop.axes, update, found.updates)
    code.statements(found.target)
    place = code.values[found.check.result]
    code.line(f"targets[{update}] = int({place});")
    code.line(f"atomicMin(first + {place}, int({update}));")
    return _stage(nest, code, -(-found.updates // THREADS), (first, targets), reports=True)


class _Sums:
    """Writes the last stage: a block for each update and some of its elements. That of the first update for a place
    adds up all that go there, ``elements`` of them in a thread; the others have nothing to do.
    """

    def __init__(self, nest: Nest, found: _Scatter) -> None:
        self.nest, self.found, self.code = nest, found, _statements(nest)
        self.buffer = self.code.buffers[found.store.buffer]
        self.elements = min(MOST_ELEMENTS, -(-nest.points // THREADS))
        self.chunk = THREADS * self.elements
        self.chunks = -(-nest.points // self.chunk)
        self.begin, self.place = map(self.code.names.new, ("begin", "place"))

    def write(self, first: Parameter, targets: Parameter) -> Stage:
        code, updates, place = self.code, self.found.updates, self.place
        code.comment(f"{updates} updates, {self.chunks} blocks for each")
        leader = code.names.new("leader")
        code.line(f"const int {leader} = int(task / {self.chunks});")
        code.line(f"const int {self.begin} = int(task % {self.chunks}) * {self.chunk};")
        code.line(f"const long long {place} = targets[{leader}];")
        code.line(f"if (first[{place}] != {leader}) return;")
        code.values[self.found.check.result], code.dtypes[self.found.check.result] = place, i64
        sums = code.names.new("sums")
        code.line(f"{register_type(self.buffer.dtype)} {sums}[{self.elements}];")
        self._for_elements(lambda: code.line(f"{sums}[element] = {self._at_first()};"))
        self._updates(leader, lambda: self._add(f"{sums}[element]"))
        self._for_elements(lambda: self._end(f"{sums}[element]"))
        tasks = updates * self.chunks
        return _stage(self.nest, code, tasks, (first, targets), shared_bytes=4 * WARPS)

    def _updates(self, leader: str, write: Callable[[], None]) -> None:
        """What ``write`` writes, for each element of each update from ``leader`` on that goes to the same place."""
        code, updates = self.code, self.found.updates
        candidate, update, hits, votes = map(code.names.new, ("candidate", "update", "hits", "votes"))
        code.line(f"unsigned* const {votes} = reinterpret_cast<unsigned*>(shared);")
        with code.block(f"for (int tried = {leader}; tried < {updates}; tried += {THREADS})"):
            code.line(f"const int {candidate} = tried + threadIdx.x;")
            goes_there = f"{candidate} < {updates} && targets[{candidate}] == {self.place}"
            code.line(f"const unsigned vote = __ballot_sync(0xffffffffu, {goes_there});")
            code.line(f"if (threadIdx.x % {WARP} == 0) {votes}[threadIdx.x / {WARP}] = vote;")
            code.line("__syncthreads();")
            with code.block(f"for (int warp = 0; warp < {WARPS}; ++warp)"):
                with code.block(f"for (unsigned {hits} = {votes}[warp]; {hits} != 0; {hits} &= {hits} - 1)"):
                    code.line(f"const int {update} = tried + {WARP} * warp + __ffs(int({hits})) - 1;")
                    code.place_axes(self.found.loop.axes, update, updates)
                    self._for_elements(write)
            code.line("__syncthreads();")

    def _for_elements(self, write: Callable[[], None]) -> None:
        """What ``write`` writes, for each element of this thread."""
        code, points = self.code, self.nest.points
        code.line("#pragma unroll")
        with code.block(f"for (int element = 0; element < {self.elements}; ++element)"):
            code.line(f"const int point = {self.begin} + element * {THREADS} + threadIdx.x;")
            if points % self.chunk:
                code.line(f"if (point >= {points}) break;")
            code.place_axes(self.nest.axes, "point", points)
            write()

    def _at_first(self) -> str:
        return literal(self.buffer.dtype, 0) if self.found.is_new else from_memory(self.buffer.dtype, self._element())

    def _element(self) -> str:
        return self.code.places[self.buffer.name](self.code.index(self.found.store.index))

    def _end(self, sum: str) -> None:
        self.code.line(f"{self._element()} = {to_memory(self.buffer.dtype, sum)};")

    def _add(self, sum: str) -> None:
        code, (*statements, store) = self.code, self.found.loop.body
        code.statements(tuple(statement for statement in statements if statement is not self.found.check))
        code.line(f"{sum} = {code.apply('add', self.buffer.dtype, [sum, code.values[store.value]])};")


def _stage(
    nest: Nest, code: Statements, tasks: int, own: tuple[Parameter, ...], shared_bytes: int = 0, reports: bool = False
) -> Stage:
    stage = stage_of(nest, frozenset(), code, tasks, shared_bytes)
    return replace(stage, parameters=(*stage.parameters, *own), reports_faults=reports)

"""The one rewrite, or the one kernel, that makes a result wrong.

Passes and rules are applied one after the other, and a limit allows the first n applications of them. With none the
graph is as it was built, with all of them it is wrong: halving finds the first n that makes it so. When all of them are
right, what is below is looked at: every kernel and call of the program, from what it reads in memory, and the same
loops run by their interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from euler_ir.compiler import Stages, lower, pipeline_of
from euler_ir.errors import Location
from euler_ir.graph import Graph, Value
from euler_ir.inspect.find import location_lines, location_record
from euler_ir.inspect.given_arrays import GivenArrays
from euler_ir.inspect.numerics.divergence import Divergence, of_passes
from euler_ir.inspect.numerics.judge import Judge
from euler_ir.inspect.numerics.observe import observe
from euler_ir.inspect.numerics.program_check import check_program, known_arrays
from euler_ir.loops.kernel import Kernel
from euler_ir.passes.dce import RemoveDead
from euler_ir.passes.instruments import Limit
from euler_ir.passes.manager import Pass
from euler_ir.passes.pipeline import as_pipeline, optimize
from euler_ir.passes.rewriting import Rule
from euler_ir.plan.plan import KernelStep
from euler_ir.text.printer import print_graph
from euler_ir.verify import verify

IsRight = Callable[[Graph], bool]
"""Whether a graph, after some of the rewrites, still gives what it should."""

VERDICTS = {
    "right": "nothing is wrong",
    "pass": "a pass makes it wrong",
    "rule": "a rule makes it wrong",
    "loops": "the passes are right; the loops that a kernel was lowered to are wrong",
    "code": "the passes and the loops are right; the machine code of a kernel is wrong",
    "call": "the passes are right; a product or attention call is wrong",
    "memory": "every kernel is right; memory is used again too early, or steps run in a wrong order",
}
"""What can be found, with what it means."""

_SHOWN = 12
"""Lines of a difference that are kept."""


@dataclass(frozen=True)
class Bisection:
    """What was found in ``runs`` runs: one of VERDICTS.

    Rewrites are counted: number ``application`` of ``applications`` is the first that makes it wrong. ``what`` is the
    name of the pass, rule or kernel; for a rule ``within`` is its pass.
    ``before`` and ``after`` are the lines of the graph that it took away and put there, ``divergence`` a value that is
    wrong, None where a predicate alone has judged, and ``kernel`` the loops or the step in question.
    """

    verdict: str
    runs: int
    applications: int
    application: int | None = None
    what: str = ""
    within: str = ""
    location: Location | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    divergence: Divergence | None = None
    kernel: str = ""

    @property
    def is_right(self) -> bool:
        return self.verdict == "right"

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {
            "verdict": self.verdict,
            "meaning": VERDICTS[self.verdict],
            "runs": self.runs,
            "applications": self.applications,
            "application": self.application,
            "what": self.what,
            "within": self.within,
            "location": location_record(self.location),
            "before": list(self.before),
            "after": list(self.after),
            "divergence": None if self.divergence is None else self.divergence.record(),
            "kernel": self.kernel,
        }

    def __str__(self) -> str:
        lines = [VERDICTS[self.verdict]]
        if self.application is not None:
            within = f" of pass {self.within}" if self.within else ""
            lines.append(
                f"  {self.verdict} {self.what}{within}: rewrite {self.application:,} of {self.applications:,}, "
                f"found in {self.runs} runs"
            )
        elif self.what:
            lines.append(f"  {self.what}")
        else:
            lines.append(f"  {self.applications:,} rewrites, {self.runs} runs")
        lines += location_lines(self.location)
        lines += [f"  - {line}" for line in self.before]
        lines += [f"  + {line}" for line in self.after]
        if self.divergence is not None:
            lines += str(self.divergence).splitlines()
        if self.kernel:
            lines += self.kernel.splitlines()
        return "\n".join(lines)


def bisect(
    graph: Graph,
    arrays: GivenArrays,
    passes: str | Sequence[Pass] | None = None,
    is_right: IsRight | None = None,
    backend: str = "cpu",
    threads: int | None = None,
) -> Bisection:
    """Find what makes ``graph`` wrong on ``arrays``, with the passes of ``backend`` unless others are given.

    By default a graph is right when every value that it shares with ``graph`` is the same, in f64. With ``is_right``
    that judges each graph instead, and nothing is looked for below the passes. Raises ValueError when it calls the
    graph wrong as it was built; VerifyError, ExecutionError and LoweringError as `compare` does.
    """
    verify(graph)
    pipeline = as_pipeline(pipeline_of(backend) if passes is None else passes)
    return _Bisector(graph, arrays, pipeline, is_right, backend, threads).run()


class _Bisector:
    def __init__(self, graph, arrays, passes, is_right, backend, threads) -> None:
        self.graph = graph
        self.arrays = arrays
        self.passes = passes
        self.graph_passes = [each for each in passes if each.level == "graph"]  # the last may leave that level
        self.is_right = is_right or (lambda after: of_passes(graph, after, arrays, "") is None)
        self.by_numbers = is_right is None
        self.backend = backend
        self.threads = threads
        self.runs = 0

    def run(self) -> Bisection:
        if not self.by_numbers and not self.judged(self.graph):
            raise ValueError("the predicate calls the graph wrong as it was built, before any rewrite")
        everything = Limit(None)
        after = optimize(self.graph, self.graph_passes, (everything,))
        if not self.judged(after):
            return self.first_wrong(everything.used)
        if not self.by_numbers:
            return Bisection("right", self.runs, everything.used)
        return self.below(everything.used)

    def judged(self, graph: Graph) -> bool:
        self.runs += 1
        return self.is_right(graph)

    # -- passes and rules ----------------------------------------------------------------------------------------------

    def first_wrong(self, total: int) -> Bisection:
        right, wrong = 0, total
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self.judged(self.after(middle)[0]):
                right = middle
            else:
                wrong = middle
        before, (after, limit) = self.after(right)[0], self.after(wrong)
        what, op = limit.last
        is_rule = isinstance(what, Rule)
        removed, added = _changes(before, after)
        made_by = f"rule {what.name}" if is_rule else str(what)
        divergence = of_passes(before, after, self.arrays, made_by) if self.by_numbers else None
        return Bisection(
            "rule" if is_rule else "pass",
            self.runs,
            total,
            wrong,
            what.name if is_rule else str(what),
            limit.within if is_rule else "",
            op.location if op is not None else None,
            removed,
            added,
            divergence,
        )

    def after(self, most: int) -> tuple[Graph, _Within]:
        """The graph after the first ``most`` rewrites."""
        limit = _Within(most)
        return optimize(self.graph, self.graph_passes, (limit,)), limit

    # -- below the passes ----------------------------------------------------------------------------------------------

    def below(self, total: int) -> Bisection:
        stages = lower(self.graph, self.passes)
        self.runs += 1
        check = check_program(stages, self.arrays, self.backend, self.threads)
        if check.divergence is None:
            verdict = "right" if check.wrong_result is None else "memory"
            return Bisection(verdict, self.runs, total, divergence=check.wrong_result)
        value, writer, found = next(iter(check.wrong)), check.writer, check.divergence
        step = list(stages.plan.steps())[writer.step]
        verdict = "code"
        if self.backend == "reference" or self.is_wrong_in_numpy(stages, value):
            verdict = "loops" if isinstance(step, KernelStep) else "call"
        kernel = ""
        if isinstance(step, KernelStep):
            kernel = str(Kernel(step.kernel.name, (step.kernel.nests[writer.nest],)))
        at = value.op.location
        return Bisection(
            verdict, self.runs, total, what=str(writer), location=at, divergence=found, kernel=kernel
        )

    def is_wrong_in_numpy(self, stages: Stages, value: Value) -> bool:
        """Whether the reference backend, which runs the same plan in numpy, gets ``value`` wrong too."""
        self.runs += 1
        observed = observe(stages.optimized, stages.plan, self.arrays.arrays, "reference")
        known = known_arrays(stages.optimized, observed, self.arrays)
        return bool(Judge(stages.optimized, known).differences({value: observed.arrays[value]}))


class _Within(Limit):
    """A limit that also knows which pass was running when it was reached."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.within = ""
        self._pass = ""

    def before_pass(self, pass_, graph):
        self._pass = str(pass_)

    def allows(self, what, op):
        allowed = super().allows(what, op)
        if allowed:
            self.within = self._pass
        return allowed


def _changes(before: Graph, after: Graph) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of the graph that are gone, of those that a result needed, and those that are new; every line names
    what it defines.
    """
    needed, left, right = map(_lines_of, (RemoveDead().run(before), before, after))
    removed = [line for line in needed if line not in right]
    added = [line for line in right if line not in left]
    return tuple(removed[:_SHOWN]), tuple(added[:_SHOWN])


def _lines_of(graph: Graph) -> dict[str, None]:
    """The lines of its text, in their order."""
    return dict.fromkeys(line.strip() for line in print_graph(graph).splitlines())

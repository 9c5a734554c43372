"""Gradients against finite differences, in f64, through compiled code and through the interpreter.

The derivative along a direction is taken from losses to both sides at shrinking steps, extrapolated to step 0 (Ridders
1982, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software 4). That also gives an estimate
of its own error, without which a small deviation would say little.

For each tensor the directions are single elements, all of them or a fixed sample, and one random direction of length 1
to which every element contributes. The relative error of a derivative ``a`` against a difference ``b`` is
``|a - b| / max(|a|, |b|, rms, floor)``. ``rms`` is the root mean square of the tensor's gradient, so that an element
whose derivative happens to be near 0 counts on the scale of its neighbours. ``floor`` is the slope that would change
the loss by a millionth over the tensor's own scale; it matters only where the whole gradient vanishes.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir import interpreter
from euler_ir import tensor as T
from euler_ir.autodiff import gradient
from euler_ir.compiler import compile
from euler_ir.dtypes import f64
from euler_ir.errors import GraphError
from euler_ir.gradient_samples import SAMPLES, Sample
from euler_ir.graph import Graph
from euler_ir.initializers import Zeros
from euler_ir.ops.definition import OPS
from euler_ir.passes.dce import RemoveDead
from euler_ir.state import State, initial_state
from euler_ir.widen import in_f64

LIMIT = 1e-6
"""The largest relative error of a gradient that passes."""

FIRST_STEP = 1 / 16
"""The longest step, in units of the tensor's root mean square."""
HALVINGS = 4
"""How many times the step is halved for a derivative."""


@dataclass(frozen=True)
class GradientError:
    """How far the gradient of one tensor (or operator) is from finite differences, at worst over ``derivatives``.

    ``compiled`` and ``interpreted`` are relative errors; ``uncertainty`` is how far the differences themselves may be
    off, on the same scale.
    """

    name: str
    derivatives: int
    compiled: float
    interpreted: float
    uncertainty: float

    def passes(self) -> bool:
        """Whether both errors are within LIMIT; NaN is not."""
        return self.compiled <= LIMIT and self.interpreted <= LIMIT

    def record(self) -> dict:
        """For JSON: the fields and whether it passes; null for an error that is NaN or infinite."""
        fields = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in dataclasses.asdict(self).items()
        }
        return fields | {"passes": self.passes()}


def check_gradients(
    graph: Graph,
    state: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    loss: str = "loss",
    elements: int = 16,
) -> list[GradientError]:
    """Check the gradient of the output ``loss`` of ``graph`` for every float parameter, at ``state`` and ``inputs``.

    All runs in f64, whatever the types in ``graph``; what ``state`` lacks has its first value. At most ``elements``
    elements of each parameter are tried one by one. Choose a point away from ties and kinks, where a derivative exists.
    Raises GraphError when there is no such output, or it is no 0-d float.
    """
    if loss not in graph.outputs:
        raise GraphError(
            f"graph {graph.name!r} has no output {loss!r}", hint=f"it has {', '.join(graph.outputs) or 'none'}"
        )
    forward = in_f64(graph)
    forward.outputs, forward.updates = {"loss": forward.outputs[loss]}, {}
    forward = RemoveDead().run(forward)
    backward = in_f64(forward)
    parameters = [parameter for parameter in backward.parameters if parameter.dtype == f64]
    slopes = gradient(backward.outputs["loss"], parameters)
    names = [parameter.op.attributes["name"] for parameter in parameters]
    backward.outputs = dict(zip(names, slopes, strict=True))

    point = initial_state(forward)
    for name in point:
        if name in state:
            point[name] = np.asarray(state[name], point[name].dtype)
    dtypes = {leaf.op.attributes["name"]: leaf.dtype.numpy for leaf in forward.inputs}
    arrays = {name: np.asarray(array, dtypes.get(name)) for name, array in inputs.items()}
    compiled, interpreted = (
        _measure(run, forward, backward, point, arrays, elements) for run in (_compiled, _interpreted)
    )
    return [
        GradientError(name, count, error, interpreted[name][1], max(uncertainty, interpreted[name][2]))
        for name, (count, error, uncertainty) in compiled.items()
    ]


def check_operators(samples: Sequence[Sample] = SAMPLES) -> list[GradientError]:
    """Check every sample, and with them every operator that has a gradient.

    Raises GraphError when an operator with a gradient is in none of ``samples``.
    """
    met = {op.name for sample in samples for op in _sample_graph(sample).ops}
    missing = [name for name, definition in OPS.items() if definition.vjp is not None and name not in met]
    if missing:
        raise GraphError(f"operators have a gradient but no sample: {', '.join(missing)}", hint="add one to SAMPLES")
    return [check_sample(sample) for sample in samples]


def check_sample(sample: Sample) -> GradientError:
    """Check one sample: the largest errors over all of its f64 operands."""
    arrays = {f"operand {number}": array for number, array in enumerate(sample.operands)}
    graph = _sample_graph(sample)
    inputs = {leaf.op.attributes["name"]: arrays[leaf.op.attributes["name"]] for leaf in graph.inputs}
    operands = check_gradients(graph, arrays, inputs, elements=64)
    return GradientError(
        sample.name,
        sum(operand.derivatives for operand in operands),
        _worst(operand.compiled for operand in operands),
        _worst(operand.interpreted for operand in operands),
        _worst(operand.uncertainty for operand in operands),
    )


def _sample_graph(sample: Sample) -> Graph:
    """The loss is the result weighted element by element, so that a wrong element cannot hide in a sum."""
    with Graph(sample.name) as graph:
        operands = [
            graph.parameter(f"operand {number}", array.shape, Zeros(), f64)
            if array.dtype == np.float64
            else graph.input(f"operand {number}", array.shape, array.dtype)
            for number, array in enumerate(sample.operands)
        ]
        result = sample.build(*operands)
        graph.set_outputs(loss=T.sum(result * _generator(sample.name).standard_normal(result.shape)))
    return graph


# -- one way to run ----------------------------------------------------------------------------------------------------


def _compiled(graph: Graph, state: State, inputs: Mapping[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    executable = compile(graph)
    return lambda: executable(state, **inputs)


def _interpreted(graph: Graph, state: State, inputs: Mapping[str, np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    return lambda: interpreter.run(graph, {**state, **inputs})[0]


def _measure(
    run, forward: Graph, backward: Graph, point: State, inputs: Mapping[str, np.ndarray], elements: int
) -> dict[str, tuple[int, float, float]]:
    """For each output of ``backward``: how many derivatives were compared, the worst error, the worst uncertainty."""
    outputs = run(forward, point, inputs)
    loss = lambda: float(outputs()["loss"])  # noqa: E731
    size = abs(loss())
    found = {}
    for name, slopes in run(backward, point, inputs)().items():
        array = point[name]
        scale = _root_mean_square(array) or 1.0
        least = max(_root_mean_square(slopes), 1e-6 * size / scale)
        errors, uncertainties = [], []
        for direction in _directions(name, array.shape, elements):
            slope = float(np.sum(slopes * direction))
            difference, uncertainty = _derivative(loss, array, direction, scale * FIRST_STEP)
            unit = max(abs(slope), abs(difference), least)
            # A loss that does not change at all has gradient 0 and nothing to divide by.
            errors.append(abs(slope - difference) / unit if unit else 0.0)
            uncertainties.append(uncertainty / unit if unit else 0.0)
        found[name] = len(errors), _worst(errors), _worst(uncertainties)
    return found


def _directions(name: str, shape: tuple[int, ...], elements: int) -> Iterator[np.ndarray]:
    """Unit directions: at most ``elements`` single elements and, of what has more than one, one through all of them."""
    random, size = _generator(name), math.prod(shape)
    picked = range(size) if size <= elements else sorted(random.choice(size, elements, replace=False))
    for position in picked:
        direction = np.zeros(size)
        direction[position] = 1
        yield direction.reshape(shape)
    if size > 1:
        direction = random.standard_normal(shape)
        yield direction / np.linalg.norm(direction)


def _derivative(
    loss: Callable[[], float], array: np.ndarray, direction: np.ndarray, step: float
) -> tuple[float, float]:
    """The derivative of ``loss`` as ``array`` moves along ``direction``, and an estimate of its error.

    Row by row the tableau halves the step and extrapolates, column by column, away the errors of order step^2, step^4
    and so on. The best entry is the one that differs least from the two it was made of. Steps too short, where rounding
    outweighs what extrapolation gains, lose by the same measure.
    """
    base = array.copy()

    def central(step: float) -> float:
        array[...] = base + step * direction
        above = loss()
        array[...] = base - step * direction
        return (above - loss()) / (2 * step)

    try:
        row = [central(step)]
        best, error = row[0], math.inf
        for _ in range(HALVINGS):
            step /= 2
            previous, row = row, [central(step)]
            for column, coarse in enumerate(previous):
                finer = row[column]
                extrapolated = finer + (finer - coarse) / (4 ** (column + 1) - 1)
                row.append(extrapolated)
                estimate = max(abs(extrapolated - finer), abs(extrapolated - coarse))
                if estimate <= error:
                    best, error = extrapolated, estimate
    finally:
        array[...] = base
    return best, error


def _root_mean_square(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0


def _worst(errors) -> float:
    """The largest, where NaN is larger than any number; 0 of none."""
    return float(np.max(list(errors), initial=0.0))


def _generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


# -- the table ---------------------------------------------------------------------------------------------------------


def report(kind: str, errors: Sequence[GradientError]) -> bool:
    """Print ``errors`` as a table whose rows are a ``kind`` each ('operator', 'tensor'); whether all of them pass.

    Colour and rules appear on a terminal only.
    """
    # Rich is slow to import, and only the table needs it.
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = 200
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    table.add_column(kind)
    for title in ("derivatives", "compiled", "interpreter", "uncertainty"):
        table.add_column(title, justify="right")
    table.add_column("")
    for row in errors:
        numbers = (f"{number:.1e}" for number in (row.compiled, row.interpreted, row.uncertainty))
        verdict = "" if row.passes() else "FAILS"
        table.add_row(escape(row.name), str(row.derivatives), *numbers, verdict, style=None if row.passes() else "red")
    console.print(table)
    failed = [row for row in errors if not row.passes()]
    worst = _worst(number for row in errors for number in (row.compiled, row.interpreted))
    console.print(
        f"{len(errors)} {kind}s, {sum(row.derivatives for row in errors)} derivatives: largest relative error "
        f"{worst:.1e}, {f'{len(failed)} over' if failed else 'all within'} {LIMIT:.0e}",
        highlight=False,
    )
    return not failed

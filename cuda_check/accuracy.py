"""How far results of the generated kernels, run by the emulator, are from those of the interpreter in f64."""

import dataclasses
from dataclasses import dataclass

import numpy as np

import euler_ir as ei
from euler_ir import interpreter
from euler_ir import tensor as T
from euler_ir.gradient_samples import SAMPLES, Sample, spaced
from euler_ir.widen import in_f64
from models.gpt2 import GPT2Config
from models.gradient_check import MODELS
from models.language_model import next_token

SMALL_MODELS = {
    **MODELS,
    "GPT-2, heads of 32": GPT2Config(vocab_size=96, context=40, layers=2, heads=2, width=64),
}
BACKEND = "cuda-emulator"
TOLERANCE = {"f32": 2e-5, "bf16": 2e-2, "f16": 3e-3}
"""The largest error of an operator that is let pass, beside the largest magnitude of a result, by its type."""
MODEL_TOLERANCE = {"f32": 2e-5, "bf16": 8e-2}
"""The same of gradients of a whole model, whose layers round one after the other."""


@dataclass(frozen=True)
class Accuracy:
    """The largest error of ``name`` in ``dtype``, beside the largest magnitude of the result that it is of."""

    name: str
    dtype: str
    error: float
    allowed: float

    @property
    def wrong(self):
        """What is wrong, in words; None when nothing is."""
        if self.error <= self.allowed:
            return None
        return f"{self.name} in {self.dtype} is off by {self.error:.1e}, and {self.allowed:.0e} is allowed"

    def record(self):
        return {**dataclasses.asdict(self), "wrong": self.wrong}


def error_of(got, exact):
    """The largest difference by the largest magnitude of ``exact``; infinite where only one of them is finite."""
    got, exact = (np.asarray(array, np.float64) for array in (got, exact))
    finite = np.isfinite(exact)
    if not np.array_equal(got[~finite], exact[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    scale = np.abs(exact[finite]).max(initial=0.0)
    difference = np.abs(got[finite] - exact[finite]).max(initial=0.0)
    return float(difference / scale) if scale else float(difference)


# -- operators ---------------------------------------------------------------------------------------------------------


def _half(build):
    """``build`` of operands in its type, with results that add up in f32."""
    return lambda *operands: T.cast(build(*operands), "f32")


def _heads(width, queries=77, keys=77):
    return spaced(2, queries, width), spaced(2, keys, width, seed=1), spaced(2, keys, width, seed=2)


OF_HALVES = (
    Sample("matmul", _half(T.matmul), (spaced(33, 40), spaced(40, 24, seed=1))),
    *(Sample(f"attention, width {width}", _half(T.attention), _heads(width)) for width in (40, 64, 128)),
    Sample("attention, more keys", _half(T.attention), _heads(64, 20, 130)),
    Sample("attention, all keys", _half(lambda q, k, v: T.attention(q, k, v, causal=False)), _heads(64)),
)
"""What half types are computed in: the operators that tensor cores run."""


def check_operators(backend=BACKEND):
    """The Accuracy of every operator that has a gradient, and of its gradients, in f32, and of those in OF_HALVES."""
    found = _check_samples(SAMPLES, "f32", backend)
    for dtype in ("bf16", "f16"):
        found += _check_samples(OF_HALVES, dtype, backend)
    return found


def _check_samples(samples, dtype, backend):
    """All of ``samples`` as one graph, so that their kernels are compiled together."""
    with ei.Graph(f"operators in {dtype}") as graph:
        arrays = {}
        for number, sample in enumerate(samples):
            arrays |= _add_sample(graph, number, sample, dtype)
    got = ei.compile(graph, backend)(None, **arrays)
    wide = {name: _widened(array) for name, array in arrays.items()}
    exact, _ = interpreter.run(in_f64(graph), wide)
    worst = {}
    for name, array in got.items():
        number = int(name.partition(".")[0])
        worst[number] = max(worst.get(number, 0.0), error_of(array, exact[name]))
    return [Accuracy(samples[number].name, dtype, error, TOLERANCE[dtype]) for number, error in worst.items()]


def _add_sample(graph, number, sample, dtype):
    """Put a sample and its gradients into the graph under ``number``; the arrays of its inputs by their names."""
    given, operands, arrays = [], [], {}
    for place, array in enumerate(sample.operands):
        is_float = array.dtype == np.float64
        name, kind = f"x{number}.{place}", dtype if is_float else str(array.dtype)
        operands.append(graph.input(name, array.shape, kind))
        arrays[name] = array.astype(operands[-1].dtype.numpy)
        given += [operands[-1]] if is_float else []
    result = sample.build(*operands)
    # Weights that differ, so that no gradient is lost in a sum.
    weights = graph.constant(spaced(*result.shape, low=0.5, high=1.5, seed=9).astype(result.dtype.numpy))
    gradients = ei.gradient(T.sum(result * weights), given)
    ei.output(**{f"{number}.result": result})
    ei.output(**{f"{number}.gradient{place}": gradient for place, gradient in enumerate(gradients)})
    return arrays


def _widened(array):
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


# -- models ------------------------------------------------------------------------------------------------------------


def check_models(backend=BACKEND):
    """The Accuracy of every gradient of small models together, each in f32 and in bf16 by mixed precision."""
    return [
        Accuracy(f"gradients of {name}", dtype, _gradient_error(config, passes, backend), MODEL_TOLERANCE[dtype])
        for name, config in SMALL_MODELS.items()
        for dtype, passes in (("f32", "cuda"), ("bf16", "mixed-precision,cuda"))
    ]


def _gradient_error(config, passes, backend):
    config = dataclasses.replace(config, dropout=0.0)  # what is drawn in f64 is not what is drawn in f32
    with ei.Graph("gradients") as graph:
        total, count, _ = next_token(config, 2, config.context, training=True)
        loss = total / ei.maximum(count, 1).cast(ei.f32)
        names = {parameter: parameter.op.attributes["name"] for parameter in graph.parameters}
        gradients = ei.gradient(loss, list(names))
        ei.output(loss=loss, **dict(zip(names.values(), gradients)))
    random = np.random.default_rng(0)
    state = ei.initial_state(graph)
    for name in state:
        state[name] = state[name] + (0.2 * random.standard_normal(state[name].shape)).astype(np.float32)
    tokens = random.integers(0, config.vocab_size, (2, config.context + 1), np.int32)
    inputs = {"tokens": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    wide = {name: _widened(array) for name, array in {**state, **inputs}.items()}
    exact, _ = interpreter.run(in_f64(graph), wide)
    got = ei.compile(graph, backend, passes=passes)(state, **inputs)
    return max(error_of(got[name], exact[name]) for name in got)

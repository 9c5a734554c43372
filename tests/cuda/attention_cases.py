"""Attention on the emulated GPU as steps of whole graphs' plans, and in numpy with f64: what its tests share."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from unittest import mock

import ml_dtypes
import numpy as np

import euler_ir as ei
from euler_ir.backends import reference
from euler_ir.backends.cuda.attention import attention_calls
from euler_ir.backends.cuda.calls import BufferPointer, Launch
from euler_ir.backends.cuda.emulator import build, memory
from euler_ir.backends.reference import ReferenceProgram
from euler_ir.compiler import lower, pipeline_of
from euler_ir.dtypes import DTYPES
from euler_ir.plan.plan import AttentionStep, PlannedView

PACKED = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}


def oracle(query, key, value, d_output, causal=False, scale=1.0, visible_from=None):
    """Output, logsumexp and the gradients by query, key and value for the cotangent ``d_output``, all in f64.

    Arrays are [batch, heads, rows, columns]; keys and values may have fewer heads. A query that sees no key gives 0.
    """
    query, key, value, d_output = (array.astype(np.float64) for array in (query, key, value, d_output))
    group = query.shape[1] // key.shape[1]
    key, value = (np.repeat(each, group, axis=1) for each in (key, value))
    queries, keys = query.shape[2], key.shape[2]
    with np.errstate(all="ignore"):
        scores = query @ key.swapaxes(-1, -2) * scale
        seen = np.arange(keys) <= np.arange(queries)[:, None] + keys - queries if causal else np.bool_(True)
        if visible_from is not None:
            seen = seen & (np.arange(keys) >= visible_from[..., None])
        scores = np.where(seen, scores, -np.inf)
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        top = np.where(top == -np.inf, 0, top)
        grown = np.exp(scores - top)
        total = grown.sum(-1, keepdims=True)
        weights = grown / np.where(total == 0, 1, total)
        output, logsumexp = weights @ value, (np.log(total) + top)[..., 0]
        by_weights = d_output @ value.swapaxes(-1, -2)
        by_scores = weights * (by_weights - (d_output * output).sum(-1, keepdims=True)) * scale
        by_query = by_scores @ key
        by_key, by_value = by_scores.swapaxes(-1, -2) @ query, weights.swapaxes(-1, -2) @ d_output
    by_key, by_value = (each.reshape(len(each), -1, group, *each.shape[2:]).sum(2) for each in (by_key, by_value))
    return {
        "output": output, "logsumexp": logsumexp, "d_query": by_query, "d_key": by_key, "d_value": by_value,
    }  # fmt: skip


RESULTS = ("output", "logsumexp", "d_query", "d_key", "d_value")


@dataclass(frozen=True)
class Case:
    """Extents, and how heads lie in memory.

    ``beside``: side by side in rows, as projections give them, after ``margin`` elements that belong to nothing.
    """

    queries: int
    keys: int
    width: int
    value_width: int
    batch: int = 1
    heads: int = 1
    key_heads: int = 1
    dtype: str = "f32"
    causal: bool = True
    visible_from: bool = False
    margin: int = 0
    scale: float | None = None

    @property
    def scale_or_default(self):
        return self.width**-0.5 if self.scale is None else self.scale

    def extents(self):
        """(rows, heads, columns) of each input that is a matrix."""
        query, key = (self.queries, self.heads, self.width), (self.keys, self.key_heads, self.width)
        value, output = (self.keys, self.key_heads, self.value_width), (self.queries, self.heads, self.value_width)
        return {"query": query, "key": key, "value": value, "cotangent": output}

    def graph(self):
        """The attention and its gradient for a cotangent; results by the names of RESULTS, [batch, heads, ...]."""
        with ei.Graph() as graph:
            matrices = {}
            for name, (rows, heads, columns) in self.extents().items():
                flat = ei.input(name, (self.batch, rows, self.margin + heads * columns), self.dtype)
                matrices[name] = flat[:, :, self.margin :].reshape(self.batch, rows, heads, columns).swap_axes(1, 2)
            query, key, value, cotangent = matrices.values()
            visible_from = None
            if self.visible_from:
                visible_from = ei.input("visible_from", (self.batch, self.heads, self.queries), "i64")
            output, logsumexp = ei.attention_with_logsumexp(query, key, value, self.causal, self.scale, visible_from)
            wide = output.dtype if output.dtype == ei.f64 else ei.f32
            gradients = ei.gradient(ei.sum(output.cast(wide) * cotangent.cast(wide)), [query, key, value])
            ei.output(**dict(zip(RESULTS, (output, logsumexp, *gradients))))
        return graph

    def inputs(self, seed=0, **replaced):
        """Random arrays, but for those that are ``replaced``, [batch, rows, heads, columns]."""
        random = np.random.default_rng(seed)
        arrays = {}
        for name, extents in self.extents().items():
            array = random.standard_normal((self.batch, *extents))
            arrays[name] = np.asarray(replaced.get(name, array)).astype(DTYPES[self.dtype].numpy)
        if self.visible_from:
            starts = random.integers(-3, self.keys + 2, (self.batch, self.heads, self.queries)) // 2
            arrays["visible_from"] = np.asarray(replaced.get("visible_from", starts), np.int64)
        return arrays

    def flat(self, arrays):
        """``arrays`` as the graph takes them."""
        flat = dict(arrays)
        for name in self.extents():
            rows = arrays[name].reshape(self.batch, arrays[name].shape[1], -1)
            flat[name] = np.pad(rows, ((0, 0), (0, 0), (self.margin, 0)), constant_values=np.nan)
        return flat

    def wanted(self, arrays):
        """Results in f64."""
        matrices = (arrays[name].swapaxes(1, 2) for name in self.extents())
        return oracle(*matrices, self.causal, self.scale_or_default, arrays.get("visible_from"))


def assert_close(got, want, steps):
    """Equal but for ``steps`` unit roundoffs of the largest element; where that is finite, so is this."""
    for name in RESULTS:
        found, exact = got[name].astype(np.float64), want[name]
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(found[~finite], exact[~finite], name)
        assert np.isfinite(found[finite]).all(), name
        reach = steps * float(ml_dtypes.finfo(got[name].dtype).eps) / 2 * max(1.0, np.abs(exact[finite]).max(initial=0))
        worst = np.abs(found[finite] - exact[finite]).max(initial=0)
        assert worst <= reach, f"{name}: an error of {worst}, and {reach} is allowed"


def assert_same_bits(got, want):
    for name in RESULTS:
        np.testing.assert_array_equal(got[name].view(np.uint8), want[name].view(np.uint8), name)


def step_of(operator, batch, queries, keys, width, value_width, dtype="f32", visible_from=False):
    """A step with each view in a buffer of its own, in order from 0 on, rows side by side."""
    count = (3 if operator == "attention" else 6) + visible_from
    views = [PlannedView(number, 0, (), 0, False) for number in range(count)]
    step = AttentionStep(
        operator, DTYPES[dtype], False, width**-0.5, batch, 1, queries, keys, width, value_width, tuple(views), (), ()
    )
    operands, results = step.extents()
    views = []
    for number, (rows, columns) in enumerate((*operands, *results)):
        steps, size = [], rows * columns
        for extent in reversed(batch):
            steps.insert(0, size)
            size *= extent
        views.append(PlannedView(number, 0, tuple(steps), columns, False))
    return replace(step, operands=tuple(views[: len(operands)]), results=tuple(views[len(operands) :]))


def launches_of(case, architecture="sm_90"):
    """The launches of ``case``, forward before backward."""
    plan = lower(case.graph(), pipeline_of("cuda")).plan
    steps = [step for step in plan.steps() if isinstance(step, AttentionStep)]
    return [launch for step in steps for launch in attention_calls(step, architecture).calls]


def modules_of(launches, contract=True, sanitize=False):
    """The compiled source of each of ``launches``, by source."""
    sources = list(dict.fromkeys(launch.source for launch in launches))
    return dict(zip(sources, build.load_many(sources, contract, sanitize=sanitize)))


def run_launches(launches, modules, addresses, order="ascending"):
    """Run ``launches`` in the emulator; buffer n of the plan begins at ``addresses[n]``."""
    for launch in launches:
        arguments = [_packed(argument, addresses) for argument in launch.arguments]
        modules[launch.source].launch(
            launch.kernel, launch.blocks, launch.threads, launch.shared_bytes, arguments, order=order
        )


def _packed(argument, addresses):
    if isinstance(argument, BufferPointer):
        return np.int64(addresses[argument.number] + argument.offset).tobytes()
    return PACKED[argument.kind](argument.value).tobytes()


class Emulated:
    """``graph`` run in numpy, but its attention by the kernels for a GPU of ``architecture``, in the emulator.

    With ``sanitize``, each access is checked for its bounds and for races.
    """

    def __init__(self, graph, architecture="sm_90", contract=True, sanitize=False):
        self.plan = lower(graph, pipeline_of("cuda")).plan
        self.launches = {}
        for step in self.plan.steps():
            if isinstance(step, AttentionStep):
                calls = attention_calls(step, architecture)
                assert not calls.scratch_bytes and all(isinstance(call, Launch) for call in calls.calls)
                self.launches[step] = calls.calls
        assert self.launches, "there is no attention in the plan"
        launches = [launch for calls in self.launches.values() for launch in calls]
        self.modules = modules_of(launches, contract, sanitize)
        self.program = ReferenceProgram(self.plan)

    def __call__(self, order="ascending", **inputs):
        numbers = {buffer.name: number for number, buffer in enumerate(self.plan.buffers) if buffer.place == "input"}
        arrays = {numbers[name]: array for name, array in inputs.items()}
        outputs = {}
        for name, number in self.plan.outputs.items():
            type = self.plan.buffers[number].type
            outputs[name] = arrays[number] = np.empty(type.shape, type.dtype.numpy)
        with mock.patch.object(reference, "_attention", functools.partial(self._attention, order=order)):
            self.program.run(arrays)
        return outputs

    def _attention(self, step, flat, order):
        """Each buffer is an allocation of its own, so that nothing beside it can be read or written."""
        buffers = dict.fromkeys((*step.reads(), *step.writes()))
        addresses = {number: memory.from_array(flat[number]) for number in buffers}
        run_launches(self.launches[step], self.modules, addresses, order)
        for number in step.writes():
            flat[number][...] = memory.to_array(addresses[number], flat[number].shape, flat[number].dtype)
        for address in addresses.values():
            memory.free(address)

"""Attention on ordinary cores and its gradients, in the emulator, against numpy in f64, through the plans of graphs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from attention_cases import (
    RESULTS,
    Case,
    Emulated,
    assert_close,
    assert_same_bits,
    launches_of,
    modules_of,
    run_launches,
    step_of,
)

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.backends.cuda import nvrtc
from euler_ir.backends.cuda.attention.simt import simt_launches
from euler_ir.backends.cuda.attention.views import named_views
from euler_ir.backends.cuda.emulator import memory
from euler_ir.backends.cuda.limits import DEFAULT_SHARED, resident_blocks
from euler_ir.compiler import lower, pipeline_of
from euler_ir.dtypes import DTYPES
from euler_ir.errors import LoweringError
from euler_ir.plan.plan import AttentionStep

NAN, INF = np.nan, np.inf
STEPS = 128
"""Unit roundoffs of the largest element that sums over some hundred terms may be off."""
ODD = Case(70, 70, 40, 33, heads=2, key_heads=2, margin=1)
"""All cases of these widths and this margin have the same four kernels, which is what compiling costs."""


def check(case, **replaced):
    """All results of ``case`` in the emulator, which are right."""
    arrays = case.inputs(**replaced)
    got = Emulated(case.graph())(**case.flat(arrays))
    assert_close(got, case.wanted(arrays), STEPS)
    return got


@pytest.mark.parametrize("causal", [False, True])
def test_any_number_of_queries_and_keys(causal):
    for queries, keys in ((1, 1), (1, 130), (130, 1), (64, 64), (65, 63), (63, 65), (129, 257), (257, 129)):
        check(replace(ODD, queries=queries, keys=keys, causal=causal))


def test_heads_of_queries_that_share_one_of_keys():
    for heads, key_heads in ((6, 2), (3, 1)):
        check(replace(ODD, queries=70, keys=90, batch=2, heads=heads, key_heads=key_heads))


def test_every_order_of_threads_and_every_run_gives_the_same_bits():
    case = replace(ODD, queries=130, keys=70, batch=2, heads=4)
    arrays, emulated = case.inputs(), Emulated(case.graph())
    first = emulated(**case.flat(arrays))
    assert_close(first, case.wanted(arrays), STEPS)
    for order in ("ascending", "descending", 1, 2):
        assert_same_bits(emulated(order=order, **case.flat(arrays)), first)


def test_aligned_rows():
    check(Case(70, 70, 40, 64, heads=2, key_heads=1, margin=8))


@pytest.mark.parametrize(
    ("case", "alignment"),
    [
        (Case(5, 5, 40, 40, batch=2, heads=2, key_heads=2, margin=8), 16),
        (Case(5, 5, 40, 40, batch=2, heads=2, key_heads=2, margin=8, dtype="bf16"), 16),
        (Case(5, 5, 36, 36, batch=2, heads=2, key_heads=2, dtype="f16"), 8),
        (Case(5, 5, 33, 33, heads=4, key_heads=4), 4),  # rows are aligned, and heads are not
        (Case(5, 5, 39, 39, margin=1), 4),  # rows are aligned, but for where the first one begins
        (Case(5, 5, 39, 39), 4),
        (Case(1, 1, 39, 39), 16),
    ],
)
def test_vectors_only_where_every_row_is_aligned(case, alignment):
    plan = lower(case.graph(), pipeline_of("cuda")).plan
    views = [named_views(step) for step in plan.steps() if isinstance(step, AttentionStep)]
    assert {min(each[name].alignment for name in ("query", "key", "value")) for each in views} == {alignment}
    for launch in launches_of(case, "sm_75"):
        assert launch.kernel.endswith("unaligned") == (alignment < 16 and case.dtype == "f32")


@pytest.mark.parametrize("causal", [False, True])
def test_visible_from(causal):
    for queries, keys in ((70, 70), (1, 5), (130, 200), (200, 130)):
        case = replace(ODD, queries=queries, keys=keys, heads=4, causal=causal, visible_from=True)
        random = np.random.default_rng(queries)
        begins = random.random((1, 4, queries)) < 0.05
        starts = np.maximum.accumulate(np.where(begins, random.integers(0, keys, begins.shape), 0), 2)
        wild = random.random(starts.shape) < 0.1
        starts[wild] = random.choice([-(2**63), -1, keys - 1, keys, 2**32, 2**63 - 1], wild.sum())
        check(case, visible_from=starts)


def test_queries_that_see_no_key_give_0():
    case = replace(ODD, queries=150, keys=5)
    got = check(case)
    assert (got["output"][:, :, :145] == 0).all() and (got["d_query"][:, :, :145] == 0).all()
    assert (got["logsumexp"][:, :, :145] == -INF).all() and np.isfinite(got["logsumexp"][:, :, 145:]).all()
    got = check(replace(ODD, visible_from=True), visible_from=np.full((1, 2, 70), 70))
    assert (got["logsumexp"] == -INF).all() and all((got[name] == 0).all() for name in RESULTS if name != "logsumexp")


@pytest.mark.parametrize("contract", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_huge_scores(contract):
    """Scores of up to 20,000, which are integers and so exact; only the logsumexp rounds them."""
    case, random = replace(ODD, scale=1.0), np.random.default_rng(0)
    query, key = (random.integers(-25, 26, (1, 70, 2, 40)) for _ in range(2))
    arrays = case.inputs(query=query, key=key)
    got, want = Emulated(case.graph(), contract=contract)(**case.flat(arrays)), case.wanted(arrays)
    assert np.abs(want["logsumexp"]).max() > 5000
    assert_close({**got, "d_query": 0 * got["d_query"]}, {**want, "d_query": 0 * want["d_query"]}, 4 * 5000)
    np.testing.assert_allclose(got["output"], want["output"], atol=1e-5)


@pytest.mark.parametrize("contract", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_scores_that_are_finite_until_they_are_scaled(contract):
    """As for the interpreter such a score is infinite, and its weight NaN; by a multiply-add it would be 0."""
    case = replace(ODD, heads=1, key_heads=1, scale=1e5, causal=False)
    arrays = case.inputs()
    arrays["query"][0, 3, 0], arrays["key"][0, 5, 0] = 1e17, 1e17
    got = Emulated(case.graph(), contract=contract)(**case.flat(arrays))
    want, _ = interpreter.run(case.graph(), case.flat(arrays))
    assert np.isnan(want["output"][0, 0, 3]).all()
    np.testing.assert_array_equal(np.isnan(got["output"]), np.isnan(want["output"]))


def test_the_only_key_has_the_weight_1_however_large_its_score():
    """In the gradient too: there the score must be rounded as it was for the logsumexp, which is of about 10^5."""
    case, random = replace(ODD, keys=1, causal=False, scale=0.1), np.random.default_rng(0)
    query, key = (300 + random.standard_normal((1, rows, 2, 40)) for rows in (70, 1))
    arrays = case.inputs(query=query, key=key)
    got, want = Emulated(case.graph())(**case.flat(arrays)), case.wanted(arrays)
    for name in ("output", "d_value"):
        np.testing.assert_allclose(got[name], want[name], atol=1e-5)


@pytest.mark.parametrize("special", [NAN, INF, -INF])
@pytest.mark.parametrize("operand", ["query", "key", "value"])
def test_special_values_reach_those_who_see_them(special, operand):
    case = replace(ODD, heads=1, key_heads=1)
    emulated, arrays = Emulated(case.graph()), case.inputs()
    clean = case.wanted(arrays)
    for place in (0, 3, 66, 69):
        marked = {name: array.copy() for name, array in arrays.items()}
        marked[operand][0, place, 0, 3] = special
        got, want = emulated(**case.flat(marked)), case.wanted(marked)
        for name in ("output", "logsumexp"):
            found, exact, before = got[name][0, 0].T, want[name][0, 0].T, clean[name][0, 0].T
            # What a query does not see may be passed over: then it is as if nothing special were there.
            unseen = np.arange(70) < (place if operand != "query" else 0)
            with np.errstate(invalid="ignore"):
                close = (np.isnan(found) & np.isnan(exact)) | (found == exact) | (np.abs(found - exact) < 1e-5)
                assert (close | unseen & (np.abs(found - before) < 1e-5)).all()


def test_f64():
    check(Case(70, 90, 40, 40, heads=2, key_heads=1, dtype="f64"))


def test_half_types_count_in_f32_where_there_are_no_tensor_cores_for_them():
    """Scores of 10^6 are far beyond f16, and so is the logsumexp: its gradients can then be no better than f32."""
    case = Case(130, 70, 40, 40, heads=2, key_heads=2, dtype="f16", scale=1.0)
    emulated, random = Emulated(case.graph(), architecture="sm_75"), np.random.default_rng(0)
    arrays = case.inputs()
    assert_close(emulated(**case.flat(arrays)), case.wanted(arrays), 16)
    query, key = (random.choice([-200, 200], (1, rows, 2, 40)) for rows in (130, 70))
    arrays = case.inputs(query=query, key=key)
    got, want = emulated(**case.flat(arrays)), case.wanted(arrays)
    assert np.nanmax(want["logsumexp"]) > 1e5
    assert all(np.isfinite(got[name].astype(np.float32)).all() for name in ("output", "d_query", "d_key", "d_value"))
    for name in ("output", "logsumexp"):
        np.testing.assert_allclose(got[name].astype(np.float64), want[name], rtol=2e-3, atol=2e-3)


def test_heads_and_their_gradients_inside_of_one_tensor():
    """As a fused projection gives them, and as its own gradient reads them: nothing is copied."""
    queries, heads, width, names = 70, 2, 40, ("query", "key", "value")
    case = Case(queries, queries, width, width, heads=heads, key_heads=heads, scale=0.2)
    with ei.Graph() as graph:
        x, cotangent = (ei.input(name, (1, queries, n * heads * width)) for name, n in (("x", 3), ("cotangent", 1)))
        by_head = x.reshape(1, queries, 3 * heads, width).transpose(0, 2, 1, 3)
        parts = (by_head[:, part * heads : (part + 1) * heads] for part in range(3))
        mixed = ei.attention(*parts, causal=True, scale=0.2)
        mixed = mixed.transpose(0, 2, 1, 3).reshape(1, queries, heads * width)
        ei.output(mixed=mixed, d_x=ei.gradient(ei.sum(mixed * cotangent), [x])[0])
    emulated, arrays = Emulated(graph), case.inputs()
    _, gradient = emulated.launches
    assert len({view.buffer for view in gradient.operands[:3]}) == len({view.buffer for view in gradient.results}) == 1
    joined = np.stack([arrays[name] for name in names], 2).reshape(1, queries, -1)
    got = emulated(x=joined, cotangent=arrays["cotangent"].reshape(1, queries, -1))
    want = case.wanted(arrays)
    d_x = np.stack([want[f"d_{name}"].swapaxes(1, 2) for name in names], 2).reshape(joined.shape)
    np.testing.assert_allclose(got["mixed"], want["output"].swapaxes(1, 2).reshape(1, queries, -1), atol=1e-5)
    np.testing.assert_allclose(got["d_x"], d_x, atol=1e-5)


def test_layers_share_kernels():
    """Of other lengths, heads and widths too, as long as blocks have as many columns."""
    with ei.Graph() as graph:
        for number, (length, width) in enumerate(((5, 36), (200, 64))):
            x = ei.input(f"x{number}", (1, number + 1, length, width))
            ei.output(**{f"y{number}": ei.attention(x, x, x, causal=bool(number))})
    (first,), (second,) = Emulated(graph).launches.values()
    assert first.source is second.source


# -- steps that no graph small enough to run has -----------------------------------------------------------------------


def test_no_keys_at_all():
    forward = step_of("attention", (2,), 70, 0, 40, 33)
    output, logsumexp = np.full((2, 70, 33), NAN, np.float32), np.full((2, 70), NAN, np.float32)
    query = np.ones((2, 70, 40), np.float32)
    nothing = np.zeros(0, np.float32)
    addresses = [memory.from_array(each) for each in (query, nothing, nothing, output, logsumexp)]
    launches = simt_launches(forward)
    run_launches(launches, modules_of(launches), addresses)
    assert (memory.to_array(addresses[3], output.shape, np.float32) == 0).all()
    assert (memory.to_array(addresses[4], logsumexp.shape, np.float32) == -INF).all()
    assert simt_launches(step_of("attention", (2,), 0, 5, 40, 33)) == ()
    assert len(simt_launches(step_of("attention_gradient", (2,), 0, 5, 40, 33))) == 2  # zeros for keys and values


def test_offsets_beyond_32_bits():
    """Heads and rows so far apart that no 32-bit number counts their elements, in memory that is mostly not there."""
    far, wide = 2**31 + 6, 2**25 + 2
    queries, keys, width = 130, 70, 33
    rng = np.random.default_rng(0)
    step = step_of("attention", (2,), queries, keys, width, width)
    spread = [replace(view, offset=3, batch_strides=(far * 2,), leading=wide) for view in step.operands]
    step = replace(
        step, operands=tuple(spread), results=(replace(spread[0], buffer=3), step.results[1]), causal=True
    )
    arrays = [rng.standard_normal((2, rows, width)).astype(np.float32) for rows in (queries, keys, keys)]
    span = 4 * (3 + 2 * far + 130 * wide + width)
    addresses = [memory.allocate(span, poison=False) for _ in range(4)]
    addresses.append(memory.from_array(np.zeros((2, queries), np.float32)))

    def rows(number, count):
        for head, row in itertools.product(range(2), range(count)):
            yield head, row, addresses[number] + 4 * (3 + head * 2 * far + row * wide)

    for number, array in enumerate(arrays):
        for head, row, address in rows(number, array.shape[1]):
            memory.upload(address, array[head, row])
    launches = simt_launches(step)
    run_launches(launches, modules_of(launches), addresses)
    found = np.empty((2, queries, width), np.float32)
    for head, row, address in rows(3, queries):
        found[head, row] = memory.to_array(address, (width,), np.float32)
    for address in addresses:
        memory.free(address)
    case = Case(queries, keys, width, width, heads=2, key_heads=2, scale=step.scale)
    named = dict(zip(("query", "key", "value"), (array.swapaxes(0, 1)[None] for array in arrays)))
    want = case.wanted(case.inputs(**named))["output"][0]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_blocks_are_counted_along_x_alone_up_to_what_cuda_has():
    (launch,) = simt_launches(step_of("attention", (350, 200), 1, 1, 3, 3))
    assert launch.blocks == 70000
    with pytest.raises(LoweringError, match="blocks of threads, and CUDA has 2147483647"):
        simt_launches(step_of("attention", (2**16, 2**16), 1, 1, 3, 3))
    with pytest.raises(LoweringError, match="of 1073741825 queries"):
        simt_launches(step_of("attention", (1,), 2**30 + 1, 1, 3, 3))


# -- longer ones -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("contract", [True, False])
@pytest.mark.parametrize(("dtype", "steps"), [("f32", STEPS), ("f64", STEPS), ("f16", 8), ("bf16", 8)])
@pytest.mark.parametrize(
    ("width", "value_width"),
    [(1, 1), (3, 3), (40, 40), (80, 80), (130, 130), (200, 200), (20, 256), (256, 20), (300, 5)],
)
def test_any_width(width, value_width, dtype, steps, contract):
    for queries, keys, heads, causal, margin in ((77, 70, 2, True, 0), (65, 130, 1, False, 1)):
        case = Case(
            queries, keys, width, value_width, 1, heads, 1, dtype=dtype, causal=causal, margin=margin,
            visible_from=causal,
        )  # fmt: skip
        arrays = case.inputs()
        emulated = Emulated(case.graph(), architecture="sm_75", contract=contract)
        first = emulated(**case.flat(arrays))
        assert_close(first, case.wanted(arrays), steps)
        for order in ("descending", 1):
            assert_same_bits(emulated(order=order, **case.flat(arrays)), first)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("visible_from", [False, True])
def test_no_access_races(dtype, visible_from):
    """Compiled so that each access is checked: for its bounds to the byte, and against those of all other threads."""
    case = Case(140, 70, 40, 130, heads=2, key_heads=1, dtype=dtype, margin=1, visible_from=visible_from)
    arrays, emulated = case.inputs(), Emulated(case.graph(), architecture="sm_75", sanitize=True)
    for order in ("ascending", "descending", 1):
        assert_close(emulated(order=order, **case.flat(arrays)), case.wanted(arrays), STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_second_derivatives_on_the_emulated_device(dtype):
    """They are those of what attention's gradient decomposes into, beside the kernels for the first ones."""
    with ei.Graph() as graph:
        operands = [ei.input(name, (1, 2, 9, 8), dtype) for name in ("query", "key", "value")]
        output = ei.attention(*operands, causal=True).cast(ei.f32)
        first = ei.gradient(ei.sum(output * output * output), operands)
        total = sum(ei.sum(each.cast(ei.f32) * each.cast(ei.f32)) for each in first)
        ei.output(total=total, **{f"d{n}": each for n, each in enumerate(ei.gradient(total, operands))})
    random = np.random.default_rng(0)
    arrays = {leaf.op.attributes["name"]: random.standard_normal(leaf.shape) for leaf in graph.inputs}
    arrays = {name: array.astype(DTYPES[dtype].numpy) for name, array in arrays.items()}
    got, (want, _) = ei.compile(graph, "cuda-emulator")(**arrays), interpreter.run(graph, arrays)
    for name, array in want.items():
        found, exact = got[name].astype(np.float64), array.astype(np.float64)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, exact, atol={"f32": 1e-5, "bf16": 0.03}[dtype] * np.abs(exact).max())


@pytest.mark.slow
def test_more_heads_than_65535():
    case = replace(ODD, queries=1, keys=1, width=3, value_width=3, batch=350, heads=200, key_heads=200)
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize(
    ("architecture", "width"), [("sm_75", 64), ("sm_90", 64), *(("sm_80", width) for width in (16, 64, 96, 128))]
)
def test_every_kernel_compiles_within_the_limits(architecture, width, dtype):
    for operator, (visible_from, columns) in itertools.product(
        ("attention", "attention_gradient"), ((False, width), (True, width - 1))
    ):
        for launch in simt_launches(step_of(operator, (1,), 5, 5, columns, columns, dtype, visible_from)):
            resources = nvrtc.compile_cuda(launch.source.text, architecture, launch.kernel).resources[launch.kernel]
            assert resources.spill_stores == resources.spill_loads == resources.stack == 0, (launch.kernel, resources)
            assert resources.shared <= DEFAULT_SHARED and launch.shared_bytes == 0
            resident = resident_blocks(architecture, launch.threads, resources.registers, resources.shared)
            assert resident >= (1 if architecture == "sm_75" else 2)  # which has 64 KiB of shared memory

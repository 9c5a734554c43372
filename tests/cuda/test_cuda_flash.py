"""FlashAttention on tensor cores, in the emulator, against numpy in f64, through the plans of graphs."""

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
from euler_ir.backends.cuda.attention.flash import flash_calls, refusal
from euler_ir.backends.cuda.attention.views import named_views
from euler_ir.backends.cuda.emulator import memory

NAN, INF = np.nan, np.inf
STEPS = 4
"""Unit roundoffs of the largest element: weights, their gradients and results are rounded once each."""
PLAIN = Case(77, 77, 64, 64, dtype="bf16", heads=2, key_heads=2)
ODD = Case(70, 90, 40, 33, dtype="f16", heads=4, key_heads=2, causal=False, visible_from=True, margin=1)
"""Cases of these types, widths and masks have the same three kernels, and compiling these is what a test costs."""
LENGTHS = ((1, 1), (15, 15), (65, 65), (77, 77), (128, 128), (200, 200), (1, 130), (130, 1), (300, 40), (40, 300))


def check(case, contract=True, order="ascending", architecture="sm_90", **replaced):
    """All results of ``case``, which are right."""
    arrays = case.inputs(**replaced)
    emulated = Emulated(case.graph(), architecture, contract)
    assert all(launch.kernel.startswith("flash") for calls in emulated.launches.values() for launch in calls)
    got = emulated(order=order, **case.flat(arrays))
    assert_close(got, case.wanted(arrays), STEPS)
    return got


@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_any_number_of_queries_and_keys(queries, keys):
    check(replace(PLAIN, queries=queries, keys=keys))
    starts = np.random.default_rng(0).integers(-3, keys + 2, (1, 4, queries)) // 2
    check(replace(ODD, queries=queries, keys=keys), visible_from=starts)


def test_every_order_of_threads_every_run_and_every_contraction():
    case = replace(PLAIN, queries=200, keys=140, heads=4, key_heads=1)
    arrays, emulated = case.inputs(), Emulated(case.graph())
    first = emulated(**case.flat(arrays))
    assert_close(first, case.wanted(arrays), STEPS)
    for order in ("ascending", "descending", 1, 2):
        assert_same_bits(emulated(order=order, **case.flat(arrays)), first)
    check(case, contract=False)


def test_rows_that_are_aligned_are_copied_16_bytes_at_once():
    for margin, aligned in ((0, True), (8, True), (4, False)):
        for launch in launches_of(replace(PLAIN, margin=margin)):
            assert launch.kernel.endswith("unaligned") != aligned
    check(replace(PLAIN, margin=8))


def test_texts_that_share_rows():
    """Long ones, so that whole tiles of keys and of queries are passed over; and places that are far outside."""
    case = replace(ODD, queries=300, keys=300, heads=2)
    begins = np.maximum.accumulate(np.where(np.arange(300) % 90 == 0, np.arange(300), 0))
    starts = np.broadcast_to(begins, (1, 2, 300)).copy()
    starts[0, 1, ::7] = np.resize([-(2**63), -1, 299, 300, 2**32, 2**63 - 1], 43)
    check(case, visible_from=starts)


def test_queries_that_see_no_key_give_0():
    got = check(replace(PLAIN, queries=150, keys=5))
    assert (got["output"][:, :, :145] == 0).all() and (got["d_query"][:, :, :145] == 0).all()
    assert (got["logsumexp"][:, :, :145] == -INF).all() and np.isfinite(got["logsumexp"][:, :, 145:]).all()
    got = check(replace(ODD, queries=70), visible_from=np.full((1, 4, 70), 90))
    assert (got["logsumexp"] == -INF).all() and all((got[name] == 0).all() for name in RESULTS if name != "logsumexp")


@pytest.mark.parametrize("contract", [True, False])
def test_huge_scores(contract):
    """Scores of up to 20,000, which are integers and so exact."""
    case, random = replace(PLAIN, scale=1.0), np.random.default_rng(0)
    query, key = (random.integers(-25, 26, (1, 77, 2, 64)) for _ in range(2))
    arrays = case.inputs(query=query, key=key)
    got, want = Emulated(case.graph(), contract=contract)(**case.flat(arrays)), case.wanted(arrays)
    assert np.abs(want["logsumexp"]).max() > 5000
    assert all(np.isfinite(got[name].astype(np.float64)).all() for name in RESULTS)
    np.testing.assert_allclose(got["logsumexp"], want["logsumexp"], rtol=1e-6)
    for name in ("output", "d_value"):
        np.testing.assert_allclose(got[name].astype(np.float64), want[name], atol=0.03)


@pytest.mark.parametrize("special", [NAN, INF, -INF])
@pytest.mark.parametrize("operand", ["query", "key", "value"])
def test_special_values_reach_those_who_see_them(special, operand):
    case = replace(PLAIN, heads=1, key_heads=1)
    emulated, arrays = Emulated(case.graph()), case.inputs()
    clean = case.wanted(arrays)
    for place in (0, 3, 66, 76):
        marked = {name: array.copy() for name, array in arrays.items()}
        marked[operand][0, place, 0, 3] = special
        got, want = emulated(**case.flat(marked)), case.wanted(marked)
        for name in ("output", "logsumexp"):
            found, exact, before = (each[name][0, 0].T.astype(np.float64) for each in (got, want, clean))
            # What a query does not see may be passed over: then it is as if nothing special were there.
            unseen = np.arange(77) < (place if operand != "query" else 0)
            with np.errstate(invalid="ignore"):
                close = (np.isnan(found) & np.isnan(exact)) | (found == exact) | (np.abs(found - exact) < 0.03)
                assert (close | unseen & (np.abs(found - before) < 0.03)).all()


def one_score_is_all(magnitude, scale):
    """Results and right ones where every third key outdoes all before it, by far."""
    case = replace(PLAIN, heads=1, key_heads=1, scale=scale)
    arrays = case.inputs()
    arrays["query"][0, :, 0], arrays["key"][0, :, 0] = 0, 0
    arrays["query"][0, :, 0, 0] = magnitude
    arrays["key"][0, 2::3, 0, 0] = magnitude * np.linspace(0.5, 1, 25)
    return Emulated(case.graph())(**case.flat(arrays)), case.wanted(arrays)


@pytest.mark.parametrize("magnitude", [1e3, 1e5, 1e18])
def test_scores_that_leave_nothing_to_other_keys(magnitude):
    got, want = one_score_is_all(magnitude, scale=1.0)
    np.testing.assert_allclose(got["logsumexp"], want["logsumexp"], rtol=1e-6)
    for name in ("output", "d_value"):
        np.testing.assert_allclose(got[name].astype(np.float64), want[name], rtol=0.02, atol=0.02)


def test_scores_that_overflow():
    """Infinite ones give NaN to who sees them; those that are only after the scale give NaN or what is right."""
    got, _ = one_score_is_all(1e20, scale=1.0)
    sees = np.arange(77) >= 2
    for name in ("output", "logsumexp", "d_query"):
        missing = np.isnan(got[name][0, 0].astype(np.float64).reshape(77, -1))
        assert (missing.all(1) == sees).all() and (missing.any(1) == sees).all()
    got, want = one_score_is_all(1e18, scale=1e4)
    for name in ("output", "d_value"):
        found = got[name].astype(np.float64)
        assert (np.isnan(found) | np.isclose(found, want[name], rtol=0.02, atol=0.02)).all()


def test_maxima_that_grow_from_tile_to_tile():
    """Sums are scaled only where a maximum grows by more than 2^8: by a bit less, more, and in some rows alone."""
    case = replace(PLAIN, queries=256, keys=256, heads=1, key_heads=1, scale=float(np.log(2)))
    query, key = np.zeros((1, 256, 1, 64)), np.zeros((1, 256, 1, 64))
    query[0, :, 0, 0], query[0, ::5, 0, 0] = 1, 2
    for growth in (5, 7.5, 9, 300):
        key[0, :, 0, 0] = np.arange(256) // 64 * growth
        arrays = case.inputs(query=query, key=key)
        got, want = Emulated(case.graph())(**case.flat(arrays)), case.wanted(arrays)
        np.testing.assert_allclose(got["logsumexp"], want["logsumexp"], atol=1e-4)
        np.testing.assert_allclose(got["output"].astype(np.float64), want["output"], atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("case", [PLAIN, ODD, replace(PLAIN, width=16, value_width=72)])
def test_no_access_races(case):
    """Compiled so that each access is checked: for its bounds to the byte, and against those of all other threads."""
    case = replace(case, queries=140, keys=200, heads=2, key_heads=1)
    arrays, emulated = case.inputs(), Emulated(case.graph(), sanitize=True)
    for order in ("ascending", "descending", 1):
        assert_close(emulated(order=order, **case.flat(arrays)), case.wanted(arrays), STEPS)


# -- steps that no graph small enough to run has -----------------------------------------------------------------------


def half_step(operator, *extents, **changed):
    return replace(step_of(operator, *extents), dtype=ei.bf16, **changed)


def run_step(step):
    """Its results, for operands of ones; before, they are NaN."""
    views = named_views(step)
    arrays = {
        name: np.full((*step.batch, view.rows, view.columns), NAN if view.is_result else 1, view.dtype.numpy)
        for name, view in views.items()
    }
    addresses = [memory.from_array(array) for array in arrays.values()]
    launches = flash_calls(step, "sm_90").calls
    run_launches(launches, modules_of(launches), addresses)
    results = {
        name: memory.to_array(address, array.shape, array.dtype)
        for address, (name, array) in zip(addresses, arrays.items())
        if views[name].is_result
    }
    for address in addresses:
        memory.free(address)
    return results


def test_no_keys_and_no_queries_at_all():
    found = run_step(half_step("attention", (2,), 70, 0, 64, 64, causal=True))
    assert (found["output"] == 0).all() and (found["logsumexp"] == -INF).all()
    found = run_step(half_step("attention_gradient", (2,), 70, 0, 64, 64, causal=True))
    assert (found["d_query"] == 0).all() and found["d_key"].size == 0
    found = run_step(half_step("attention_gradient", (2,), 0, 70, 64, 64, causal=True))
    assert all((found[name] == 0).all() for name in ("d_key", "d_value"))
    assert flash_calls(half_step("attention", (2,), 0, 5, 64, 64), "sm_90").calls == ()


@pytest.mark.parametrize("operator", ["attention", "attention_gradient"])
def test_offsets_beyond_32_bits(operator):
    """Heads and rows so far apart that no 32-bit number counts their elements, in memory that is mostly not there."""
    far, wide, queries, keys, width = 2**31 + 8, 2**25 + 8, 130, 70, 64
    step = half_step(operator, (2,), queries, keys, width, width, causal=True)
    views, random = named_views(step), np.random.default_rng(0)
    scattered, addresses, wanted, arrays = {}, [], {}, {}
    case = Case(queries, keys, width, width, heads=2, key_heads=2, dtype="bf16")
    for name, view in views.items():
        array = random.standard_normal((2, view.rows, view.columns)).astype(view.dtype.numpy)
        arrays[name] = array if view.is_matrix else array[..., 0]
    named = ("query", "key", "value", "d_output")
    given = dict(zip(case.extents(), (arrays.get(name, arrays["query"]).swapaxes(0, 1)[None] for name in named)))
    wanted = case.wanted(case.inputs(**given))
    if operator == "attention_gradient":
        arrays["logsumexp"] = wanted["logsumexp"][0].astype(np.float32)
        arrays["delta"] = (arrays["d_output"].astype(np.float64) * wanted["output"][0]).sum(-1).astype(np.float32)

    placed = []
    for number, (name, view) in enumerate(views.items()):
        if view.is_matrix:
            placed.append(replace(view.view, offset=8, batch_strides=(far * 2,), leading=wide))
            addresses.append(memory.allocate(2 * (8 + 2 * far + view.rows * wide + width), poison=False))
            scattered[name] = [
                (head, row, addresses[number] + 2 * (8 + head * 2 * far + row * wide))
                for head, row in itertools.product(range(2), range(view.rows))
            ]
            for head, row, address in scattered[name]:
                memory.upload(address, arrays[name][head, row])
        else:
            placed.append(view.view)
            addresses.append(memory.from_array(arrays[name]))
    operands = len(step.operands)
    step = replace(step, operands=tuple(placed[:operands]), results=tuple(placed[operands:]))
    launches = flash_calls(step, "sm_90").calls
    run_launches(launches, modules_of(launches), addresses)
    for name in (name for name, view in views.items() if view.is_result and view.is_matrix):
        found = np.empty(arrays[name].shape, np.float64)
        for head, row, address in scattered[name]:
            found[head, row] = memory.to_array(address, (width,), ei.bf16.numpy)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found, wanted[name][0], atol=0.03)
    for address in addresses:
        memory.free(address)


def test_blocks_are_counted_along_x_alone():
    (launch,) = flash_calls(half_step("attention", (350, 200), 1, 1, 64, 64), "sm_90").calls
    assert launch.blocks == 70000


def test_what_is_refused_says_why():
    step = half_step("attention", (2,), 5, 5, 64, 64)
    value = step.operands[2]
    assert refusal(step, "sm_80") is refusal(step, "sm_90a") is refusal(step, "sm_120") is None
    for refused, architecture, reason in (
        (replace(step, dtype=ei.f32), "sm_90", "for f16 and bf16, not f32"),
        (step, "sm_75", "sm_75 is before sm_80"),
        (replace(step, width=129), "sm_90", "129 wide"),
        (replace(step, value_width=256), "sm_90", "256 wide"),
        (replace(step, scale=-1.0), "sm_90", "a scale of -1"),
        (replace(step, scale=0.0), "sm_90", "a scale of 0"),
        (replace(step, scale=NAN), "sm_90", "a scale of nan"),
        (replace(step, scale=1e39), "sm_90", "a scale of 1e[+]39"),
        (replace(step, queries=2**30 + 1), "sm_90", "more than 32 bits"),
        (replace(step, batch=(2**16, 2**16)), "sm_90", "more than 32 bits"),
        (replace(step, operands=(*step.operands[:2], replace(value, leading=2**31))), "sm_90", "farther apart than 32"),
    ):
        assert reason.replace("[+]", "+") in refusal(refused, architecture)

"""Each rule of the kernel verifier by nests that break it and nests that do not."""

from dataclasses import replace

import pytest
from nests import at, column_sum, compute, gather, layer_norm, pad, scan, scatter_add, softmax, write_rows

from euler_ir.dtypes import bf16, bool_, f16, f32, i8, i32, i64
from euler_ir.errors import VerifyError
from euler_ir.index import Axis, Bound, Dynamic, Index, Multiple
from euler_ir.loops.bounds import interval
from euler_ir.loops.kernel import (
    Buffer,
    Carry,
    CheckIndex,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Nest,
    Reduction,
    Store,
)
from euler_ir.loops.verify import RULES, verify_kernel

I, J, TWICE = Axis("i", 4), Axis("j", 3), Axis("i", 2)
X, Y, H = Buffer("x", f32, 4, "input"), Buffer("y", f32, 4, "output"), Buffer("h", bf16, 4, "input")
LOCAL = Buffer("t", f32, 4, "local")
LOAD = Load("v", f32, "x", Index.of(I))
HALF = Load("half", bf16, "h", Index.of(I))
STORE = Store("y", Index.of(I), "v")
ONE = Constant("one", f32, 1.0)
WHOLE = Constant("whole", i64, 1)


def nest(*body, parameters=(X, H, Y), axes=(I,), vector=False, locals=(LOCAL,)):
    """A nest that is right but for ``body``: it goes on to load ``v`` and to store it."""
    return Nest(parameters, axes, (LOAD, *body, STORE), vector, locals)


def loop(*body, axes=(J,), **rest):
    return Loop(axes, body, **rest)


def load_at(index, *conditions, size=4):
    return nest(Load("w", f32, "z", index, conditions), loop(), parameters=(X, Y, Buffer("z", f32, size, "input")))


BROKEN = [
    ("L01", nest(parameters=(X, X, Y))),
    ("L01", nest(locals=(replace(LOCAL, name="x"),))),
    ("L01", nest(locals=(replace(LOCAL, size=-1),))),
    ("L01", nest(locals=(replace(LOCAL, role="output"),))),
    ("L01", nest(parameters=(X, Y, replace(LOCAL, name="s")))),
    ("L02", nest(axes=(I, Axis("n", -1)))),
    ("L02", nest(axes=(I, I))),
    ("L02", nest(loop(axes=(TWICE,)))),
    ("L03", nest(LOAD)),
    ("L03", nest(loop(ONE), loop(ONE))),
    ("L03", nest(loop(carries=(Carry("v", f32, 0.0, "v"),)))),
    ("L03", nest(loop(ONE, reductions=(Reduction("one", f32, "sum", "one"),)))),
    ("L04", nest(compute("w", "exp", "nothing"))),
    ("L04", nest(loop(ONE), compute("w", "exp", "one"))),
    ("L04", nest(Store("t", Index(), "later"), Constant("later", f32, 1.0))),
    ("L04", nest(CheckIndex("c", "nothing", 4, 0))),
    ("L04", nest(loop(reductions=(Reduction("r", f32, "sum", "nothing"),)))),
    ("L04", nest(loop(ONE, carries=(Carry("c", f32, 0.0, "nothing"),)))),
    ("L05", nest(compute("w", "no_such", "v"))),
    ("L05", nest(compute("w", "gelu", "v"))),
    ("L05", nest(compute("w", "add", "v"))),
    ("L05", nest(WHOLE, compute("w", "add", "v", "whole"))),
    ("L05", nest(WHOLE, compute("w", "less", "v", "whole", dtype=bool_))),
    ("L05", nest(compute("w", "logical_and", "v", "v"))),
    ("L05", nest(compute("w", "where", "v", "v", "v"))),
    ("L05", nest(WHOLE, compute("w", "exp", "whole", dtype=i64))),
    ("L05", nest(WHOLE, compute("w", "philox", "whole", "whole", "v"))),
    ("L05", nest(CheckIndex("c", "v", 4, 0))),
    ("L05", nest(WHOLE, CheckIndex("c", "whole", 0, 0))),
    ("L05", nest(WHOLE, CheckIndex("c", "whole", 4, 65536))),
    ("L05", nest(WHOLE, Compute("w", f32, "philox", ("whole",) * 3, stream=1 << 32))),
    ("L06", nest(compute("w", "add", "v", "v", dtype=bool_))),
    ("L06", nest(compute("w", "less", "v", "v"))),
    ("L06", nest(WHOLE, compute("w", "philox", "whole", "whole", "whole", dtype=i64))),
    ("L06", nest(IndexValue("w", bool_, Index.of(I)))),
    ("L06", nest(loop(WHOLE, reductions=(Reduction("r", f32, "sum", "whole"),)))),
    ("L06", nest(loop(WHOLE, carries=(Carry("c", f32, 0.0, "whole"),)))),
    ("L07", nest(Constant("w", f32, 0.1))),
    ("L07", nest(Constant("w", i8, 128))),
    ("L07", nest(Constant("w", i32, 1.5))),
    ("L07", nest(Constant("w", i32, float("nan")))),
    ("L07", nest(Constant("w", f16, 1e6))),
    ("L07", nest(Constant("w", f32, "1"))),
    ("L07", nest(loop(ONE, carries=(Carry("c", f32, 0.1, "one"),)))),
    ("L08", nest(Load("w", f32, "nothing", Index()))),
    ("L08", nest(Store("nothing", Index(), "v"))),
    ("L08", nest(Load("w", f32, "h", Index()))),
    ("L08", nest(HALF, Store("t", Index(), "half"))),
    ("L09", nest(Store("x", Index.of(I), "v"))),
    ("L09", nest(Load("w", f32, "y", Index.of(I)))),
    ("L09", nest(Load("w", f32, "t", Index()))),
    ("L09", nest(parameters=(X, Y, replace(Y, name="z")))),
    ("L09", Nest((Y,), (TWICE,), (ONE, Store("y", Index.of(TWICE) * 2, "one")))),
    ("L09", Nest((replace(Y, size=4 * 10**6),), (Axis("l", 10**6),), (ONE, Store("y", Index.of(Axis("l", 10**6)), "one")))),
    ("L10", nest(Load("w", f32, "x", Index.of(J)))),
    ("L10", nest(Load("w", f32, "x", Index.of(TWICE)))),
    ("L10", nest(IndexValue("w", i64, Index.of(J)))),
    ("L10", nest(Load("w", f32, "x", Index(), (Bound(Index.of(J), 0, 1),)))),
    ("L10", nest(WHOLE, CheckIndex("c", "whole", 4, 0, (Multiple(Index.of(J), 2),)))),
    ("L10", nest(WHOLE, Load("w", f32, "x", Index.of(Dynamic("whole", 4))))),
    ("L10", nest(WHOLE, CheckIndex("c", "whole", 3, 0), Load("w", f32, "x", Index.of(Dynamic("c", 4))))),
    ("L11", load_at(Index.of(I) + 1)),
    ("L11", load_at(Index.of(I) - 1)),
    ("L11", load_at(Index.of(I) * 2, size=6)),
    ("L11", load_at(Index.of(I) - 1, Bound(Index.of(I), 0, 4))),
    ("L11", load_at(Index.of(I) + 1, Bound(Index.of(I), 0, 4))),
    ("L11", load_at(Index.of(I) * 2, Multiple(Index.of(I), 2), size=4)),
    ("L11", load_at((Index.of(I) + 2) % 4, size=3)),
    ("L11", nest(Store("t", Index.of(I) + 1, "v"))),
    ("L11", nest(WHOLE, CheckIndex("c", "whole", 5, 0), Load("w", f32, "x", Index.of(Dynamic("c", 5))))),
    ("L12", nest(Store("y", Index(), "v"))),
    ("L12", nest(axes=(I, J))),
    ("L12", nest(loop(Store("y", Index.of(I), "v"), vector=True))),
    ("L12", nest(loop(Store("t", Index(), "v"), vector=True))),
    ("L13", nest(loop(ONE, reductions=(Reduction("r", f32, "mean", "one"),)))),
    ("L14", nest(loop(HALF, reductions=(Reduction("r", bf16, "sum", "half"),)))),
    ("L14", nest(loop(HALF, reductions=(Reduction("r", bf16, "max", "half"),)))),
    ("L14", nest(loop(HALF, carries=(Carry("c", bf16, 0.0, "half"),)))),
    ("L14", nest(HALF, Store("g", Index(), "half", True), locals=(replace(LOCAL, name="g", dtype=bf16),))),
    ("L15", nest(loop(ONE, vector=True, carries=(Carry("c", f32, 0.0, "one"),)))),
    ("L15", nest(loop(loop(axes=(Axis("k", 2),), vector=True), vector=True))),
    ("L15", nest(loop(loop(axes=(Axis("k", 2),), vector=True)), vector=True)),
    ("L15", nest(loop(axes=(), vector=True))),
]


@pytest.mark.parametrize("rule, broken", BROKEN, ids=[f"{rule}-{n}" for n, (rule, _) in enumerate(BROKEN)])
def test_rule(rule, broken):
    with pytest.raises(VerifyError, match=f"^{rule}: ") as caught:
        verify_kernel(Kernel("some_kernel", (nest(), broken)))
    assert "in kernel 'some_kernel'" in str(caught.value)


def test_every_rule_is_tested():
    assert {rule for rule, _ in BROKEN} == set(RULES)


RIGHT = [
    nest(),
    nest(vector=True),
    softmax(4, 3),
    layer_norm(4, 8),
    column_sum(4, 3),
    column_sum(0, 3),
    column_sum(4, 0),
    gather(4, 3, 2),
    scatter_add(4, 3, 2),
    scan(4, 3),
    write_rows(2, 4, 3),
    pad(4, 3, 2),
    pad(400, 300, 2),
    nest(loop(axes=(J,)), loop(axes=(J,))),
    nest(loop(loop(axes=(Axis("k", 2),), vector=True))),
    nest(Store("t", Index(), "v"), Load("w", f32, "t", Index())),
    nest(Store("t", Index(), "v"), Load("w", f32, "t", Index()), vector=True),
    nest(Constant("inf", f16, float("inf")), Constant("nan", f16, float("nan")), Constant("yes", bool_, True)),
    nest(Constant("half", bf16, 0.5), Constant("same", i32, 2.0), Constant("low", i8, -128)),
    nest(HALF, Compute("w", f32, "cast", ("half",)), Compute("z", bf16, "add", ("half", "half"))),
    nest(Compute("b", bool_, "less", ("v", "v")), Compute("w", f32, "where", ("b", "v", "v"))),
    load_at(Index.of(I) - Index.of(I) // 2, size=3),
    load_at(Index.of(I) * 3, Multiple(Index.of(I), 2), size=7),
    load_at((Index.of(I) - 1) // 2, Bound(Index.of(I) - 1, 0, 3), Multiple(Index.of(I) - 1, 2), size=2),
    load_at(Index.of(I) + 9, Bound(Index.of(I), 7, 9)),
    nest(loop(Load("w", f32, "x", Index.of(9)), axes=(Axis("empty", 0),))),
    Nest((Y,), (), (ONE, loop(Store("y", Index.of(I), "one"), axes=(I,), vector=True))),
]


@pytest.mark.parametrize("right", RIGHT)
def test_right_nests_pass(right):
    verify_kernel(Kernel("right", (right,)))


def test_quotients_of_a_bounded_index_are_proven_without_trying_points():
    place = Index.of(Axis("s", 5000)) - 1
    assert interval(place // 2, (Bound(place, 0, 4000),)) == (0, 1999)
    assert interval(place * -3 + 7, (Bound(place, 0, 4000),)) == (7 - 3 * 3999, 7)


def test_windows_are_proven_without_trying_points():
    """A convolution's read: the condition is a sum that the index contains a multiple of."""
    h, w, k, m = Axis("h", 5000), Axis("w", 5000), Axis("k", 3), Axis("m", 3)
    row, column = Index.of(h) + k - 1, Index.of(w) + m - 1
    inside = (Bound(row, 0, 5000), Bound(column, 0, 5000))
    image = Buffer("image", f32, 5000 * 5000, "input")
    y = Buffer("y", f32, 5000 * 5000, "output")
    load = Load("v", f32, "image", row * 5000 + column, inside)
    assert interval(load.index, inside) == (0, image.size - 1)
    read = Loop((k, m), (load,), reductions=(Reduction("s", f32, "sum", "v"),))
    window = Nest((image, y), (h, w), (read, Store("y", at(h, w), "s")))
    verify_kernel(Kernel("window", (window,)))
    unguarded = replace(read, body=(replace(load, conditions=()),))
    with pytest.raises(VerifyError, match="L11"):
        verify_kernel(Kernel("window", (replace(window, body=(unguarded, *window.body[1:])),)))


def storing(*indices, axes, size, inside=()):
    """A nest that stores at ``indices``, in a loop over ``inside`` if there is one."""
    y = Buffer("y", f32, size, "output")
    stores = tuple(Store("y", index, "one") for index in indices)
    return Nest((y,), axes, (ONE, loop(*stores, axes=inside) if inside else stores[0], *(() if inside else stores[1:])))


K, LONG, WIDE = Axis("k", 3), Axis("m", 5000), Axis("n", 700)


@pytest.mark.parametrize(
    ("nest", "races"),
    [
        (storing(Index.of(I) // 2, axes=(I,), size=2), True),
        (storing(Index.of(I) + J, axes=(I, J), size=6), True),
        (storing(Index.of(I) * 3 + J, axes=(I, J), size=12), False),
        (storing(Index.of(I) * 2 + J, axes=(I, J), size=9), True),
        (storing(Index.of(I) * -3 - J + 11, axes=(I, J), size=12), False),
        (storing(Index.of(I), Index.of(I) * -1 + 3, axes=(I,), size=4), True),
        (storing(Index.of(I) * 2, Index.of(I) * 2 + 1, axes=(I,), size=8), False),
        (storing(Index.of(I) + Index.of(K) * 2, axes=(I,), size=8, inside=(K,)), True),
        (storing(Index.of(I) * 3 + K, axes=(I,), size=12, inside=(K,)), False),
        (storing(Index.of(I) * 7 + Index.of(K) + Index.of(J) * 2, axes=(I,), size=28, inside=(K, J)), False),
        (storing(Index.of(LONG) * 700 + WIDE, axes=(LONG, WIDE), size=3_500_000), False),
        (storing(Index.of(LONG) * 699 + WIDE, axes=(LONG, WIDE), size=3_500_000), True),
        (storing(Index.of(LONG) // 2, axes=(LONG,), size=2500), True),
        (storing((Index.of(LONG) + 1) % 5000, axes=(LONG,), size=5000), False),
    ],
)
def test_races_between_points(nest, races):
    if races:
        with pytest.raises(VerifyError, match="^L12: points of "):
            verify_kernel(Kernel("racing", (nest,)))
    else:
        verify_kernel(Kernel("apart", (nest,)))


def test_what_conditions_do_not_prove_is_refused():
    """Whoever runs the kernel as machine code relies on it."""
    far = Axis("far", 10**6)
    load = Load("w", f32, "z", Index.of(far), (Multiple(Index.of(far), 2),))
    with pytest.raises(VerifyError, match="^L11: "):
        verify_kernel(Kernel("far", (nest(loop(load, axes=(far,)), parameters=(X, Y, Buffer("z", f32, 9, "input"))),)))

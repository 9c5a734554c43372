"""Rules by example: what is matched in every dtype, attribute and order, what is refused and why, what is senseless."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.passes import RULES, Number, Rewrite, optimize, parse_pipeline, rewrite_rule
from euler_ir.passes.patterns import show
from euler_ir.passes.rewriting import rewrite
from euler_ir.verify import verify


@pytest.fixture(autouse=True)
def own_rules():
    """What a test defines is forgotten after it."""
    known = dict(RULES)
    yield
    RULES.clear()
    RULES.update(known)


def graph_of(function, *types):
    with ei.Graph("case") as graph:
        inputs = [ei.input(name, shape, dtype) for name, (shape, dtype) in zip("xyz", types)]
        ei.output(result=function(*inputs))
    return graph


def fires(rule, function, *types):
    """Whether ``rule`` changes the graph of ``function``; what it makes must be valid."""
    graph = graph_of(function, *types)
    found = rewrite(graph, [rule])
    verify(found)
    return found is not graph


F32, F16, F64, I32 = (((3, 5), dtype) for dtype in (ei.f32, ei.f16, ei.f64, ei.i32))
SQRT_HALF = 0.7071067811865476


def erfc_rule(**more):
    @rewrite_rule("half-erfc", numerics="better", **more)
    def _(x):
        return 0.5 * x * (1 + ei.erf(x * SQRT_HALF)), 0.5 * x * ei.erfc(x * -SQRT_HALF)

    return _


def test_a_rule_of_four_lines():
    rule = erfc_rule()
    assert (rule.name, rule.numerics) == ("half-erfc", "better") and RULES["half-erfc"] is rule
    assert show(rule.pattern) == "x * 0.5 * (erf(x * 0.707106781) + 1)"
    assert rule.doc == "x * 0.5 * (erf(x * 0.707106781) + 1) = x * 0.5 * erfc(x * -0.707106781)"
    graph = graph_of(lambda x: 0.5 * x * (1 + ei.erf(x * SQRT_HALF)), F32)
    found = optimize(graph, "rewrite{rules=half-erfc}")
    assert [op.name for op in found.ops if op.operands and op.name != "broadcast"] == [
        "multiply",
        "multiply",
        "erfc",
        "multiply",
    ]
    assert all(op.location.file == __file__ for op in found.ops)
    points = np.linspace(-3, 3, 15, dtype=np.float32).reshape(3, 5)
    before, after = (interpreter.run(each, {"x": points})[0]["result"] for each in (graph, found))
    np.testing.assert_allclose(before, after, rtol=1e-4)


@pytest.mark.parametrize("of", [F32, F16, F64, ((0, 4), ei.f32), ((), ei.f32), ((2, 3, 4), ei.bf16)])
def test_constants_are_those_of_the_dtype_and_shapes_are_free(of):
    rule = erfc_rule()
    assert fires(rule, lambda x: 0.5 * x * (1 + ei.erf(x * SQRT_HALF)), of)
    assert fires(rule, lambda x: (ei.erf(SQRT_HALF * x) + 1) * (x * 0.5), of)
    assert not fires(rule, lambda x: 0.5 * x * (1 + ei.erf(x * 0.7)), of)
    assert not fires(rule, lambda x: 0.25 * x * (1 + ei.erf(x * SQRT_HALF)), of)
    assert not fires(rule, lambda x: 0.5 * x * (1 + ei.erf(ei.exp(x) * SQRT_HALF)), of)
    assert not fires(rule, lambda x: 0.5 * x * (1 + ei.erf(x * x)), of)


def test_a_tolerance_is_stated():
    near = SQRT_HALF * (1 + 1e-6)
    assert not fires(erfc_rule(), lambda x: 0.5 * x * (1 + ei.erf(x * near)), F64)
    RULES.pop("half-erfc")
    loose = erfc_rule(tolerance=1e-5)
    assert fires(loose, lambda x: 0.5 * x * (1 + ei.erf(x * near)), F64)
    assert not fires(loose, lambda x: 0.5 * x * (1 + ei.erf(x * 0.7072)), F64)


def test_the_same_argument_is_the_same_value():
    @rewrite_rule("swish", numerics="exact")
    def rule(x: float):
        return ei.exp(x) * x, ei.gelu(x)

    assert fires(rule, lambda x: ei.exp(x) * x, F32)
    graph = graph_of(lambda x, y: ei.exp(x) * y, F32, F32)
    assert rewrite(graph, [rule]) is graph


def test_dtypes_of_arguments():
    @rewrite_rule("plus-itself", numerics="exact")
    def rule(x: int):
        return x + x, x * 2

    assert fires(rule, lambda x: x + x, I32) and fires(rule, lambda x: x + x, ((3,), ei.u8))
    assert not fires(rule, lambda x: x + x, F32)

    @rewrite_rule("chosen", numerics="exact")
    def rule(c: bool, x: float):
        return ei.where(c, x, x), x

    assert fires(rule, lambda x: ei.where(x > 0, x, x), F32)
    assert not fires(rule, lambda x: ei.where(x > 0, x, x), I32)


def no_power_of_two(c):
    return None if c in (0.25, 0.5, 2, 4) else f"{c:g} is not a power of two that I know"


def test_numbers_and_guards():
    @rewrite_rule("divide", numerics="exact", guard=no_power_of_two)
    def rule(x: float, c: Number):
        return x / c, x * (1 / c)

    found = rewrite(graph_of(lambda x: x / 4, F16), [rule])
    assert "constant {value = 0.25} : f16" in str(found) and "= divide" not in str(found)
    assert not fires(rule, lambda x: x / 3, F32)
    assert not fires(rule, lambda x, y: x / y, F32, F32)
    assert not fires(rule, lambda x: 2 / x, F32)

    @rewrite_rule("scale-twice", numerics="exact")
    def rule(x, c: Number, d: Number):
        return x * c * d, x * (c * d)

    assert "value = 6 " in str(rewrite(graph_of(lambda x: x * 2 * 3, I32), [rule])).replace("}", " }")
    assert "value = 6.0" in str(rewrite(graph_of(lambda x: 3 * (x * 2), F32), [rule]))


def test_a_number_twice_is_the_same_number():
    @rewrite_rule("both", numerics="exact")
    def rule(x: float, y: float, c: Number):
        return x * c + y * c, (x + y) * c

    assert fires(rule, lambda x, y: x * 3 + y * 3, F32, F32)
    assert not fires(rule, lambda x, y: x * 3 + y * 4, F32, F32)


def test_attributes_are_matched_and_bound():
    @rewrite_rule("last-axis", numerics="better")
    def last(x):
        return ei.log(ei.softmax(x, -1)), ei.log_softmax(x, -1)

    assert fires(last, lambda x: ei.log(ei.softmax(x, 1)), F32)
    assert fires(last, lambda x: ei.log(ei.softmax(x, 2)), ((2, 3, 4), ei.f32))
    assert not fires(last, lambda x: ei.log(ei.softmax(x, 0)), F32)

    @rewrite_rule("any-axis", numerics="better")
    def anywhere(x, *, axis=0):
        return ei.log(ei.softmax(x, axis)), ei.log_softmax(x, axis)

    for axis in (0, 1):
        found = rewrite(graph_of(lambda x: ei.log(ei.softmax(x, axis)), F32), [anywhere])
        assert f"log_softmax %x {{axis = {axis}}}" in str(found)


def test_casts_are_those_of_the_rule():
    @rewrite_rule("through-half", numerics="approximate")
    def rule(x: ei.f32):
        return x.cast(ei.f16).cast(ei.f32), x

    assert fires(rule, lambda x: x.cast(ei.f16).cast(ei.f32), F32)
    assert not fires(rule, lambda x: x.cast(ei.bf16).cast(ei.f32), F32)
    assert not fires(rule, lambda x: x.cast(ei.f16).cast(ei.f32), F64)


def test_numbers_that_follow_from_the_shape():
    @rewrite_rule("centred", numerics="better")
    def rule(x: float):
        return x - ei.mean(x, -1, keepdims=True), x + -ei.mean(x, -1, keepdims=True)

    assert "a constant number" in show(rule.pattern)
    for of in (F32, ((7, 9), ei.f64), ((2, 3, 4), ei.f32)):
        assert fires(rule, lambda x: x - ei.mean(x, -1, keepdims=True), of)
    assert not fires(rule, lambda x: x - ei.mean(x, 0, keepdims=True), F32)
    assert not fires(rule, lambda x: x - ei.sum(x, -1, keepdims=True) / 6, F32)


def test_what_is_in_between_may_have_to_be_used_once():
    def graph():
        with ei.Graph() as graph:
            inner = ei.sin(ei.input("x", (4,)))
            ei.output(y=-inner, inner=inner)
        return graph

    @rewrite_rule("shared", numerics="exact")
    def shared(x):
        return -ei.sin(x), ei.sin(-x)

    @rewrite_rule("alone", numerics="exact", used_once=True)
    def alone(x):
        return -ei.sin(x), ei.sin(-x)

    both = graph()
    assert rewrite(both, [alone]) is both and rewrite(both, [shared]) is not both
    assert fires(alone, lambda x: -ei.sin(x), F32)


def test_several_spellings_are_one_rule():
    @rewrite_rule("doubled", numerics="exact")
    def rule(x: float):
        return [x + x, x * 2, x / 0.5], ei.exp(x)

    assert show(rule.pattern) == "x + x or x * 2 or x / 0.5"
    assert all(fires(rule, function, F32) for function in (lambda x: x + x, lambda x: 2 * x, lambda x: x / 0.5))
    assert not fires(rule, lambda x: x * 3, F32)


def test_a_rule_may_make_a_constant():
    @rewrite_rule("gone", numerics="nan-unsafe")
    def rule(x):
        return x - x, ei.zeros(x.shape, x.dtype)

    assert fires(rule, lambda x: x - x, F32) and fires(rule, lambda x: x - x, I32)


def ill(error, **more):
    def decorate(function):
        with pytest.raises(ei.PassError) as caught:
            rewrite_rule("ill", numerics=more.pop("numerics", "exact"), **more)(function)
        assert error in str(caught.value) and "test_by_example.py:" in str(caught.value), str(caught.value)
        assert "ill" not in RULES

    return decorate


def test_rules_that_make_no_sense_are_refused_where_they_are_defined():
    @ill("must return what to look for and what to put in its place")
    def _(x):
        return x

    @ill("looks for x alone, which is everywhere")
    def _(x):
        return x, -x

    @ill("'y' is not in exp(x)")
    def _(x, y):
        return ei.exp(x), y

    @ill("no example fits: reshape")
    def _(x):
        return x.reshape(5, 7), x

    @ill("argument 'x' is annotated")
    def _(x: str):
        return -x, x

    @ill("takes *x")
    def _(*x):
        return x

    @ill("attribute 'axis' has no example")
    def _(x, *, axis):
        return ei.softmax(x, axis), x

    @ill("the guard wants 'y', which is no argument of the rule", guard=lambda y: None)
    def _(x):
        return -x, x

    @ill("puts 3 in its place, which is no tensor")
    def _(x):
        return -x, 3

    @ill("numerics is 'good'", numerics="good")
    def _(x):
        return -x, x

    @ill("'c' is not in", numerics="exact")
    def _(x: float, c: Number):
        return x * (c + 1), x

    @ill("has more than 200 parts")
    def _(x):
        y = x
        for _ in range(10):
            y = y * y
        return y, x


def test_names_are_taken_once():
    def define():
        @rewrite_rule("taken", numerics="exact")
        def _(x):
            return -x, x

    define()
    define()  # the same line: a file that is imported again

    with pytest.raises(ei.PassError, match="rule 'multiply-one' is defined already"):

        @rewrite_rule("multiply-one", numerics="exact")
        def _(x):
            return -x, x

    with pytest.raises(ei.PassError, match="rule 'taken' is defined already at .*test_by_example.py"):

        @rewrite_rule("taken", numerics="exact")
        def _(x):
            return x * 2, x


def test_the_pass_that_runs_rules_by_name():
    erfc_rule()
    pipeline = parse_pipeline("rewrite{rules=half-erfc|multiply-one}")
    assert pipeline == (Rewrite(("half-erfc", "multiply-one")),) and pipeline[0].numerics == "better"
    with pytest.raises(ei.ParseError, match="there is no rule 'half-erf'") as caught:
        parse_pipeline("rewrite{rules=half-erf}")
    assert caught.value.hint == "did you mean half-erfc?"
    with pytest.raises(ei.ParseError, match="rewrite: .*rules"):
        parse_pipeline("rewrite")

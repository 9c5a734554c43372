"""Every rule is what its label says, on graphs made from its pattern; and a wrong label is found out."""

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.passes import NUMERICS, RULES, Number, parse_pipeline, rewrite_rule
from euler_ir.passes.numerics import is_within, loosest
from euler_ir.passes.patterns import Anything, apply
from euler_ir.passes.rewriting import Rule, rewrite
from euler_ir.passes.rules import SIMPLIFY
from euler_ir.testing import check_rule
from euler_ir.testing.real_numbers import real_results
from euler_ir.testing.rule_check import RuleCheckFailure
from euler_ir.testing.rule_instances import rule_instances

OWN = [rule for rule in RULES.values() if rule.location is None or "/euler_ir/passes/" in rule.location.file]


@pytest.fixture(autouse=True)
def own_rules():
    known = dict(RULES)
    yield
    RULES.clear()
    RULES.update(known)


def test_all_rules_of_simplify_are_known_by_name_and_labelled():
    assert {rule.name for rule in SIMPLIFY} <= {rule.name for rule in OWN}
    assert {rule.numerics for rule in SIMPLIFY} == set(NUMERICS)


@pytest.mark.parametrize("rule", OWN, ids=lambda rule: rule.name)
def test_every_rule_is_what_its_label_says(rule):
    checked = check_rule(rule, instances=12)
    assert checked.instances >= 5 and (checked.changed == 0 or rule.numerics != "exact")


@pytest.mark.slow
@pytest.mark.parametrize("rule", OWN, ids=lambda rule: rule.name)
def test_every_rule_is_what_its_label_says_on_many_graphs(rule):
    for seed in range(1, 6):
        check_rule(rule, instances=60, seed=seed)


def test_instances_are_a_function_of_the_seed_and_differ():
    texts = [[str(before) for before, _ in rule_instances(RULES["add-negative"], 10, seed)] for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2] and len(set(texts[0])) > 5


def test_the_default_pipeline_applies_exact_and_better_rules_only():
    labels = {each.numerics for each in parse_pipeline("default") if each.name == "simplify"}
    assert labels == {"better"}
    assert {each.numerics for each in parse_pipeline("fast") if each.name == "simplify"} == {"approximate"}
    assert [label for label in NUMERICS if is_within(label, "better")] == ["exact", "better"]
    assert loosest([]) == "exact" and loosest(["better", "nan-unsafe", "reassociating"]) == "nan-unsafe"


WRONG = [
    ("exact", "is not exact, on special numbers", lambda x: (x - x, ei.zeros(x.shape, x.dtype))),
    ("exact", "is not exact", lambda x: (x + 0, x)),
    ("exact", "is not exact", lambda x: (x / 3, x * (1 / 3))),
    ("exact", "is not exact", lambda x: (ei.exp(x) * ei.exp(-x), x * 0 + 1)),
    ("better", "is not better", lambda x: (ei.erfc(x), 1 - ei.erf(x))),
    ("better", "is not better", lambda x: (ei.log_softmax(x, -1), ei.log(ei.softmax(x, -1)))),
    ("better", "is not better", lambda x: (ei.exp(x) + x, ei.exp(x))),
    ("better", "is not better", lambda x: (ei.sqrt(x * x), x)),
    ("better", "is not better", lambda x: (ei.gelu(x, "none"), ei.gelu(x, "tanh"))),
    ("reassociating", "is not reassociating, on random numbers", lambda x: (ei.sin(x) + 1, ei.sin(x))),
    ("reassociating", "changed no bit", lambda x: (-(-x), x)),
    ("nan-unsafe", "changed no bit", lambda x: (x * 1, x)),
    ("nan-unsafe", "is not nan-unsafe, on random numbers", lambda x: (ei.absolute(x) * x, x * x)),
    ("approximate", "is not approximate, on random numbers", lambda x: (ei.tanh(x), x)),
    ("approximate", "changed no bit", lambda x: (ei.maximum(x, x), x)),
]


@pytest.mark.parametrize(("label", "message", "function"), WRONG)
def test_a_wrong_label_is_found_out(label, message, function):
    def wrong(x: float):
        return function(x)

    rule = rewrite_rule("wrong", numerics=label)(wrong)
    with pytest.raises(RuleCheckFailure, match=message) as caught:
        check_rule(rule, 8)
    assert "graph @instance" in str(caught.value) or "no bit" in message


def test_a_right_rule_of_a_user():
    @rewrite_rule("tanh-of-exps", numerics="better")
    def _(x: float):
        up, down = ei.exp(x), ei.exp(-x)
        return (up - down) / (up + down), ei.tanh(x)

    assert str(check_rule("tanh-of-exps", 6)).startswith("tanh-of-exps is better: 6 graphs, 84 sets of inputs, bits ")
    with pytest.raises(ei.PassError, match="there is no rule 'tanh-of-exp'"):
        check_rule("tanh-of-exp")


def test_a_rule_that_nothing_is_known_to_match_needs_a_sample():
    never = Rule("never", "exact", "", apply("sin", Anything("x")), lambda m: m["x"], lambda m: "never")
    with pytest.raises(RuleCheckFailure, match="gives 0 graphs: say with `sample` how to make one"):
        check_rule(never)

    @rewrite_rule("guarded", numerics="exact", guard=lambda c: None if c > 1e9 else "it is small")
    def _(x: float, c: Number):
        return x * c, c * x

    with pytest.raises(RuleCheckFailure, match="'guarded' gives 0 graphs"):
        check_rule("guarded")


def test_real_numbers_keep_what_floats_lose():
    with ei.Graph() as graph:
        x = ei.input("x", (3,), ei.f32)
        ei.output(result=(1 - ei.erf(x)) * 0.1)
    points = np.array([0.5, 6, 9], np.float32)
    exact = [0.047950012218695346, 2.1519736712498913e-18, 4.137031746513810e-38]  # erfc(x) / 10, tables
    found = real_results(graph, {"x": points}, numbers=[0.1])
    assert [float(value) for value in found] == pytest.approx(exact, rel=1e-14)
    rounded = real_results(graph, {"x": points})
    assert [float(value) for value in rounded] == pytest.approx(
        np.array(exact) * float(np.float32(0.1)) * 10, rel=1e-14
    )


@pytest.mark.parametrize("gap", [0, 2, 5, 10])
def test_log_softmax_is_no_less_exact_than_the_log_of_softmax_where_that_is_near_1(gap):
    # Both lose digits there, since both round the sum: of one element either may be nearer, by luck; not of many.
    with ei.Graph() as graph:
        ei.output(y=ei.log(ei.softmax(ei.input("x", (4000, 64)), -1)))
    points = np.random.default_rng(0).standard_normal((4000, 64)).astype(np.float32)
    points[:, 0] = points.max(-1) + gap
    others = np.exp(points[:, 1:].astype(np.float64) - points[:, :1]).sum(-1)
    before, after = (
        np.abs(interpreter.run(each, {"x": points})[0]["y"][:, 0] / -np.log1p(others) - 1)
        for each in (graph, rewrite(graph, [RULES["log-softmax"]]))
    )
    assert after.mean() <= before.mean() * 1.02 and after.max() <= before.max() * 1.02
    assert gap < 5 or after.max() > 1e-6

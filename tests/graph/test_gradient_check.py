"""The gradient check passes what is right, finds what is wrong, and says which."""

import dataclasses
import json

import numpy as np
import pytest

import euler_ir as ei
from euler_ir import gradient_check, interpreter
from euler_ir.cli import main
from euler_ir.gradient_check import LIMIT, GradientError, check_gradients, check_operators, check_sample, report
from euler_ir.gradient_samples import SAMPLES, Sample, spaced
from euler_ir.ops.definition import OPS, define
from euler_ir.widen import in_f64
from models import gradient_check as models_check
from models.language_model import train_graph


def _right(op, dy):
    return (dy * (3 * op.operands[0] * op.operands[0] + 1),)


WRONG = {
    "everywhere": lambda op, dy: (dy * 3 * op.operands[0] * op.operands[0],),
    "by a little": lambda op, dy: (dy * (3.00002 * op.operands[0] * op.operands[0] + 1),),
    "in one element": lambda op, dy: (_right(op, dy)[0] * np.where(np.arange(12).reshape(3, 4) == 7, 1.0001, 1),),
    "not a number": lambda op, dy: (_right(op, dy)[0] * float("nan"),),
}
CUBIC = Sample("cubic", lambda x: x.graph.emit("cubic", (x,)), (spaced(3, 4),))


@pytest.fixture
def define_cubic():
    """Define the operator x^3 + x with a gradient rule of the test's own, for as long as the test runs."""

    def define_with(vjp):
        define(
            "cubic",
            "composite",
            lambda types, attributes: types,
            evaluate=lambda attributes, x: x * x * x + x,
            decompose=lambda op: (op.operands[0] * op.operands[0] * op.operands[0] + op.operands[0],),
            vjp=vjp,
            operand_names=("operand",),
        )

    yield define_with
    OPS.pop("cubic", None)


def test_a_right_gradient_passes(define_cubic):
    define_cubic(_right)
    row = check_sample(CUBIC)
    assert row.passes() and row.derivatives == 13
    assert max(row.compiled, row.interpreted) < 1e-11


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_gradient_is_found(define_cubic, fault):
    define_cubic(WRONG[fault])
    row = check_sample(CUBIC)
    assert not row.passes()
    assert not row.compiled <= LIMIT and not row.interpreted <= LIMIT


def test_the_direction_finds_what_no_tried_element_shows(define_cubic):
    define_cubic(WRONG["in one element"])
    with ei.Graph("big") as graph:
        x = ei.parameter("x", (3, 4), ei.initializers.Zeros(), ei.f64)
        ei.output(loss=ei.sum(graph.emit("cubic", (x,))))
    (row,) = check_gradients(graph, {"x": spaced(3, 4)}, {}, elements=0)
    assert row.derivatives == 1 and not row.passes()


def test_an_operator_without_a_sample_is_named(define_cubic):
    define_cubic(_right)
    with pytest.raises(ei.GraphError, match="no sample: cubic"):
        check_operators()


def test_samples_stand_where_derivatives_are_smooth():
    """The differences know their own error, and at a tie or a kink it is large."""
    rows = check_operators()
    assert [row.name for row in rows] == [sample.name for sample in SAMPLES]
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.passes() and row.derivatives and row.uncertainty < 1e-8, row


def test_a_kink_shows_as_uncertainty():
    row = check_sample(Sample("kink", lambda x: ei.absolute(x), (np.array([0.01, 2.0]),)))
    assert row.uncertainty > LIMIT


@pytest.mark.parametrize("model", models_check.MODELS)
def test_every_tensor_of_the_models_is_checked(model):
    config = models_check.MODELS[model]
    rows = models_check.check_model(config, elements=1)
    assert [row.name.split(" ")[0] for row in rows] == [name for name, _ in config.build().named_parameters()]
    assert ("tied head" in rows[0].name) == (model == "GPT-2")
    for row in rows:
        assert row.passes() and row.derivatives == 2, row


def test_a_gradient_that_vanishes_is_no_error():
    with ei.Graph("flat") as graph:
        x, unused = (ei.parameter(name, (3,), ei.initializers.Normal(1.0)) for name in ("x", "unused"))
        nothing = ei.parameter("nothing", (0,), ei.initializers.Zeros())
        ei.output(loss=ei.sum(ei.softmax(x)) + ei.sum(nothing))
    rows = {row.name: row for row in check_gradients(graph, {}, {})}
    assert rows["x"].passes() and rows["unused"] == GradientError("unused", 4, 0, 0, 0)
    assert rows["nothing"].derivatives == 0 and rows["nothing"].passes()


def test_state_of_the_user_is_left_alone():
    with ei.Graph("half") as graph:
        x = ei.parameter("x", (3,), ei.initializers.Normal(1.0), ei.f16)
        ei.output(value=ei.sum(ei.exp(x) * ei.input("y", (3,)), 0))
    state = ei.initial_state(graph)
    before = state["x"].copy()
    (row,) = check_gradients(graph, state, {"y": [1, 2, 3]}, loss="value")
    assert row.passes()
    np.testing.assert_array_equal(state["x"], before)
    with pytest.raises(ei.ExecutionError, match="'y' is missing"):
        check_gradients(graph, state, {}, loss="value")


@pytest.mark.parametrize(("loss", "message"), [("cost", "has no output 'cost'"), ("vector", "0-d float output")])
def test_what_is_no_loss_is_refused(loss, message):
    with ei.Graph("vector") as graph:
        ei.output(vector=ei.parameter("x", (3,), ei.initializers.Zeros()) * 2)
    with pytest.raises(ei.GraphError, match=message):
        check_gradients(graph, {}, {}, loss=loss)


# -- in f64 ------------------------------------------------------------------------------------------------------------


def test_a_whole_training_step_in_f64():
    graph = train_graph(models_check.MODELS["GPT-2"], 2, 8)
    wide = in_f64(graph)
    ei.verify.verify(wide)
    assert {value.dtype for op in wide.ops for value in op.results if value.dtype.is_float} == {ei.f64}
    assert [op.name for op in wide.ops] == [op.name for op in graph.ops]
    assert [op.location for op in wide.ops] == [op.location for op in graph.ops]
    assert list(wide.outputs) == list(graph.outputs) and list(wide.updates) == list(graph.updates)


def test_numbers_stay_as_they_were():
    with ei.Graph("numbers") as graph:
        x = ei.input("x", (2,), ei.bf16)
        ei.output(y=x * ei.constant(0.1, ei.f16).cast(ei.bf16), rows=ei.argmax(x, 0))
    outputs, _ = interpreter.run(in_f64(graph), {"x": np.array([3.0, 1.0])})
    np.testing.assert_array_equal(outputs["y"], np.array([3.0, 1.0]) * np.float64(np.float16(0.1)))
    assert outputs["rows"].dtype == np.int64


# -- the table and the exit code ---------------------------------------------------------------------------------------

GOOD = GradientError("h.0.weight", 17, 1e-11, 2e-11, 3e-11)
BAD = dataclasses.replace(GOOD, name="[wte]", interpreted=2e-6)


def test_the_table_says_what_fails(capsys):
    assert not report("tensor", [GOOD, BAD])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["tensor", "derivatives", "compiled", "interpreter", "uncertainty"]
    assert printed[1].split() == ["h.0.weight", "17", "1.0e-11", "2.0e-11", "3.0e-11"]
    assert printed[2].split() == ["[wte]", "17", "1.0e-11", "2.0e-06", "3.0e-11", "FAILS"]
    assert printed[3] == "2 tensors, 34 derivatives: largest relative error 2.0e-06, 1 over 1e-06"


@pytest.mark.parametrize(("row", "code"), [(GOOD, 0), (BAD, 1), (dataclasses.replace(GOOD, compiled=float("nan")), 1)])
def test_exit_codes(monkeypatch, capsys, row, code):
    monkeypatch.setattr(gradient_check, "check_operators", lambda: [GOOD, row])
    assert main(["check"]) == code
    capsys.readouterr()
    assert main(["check", "--json"]) == code
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [each["passes"] for each in answer["operators"]] == [True, code == 0]
    monkeypatch.setattr(models_check, "check_operators", lambda: [GOOD])
    monkeypatch.setattr(models_check, "check_model", lambda config: [row])
    assert models_check.main() == code

"""`make check-cuda`: what it measures is right, what is wrong is said, and its exit code says so too."""

import json
from dataclasses import replace

import numpy as np
import pytest

import euler_ir as ei
from cuda_check import __main__ as check
from cuda_check import accuracy, faults, kernels, roofline
from cuda_check.tables import tables
from cuda_check.zoo import ZOO
from euler_ir.errors import LoweringError
from euler_ir.gradient_samples import SAMPLES


def kernel(name="attention_f32", **numbers):
    record = dict.fromkeys(("launches", "blocks", "threads", "registers", "shared", "resident", "tensor_cores"), 1)
    return {"name": name, **record, "spilled": 0, "occupancy": 0.5, "moved": 300, "least": 200, **numbers}


def test_the_models_are_of_both_kinds_and_steps():
    assert {model.passes for model in ZOO.values()} == {"cuda", "mixed-precision,cuda"}
    for what in ("train", "prefill", "decode"):
        assert any(what in name for name in ZOO)


@pytest.mark.usefixtures("gpu_compiler")
def test_a_model_and_random_graphs_are_compiled():
    found = kernels.check_models({"mlp": ZOO["mlp"]}, ("sm_80",)) + kernels.check_random_graphs(2, ("sm_80",))
    assert [each["model"] for each in found] == ["mlp", "2 random graphs"]
    assert found[0]["launches"] > len(found[0]["kernels"]) >= 4 and not found[0]["wrong"] + found[1]["wrong"]
    assert all(each["registers"] > 0 for each in found[0]["kernels"])


def test_the_least_time_of_a_product_is_that_of_its_bytes_or_of_its_operations():
    def roof_of(rows):
        with ei.Graph("product") as graph:
            ei.output(y=ei.input("x", (rows, 1024), ei.bf16) @ ei.input("w", (1024, 1024), ei.bf16))
        (roof,) = roofline.roofs(roofline.lower_for_cuda(graph).plan)
        return roof

    small, large = roof_of(8), roof_of(8192)
    assert small.by_memory and small.least == 2 * (2 * 8 * 1024 + 1024**2)
    assert small.seconds == pytest.approx(small.least / 3.35e12)
    assert not large.by_memory and large.flops == 2 * 8192 * 1024**2
    assert large.seconds == pytest.approx(large.flops / 989.5e12)


def test_all_calls_of_a_step_are_in_the_table_of_least_times():
    (found,) = roofline.check_models({"mlp": ZOO["mlp"]})
    (compiled,) = kernels.check_models({"mlp": ZOO["mlp"]}, ("sm_90",))
    assert sum(roof["calls"] for roof in found["roofs"]) == compiled["launches"]
    (table,) = tables({"roofline": [found]})
    assert table.rows[-1][:2] == ("all", str(compiled["launches"]))


def test_what_does_not_compile_is_wrong(monkeypatch):
    def refuse(plan, architecture):
        raise LoweringError("NVRTC refuses it")

    monkeypatch.setattr(kernels, "resources", refuse)
    (found,) = kernels.check_models({"mlp": ZOO["mlp"]}, ("sm_90",))
    assert found["wrong"] == ["mlp, sm_90: NVRTC refuses it"]


@pytest.mark.usefixtures("gpu_compiler")
def test_attention_that_spills_is_wrong_and_a_kernel_too_large(monkeypatch):
    resources = kernels.resources

    def spoiled(plan, architecture):
        found = resources(plan, architecture)
        first, second, *others = found.kernels
        first = replace(first, name="attention_x", spilled=16)
        return replace(found, kernels=(first, replace(second, resident=0), *others))

    monkeypatch.setattr(kernels, "resources", spoiled)
    (found,) = kernels.check_models({"mlp": ZOO["mlp"]}, ("sm_90",))
    assert len(found["wrong"]) == 2
    assert "cannot be launched on sm_90" in found["wrong"][0] and "attention_x spills 16 bytes" in found["wrong"][1]


@pytest.mark.parametrize(
    ("got", "exact", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([np.nan, 1.0], [1.0, 1.0], np.inf),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_errors_by_hand(got, exact, error):
    assert accuracy.error_of(np.array(got), np.array(exact)) == error


def test_an_operator_that_is_wrong_is_found(monkeypatch):
    (sample,) = (each for each in SAMPLES if each.name == "exp")
    (right,) = accuracy._check_samples([sample], "f32", "reference")
    assert right.name == "exp" and 0 < right.error < 1e-6 and right.wrong is None
    run = accuracy.interpreter.run

    def shifted(graph, leaves):
        outputs, updates = run(graph, leaves)
        return {name: array * 1.001 for name, array in outputs.items()}, updates

    monkeypatch.setattr(accuracy.interpreter, "run", shifted)
    (wrong,) = accuracy._check_samples([sample], "f32", "reference")
    assert wrong.wrong == "exp in f32 is off by 1.0e-03, and 2e-05 is allowed"


@pytest.mark.slow
def test_operators_and_models_hold_their_tolerance_on_the_reference():
    assert not [each.wrong for each in accuracy.check_operators("reference") if each.wrong]
    assert accuracy._gradient_error(accuracy.SMALL_MODELS["GPT-2"], "cuda", "reference") < 1e-5


def test_survivors_are_wrong(monkeypatch):
    outcomes = [{"fault": "a", "imitates": "A.", "killed_by": "t"}, {"fault": "b", "imitates": "B.", "killed_by": None}]

    class Ran:
        stdout, stderr = json.dumps(outcomes), ""

    monkeypatch.setattr(faults.subprocess, "run", lambda *arguments, **options: Ran)
    assert [each["wrong"] for each in faults.check_faults()] == [None, "no test finds the fault b"]
    Ran.stdout, Ran.stderr = "", "a test fails without any fault"
    with pytest.raises(RuntimeError, match="could not be planted"):
        faults.check_faults()


RECORD = {
    "kernels": [{"model": "m", "architecture": "sm_90", "launches": 3, "kernels": [kernel()], "wrong": []}],
    "operators": [accuracy.Accuracy("exp", "f32", 1e-7, 2e-5).record()],
    "models": [accuracy.Accuracy("gradients of GPT-2", "bf16", 0.5, 8e-2).record()],
    "faults": [{"fault": "b", "imitates": "B.", "killed_by": None, "wrong": "no test finds the fault b"}],
}


def test_all_that_is_wrong_is_said_once():
    assert check.wrong_of(RECORD) == [
        "gradients of GPT-2 in bf16 is off by 5.0e-01, and 8e-02 is allowed",
        "no test finds the fault b",
    ]


def test_tables_by_hand():
    models, attention, traffic, operators, gradients, faults_ = tables(RECORD)
    assert models.rows == (("m", "sm_90", "3", "1", "1", "0", "0.0", "1", "1", "0.0003", "1.50"),)
    assert attention.rows == (("attention_f32", "sm_90", "1", "1", "0", "0.0", "1", "50 %", "1"),)
    assert traffic.rows == (("attention_f32", "m", "1", "0.0003", "0.0002", "1.50"),)
    assert operators.rows == (("exp", "f32", "1.0e-07", "2e-05"),) and gradients.rows[0][2] == "5.0e-01"
    assert faults_.title == "0 of 1 seeded faults found" and faults_.rows[0][2] == "SURVIVES"


@pytest.mark.parametrize(("wrong", "code"), [([], 0), (["it spills"], 1)])
def test_the_exit_code_says_whether_anything_is_wrong(wrong, code, monkeypatch, capsys):
    record = [{**RECORD["kernels"][0], "wrong": wrong}]
    monkeypatch.setattr(check, "_check", lambda part, options: record)
    assert check.main(["--only", "kernels", "--json"]) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["wrong"] == wrong and (wrong or ["nothing is wrong"])[0] in err
    assert check.main(["--only", "kernels"]) == code
    assert "attention_f32" in capsys.readouterr().out
    assert check.main(["--only", "kernels", "--markdown"]) == code
    assert "| attention_f32 | sm_90 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "kernels,speed"], "there is no part 'speed': choose of kernels, roofline, operators, models"),
        (["--models", "gpt-5"], "there is no model 'gpt-5'"),
        (["--arch", "sm_42"], "the limits of 'sm_42' are not known"),
        (["--random", "0"], "must be at least 1, not 0"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message, capsys):
    with pytest.raises(SystemExit):
        check.main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("name", "architecture"), [("nano train bf16", "sm_90"), ("nano decode", "sm_80")])
@pytest.mark.usefixtures("gpu_compiler")
def test_models_compile_within_the_limits(name, architecture):
    (found,) = kernels.check_models({name: ZOO[name]}, (architecture,))
    assert found["wrong"] == []
    tensor_cores = [each["name"] for each in found["kernels"] if each["tensor_cores"]]
    assert bool(tensor_cores) == ("bf16" in name) and all("flash" in each for each in tensor_cores)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_every_model_compiles_within_the_limits(name):
    found = kernels.check_models({name: ZOO[name]}, ("sm_80", "sm_86", "sm_90"))
    assert [text for each in found for text in each["wrong"]] == []


@pytest.mark.slow
def test_random_graphs_compile_within_the_limits():
    assert [text for each in kernels.check_random_graphs(60, ("sm_80", "sm_90")) for text in each["wrong"]] == []

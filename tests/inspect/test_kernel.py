"""``euler-ir kernel``: kernels listed, shown at each level, and replaced: what fits runs, the rest is explained."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import euler_ir as ei
from euler_ir.cli import main
from euler_ir.compiler import compile, lower
from euler_ir.errors import LoweringError, VerifyError
from euler_ir.inspect.dump import dump
from euler_ir.inspect.kernel import EMIT, compare_substituted, kernel_list, kernel_text
from euler_ir.inspect.program_file import parse_program
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.inspect.run import run_program
from euler_ir.loops.parser import parse_kernel
from euler_ir.plan.kernels import distinct_kernels, find_kernel, with_kernels
from euler_ir.state import initial_state


def step():
    """Two layers alike, so that one kernel has two launches, and an update in place."""
    with ei.Graph("step") as graph:
        x = ei.input("x", (4, 32))
        scale = ei.parameter("scale", (4, 32), ei.initializers.Normal(1.0))
        first = ei.softmax(x)
        x = ei.softmax(ei.cumsum(first, 0))
        graph.set_update(scale, scale * 0.5 + ei.cumsum(x, 1))
        ei.output(first=first, y=x, picked=ei.take(x, ei.input("rows", (3,), "i64"), 0))
    return graph


SOFTMAX = "0"
"""The number of the kernel of the layers, which has two launches."""


def kernel(number, *edits):
    text = kernel_text(step(), number, "loops")
    for old, new in edits:
        assert old in text, text
        text = text.replace(old, new)
    return parse_kernel(text)


def test_the_kernels_of_a_step():
    listed = kernel_list(step())
    assert [each.number for each in listed] == list(range(len(listed)))
    assert len({each.name for each in listed}) == len(listed)
    assert len(listed[0].launches) == 2
    assert sum(len(each.launches) for each in listed) == len(lower(step()).plan.kernels())


def test_kernels_of_one_name_are_numbered():
    with ei.Graph("alike") as graph:
        ei.output(a=ei.exp(ei.input("x", (4,))).sum(), b=ei.exp(ei.exp(ei.input("y", (5, 5))).sum(1)).sum())
    names = [each.name for each in kernel_list(graph)]
    assert len(set(names)) == len(names)
    for each in kernel_list(graph):
        assert find_kernel(lower(graph).plan, each.name).number == each.number


@pytest.mark.parametrize("level", ["graph", "optimized", "fused"])
@pytest.mark.parametrize("emit", EMIT)
def test_a_kernel_at_every_level(level, emit):
    text = kernel_text(parse_program(dump(step(), level)), SOFTMAX, emit)
    marks = {"loops": "eir 1\nkernel @", "llvm": "define void @nest_", "asm": "nest_"}
    marks |= {"cuda": 'extern "C" __global__', "ptx": ".visible .entry", "sass": "EXIT ;"}
    assert marks[emit] in text
    if emit == "loops":
        assert kernel_text((parse_kernel(text),), "0", emit) == text


def run(capsys, *arguments):
    code = main(["kernel", *map(str, arguments)])
    return code, capsys.readouterr()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "step.eir"
    path.write_text(dump(step(), "graph"))
    return path


def test_the_command(file, tmp_path, capsys):
    code, printed = run(capsys, file, "--json")
    listed = json.loads(printed.out)
    assert code == 0 and listed[0]["launches"] == 2 and listed[0]["nests"][0].startswith("nest (input %b0: f32[128]")
    name = listed[0]["name"]
    width = max(len(each["name"]) for each in listed)
    assert run(capsys, file)[1].out.splitlines()[1] == f"  0  {name:{width}}  2 launches"
    assert run(capsys, file, name)[1].out == run(capsys, file, "0")[1].out
    out = tmp_path / "kernel.eir"
    assert run(capsys, file, name, "-o", out)[0] == 0
    code, printed = run(capsys, file, "--substitute", f"{name}={out}")
    assert code == 0 and printed.out.endswith("the results agree\n") and "ms a call" in printed.out
    out.write_text(out.read_text().replace("%v1: f32 = load %b0[", "%v1: f32 = load %b0[0 + ", 1))
    code, printed = run(capsys, file, "--substitute", f"{name}={out}", "--json")
    record = json.loads(printed.out)
    assert code == 0 and record["agrees"]
    assert {each["name"] for each in record["results"]} == {"first", "y", "picked", "scale"}


def test_arguments_that_make_no_sense(file, tmp_path, capsys):
    name = kernel_list(step())[0].name
    code, printed = run(capsys, file, name + "x")
    assert code == 2 and f"'step' has no kernel '{name}x'" in printed.err and f"did you mean {name}?" in printed.err
    assert "its kernels are 0 " in run(capsys, file, "77")[1].err
    assert "'sum' is not K=FILE" in run(capsys, file, "--substitute", "sum")[1].err
    assert "there is no file 'absent.eir'" in run(capsys, file, "--substitute", "0=absent.eir")[1].err
    (tmp_path / "wrong.eir").write_text("eir 1\nkernel @k {\n  nest (\n}\n")
    assert "wrong.eir:4:1: expected" in run(capsys, file, "--substitute", f"0={tmp_path / 'wrong.eir'}")[1].err
    (tmp_path / "wrong.ll").write_text("define void @f() {\n")
    assert "the LLVM IR is not valid" in run(capsys, file, "--substitute", f"0={tmp_path / 'wrong.ll'}")[1].err
    (tmp_path / "other.ll").write_text("define void @f() {\n  ret void\n}\n")
    message = run(capsys, file, "--substitute", f"0={tmp_path / 'other.ll'}")[1].err
    assert "defines no function of this kernel" in message and "it defines f" in message and "nest_" in message


# -- replaced kernels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_kernel_is_replaced_in_all_its_launches(backend):
    graph = step()
    inputs, state = random_inputs(graph), initial_state(graph)
    plain = compile(graph, backend)
    largest = re.search(r"max (%\w+): f32", kernel_text(graph, SOFTMAX, "loops"))[1]
    other = kernel(SOFTMAX, (f"max {largest}: f32", f"min {largest}: f32"))  # shifts by the least: the same quotients
    wanted, got = plain(state.copy(), **inputs), plain.with_kernels({SOFTMAX: other})(state.copy(), **inputs)
    np.testing.assert_allclose(got["y"], wanted["y"], rtol=1e-5)
    halved = kernel(SOFTMAX, ("} sum ", "} prod "))
    got = plain.with_kernels({SOFTMAX: halved})(state.copy(), **inputs)
    assert not np.allclose(got["y"], wanted["y"])
    again = plain(state.copy(), **inputs)
    assert np.array_equal(again["y"], wanted["y"]), "the executable itself stays as it was"


def test_a_comparison_says_what_differs():
    same = compare_substituted(step(), {SOFTMAX: kernel(SOFTMAX)})
    assert same.agrees and all(each.same_bits for each in same.differences)
    wrong = compare_substituted(step(), {SOFTMAX: kernel(SOFTMAX, ("} sum ", "} prod "))})
    assert not wrong.agrees
    assert {each.name for each in wrong.differences if not each.agrees} == {"first", "y", "picked", "scale"}


def test_machine_code_is_replaced():
    text = kernel_text(step(), SOFTMAX, "llvm")
    same = compare_substituted(step(), {SOFTMAX: text})
    assert same.agrees and all(each.same_bits for each in same.differences)
    assert "fadd" in text
    wrong = compare_substituted(step(), {SOFTMAX: text.replace("fadd", "fsub")})
    assert not wrong.agrees


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([("input %b0: f32[128]", "input %b0: f32[129]")], "parameter 0 is input %b0: f32[128], in the new one input"),
        ([("input %b0", "input %c: f32[1], input %b0")], "it has 2 parameters, the new one 3"),
    ],
)
def test_other_parameters_are_refused(edits, message):
    with pytest.raises(LoweringError, match=re.escape(message)):
        with_kernels(lower(step()).plan, {SOFTMAX: kernel(SOFTMAX, *edits)})


def test_what_does_not_fit_is_refused():
    plan = lower(step()).plan
    whole = kernel(SOFTMAX)
    twice = type(whole)("twice", whole.nests * 2)
    with pytest.raises(LoweringError, match="it has 1 nest, the new one 2"):
        with_kernels(plan, {SOFTMAX: twice})
    takes = next(each for each in distinct_kernels(plan) if "check" in str(each.kernel))
    with pytest.raises(LoweringError, match="it reports the faults 1, the new one also 2"):
        with_kernels(plan, {takes.name: parse_kernel(str(takes.kernel).replace("fault 1", "fault 2"))})
    with pytest.raises(VerifyError, match="L09"):
        with_kernels(plan, {SOFTMAX: replace(whole, nests=(replace(whole.nests[0], body=()),))})


def test_what_is_overwritten_in_place_is_read_before():
    """The update of ``scale`` is written over it: an edited kernel may not read it at another place."""
    plan = lower(step()).plan
    update = next(each for each in distinct_kernels(plan) if any(each.launches[0].shared))
    text = str(update.kernel)
    nest, shared = update.kernel.nests[0], update.launches[0].shared[0]
    source = nest.parameters[min(shared)]
    turned = re.sub(rf"load %{source.name}\[(\w+)\]", rf"load %{source.name}[-\1 + 127]", text)
    assert turned != text
    with pytest.raises(LoweringError, match=f"in the memory of %{source.name}, which the new one reads"):
        with_kernels(plan, {update.name: parse_kernel(turned)})


def test_run_takes_substitutes(file, tmp_path, capsys):
    wrong = tmp_path / "wrong.eir"
    wrong.write_text(kernel_text(step(), SOFTMAX, "loops").replace("} sum ", "} prod "))
    arguments = ["run", str(file), "--backend", "cpu", "--json"]
    plain, other = (
        json.loads((main(more), capsys.readouterr().out)[1])
        for more in (arguments, [*arguments, "--substitute", f"0={wrong}"])
    )
    assert plain["results"][0]["first"] != other["results"][0]["first"]
    with pytest.raises(ValueError, match="kernels are replaced in a plan"):
        run_program(step(), "interpreter", kernels={"0": kernel(SOFTMAX)})

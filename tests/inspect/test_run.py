"""``euler-ir run``: programs of every level on every backend, what is given and what is drawn, and what is refused."""

import json

import ml_dtypes
import numpy as np
import pytest

import euler_ir as ei
from euler_ir import interpreter
from euler_ir.cli import main
from euler_ir.dtypes import DTYPES
from euler_ir.errors import ExecutionError, ParseError
from euler_ir.inspect.dump import dump
from euler_ir.inspect.program_file import parse_program
from euler_ir.inspect.random_inputs import random_inputs
from euler_ir.inspect.run import run_program
from euler_ir.inspect.tensor_file import read_tensors, write_tensors
from euler_ir.state import initial_state

ON_HOST = ("interpreter", "reference", "cpu")
ANYWHERE = (*ON_HOST, "cuda-emulator")

SCALE = """\
eir 1
kernel @scale {
  nest (input %x: f32[12], output %y: f32[12], output %s: f32[4]) for i in 4 {
    loop j in 3 vector {
      %a: f32 = load %x[3 i + j]
      %b: f32 = multiply %a, %a
      store %y[3 i + j] = %b
    } sum %c: f32 = %b
    store %s[i] = %c
  }
}
"""


def train_graph():
    with ei.Graph("train") as graph:
        x = ei.input("x", (4, 3))
        w = ei.parameter("w", (3, 2), ei.initializers.Normal(0.5))
        loss = ((x @ w) ** 2).mean()
        graph.set_update(w, w - 0.1 * ei.gradient(loss, [w])[0])
        ei.output(loss=loss, w=w * 2.0)
    return graph


@pytest.mark.parametrize("stage", ["graph", "optimized", "fused"])
@pytest.mark.parametrize("backend", ANYWHERE)
def test_every_level_gives_the_same(stage, backend):
    graph = train_graph()
    program = parse_program(dump(graph, stage))
    finished = run_program(program, backend, seed=5)
    inputs, state = random_inputs(graph, 5), initial_state(graph, seed=5)
    outputs, updates = interpreter.run(graph, {**inputs, **state})
    assert (finished.drawn, finished.begun) == (("x",), ("w",))
    assert [(result.role, result.name) for result in finished.results] == [
        ("output", "loss"), ("output", "w"), ("update", "w")
    ]  # fmt: skip
    for result in finished.results:
        wanted = (outputs if result.role == "output" else updates)[result.name]
        np.testing.assert_allclose(result.array, wanted, rtol=1e-5)


@pytest.mark.parametrize("backend", ON_HOST)
def test_what_is_given_is_used(backend):
    graph = train_graph()
    x, w = np.full((4, 3), 2, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    finished = run_program(graph, backend, {"x": x}, {"w": w, "other": w})
    assert (finished.drawn, finished.begun, finished.unused) == ((), (), ("other",))
    (loss,) = (result.array for result in finished.results if result.name == "loss")
    np.testing.assert_allclose(loss, ((x @ w) ** 2).mean(), rtol=1e-6)
    assert np.array_equal(w, np.arange(6).reshape(3, 2)), "what is given stays as it is"


@pytest.mark.parametrize("backend", ON_HOST)
def test_state_may_come_with_the_inputs(backend):
    graph = train_graph()
    x, w = np.full((4, 3), 2, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    together, apart = run_program(graph, backend, {"x": x, "w": w}), run_program(graph, backend, {"x": x}, {"w": w})
    assert (together.drawn, together.begun, together.unused) == ((), (), ())
    for one, other in zip(together.results, apart.results, strict=True):
        assert one.array.tobytes() == other.array.tobytes()


@pytest.mark.parametrize("backend", ANYWHERE)
def test_a_kernel(backend):
    x = np.arange(12, dtype=np.float32)
    finished = run_program(parse_program(SCALE), backend, {"x": x})
    y, s = (result.array for result in finished.results)
    assert np.array_equal(y, x * x) and np.array_equal(s, (x * x).reshape(4, 3).sum(1))
    edited = SCALE.replace("multiply %a, %a", "subtract %a, %a").replace("sum %c", "max %c")
    y, s = (result.array for result in run_program(parse_program(edited), backend, {"x": x}).results)
    assert not y.any() and not s.any()


def test_kernels_and_nests_have_buffers_of_their_own():
    one = SCALE.removeprefix("eir 1\n").removeprefix("kernel @scale {\n").removesuffix("}\n")
    text = f"eir 1\nkernel @first {{\n{one}{one}}}\nkernel @second {{\n{one}}}\n"
    arrays = {"first.0.x": 1, "first.1.x": 2, "second.x": 3}
    given = {name: np.full(12, number, np.float32) for name, number in arrays.items()}
    for backend in ON_HOST:
        finished = run_program(parse_program(text), backend, given)
        assert {result.name: result.array[0] for result in finished.results if result.name.endswith("y")} == {
            "first.0.y": 1, "first.1.y": 4, "second.y": 9
        }  # fmt: skip


def test_drawn_indices_stay_in_range_and_given_ones_are_checked():
    text = """\
eir 1
kernel @gather {
  nest (input %table: f32[6], input %rows: i64[4], output %y: f32[4]) for i in 4 vector {
    %r: i64 = load %rows[i]
    %row = check %r in 6 fault 1
    %v: f32 = load %table[%row]
    store %y[i] = %v
  }
}
"""
    for backend in ANYWHERE:
        run_program(parse_program(text), backend, seed=1)
        with pytest.raises(ExecutionError, match=r"outside of 0\.\.5"):
            run_program(parse_program(text), backend, {"rows": np.array([0, 1, 6, 2])})


@pytest.mark.parametrize("extents", [(0, 3), (4, 0)])
def test_loops_that_never_run(extents):
    rows, columns = extents
    text = (
        SCALE.replace("for i in 4", f"for i in {rows}").replace("loop j in 3", f"loop j in {columns}")
        .replace("f32[12]", f"f32[{rows * columns}]").replace("f32[4]", f"f32[{rows}]").replace("3 i", f"{columns} i")
    )  # fmt: skip
    for backend in ON_HOST:
        y, s = (result.array for result in run_program(parse_program(text), backend).results)
        assert y.shape == (0,) and s.shape == (rows,) and not s.any()


# -- files of arrays ---------------------------------------------------------------------------------------------------


def test_every_type_is_kept_bit_for_bit(tmp_path):
    number = np.random.default_rng(0)
    arrays = {}
    for dtype in DTYPES.values():
        bits = number.integers(0, 2 if dtype.kind == "bool" else 256, 24 * dtype.itemsize).astype(np.uint8)
        arrays[dtype.name] = bits.view(dtype.numpy).reshape(2, 12)
    arrays |= {"scalar": np.array(1.5, ml_dtypes.bfloat16), "empty": np.zeros((0, 3), np.int8)}
    arrays["turned"] = arrays["f32"].T
    write_tensors(tmp_path / "all.safetensors", arrays)
    again = read_tensors(tmp_path / "all.safetensors")
    for name, array in arrays.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape)
        assert again[name].tobytes() == array.tobytes()


def run(capsys, *arguments):
    code = main(["run", *map(str, arguments)])
    printed = capsys.readouterr()
    assert (code, printed.err) == (0, "")
    return printed.out


def test_a_run_goes_on_from_the_file_of_another(tmp_path, capsys):
    graph, out = tmp_path / "step.eir", tmp_path / "out.safetensors"
    graph.write_text(dump(train_graph(), "graph"))
    run(capsys, graph, "--backend", "cpu", "-o", out)
    first = read_tensors(out)
    assert set(first) == {"loss", "output.w", "w"}
    run(capsys, graph, "--backend", "cpu", "--state", out, "-o", out)
    assert read_tensors(out)["loss"] < first["loss"]


def test_what_is_printed(tmp_path, capsys):
    file = tmp_path / "scale.eir"
    file.write_text(SCALE)
    write_tensors(tmp_path / "in.safetensors", {"x": np.array([np.nan, np.inf, *range(10)], np.float32)})
    text = run(capsys, file, "--inputs", tmp_path / "in.safetensors")
    assert text == (
        "kernel scale on interpreter, seed 0\n"
        "        name  type     min  max  mean  NaN  first\n"
        "output  y     f32[12]  0    inf  inf   1    nan, inf, 0, 1\n"
        "output  s     f32[4]   14   194  95    1    nan, 14, 77, 194\n"
    )
    record = json.loads(run(capsys, file, "--json"))
    assert record["drawn"] == ["x"] and [each["type"] for each in record["results"]] == ["f32[12]", "f32[4]"]


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusal(capsys, *arguments):
    try:
        code = main(["run", *map(str, arguments)])
    except SystemExit as error:  # argparse
        code = error.code
    printed = capsys.readouterr()
    assert code == 2 and printed.out == "" and "Traceback" not in printed.err
    return printed.err


@pytest.fixture
def files(tmp_path):
    (tmp_path / "step.eir").write_text(dump(train_graph(), "graph"))
    (tmp_path / "scale.eir").write_text(SCALE)
    (tmp_path / "broken.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    for name, array in {
        "name": {"xx": np.zeros((4, 3), np.float32)},
        "shape": {"x": np.zeros((3, 4), np.float32)},
        "dtype": {"x": np.zeros((4, 3), np.float64)},
        "flat": {"x": np.zeros(11, np.float32)},
        "state": {"w": np.zeros((3, 3), np.float32)},
    }.items():
        write_tensors(tmp_path / f"{name}.safetensors", array)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "options", "parts"),
    [
        ("step", ["--inputs", "name"], ["'train' has no input 'xx'", "did you mean x?"]),
        ("step", ["--inputs", "shape"], ["input 'x' is f32[4, 3] in the graph but float32[3, 4] here"]),
        ("step", ["--inputs", "dtype"], ["input 'x' is f32[4, 3] in the graph but float64[4, 3] here"]),
        ("step", ["--inputs", "broken"], ["broken.safetensors' is no safetensors file, or is damaged"]),
        ("step", ["--inputs", "empty"], ["empty.safetensors' is no safetensors file, or is damaged"]),
        ("step", ["--inputs", "missing"], ["No such file", "missing.safetensors"]),
        ("step", ["--state", "state"], ["parameter 'w' is f32[3, 2] in the graph but float32[3, 3] here"]),
        ("scale", ["--inputs", "name"], ["the kernels read no buffer 'xx'", "did you mean x?"]),
        ("scale", ["--inputs", "flat"], ["buffer 'x' is f32[12], not float32[11]"]),
    ],
)
def test_arrays_that_do_not_fit(files, capsys, program, options, parts):
    options = [options[0], files / f"{options[1]}.safetensors"]
    for backend in ON_HOST:
        message = refusal(capsys, files / f"{program}.eir", *options, "--backend", backend)
        for part in parts:
            assert part in message


def test_arguments_that_make_no_sense(files, capsys):
    assert "unknown backend 'gpu'" in refusal(capsys, files / "step.eir", "--backend", "gpu")
    assert "unknown backend 'cuda:'" in refusal(capsys, files / "step.eir", "--backend", "cuda:")
    assert "must be 0 or more, not -1" in refusal(capsys, files / "step.eir", "--seed", "-1")
    assert "--substitute goes with" in refusal(capsys, files / "step.eir", "--substitute", "sum=sum.eir")
    assert "there is no file 'absent.eir'" in refusal(capsys, "absent.eir")
    beside = refusal(capsys, files / "step.eir", "-o", files / "step.safetensors")
    assert "choose another name" in beside and not (files / "step.safetensors").exists()
    (files / "odd.eir").write_text("eir 1\nplan @p {\n}\n")
    assert "odd.eir:2:1: expected a level: graph, fused, kernel" in refusal(capsys, files / "odd.eir")
    (files / "odd.eir").write_text("eir 1\ngrph @p {\n}\n")
    assert "did you mean graph?" in refusal(capsys, files / "odd.eir")
    (files / "odd.eir").write_bytes(b"\xff\xfe\0")
    assert "is not text" in refusal(capsys, files / "odd.eir")


@pytest.mark.parametrize("backend", ANYWHERE)
def test_what_no_machine_holds_is_refused(backend):
    large = SCALE.replace("f32[12]", f"f32[{10**17}]").replace("i in 4", f"i in {10**17 // 3}")
    with pytest.raises((ExecutionError, ParseError)):
        run_program(parse_program(large), backend)
    text = 'eir 1\ngraph @g {\n  %x = input {name = "x"} : f32[1000000, 1000000, 1000]\n  output "x" = %x\n}\n'
    with pytest.raises(ExecutionError, match="this machine has"):
        run_program(parse_program(text), backend)


def test_loops_without_end_are_refused():
    endless = f"    loop k in {10**15} {{\n      %z: f32 = constant 0.0\n    }}\n"
    text = SCALE.replace("    loop j", endless + "    loop j", 1)
    for backend in ON_HOST:
        with pytest.raises(ExecutionError, match="that would take days"):
            run_program(parse_program(text), backend)


def test_commands_on_graphs_say_which_level_a_file_has(files, capsys):
    assert main(["dump", str(files / "scale.eir"), "--stage", "plan"]) == 2
    message = capsys.readouterr().err
    assert "scale.eir:2:1: this is a file of level 'kernel', not 'graph'" in message and "euler-ir run" in message

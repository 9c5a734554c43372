"""``euler-ir dump``: every stage of a user's model as text, the same in every process; mistakes as one message."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from euler_ir.cli import main
from euler_ir.commands import COMMANDS
from euler_ir.compiler import lower
from euler_ir.graph_equality import structurally_equal
from euler_ir.inspect.dump import STAGES, dump
from euler_ir.inspect.user_graph import load_graph
from euler_ir.text import parse_graph
from models.gpt2 import GPT2Config
from models.language_model import train_graph

ROOT = Path(__file__).parents[1]
MLP = f"{ROOT / 'examples' / 'mlp.py'}:train_graph"

GPT2_FILE = """\
from models.gpt2 import GPT2Config
from models.language_model import train_graph

def step():
    return train_graph(GPT2Config(vocab_size=23, context=8, layers=1, heads=2, width=12, dropout=0.1), 2, 8)
"""
FAULTY_FILE = """\
import euler_ir as ei

print("hello from the user's file")
with ei.Graph("ready") as ready:
    ei.output(y=ei.input("x", (2,)) * 2)

def number():
    return 3

def nothing():
    pass

def broken():
    return {}["missing"]

def misshaped():
    with ei.Graph():
        return ei.input("x", (2,)) + ei.input("y", (3,))

def sized(width):
    return ready
"""


@pytest.fixture
def faulty(tmp_path):
    path = tmp_path / "faulty.py"
    path.write_text(FAULTY_FILE)
    return path


def refusal(capsys, *arguments):
    """The message with which ``euler-ir`` ends with exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as error:  # argparse
        code = error.code
    printed = capsys.readouterr()
    assert code == 2 and printed.out == "" and "Traceback" not in printed.err
    return printed.err


MARKS = {
    "graph": ("eir 1\ngraph @train {", "%loss.tanh = tanh %0.loss.add : f32[4, 16]"),
    "optimized": ("eir 1\ngraph @train {", 'update "0.weight"'),
    "fused": ("eir 1\nfused @train {", "writes"),
    "kernels": ("eir 1\n// launches: 1\nkernel @", "in 16 vector {"),
    "plan": ("plan @train {", "arena"),
    "llvm": ("; ModuleID", "define void @"),
    "asm": ("\t.file", "%rbp"),
    "cuda": ("// cuda 'train': ", 'extern "C" __global__ void'),
    "ptx": (".target sm_90", ".visible .entry sqrt_subtract_"),
    "sass": ("// sqrt_subtract_", "EXIT ;"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_of_the_first_model(stage, capsys, request):
    if stage in ("ptx", "sass"):
        request.getfixturevalue("gpu_compiler")
    assert main(["dump", MLP, "--stage", stage]) == 0
    text = capsys.readouterr().out
    for mark in MARKS[stage]:
        assert mark in text


@pytest.mark.parametrize("stage", ["graph", "optimized"])
@pytest.mark.parametrize("locations", [False, True])
def test_graph_stages_read_back(stage, locations):
    graph = load_graph(MLP)
    text = dump(graph, stage, locations)
    again = parse_graph(text)
    assert structurally_equal(again, graph if stage == "graph" else lower(graph).optimized, locations)
    assert ("examples/mlp.py" in text) is locations


def test_a_fused_graph_says_all_that_its_groups_compute():
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8)
    fused = lower(graph).fused
    text = str(fused)
    lines = [line.strip().partition(" at [")[0] for line in text.splitlines()]
    optimized = [line.strip() for line in str(fused.graph).splitlines()[2:-1]]
    assert set(optimized) <= set(lines)
    assert sum(line.startswith("group ") for line in lines) == len(fused.groups)
    for number, group in enumerate(fused.groups):
        head = next(line for line in lines if line.startswith(f"group {number} "))
        assert group.name in head and group.kind in head and (" reducing " in head) == bool(group.reduced)


def test_fused_text_of_a_reduction():
    text = dump(parse_graph(SUM_OF_SQUARES), "fused")
    assert text == SUM_OF_SQUARES_FUSED


SUM_OF_SQUARES = """\
eir 1
graph @squares {
  %x = input {name = "x"} : f32[4, 16]
  %square = multiply %x, %x : f32[4, 16]
  %row = sum %square {axes = [1]} : f32[4]
  output "rows" = %row
}
"""
SUM_OF_SQUARES_FUSED = """\
eir 1
fused @squares {
  %x = input {name = "x"} : f32[4, 16]
  group 0 sum: reduction for i in 4, j in 16 reducing j {
    reads %x: f32[4, 16]
    writes %row: f32[4]
    %square = multiply %x, %x : f32[4, 16] at [i, j]
    %row = sum %square {axes = [1]} : f32[4] at [i]
  }
  output "rows" = %row
}
"""


def test_kernels_are_printed_once_each():
    graph = train_graph(GPT2Config(23, 8, 2, 2, 12), 2, 8)
    plan, text = lower(graph).plan, dump(graph, "kernels")
    launches = [int(line.split(": ")[1]) for line in text.splitlines() if line.startswith("// launches")]
    assert sum(launches) == len(plan.kernels()) and max(launches) > 1
    assert str(plan.kernels()[0].kernel).removeprefix("eir 1\n") in text


def test_every_stage_is_the_same_in_every_process(tmp_path):
    stages = [stage for stage in STAGES if stage not in ("ptx", "sass")]  # NVIDIA's tools make them of the stage cuda
    (tmp_path / "gpt2.py").write_text(GPT2_FILE)
    script = (
        "import sys\n"
        "from euler_ir.inspect.dump import dump\n"
        "from euler_ir.inspect.user_graph import load_graph\n"
        f"for target in sys.argv[1:]:\n    for stage in {stages}:\n        print(f'#### {{stage}}')\n"
        "        print(dump(load_graph(target), stage))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, MLP, f"{tmp_path / 'gpt2.py'}:step"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    texts = [process.communicate()[0].split("#### ") for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(texts[0]) == 1 + 2 * len(stages)
    for one, other in zip(*texts, strict=True):
        assert one == other, one.split("\n")[0]


def test_stages_above_llvm_do_not_import_it():
    script = (
        "import sys\nfrom euler_ir.cli import main\n"
        f"for stage in ('graph', 'optimized', 'fused', 'kernels', 'plan'): main(['dump', {MLP!r}, '--stage', stage])\n"
        "print([name for name in ('llvmlite', 'rich') if name in sys.modules], file=sys.stderr)\n"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stderr.strip() == "[]"


def test_a_reader_that_stops_early_is_no_fault():
    command = f"{sys.executable} -m euler_ir dump {MLP} --stage asm | head -n 1"
    finished = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert finished.stdout.count("\n") == 1 and finished.stderr == ""


def test_writing_to_a_file(tmp_path, capsys):
    out = tmp_path / "graph.eir"
    assert main(["dump", MLP, "--stage", "graph", "-o", str(out)]) == 0
    assert capsys.readouterr().out == "" and out.read_text() == dump(load_graph(MLP), "graph")
    missing = str(tmp_path / "no" / "graph.eir")
    assert missing in refusal(capsys, "dump", MLP, "--stage", "graph", "-o", missing)


def test_a_graph_serves_as_well_as_a_function_and_prints_do_not_mix(faulty, capsys):
    assert main(["dump", f"{faulty}:ready", "--stage", "graph"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("eir 1") and printed.err == "hello from the user's file\n"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("numbr", ["has no function 'numbr'; did you mean number?"]),
        ("zzz", ["has no function 'zzz'; it has ready, number, nothing, broken, misshaped, sized"]),
        ("number", ["gives an object of type 'int', not a Graph"]),
        ("nothing", ["gives None, not a Graph"]),
        ("broken", ["calling broken(): KeyError: 'missing'", ":14 in broken\n", 'return {}["missing"]']),
        ("misshaped", ["calling misshaped(): ", "f32[2]", "f32[3]", 'return ei.input("x", (2,)) + ei.input']),
        ("sized", ["sized() cannot be called without arguments", "'width'"]),
    ],
)
def test_what_gives_no_graph_is_one_message(faulty, capsys, name, parts):
    message = refusal(capsys, "dump", f"{faulty}:{name}", "--stage", "graph").removeprefix(
        "hello from the user's file\n"
    )
    assert message.startswith("euler-ir: ")
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("x = 1 +\n", ["importing ", "SyntaxError: invalid syntax", "line 1"]),
        ("import sys\nsys.exit('bye')\n", ["SystemExit: bye", ":2 in <module>"]),
        ("import nowhere_at_all\n", ["ModuleNotFoundError: No module named 'nowhere_at_all'", ":1 in <module>"]),
    ],
)
def test_a_file_that_does_not_import(tmp_path, capsys, source, parts):
    path = tmp_path / "model.py"
    path.write_text(source)
    message = refusal(capsys, "dump", f"{path}:f", "--stage", "graph")
    for part in parts:
        assert part in message


def test_arguments_that_make_no_sense(tmp_path, capsys):
    assert "there is no file 'absent.py'" in refusal(capsys, "dump", "absent.py:f", "--stage", "graph")
    assert "is not FILE.py:function" in refusal(capsys, "dump", "absent.py", "--stage", "graph")
    assert "invalid choice: 'grph'" in refusal(capsys, "dump", MLP, "--stage", "grph")
    assert "--locations goes with" in refusal(capsys, "dump", MLP, "--stage", "plan", "--locations")
    (tmp_path / "notes.txt").write_text("f")
    assert "is not a Python file" in refusal(capsys, "dump", f"{tmp_path / 'notes.txt'}:f", "--stage", "graph")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_answers_fits_the_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    description = capsys.readouterr().out.split("\n\n")[1]
    assert description.endswith(".") and max(map(len, description.splitlines())) < 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("compare --tolerance nan", "--tolerance: must be a number of 0 or more, not 'nan'"),
        ("compare --tolerance inf", "--tolerance: must be a number of 0 or more, not 'inf'"),
        ("compare --tolerance=-1", "--tolerance: must be a number of 0 or more, not '-1'"),
        ("compare --values=-1", "--values: must be 0 or more, not -1"),
        ("compare --threads two", "--threads: must be a whole number, not 'two'"),
        ("run --threads 0", "--threads: must be 1 or more, not 0"),
        ("run --seed 1e3", "--seed: must be a whole number, not '1e3'"),
        ("nans --seed=-1", "--seed: must be 0 or more, not -1"),
        ("profile --steps 0", "--steps: must be 1 or more, not 0"),
    ],
)
def test_numbers_that_make_no_sense(capsys, arguments, message):
    name, *rest = arguments.split()
    assert message in refusal(capsys, name, MLP, *rest)


def test_help_says_what_each_stage_is(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["dump", "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0 and all(f"  {stage} " in text for stage in STAGES)

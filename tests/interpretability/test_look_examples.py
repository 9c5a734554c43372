"""The examples that look inside: what they print, the page they write, and one line for what is wrong."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.interpretability import tables
from models.interpretability.emergence import first_reached
from models.language_model import evaluation_graph
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint
from models.training.settings import PRESET_SETTINGS

pytestmark = pytest.mark.usefixtures("compiled_once")

EXAMPLES = Path(__file__).parents[2] / "examples"
PLAY = "To be, or not to be.\n\nROMEO:\nThat is the question!\n\nJULIET:\nIs it?\n\n" * 40
WORD = "[bold]é[/bold] :smile:"


def run(name, *arguments):
    """(exit status, stdout, stderr) of an example, in this process."""
    spec = util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            status = module.main(list(map(str, arguments)))
        except SystemExit as stopped:
            status = stopped.code
    for stream in streams:
        stream.flush()
    return status, *(stream.buffer.getvalue().decode() for stream in streams)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("checkpoints"), GPT2Config(257, 48, 2, 2, 8)
    paths = []
    for seed in (0, 1):
        state = ei.initial_state(evaluation_graph(config, 1, 8), seed=seed)
        paths.append(folder / f"{seed}.safetensors")
        Checkpoint({**state, "optim.step": np.int64(1)}, config, Tokenizer([]), 1, {}, {}).save(paths[-1])
    (folder / "play.txt").write_text(PLAY)
    return [*paths, folder / "play.txt"]


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


LOOKS = {
    "perturb": (["ln_f.weight[0:3]", "--delta", "0.5", "--target", "a"], ["3 of 8 weights of ln_f.weight", "autodiff"]),
    "sensitivity": (["--examples", "2"], ["h.1.attn", "sum g w is"]),
    "lens": (["--top", "2"], ["embedding", "h.1.mlp", "logits of the last row are those of the model within"]),
    "attribute": ([], ["the scores sum to"]),
    "attribute --method gradient --value h.0.mlp.gelu": ([], ["scores of tokens, by gradient"]),
    "attribute --method direct": ([], ["h.0.attn head 1", "final norm's bias", "they sum to"]),
    "trace": (
        ["--read", "h.0.mlp.gelu", "--set", "h.1.mlp.gelu=0", "--scale", "h.1.attn.attention=2", "--graph"],
        ["h.0.mlp.gelu [1, 23, 32]: norm", "%h.1.attn.multiply = multiply %h.1.attn.attention", "without edits"],
    ),
    "trace --names": ([], ["h.1.attn.attention", "f32[1, 23, 8]"]),
    "attention": ([], ["induction", "h.1.attn"]),
    "attention --layer h.0.attn --head 1": ([], ["looks at", "██"]),
    "probe": (["--prefix", "the ", "--continuation", "a", "--continuation", "bc"], ["'t' 'h' 'e' ' '", "mean over"]),
}


@pytest.mark.parametrize("command", LOOKS)
def test_what_is_looked_at(checkpoints, command):
    more, expected = LOOKS[command]
    name, *options = command.split()
    corpus = ["--corpus", checkpoints[2]] if name == "sensitivity" else []
    status, out, err = run(
        "gpt2_look", checkpoints[0], name, *options, *more, *corpus, "--text", WORD, "--device", "reference"
    )
    assert (status, err) == (0, "")
    for text in expected:
        assert text in out, f"{text!r} is not in\n{out}"


def test_a_page_holds_what_was_printed_and_needs_no_other(checkpoints, tmp_path):
    page = tmp_path / "page.html"
    arguments = checkpoints[0], "probe", "--prefix", "<b>&[red]", "--continuation", "a", "--html", page
    status, out, _ = run("gpt2_look", *arguments)
    text = page.read_text(encoding="utf-8")
    assert status == 0 and "&lt;b&gt;&amp;[red]" in text and "<b>&[red]" in out
    assert "http" not in text and "mean over prefixes" in text and text.count("<title>") == 1
    status, _, err = run("gpt2_look", *arguments[:-1], tmp_path / "nowhere" / "page.html")
    assert status == 2 and "does not exist" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["perturb", "nope[1]"], "There is no weight 'nope'"),
        (["perturb", "ln_f.bias", "--delta", "nan"], "finite number"),
        (["perturb", "ln_f.bias", "--target", "two"], "not one token"),
        (["lens", "--text", ""], "The text is empty"),
        (["lens", "--text", "x" * 49], "49 tokens, more than the 48"),
        (["trace", "--set", "h.0.mlp.gelu"], "Write NAME=NUMBER"),
        (["trace", "--set", "nope=1"], "has no value 'nope'"),
        (["trace", "--read", "h.0.mlp.gelo"], "did you mean h.0.mlp.gelu"),
        (["attention", "--head", "1"], "belong together"),
        (["attention", "--head", "9", "--layer", "h.0.attn"], "heads 0 to 1, not 9"),
        (["attention", "--head", "0", "--layer", "h"], "no attention 'h'"),
        (["sensitivity", "--examples", "999"], "Ask for fewer"),
        (["sensitivity", "--examples", "0"], "at least 1"),
        (["lens", "--top", "-1"], "must be at least 1, not -1"),
        (["trace", "--set", "h.0.mlp.gelu=0", "--scale", "h.0.mlp.gelu=2"], "h.0.mlp.gelu is edited twice"),
        (["probe", "--continuation", ""], "not empty"),
    ],
)
def test_what_cannot_be_looked_at_is_said(checkpoints, arguments, message):
    arguments = [*arguments, "--corpus", checkpoints[2]] if arguments[0] == "sensitivity" else arguments
    status, out, err = run("gpt2_look", checkpoints[0], *arguments, "--device", "reference")
    assert status == 2 and message in err and "Traceback" not in err


DAMAGED = ["perturb ln_f.weight", *(name for name in LOOKS if not name.startswith(("perturb", "trace")))]


@pytest.mark.parametrize("command", DAMAGED)
def test_a_damaged_model_is_said(checkpoints, tmp_path, command):
    damaged = Checkpoint.load(checkpoints[0])
    damaged.arrays["h.0.ln_1.bias"][0] = np.nan
    damaged.save(tmp_path / "damaged.safetensors")
    name, *options = command.split()
    more = LOOKS.get(command, ([], []))[0] if name in ("probe", "sensitivity") else []
    corpus = ["--corpus", checkpoints[2]] if name == "sensitivity" else []
    arguments = [name, *options, *more, *corpus, "--device", "reference"]
    status, _, err = run("gpt2_look", tmp_path / "damaged.safetensors", *arguments)
    assert status == 2 and "Its weights are damaged" in err


def test_comparing_with_a_damaged_model(checkpoints, tmp_path):
    """The tensor that holds NaN is the first that is shown."""
    damaged = Checkpoint.load(checkpoints[0])
    damaged.arrays["h.0.ln_1.bias"][0] = np.nan
    damaged.save(tmp_path / "damaged.safetensors")
    arguments = checkpoints[1], tmp_path / "damaged.safetensors", "--corpus", checkpoints[2], "--device", "reference"
    status, out, err = run("gpt2_compare", *arguments, "--characters", 100)
    assert status == 2 and "Its weights are damaged" in err
    assert out.splitlines()[5].startswith("h.0.ln_1.bias")


def test_edits_that_make_predictions_infinite(checkpoints):
    arguments = ["trace", "--set", "h.0.mlp.gelu=inf", "--text", "abc", "--device", "reference"]
    status, out, _ = run("gpt2_look", checkpoints[0], *arguments)
    assert status == 0 and out.endswith("\nWith these edits the predictions are not finite.\n")
    # GPT-2 numbers the byte of "a" 64.
    whole = run("gpt2_look", checkpoints[0], "trace", "--set", "tokens=64", "--text", "bcd", "--device", "reference")
    same = run("gpt2_look", checkpoints[0], "trace", "--text", "aaa", "--device", "reference")
    edited, as_is = ([line.split() for line in out.splitlines()[-5:]] for _, out, _ in (whole, same))
    assert [row[2:] for row in edited] == [row[:2] for row in as_is]


def test_files_that_are_no_checkpoint_are_said(checkpoints, tmp_path):
    for name, arguments in (("gpt2_look", ["lens"]), ("gpt2_compare", [checkpoints[0]])):
        for path in (checkpoints[2], tmp_path, tmp_path / "nothing"):
            status, _, err = run(name, path, *arguments)
            assert status == 2 and err.startswith(f"{name}.py: error: ") and err.count("\n") == 1


def test_comparing(checkpoints, tmp_path):
    first, second, play = checkpoints
    options = "--corpus", play, "--characters", 100, "--prompt", "To", "--top", 4, "--device", "reference"
    status, out, _ = run("gpt2_compare", first, second, *options, "--html", tmp_path / "page.html")
    assert status == 0 and "tensors that moved most, of 28" in out and "of 99 tokens are predicted better" in out
    status, out, _ = run("gpt2_compare", first, first, *options)
    assert "0 of 99 tokens are predicted better by the second, 0 worse" in out
    other = Checkpoint.load(first)
    merged = Tokenizer([(70, 71)])
    Checkpoint(other.arrays, other.config, merged, 1, {}, {}).save(tmp_path / "other.safetensors")
    status, out, _ = run("gpt2_compare", first, tmp_path / "other.safetensors", *options)
    assert status == 0 and "The tokenizers differ" in out


def test_probes_over_sizes_stop_and_go_on(checkpoints, tmp_path, monkeypatch):
    for preset, width in (("one", 4), ("two", 8)):
        monkeypatch.setitem(PRESETS, preset, GPT2Config(280, 16, layers=1, heads=1, width=width))
        monkeypatch.setitem(PRESET_SETTINGS, preset, {"learning_rate": 1e-2})
    out = tmp_path / "out"
    options = ["--out", out, "--corpus", checkpoints[2], "--steps", 2, "--batch-size", 2, "--sample-tokens", 20]
    status, printed, err = run("gpt2_probes", *options, "--presets", "one")
    assert status == 0, err
    status, printed, err = run("gpt2_probes", *options, "--presets", "one", "two", "--html", tmp_path / "page.html")
    assert status == 0, err
    assert "two, " in printed and "line break after 'NAME:'" in printed and (out / "probes.png").stat().st_size > 10_000
    for preset in ("one", "two"):
        records = [json.loads(line) for line in (out / preset / "probes.jsonl").read_text().splitlines()]
        assert [record["step"] for record in records] == [1, 2]
        assert all(0 <= share <= 1 for record in records for share in record["probes"].values())
        assert len((out / preset / "diary.jsonl").read_text().splitlines()) == 2
    status, _, err = run("gpt2_probes", *options, "--presets", "one", "--batch-size", 3)
    assert status == 2 and "has another batch_size" in err
    (checkpoints[2].parent / "prose.txt").write_text("no names here\n" * 100)
    status, _, err = run("gpt2_probes", "--out", tmp_path / "x", "--corpus", checkpoints[2].parent / "prose.txt")
    assert status == 2 and "Nobody speaks in the text" in err


def test_the_program_of_the_page_runs(checkpoints):
    page = (EXAMPLES.parent / "docs" / "looking_inside.md").read_text()
    (program,) = [block.split("```")[0] for block in page.split("```python\n")[1:] if "continued(" in block]
    program = program.replace("out/gpt2-nano/best.safetensors", str(checkpoints[0]))
    with redirect_stdout(io.StringIO()) as printed:
        exec(program, {})
    assert "%h.0.mlp.c_proj.matmul = matmul %h.0.mlp.constant" in printed.getvalue()


def test_when_a_level_is_reached_for_good():
    assert first_reached([1, 2, 3, 4], [0.6, 0.2, 0.5, 0.7], 0.5) == 3
    assert first_reached([1, 2], [0.6, 0.4], 0.5) is None


def test_only_a_terminal_or_the_user_limits_the_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    made = tables.table("title", "tensor", ">sum g w", "")
    made.add_row("a tensor with a name of" + " more words" * 8, "+0.1830", tables.share_bar(1.0))
    for columns, whole in ((None, True), ("80", False)):
        if columns:
            monkeypatch.setenv("COLUMNS", columns)
        console = tables.screen()
        with console.capture() as captured:
            console.print(made)
        assert ("+0.1830" in captured.get()) == whole


def test_bars_and_heat_at_the_edges():
    console = tables.screen()
    with console.capture() as captured:
        for number in (float("nan"), float("inf"), -5.0, 0.0, 5.0):
            console.print(tables.signed_bar(number, 1.0), tables.share_bar(number, 0.0), tables.share_bar(number, 1.0))
        console.print(*(tables.heat(share) for share in (0.0, 0.19, 0.2, 0.999, 1.0)))
    assert captured.get().splitlines()[-1].split() == ["··", "··", "░░", "██", "██"]

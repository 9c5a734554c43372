"""Fine-tuning and preference tuning as runs: what they learn, that they go on bit for bit, how they fail."""

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import euler_ir as ei
from models.chat.answers import Answers, in_terminal
from models.chat.conversation import CHAT_TOKENS, read_conversations, render
from models.chat.fine_tuning import FineTuningSettings, resume_fine_tuning, start_fine_tuning
from models.chat.packing import fitting, next_trained_token, shifted
from models.chat.pairs import made_pairs
from models.chat.preference_tuning import PreferenceSettings, resume_preference_tuning, start_preference_tuning
from models.chat.vocabulary import with_chat_tokens
from models.data.split import split_by_question
from models.gpt2 import GPT2Config
from models.language_model import accumulation_graphs, evaluation_graph, next_token
from models.tokenizer.bpe import Tokenizer
from models.training.checkpoint import Checkpoint
from models.training.held_out import HeldOut
from models.training.metrics import read_metrics

pytestmark = pytest.mark.usefixtures("compiled_once")

ROOT = Path(__file__).parents[2]
EXAMPLES, DIALOGUE = ROOT / "examples", ROOT / "models" / "corpora" / "dialogue"
CONFIG = GPT2Config(257, 32, layers=1, heads=2, width=32)
ANSWERS = {"ab": "x", "cd": "yy", "ef": "z!", "gh": "no"}


def conversation(question, answer):
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


@pytest.fixture(scope="module")
def model():
    """A Checkpoint of a model that has learned nothing."""
    names = [name for name, _ in CONFIG.build().named_parameters()]
    state = ei.initial_state(evaluation_graph(CONFIG, 1, 8), seed=1)
    return Checkpoint({name: state[name].copy() for name in names}, CONFIG, Tokenizer([]), 5, {}, {})


@pytest.fixture
def dialogue(tmp_path):
    path = tmp_path / "dialogue.jsonl"
    path.write_text("".join(f"{json.dumps({'messages': conversation(*pair)})}\n" for pair in ANSWERS.items()))
    return str(path)


def sft_settings(dialogue, **given):
    given = {"steps": 8, "batch_size": 2, "validate_every": 4, "held_back": 0.25, "accumulate": 2, **given}
    return FineTuningSettings.for_model(CONFIG, start_from="model", conversations=[dialogue], **given)


def weights(folder):
    arrays = Checkpoint.load(folder / "latest.safetensors").arrays
    return {name: array.tobytes() for name, array in arrays.items()}


def test_a_tiny_model_learns_answers_and_where_they_end(model, dialogue, tmp_path):
    settings = sft_settings(dialogue, steps=120, learning_rate=2e-2, held_back=0, validate_every=120, accumulate=1)
    run = start_fine_tuning(tmp_path / "sft", settings, model)
    assert "4 conversations to learn from, 11 tokens of the assistant; 0 held back" in run.task.description()
    run.train()
    checkpoint = Checkpoint.load(tmp_path / "sft" / "latest.safetensors")
    state = ei.initial_state(evaluation_graph(checkpoint.config, 1, 8))
    checkpoint.restore_parameters(state)
    answers = Answers(checkpoint.config, state, checkpoint.tokenizer)
    assert {question: answers.answer(conversation(question, "")[:1], 8) for question in ANSWERS} == {
        question: (answer, True) for question, answer in ANSWERS.items()
    }
    assert answers.answer(conversation("ab", "")[:1], 1) == ("x", False)
    assert answers.measure([conversation("ab", "x")], 1) == {"ended": 0, "exact_match": 0}, "right, but it does not end"
    long = conversation("a" * 27, "")[:1]  # 30 ids of 32
    assert len(answers.answer(long, 100)[0]) <= 2 and len(answers.answer(conversation("a" * 99, "")[:1], 100)[0]) <= 1
    wrong = [conversation("ab", "x"), conversation("cd", "y")]
    assert answers.measure(wrong, 8) == {"ended": 1.0, "exact_match": 0.5}
    assert "> ab\nx" in run.task.sample(state)


def test_a_run_that_stopped_goes_on_bit_for_bit(model, dialogue, tmp_path):
    settings = sft_settings(dialogue, dropout=0.1)
    start_fine_tuning(tmp_path / "whole", settings, model).train()
    start_fine_tuning(tmp_path / "parts", settings, model).train(3)
    Path(dialogue).unlink()  # a run needs its folder alone
    resume_fine_tuning(tmp_path / "parts").train()
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    validated = [record for record in read_metrics(tmp_path / "parts" / "metrics.jsonl") if "validation_loss" in record]
    assert {"ended", "recalled"} <= validated[-1].keys()
    learned = tmp_path / "parts" / "train.jsonl"
    learned.write_text(learned.read_text() + "\n")
    with pytest.raises(ValueError, match="train.jsonl is not what it was when the run began"):
        resume_fine_tuning(tmp_path / "parts")


def pair_file(dialogue, path):
    pairs = made_pairs(read_conversations(dialogue), seed=1)
    path.write_text("".join(f"{json.dumps(vars(pair))}\n" for pair in pairs))
    return str(path)


def chat_model(model):
    config, tokenizer, arrays = with_chat_tokens(model.config, model.tokenizer, model.arrays)
    return Checkpoint(arrays, config, tokenizer, 1, {}, {})


def dpo_settings(pairs, **given):
    given = {"steps": 6, "batch_size": 2, "validate_every": 3, "held_back": 0.4, "learning_rate": 1e-3, **given}
    return PreferenceSettings.for_model(CONFIG, start_from="chat", pairs=pairs, **given)


def test_preferences_go_on_bit_for_bit_with_the_reference_they_began_with(model, dialogue, tmp_path):
    settings, chat = dpo_settings(pair_file(dialogue, tmp_path / "pairs.jsonl")), chat_model(model)
    before = {name: array.copy() for name, array in chat.arrays.items()}
    start_preference_tuning(tmp_path / "whole", settings, chat).train()
    start_preference_tuning(tmp_path / "parts", settings, chat).train(4)
    assert all(np.array_equal(chat.arrays[name], array) for name, array in before.items())
    (tmp_path / "pairs.jsonl").unlink()
    resume_preference_tuning(tmp_path / "parts").train()
    assert weights(tmp_path / "whole") == weights(tmp_path / "parts")
    first, *_, last = read_metrics(tmp_path / "parts" / "metrics.jsonl")
    assert first["loss"] == pytest.approx(np.log(2), abs=1e-6) and first["accuracy"] == 0
    assert last["loss"] < first["loss"]
    assert last["tokens"] == 6 * 2 * 2 * 32 and last["validation_loss"] > 0
    file = tmp_path / "parts" / "train.jsonl"
    file.write_text(file.read_text().replace("ab", "ba").replace("cd", "dc"))
    with pytest.raises(ValueError, match="is of other pairs"):
        resume_preference_tuning(tmp_path / "parts")
    (tmp_path / "whole" / "reference.safetensors").unlink()
    with pytest.raises(FileNotFoundError):
        resume_preference_tuning(tmp_path / "whole")


def test_another_reference_than_the_run_began_with_is_refused(model, dialogue, tmp_path):
    settings = dpo_settings(pair_file(dialogue, tmp_path / "pairs.jsonl"), steps=1)
    start_preference_tuning(tmp_path / "one", settings, chat_model(model)).train()
    other = chat_model(model)
    other.arrays["wte.weight"][0, 0] += 1
    start_preference_tuning(tmp_path / "two", settings, other)
    (tmp_path / "two" / "reference.safetensors").rename(tmp_path / "one" / "reference.safetensors")
    with pytest.raises(ValueError, match="of another reference"):
        resume_preference_tuning(tmp_path / "one")


def test_without_a_reference_first_rewards_are_the_log_probabilities(model, dialogue, tmp_path):
    settings = dpo_settings(pair_file(dialogue, tmp_path / "pairs.jsonl"), steps=1, reference_free=True)
    start_preference_tuning(tmp_path / "free", settings, chat_model(model)).train()
    (record,) = read_metrics(tmp_path / "free" / "metrics.jsonl")
    assert record["reward_chosen"] == pytest.approx(0.1 * record["log_prob_chosen"], rel=1e-5)
    assert record["reward_chosen"] < 0


def test_gradients_do_not_depend_on_how_rows_are_spread_whatever_is_trained_in_them():
    """A mean over rows of means over tokens would: rows have 1 to 9 trained tokens."""
    random_ = np.random.default_rng(0)
    tokens = random_.integers(0, 257, (8, 10)).astype(np.int32)
    targets = np.where(np.arange(10) < random_.integers(1, 10, (8, 1)), random_.integers(0, 257, (8, 10)), -100)
    inputs = {"tokens": tokens, "targets": targets.astype(np.int32), "positions": np.tile(np.int32([0, 1]), (8, 5))}
    found = []
    for batch_size in (8, 4, 1):
        accumulate, apply = accumulation_graphs(CONFIG, batch_size, 10, objective=next_trained_token)
        state = ei.initial_state(accumulate, apply, seed=3)
        run = ei.compile(accumulate, backend="reference")
        for start in range(0, 8, batch_size):
            run(state, **{name: array[start : start + batch_size] for name, array in inputs.items()})
        outputs = ei.compile(apply, backend="reference")(state, learning_rate=np.float32(1e-3))
        found.append([float(outputs["loss"]), *outputs["gradient_norms"]])
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-5)


def test_held_out_means_are_over_tokens_not_over_batches():
    batches = [{"tokens": np.zeros((2, 3), np.int32), "targets": np.full((2, 3), -100, np.int32)} for _ in range(3)]
    batches[0]["targets"][:] = 5
    batches[1]["targets"][0, 1] = 7
    held_out = HeldOut(CONFIG, 2, 3, next_token, batches, "reference")
    state = ei.initial_state(evaluation_graph(CONFIG, 2, 3), seed=1)
    run = ei.compile(evaluation_graph(CONFIG, 2, 3), backend="reference")
    sums = [float(run(state, **batch)["loss"]) for batch in batches]
    assert held_out.of(state) == {"loss": pytest.approx(sum(sums) / 7, rel=1e-6)}
    assert HeldOut(CONFIG, 2, 3, None, [], "reference").of(state) == {}


def test_questions_that_are_held_back_were_not_learned():
    conversations = [conversation(f"q{number % 40}", f"a{number}") for number in range(200)]
    learned, held_back = split_by_question(conversations, lambda c: c[0]["content"], 0.1, seed=1)
    assert len(held_back) == 20 and len(learned) == 180
    assert not {c[0]["content"] for c in learned} & {c[0]["content"] for c in held_back}
    assert split_by_question(conversations, lambda c: c[0]["content"], 0.1, seed=1) == (learned, held_back)
    assert split_by_question(conversations, lambda c: c[0]["content"], 0.1, seed=2) != (learned, held_back)
    assert split_by_question(conversations[:3], str, 0.1, 1)[1] == []
    with pytest.raises(ValueError, match="share held back must be at least 0 and below 1, not 1"):
        split_by_question(conversations, str, 1, seed=1)


def test_what_is_trained_is_marked_for_a_person():
    tokenizer = Tokenizer([]).with_special_tokens(CHAT_TOKENS)
    shown = in_terminal(render(conversation("ab", "x"), tokenizer), tokenizer)
    assert shown.plain == "<|user|>ab<|end|><|assistant|>«x<|end|>»"
    green = {shown.plain[span.start : span.end] for span in shown.spans if "green" in span.style}
    assert green == {"x", "<|end|>"}


@pytest.mark.parametrize("name", ["quiz_bsd", "chatterbot_en", "devils_dictionary_qa", "wordnet_define_2000"])
def test_the_corpora_here_are_conversations(name):
    path = DIALOGUE / f"{name}.jsonl"
    conversations = read_conversations(path)
    assert len(conversations) == {"q": 1572, "c": 898, "d": 960, "w": 2000}[name[0]]
    assert path.stat().st_size < 2_000_000 and name in (DIALOGUE / "COPYING.txt").read_text()
    tokenizer = Tokenizer([]).with_special_tokens(CHAT_TOKENS)
    whole, cut = shifted(render(conversations[0], tokenizer)), fitting(render(conversations[0], tokenizer), 10_000)
    assert all(np.array_equal(*pair) for pair in zip(whole, cut))


# -- the programs ------------------------------------------------------------------------------------------------------


def program(name):
    """The `main` of an example."""
    return runpy.run_path(str(EXAMPLES / name))["main"]


@pytest.fixture
def model_file(model, tmp_path):
    path = tmp_path / "model.safetensors"
    model.save(path)
    return path


def test_a_run_of_another_kind_is_not_continued(model, dialogue, tmp_path, capsys):
    start_fine_tuning(tmp_path / "sft", sft_settings(dialogue, steps=1), model).train()
    assert program("gpt2_dpo.py")(["--out", str(tmp_path / "sft"), "--resume"]) == 2
    assert "has the setting conversations" in capsys.readouterr().err
    assert program("gpt2_dpo.py")(["--out", str(tmp_path / "sft"), "--resume", "--beta", "1"]) == 2
    assert "another kind of training, without --beta" in capsys.readouterr().err
    assert program("gpt2_train.py")(["--out", str(tmp_path / "sft"), "--resume"]) == 2
    assert "one of another kind of training" in capsys.readouterr().err
    model.save(tmp_path / "sft" / "latest.safetensors")  # as gpt2_convert.py writes them
    assert program("gpt2_sft.py")(["--out", str(tmp_path / "sft"), "--resume"]) == 2
    assert "it has no setting conversations" in capsys.readouterr().err


def test_weights_that_explode_end_a_run_without_a_traceback(model_file, dialogue, tmp_path, capsys):
    small = ["--conversations", dialogue, "--out", str(tmp_path / "sft"), "--steps", "3", "--learning-rate", "1e30"]
    assert program("gpt2_sft.py")([str(model_file), *small]) == 1
    assert capsys.readouterr().err.count("\n") == 1


SMALL = ("--steps", 4, "--batch-size", 2, "--validate-every", 2)


def test_the_chain(model_file, dialogue, tmp_path, capsys):
    def run(name, *arguments):
        status = program(name)([*map(str, arguments)])
        out, err = capsys.readouterr()
        assert status == 0, err
        return out

    chat, pairs, tuned = tmp_path / "chat", tmp_path / "pairs.jsonl", tmp_path / "tuned"
    shown = run("gpt2_sft.py", model_file, "--conversations", dialogue, "--show", 2)
    assert shown.splitlines() == [f"<|user|>{q}<|end|><|assistant|>«{ANSWERS[q]}<|end|>»" for q in ("ab", "cd")]
    out = run("gpt2_sft.py", model_file, "--conversations", dialogue, "--out", chat, *SMALL)
    assert "Reached step 4" in out and "Too few conversations to hold some back" in out
    out = run("gpt2_evaluate_chat.py", chat / "latest.safetensors", chat / "train.jsonl", "--tokens", 4)
    assert out.startswith("4 conversations of") and "nats a token" in out and "answers that end in 4 tokens" in out
    assert "4 pairs of answers to 4 conversations" in run("make_preferences.py", chat / "train.jsonl", "--out", pairs)
    out = run("gpt2_dpo.py", chat / "latest.safetensors", "--pairs", pairs, "--out", tuned, *SMALL)
    assert "Reached step 4" in out and "which is also the reference" in out
    assert "Reached step 6" in run("gpt2_dpo.py", "--out", tuned, "--resume", "--steps", 6)
    assert Checkpoint.load(tuned / "latest.safetensors").config.vocab_size == 261


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("gpt2_sft.py", [], "required: model"),
        ("gpt2_sft.py", ["none.safetensors"], "none.safetensors"),
        ("gpt2_sft.py", ["FOLDER"], "is a folder. Give the path of a checkpoint"),
        ("gpt2_sft.py", ["MODEL", "--conversations", "none.jsonl"], "no file none.jsonl"),
        ("gpt2_sft.py", ["MODEL", "--conversations", "EMPTY"], "holds no conversation"),
        ("gpt2_sft.py", ["MODEL", "--context", "4"], "No conversation fits into 4 tokens"),
        ("gpt2_sft.py", ["MODEL", "--context", "33"], "more than the 32 positions"),
        ("gpt2_sft.py", ["MODEL", "--steps", "0"], "must be at least 1"),
        ("gpt2_sft.py", ["--out", "OUT", "--resume"], "holds no training run"),
        ("gpt2_dpo.py", [], "required: model"),
        ("gpt2_dpo.py", ["MODEL"], "required: --pairs"),
        ("gpt2_dpo.py", ["MODEL", "--pairs", "EMPTY"], "holds no pair"),
        ("gpt2_dpo.py", ["MODEL", "--pairs", "PAIRS"], "has not learned to chat"),
        ("gpt2_dpo.py", ["MODEL", "--pairs", "PAIRS", "--beta", "-1"], "beta must be above 0"),
        ("make_preferences.py", ["EMPTY", "--out", "none/pairs.jsonl"], "folder none does not exist"),
    ],
)
def test_wrong_use_is_one_line(model_file, dialogue, tmp_path, capsys, name, arguments, words):
    (tmp_path / "empty.jsonl").write_text("\n")
    names = {"MODEL": model_file, "EMPTY": tmp_path / "empty.jsonl", "OUT": tmp_path / "out", "FOLDER": tmp_path}
    names["PAIRS"] = pair_file(dialogue, tmp_path / "pairs.jsonl")
    arguments = [str(names.get(each, each)) for each in arguments]
    if name == "gpt2_sft.py" and "--conversations" not in arguments:
        arguments += ["--conversations", dialogue]
    if name != "make_preferences.py" and "--out" not in arguments:
        arguments += ["--out", str(tmp_path / "out")]
    try:
        status = program(name)(arguments)
    except SystemExit as exit_:
        status = exit_.code
    message = capsys.readouterr().err
    assert status == 2 and words in message and message.count("\n") == 1, message
    assert not (tmp_path / "out" / "latest.safetensors").exists()


@pytest.mark.slow
def test_make_goes_from_a_text_to_an_answer(tmp_path):
    """In a folder with the Makefile and this Python as its environment."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for name in ("Makefile", "examples", "models"):
        (tmp_path / name).symlink_to(ROOT / name)

    def make(target, arguments=""):
        command = ["make", "-o", ".venv/installed", target, "OUT=out/pico", f"ARGS={arguments}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    status, said = make("sft")
    assert status == 2 and "Run: make train OUT=out/pico" in said
    small = "--steps 2 --batch-size 2"
    assert make("train", f"{small} --preset pico")[0] == 0
    status, said = make("dpo")
    assert status == 2 and "Run: make sft OUT=out/pico" in said
    status, said = make("sft", small)
    assert status == 0 and "Reached step 2" in said, said
    assert "Step 2 was reached before." in make("sft", small)[1]
    status, said = make("dpo", small)
    assert status == 0 and "Reached step 2" in said, said
    status, said = make("chat", "--tokens 4 --prompt hello")
    assert status == 0 and "Talking with out/pico-dpo/best.safetensors\n" in said, said


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_was_not(stage, model, model_file, dialogue, tmp_path):
    chat_model(model).save(tmp_path / "chat.safetensors")
    begin = {
        "sft": ["gpt2_sft.py", model_file, "--conversations", dialogue],
        "dpo": ["gpt2_dpo.py", tmp_path / "chat.safetensors", "--pairs", pair_file(dialogue, tmp_path / "pairs.jsonl")],
    }[stage]
    size = ["--steps", 60, "--batch-size", 2, "--validate-every", 3]
    start = [sys.executable, *map(str, [EXAMPLES / begin[0], *begin[1:], *size])]
    assert subprocess.run([*start, "--out", tmp_path / "whole"], capture_output=True).returncode == 0
    moments, parts = random.Random(7), tmp_path / "parts"
    log = parts / "metrics.jsonl"
    for _ in range(4):
        done = read_metrics(log)[-1]["step"] if log.exists() else 0
        resumed = [sys.executable, start[1], "--resume"] if (parts / "latest.safetensors").exists() else start
        process = subprocess.Popen([*resumed, "--out", parts], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = min(59, done + moments.randint(1, 14))
        while process.poll() is None and (not log.exists() or len(read_metrics(log)) < until):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 0 < Checkpoint.load(parts / "latest.safetensors").step < 60
    resumed = [sys.executable, start[1], "--resume", "--out", parts]
    assert subprocess.run(resumed, capture_output=True).returncode == 0
    assert weights(tmp_path / "whole") == weights(parts)

"""Commands run a graph on the parameters and state of a checkpoint that a training run wrote, by name."""

import json

import pytest

from euler_ir.cli import main
from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.training.checkpoint import Checkpoint
from models.training.pretraining import start_pretraining
from models.training.settings import PRESET_SETTINGS, PretrainingSettings


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A file with the step of a tiny GPT-2, and the checkpoint of a run of two such steps."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "corpus.txt").write_text("To be, or not to be, that is the question. " * 60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "tiny", GPT2Config(300, 8, layers=1, heads=2, width=8))
        patch.setitem(PRESET_SETTINGS, "tiny", {"learning_rate": 1e-2})
        options = {"steps": 2, "batch_size": 2, "vocab_size": 264, "validate_every": 2}
        settings = PretrainingSettings.for_preset(str(folder / "corpus.txt"), "tiny", **options)
        start_pretraining(folder / "run", settings, "reference").train()
    checkpoint = folder / "run" / "latest.safetensors"
    (folder / "tiny.py").write_text(
        "from models.gpt2 import GPT2Config\n"
        "from models.language_model import train_graph\n\n\n"
        f"def step():\n    return train_graph({Checkpoint.load(checkpoint).config!r}, 2, 8)\n"
    )
    return f"{folder / 'tiny.py'}:step", checkpoint


def answer(capsys, *arguments):
    status = main([*map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_run_begins_nothing_that_the_checkpoint_has(trained, capsys):
    target, checkpoint = trained
    status, found = answer(capsys, "run", target, "--state", checkpoint)
    assert status == 0 and not found["begun"] and not found["unused"] and found["drawn"]
    (loss,) = (each for each in found["results"] if each["name"] == "loss")
    _, begun = answer(capsys, "run", target)
    assert begun["begun"] and loss["first"] != next(e for e in begun["results"] if e["name"] == "loss")["first"]


@pytest.mark.parametrize("command", ["nans", "compare"])
def test_commands_on_numbers_take_all_but_inputs_from_the_checkpoint(trained, capsys, command):
    target, checkpoint = trained
    status, found = answer(capsys, command, target, "--state", checkpoint)
    kept = len(Checkpoint.load(checkpoint).arrays)
    assert status == 0 and f"{kept} from files" in found["arrays"] and "drawn" in found["arrays"]

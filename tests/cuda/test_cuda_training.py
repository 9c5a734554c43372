"""Models that train and speak on the emulated device as they do on the CPU, with nothing copied between steps."""

import numpy as np
import pytest
from training_runs import TINY, trainer

import euler_ir as ei
from euler_ir.backends.cuda.emulator import device as emulated
from models.architectures import PRESETS
from models.generation.predictor import Predictor
from models.generation.reader import Reader
from models.gpt2 import GPT2Config
from models.language_model import train_graph
from models.training.settings import PRESET_SETTINGS

TEXT = "the quick brown fox jumps over the lazy dog. " * 60

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("given", "tolerance"),
    [({}, 1e-5), ({"accumulate": 2, "dropout": 0.1}, 1e-5), ({"precision": "bf16"}, 1e-3), ({"precision": "f16"}, 1e-3)],
    ids=["f32", "accumulated", "bf16", "f16"],
)
def test_losses_are_those_of_the_cpu(given, tolerance, monkeypatch):
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    monkeypatch.setitem(PRESET_SETTINGS, "tiny", {"learning_rate": 1e-2})
    moved, upload = [], emulated._Stream.upload
    monkeypatch.setattr(
        emulated._Stream, "upload", lambda s, to, array: moved.append(array.nbytes) or upload(s, to, array)
    )
    losses, trainers = {}, {}
    for backend in ("cpu", "cuda-emulator"):
        trainers[backend], *_ = trainer(TEXT, backend=backend, **given)
        losses[backend] = [trainers[backend].step(0)["loss"]]
        moved.clear()
        losses[backend] += [trainers[backend].step(number)["loss"] for number in range(1, 4)]
        steps = sum(moved)
        losses[backend].append(trainers[backend].validate(4)["validation_loss"])
    np.testing.assert_allclose(losses["cuda-emulator"], losses["cpu"], rtol=tolerance)
    # Between steps only batches and rates are brought: less than parameters and moments, once.
    assert 0 < steps < sum(array.nbytes for array in trainers["cuda-emulator"].state.values()) / 2


def test_texts_are_read_and_grow_as_on_the_cpu():
    config = GPT2Config(vocab_size=61, context=16, layers=2, heads=2, width=24)
    state = ei.initial_state(train_graph(config, 2, 16), seed=1)
    found = []
    for backend in ("cpu", "cuda-emulator"):
        reader, texts = Reader(Predictor(config, state, backend=backend), 2), [[1, 2, 3], [4, 5, 6, 7, 8]]
        for _ in range(14):  # beyond the context
            logits = reader.logits(texts)
            found.append(logits)
            for text, row in zip(texts, logits):
                text.append(int(row.argmax()))
    for one, other in zip(found[:14], found[14:]):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)

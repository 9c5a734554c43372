"""Whole training steps of GPT-2 on a device: as on the CPU, the same bits in each run, and at full size."""

import numpy as np
import pytest

import euler_ir as ei
from models.architectures import PRESETS
from models.gpt2 import GPT2Config
from models.language_model import train_graph

TINY = GPT2Config(vocab_size=64, context=16, layers=1, heads=2, width=32)
F32, BF16 = "cuda", "mixed-precision,cuda"
ON_DEVICE = pytest.mark.parametrize(
    ("device", "config", "batch"),
    [
        pytest.param("cuda-emulator", TINY, 2, marks=pytest.mark.slow, id="tiny-emulator"),
        pytest.param("cuda", PRESETS["nano"], 16, marks=pytest.mark.gpu, id="nano-gpu"),
    ],
)


def tokens_of(config, batch, context):
    """A text that can be learned: numbers that count up."""
    counted = (np.arange(batch)[:, None] * 7 + np.arange(context + 1)) % config.vocab_size
    return {"tokens": counted[:, :-1].astype(np.int32), "targets": counted[:, 1:].astype(np.int32)}


def trained(graph, backend, passes, inputs, steps, rate=1e-3):
    """The losses of so many steps on the same tokens, and the state after them."""
    run, state = ei.compile(graph, backend, passes=passes), ei.initial_state(graph)
    losses = [run(state, **inputs, learning_rate=np.float32(rate))["loss"] for _ in range(steps)]
    return [float(loss) for loss in losses], {name: state[name].copy() for name in state}


@ON_DEVICE
def test_losses_are_those_of_the_cpu(device, config, batch):
    graph, inputs = train_graph(config, batch, config.context), tokens_of(config, batch, config.context)
    ours, _ = trained(graph, device, F32, inputs, 4)
    wanted, _ = trained(graph, "cpu", None, inputs, 4)
    np.testing.assert_allclose(ours, wanted, rtol=2e-5)


@ON_DEVICE
@pytest.mark.parametrize("passes", [F32, BF16], ids=["f32", "bf16"])
def test_every_run_has_the_same_bits_and_learns(device, config, batch, passes):
    graph, inputs = train_graph(config, batch, config.context), tokens_of(config, batch, config.context)
    (losses, state), (again, same) = (trained(graph, device, passes, inputs, 5) for _ in range(2))
    assert losses == again and losses[-1] < losses[0]
    for name in state:
        assert state[name].tobytes() == same[name].tobytes(), name


@pytest.mark.gpu
@pytest.mark.parametrize("passes", [F32, BF16], ids=["f32", "bf16"])
def test_steps_of_124m(passes):
    config = PRESETS["124M"]
    graph, inputs = train_graph(config, 4, config.context), tokens_of(config, 4, config.context)
    losses, _ = trained(graph, "cuda", passes, inputs, 3, rate=1e-4)
    # Weights near 0 say of every token that it is as likely as any other.
    assert abs(losses[0] - np.log(config.vocab_size)) < 0.3
    assert losses[2] < losses[1] < losses[0]

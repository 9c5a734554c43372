import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from models.gpt2 import GPT2Config
from models.interpretability.subject import Subject
from models.tokenizer.bpe import Tokenizer

MICRO = Path(__file__).parents[1] / "data" / "gpt2_micro"


@pytest.fixture(scope="session")
def micro_weights():
    arrays = load_file(MICRO / "model.safetensors")
    return {name.removeprefix("transformer."): array for name, array in arrays.items()}


@pytest.fixture(scope="session")
def micro_reference():
    """What transformers computed of the same weights: tokens `x`, `logits`, `hidden_0` to `hidden_2`, gradients."""
    return np.load(MICRO / "forward_backward.npz")


@pytest.fixture
def subject(micro_weights, compiled_once):
    """The GPT-2 of tests/data/gpt2_micro with single bytes as tokens."""
    config = json.loads((MICRO / "config.json").read_text())
    sizes = (config[name] for name in ("vocab_size", "n_positions", "n_layer", "n_head", "n_embd"))
    return Subject(GPT2Config(*sizes), micro_weights, Tokenizer([]))

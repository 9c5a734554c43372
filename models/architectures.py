"""The architectures by the name that checkpoints keep, and all presets."""

from dataclasses import asdict

from models import gpt2, nanoeuler
from models.euler_view import EulerViewConfig
from models.gpt2 import GPT2Config
from models.nanoeuler import NanoEulerConfig

ARCHITECTURES = {config.architecture: config for config in (GPT2Config, NanoEulerConfig, EulerViewConfig)}
PRESETS = {**gpt2.PRESETS, **nanoeuler.PRESETS}


def document_of(config):
    """A config as JSON can hold it."""
    return {"architecture": config.architecture, **asdict(config)}


def config_of(document):
    """The config of which `document_of` made `document`. Raises ValueError for an architecture that is not here."""
    sizes = dict(document)
    name = sizes.pop("architecture", GPT2Config.architecture)
    if name not in ARCHITECTURES:
        raise ValueError(f"There is no architecture {name!r} here. There are {', '.join(ARCHITECTURES)}.")
    return ARCHITECTURES[name](**sizes)

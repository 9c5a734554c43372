"""One file that holds all of a training run: weights, optimiser, tokenizer, sizes, settings, seed and data position.

It is a safetensors file. The arrays are those of the State, under their names; the header's metadata carries one JSON
document, `checkpoint`, with everything else and a SHA-256 of it all.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import load_file, save

from models.architectures import config_of, document_of
from models.files import check_regular, replacing
from models.named_tensors import check_tensors, tensor_types, tensors_digest
from models.tokenizer.base import BaseTokenizer
from models.tokenizer.formats import native

FILE_FORMAT = "euler_ir training checkpoint"
FILE_VERSION = 2

# Sums of a step that is under way: always zero between steps, when checkpoints are written.
TRANSIENT = "accumulator."

# What only training in f16 keeps: without it, it begins anew, and other precisions have no use for it.
OF_PRECISION = "loss_scale."

IMPORT = "gpt2_convert.py import makes one of a GPT-2 of Hugging Face"


@dataclass(frozen=True)
class Checkpoint:
    """A training run between two steps.

    `arrays` are the parameters and the optimiser's state by name; `step` counts finished steps and is the position in
    the data; `settings` are the run's, as JSON can hold them, with the seed of all its random numbers; `progress` is
    what the run has reached, likewise, and `data` the files that it learns from, with their fingerprints.
    """

    arrays: dict[str, np.ndarray]
    config: object
    tokenizer: BaseTokenizer
    step: int
    settings: dict
    progress: dict
    data: dict = field(default_factory=dict)

    def save(self, path):
        """Write to `path`, which keeps its old content until the new one is complete on disk. Raises OSError."""
        arrays = {name: np.asarray(self.arrays[name], order="C") for name in sorted(self.arrays)}
        arrays = {name: array for name, array in arrays.items() if not name.startswith(TRANSIENT)}
        document = {
            "format": FILE_FORMAT,
            "version": FILE_VERSION,
            "step": self.step,
            "config": document_of(self.config),
            "settings": self.settings,
            "progress": self.progress,
            "data": self.data,
            "tokenizer": native.document_of(self.tokenizer),
        }
        document["checksum"] = _checksum(document, arrays)
        with replacing(path) as file:
            file.write(save(arrays, {"checkpoint": json.dumps(document)}))

    @classmethod
    def load(cls, path):
        """Read what `save` wrote.

        Raises OSError as `check_regular`, or ValueError for a file that is something else, of another version, or
        damaged.
        """
        check_regular(path, f"checkpoint{_found_in(Path(path))}")
        try:
            with safetensors.safe_open(path, "numpy") as file:
                document = json.loads((file.metadata() or {}).get("checkpoint", "null"))
            arrays = load_file(path)
        except (safetensors.SafetensorError, ValueError) as error:
            raise ValueError(f"{path} is not a checkpoint, or is damaged: {error}.") from None
        if not isinstance(document, dict) or document.get("format") != FILE_FORMAT:
            raise ValueError(f"{path} is a safetensors file but not a checkpoint of a training run: {IMPORT}.")
        if document.get("version") != FILE_VERSION:
            raise ValueError(
                f"{path} has version {document.get('version')}, this program reads version {FILE_VERSION}. "
                "Use the program that wrote it."
            )
        checksum = document.pop("checksum", None)
        if checksum != _checksum(document, arrays):
            raise ValueError(f"{path} is damaged: its checksum does not fit its content.")
        tokenizer = native.tokenizer_of(document["tokenizer"], f"The tokenizer in {path}")
        config = config_of(document["config"])
        parts = (document["step"], document["settings"], document["progress"], document.get("data", {}))
        return cls(arrays, config, tokenizer, *parts)

    def parameters(self):
        """The arrays of the model by name, without the optimiser's."""
        names = [name for name, _ in self.config.build().named_parameters()]
        return {name: self.arrays[name] for name in names if name in self.arrays}

    def restore(self, state, names=None):
        """Copy the arrays into `state`: all that it has, or those of `names`.

        Raises ValueError, naming them, when one is missing here, unexpected there, or of another type.
        """
        wanted = {name for name in (state if names is None else names) if not name.startswith(TRANSIENT)}
        wanted = {name for name in wanted if name in self.arrays or not name.startswith(OF_PRECISION)}
        held = {name: a for name, a in self.arrays.items() if name in wanted or not name.startswith(OF_PRECISION)}
        check_tensors(tensor_types(held), tensor_types({name: state[name] for name in wanted}), "The checkpoint")
        for name in wanted:
            state[name] = self.arrays[name]

    def restore_parameters(self, state):
        """Copy only what `state` asks for, such as the parameters without the optimiser. Raises as `restore`."""
        replace(self, arrays={name: array for name, array in self.arrays.items() if name in state}).restore(state)


def _found_in(folder):
    """What to say of a folder that was given for a checkpoint."""
    names = [name for name in ("best.safetensors", "latest.safetensors") if (folder / name).exists()]
    return f", such as {folder / names[0]}" if names else f": {IMPORT}"


def _checksum(document, arrays):
    return tensors_digest(arrays, json.dumps(document, sort_keys=True).encode())

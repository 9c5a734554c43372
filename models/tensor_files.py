"""A Hugging Face folder: `config.json`, and tensors in one safetensors file or in several that an index lists.

`model.safetensors` alone, or shards `model-00001-of-00003.safetensors`, ... with `model.safetensors.index.json`, whose
`weight_map` says which tensor is in which shard.
"""

import json
from pathlib import Path

import numpy as np
import safetensors
from safetensors.numpy import save

from models.files import read_json, replacing

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("F16", "BF16", "F32", "F64")
WRAPPERS = ("_orig_mod", "module")
"""What torch.compile and DistributedDataParallel add to the names of the tensors of the model that they wrap."""


def read_config(path):
    """(document, its path) of the `config.json` in a folder, or beside a file. Raises as `read_json`."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}. Give a folder with {CONFIG} and weights.")
    source = (path if path.is_dir() else path.parent) / CONFIG
    if not source.exists():
        raise FileNotFoundError(f"There is no {source}, which says the sizes of the model.")
    return read_json(source), source


def check_layers(layers, tensors, path):
    """Raise ValueError where `tensors` are fewer than `layers`: before anything is made for each of them."""
    if layers > len(tensors):
        raise ValueError(f"{path} holds {len(tensors)} tensors, too few for the {layers} layers of its {CONFIG}.")


def read_tensors(path, prefix="", ignored=None):
    """{name: f32 array} of a folder or of one safetensors file; half types are widened, f64 is rounded.

    Names are without the parts that wrappers add, and without `prefix`. Tensors whose whole name `ignored`, a compiled
    pattern, matches then are not read. Raises FileNotFoundError, and ValueError for a file that is damaged, a tensor
    that is not of floats, or one that is there twice or in no shard although the index lists it.
    """
    path = Path(path)
    placed = _index(path) if path.is_dir() else None
    files = sorted({path / shard for shard in placed.values()}) if placed is not None else [_single(path)]
    tensors, seen = {}, set()
    for file in files:
        for name, array in _tensors_of(file, prefix, ignored, seen):
            if name in tensors:
                raise ValueError(f"{file} holds {name} twice, perhaps with and without a prefix.")
            tensors[name] = array
    if placed is not None and (lost := sorted(placed.keys() - seen)):
        raise ValueError(f"{path / INDEX} lists {len(lost)} tensors that no shard holds, such as {lost[0]}.")
    return tensors


def _index(folder):
    """{tensor: shard} of a folder with shards, None where there is a single file."""
    if (folder / SINGLE).exists() or not (folder / INDEX).exists():
        return None
    placed = read_json(folder / INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise ValueError(f"{folder / INDEX} has no weight_map.")
    for shard in placed.values():
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise ValueError(f"{folder / INDEX} names {shard!r} as a shard, which is not the name of a file beside it.")
        if not (folder / shard).is_file():
            raise FileNotFoundError(f"{folder} lacks {shard}, which {INDEX} lists. Copy all shards into the folder.")
    return placed


def _single(path):
    file = path / SINGLE if path.is_dir() else path
    if file.is_file():
        return file
    if path.is_dir() and (path / "pytorch_model.bin").exists():
        raise FileNotFoundError(
            f"{path} holds pytorch_model.bin, a pickle, which is not read here. Load it with transformers and save it "
            "again with save_pretrained, which writes safetensors."
        )
    raise FileNotFoundError(f"There is no {file}. Give a folder with {SINGLE}, or such a file.")


def _tensors_of(file, prefix, ignored, seen):
    try:
        with safetensors.safe_open(file, "numpy") as tensors:
            for full_name in tensors.keys():
                seen.add(full_name)
                name = ".".join(part for part in full_name.split(".") if part not in WRAPPERS).removeprefix(prefix)
                if ignored and ignored.fullmatch(name):
                    continue
                dtype = tensors.get_slice(full_name).get_dtype()
                if dtype not in FLOATS:
                    known = ", ".join(FLOATS)
                    raise ValueError(f"{file}: {full_name} is of type {dtype}; weights are read from {known}.")
                yield name, tensors.get_tensor(full_name).astype(np.float32, copy=False)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} is not a safetensors file, or is damaged: {error}.") from None


def write_tensors(folder, tensors, shard_bytes):
    """Write {name: array} in the order given, into shards of at most `shard_bytes` where one file would be larger.

    A tensor that is larger alone has a shard of its own. Raises OSError.
    """
    folder, shards, room = Path(folder), [{}], shard_bytes
    for name, array in tensors.items():
        if shards[-1] and array.nbytes > room:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = array
        room -= array.nbytes
    names = [f"model-{n:05}-of-{len(shards):05}.safetensors" for n in range(1, len(shards) + 1)]
    for name, shard in zip(names if len(shards) > 1 else [SINGLE], shards, strict=True):
        with replacing(folder / name) as file:
            # transformers reads no file that does not name a framework.
            file.write(save({key: np.ascontiguousarray(array) for key, array in shard.items()}, {"format": "pt"}))
    if len(shards) > 1:
        placed = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        total = sum(array.nbytes for array in tensors.values())
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": placed})


def write_json(path, document):
    """Write an object as JSON, with one item a line."""
    with replacing(path) as file:
        file.write((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())

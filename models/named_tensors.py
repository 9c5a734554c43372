"""Whether tensors that come by name, as from a file, are those that a model has, or those that were written."""

import hashlib

import numpy as np

SHOWN = 8
"""Names of a kind that a message lists; it counts the rest."""


def check_tensors(found, wanted, source):
    """Raise ValueError unless two mappings from name to shape are equal.

    The message begins with `source`, words for what was found, and lists what is missing, unexpected and misshaped. In
    place of shapes there may be any values that print well, such as types with their shapes.
    """
    kinds = {
        "missing": sorted(wanted.keys() - found.keys()),
        "unexpected": sorted(found.keys() - wanted.keys()),
        "misshaped": [
            f"{name} (is {_shown(found[name])}, should be {_shown(wanted[name])})"
            for name in sorted(wanted.keys() & found.keys())
            if found[name] != wanted[name]
        ],
    }
    parts = [f"{len(items)} {kind}: {_listed(items)}" for kind, items in kinds.items() if items]
    if parts:
        raise ValueError(f"{source} does not fit the model: {'; '.join(parts)}.")


def tensor_types(arrays):
    """The type of each array of a mapping by name, as text, for `check_tensors`."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def tensors_digest(arrays, document=b""):
    """SHA-256, in hex, of the bytes of a document and of arrays by name, with their types."""
    content = hashlib.sha256(document)
    for name in sorted(arrays):
        array = arrays[name]
        content.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return content.hexdigest()


def _shown(shape):
    return list(shape) if isinstance(shape, tuple) else shape


def _listed(items):
    more = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f", and {more} more" if more > 0 else "")

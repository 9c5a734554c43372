"""Files: written so that a reader, or a crash, never meets half of one, and read with words for what is wrong."""

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path):
    """Open a binary file that takes the place of `path` only once it is written completely.

    On an exception inside the block `path` is left as it was. Raises FileNotFoundError if its folder is missing,
    IsADirectoryError if it is a folder itself, and OSError if it cannot be written, or is a device or pipe, whose place
    no file should take.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: the folder {path.parent} does not exist. Create it first.")
    if path.is_dir():
        raise IsADirectoryError(f"Cannot write {path}: it is a folder. Give the path of a file.")
    if path.exists() and not path.is_file():
        raise OSError(f"Cannot write {path}: it is a device or a pipe. Give the path of a file.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path):
    """The object in a JSON file. Raises FileNotFoundError, and ValueError when it holds something else."""
    try:
        document = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON, or is damaged: {error}.") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path} should hold an object in braces, but holds {type(document).__name__}.")
    return document


def remove_stale_temporaries(folder):
    """Delete what `replacing` left in `folder` when a program was killed while it wrote."""
    for temporary in Path(folder).glob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def _flush_folder(folder):
    """Make a rename survive a power failure; Windows needs and allows no such thing."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

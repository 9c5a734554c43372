"""Writing files so that a reader, or a crash, never meets half of one."""

import os
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path):
    """Open a binary file that takes the place of `path` only once it is written completely.

    On an exception inside the block `path` is left as it was. Raises FileNotFoundError if its folder is missing, and
    OSError if it cannot be written.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: the folder {path.parent} does not exist. Create it first.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


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

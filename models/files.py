"""Writing files so that a reader, or a crash, never meets half of one."""

import os
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path):
    """Open a binary file that takes the place of `path` only once it is written completely.

    On an exception inside the block `path` is left as it was. Raises FileNotFoundError if its folder is missing.
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
    finally:
        temporary.unlink(missing_ok=True)

"""Files: written so that a reader, or a crash, never meets half of one, and read with words for what is wrong."""

import json
import os
import stat
import threading
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path):
    """Open a binary file that takes the place of `path` only once it is written completely.

    On an exception inside the block `path` is left as it was. A link stays a link, and permissions stay as they are.
    Raises FileNotFoundError if its folder is missing, and OSError, which names `path`, if it is a folder or anything
    else that is no regular file, such as a pipe, or if it cannot be written.
    """
    path, place = Path(path), Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(f"Cannot write {path}: the folder {path.parent} does not exist. Create it first.")
    if place.exists():
        check_regular(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            os.chmod(temporary, stat.S_IMODE(place.stat().st_mode))
        os.replace(temporary, place)
        _flush_folder(place.parent)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_regular(path, wanted="file"):
    """Raise FileNotFoundError, IsADirectoryError, or OSError for what may never end or be read only once: a pipe or a
    device. `wanted` says what `path` should be.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Give the path of a {wanted}.")
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}. Check the spelling; the current folder is {Path.cwd()}.")
    if not path.is_file():
        raise OSError(f"{path} is a device or a pipe. Give the path of a {wanted}.")


def read_json(path):
    """The object in a JSON file. Raises OSError as `check_regular`, and ValueError when it holds something else."""
    check_regular(path)
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

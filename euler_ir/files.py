"""Files that are whole: what is written has its name at once, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path


def write_file(path: str | Path, content: str | bytes) -> None:
    """Put ``content``, text as UTF-8, at ``path``: a reader finds the old file or the new, whatever stops the writer.

    A link stays a link, and permissions stay as they are. What is no regular file, such as a pipe, is written to.
    Raises OSError.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        mode = os.stat(path).st_mode if os.path.exists(path) else None
        if mode is not None and not stat.S_ISREG(mode):
            Path(path).write_bytes(data)
            return
        if mode is not None and not os.access(path, os.W_OK):  # what may not be written may not be replaced
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        _replace(os.path.realpath(path), data, mode)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None  # of the name that was asked for


def _replace(path: str, data: bytes, mode: int | None) -> None:
    unfinished = os.path.join(os.path.dirname(path), f".euler_ir.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        if mode is not None:
            os.chmod(unfinished, stat.S_IMODE(mode))
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise

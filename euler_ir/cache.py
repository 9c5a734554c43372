"""What took long to find out, kept on disk: object code, and small facts such as which of two programs is faster.

An entry is a file of the cache's folder, named by the SHA-256 of its kind and key. Whatever an entry depends on belongs
into its key, so an entry is never outdated, only unused. Entries appear whole, under a checksum; a damaged one is as
good as none. Object code is run, so nothing is read from a folder or file that someone else could have written. A cache
that cannot be used is left alone, with one warning.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "EULER_IR_CACHE"
LIMIT_BYTES = 256 << 20

# The form of an entry, and part of every key: entries of another version are neither found nor understood.
_MAGIC = b"euler_ir cache 1\n"
_ENTRY = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
_DIGEST_BYTES = hashlib.sha256().digest_size
_HOUR = 3600.0


def folder() -> Path | None:
    """Where entries are: EULER_IR_CACHE, else `euler_ir` in the user's folder of caches; None when switched off.

    The variable set to nothing or to `off` switches the cache off.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen is not None:
        return Path(chosen) if chosen not in ("", "off") else None
    caches = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification: a relative path is ignored.
        return (Path(caches) if os.path.isabs(caches) else Path.home() / ".cache") / "euler_ir"
    except RuntimeError as error:
        _warn_once(Path("~/.cache"), error)
        return None


def is_usable() -> bool:
    """Whether there is a folder that can be written: what is stored now can be found by a later process."""
    path = folder()
    if path is None:
        return False
    try:
        with _opened(path, create=True):
            return os.access(path, os.W_OK)
    except OSError as error:
        _warn_once(path, error)
        return False


def load(kind: str, *key: str) -> bytes | None:
    """What was stored under ``kind`` and ``key``; None when nothing was, or nothing that can be trusted."""
    path = folder()
    if path is None:
        return None
    name = _entry_name(kind, key)
    try:
        with _opened(path) as directory:
            return _payload(name, directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_once(path, error)
        return None


def store(data: bytes, kind: str, *key: str) -> None:
    """Keep ``data`` under ``kind`` and ``key``, in place of what may be there."""
    _store(data, _entry_name(kind, key), os.replace)


def load_fact(kind: str, *key: str):
    """As `load`, of what `store_fact` stored."""
    data = load(kind, *key)
    return None if data is None else json.loads(data)


def store_fact(fact, kind: str, *key: str):
    """Keep a value that JSON holds, numbers, strings, None, lists and dicts of them, unless there is one already.

    Returns the one that is kept, None if none can be: of all who find out the same thing at once, each gets one answer.
    """
    if load(kind, *key) is None:
        _store(json.dumps(fact).encode(), _entry_name(kind, key), _link_unless_there)
    return load_fact(kind, *key)


@dataclass(frozen=True)
class Usage:
    """How many entries there are, and their bytes on disk."""

    entries: int
    bytes: int


def usage() -> Usage:
    """What the cache holds. Raises OSError when its folder is there but cannot be used."""
    return _total(clear=False)


def clear() -> Usage:
    """Remove all entries; says how many there were. Raises OSError when the folder is there but cannot be used."""
    return _total(clear=True)


def _total(clear: bool) -> Usage:
    path = folder()
    if path is None or not path.exists():
        return Usage(0, 0)
    with _opened(path) as directory:
        entries = _entries(directory, unfinished_for=0.0 if clear else _HOUR)
        if clear:
            for entry in entries:
                _remove(entry.name, directory)
    return Usage(len(entries), sum(entry.bytes for entry in entries))


# -- keys and files ----------------------------------------------------------------------------------------------------


def _entry_name(kind: str, key: tuple[str, ...]) -> str:
    digest = hashlib.sha256(_MAGIC)
    for part in (kind, *key):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _header(name: str, payload: bytes) -> bytes:
    # The checksum covers the name: an entry under another's name is a damaged one.
    return _MAGIC + hashlib.sha256(name.encode() + payload).digest()


@contextlib.contextmanager
def _opened(path: Path, create: bool = False) -> Iterator[int]:
    """The folder as a file descriptor: what was checked is what is used, whatever happens to its name meanwhile."""
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _is_ours(os.fstat(directory)):
            raise PermissionError(errno.EPERM, "it must belong to this user and be writable by no other", str(path))
        yield directory
    finally:
        os.close(directory)


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _payload(name: str, directory: int) -> bytes | None:
    """What an entry holds; None for one that is damaged."""
    content = _read(name, directory)
    start = len(_MAGIC) + _DIGEST_BYTES
    payload = content[start:]
    return payload if content[:start] == _header(name, payload) else None


def _read(name: str, directory: int) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not _is_ours(status):
            return b""
        # The time of change says when an entry was last used; to the hour is enough.
        if time.time() - status.st_mtime > _HOUR:
            with contextlib.suppress(OSError):
                os.utime(descriptor)
        return file.read()


def _store(data: bytes, name: str, put: Callable[..., None]) -> None:
    """``put`` gives a file its name, as `os.replace` does."""
    path = folder()
    if path is None:
        return
    try:
        with _opened(path, create=True) as directory:
            _write(name, _header(name, data) + data, directory, put)
            _keep_within_limit(directory, len(data))
    except OSError as error:
        _warn_once(path, error)


def _link_unless_there(unfinished: str, name: str, src_dir_fd: int, dst_dir_fd: int) -> None:
    try:
        os.link(unfinished, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
    except FileExistsError:
        if _payload(name, dst_dir_fd) is None:
            os.replace(unfinished, name, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
    _remove(unfinished, src_dir_fd)


def _write(name: str, content: bytes, directory: int, put: Callable[..., None]) -> None:
    """Under another name first, so that no reader sees half an entry, whenever this process is stopped."""
    unfinished = f"{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(unfinished, flags, 0o600, dir_fd=directory), "wb") as file:
            file.write(content)
        # It is gone when another process has cleared the cache meanwhile.
        with contextlib.suppress(FileNotFoundError):
            put(unfinished, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        _remove(unfinished, directory)
        raise


def _remove(name: str, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


# -- the limit ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    last_used: float
    name: str
    bytes: int


def _entries(directory: int, unfinished_for: float) -> list[_Entry]:
    """All entries; what a process left unfinished so many seconds ago is removed."""
    entries = []
    with os.scandir(directory) as files:
        for file in files:
            if not (_ENTRY.fullmatch(file.name) or _UNFINISHED.fullmatch(file.name)):
                continue
            with contextlib.suppress(FileNotFoundError):
                status = file.stat(follow_symlinks=False)
                if _ENTRY.fullmatch(file.name):
                    entries.append(_Entry(status.st_mtime, file.name, status.st_size))
                elif time.time() - status.st_mtime >= unfinished_for:
                    _remove(file.name, directory)
    return entries


def _keep_within_limit(directory: int, stored: int) -> None:
    """Remove what was not used for longest. Looks at a process's first entry, then after every 16th of the limit."""
    global _stored_since_look
    _stored_since_look += stored
    if _stored_since_look < LIMIT_BYTES // 16:
        return
    _stored_since_look = 0
    entries = _entries(directory, unfinished_for=_HOUR)
    excess = sum(entry.bytes for entry in entries) - LIMIT_BYTES
    if excess <= 0:
        return
    excess += LIMIT_BYTES // 4
    for entry in sorted(entries, key=lambda entry: entry.last_used):
        if excess <= 0:
            break
        _remove(entry.name, directory)
        excess -= entry.bytes


_stored_since_look = LIMIT_BYTES


def _warn_once(path: Path, error: Exception) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        reason = getattr(error, "strerror", None) or error
        warnings.warn(
            f"compiled code is not kept in {path}: {reason}; set {FOLDER_VARIABLE} to a folder of yours, or to 'off'",
            RuntimeWarning,
            stacklevel=3,
        )


_has_warned = False

"""The data of large constants: lines ``resource "HASH" = "BASE64"`` at the end of a text, or a file beside it.

An operator says only the SHA-256 of the data, so that a text stays readable and complete in what it means. In a file
``g.eir`` the data lie in ``g.safetensors``, as bytes under their hash. Bytes with another hash are refused.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from euler_ir.absent import AbsentArray, content, content_hash
from euler_ir.dtypes import as_dtype
from euler_ir.errors import GraphError, ParseError
from euler_ir.files import write_file
from euler_ir.graph import Op
from euler_ir.text.literals import is_resource
from euler_ir.text.reader import Reader

_LINE = re.compile(r'^resource "([0-9a-f]{64})" = "([A-Za-z0-9+/=]*)"\n', re.MULTILINE)
_MARK = {"euler_ir": "resources of a text"}
"""Metadata by which a file of ours is told from one of the user's."""


def resource_lines(ops: Iterable[Op]) -> list[str]:
    """A line for each large array among the attributes of ``ops``, but for those whose data are not here."""
    lines: dict[str, str] = {}
    for array in _arrays(ops):
        if isinstance(array, np.ndarray) and is_resource(array):
            key = content_hash(array)
            if key not in lines:
                lines[key] = f'resource "{key}" = "{base64.b64encode(content(array)).decode()}"'
    return list(lines.values())


def read_resources(reader: Reader) -> dict[str, bytes]:
    """The data of the lines at the next token, by their hash."""
    found: dict[str, bytes] = {}
    while reader.accept("resource"):
        at = reader.token
        key = reader.string("the hash of a resource in double quotes")
        if key in found:
            raise reader.error(f"resource {key} is given twice", at.offset)
        reader.expect("=")
        at = reader.token
        try:
            data = base64.b64decode(reader.string("base64 in double quotes"), validate=True)
        except (binascii.Error, ValueError):
            raise reader.error("this is not base64", at.offset) from None
        if hashlib.sha256(data).hexdigest() != key:
            raise reader.error(f"these are not the data of sha256 {key}, but of another hash", at.offset)
        found[key] = data
    return found


def fill(ops: Iterable[Op], given: Mapping[str, bytes], filename: str) -> None:
    """Put the data into the attributes of ``ops`` that lack them: those ``given``, or of the file beside ``filename``.

    What is in neither stays absent. Raises ParseError for a file whose bytes are not what their hash says.
    """
    beside = _SideFile(filename)
    for op in ops:
        for name, array in op.attributes.items():
            if isinstance(array, AbsentArray):
                data = given[array.hash] if array.hash in given else beside.get(array.hash)
                found = beside.absent(array) if data is None else _restored(data, array, filename)
                op.attributes = MappingProxyType({**op.attributes, name: found})


def write_text(path: str | Path, text: str) -> None:
    """Write ``text``, of any level, to ``path``.

    Beside a path that ends in ``.eir`` the data of its resource lines go into the safetensors file.
    Raises GraphError where such a file is there that no text has written.
    """
    path = Path(path)
    if path.suffix != ".eir":
        write_file(path, text)
        return
    data = {key: np.frombuffer(base64.b64decode(coded), np.uint8) for key, coded in _LINE.findall(text)}
    if not data:
        write_file(path, text)
        return
    from safetensors.numpy import load_file, save

    beside, before = side_file(path), {}
    if beside.exists():
        if not _is_ours(beside):
            raise GraphError(
                f"{beside} is there already, and holds other data than constants", hint="choose another name"
            )
        before = load_file(beside)
    # Whenever this is stopped, the data of the text that is there then are beside it.
    write_file(beside, save(before | data, _MARK))
    write_file(path, _LINE.sub("", text))
    if before.keys() - data.keys():
        write_file(beside, save(data, _MARK))


def side_file(path: str | Path) -> Path:
    """Where the data of the text at ``path`` are: ``g.safetensors`` for ``g.eir``."""
    return Path(path).with_suffix(".safetensors")


class _SideFile:
    """The file beside a text, opened when the first data are wanted; without one it holds nothing."""

    def __init__(self, filename: str) -> None:
        self.path = side_file(filename) if Path(filename).suffix == ".eir" else None

    @functools.cached_property
    def _data(self) -> dict[str, np.ndarray]:
        if self.path is None or not self.path.is_file():
            return {}
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return load_file(self.path)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            raise ParseError(f"{self.path} is not a safetensors file that numpy can read: {error}") from None

    def get(self, key: str) -> bytes | None:
        if key not in self._data:
            return None
        data = self._data[key].tobytes()
        if hashlib.sha256(data).hexdigest() != key:
            raise ParseError(f"{self.path}: the data of sha256 {key} have another hash: the file was changed")
        return data

    def absent(self, array: AbsentArray) -> AbsentArray:
        """``array``, with the file where it should have been."""
        return array if self.path is None else replace(array, expected=str(self.path))


def _is_ours(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return file.metadata() == _MARK
    except (SafetensorError, OSError):
        return False


def _arrays(ops: Iterable[Op]) -> Iterable[np.ndarray | AbsentArray]:
    for op in ops:
        for name, kind in op.definition.attributes.items():
            if kind == "array":
                yield op.attributes[name]


def _restored(data: bytes, array: AbsentArray, filename: str) -> np.ndarray:
    wanted = as_dtype(array.dtype)
    fits = len(data) == math.prod(array.shape) * wanted.itemsize
    if not fits or (wanted.kind == "bool" and max(data) > 1):
        raise ParseError(
            f"{filename}: {len(data)} bytes are no data of {wanted}{list(array.shape)}: sha256 {array.hash}"
        )
    return np.frombuffer(data, wanted.numpy).reshape(array.shape)

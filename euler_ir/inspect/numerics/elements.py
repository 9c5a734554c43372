"""Which elements of its operands an element of a result is made of, and what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from euler_ir.dtypes import as_dtype
from euler_ir.graph import Op

Place = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """What an element is made of, of one operand: ``place`` holds an index for each axis, or None for a whole axis."""

    operand: int
    place: tuple[int | None, ...]
    array: np.ndarray

    def __str__(self) -> str:
        return f"[{', '.join(':' if index is None else str(index) for index in self.place)}]"

    def place_of(self, index: Place) -> Place:
        """The place in the whole operand of the element at ``index`` of ``array``."""
        rest = iter(index)
        return tuple(next(rest) if at is None else at for at in self.place)


def parts_read(op: Op, operands: Sequence[np.ndarray], index: Place) -> list[Part]:
    """What the element at ``index`` of a result of ``op`` is made of: for each operand that matters its part.

    Where that is not known more closely, a part is the whole operand.
    """
    places = _places(op, operands, index)
    return [
        Part(position, place, operands[position][tuple(slice(None) if at is None else at for at in place)])
        for position, place in places
    ]


def _places(op: Op, operands: Sequence[np.ndarray], index: Place) -> list[tuple[int, tuple[int | None, ...]]]:
    whole = [(position, (None,) * operand.ndim) for position, operand in enumerate(operands)]
    attributes, family = op.attributes, op.definition.family
    if family == "movement":
        return _moved_from(op, operands, index)
    if op.name in ("argmax", "argmin"):
        return [(0, _with_whole(index, (attributes["axis"],)))]
    if op.name == "cumsum":
        return [(0, _replaced(index, attributes["axis"], None))]
    if family == "reduction":
        return [(0, _with_whole(index, attributes["axes"]))]
    if op.name == "matmul":
        return _factors(op, operands, index)
    if op.name == "take":
        axis, rank = attributes["axis"], operands[1].ndim
        picked = index[axis : axis + rank]
        row = int(operands[1][picked])
        return [(0, (*index[:axis], row, *index[axis + rank :])), (1, picked)]
    if op.name in ("softmax", "log_softmax"):
        return [(0, _replaced(index, attributes["axis"], None))]
    if op.name == "layer_norm":
        return [(0, (*index[:-1], None)), (1, index[-1:]), (2, index[-1:])]
    if op.name == "rms_norm":
        return [(0, (*index[:-1], None)), (1, index[-1:])]
    if op.name == "cross_entropy":
        return [(0, (*index, None)), (1, index)]
    if op.name == "attention":
        batch = index[: operands[0].ndim - 2]
        sharing = [queries // keys for queries, keys in zip(operands[0].shape, operands[1].shape[:-2])]
        shared = tuple(place // count for place, count in zip(batch, sharing))
        query, key = (*index[: len(batch) + 1], None), (*shared, None, None)
        return [(0, query), (1, key), (2, key), *((3, query[:-1]) for _ in operands[3:])]
    if all(operand.shape == op.result.shape for operand in operands):
        return [(position, index) for position, _ in whole]
    return whole


def _with_whole(index: Place, axes: Sequence[int]) -> tuple[int | None, ...]:
    """``index`` with whole axes put in so that they come to stand at ``axes``."""
    place: list[int | None] = list(index)
    for axis in axes:
        place.insert(axis, None)
    return tuple(place)


def _replaced(index: Place, axis: int, by: int | None) -> tuple[int | None, ...]:
    return (*index[:axis], by, *index[axis + 1 :])


def _factors(op: Op, operands: Sequence[np.ndarray], index: Place) -> list[tuple[int, tuple[int | None, ...]]]:
    """The row and the column of a product; axes of the batch that are broadcast have one element."""
    batch, (row, column) = index[:-2], index[-2:]
    places = []
    for position, (at, side, first) in enumerate(((row, "left", True), (column, "right", False))):
        operand = operands[position]
        outer = batch[len(batch) - (operand.ndim - 2) :] if operand.ndim > 2 else ()
        outer = tuple(0 if size == 1 else at_batch for size, at_batch in zip(operand.shape, outer))
        along_rows = first != op.attributes[f"transpose_{side}"]
        places.append((position, (*outer, at, None) if along_rows else (*outer, None, at)))
    return places


def _moved_from(op: Op, operands: Sequence[np.ndarray], index: Place) -> list[tuple[int, tuple[int, ...]]]:
    """The one element that a movement brings to ``index``: the operator itself, run on positions, says which."""
    positions, start = [], 0
    for operand in operands:
        positions.append(np.arange(start, start + operand.size).reshape(operand.shape))
        start += operand.size
    found = int(op.definition.evaluate(op.attributes, *positions)[index])
    for position, operand in enumerate(operands):
        if found < operand.size:
            return [(position, tuple(map(int, np.unravel_index(found, operand.shape))))]
        found -= operand.size
    raise AssertionError("a movement brings each element from somewhere")


@dataclass(frozen=True)
class Operand:
    """What an op reads for one element: ``text`` says what stands at ``place`` of the value ``name``."""

    name: str
    type: str
    place: str
    text: str

    def record(self) -> dict:
        """All of it as JSON has it."""
        return {"name": f"%{self.name}", "type": self.type, "place": self.place, "holds": self.text}

    def __str__(self) -> str:
        return f"%{self.name}{self.place} = {self.text}"


def operands_read(op: Op, operands: Sequence[np.ndarray], index: Place) -> tuple[Operand, ...]:
    """What ``op`` reads to make the element at ``index``, in words; ``operands`` may be wider than their types."""
    found = []
    for part in parts_read(op, operands, index):
        value = op.operands[part.operand]
        found.append(Operand(value.name, str(value.type), str(part), _summary(part.array)))
    return tuple(found)


def _summary(array: np.ndarray) -> str:
    """An element, or what there is to say of many."""
    if array.size == 1:
        return shown(array.reshape(-1)[0])
    if not array.size:
        return "no elements"
    if not as_dtype(array.dtype).is_float:
        return f"{array.size} elements, {shown(array.min())} to {shown(array.max())}"
    finite = array[np.isfinite(array)]
    words = [f"{array.size} elements"]
    if finite.size:
        words.append(f"{shown(finite.min())} to {shown(finite.max())}")
    for what, count in (("NaN", np.isnan(array).sum()), ("infinite", np.isinf(array).sum())):
        if count:
            words.append(f"{count} {what}")
    return ", ".join(words)


def shown(number) -> str:
    """An element as messages show it: with as many digits as its type holds."""
    number = number[()] if isinstance(number, np.ndarray) else number
    if isinstance(number, (bool, np.bool_)):
        return str(bool(number)).lower()
    if isinstance(number, (int, np.integer)):
        return str(int(number))
    if isinstance(number, (np.float64, float)):
        return f"{float(number):.9g}"
    return f"{float(number):.{4 if number.dtype.itemsize == 2 else 8}g}"


def place_text(place: Sequence[int]) -> str:
    return f"[{', '.join(map(str, place))}]"


def as_json(number) -> float | int | bool | str:
    """An element as JSON can hold it: NaN and infinities as text."""
    number = number[()] if isinstance(number, np.ndarray) else number
    if isinstance(number, (bool, np.bool_)):
        return bool(number)
    if isinstance(number, (int, np.integer)):
        return int(number)
    value = float(number)
    return value if np.isfinite(value) else shown(value)

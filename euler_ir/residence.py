"""Where the newest elements of an array are that outlives calls: in the host's memory, or in that of a device."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Residence(Protocol):
    """Memory that can hold an array of a State while it is ``away``; all who use it there share one copy."""

    def give_back(self, kept: Kept, is_read: bool) -> None:
        """Make the host the owner of ``kept`` again: its array may be written, and unless ``is_read`` is False (all of
        it is about to be overwritten) holds the newest elements. Waits for those who write them. Does nothing when the
        host is the owner already. Raises ExecutionError for an index out of range in a run that wrote them.
        """
        ...


class Kept:
    """An array of a State. It never moves on the host; while it is ``away`` nobody may write it there."""

    __slots__ = ("__weakref__", "_is_writeable", "array", "away")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.away: Residence | None = None
        self._is_writeable = True

    def at_home(self) -> np.ndarray:
        """The array with its newest elements. From now on the host owns it."""
        if self.away is not None:
            self.away.give_back(self, is_read=True)
        return self.array

    def overwrite(self, array: np.ndarray) -> None:
        """Copy ``array``, of the same shape and dtype, over the elements, wherever the newest are."""
        if self.away is not None:
            self.away.give_back(self, is_read=False)
        self.array[...] = array

    def leave_for(self, residence: Residence) -> None:
        """The newest elements are with ``residence`` from now on."""
        self._is_writeable = self.array.flags.writeable
        self.array.flags.writeable = False
        self.away = residence

    def return_home(self) -> None:
        """The newest elements are on the host from now on."""
        self.array.flags.writeable = self._is_writeable
        self.away = None

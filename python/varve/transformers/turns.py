"""Turns: caches that are copies of one another share a native cache, which has one step at a time."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from varve._native import Cache, Error

if TYPE_CHECKING:
    from varve.transformers.store import Store


class Turns:
    """What the stores on one native cache have together: whose turn it is, and sequences that wait to be freed.

    Copies take turns forward by forward. A forward that was broken off stays open until its store goes on; when another
    store takes its turn, that forward is rolled back first.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._last: weakref.ref[Store] | None = None  # whose turn it is
        self._left: list[int] = []  # sequences without a store, which could not be freed yet

    def take(self, store: Store) -> None:
        """Nothing of another store is open behind this."""
        last = None if self._last is None else self._last()
        if last is not None and last is not store:
            last.abort()
        self._last = weakref.ref(store)
        self.free_left()

    def free(self, sequences: list[int]) -> None:
        """Now, or as soon as the native cache can: not while a step of another store is open, or an observer runs."""
        for sequence in sequences:
            try:
                self.cache.free(sequence)
            except Error as error:
                if error.code != "not found":  # else the program has freed it
                    self._left.append(sequence)

    def free_left(self) -> None:
        if self._left:
            left, self._left = self._left, []
            self.free(left)

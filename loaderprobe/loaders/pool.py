"""The batches of a user's sampler: a pool of them repeatedly, or always new ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import lcm
from typing import Any

from loaderprobe.batches import length_of

# Indices of batches, which are small; a day of training has fewer.
MOST_KEPT = 1_000_000


class Pool:
    """The first batches of a sampler, repeated; or, where repeated ones would be warm, always new ones.

    Every worker must get the same batches in each repetition, so the pool is a whole multiple of their number.
    """

    def __init__(self, source: Any, workers: int) -> None:
        self._source = source
        self._multiple = max(1, workers)
        self._kept: list[Any] = []
        self._numbers: list[int] = []
        self._again: list[list[Any]] = []
        self._fresh = False
        self._seen: set[Any] = set()
        self.size = 0
        """Number of batches in the pool; 0 while more may be added."""
        self.odd = 0
        """Number of batches left out because their length differs from the first."""
        self.laps = 0
        """Number of restarts of the sampler while new batches were wanted: its files may then be warm."""

    def __len__(self) -> int:
        """Practically infinite, because sub-classes of DataLoader may count their batches."""
        return sys.maxsize

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the sampler: sub-classes of DataLoader read its own sampler, or set its epoch."""
        if name.startswith("__") or name == "_source":
            raise AttributeError(name)
        return getattr(self._source, name)

    def close(self) -> None:
        """Fix the pool at the batches requested so far, once each worker has one."""
        if not self.size and len(self._kept) >= self._multiple:
            self.size = len(self._kept) // self._multiple * self._multiple

    def in_sequence(self) -> bool:
        """Whether most samples follow the one before, as in a set that is not shuffled; or where none has a number."""
        batches = [batch if hasattr(batch, "__iter__") else [batch] for batch in self._kept]
        drawn = [index for batch in batches for index in batch]
        steps = [second - first for first, second in pairwise(drawn) if _counts(first) and _counts(second)]
        return 2 * steps.count(1) >= len(steps)

    def left(self) -> float:
        """New batches left in this epoch of the sampler, as far as its length is known."""
        length = length_of(self._source)
        return float("inf") if length is None else max(0, length - len(self._kept) - self.odd)

    def take_new(self) -> None:
        """From now on yield only new batches."""
        self._fresh, self._again = True, []

    def repeat(self, count: int) -> None:
        """From now on repeat the last `count` batches, each for the worker that had it before."""
        last = list(zip(self._numbers, self._kept, strict=True))[-max(count, 2 * self._multiple) :]
        lanes: list[list[Any]] = [[] for _ in range(self._multiple)]
        for number, batch in last:
            lanes[number % self._multiple].append(batch)
        self._again = [lane or [batch for _, batch in last] for lane in lanes]

    def __iter__(self) -> Iterator[Any]:
        source = iter(self._source)
        number = 0
        while True:
            if self._again:
                lane = self._again[number % self._multiple]
                yield lane[number // self._multiple % len(lane)]
            elif self._fresh or not self.size:
                source, batch = self._new(source, number)
                if batch is None:
                    return
                yield batch
            else:
                yield self._kept[number % self.size % len(self._kept)]
            number += 1

    def _new(self, source: Iterator[Any], number: int) -> tuple[Iterator[Any], Any]:
        """The next batch of full length; the sampler restarts when it ends, unless the pool holds all its batches."""
        while True:
            batch = next(source, None)
            if batch is None:
                if not self._kept:
                    return source, None
                if not self._fresh:
                    self._whole()
                    return iter(()), self._kept[len(self._kept) % self.size % len(self._kept)]
                self.laps += 1
                source = iter(self._source)
            elif self._kept and _length(batch) != _length(self._kept[0]):
                self.odd += 1  # the last batch of an epoch is a short one
            else:
                if len(self._kept) < MOST_KEPT:
                    self._kept.append(batch)
                    self._numbers.append(number)
                self._note(batch)
                return source, batch

    def _note(self, batch: Any) -> None:
        """A sampler may go on for ever, or draw with replacement: what it has given before is not new."""
        indices = [index for index in (batch if isinstance(batch, Sequence) else [batch]) if isinstance(index, int)]
        if self._fresh and indices and 2 * len(self._seen.intersection(indices)) > len(indices):
            self.laps += 1
        self._seen.update(indices)

    def _whole(self) -> None:
        """The sampler has ended: the pool is all its batches, repeated until each worker has as many."""
        whole = len(self._kept) // self._multiple * self._multiple
        self.size = whole or lcm(len(self._kept), self._multiple)


def _counts(index: Any) -> bool:
    return hasattr(index, "__index__") and not isinstance(index, bool)


def _length(batch: Any) -> int:
    return len(batch) if isinstance(batch, Sequence) else 1

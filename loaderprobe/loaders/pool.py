"""The batches of a user's sampler: first a pool of them again and again, or always new ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import lcm
from typing import Any

# Indices of batches, which are small; a day of training has fewer.
MOST_KEPT = 1_000_000


class Pool:
    """The first batches of a sampler, and then those again and again; or, where they would be warm, always new ones.

    Every worker must get the same batches each time round, so the pool is a whole multiple of their number.
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
        """Batches of the pool; 0 while more may be added."""
        self.odd = 0
        """Batches left out, since they are not of the length of the first."""
        self.laps = 0
        """How often the sampler has begun again while new batches were wanted: its files may then be warm."""

    def __len__(self) -> int:
        """Without end: sub-classes of DataLoader may count how many batches there are."""
        return sys.maxsize

    def __getattr__(self, name: str) -> Any:
        """What else a sampler has: sub-classes of DataLoader ask theirs for its own sampler, or set its epoch."""
        if name.startswith("__") or name == "_source":
            raise AttributeError(name)
        return getattr(self._source, name)

    def close(self) -> None:
        """Add no more batches than are asked for by now, as soon as each worker has one."""
        if not self.size and len(self._kept) >= self._multiple:
            self.size = len(self._kept) // self._multiple * self._multiple

    def left(self) -> float:
        """New batches that the sampler still has in this epoch, as far as it knows how many there are."""
        try:
            return max(0, len(self._source) - len(self._kept) - self.odd)
        except (TypeError, NotImplementedError):
            return float("inf")

    def take_new(self) -> None:
        """From now on yield batches that have not been yielded before."""
        self._fresh, self._again = True, []

    def repeat(self, count: int) -> None:
        """From now on yield the last `count` batches again and again, each to the worker that had it before."""
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
        """The next batch of full length; the sampler begins again when it ends, unless the pool is what it gave."""
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
        """The sampler has no more: the pool is all there is, repeated until each worker has as many."""
        whole = len(self._kept) // self._multiple * self._multiple
        self.size = whole or lcm(len(self._kept), self._multiple)


def _length(batch: Any) -> int:
    return len(batch) if isinstance(batch, Sequence) else 1

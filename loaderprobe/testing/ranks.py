"""Fakes of what ranks share: a store, and a group whose ranks are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from loaderprobe.errors import LostRank

PATIENCE_S = 20.0
"""A rank that does not come is a failed test."""


class FakeStore:
    """A store in memory, for threads too. Once it is `gone`, no call is answered."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.gone = False
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self._answer()
        self.held[key] = value

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        self._answer()
        return self.held[key].encode()

    def check(self, keys: list[str]) -> bool:
        """True when all are there."""
        self._answer()
        return all(key in self.held for key in keys)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set the key if it has the expected value, or none where that is empty."""
        self._answer()
        with self._lock:
            if self.held.get(key, "") == expected_value:
                self.held[key] = desired_value
            return self.held[key].encode()

    def _answer(self) -> None:
        if self.gone:
            raise LostRank("the store does not answer")


class _Table:
    """Where the ranks of one group meet."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.given: list[Any] = [None] * size


class FakeGroup:
    """One rank of a group; each is used by a thread of its own."""

    def __init__(self, table: _Table, rank: int) -> None:
        self._table, self._rank = table, rank
        self.meetings = 0

    @classmethod
    def of(cls, size: int) -> Sequence[FakeGroup]:
        """All ranks of one group."""
        table = _Table(size)
        return [cls(table, rank) for rank in range(size)]

    @property
    def rank(self) -> int:
        """The number of this rank in its group, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        return len(self._table.given)

    def most(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        """Of each value the largest; raises LostRank."""
        given = self._all(values)
        assert len({len(each) for each in given}) == 1, "ranks ask for different things"
        return tuple(map(max, zip(*given, strict=True)))

    def gathered(self, value: bytes) -> tuple[bytes, ...]:
        """What each rank gives, on rank 0."""
        given = self._all(value)
        return tuple(given) if self._rank == 0 else ()

    def broadcast(self, value: bytes) -> bytes:
        """What rank 0 gives."""
        first: bytes = self._all(value)[0]
        return first

    def leave(self) -> None:
        """The others lose this rank, now or when they next meet."""
        self._table.barrier.abort()

    def _all(self, value: Any) -> list[Any]:
        """What each rank gives now."""
        self.meetings += 1
        self._table.given[self._rank] = value
        try:
            self._table.barrier.wait(PATIENCE_S)
            given = list(self._table.given)
            self._table.barrier.wait(PATIENCE_S)
        except threading.BrokenBarrierError as error:
            raise LostRank("another rank does not answer") from error
        return given

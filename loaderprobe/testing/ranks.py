"""Fakes of what ranks share: a store, and a group whose ranks are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from loaderprobe.errors import LostRank

PATIENCE_S = 20.0
"""Seconds after which a rank that does not arrive fails the test."""


class FakeStore:
    """A store in memory, for threads too. Once it is `gone`, no call is answered."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.gone = False
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        self._answer()
        self.values[key] = value

    def get(self, key: str) -> bytes:
        self._answer()
        return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        self._answer()
        return all(key in self.values for key in keys)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        self._answer()
        with self._lock:
            if self.values.get(key, "") == expected_value:
                self.values[key] = desired_value
            return self.values[key].encode()

    def _answer(self) -> None:
        if self.gone:
            raise LostRank("the store does not answer")


class _Table:
    """The barrier of the ranks of one group, and what each brings to it."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.answers: list[Any] = [None] * size


class FakeGroup:
    """One rank of a group; each is used by a thread of its own."""

    def __init__(self, table: _Table, rank: int) -> None:
        self._table, self._rank = table, rank
        self.calls = 0

    @classmethod
    def of(cls, size: int) -> Sequence[FakeGroup]:
        """All ranks of one group."""
        table = _Table(size)
        return [cls(table, rank) for rank in range(size)]

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return len(self._table.answers)

    def all_reduce_max(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        answers = self._all(values)
        assert len({len(answer) for answer in answers}) == 1, "ranks ask for different things"
        return tuple(map(max, zip(*answers, strict=True)))

    def gather(self, value: bytes) -> tuple[bytes, ...]:
        answers = self._all(value)
        return tuple(answers) if self._rank == 0 else ()

    def broadcast(self, value: bytes) -> bytes:
        first: bytes = self._all(value)[0]
        return first

    def leave(self) -> None:
        """The others lose this rank, now or at their next call."""
        self._table.barrier.abort()

    def _all(self, value: Any) -> list[Any]:
        """The value of each rank, on all ranks."""
        self.calls += 1
        self._table.answers[self._rank] = value
        try:
            self._table.barrier.wait(PATIENCE_S)
            answers = list(self._table.answers)
            self._table.barrier.wait(PATIENCE_S)
        except threading.BrokenBarrierError as error:
            raise LostRank("another rank does not answer") from error
        return answers

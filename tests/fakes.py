"""Fakes of what ranks share, and records of a machine; `loaderprobe.testing` has those of what others may plug in."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from loaderprobe.errors import LostRank
from loaderprobe.records.environment import Environment, StorageLocation
from loaderprobe.records.remark import Remark


def example_location(path: str) -> StorageLocation:
    """A local disk that counts its reads."""
    return StorageLocation(
        path=path, filesystem="ext4", kind="block", mount="/data", source="/dev/vdb1", devices=("vdb",)
    )


def example_environment() -> Environment:
    """Two cores of a virtual machine, without a GPU."""
    return Environment(
        loaderprobe="0.1.0",
        python="3.11.7",
        torch="2.9.0",
        torchvision="0.24.0",
        kernel="6.1.0-28-amd64",
        cpu_model="AMD EPYC 7B13",
        cores_total=16,
        cores_available=2.0,
        memory_bytes=16_800_000_000,
        shared_memory_bytes=64_000_000,
        gpus=(),
        gpu_reason=Remark(code="nvml_not_started", facts={"error": "NVML Shared Library Not Found"}),
        storage=(example_location("/data/imagenet-like"),),
    )


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


class FakeGroup:
    """One rank of a group; each is used by a thread of its own."""

    def __init__(self, rank: int, answers: list[Any], barrier: threading.Barrier) -> None:
        """`answers` has what each rank brings to the `barrier`."""
        self.rank, self._answers, self._barrier = rank, answers, barrier
        self.calls = 0

    @classmethod
    def of(cls, size: int) -> Sequence[FakeGroup]:
        """All ranks of one group."""
        answers, barrier = [None] * size, threading.Barrier(size)
        return [cls(rank, answers, barrier) for rank in range(size)]

    @property
    def size(self) -> int:
        return len(self._answers)

    def all_reduce_max(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        answers = self._all(values)
        assert len({len(answer) for answer in answers}) == 1, "ranks ask for different things"
        return tuple(map(max, zip(*answers, strict=True)))

    def gather(self, value: bytes) -> tuple[bytes, ...]:
        answers = self._all(value)
        return tuple(answers) if self.rank == 0 else ()

    def broadcast(self, value: bytes) -> bytes:
        first: bytes = self._all(value)[0]
        return first

    def leave(self) -> None:
        """The others lose this rank, now or at their next call."""
        self._barrier.abort()

    def _all(self, value: Any) -> list[Any]:
        """The value of each rank, on all ranks."""
        self.calls += 1
        self._answers[self.rank] = value
        try:
            self._barrier.wait(PATIENCE_S)
            answers = list(self._answers)
            self._barrier.wait(PATIENCE_S)
        except threading.BrokenBarrierError as error:
            raise LostRank("another rank does not answer") from error
        return answers

"""How the ranks of one training meet, and where they leave word for each other."""

from __future__ import annotations

from typing import Protocol


class SharedStore(Protocol):
    """Where ranks leave word for each other: torch's store. No call waits for a rank."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        ...

    def check(self, keys: list[str]) -> bool:
        """True when all are there."""
        ...

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set the key if it has the expected value, or none where that is empty; returns the value it has then."""
        ...


class Crew(Protocol):
    """All ranks of a training. Each call is made by all of them, and waits for all.

    Raises LostRank when one does not come.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def most(self, *values: int, leaving: bool = False) -> tuple[int, ...]:
        """Of each value the largest that a rank gives. A rank that is `leaving` does not wait for long."""
        ...

    def gathered(self, value: bytes) -> tuple[bytes, ...]:
        """What each rank gives, in their order, on rank 0; empty on the others."""
        ...

    def broadcast(self, value: bytes) -> bytes:
        """What rank 0 gives."""
        ...

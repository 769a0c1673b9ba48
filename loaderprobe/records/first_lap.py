"""The first batches of a loader of one's own: what they cost, and what the same batches cost once more."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.checks import check_at_least

TIME_AGAIN = 0.6
"""Batches that take less than this share of the time when they are made again were kept, in part at least."""
LEAST_SAVED_S = 0.05
"""Of the workers in all: less than this is no more than noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLap:
    """The first batches of a loader of one's own, taken while its files were as found and its data set was new.

    Sums over the batches, the first of each worker left out.
    """

    images: int
    wall_s: float
    """Of the workers, as are the other times; without the time that they waited for a core."""
    cpu_s: float
    read_bytes: int
    """From storage."""
    called_bytes: int
    """Returned by read calls, from storage, memory or a pipe."""
    again_wall_s: float
    """Of the same batches made once more, after their files had been evicted as far as they are known."""
    again_cpu_s: float
    again_read_bytes: int

    def __post_init__(self) -> None:
        check_at_least("first batches", self, dict.fromkeys(self.__dataclass_fields__, 0))

    @property
    def saved_s(self) -> float:
        """Worker time that making the batches again took less."""
        return self.wall_s - self.again_wall_s

    @property
    def quicker(self) -> bool:
        """True when samples were kept, in part at least: made again they take much less, and more than noise."""
        return self.again_wall_s < TIME_AGAIN * self.wall_s and self.saved_s >= LEAST_SAVED_S

"""What decides on the next trial: the rounds of a measurement, the sizes of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop
from loaderprobe.records.measurement import Activity, Measurement, Mode


class NextRound(Protocol):
    """Chooses the next segments from the measurement so far; none ends the measurement."""

    def __call__(self, measurement: Measurement, *, thorough: bool) -> tuple[tuple[Mode, Activity], ...]: ...


class BatchSizeProber(Protocol):
    """Trains a copy of a model with batches of a given size."""

    def probe(self, batch_size: int) -> BatchSizeProbe:
        """Train some steps; where memory ends, a probe that does not fit. Raises BadValue when the model fails."""


class BatchSizeStrategy(Protocol):
    """Chooses batch sizes to try. It keeps nothing between calls: all it knows are the probes."""

    def next(self, probes: Sequence[BatchSizeProbe]) -> int | BatchSizeStop:
        """The next size to try after these, in the order in which they were made, or the end of the search."""

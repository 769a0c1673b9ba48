"""What workers waited for while they made batches, from samples of their threads at random moments.

A sample has the kind of a wait, not its length: shares of samples divide the waiting time that clocks measured.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.records.resources import RESOURCE, WAITED
from loaderprobe.records.waits import WAIT_KINDS, WaitKind

# Fewer samples say nothing about shares.
LEAST_SAMPLES = 12
Z_95 = 1.96
RESOURCE_OF = {kind: name for name in WAITED for kind in RESOURCE[name].waits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Looks at workers while they made batches."""

    samples: int
    kinds: Mapping[WaitKind, int]
    """Looks by kind, `running` left out."""
    subjects: Mapping[str, str] = field(default_factory=dict)
    """By resource, the one that was met most often: a file, a peer, a lock."""
    unknown: bool = False
    """True where only state letters could be read, so that waiting without a kind may be for anything."""

    @property
    def waited(self) -> int:
        """Looks at a worker that waited."""
        return sum(self.kinds.values())

    def count(self, resource: str) -> int:
        """Looks at a worker that waited for this."""
        return sum(count for kind, count in self.kinds.items() if RESOURCE_OF[kind] == resource)

    def share(self, resource: str) -> float:
        """Of all waiting."""
        return self.count(resource) / self.waited if self.waited else 0.0

    def least(self, resource: str) -> float:
        """The lower end of the share's 95 % interval."""
        return _wilson(self.count(resource), self.waited, -1.0) if self.waited else 0.0

    def most(self, resource: str) -> float:
        """The upper end of the share's 95 % interval, with what may be of any kind."""
        may_be = self.count(resource) + (self.kinds.get("other", 0) if self.unknown else 0)
        return _wilson(may_be, self.waited, 1.0) if self.waited else 1.0


def _wilson(count: int, of: int, side: float) -> float:
    """One end of Wilson's interval (1927), which holds for shares near 0 and 1 and for few samples."""
    share = count / of
    middle = share + Z_95**2 / (2 * of)
    half = Z_95 * math.sqrt(share * (1 - share) / of + Z_95**2 / (4 * of * of))
    return min(1.0, max(0.0, (middle + side * half) / (1 + Z_95**2 / of)))


def waiting_of(measurement: Measurement, segments: Iterable[Segment]) -> Waiting | None:
    """Of the batches of these segments; None with too few samples."""
    seen = measurement.waits
    if seen is None:
        return None
    spans = _spans(measurement, segments)
    kinds: Counter[WaitKind] = Counter()
    subjects: Counter[tuple[str, str]] = Counter()
    samples = 0
    for time_ns, worker, kind, subject in zip(seen.time_ns, seen.worker, seen.kind, seen.subject, strict=True):
        begins, ends = spans.get(worker, ([], []))
        place = bisect_right(begins, time_ns) - 1
        if place < 0 or time_ns > ends[place]:
            continue  # between two batches: idle
        samples += 1
        name = WAIT_KINDS[kind]
        if name != "running":
            kinds[name] += 1
            if subject >= 0:
                subjects[RESOURCE_OF[name], seen.subjects[subject]] += 1
    if samples < LEAST_SAMPLES:
        return None
    met = {resource: name for (resource, name), _ in reversed(subjects.most_common())}
    return Waiting(samples=samples, kinds=kinds, subjects=met, unknown=seen.letters_only is not None)


def _spans(measurement: Measurement, segments: Iterable[Segment]) -> dict[int, tuple[list[int], list[int]]]:
    """By worker, when batches of these segments were begun and ended."""
    records = measurement.worker_batches
    wanted = {number for s in segments for number in range(s.first_batch, s.first_batch + s.steps)}
    found: dict[int, list[tuple[int, int]]] = {}
    for number, worker, start, wall in zip(
        records.batch, records.worker, records.start_ns, records.wall_ns, strict=True
    ):
        if number in wanted:
            found.setdefault(worker, []).append((start, start + wall))
    return {
        worker: ([begin for begin, _ in sorted(each)], [end for _, end in sorted(each)])
        for worker, each in found.items()
    }

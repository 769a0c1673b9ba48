"""What one of several ranks saw of a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.checks import check_equal_lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSeen:
    """What one of several ranks saw, by its own clock. Columns have an entry a segment of the measurement."""

    rank: int
    node: int
    host: str
    device: str
    """The GPU's UUID; empty without one."""
    cores: float
    """Available to it: those of its node, or of its affinity, shared evenly."""
    span_ns: tuple[int, ...]
    """From the first step of a segment to the end of its last, or of the device."""
    input_ns: tuple[int, ...]
    """In `next()`, mean of the steps."""
    meet_ns: tuple[int, ...]
    """Waiting for the other ranks, with a batch in hand; mean of the steps of a `loader_only` segment, 0 elsewhere."""
    steps: tuple[int, ...]
    """The same on all ranks, except where each was alone."""
    delivered_bytes: tuple[int | None, ...]
    disk_bytes: tuple[int | None, ...]
    """None on all ranks of a node but its first."""
    service_ns: tuple[int, ...]
    """Wall time in a worker of batches of the `alone` segments, in order; at most MOST_SERVICES."""
    read_bytes: tuple[int | None, ...] = ()
    """From storage, by the rank's workers for the batches of each segment: whether it was cold, or warm, on each rank.
    None where reads are not counted; empty where that was not kept."""

    def __post_init__(self) -> None:
        check_equal_lengths(f"rank {self.rank}", self, COLUMNS, optional=("read_bytes",))


COLUMNS = ("span_ns", "input_ns", "meet_ns", "steps", "delivered_bytes", "disk_bytes", "read_bytes")
"""With an entry a segment."""
MOST_SERVICES = 128

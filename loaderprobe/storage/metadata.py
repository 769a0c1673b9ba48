"""Opens/s and stats/s of the sample's files: the first limit where every image is a file.

Evicting files leaves their names and inodes in memory, and listing a folder brings them there. Only dropping all
caches of the machine makes them cold, so that is done where the user asked for it (`--drop-caches`) and at no other
time; without it the figure is of warm metadata and says so. Reading nothing, it drops before every pass over the files.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from loaderprobe.records.bandwidth import RISING, MetadataLabel, MetadataOperation, MetadataPhase
from loaderprobe.records.environment import StorageLocation
from loaderprobe.storage.files import Piece, Sample
from loaderprobe.storage.phase import BUSY_SHARE, Total, latency, more, nothing_read, own_reads
from loaderprobe.storage.reader import ReadRequest, ThreadEngine, steady_slices
from loaderprobe.system.device import NFS, server_name_calls

OPERATIONS: tuple[MetadataOperation, ...] = ("open", "stat")
READERS = (1, 4, 16, 64)
MOUNTSTATS = Path("/proc/self/mountstats")
LEAST_INODE_BYTES = 128
"""Of an inode on disk (ext2, the smallest of the usual ones): a cold operation reads at least its share of a block of
them. Fewer bytes an operation mean that memory answered."""
MOST_DROPS = 5
"""For one phase: dropping takes seconds where memory is large, and slows down every other program."""
SETTLED_AT = 0.1
"""A phase ends when half its 95 % interval is within this share of the rate."""
STEADY_S = 1.0
"""From here on the start of a pass, with the device's saved credit, is left out. A shorter one counts whole."""
WARM_OPERATIONS = 10_000
"""At least so many in a pass over names in memory, of which few take no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataSettings:
    """What one phase does, and for how long."""

    operation: MetadataOperation = "open"
    readers: int = 1
    sample: Sample
    location: StorageLocation
    cores_available: float
    seconds: float
    """Shortest duration, dropping left out."""
    longest_s: float
    """Longest duration, dropping included, for a phase whose rate has not settled."""
    seed: int
    drop_all: Callable[[], None] | None


def metadata_ladder(settings: MetadataSettings, readers: Sequence[int] | None) -> Iterator[MetadataPhase]:
    """Opens, then stats, at these numbers of readers; without any, at four times as many until that gains nothing.

    Raises what `run_metadata` raises.
    """
    files = len(_files(settings.sample))
    steps = readers or [count for count in READERS if count == 1 or 4 * count <= files]
    for operation in OPERATIONS:
        best = 0.0
        for count in steps:
            phase = run_metadata(replace(settings, operation=operation, readers=count))
            yield phase
            if not readers and phase.ops_per_s < RISING * best:
                break
            best = max(best, phase.ops_per_s)


def run_metadata(settings: MetadataSettings) -> MetadataPhase:
    """Open or stat every file once after each drop, until the rate is known, the time is up or drops are enough.

    Raises BadValue or MissingPart when no file could be reached, MissingPart when dropping is not permitted.
    """
    total, drops, begun = Total(), 0, time.perf_counter()
    left: Sequence[Piece] = ()
    while not _done(settings, total, drops < MOST_DROPS or bool(left), time.perf_counter() - begun):
        if not left and settings.drop_all:
            settings.drop_all()
            drops += 1
        left = left or _pass(settings, total)
        before = own_reads(), _server_calls(settings.location)
        reading = ThreadEngine().read(left, _order(settings, total))
        left = left[reading.taken :]
        if len(reading.piece_ns):
            whole = [(reading.seconds, float(reading.size_bytes.sum()))]
            total.add(
                reading,
                steady_slices(reading) if reading.seconds >= STEADY_S else whole,
                storage=more(own_reads(), before[0]),
                calls=more(_server_calls(settings.location), before[1]),
            )
        elif not total.slices:
            raise nothing_read(Counter(reading.unread.values()))
    return _figures(settings, total, drops)


def _files(sample: Sample) -> list[Piece]:
    """One piece for each file."""
    return list({piece.path: piece for piece in sample.pieces}.values())


def metadata_label(
    location: StorageLocation, drops: int, storage_bytes: int | None, server_calls: int | None, operations: int
) -> MetadataLabel:
    """`cold` only where names and inodes were dropped, and a count shows that they came back from outside memory."""
    if not drops or location.in_memory:
        return "warm"
    if location.counts_reads and storage_bytes is not None:
        return "cold" if storage_bytes >= LEAST_INODE_BYTES * operations else "warm"
    if server_calls is not None:
        return "cold" if server_calls >= operations else "warm"
    return "unproved"


def _pass(settings: MetadataSettings, total: Total) -> Sequence[Piece]:
    """The files in a new random order; in memory they are gone through several times, since few take no time."""
    pieces = _files(settings.sample)
    random.Random(settings.seed + total.runs).shuffle(pieces)
    return pieces if settings.drop_all else pieces * -(-WARM_OPERATIONS // len(pieces))


def _order(settings: MetadataSettings, total: Total) -> ReadRequest:
    seconds = max(settings.seconds - total.seconds, settings.seconds / 2, ThreadEngine.least_s)
    return ReadRequest(readers=settings.readers, seconds=seconds, operation=settings.operation)


def _done(settings: MetadataSettings, total: Total, may_go_on: bool, elapsed_s: float) -> bool:
    if not total.slices:
        return False
    enough = total.seconds >= 0.98 * settings.seconds and total.settled(SETTLED_AT)
    return enough or elapsed_s >= settings.longest_s or not may_go_on


def _server_calls(location: StorageLocation) -> int | None:
    return server_name_calls(location.mount, MOUNTSTATS) if location.filesystem in NFS else None


def _figures(settings: MetadataSettings, total: Total, drops: int) -> MetadataPhase:
    taken = np.concatenate(total.piece_ns)
    rate, half = total.bw_bytes, total.half_width if total.knows_interval else 0.0
    storage = total.counted["storage"] if settings.location.counts_reads else None
    calls = total.counted["calls"]
    cpu_cores = total.cpu_s / total.seconds
    return MetadataPhase(
        operation=settings.operation,
        readers=settings.readers,
        runtime=1e3 * total.seconds,
        total_ops=len(taken),
        ops_per_s=rate,
        ops_low=max(0.0, rate - half),
        ops_high=rate + half,
        op_ns=latency(taken),
        drops=drops,
        storage_bytes=storage,
        server_calls=calls,
        metadata=metadata_label(settings.location, drops, storage, calls, len(taken)),
        cpu_cores=cpu_cores,
        # Threads of one interpreter: one core's worth of CPU may be all that they can use.
        at_least=cpu_cores > BUSY_SHARE * min(1.0, settings.cores_available),
        unread=dict(Counter(total.unread.values())),
        short=drops > 0 and total.seconds < STEADY_S * drops,
    )

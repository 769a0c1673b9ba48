"""One phase of the probe: runs of reads, opens or stats until the rate is known well enough, then its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.protocols import Clock
from loaderprobe.records import by_key
from loaderprobe.records.bandwidth import MetadataLabel, MetadataOperation, MetadataPhase
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.phases import PERCENTILES, BandwidthPhase, CacheLabel, Latency, PhaseName
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import CEILING_COLD_AT_LEAST, WARM_AT_MOST
from loaderprobe.stats import median
from loaderprobe.storage.files import Piece
from loaderprobe.storage.reader import (
    PIECES_A_READER,
    Column,
    ProcessEngine,
    ReadEngine,
    Reading,
    ReadOrder,
    Supply,
    in_a_row,
    steady_slices,
)
from loaderprobe.system.device import name_calls, reads_from_storage
from loaderprobe.system.objects import DENIED, TRANSIENT
from loaderprobe.system.process import io_counters

SETTLED_AT = 0.05
"""A phase ends when half its 95 % interval is within this share of the rate."""
BUSY_SHARE = 0.7
"""Python's threads were as fast as C up to this share of the cores."""
SHORT_S = 1.0
LEAST_RUN_S = 0.1
"""Shortest useful run of reads."""
# A few small files are read in no time; more repetitions would measure the eviction.
MOST_ROUNDS = 40
REPEATS_FASTER = 1.25
"""Later passes over the same files that are faster than the first by this were served by a cache below."""
LEAST_PASS_S = 0.05
FAST_BYTES_PER_S = 2e9
FAST_FILES_PER_S = 30_000
"""Above these rates, threads of one interpreter may be the limit."""
LEAST_FOR_PROCESSES_S = 0.2
"""Of a set that is read in less, processes would show their start only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSettings:
    """The files, pattern and duration of one phase."""

    name: PhaseName = "files"
    """Of a phase of reads."""
    engine: ReadEngine
    supply: Supply
    location: StorageLocation
    cores_available: float
    order: ReadOrder
    """Its seconds are the shortest duration of the phase; of opens and stats without dropping."""
    longest_s: float
    """Longest duration, seconds, for a phase whose rate has not settled; of opens and stats with dropping."""

    def read(self, pieces: Sequence[Piece], total: Reading) -> Reading:
        """The first run lasts the shortest duration of the phase, later ones at least half of that.

        In shorter runs the moments at which a throttled device grants reads would outweigh its rate.
        """
        seconds = max(self.order.seconds - total.seconds, self.order.seconds / 2, LEAST_RUN_S)
        return self.engine.read(pieces, replace(self.order, seconds=seconds))


def read_until(
    done: Callable[[Reading], bool],
    settings: PhaseSettings,
    *,
    least: int = 1,
    counters: Callable[[], Mapping[str, int | None]],
    slices: Callable[[Reading], list[tuple[float, float]]] = steady_slices,
) -> tuple[Reading, list[Reading]]:
    """Runs of reads, opens or stats over what is supplied, at `least` so many pieces, until it is `done`: (all, each).

    The clock of the total stops while files are evicted again. Raises BadValue or MissingPart when the first run, or
    two in a row, reached no file: one may have had a single file that has vanished.
    """
    total, runs, supply, reached = Reading(seconds=0.0), list[Reading](), settings.supply, False
    while not done(total):
        pieces, before = supply.ahead(least), counters()
        reading = settings.read(pieces, total)
        before_too, reached = reached, bool(len(reading.read_ns))
        if not reached and not before_too:
            raise nothing_read(Counter(reading.unread.values()))
        supply.take(reading.taken)
        if not reached:
            continue
        risen = {name: more(after, before[name]) for name, after in counters().items()}
        counted = {**risen, **reading.counted}
        runs.append(replace(reading, slices=slices(reading), evictions=supply.rounds, counted=counted))
        total = in_a_row(runs)
    return total, runs


def run_phase(settings: PhaseSettings) -> BandwidthPhase:
    """Read until the rate has settled or the time is up.

    Raises BadValue or MissingPart when no file could be read.
    """
    supply, rounds = settings.supply, settings.supply.rounds
    least, seconds = PIECES_A_READER * settings.order.readers, settings.order.seconds
    supply.ahead(least)
    resident = supply.resident()

    def done(total: Reading) -> bool:
        if total.slices and supply.rounds - rounds >= MOST_ROUNDS:
            return True
        long = total.seconds >= 0.98 * seconds
        return long and (total.settled(SETTLED_AT) or total.seconds >= 0.98 * settings.longest_s)

    def counters() -> Mapping[str, int | None]:
        return {"own": own_reads(), "storage": reads_from_storage(settings.location)}

    return _phase(settings, *read_until(done, settings, least=least, counters=counters), resident)


def run_fastest(settings: PhaseSettings) -> BandwidthPhase:
    """`run_phase`; where threads may be the limit, with processes, too, and the faster of the two counts.

    Both together last no longer than the longest duration, or the shortest each. Of a set that is read in less than
    `LEAST_FOR_PROCESSES_S` the storage delivers at least what threads get.
    """
    threads = run_phase(settings)
    count = min(int(settings.cores_available), threads.readers)
    fast = threads.bw_bytes > FAST_BYTES_PER_S or threads.files_per_s > FAST_FILES_PER_S or threads.at_least
    if not fast or count < 2 or settings.order.pause_s_per_byte or settings.location.kind == "object":
        return threads
    size_bytes = sum(piece.size_bytes for piece in settings.supply.sample.pieces)
    if size_bytes <= threads.bw_bytes * LEAST_FOR_PROCESSES_S:
        return replace(threads, at_least=True)
    left_s = max(settings.order.seconds, settings.longest_s - threads.runtime / 1e3)
    try:
        processes = run_phase(replace(settings, engine=ProcessEngine(count), longest_s=left_s))
    except (LoaderprobeError, OSError) as error:
        settings.supply.spoil()
        failed = Remark(code="no_processes", facts={"error": str(error)})
        return replace(threads, at_least=True, notes=(*threads.notes, failed))
    return max(threads, processes, key=lambda phase: phase.bw_bytes)


def more(after: int | None, before: int | None) -> int | None:
    """What a counter has risen by; None where it could not be read."""
    return None if before is None or after is None else after - before


def own_reads() -> int | None:
    """Bytes that this process and its ended children read from storage."""
    return io_counters(Path("/proc/self")).get("read_bytes")


def nothing_read(unread: Counter[str]) -> BadValue | MissingPart:
    """The error to raise when no file or object could be reached, for these reasons."""
    reasons = (f"{count} {reason}" for reason, count in unread.items())
    why = ", ".join(reasons) or "the readers ended without an error message"
    if set(unread) <= {"no read permission", *DENIED} and unread:
        return MissingPart(
            f"no permission to read any of the files ({why})", hint="run as a user, or with credentials, that may read"
        )
    return BadValue(f"none of the files could be read ({why})", hint="keep the files in place while they are read")


def _phase(settings: PhaseSettings, total: Reading, runs: Sequence[Reading], resident: float | None) -> BandwidthPhase:
    of_all = total.counted["storage"]
    own_bytes = total.counted["own"] if settings.location.counts_reads else None
    others = None if own_bytes is None or of_all is None else max(0, of_all - own_bytes)
    # A network file system that counts for the whole mount includes other processes' reads.
    storage_bytes = own_bytes if settings.location.counts_reads else of_all
    share = storage_bytes / total.delivered_bytes if storage_bytes is not None and total.delivered_bytes else None
    # Blocks of a file that is read in part leave the rest of it cold, and direct reads do not ask the page cache.
    in_memory = 0.0 if settings.order.direct or settings.supply.sample.block_bytes else resident or 0.0
    label: CacheLabel = "remote" if settings.location.kind == "object" else cache_label(share, in_memory)
    rate, half = total.bw_bytes, total.half_width
    a_file = settings.supply.sample.pieces_a_file
    cpu_cores = total.cpu_s / total.seconds
    third = max(1, len(total.rates) // 3)
    return BandwidthPhase(
        name=settings.name,
        engine=settings.engine.name,
        readers=settings.order.readers,
        block_bytes=settings.supply.sample.block_bytes,
        pause_s_per_byte=settings.order.pause_s_per_byte,
        runtime=1e3 * total.seconds,
        io_bytes=total.delivered_bytes,
        bw_bytes=rate,
        bw_low=max(0.0, rate - half),
        bw_high=rate + half,
        settled=total.settled(SETTLED_AT),
        iops=rate * total.ios / total.delivered_bytes,
        total_ios=total.ios,
        files_per_s=rate / (total.delivered_bytes / max(1, total.pieces)) / a_file,
        clat_ns=latency(total.read_ns),
        file_ns=latency(total.piece_ns) if len(total.piece_ns) and a_file == 1 else None,
        storage_bytes=storage_bytes,
        cold_fraction=None if share is None else min(share, 1 - in_memory if label == "mixed" else 1.0),
        amplification=share if label == "cold" else None,
        other_bytes_per_s=None if others is None else others / total.seconds,
        resident_before=resident,
        cache=label,
        first_third_bw_bytes=sum(total.rates[:third]) / third,
        last_third_bw_bytes=sum(total.rates[-third:]) / third,
        cpu_cores=cpu_cores,
        at_least=cpu_cores > BUSY_SHARE * settings.cores_available,
        unread=dict(Counter(total.unread.values())),
        notes=_notes(total, runs, settings.cores_available),
    )


def cache_label(share: float | None, in_memory: float) -> CacheLabel:
    """`cold`, `warm` or `mixed` from the share of bytes that came from storage; `unproved` when not counted.

    Not `cold` where more of the files was `in_memory` before: storage gives whole pages, which may be more than
    the bytes of small files.
    """
    if share is None:
        return "unproved"
    cold = min(share, 1 - in_memory) >= CEILING_COLD_AT_LEAST
    return "cold" if cold else "warm" if share < WARM_AT_MOST else "mixed"


def latency(values_ns: Column) -> Latency:
    """Distribution of durations; `values_ns` must not be empty."""
    percentiles: Sequence[float] = np.percentile(values_ns, [float(percentile) for percentile in PERCENTILES]).tolist()
    return Latency(
        min=float(values_ns.min()),
        max=float(values_ns.max()),
        mean=float(values_ns.mean()),
        stddev=float(values_ns.std()),
        N=len(values_ns),
        percentile=dict(zip(PERCENTILES, percentiles, strict=True)),
    )


def _notes(total: Reading, runs: Sequence[Reading], cores_available: float) -> tuple[Remark, ...]:
    retried = {kind: total.counted.get(kind) for kind in TRANSIENT}
    notes = [Remark(code="requests_retried", facts={"requests": n, "why": kind}) for kind, n in retried.items() if n]
    notes += _repeats(runs)
    if total.seconds < SHORT_S:
        notes.append(Remark(code="short_reading", facts={"seconds": total.seconds}))
    cores = total.cpu_s / total.seconds
    if cores > BUSY_SHARE * cores_available:
        notes.append(Remark(code="probe_busy", facts={"cores": cores, "cores_available": cores_available}))
    return tuple(notes)


def _repeats(runs: Sequence[Reading]) -> list[Remark]:
    """Whether repeats were faster than the very first pass, which only a cache below this machine explains."""
    passes = {number: in_a_row(group) for number, group in by_key(runs, lambda run: run.evictions).items()}
    first, rates = passes.pop(1, None), [reading.delivered_bytes / reading.seconds for reading in passes.values()]
    if first is None or first.seconds < LEAST_PASS_S or not rates:
        return []
    before, after = first.delivered_bytes / first.seconds, median(rates)
    if after < REPEATS_FASTER * before:
        return []
    return [Remark(code="repeats_faster", facts={"first_bytes_per_s": before, "again_bytes_per_s": after})]


# Opens/s and stats/s of the sample's files: the first limit where every image is a file.
#
# Evicting files leaves their names and inodes in memory, and listing a folder brings them there. Only dropping all
# caches of the machine makes them cold, so that is done where the user asked for it (`--drop-caches`) and at no other
# time; without it the figure is of warm metadata and says so. As nothing is read, it drops before every pass over all.

LEAST_INODE_BYTES = 128
"""Of an inode on disk (ext2, the smallest of the usual ones): a cold operation reads at least its share of a block of
them. Fewer bytes an operation mean that memory answered."""
MOST_DROPS = 5
"""For one phase: dropping takes seconds where memory is large, and slows down every other program."""
NAMES_SETTLED_AT = 0.1
"""Of opens and stats, as `SETTLED_AT`."""
STEADY_S = 1.0
"""From here on the start of a pass, with the device's saved credit, is left out. A shorter one counts whole."""
WARM_OPERATIONS = 10_000
"""At least so many in a pass over names in memory, of which few take no time."""


def run_metadata(settings: PhaseSettings, operation: MetadataOperation, clock: Clock) -> MetadataPhase:
    """Open or stat every file once after each drop, until the rate is known, the time is up or drops are enough.

    Raises BadValue or MissingPart when no file could be reached, MissingPart when dropping is not permitted.
    """
    begin_ns, drops = clock.now_ns(), settings.supply.drop_all is not None
    # One for each file.
    pieces = list({piece.path: piece for piece in settings.supply.sample.pieces}.values())
    if not drops:
        # In memory they are gone through several times, since few take no time.
        pieces *= -(-WARM_OPERATIONS // len(pieces))
    supply = replace(settings.supply, sample=replace(settings.supply.sample, pieces=tuple(pieces)), cache=None)

    def done(total: Reading) -> bool:
        enough = total.seconds >= 0.98 * settings.order.seconds and total.settled(NAMES_SETTLED_AT)
        late = (clock.now_ns() - begin_ns) / 1e9 >= settings.longest_s
        most_drops = drops and supply.rounds == MOST_DROPS and not supply.left
        return bool(total.slices) and (enough or late or most_drops)

    total, _ = read_until(
        done,
        replace(settings, supply=supply, order=replace(settings.order, operation=operation)),
        counters=lambda: {"storage": own_reads(), "calls": name_calls(settings.location)},
        slices=partial(steady_slices, least_s=STEADY_S),
    )
    return _figures(settings, operation, total, supply.rounds if drops else 0)


def metadata_label(
    location: StorageLocation, drops: int, storage_bytes: int | None, server_calls: int | None, operations: int
) -> MetadataLabel:
    """`cold` only where names and inodes were dropped, and a count shows that they came back from outside memory."""
    if not drops and server_calls is not None and server_calls >= operations:
        return "asked"
    if not drops or location.in_memory:
        return "warm"
    if location.counts_reads and storage_bytes is not None:
        return "cold" if storage_bytes >= LEAST_INODE_BYTES * operations else "warm"
    if server_calls is not None:
        return "cold" if server_calls >= operations else "warm"
    return "unproved"


def _figures(settings: PhaseSettings, operation: MetadataOperation, total: Reading, drops: int) -> MetadataPhase:
    taken = total.piece_ns
    rate, half = total.bw_bytes, total.half_width if total.knows_interval else 0.0
    storage = total.counted["storage"] if settings.location.counts_reads else None
    calls = total.counted["calls"]
    cpu_cores = total.cpu_s / total.seconds
    return MetadataPhase(
        operation=operation,
        readers=settings.order.readers,
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

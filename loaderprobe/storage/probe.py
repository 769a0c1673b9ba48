"""The bandwidth probe: a ladder of readers, each leg cold and proved by bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.errors import BadValue
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import BANDWIDTH_SCHEMA, BandwidthLeg, BandwidthReport
from loaderprobe.records.environment import StorageLocation
from loaderprobe.stats import quantile
from loaderprobe.storage.files import Sample, sample_files, scratch_file
from loaderprobe.storage.reader import Reading, read_pieces
from loaderprobe.system.cpu import cores_available
from loaderprobe.system.device import locate
from loaderprobe.system.process import read_process

BANDWIDTH_VERSION = 1
LIMIT_BYTES = 2 * 10**9
COLD_AT_LEAST = 0.9
WARM_AT_MOST = 0.05
# Python's threads were faithful to the device up to this share of the cores.
PROBE_BOUND_SHARE = 0.7
SHORT_SECONDS = 1.0
# A handful of small files is read in no time; going round more often would measure the eviction.
MOST_LAPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probing: where, with what, for how long."""

    location: StorageLocation
    sample: Sample
    seconds: float
    cache: PageCache

    def leg(self, readers: int) -> BandwidthLeg:
        """Evict exactly the files used, read them, and say from bytes how cold they were.

        Each file is read once after an eviction; when all are read before the time is up, the clock
        stops while they are evicted again.
        """
        reading, resident, storage_bytes = Reading(), None, 0
        counted = self.location.counts_reads
        while reading.seconds < self.seconds and reading.laps < MOST_LAPS:
            self.cache.evict(self.sample.paths)
            resident = self.cache.resident(self.sample.paths) if reading.laps == 0 else resident
            before = _own_reads()
            reading.add(read_pieces(self.sample.pieces, readers=readers, seconds=self.seconds - reading.seconds))
            after = _own_reads()
            counted = counted and before is not None and after is not None
            storage_bytes += (after or 0) - (before or 0)
        return BandwidthLeg(
            readers=readers,
            seconds=reading.seconds,
            files=len(reading.latency_s) - reading.short,
            delivered_bytes=reading.delivered_bytes,
            storage_bytes=storage_bytes if counted else None,
            bytes_per_s=reading.delivered_bytes / reading.seconds,
            files_per_s=(len(reading.latency_s) - reading.short) / reading.seconds,
            latency_p50_s=quantile(reading.latency_s, 0.5),
            latency_p99_s=quantile(reading.latency_s, 0.99),
            resident_before=resident,
            cache=cache_label(storage_bytes if counted else None, reading.delivered_bytes),
            probe_bound=reading.cpu_s > PROBE_BOUND_SHARE * cores_available() * reading.seconds,
            note=_note(reading),
        )


def probe_bandwidth(
    path: Path, *, readers: Sequence[int], seconds: float, seed: int, cache: PageCache,
    progress: Callable[[int, int], None], scratch_bytes: int | None = None, limit_bytes: int = LIMIT_BYTES,
) -> BandwidthReport:  # fmt: skip
    """Read a random sample of the files under `path` with each number of readers. Writes nothing unless asked.

    Raises BadValue when there is nothing to read, MissingPart when it may not be read, NoSpace for a
    scratch file that does not fit.
    """
    if not readers or min(readers) < 1:
        raise BadValue("the number of readers must be 1 or more", hint="--readers 1,2,4,8,16")
    if seconds <= 0:
        raise BadValue("reading takes time: the seconds must be more than 0", hint="--seconds 3")
    if scratch_bytes is not None:
        with scratch_file(path, scratch_bytes, seed) as sample:
            return _report(path, sample, readers, seconds, cache, progress, scratch=True)
    sample = sample_files(path, limit_bytes=limit_bytes, seed=seed)
    return _report(path, sample, readers, seconds, cache, progress, scratch=False)


def _report(
    path: Path, sample: Sample, readers: Sequence[int], seconds: float, cache: PageCache,
    progress: Callable[[int, int], None], *, scratch: bool,
) -> BandwidthReport:  # fmt: skip
    location = locate(path)
    probe = Probe(location=location, sample=sample, seconds=seconds, cache=cache)
    legs: list[BandwidthLeg] = []
    for done, count in enumerate(readers):
        progress(done, len(readers))
        legs.append(probe.leg(count))
    progress(len(readers), len(readers))
    return BandwidthReport(
        schema=BANDWIDTH_SCHEMA,
        schema_version=BANDWIDTH_VERSION,
        path=os.fspath(path.absolute()),
        location=location,
        files_found=sample.found,
        files_used=len(sample.pieces),
        mean_size_bytes=sum(piece.size_bytes for piece in sample.pieces) / len(sample.pieces),
        images=sample.images,
        scratch=scratch,
        legs=tuple(legs),
        notes=sample.notes,
    )


def cache_label(storage_bytes: int | None, delivered_bytes: int) -> str:
    """`cold`, `warm` or `mixed` from the share of bytes that came from storage; `unproved` when not counted."""
    if storage_bytes is None or delivered_bytes == 0:
        return "unproved"
    share = storage_bytes / delivered_bytes
    return "cold" if share >= COLD_AT_LEAST else "warm" if share < WARM_AT_MOST else "mixed"


def _note(reading: Reading) -> str:
    notes = []
    if reading.short:
        notes.append(f"{reading.short} files vanished or shrank while being read")
    if reading.seconds < SHORT_SECONDS:
        notes.append(f"only {reading.seconds:.2f} s of reading: give it more files for a steadier figure")
    return "; ".join(notes)


def _own_reads() -> int | None:
    counters = read_process(os.getpid())
    return counters.read_bytes if counters else None

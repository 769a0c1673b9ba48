"""The storage under a sweep's data: what it delivers to as many readers as there are workers, and its kind."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaderprobe.analyze.ladder import kind_of
from loaderprobe.analyze.verdict.judge import Judged
from loaderprobe.errors import DamagedRun, LoaderprobeError
from loaderprobe.measure.runner import Order
from loaderprobe.protocols import PageCache
from loaderprobe.records.diagnosis import BatchFiles, LoaderFiles, UnknownFiles
from loaderprobe.records.files import FileSet, PartFiles
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import FROM_STORAGE, StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import BY_REQUESTS
from loaderprobe.records.verdict import Evidence
from loaderprobe.storage.files import LARGE_BLOCK_BYTES, Piece, Sample, blocks, locate_pieces
from loaderprobe.storage.phase import PhaseSettings, run_fastest
from loaderprobe.storage.probe import ONE_INTERPRETER, ObjectEngine, ProbeRequest, probe_bandwidth, probe_objects
from loaderprobe.storage.reader import ReadEngine, ReadOrder, Supply, ThreadEngine
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.system.device import locate_root, reads_from_storage
from loaderprobe.system.host import SystemClock
from loaderprobe.system.limits import cores_available
from loaderprobe.system.objects import open_store
from loaderprobe.system.pagecache import LinuxPageCache

# Of the storage at one concurrency.
CEILING_S = 1.5
CEILING_LONGEST_S = 5.0
CEILING_SHARE = 0.2
# What separates kinds: one reader, a few, many, and one that pauses.
KIND_READERS = (1, 4, 16)
KIND_S = 1.0
# What separates bytes/s from requests/s: small files and large ones.
SIZE_READERS, LARGER = 4, 1.3
# Five phases that may each take five times their shortest time.
KIND_LONGEST_S = 25.0


def measure_ceiling(run: RunDirectory, order: Order, measured: Measurement) -> None:
    """Measure what the storage delivers to as many readers as `order` has workers, right after it has run.

    Only where it may matter: for the rest it would explain nothing.
    """
    if not (order.config.cache == "cold" or order.files.remote) or order.config.nodes > 1:
        return  # what one node gets is no ceiling of several
    most_readers = max(config.readers for config in run.record.spec.configs if config.nodes == 1)
    if not (order.thorough or order.config.readers == most_readers or Judged(measurement=measured).storage_matters()):
        return
    known = _known(run, order.config.data)
    longest_s = CEILING_LONGEST_S if order.budget_s is None else order.budget_s * CEILING_SHARE
    ceiling = raise_ceiling(
        known,
        order.files,
        order.config.readers,
        seconds=CEILING_S,
        longest_s=min(CEILING_LONGEST_S, max(CEILING_S, longest_s)),
        cache=LinuxPageCache(),
    )
    if ceiling != known:
        run.save_ceiling(ceiling)


def name_kinds(run: RunDirectory, left_s: float | None) -> None:
    """Find out the kind of storage under each data set that storage holds back, as far as time is left."""
    for config in run.record.spec.configs:
        known, measured = _known(run, config.data), run.result(config.key)
        if known is None or known.kind is not None or not isinstance(measured, Measurement):
            continue
        if not (config.cache == "cold" or measured.is_remote) or not Judged(measurement=measured).storage_matters():
            continue
        if left_s is None or left_s > KIND_LONGEST_S:
            left_s = None if left_s is None else left_s - KIND_LONGEST_S
            with suppress(DamagedRun):  # without its files there is no kind; the report says so
                run.save_ceiling(_with_kind(known, run.files(config.data)))


def _known(run: RunDirectory, data: str) -> StorageCeiling | None:
    """A ceiling that cannot be read is measured again."""
    try:
        return run.ceiling(data)
    except DamagedRun:
        return None


def ceiling_of(measured: Measurement, files: LoaderFiles, cache: PageCache) -> StorageCeiling | None:
    """What the storage under a loader's own files delivers to as many readers as it has workers, on all ranks.

    None where no advice could rest on it, or no file is known.
    """
    cold = measured.config.cache == "cold"
    if isinstance(files, UnknownFiles) or not cold or not Judged(measurement=measured).storage_advised:
        return None
    readers = measured.config.readers
    return raise_ceiling(None, files, readers, seconds=CEILING_S, longest_s=CEILING_S, cache=cache)


def _with_kind(known: StorageCeiling, files: FileSet) -> StorageCeiling:
    request = ProbeRequest(path=files.folder, readers=KIND_READERS, seconds=KIND_S)
    common: dict[str, Any] = {"on_phase": lambda *_: None, "clock": SystemClock()}
    try:
        if files.remote:
            measured = probe_objects(files.root, request, sample=sample_of(files), **common)
        else:
            measured = probe_bandwidth(request, cache=LinuxPageCache(), **common)
    except (LoaderprobeError, OSError) as error:
        failed = Remark(code="kind_failed", facts={"error": str(error)})
        return replace(known, missing=known.missing or failed)
    kind = kind_of(measured)
    if kind.kind in ("token_bucket", "single_server") and not files.remote and files.layout == "files":
        kind = replace(kind, evidence=(*kind.evidence, *_by_file_size(files)))
    return replace(known, kind=kind)


def _by_file_size(files: FileSet) -> Iterator[Evidence]:
    """How far the rate of the largest quarter of the files is above that of the smallest, for how much larger they are.

    None where they are of about one size, or cannot be seen to come from storage.
    """
    order = sorted(range(files.count), key=files.size_bytes.__getitem__)
    quarter = max(1, len(order) // 4)
    ends = [files.chosen(numbers) for numbers in (order[:quarter], order[-quarter:])]
    larger = ends[1].mean_size_bytes / ends[0].mean_size_bytes
    probed = [
        raise_ceiling(None, end, SIZE_READERS, seconds=KIND_S, longest_s=KIND_S, cache=LinuxPageCache()).at(
            SIZE_READERS
        )
        for end in (ends if larger > LARGER else ())
    ]
    rates = [phase.bw_bytes for phase in probed if phase and phase.cache in FROM_STORAGE]
    if len(rates) == 2:
        share = math.log(rates[1] / rates[0]) / math.log(larger)
        yield Evidence(metric="rate_by_file_size", value=share, threshold=BY_REQUESTS, unit="")


MOST_BLOCKS, MOST_LISTED = 2048, 50_000


def raise_ceiling(
    known: StorageCeiling | None, files: FileSet | BatchFiles | PartFiles, readers: int, *, seconds: float,
    longest_s: float, cache: PageCache,
) -> StorageCeiling:  # fmt: skip
    """`known` with a phase at concurrency `readers` added: whole files or objects, in random order, cold.

    Of files that are read in parts a random sample of blocks of 1 MB: storage delivers about its maximum at that block
    size, and a loader with smaller reads gets no more. If it cannot be measured, `missing` has the reason.
    KeyboardInterrupt is passed on.
    """
    known = known or StorageCeiling(data=files.fingerprint if isinstance(files, FileSet) else "", phases=())
    if known.at(readers):
        return known
    engine: ReadEngine
    try:
        sample = sample_of(files, seed=readers)
        if not sample.pieces:
            return replace(known, missing=Remark(code="files_empty"))
        if isinstance(files, FileSet) and files.remote:
            engine, supply = ObjectEngine(open_store(files.root), sample), Supply(sample, None, seed=readers)
            location, cores = locate_root(files.root), ONE_INTERPRETER
        else:
            engine, supply = ThreadEngine(), Supply(sample, cache, seed=readers)
            location, cores = locate_pieces(sample.pieces[0].path.parent, sample.pieces), cores_available()
            if not location.counts_reads and reads_from_storage(location) is None:
                uncounted = Remark(code="filesystem_not_counted", facts={"filesystem": location.filesystem})
                return replace(known, missing=uncounted)
        settings = PhaseSettings(
            engine=engine, supply=supply, location=location, cores_available=cores, longest_s=longest_s,
            order=ReadOrder(readers=readers, seconds=seconds),
        )  # fmt: skip
        return replace(known, phases=(*known.phases, run_fastest(settings)), missing=None)
    except (LoaderprobeError, OSError) as error:
        return replace(known, missing=Remark(code="ceiling_failed", facts={"error": str(error)}))


def sample_of(files: FileSet | BatchFiles | PartFiles, *, seed: int = 0) -> Sample:
    """All of these files or objects, whole; blocks at random, by `seed`, of those that are read in parts."""
    folder = files.folder if isinstance(files, FileSet) and not files.remote else Path()
    sizes = files.file_bytes.items()
    pieces = [Piece(path=folder / path, offset=0, size_bytes=size) for path, size in sizes if size]
    in_parts = bool(files.whole_bytes) if isinstance(files, FileSet) else isinstance(files, PartFiles)
    if in_parts:
        # Of some TB, those at equal distances: all would be millions.
        step = LARGE_BLOCK_BYTES * (1 + sum(size for _, size in sizes) // (MOST_LISTED * LARGE_BLOCK_BYTES))
        every = [part for piece in pieces for part in blocks(piece.path, piece.size_bytes, step)]
        chosen = random.Random(seed).sample(every, min(len(every), MOST_BLOCKS))
        pieces = [replace(part, size_bytes=min(LARGE_BLOCK_BYTES, part.size_bytes)) for part in chosen]
    return Sample(pieces=tuple(pieces), block_bytes=LARGE_BLOCK_BYTES if in_parts else None)

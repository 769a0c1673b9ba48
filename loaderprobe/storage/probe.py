"""The bandwidth probe: a ladder of concurrencies, opens and stats, then direct, sequential and paced reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.policy import Ask, Ended, follow
from loaderprobe.protocols import Clock, OnStage, PageCache
from loaderprobe.records.bandwidth import BandwidthMeasurement, MetadataOperation, MetadataPhase
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Missing
from loaderprobe.records.phases import BandwidthPhase, Engine, PhaseName, fastest
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import WORTH
from loaderprobe.storage.files import (
    BLOCK_BYTES,
    LARGE_FILE_BYTES,
    Piece,
    Sample,
    choose,
    in_parts,
    locate_pieces,
    sample_files,
    scratch_file,
)
from loaderprobe.storage.phase import PhaseSettings, run_fastest, run_metadata
from loaderprobe.storage.reader import (
    PIECES_A_READER,
    ReadEngine,
    Reading,
    ReadOrder,
    ReadRun,
    Supply,
    ThreadEngine,
    why_not_direct,
)
from loaderprobe.system.limits import cores_available
from loaderprobe.system.objects import TRANSIENT, UNSIZED, ObjectStore, open_store
from loaderprobe.system.pagecache import why_unknown

MOST_READERS = 128
LONGEST = 5.0
"""A phase whose rate has not settled ends after this many times its shortest duration."""
PAUSE = 2.0
"""Pause after a file, as a multiple of its reading time: token-bucket devices then answer at once."""
USUAL, USUAL_STEPS = 2.5, 6
"""Duration of a phase over its shortest, and steps of a ladder that ends by itself. From: on two busy cores 13 phases
took 84 and 106 s, and 8 of 1 s 28 and 30 s."""
METADATA_READERS = (1, 4, 16, 64)
METADATA_LONGEST = 3.0
METADATA_SHARE = 0.6
"""Duration of a phase of opens or stats over that of a phase of reads: three slices of steady part, by default."""

FAILED = "phase_failed"
_WORDS: dict[str, str] = {"direct": "past the page cache", "sequential": "sequential", "paced": "with pauses"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """The path to probe, and the settings of the probe."""

    path: Path = Path()
    """Not of objects."""
    readers: tuple[int, ...] | None = None
    """Concurrencies of the ladder; None doubles from 1 on until the rate stops rising."""
    seconds: float = 3.0
    """Length of a phase; up to five times that while its rate has not settled."""
    scratch_bytes: int | None = None
    seed: int = 0
    drop_all: Callable[[], None] | None = None
    """Empties all caches of the machine; None drops exactly the files read."""
    metadata: bool = False
    """Also opens/s and stats/s; cold with `drop_all` only."""

    def __post_init__(self) -> None:
        if self.readers is not None and min(self.readers) < 1:
            raise BadValue("concurrency must be 1 or more", hint="--readers 1,2,4,8,16")
        if self.scratch_bytes is not None and self.scratch_bytes < BLOCK_BYTES:
            raise BadValue("a scratch file must have at least 128 KiB", hint="--scratch 1GB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A phase of reads to measure, or of opens or stats."""

    name: PhaseName | Literal["metadata"]
    readers: int
    pause_s_per_byte: float = 0.0
    operation: MetadataOperation | None = None
    """With `metadata`."""


OPERATIONS: tuple[MetadataOperation, ...] = ("open", "stat")
OF_DEVICE: tuple[PhaseName, ...] = ("direct", "sequential", "paced")
"""What is read last, in this order."""
Measured = BandwidthPhase | MetadataPhase | Missing
"""What came of a step; `Missing` ends what it is part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePolicy:
    """The ladder of concurrencies, opens and stats at some of them, then direct, sequential and paced reads.

    Without concurrencies that were asked for, the ladder doubles them until two doublings together gain next to
    nothing, opens and stats take four times as many until that gains nothing.
    """

    readers: tuple[int, ...] | None = None
    metadata: bool = False
    files: int = 1
    """That opens and stats have."""

    def next(self, done: Sequence[tuple[Step, Measured]], spent_s: float) -> Ask[Step] | Ended:
        results = [measured for _, measured in done]
        missing = {result.name for result in results if isinstance(result, Missing)}
        ladder = [result for result in results if isinstance(result, BandwidthPhase) and result.name == "files"]
        # The most that may follow: most ladders end before their last step.
        names_left = self.metadata * len(OPERATIONS) * len(self._names_steps())
        step: Step | None = self._rung(ladder) if "files" not in missing else None
        left = len(self._rungs()) - len(ladder) + names_left + len(OF_DEVICE)
        if step is None and self.metadata and "metadata" not in missing:
            phases = [result for result in results if isinstance(result, MetadataPhase)]
            step, left = self._names(phases), names_left - len(phases) + len(OF_DEVICE)
        if step is None:
            names = [name for name in OF_DEVICE if name not in [step.name for step, _ in done]]
            if not names:
                return "complete"
            step, left = self._of_device(names[0], ladder), len(names)
        return Ask(what=step, done=len(results), total=len(results) + left)

    def _rungs(self) -> Sequence[int]:
        return self.readers or [2**power for power in range(MOST_READERS.bit_length())]

    def _names_steps(self) -> Sequence[int]:
        """As many as the files can occupy."""
        usual = [count for count in METADATA_READERS if count == 1 or PIECES_A_READER * count <= self.files]
        return self.readers or usual

    def _rung(self, ladder: Sequence[BandwidthPhase]) -> Step | None:
        steps = self._rungs()
        rates = [phase.bw_bytes for phase in ladder]
        flat = not self.readers and len(rates) > 2 and max(rates[-2:]) < WORTH * max(rates[:-2])
        return None if flat or len(rates) == len(steps) else Step(name="files", readers=steps[len(rates)])

    def _names(self, phases: Sequence[MetadataPhase]) -> Step | None:
        steps = self._names_steps()
        for operation in OPERATIONS:
            rates = [phase.ops_per_s for phase in phases if phase.operation == operation]
            flat = not self.readers and len(rates) > 1 and rates[-1] < WORTH * max(rates[:-1])
            if not flat and len(rates) < len(steps):
                return Step(name="metadata", operation=operation, readers=steps[len(rates)])
        return None

    def _of_device(self, name: PhaseName, ladder: Sequence[BandwidthPhase]) -> Step:
        if name != "paced":
            best = fastest(ladder)
            assert best
            return Step(name=name, readers=best.readers)
        alone = next((phase for phase in ladder if phase.readers == 1), None)
        return Step(name=name, readers=1, pause_s_per_byte=PAUSE / alone.bw_bytes if alone else 0.0)


def usual_seconds(readers: Sequence[int] | None, seconds: float) -> float:
    """What a probe usually takes with these concurrencies, or those that it finds, and phases so long."""
    steps, names = (len(readers),) * 2 if readers else (USUAL_STEPS, len(METADATA_READERS) // 2)
    return USUAL * seconds * (steps + METADATA_SHARE * len(OPERATIONS) * names + len(OF_DEVICE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Measures the phases of one probe."""

    request: ProbeRequest
    location: StorageLocation
    supply: Supply
    engine: ReadEngine = field(default_factory=ThreadEngine)
    cores: float
    clock: Clock

    def measure(self, step: Step) -> Measured:
        """One phase, or why there is none. Raises what reading raises."""
        reason = self._impossible(step)
        if reason:
            return Missing(name=step.name, reason=reason)
        supply, direct, seconds = self.supply, step.name == "direct", self.request.seconds
        longest_s = seconds if step.name == "paced" else LONGEST * seconds
        in_a_row = supply.sample.sequential() if step.name == "sequential" else None
        if in_a_row:
            direct = why_not_direct(supply.sample.pieces) is None
            # It may read into the page cache what a later phase must read cold.
            supply.spoil()
            supply = replace(supply, sample=in_a_row, shuffled=False)
        if step.name == "metadata":
            seconds *= METADATA_SHARE
            longest_s = METADATA_LONGEST * seconds
        settings = PhaseSettings(
            name="files" if step.name == "metadata" else step.name,
            engine=self.engine,
            supply=supply,
            location=self.location,
            cores_available=self.cores,
            order=ReadOrder(
                readers=step.readers, seconds=seconds, direct=direct, pause_s_per_byte=step.pause_s_per_byte
            ),
            longest_s=longest_s,
        )
        return run_metadata(settings, step.operation, self.clock) if step.operation else run_fastest(settings)

    def _impossible(self, step: Step) -> Remark | None:
        name, sample = step.name, self.supply.sample
        if self.location.kind == "object" and name in ("metadata", "direct", "sequential"):
            return Remark(code="not_of_objects")
        if name == "metadata":
            return Remark(code="opens_of_blocks") if sample.block_bytes is not None else None
        files, least = len(sample.pieces), PIECES_A_READER * step.readers
        if name == "files" and not self.request.readers and files < least and step.readers > 1:
            return Remark(code="too_few_files", facts={"files": files, "readers": step.readers})
        if name == "direct":
            return why_not_direct(sample.pieces)
        if name == "sequential" and sample.sequential() is None:
            return Remark(code="no_large_file")
        if name == "paced" and not step.pause_s_per_byte:
            return Remark(code="no_single_reader")
        return None


def probe_bandwidth(
    request: ProbeRequest, *, cache: PageCache, on_phase: OnStage, clock: Clock
) -> BandwidthMeasurement:
    """Run all phases on a random sample of the files under a path. Writes nothing except a requested scratch file.

    KeyboardInterrupt keeps the finished phases, if any. Raises BadValue when there is nothing to read, MissingPart
    without read permission, NoSpace for a scratch file that does not fit.
    """
    if request.scratch_bytes is not None:
        written: AbstractContextManager[Sample] = scratch_file(request.path, request.scratch_bytes, request.seed)
    else:
        written = nullcontext(sample_files(request.path, seed=request.seed))
    with written as sample:
        supply = Supply(sample, cache, seed=request.seed, drop_all=request.drop_all)
        location = locate_pieces(request.path, sample.pieces)
        probe = Probe(request=request, location=location, supply=supply, cores=cores_available(), clock=clock)
        return run_probe(probe, str(request.path.absolute()), on_phase)


def run_probe(probe: Probe, path: str, on_phase: OnStage, missing: Sequence[Missing] = ()) -> BandwidthMeasurement:
    """All phases of a probe; `missing` is what was known before to be no part of it."""
    request, supply, location, sample = probe.request, probe.supply, probe.location, probe.supply.sample
    policy = ProbePolicy(readers=request.readers, metadata=request.metadata, files=len(sample.paths))
    begun: list[BandwidthPhase] = []

    def measure(ask: Ask[Step]) -> Measured:
        """A phase that fails after others costs only what it is part of."""
        step = ask.what
        on_phase(_words(step), round(ask.done), round(ask.total))
        try:
            measured = probe.measure(step)
        except (LoaderprobeError, OSError) as error:
            if not begun:
                raise
            return Missing(name=step.name, reason=Remark(code=FAILED, facts={"error": str(error)}))
        begun.extend([measured] if isinstance(measured, BandwidthPhase) else [])
        return measured

    results, reason = follow(policy, measure, clock=probe.clock, enough=lambda _: bool(begun))
    phases = tuple(result for result in results if isinstance(result, BandwidthPhase))
    missing = (*missing, *(result for result in results if isinstance(result, Missing)))
    return BandwidthMeasurement(
        **place_of(path, sample, location),
        scratch=request.scratch_bytes is not None,
        drop_caches=request.drop_all is not None,
        interrupted=reason is None,
        phases=phases,
        metadata=tuple(result for result in results if isinstance(result, MetadataPhase)),
        missing=missing,
        failed=tuple(lack.name for lack in missing if lack.reason.code == FAILED),
        notes=(*sample.notes, *_again(supply, location), *_unknown(location, sample, phases)),
    )


def place_of(path: str, sample: Sample, location: StorageLocation) -> dict[str, Any]:
    """What a result says of the files that it read."""
    return {
        "path": path,
        "location": location,
        "files_found": sample.total,
        "files_used": len(sample.paths),
        "mean_size_bytes": sample.pieces_a_file * sum(piece.size_bytes for piece in sample.pieces) / len(sample.pieces),
        "images": sample.images and sample.block_bytes is None,
    }


def _words(step: Step) -> str:
    readers = f"{step.readers} reader{'s' * (step.readers > 1)}"
    if step.operation:
        return f"{step.operation}s, {readers}"
    return _WORDS.get(step.name, readers)


def _again(supply: Supply, location: StorageLocation) -> tuple[Remark, ...]:
    if supply.rounds < 2:
        return ()
    total = sum(piece.size_bytes for piece in supply.sample.pieces)
    code = "objects_read_again" if location.kind == "object" else "read_again"
    return (Remark(code=code, facts={"size_bytes": total, "times": supply.rounds - 1}),)


def _unknown(location: StorageLocation, sample: Sample, phases: Sequence[BandwidthPhase]) -> tuple[Remark, ...]:
    if location.kind in ("memory", "object") or all(phase.resident_before is not None for phase in phases):
        return ()
    reason = why_unknown(sample.pieces[0].path)
    return (Remark(code="cache_unknown", facts=reason.because),) if reason else ()


# The probe of objects behind a URL: the same ladder, by threads that request whole objects or ranges of large ones.

RANGE_BYTES = 8 << 20
"""Of a request to a large object: AWS's guide to the performance of S3 names 8 or 16 MB as typical."""
MOST_LISTED = 100_000
"""Objects: a sample is of so many. A folder is listed whole before, which is a request for each thousand of them."""
MOST_SIZED = 1_000
"""Objects whose size takes a request each, because listings have none (http)."""
ONE_INTERPRETER = 1.0
"""Cores that the requests of one process can use."""
ITSELF = Path()
"""The name of a piece where the URL is that of one object."""


class ObjectEngine:
    """Implements `ReadEngine` with threads of this process that request objects."""

    name: Engine = "threads"

    def __init__(self, store: ObjectStore, sample: Sample) -> None:
        self._store = store
        self._in_ranges = {piece.path for piece in sample.pieces if piece.offset}

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """Request with `order.readers` threads; each takes the next piece when it is free."""
        self._store.retried.clear()
        reading = ReadRun(pieces, order, self._request).run()
        reading.counted = {kind: self._store.retried[kind] for kind in TRANSIENT}
        return reading

    def _request(self, piece: Piece, _: memoryview, __: int) -> tuple[int, int, int]:
        """In the form of a read: (bytes, requests, ns to the first byte)."""
        name = "" if piece.path == ITSELF else piece.path.as_posix()
        whole = piece.path not in self._in_ranges
        got, first_s = self._store.get(name, piece.offset, piece.size_bytes, whole=whole)
        return got, 1, round(first_s * 1e9)


def probe_objects(
    url: str, request: ProbeRequest, *, on_phase: OnStage, clock: Clock, sample: Sample | None = None
) -> BandwidthMeasurement:
    """Run all phases that objects have on a sample of those under a URL; without one, on a random one.

    Raises BadValue when there is nothing to read, MissingPart without permission or the library for such URLs.
    """
    store = open_store(url)
    sample = sample or sample_objects(store, request.seed)
    location = StorageLocation(
        path=store.url, filesystem=store.family, kind="object", mount="", source=store.endpoint, devices=()
    )
    probe = Probe(
        request=request, location=location, supply=Supply(sample, None, seed=request.seed),
        engine=ObjectEngine(store, sample), cores=ONE_INTERPRETER, clock=clock,
    )  # fmt: skip
    hidden = Missing(name="first byte", reason=Remark(code="requests_hidden", facts={"scheme": store.family}))
    return run_probe(probe, store.url, on_phase, missing=() if store.sees_requests else (hidden,))


def sample_objects(store: ObjectStore, seed: int) -> Sample:
    """Objects in random order, until `LIMIT_BYTES` are reached; large ones in ranges at random.

    Raises BadValue when there is nothing to read, MissingPart without permission.
    """
    listed, skipped, requests = list(islice(store.listed(), MOST_LISTED + 1)), Counter[str](), 0

    def usable(name: str, listed_bytes: int | None) -> tuple[int, str]:
        """With a name that a path can have; where a listing has no sizes, of the first only."""
        nonlocal requests
        size, why = (0, UNSIZED) if listed_bytes is None and requests >= MOST_SIZED else store.sized(name, listed_bytes)
        requests += listed_bytes is None
        odd = size and name not in ("", Path(name).as_posix())
        return (0, "with an empty part in its name") if odd else (size, why)

    sample, _ = choose(listed, usable, skipped, seed)
    if not sample.pieces:
        store.check_permitted(skipped)
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "nothing is listed"
        raise BadValue(f"{store.url} holds no object to read ({why})", hint="give the URL of a folder of objects")
    cut = [Remark(code="listing_cut", facts={"objects": MOST_LISTED})] if len(listed) > MOST_LISTED else []
    large = sum(piece.size_bytes > LARGE_FILE_BYTES for piece in sample.pieces)
    block_bytes = RANGE_BYTES if 2 * large > len(sample.pieces) else None
    sample = replace(sample, block_bytes=block_bytes, notes=(*cut, *sample.notes))
    return in_parts(sample, RANGE_BYTES, seed, Remark(code="large_objects_in_ranges"))

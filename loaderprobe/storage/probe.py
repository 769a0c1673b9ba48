"""The bandwidth probe: a ladder of concurrencies, opens and stats, then direct, sequential and paced reads."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import (
    RISING,
    BandwidthMeasurement,
    BandwidthPhase,
    MetadataPhase,
    PhaseName,
    fastest,
)
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.storage.files import BLOCK_BYTES, Sample, as_text, locate_pieces, path_text, sample_files, scratch_file
from loaderprobe.storage.fio import FioEngine, fio_version
from loaderprobe.storage.metadata import MetadataSettings, metadata_ladder
from loaderprobe.storage.phase import PhaseSettings, run_phase
from loaderprobe.storage.processes import ProcessEngine, processes_for
from loaderprobe.storage.reader import ColdPieces, ReadEngine, ThreadEngine, why_not_direct
from loaderprobe.system.limits import cores_available
from loaderprobe.system.pagecache import why_unknown

LIMIT_BYTES = 4 * 10**9
MOST_READERS = 128
MOST_SECONDS = 3600
LONGEST = 5.0
"""A phase whose rate has not settled ends after this many times its shortest duration."""
PAUSE = 2.0
"""Pause after a file, as a multiple of its reading time: token-bucket devices then answer at once."""
FAST_BYTES_PER_S = 2e9
FAST_FILES_PER_S = 30_000
"""Above these rates, threads of one interpreter may be the limit."""
LEAST_FOR_PROCESSES_S = 0.2
METADATA_LONGEST = 3.0
METADATA_SHARE = 0.6
"""Duration of a phase of opens or stats over that of a phase of reads: three slices of steady part, by default."""

OnPhase = Callable[[str, int, int], None]
"""Called with the name of the next phase, the number of phases done, and the most there can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """The path to probe, and the settings of the probe."""

    path: Path
    readers: tuple[int, ...] | None = None
    """Concurrencies of the ladder; None doubles from 1 on until the rate stops rising."""
    seconds: float = 3.0
    """Length of a phase; up to five times that while its rate has not settled."""
    scratch_bytes: int | None = None
    seed: int = 0
    fio: bool = False
    drop_all: Callable[[], None] | None = None
    """Empties all caches of the machine; None drops exactly the files read."""
    limit_bytes: int = LIMIT_BYTES
    metadata: bool = False
    """Also opens/s and stats/s; cold with `drop_all` only."""

    def __post_init__(self) -> None:
        if self.readers is not None and (not self.readers or min(self.readers) < 1):
            raise BadValue("concurrency must be 1 or more", hint="--readers 1,2,4,8,16")
        if not 0 < self.seconds <= MOST_SECONDS:
            raise BadValue(f"--seconds must be above 0 and at most {MOST_SECONDS}", hint="--seconds 3")
        if self.scratch_bytes is not None and self.scratch_bytes < BLOCK_BYTES:
            raise BadValue("a scratch file must have at least 128 KiB", hint="--scratch 1GB")


@dataclass(slots=True)
class Probe:
    """Runs the phases of one probe in sequence."""

    location: StorageLocation
    sample: Sample
    supply: ColdPieces
    engine: ReadEngine
    seconds: float
    cores: float
    phases: list[BandwidthPhase] = field(default_factory=list)
    metadata: list[MetadataPhase] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def phase(
        self, name: PhaseName, readers: int, *, supply: ColdPieces | None = None, direct: bool = False
    ) -> BandwidthPhase:
        """Read in one pattern at one concurrency; also with processes where threads may be the limit."""
        settings = PhaseSettings(
            name=name,
            engine=self.engine,
            supply=supply or self.supply,
            location=self.location,
            cores_available=self.cores,
            readers=readers,
            seconds=self.seconds,
            longest_s=LONGEST * self.seconds,
            direct=direct,
        )
        found = run_phase(settings)
        if found.engine == "threads" and self._threads_may_limit(found):
            processes = processes_for(self.cores)
            found = max(
                found, run_phase(replace(settings, engine=ProcessEngine(processes))), key=lambda phase: phase.bw_bytes
            )
        return found

    def _threads_may_limit(self, phase: BandwidthPhase) -> bool:
        """True when processes could be faster; for a very small set only their start would be measured."""
        fast = phase.bw_bytes > FAST_BYTES_PER_S or phase.files_per_s > FAST_FILES_PER_S or phase.at_least
        lasts = sum(piece.size_bytes for piece in self.sample.pieces) > phase.bw_bytes * LEAST_FOR_PROCESSES_S
        return fast and lasts and min(processes_for(self.cores), phase.readers) > 1

    def add(self, name: PhaseName, make: Callable[[], BandwidthPhase]) -> bool:
        """Run a phase. If it fails after others, its reason is kept and False is returned."""
        try:
            self.phases.append(make())
        except (LoaderprobeError, OSError) as error:
            if not self.phases:
                raise
            self._miss(name, "phase_failed", error=str(error))
            self.failed.append(name)
            return False
        return True

    def climb(self, readers: Sequence[int] | None, on_phase: OnPhase) -> None:
        """The ladder."""
        steps = list(readers) if readers else [2**power for power in range(MOST_READERS.bit_length())]
        for number, count in enumerate(steps):
            if not readers and 4 * count > len(self.sample.pieces) and self.phases:
                self._miss("files", "too_few_files", files=len(self.sample.pieces), readers=count)
                return
            on_phase(f"{count} reader{'s' * (count > 1)}", number, number + 5)
            if not self.add("files", partial(self.phase, "files", count)):
                return
            if not readers and number >= 2 and _best(self.phases[-2:]) < RISING * _best(self.phases[:-2]):
                return

    def names(self, readers: Sequence[int] | None, on_phase: OnPhase) -> None:
        """Opens and stats of the files. If one fails, its reason is kept."""
        if self.sample.block_bytes is not None:
            self._miss("metadata", "opens_of_blocks")
            return
        on_phase("opens and stats", len(self.phases), len(self.phases) + 4)
        settings = MetadataSettings(
            sample=self.sample,
            location=self.location,
            cores_available=self.cores,
            seconds=METADATA_SHARE * self.seconds,
            longest_s=METADATA_LONGEST * METADATA_SHARE * self.seconds,
            seed=self.supply.seed,
            drop_all=self.supply.drop_all,
        )
        try:
            for phase in metadata_ladder(settings, readers):
                self.metadata.append(phase)
        except (LoaderprobeError, OSError) as error:
            self._miss("metadata", "phase_failed", error=str(error))
            self.failed.append("metadata")

    def device(self, on_phase: OnPhase) -> None:
        """Run the direct, sequential and paced phases."""
        best = fastest(self.phases) or self.phases[0]
        done = len(self.phases)
        on_phase("past the page cache", done, done + 3)
        refusal = why_not_direct(self.sample.pieces)
        if refusal:
            self.missing.append(Missing(name="direct", reason=refusal))
        else:
            self.add("direct", partial(self.phase, "direct", best.readers, direct=True))
        on_phase("sequential", done + 1, done + 3)
        in_a_row = self.sample.sequential()
        if in_a_row is None:
            self._miss("sequential", "no_large_file")
        else:
            supply = ColdPieces(in_a_row, self.supply.cache, seed=0, shuffled=False, drop_all=self.supply.drop_all)
            read = partial(self.phase, "sequential", best.readers, supply=supply, direct=refusal is None)
            self.add("sequential", read)
            # It may have read into the page cache what a later phase must read cold.
            self.supply.spoil()
        on_phase("with pauses", done + 2, done + 3)
        self._paced()

    def _paced(self) -> None:
        alone = next((phase for phase in self.phases if phase.name == "files" and phase.readers == 1), None)
        if alone is None:
            self._miss("paced", "no_single_reader")
        elif isinstance(self.engine, FioEngine):
            self._miss("paced", "fio_cannot_pause")
        else:
            settings = PhaseSettings(
                name="paced",
                engine=self.engine,
                supply=self.supply,
                location=self.location,
                cores_available=self.cores,
                readers=1,
                seconds=self.seconds,
                longest_s=self.seconds,
                pause_s_per_byte=PAUSE / alone.bw_bytes,
            )
            self.add("paced", partial(run_phase, settings))

    def _miss(self, name: str, code: str, **facts: float | str) -> None:
        self.missing.append(Missing(name=name, reason=Remark(code=code, facts=facts)))


def probe_bandwidth(request: ProbeRequest, *, cache: PageCache, on_phase: OnPhase) -> BandwidthMeasurement:
    """Run all phases on a random sample of the files under a path. Writes nothing except a requested scratch file.

    KeyboardInterrupt keeps the finished phases, if any. Raises BadValue when there is nothing to read, MissingPart
    without read permission or fio, NoSpace for a scratch file that does not fit.
    """
    if request.scratch_bytes is not None:
        with scratch_file(request.path, request.scratch_bytes, request.seed) as sample:
            return _probe(request, sample, cache, on_phase)
    return _probe(
        request, sample_files(request.path, limit_bytes=request.limit_bytes, seed=request.seed), cache, on_phase
    )


def _probe(request: ProbeRequest, sample: Sample, cache: PageCache, on_phase: OnPhase) -> BandwidthMeasurement:
    fio = fio_version() if request.fio else None
    probe = Probe(
        location=as_text(locate_pieces(request.path, sample.pieces)),
        sample=sample,
        supply=ColdPieces(sample, cache, seed=request.seed, drop_all=request.drop_all),
        engine=FioEngine() if request.fio else ThreadEngine(),
        seconds=request.seconds,
        cores=cores_available(),
    )
    interrupted = False
    try:
        probe.climb(request.readers, on_phase)
        if request.metadata:
            probe.names(request.readers, on_phase)
        probe.device(on_phase)
    except KeyboardInterrupt:
        if not probe.phases:
            raise
        interrupted = True
    return BandwidthMeasurement(
        loaderprobe=version("loaderprobe"),
        fio=fio,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=platform.release(),
        cores_available=probe.cores,
        path=path_text(request.path.absolute()),
        location=probe.location,
        files_found=sample.found,
        files_used=len(sample.paths),
        mean_size_bytes=sum(piece.size_bytes for piece in sample.pieces) / len(sample.pieces),
        images=sample.images and sample.block_bytes is None,
        scratch=request.scratch_bytes is not None,
        drop_caches=request.drop_all is not None,
        interrupted=interrupted,
        phases=tuple(probe.phases),
        metadata=tuple(probe.metadata),
        missing=tuple(probe.missing),
        failed=tuple(probe.failed),
        notes=(*sample.notes, *_again(probe.supply), *_unknown(probe)),
    )


def _again(supply: ColdPieces) -> tuple[Remark, ...]:
    if supply.rounds < 2:
        return ()
    total = sum(piece.size_bytes for piece in supply.sample.pieces)
    return (Remark(code="read_again", facts={"size_bytes": total, "times": supply.rounds - 1}),)


def _unknown(probe: Probe) -> tuple[Remark, ...]:
    if probe.location.kind == "memory" or all(phase.resident_before is not None for phase in probe.phases):
        return ()
    reason = why_unknown(probe.sample.pieces[0].path)
    return (Remark(code="cache_unknown", facts=reason.because),) if reason else ()


def _best(phases: Sequence[BandwidthPhase]) -> float:
    return max(phase.bw_bytes for phase in phases)

"""The probe: its ladder of phases, by ranks too, how cold each was by bytes, opens and stats, and a sweep's ceiling."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure import ceilings as ceiling_module
from loaderprobe.measure.ceilings import MOST_BLOCKS, raise_ceiling, sample_of
from loaderprobe.policy import Ask, follow
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import BandwidthMeasurement, MetadataPhase
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.files import FileSet, PartFiles
from loaderprobe.records.measurement import Missing
from loaderprobe.records.phases import BandwidthPhase, Engine, StorageCeiling
from loaderprobe.records.rank_processes import ReadTogether
from loaderprobe.records.remark import reported
from loaderprobe.storage import files as files_module
from loaderprobe.storage import phase as phase_module
from loaderprobe.storage import probe as probe_module
from loaderprobe.storage.by_ranks import RankReader, RanksStep, climb, read_step
from loaderprobe.storage.files import LARGE_BLOCK_BYTES, Piece, Sample, encoded_pieces, locate_pieces, sample_files
from loaderprobe.storage.phase import (
    LEAST_INODE_BYTES,
    MOST_ROUNDS,
    PhaseSettings,
    cache_label,
    metadata_label,
    run_metadata,
    run_phase,
)
from loaderprobe.storage.probe import Measured, ProbePolicy, ProbeRequest, Step, probe_bandwidth
from loaderprobe.storage.reader import Reading, ReadOrder, Supply, ThreadEngine
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.device import locate
from loaderprobe.system.host import SystemClock
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import FakeClock, FakePageCache, example_files
from tests.conftest import needs_cold_reads
from tests.examples.bandwidth import example_operations, example_phase
from tests.fakes import FakeGroup, example_location

BLOCK = example_location("/data")
NFS = replace(BLOCK, filesystem="nfs4", kind="network", devices=())
SHARED = Path("/dev/shm")


def probed(
    path: Path, cache: PageCache | None = None, on_phase: Callable[..., None] = lambda *_: None, **changes: object
) -> BandwidthMeasurement:
    options: dict[str, object] = {"path": path, "readers": (1, 2), "seconds": 0.05, **changes}
    request = ProbeRequest(**options)  # type: ignore[arg-type]  # options by name, for brevity
    return probe_bandwidth(request, cache=cache or LinuxPageCache(), on_phase=on_phase, clock=SystemClock())


def codes(measured: BandwidthMeasurement) -> dict[str, str]:
    return {missing.name: missing.reason.code for missing in measured.missing}


def test_the_label_comes_from_bytes() -> None:
    """Nine tenths from storage are cold, under a twentieth warm, between them mixed; uncounted is unproved. Where
    memory held more than a tenth of the files, no bytes are cold."""
    labels = [cache_label(share, 0.0) for share in (1.0, 0.9, 0.89, 0.05, 0.04, 0.0)]
    assert labels == ["cold", "cold", "mixed", "mixed", "warm", "warm"]
    assert [cache_label(1.09, held) for held in (0.1, 0.11, 0.6)] == ["cold", "mixed", "mixed"]
    assert cache_label(None, 0.0) == "unproved"


def test_a_cold_ladder(folder: Path) -> None:
    """The bytes prove it, and nothing is written. Every phase is announced; small files cannot be read in a row."""
    needs_cold_reads(folder)
    seen: list[tuple[str, int, int]] = []
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    measured = probed(folder, on_phase=lambda *progress: seen.append(progress))
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert [phase.readers for phase in measured.ladder] == [1, 2]
    assert all(phase.cache == "cold" and phase.resident_before == 0.0 for phase in measured.ladder)
    assert all((phase.amplification or 0) >= 1.0 and phase.cold_fraction == 1.0 for phase in measured.ladder)
    assert measured.files_used == 20 and measured.images and not measured.scratch
    assert codes(measured)["sequential"] == "no_large_file" and measured.metadata == ()
    assert [name for name, _, _ in seen][:2] == ["1 reader", "2 readers"] and len(seen) == 5
    assert all(done < total for _, done, total in seen)
    totals = [total for *_, total in seen]
    assert totals == sorted(totals, reverse=True), "what is announced is the most that may come"


def test_images_among_which_some_are_cut_are_counted_as_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of twenty have a quarter of the bytes: a block of one is no image, in bytes, in rate and in time."""
    monkeypatch.setattr(files_module, "LARGE_FILE_BYTES", 35_000)
    monkeypatch.setattr(files_module, "LARGE_BLOCK_BYTES", 1000)
    measured = probed(folder)
    assert measured.images and (measured.files_used, measured.mean_size_bytes) == (20, 29_500)
    for phase in measured.ladder:
        assert (phase.block_bytes, phase.file_ns) == (None, None)
        assert phase.files_per_s * measured.mean_size_bytes == pytest.approx(phase.bw_bytes, rel=0.5)


def test_scratch_leaves_nothing(tmp_path: Path) -> None:
    """A scratch probe says so, reads in a row as well, and leaves the folder as it was; one file has no opens/s."""
    measured = probed(tmp_path, scratch_bytes=2 << 20, readers=(2,), metadata=True)
    sequential = measured.phase("sequential")
    assert measured.scratch and not measured.images and measured.files_used == 1
    assert sequential is not None and sequential.block_bytes == 1 << 20
    assert measured.metadata == () and codes(measured)["metadata"] == "opens_of_blocks"
    assert codes(measured)["paced"] == "no_single_reader"
    assert list(tmp_path.iterdir()) == []


def asked(policy: ProbePolicy, rate: Callable[[Step], float | None]) -> list[str]:
    """What a policy asks, where each phase has this rate, or is missing; `open 4` are opens by 4 readers."""
    found: list[str] = []

    def measure(ask: Ask[Step]) -> Measured:
        step, value = ask.what, rate(ask.what)
        found.append(f"{step.operation or step.name} {step.readers}")
        if value is None:
            return Missing(name=step.name, reason=reported("it was not measured"))
        if step.operation:
            return example_operations({step.readers: value}, step.operation)[0]
        return example_phase(step.readers, value, name=step.name)

    follow(policy, measure, clock=FakeClock())
    return found


def rising(step: Step) -> float:
    """A rate that rises with the readers, but of stats."""
    return 1e6 * (1 if step.operation == "stat" else step.readers)


FLAT = {1: 100e6, 2: 200e6, 4: 205e6, 8: 300e6, 16: 305e6, 32: 310e6, 64: 1e9}
DOUBLED = " ".join(f"files {2**power}," for power in range(8))
OPENS = "open 1, open 4, open 16, open 64, stat 1, stat 4"


@pytest.mark.parametrize(
    ("policy", "rate", "steps"),
    [
        # Two doublings that together gain under 5 % are the last; one weak step does not end it.
        (
            ProbePolicy(), lambda step: FLAT[step.readers],
            "files 1, files 2, files 4, files 8, files 16, files 32, direct 32, sequential 32, paced 1",
        ),
        (ProbePolicy(), rising, f"{DOUBLED} direct 128, sequential 128, paced 1"),
        # Opens and stats: 1, 4, 16, until four times as many gain under 5 %; few files allow no more.
        (ProbePolicy(metadata=True, files=400), rising, f"{DOUBLED} {OPENS}, direct 128, sequential 128, paced 1"),
        (
            ProbePolicy(metadata=True, files=20), rising,
            f"{DOUBLED} open 1, open 4, stat 1, stat 4, direct 128, sequential 128, paced 1",
        ),
        (
            ProbePolicy(readers=(2, 3), metadata=True, files=400), rising,
            "files 2, files 3, open 2, open 3, stat 2, stat 3, direct 3, sequential 3, paced 1",
        ),
        # What is missing ends only what it is part of; the rest is read at the fastest step so far.
        (
            ProbePolicy(metadata=True, files=400),
            lambda step: None if step.operation or step.readers == 4 else rising(step),
            "files 1, files 2, files 4, open 1, direct 2, sequential 2, paced 1",
        ),
    ],
)  # fmt: skip
def test_a_ladder_ends_without_a_gain(policy: ProbePolicy, rate: Callable[[Step], float | None], steps: str) -> None:
    """Then come opens and stats, and what is read once."""
    assert asked(policy, rate) == steps.split(", ")


def test_links_lead_to_the_storage_they_point_to(tmp_path: Path) -> None:
    """A folder of links is judged by where the files lie, with a note; files of two storages by neither."""
    if not os.access(SHARED, os.W_OK) or locate(SHARED).mount == locate(tmp_path).mount:
        pytest.skip("there is no second file system here")
    links = tmp_path / "links"
    links.mkdir()
    with tempfile.TemporaryDirectory(dir=SHARED) as place:
        for number in range(3):
            Path(place, f"{number}").write_bytes(b"x" * 5000)
            (links / f"{number}.jpg").symlink_to(Path(place, f"{number}"))
        found = locate_pieces(links, sample_files(links, seed=0).pieces)
        assert found.mount == locate(SHARED).mount and found.notes[-1].code == "files_elsewhere"
        (links / "own.jpg").write_bytes(b"x" * 5000)
        both = locate_pieces(links, sample_files(links, seed=0).pieces)
    assert both.kind == "unknown" and not both.counts_reads and both.notes[0].code == "several_filesystems"


def test_a_path_that_is_no_utf8_can_be_stored(folder: Path) -> None:
    """All caches are dropped where asked. Rounds are limited: small files do not keep the probe evicting for long."""
    odd = Path(os.fsdecode(os.fsencode(folder.parent) + b"/odd\xff"))
    folder.rename(odd)
    drops: list[int] = []
    measured = probed(odd, readers=(1,), seconds=60.0, drop_all=lambda: drops.append(1))
    stored = encode("bandwidth", measured)
    assert decode("bandwidth", stored, BandwidthMeasurement, "") == measured and measured.path == str(odd)
    assert measured.drop_caches and drops
    (phase,) = measured.ladder
    assert phase.io_bytes <= MOST_ROUNDS * sum(file.stat().st_size for file in odd.iterdir())


def settings_of(supply: Supply, location: StorageLocation = BLOCK) -> PhaseSettings:
    """One reader, for a moment."""
    order = ReadOrder(readers=1, seconds=0.01)
    return PhaseSettings(
        engine=ThreadEngine(), supply=supply, location=location, cores_available=64.0, order=order, longest_s=0.01
    )


def one_phase(folder: Path, cache: PageCache, location: StorageLocation) -> BandwidthPhase:
    """All files of a folder, read whole by one reader."""
    return run_phase(settings_of(Supply(sample_files(folder, seed=0), cache, seed=0), location))


@pytest.mark.parametrize("network", [False, True])
def test_the_counter_of_storage_beside_our_own(folder: Path, monkeypatch: pytest.MonkeyPatch, network: bool) -> None:
    """What a device read beyond our own reads is others'; on NFS the client's count of server reads proves cold."""
    readings = itertools.count(0, 10**9)
    monkeypatch.setattr(phase_module, "reads_from_storage", lambda _: next(readings))
    monkeypatch.setattr(phase_module, "own_reads", lambda: 0)
    phase = one_phase(folder, LinuxPageCache(), NFS if network else BLOCK)
    if network:
        assert phase.cache == "cold" and phase.other_bytes_per_s is None
    else:
        assert phase.storage_bytes == 0 and phase.cache == "warm" and (phase.other_bytes_per_s or 0) >= 10**9


def test_files_that_memory_held_are_not_cold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many bytes came from storage: it gives whole pages, and reads ahead."""
    readings = itertools.count(0, 10**9)
    monkeypatch.setattr(phase_module, "own_reads", lambda: next(readings))
    cache = FakePageCache(stubborn=True)
    cache.warm(sorted(folder.iterdir())[::2])
    phase = one_phase(folder, cache, BLOCK)
    assert (phase.cache, phase.cold_fraction, phase.amplification) == ("mixed", 0.5, None)


class Scripted:
    """Phases of 3 GB/s by each thread and 6 by each process, and what happens in some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **trouble: BaseException) -> None:
        self.seen: list[PhaseSettings] = []
        self._trouble = trouble
        monkeypatch.setattr(phase_module, "run_phase", self)

    def __call__(self, settings: PhaseSettings) -> BandwidthPhase:
        self.seen.append(settings)
        for name in (settings.name, f"{settings.name}_{settings.order.readers}", settings.engine.name):
            if name in self._trouble:
                raise self._trouble[name]
        rate = settings.order.readers * (6e9 if settings.engine.name == "processes" else 3e9)
        return example_phase(settings.order.readers, rate, name=settings.name, engine=settings.engine.name)


def test_fast_storage_is_read_by_processes_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The faster counts; threads alone count for at least their rate. Twenty files cannot occupy eight readers."""
    Scripted(monkeypatch)
    measured = probed(folder, readers=None)
    assert [phase.readers for phase in measured.ladder] == [1, 2, 4]
    assert codes(measured)["files"] == "too_few_files"
    monkeypatch.setattr(probe_module, "cores_available", lambda: 4.0)
    monkeypatch.setattr(phase_module, "LEAST_FOR_PROCESSES_S", 0.0)
    assert [phase.engine for phase in probed(folder).ladder] == ["threads", "processes"]
    assert not any(phase.at_least for phase in probed(folder).ladder)
    Scripted(monkeypatch, processes=LoaderprobeError("a process died"))
    alone = probed(folder)
    assert [phase.engine for phase in alone.ladder] == ["threads", "threads"] and not alone.failed
    assert [note.facts for note in alone.ladder[1].notes] == [{"error": "a process died"}]
    assert [phase.at_least for phase in alone.ladder] == [False, True]


def test_trouble_costs_only_the_phase_that_it_meets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed phase is named with its reason; Ctrl-C keeps those that were complete, where there are any."""
    Scripted(monkeypatch, paced=OSError("the server has gone"))
    measured = probed(folder)
    assert measured.failed == ("paced",) and len(measured.ladder) == 2
    assert "the server has gone" in [missing.reason.facts.get("error") for missing in measured.missing]
    Scripted(monkeypatch, files_2=KeyboardInterrupt())
    measured = probed(folder)
    assert measured.interrupted and len(measured.phases) == 1
    with pytest.raises(KeyboardInterrupt):
        probed(folder, readers=(2,))


class VanishingCache(LinuxPageCache):
    """Deletes files right after the first eviction, as a job that cleans up does."""

    def __init__(self, count: int) -> None:
        self._count = count

    def evict(self, paths: Sequence[Path]) -> None:
        super().evict([path for path in paths if path.exists()])
        for path in paths[: self._count]:
            path.unlink(missing_ok=True)


def test_a_vanished_file_does_not_end_the_ladder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted. When everything has gone there is nothing to measure; lost permission is a missing part."""
    measured = probed(folder, VanishingCache(1))
    assert len(measured.ladder) == 2 and measured.ladder[0].unread == {"vanished": 1}
    with monkeypatch.context() as patch, pytest.raises(MissingPart):
        patch.setattr("loaderprobe.storage.reader._read", Mock(side_effect=PermissionError(errno.EACCES, "")))
        probed(folder)
    with pytest.raises(BadValue, match="vanished"):
        probed(folder, VanishingCache(20))


def opened(sample: Sample, drop_all: Callable[[], None] | None = None) -> MetadataPhase:
    return run_metadata(settings_of(Supply(sample, None, seed=0, drop_all=drop_all)), "open", SystemClock())


@pytest.mark.parametrize(
    ("changes", "drops", "storage_bytes", "server_calls", "label"),
    [
        ({}, 1, 100 * LEAST_INODE_BYTES, None, "cold"),
        ({}, 1, 100 * LEAST_INODE_BYTES - 1, None, "warm"),
        ({}, 0, 10**9, None, "warm"),
        ({}, 1, None, None, "unproved"),
        ({"kind": "fuse", "devices": ()}, 1, 10**9, None, "unproved"),
        ({"kind": "network", "filesystem": "nfs4"}, 3, 0, None, "unproved"),
        ({"kind": "network", "filesystem": "nfs4"}, 3, 0, 100, "cold"),
        ({"kind": "network", "filesystem": "nfs4"}, 3, 0, 99, "warm"),
        ({"kind": "network", "filesystem": "nfs4"}, 0, 0, 100, "asked"),
        ({"kind": "network", "filesystem": "nfs4"}, 0, 0, 99, "warm"),
        ({"kind": "fuse", "devices": ()}, 0, None, 200, "asked"),
        ({"kind": "memory", "filesystem": "tmpfs"}, 1, 10**9, None, "warm"),
    ],
)
def test_only_dropped_and_counted_names_are_cold(
    changes: dict[str, object], drops: int, storage_bytes: int | None, server_calls: int | None, label: str
) -> None:
    """Dropped is not enough: bytes must come back from storage, or calls reach the server; undropped, it was asked."""
    place = replace(BLOCK, **changes)  # type: ignore[arg-type]  # fields by name
    assert metadata_label(place, drops, storage_bytes, server_calls, 100) == label


def test_a_drop_that_drops_nothing_is_called_warm(folder: Path) -> None:
    """Names that stay in memory after a drop, as of files that another program holds, are not passed off as cold."""
    needs_cold_reads(folder)
    measured = probed(folder, FakePageCache(blind=True), metadata=True, readers=(1,), drop_all=lambda: None)
    assert {(phase.operation, phase.metadata) for phase in measured.metadata} == {("open", "warm"), ("stat", "warm")}
    assert all(phase.drops for phase in measured.metadata)


def test_trouble_with_names(sample: Sample) -> None:
    """A refused drop is the user's to know; a lost file is a reason beside the rate; without any there is no rate."""
    with pytest.raises(MissingPart):
        opened(sample, Mock(side_effect=MissingPart("no permission", hint="be root")))
    sample.paths[0].unlink()
    assert opened(sample).unread == {"vanished": 1}
    for path in sample.paths[1:]:
        path.unlink()
    with pytest.raises(BadValue, match="vanished"):
        opened(sample)


@pytest.fixture
def files(folder: Path) -> FileSet:
    found = sorted(folder.iterdir())
    names, sizes = tuple(path.name for path in found), tuple(path.stat().st_size for path in found)
    return replace(example_files(len(found)), root=str(folder), paths=names, size_bytes=sizes)


def raised(known: StorageCeiling | None, files: FileSet | PartFiles, readers: int) -> StorageCeiling:
    return raise_ceiling(known, files, readers, seconds=0.05, longest_s=0.05, cache=LinuxPageCache())


def test_each_concurrency_is_measured_once(files: FileSet) -> None:
    """A phase that is known is not measured again; another number of readers adds one."""
    needs_cold_reads(Path(files.root))
    first = raised(None, files, 2)
    assert first.data == files.fingerprint and [phase.readers for phase in first.phases] == [2]
    assert first.phases[0].cache == "cold"
    assert raised(first, files, 2) is first
    assert [phase.readers for phase in raised(first, files, 1).phases] == [2, 1]


def test_a_ceiling_that_cannot_be_measured_has_a_reason(files: FileSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads that are not counted could not be compared; files or a folder that have gone do not cost the sweep."""
    with monkeypatch.context() as patch:
        patch.setattr(ceiling_module, "locate_pieces", lambda *_: replace(BLOCK, kind="memory"))
        assert (found := raised(None, files, 2)).phases == ()
        assert found.missing and found.missing.code == "filesystem_not_counted"
        patch.setattr(ceiling_module, "locate_pieces", lambda *_: BLOCK)
        for path in Path(files.root).iterdir():
            path.unlink()
        assert (found := raised(None, files, 1)).phases == ()
        assert found.missing and "vanished" in str(found.missing.facts["error"])
    shutil.rmtree(files.root)
    missing = raised(None, files, 1).missing
    assert missing and missing.code == "ceiling_failed"
    empty = raised(None, PartFiles(file_bytes={}), 2)
    assert empty.phases == () and empty.missing and empty.missing.code == "files_empty"


def test_the_ceiling_reads_as_the_loader_does(files: FileSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole files through the page cache; of shards, of which a loader reads unknown parts, blocks of 1 MB. As in the
    ladder storage above 2 GB/s delivers at least what threads get, however few of the cores are busy."""
    scripted = Scripted(monkeypatch)
    monkeypatch.setattr(ceiling_module, "locate_pieces", lambda *_: BLOCK)
    monkeypatch.setattr(ceiling_module, "cores_available", lambda: 128.0)
    (phase,) = raised(None, files, 3).phases
    assert (phase.engine, phase.at_least) == ("threads", True)
    shard = tmp_path / "000.tar"
    shard.write_bytes(bytes(LARGE_BLOCK_BYTES * 3 + 5))
    assert raised(None, PartFiles(file_bytes={str(shard): shard.stat().st_size}), 2).phases
    whole, parts = scripted.seen
    assert (whole.name, whole.order.readers, whole.order.direct) == ("files", 3, False)
    assert whole.supply.sample.block_bytes is None and len(whole.supply.sample.pieces) == 20
    assert sorted(piece.size_bytes for piece in parts.supply.sample.pieces) == [5, *[LARGE_BLOCK_BYTES] * 3]
    assert parts.supply.sample.block_bytes == LARGE_BLOCK_BYTES


def test_blocks_of_a_large_file_are_chosen_without_a_list_of_all() -> None:
    """Of some TB that takes seconds, and as much memory as a data set. Each once, of every file, the last one short."""
    tracemalloc.start()
    found = sample_of(PartFiles(file_bytes={"/data/a": 100 << 30, "/data/none": 0})).pieces
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(found)) == MOST_BLOCKS and peak_bytes < 4e6
    few = sample_of(PartFiles(file_bytes={"/data/a": LARGE_BLOCK_BYTES + 1, "/data/b": 3})).pieces
    pieces = {("/data/a", 0, LARGE_BLOCK_BYTES), ("/data/a", LARGE_BLOCK_BYTES, 1), ("/data/b", 0, 3)}
    assert {(str(piece.path), piece.offset, piece.size_bytes) for piece in few} == pieces


SIZE = 100_000


@dataclass
class PacedEngine:
    """Reads a file every so many ms without a disk."""

    file_ms: float
    full_s: float | None = None
    """When it has no more work; None: at the end of its order."""
    trouble: OSError | None = None
    name: Engine = "threads"
    busy: float = 0.0
    """Cores that it keeps busy."""
    cores: float = 4.0
    """Those of its rank."""

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        if self.trouble:
            raise self.trouble
        count = int((self.full_s or order.seconds) * 1e3 / self.file_ms)
        end_ns = np.arange(1, count + 1) * round(self.file_ms * 1e6)
        same, took = np.ones(count, np.int64), round(self.file_ms * 1e6)
        return Reading(
            seconds=order.seconds, end_ns=end_ns, size_bytes=same * SIZE, read_ns=same, piece_ns=same * took,
            ios=count, delivered_bytes=count * SIZE, taken=count, full_ns=round((self.full_s or order.seconds) * 1e9),
            cpu_s=self.busy * order.seconds,
        )  # fmt: skip


def climbed(engines: Sequence[PacedEngine], *steps: RanksStep) -> list[BandwidthPhase]:
    """The phases of these ranks, each on a host of its own and in a thread of its own."""
    pieces = tuple(Piece(path=Path(f"/data/{number}.jpg"), offset=0, size_bytes=SIZE) for number in range(40))
    location = replace(example_location("/data"), kind="fuse", devices=())

    def read(step: RanksStep) -> BandwidthPhase:
        asked = ReadTogether(
            pieces=encoded_pieces(pieces), location=location,
            places=tuple((f"node{rank}", rank) for rank in range(step.ranks)), readers=step.readers, seconds=2.0,
            seed=0,
        )  # fmt: skip
        readers = [
            RankReader(asked, group, FakePageCache(), engine.cores, engine)
            for group, engine in zip(FakeGroup.of(step.ranks), engines, strict=False)
        ]
        with ThreadPoolExecutor(step.ranks) as pool:
            first, *others = [pool.submit(read_step, reader) for reader in readers]
        assert all(other.result() is None for other in others)
        phase = first.result()
        assert phase is not None
        return phase

    phases, interrupted = climb(steps, read, lambda *_: None, clock=FakeClock())
    assert not interrupted
    return phases


def step(ranks: int) -> RanksStep:
    """Of two readers each, each rank on a node of its own."""
    return RanksStep(ranks=ranks, nodes=ranks, readers=2)


@pytest.mark.parametrize(
    ("engines", "together", "in_step", "last_done", "fairness", "slowest"),
    [
        ([PacedEngine(10.0)], 10, 10, 10, 1.0, None),
        ([PacedEngine(10.0)] * 3, 30, 30, 30, 1.0, None),
        # 10 + 10 + 4 MB/s, where one path is slow.
        ([PacedEngine(10.0), PacedEngine(10.0), PacedEngine(25.0)], 24, 12, 24, 0.4, (2, "node2")),
        # A shard ends after half the time: what the other reads alone counts for last done only.
        ([PacedEngine(10.0, full_s=1.0), PacedEngine(10.0)], 20, 20, 15, 1.0, None),
    ],
)
def test_rates_of_ranks_are_of_the_time_in_which_all_read(
    engines: list[PacedEngine], together: float, in_step: float, last_done: float, fairness: float,
    slowest: tuple[int, str] | None,
) -> None:  # fmt: skip
    """In MB/s: their sum, that of ranks that wait for the slowest, and over the time until the last is done."""
    (phase,) = climbed(engines, step(len(engines)))
    assert phase.bw_bytes == pytest.approx(together * 1e6, rel=0.02)
    if len(engines) > 1:
        assert phase.in_step_bw_bytes == pytest.approx(in_step * 1e6, rel=0.02)
        assert phase.last_done_bw_bytes == pytest.approx(last_done * 1e6, rel=0.02)
        assert phase.fairness == pytest.approx(fairness, abs=0.01)
    assert phase.files_per_s == pytest.approx(together * 10, rel=0.02) and phase.settled
    assert [each.host for each in phase.by_rank] == [f"node{rank}" for rank in range(len(engines))]
    assert (phase.cache, phase.cold_fraction) == ("unproved", None)
    if slowest:
        assert phase.slowest and (phase.slowest.rank, phase.slowest.host) == slowest


@pytest.mark.parametrize(("cores", "busy"), [([0.1, 1, 1], False), ([0.1, 0.1, 0.1], True), ([1, 0.1, 0.1], False)])
def test_ranks_are_the_limit_where_they_keep_the_cores_of_all_busy(cores: list[float], busy: bool) -> None:
    """Not those of rank 0: each may have others."""
    (phase,) = climbed([PacedEngine(10.0, busy=0.09, cores=each) for each in cores], step(3))
    assert phase.at_least is busy and [note.code for note in phase.notes] == ["probe_busy"] * busy


def test_reading_that_is_over_at_once_is_refused_with_the_files_that_are_needed() -> None:
    """5 ms of 2 s in each run, 40 times: a tenth of what is needed, and some margin."""
    with pytest.raises(BadValue, match=r"2 ranks with 20 files each read for 3\.75 ms at a time") as caught:
        climbed([PacedEngine(1.0, full_s=0.005), PacedEngine(1.0)], step(2))
    assert caught.value.hint.startswith("give some 270 files")


def test_a_rank_that_reads_nothing_is_named_with_its_host() -> None:
    """And the others are let go."""
    with pytest.raises(BadValue, match="rank 1 on node1 read nothing: Stale file handle"):
        climbed([PacedEngine(10.0), PacedEngine(10.0, trouble=OSError("Stale file handle"))], step(2))

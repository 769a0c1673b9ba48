from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.policy import Ask, Result, Results, follow
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthPhase
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import reported
from loaderprobe.storage import phase as phase_module
from loaderprobe.storage import probe as probe_module
from loaderprobe.storage.files import locate_pieces, sample_files
from loaderprobe.storage.phase import MOST_ROUNDS, PhaseSettings, cache_label, run_phase
from loaderprobe.storage.probe import Measured, Names, ProbePolicy, ProbeRequest, Reads, Step, probe_bandwidth
from loaderprobe.storage.reader import Supply, ThreadEngine
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import FakeClock, example_location
from tests.examples.bandwidth import example_operations, example_phase
from tests.said import all_said, said
from tests.skips import needs_cold_reads


def _probe(path: Path, cache: PageCache | None = None, **changes: object) -> BandwidthMeasurement:
    options: dict[str, object] = {"path": path, "readers": (1, 2), "seconds": 0.1, **changes}
    request = ProbeRequest(**options)  # type: ignore[arg-type]  # options by name, for brevity
    return probe_bandwidth(request, cache=cache or LinuxPageCache(), on_phase=lambda *_: None, clock=SystemClock())


def _counted(measured: BandwidthMeasurement) -> BandwidthMeasurement:
    if not measured.location.counts_reads:
        pytest.skip(f"{measured.location.filesystem} does not count reads")
    return measured


def test_the_label_comes_from_bytes() -> None:
    """Nine tenths from storage are cold, under a twentieth warm, between them mixed; uncounted is unproved."""
    assert [cache_label(share, 100) for share in (100, 90, 89, 5, 4, 0)] == [
        "cold", "cold", "mixed", "mixed", "warm", "warm",
    ]  # fmt: skip
    assert cache_label(None, 100) == cache_label(0, 0) == "unproved"


def test_a_cold_ladder(folder: Path) -> None:
    """After each eviction the files come from storage, and the bytes prove it."""
    needs_cold_reads(folder)
    measured = _counted(_probe(folder))
    assert [phase.readers for phase in measured.ladder] == [1, 2]
    assert all(phase.cache == "cold" and phase.resident_before == 0.0 for phase in measured.ladder)
    assert all((phase.amplification or 0) >= 1.0 and phase.cold_fraction == 1.0 for phase in measured.ladder)
    assert measured.files_used == 20 and measured.images and not measured.scratch


def test_half_warm_is_called_mixed(folder: Path) -> None:
    """A set of which every second file cannot be evicted is mixed, neither cold nor warm."""
    needs_cold_reads(folder)

    class HalfStubborn(LinuxPageCache):
        def evict(self, paths: Sequence[Path]) -> None:
            super().evict(paths)
            self.warm([path for path in paths if int(path.stem) % 2])

    measured = _counted(_probe(folder, HalfStubborn(), readers=(1,)))
    (phase,) = measured.ladder
    assert phase.cache == "mixed" and phase.amplification is None and 0.2 < (phase.cold_fraction or 0) < 0.8


def test_memory_is_unproved() -> None:
    """On a memory file system nothing is called cold, and a note says why."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("no shared memory to write to")
    measured = _probe(shared, scratch_bytes=1 << 20, readers=(1,))
    if measured.location.kind != "memory":
        pytest.skip("/dev/shm is not memory here")
    (phase,) = measured.ladder
    assert phase.cache == "unproved" and phase.storage_bytes is None
    assert any("memory" in note for note in all_said(measured.location.notes))


def test_scratch_leaves_nothing(tmp_path: Path) -> None:
    """A scratch probe says so, reads in a row as well, and leaves the folder as it was."""
    measured = _probe(tmp_path, scratch_bytes=2 << 20, readers=(1,))
    sequential = measured.phase("sequential")
    assert measured.scratch and not measured.images and measured.files_used == 1
    assert sequential is not None and sequential.block_bytes == 1 << 20
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_unless_asked(folder: Path) -> None:
    """Probing a folder changes nothing in it, and adds nothing to it."""
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    _probe(folder)
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_what_was_left_out_has_a_reason(folder: Path) -> None:
    """Small files cannot be read in a row; without one reader there is nothing to compare pauses with."""
    measured = _probe(folder, readers=(2,))
    reasons = {missing.name: said(missing.reason) for missing in measured.missing}
    assert "--scratch" in reasons["sequential"] and "--readers" in reasons["paced"]


def test_few_files_end_the_ladder(folder: Path) -> None:
    """Twenty files cannot occupy eight readers: an automatic ladder ends before, and says so."""
    needs_cold_reads(folder)
    measured = _probe(folder, readers=None)
    assert max(phase.readers for phase in measured.ladder) <= 4
    if len(measured.ladder) == 3:
        assert any("too few for concurrency 8" in said(missing.reason) for missing in measured.missing)


def asked(policy: ProbePolicy, rate: Callable[[Step], float | None]) -> list[str]:
    """What a policy asks, where each phase has this rate, or is missing; `open 4` are opens by 4 readers."""
    found: list[str] = []

    def measure(ask: Ask[Step]) -> Measured:
        step, value = ask.what, rate(ask.what)
        found.append(f"{step.operation if isinstance(step, Names) else step.name} {step.readers}")
        if value is None:
            return Missing(name=step.name, reason=reported("it was not measured"))
        if isinstance(step, Names):
            return example_operations({step.readers: value}, step.operation)[0]
        return example_phase(step.readers, value, name=step.name)

    follow(policy, measure, clock=FakeClock())
    return found


def test_the_ladder_ends_when_it_gains_nothing() -> None:
    """Two doublings that together gain under 5 % are the last; one weak step does not end it."""
    rates = {1: 100e6, 2: 200e6, 4: 205e6, 8: 300e6, 16: 305e6, 32: 310e6, 64: 1e9}
    found = asked(ProbePolicy(), lambda step: rates[step.readers])
    assert found == [*(f"files {readers}" for readers in (1, 2, 4, 8, 16, 32)), "direct 32", "sequential 32", "paced 1"]
    assert asked(ProbePolicy(), float_of)[:8] == [f"files {2**power}" for power in range(8)]


def float_of(step: Step) -> float:
    """A rate that rises with the readers."""
    return 1e6 * step.readers


def test_opens_and_stats_end_where_they_gain_nothing() -> None:
    """Without a choice of the user: 1, 4, 16, until four times as many gain under 5 %; few files allow no more."""

    def rate(step: Step) -> float:
        rises = not isinstance(step, Names) or step.operation == "open"
        return 100.0 * (step.readers if rises else 1)

    many, few = (asked(ProbePolicy(metadata=True, files=files), rate)[8:-3] for files in (400, 20))
    assert many == ["open 1", "open 4", "open 16", "open 64", "stat 1", "stat 4"]
    assert few == ["open 1", "open 4", "stat 1", "stat 4"]
    chosen = asked(ProbePolicy(readers=(2, 3), metadata=True, files=400), rate)
    assert chosen[:6] == ["files 2", "files 3", "open 2", "open 3", "stat 2", "stat 3"]


def test_what_is_missing_ends_only_what_it_is_part_of() -> None:
    """A ladder that broke off is followed by the rest, at the fastest step so far; so are opens."""
    policy = ProbePolicy(metadata=True, files=400)
    found = asked(policy, lambda step: None if isinstance(step, Names) or step.readers == 4 else float_of(step))
    assert found == ["files 1", "files 2", "files 4", "open 1", "direct 2", "sequential 2", "paced 1"]


def test_the_pause_is_twice_the_time_of_one_reader() -> None:
    """For each byte; without a step of one reader there is no pause, and why not is said where it would be read."""

    def last(readers: tuple[int, ...]) -> Reads:
        steps = [Reads(name="files", readers=count) for count in readers]
        steps += [Reads(name="direct", readers=1), Reads(name="sequential", readers=1)]
        done = [
            Result(what=step, found=example_phase(step.readers, 1e6, name=step.name)) for step in steps
        ]  # fmt: skip
        found = ProbePolicy(readers=readers).next(Results(done=done))
        assert isinstance(found, Ask) and isinstance(found.what, Reads)
        return found.what

    assert last((1, 2)) == Reads(name="paced", readers=1, pause_s_per_byte=2e-6)
    assert last((2,)) == Reads(name="paced", readers=1)


def test_fast_storage_is_read_by_processes_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where threads may be the limit, processes read as well, and the faster of the two counts."""

    def made(settings: PhaseSettings) -> BandwidthPhase:
        rate = 6e9 if settings.engine.name == "processes" else 3e9
        return example_phase(settings.readers, rate, name=settings.name, engine=settings.engine.name)

    monkeypatch.setattr(probe_module, "run_phase", made)
    monkeypatch.setattr(probe_module, "cores_available", lambda: 4.0)
    monkeypatch.setattr(probe_module, "LEAST_FOR_PROCESSES_S", 0.0)
    assert [phase.engine for phase in _probe(folder).ladder] == ["threads", "processes"]


def test_links_lead_to_the_storage_they_point_to(tmp_path: Path) -> None:
    """A folder of links is judged by where the files lie, with a note; files of two storages by neither."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or locate(shared).mount == locate(tmp_path).mount:
        pytest.skip("there is no second file system here")
    links = tmp_path / "links"
    links.mkdir()
    with tempfile.TemporaryDirectory(dir=shared) as place:
        for number in range(3):
            Path(place, f"{number}").write_bytes(b"x" * 5000)
            (links / f"{number}.jpg").symlink_to(Path(place, f"{number}"))
        found = locate_pieces(links, sample_files(links, limit_bytes=10**9, seed=0).pieces)
        assert found.mount == locate(shared).mount and "not on the file system of" in said(found.notes[-1])
        (links / "own.jpg").write_bytes(b"x" * 5000)
        both = locate_pieces(links, sample_files(links, limit_bytes=10**9, seed=0).pieces)
    assert both.kind == "unknown" and not both.counts_reads and "several" in said(both.notes[0])


def test_reading_in_a_row_spoils_the_cold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where O_DIRECT is refused, the phase in a row fills the cache: the phase after it evicts again."""
    needs_cold_reads(folder)
    monkeypatch.setattr(probe_module, "why_not_direct", lambda _: reported("refused here"))
    measured = _counted(_probe(folder, readers=(1,), scratch_bytes=8 << 20, seconds=0.01))
    paced = measured.phase("paced")
    assert paced is not None and paced.cache == "cold"


def test_a_path_that_is_no_utf8_can_be_shown(folder: Path) -> None:
    """Bytes that are no text are replaced, so that the JSON can be written."""
    odd = Path(os.fsdecode(os.fsencode(folder.parent) + b"/odd\xff"))
    folder.rename(odd)
    assert msgspec.json.encode(_probe(odd, readers=(1,)))


def test_progress_names_what_is_read(folder: Path) -> None:
    """Every phase is announced before it is made."""
    seen: list[tuple[str, int, int]] = []
    request = ProbeRequest(path=folder, readers=(1, 2), seconds=0.1)
    probe_bandwidth(
        request, cache=LinuxPageCache(), on_phase=lambda *progress: seen.append(progress), clock=SystemClock()
    )
    assert [name for name, _, _ in seen][:2] == ["1 reader", "2 readers"] and len(seen) == 5
    assert all(done < total for _, done, total in seen)


def test_a_whole_machine_drop_is_done_and_reported(folder: Path) -> None:
    """With --drop-caches everything is dropped before each reading, and the measurement says so."""
    calls: list[int] = []
    measured = _probe(folder, readers=(1,), drop_all=lambda: calls.append(1))
    assert measured.drop_caches and calls


def test_small_sets_are_not_read_for_ever(folder: Path) -> None:
    """Rounds are limited: twenty small files do not keep the probe evicting for seconds of reading."""
    measured = _probe(folder, readers=(1,), seconds=60.0)
    (phase,) = measured.ladder
    total = sum(file.stat().st_size for file in folder.iterdir())
    assert phase.io_bytes <= MOST_ROUNDS * total


def test_other_reads_are_what_the_device_read_beyond_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's count less our own is what others read meanwhile."""
    needs_cold_reads(folder)
    readings = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(phase_module, "reads_from_storage", lambda _: next(readings))
    monkeypatch.setattr(phase_module, "own_reads", lambda: 0)
    (phase,) = _probe(folder, readers=(1,), seconds=0.05).ladder
    assert phase.storage_bytes == 0 and phase.cache == "warm"
    assert (phase.other_bytes_per_s or 0) >= 10**9


def test_bad_requests(folder: Path) -> None:
    """No readers, none at all in a phase, or no time, are bad values."""
    bad: tuple[dict[str, object], ...] = (
        {"readers": ()}, {"readers": (0, 1)}, {"seconds": 0.0}, {"seconds": float("inf")}, {"scratch_bytes": 0},
    )  # fmt: skip
    for changes in bad:
        with pytest.raises(BadValue):
            _probe(folder, None, **changes)


def test_a_network_count_proves_cold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS the client's own count of server reads says how cold a phase was."""
    location = replace(example_location(str(folder)), filesystem="nfs4", kind="network", devices=())
    readings = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(phase_module, "reads_from_storage", lambda _: next(readings))
    sample = sample_files(folder, limit_bytes=10**9, seed=0)
    settings = PhaseSettings(
        name="files", engine=ThreadEngine(), supply=Supply(sample, LinuxPageCache(), seed=0),
        location=location, cores_available=2.0, readers=1, seconds=0.01, longest_s=0.01,
    )  # fmt: skip
    phase = run_phase(settings)
    assert phase.cache == "cold" and phase.other_bytes_per_s is None


def test_ctrl_c_keeps_the_phases_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted probe has the phases that were complete, and says that it was interrupted."""

    def made(settings: PhaseSettings) -> BandwidthPhase:
        if settings.readers == 2:
            raise KeyboardInterrupt
        return example_phase(settings.readers, 1e8, name=settings.name)

    monkeypatch.setattr(probe_module, "run_phase", made)
    measured = _probe(folder)
    assert measured.interrupted and len(measured.phases) == 1
    with pytest.raises(KeyboardInterrupt):
        _probe(folder, readers=(2,))


def test_a_phase_that_fails_costs_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before stays, and the failed phase is named with its reason."""

    def made(settings: PhaseSettings) -> BandwidthPhase:
        if settings.name == "paced":
            raise OSError("the server has gone")
        return example_phase(settings.readers, 1e8, name=settings.name)

    monkeypatch.setattr(probe_module, "run_phase", made)
    measured = _probe(folder)
    assert measured.failed == ("paced",) and len(measured.ladder) == 2
    assert any("the server has gone" in said(missing.reason) for missing in measured.missing)


class VanishingCache(LinuxPageCache):
    """Deletes files right after the first eviction, as a job that cleans up does."""

    def __init__(self, count: int) -> None:
        self._count = count

    def evict(self, paths: Sequence[Path]) -> None:
        super().evict([path for path in paths if path.exists()])
        for path in paths[: self._count]:
            path.unlink(missing_ok=True)


def test_a_vanished_file_does_not_end_the_ladder(folder: Path) -> None:
    """A file that vanishes between phases is counted, and the ladder goes on."""
    measured = _probe(folder, VanishingCache(1))
    assert len(measured.ladder) == 2 and measured.ladder[0].unread == {"vanished": 1}


def test_a_path_that_vanishes_is_a_bad_path(folder: Path) -> None:
    """When everything has gone there is nothing to measure, and no division by nothing."""
    with pytest.raises(BadValue, match="vanished"):
        _probe(folder, VanishingCache(20))


def test_lost_permission_is_a_missing_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing may be read any more the exit code is that of a missing permission."""

    def refused(*_: object) -> tuple[int, int, int, str]:
        return 0, 0, 0, "no read permission"

    monkeypatch.setattr("loaderprobe.storage.reader._read", refused)
    with pytest.raises(MissingPart):
        _probe(folder)

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from loaderprobe.errors import BadValue
from loaderprobe.protocols import PageCache
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthPhase
from loaderprobe.records.remark import reported
from loaderprobe.storage import phase as phase_module
from loaderprobe.storage import probe as probe_module
from loaderprobe.storage.files import locate_pieces, sample_files
from loaderprobe.storage.phase import MOST_ROUNDS, PhaseSettings, cache_label, run_phase
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.storage.reader import ColdPieces, ThreadEngine
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import FakePageCache, example_location
from tests.examples.bandwidth import example_phase
from tests.said import all_said, said


def _probe(path: Path, cache: PageCache | None = None, **changes: object) -> BandwidthMeasurement:
    options: dict[str, object] = {"path": path, "readers": (1, 2), "seconds": 0.1, **changes}
    request = ProbeRequest(**options)  # type: ignore[arg-type]  # options by name, for brevity
    return probe_bandwidth(request, cache=cache or LinuxPageCache(), on_phase=lambda *_: None)


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
    measured = _counted(_probe(folder))
    assert [phase.readers for phase in measured.ladder] == [1, 2]
    assert all(phase.cache == "cold" and phase.resident_before == 0.0 for phase in measured.ladder)
    assert all((phase.amplification or 0) >= 1.0 and phase.cold_fraction == 1.0 for phase in measured.ladder)
    assert measured.files_used == 20 and measured.images and not measured.scratch


class NeverEvicting(FakePageCache):
    """Leaves everything in the real cache."""

    def resident(self, paths: Sequence[Path]) -> float | None:
        return None


def test_a_warm_ladder_is_called_warm(folder: Path) -> None:
    """Files that could not be evicted are not passed off as a device's speed."""
    LinuxPageCache().warm(list(folder.iterdir()))
    measured = _counted(_probe(folder, NeverEvicting()))
    assert all(phase.cache == "warm" and phase.amplification is None for phase in measured.ladder)


def test_half_warm_is_called_mixed(folder: Path) -> None:
    """A set of which every second file cannot be evicted is mixed, neither cold nor warm."""

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
    measured = _probe(folder, readers=None)
    assert max(phase.readers for phase in measured.ladder) <= 4
    if len(measured.ladder) == 3:
        assert any("too few for concurrency 8" in said(missing.reason) for missing in measured.missing)


def test_the_ladder_ends_when_it_gains_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two doublings that together gain under 5 % are the last; one weak step does not end it."""
    rates = {1: 100e6, 2: 200e6, 4: 205e6, 8: 300e6, 16: 305e6, 32: 310e6, 64: 1e9}

    def made(settings: PhaseSettings) -> BandwidthPhase:
        return example_phase(settings.readers, rates[settings.readers], name=settings.name)

    monkeypatch.setattr(probe_module, "run_phase", made)
    for number in range(400):
        (folder / f"more{number}.jpg").write_bytes(b"x")
    assert [phase.readers for phase in _probe(folder, readers=None).ladder] == [1, 2, 4, 8, 16, 32]


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
    probe_bandwidth(request, cache=LinuxPageCache(), on_phase=lambda *progress: seen.append(progress))
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
    assert phase.io_bytes <= MOST_ROUNDS * total and any("only" in note for note in all_said(phase.notes))


def test_other_reads_are_what_the_device_read_beyond_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's count less our own is what others read meanwhile."""
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
        name="files", engine=ThreadEngine(), supply=ColdPieces(sample, LinuxPageCache(), seed=0),
        location=location, cores_available=2.0, readers=1, seconds=0.01, longest_s=0.01,
    )  # fmt: skip
    phase = run_phase(settings)
    assert phase.cache == "cold" and phase.other_bytes_per_s is None

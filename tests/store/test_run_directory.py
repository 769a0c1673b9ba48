"""The run directory: whole files, typed, versioned, locked."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, DamagedRun, ForeignDirectory, Locked, MissingPart, NoSpace
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.measurement import Measurement, RankSeen, RunFailure
from loaderprobe.records.report import DamagedFile
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.store.run_directory import RunDirectory, RunRecord, lock_directory
from loaderprobe.testing import Service, example_config, example_environment, example_files
from tests.examples.bandwidth import example_phase
from tests.measure.conftest import Measure, measure_fake

__all__ = ["measure_fake"]
FILES = example_files(1024)
CONFIG = example_config(data=FILES.fingerprint)
FAILURE = RunFailure(
    config=CONFIG, stage="round 1", reason="it broke", hint="repair it", exit_code=None, signal="SIGKILL",
    log=("last words",), started_utc="2026-01-01T00:00:00+00:00", wall_s=1.5,
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of one configuration."""
    record = RunRecord(created_utc="now", spec=SweepSpec(configs=(CONFIG,)), environment=example_environment())
    return RunDirectory.create(tmp_path / "run", record, [FILES])


def test_a_measurement_comes_back_as_it_was(run: RunDirectory, measure_fake: Measure) -> None:
    """Every raw value survives the file, and a measurement replaces the failure of an earlier try."""
    run.save(FAILURE)
    assert run.result(CONFIG.key) == FAILURE
    assert not run.has_measurement(CONFIG.key)
    measurement = measure_fake(Service(cpu_s=0.001, blocked_s=0.001), files=FILES)
    run.save(measurement)
    assert isinstance(run.result(CONFIG.key), Measurement)
    assert run.result(CONFIG.key) == measurement
    assert not list((run.path / "failures").iterdir())


def of_ranks(measured: Measurement, ranks: int) -> Measurement:
    """The same of several ranks, which saw the same."""
    count = len(measured.segments)
    seen = RankSeen(
        rank=0, node=0, host="one", device="", cores=2.0, span_ns=(10**9,) * count, input_ns=(10**6,) * count,
        meet_ns=(0,) * count, steps=(20,) * count, delivered_bytes=(None,) * count, disk_bytes=(10**6,) * count,
        service_ns=(10**7,) * 128, read_bytes=(0,) * count,
    )  # fmt: skip
    config = replace(measured.config, ranks=ranks)
    return replace(
        measured, config=config, ranks=ranks, by_rank=tuple(replace(seen, rank=rank) for rank in range(ranks))
    )


def test_ranks_have_files_of_their_own(run: RunDirectory, measure_fake: Measure) -> None:
    """They come back with the measurement, of which each takes at most 4 kB; damage of one is that of all."""
    measured = of_ranks(measure_fake(Service(cpu_s=0.001, blocked_s=0.001), files=FILES), 3)
    run.save(measured)
    assert run.result(measured.config.key) == measured
    files = sorted((run.path / "measurements" / measured.config.key).iterdir())
    assert [each.name for each in files] == ["rank-0.json", "rank-1.json", "rank-2.json"]
    assert max(each.stat().st_size for each in files) <= 4096
    files[2].write_bytes(files[1].read_bytes())
    damaged = run.result(measured.config.key)
    assert isinstance(damaged, DamagedFile) and "rank-2.json" in damaged.file
    files[1].unlink()
    damaged = run.result(measured.config.key)
    assert isinstance(damaged, DamagedFile) and damaged.reason == "is missing from the run"
    run.save(measured)
    assert run.has_measurement(measured.config.key)


def test_a_run_opens_with_what_was_asked_and_its_files(run: RunDirectory) -> None:
    """Spec, environment and file sets are those it was made with."""
    opened = RunDirectory.open(run.path)
    assert opened.record == run.record
    assert opened.files(CONFIG.data) == FILES
    assert opened.result(CONFIG.key) is None


def test_another_budget_is_kept_and_changes_nothing_else(run: RunDirectory) -> None:
    """What was asked for stays; so do the keys of the configurations, and with them their results."""
    asked = run.record
    run.set_budget(77.0)
    found = RunDirectory.open(run.path).record
    assert found == run.record and found.spec.budget_s == 77.0
    assert replace(found, spec=replace(found.spec, budget_s=asked.spec.budget_s)) == asked


def test_a_ceiling_comes_back_and_can_grow(run: RunDirectory) -> None:
    """What the storage delivers is kept by file set; more of it replaces what was known; a run may have none."""
    assert run.ceiling(CONFIG.data) is None
    first = StorageCeiling(data=CONFIG.data, phases=(example_phase(1, 20e6),))
    run.save_ceiling(first)
    assert run.ceiling(CONFIG.data) == first
    more = replace(first, phases=(*first.phases, example_phase(2, 20e6)))
    (run.path / "ceilings" / f"{CONFIG.data}.json").unlink()
    (run.path / "ceilings").rmdir()  # as in a run of an older version
    run.save_ceiling(more)
    assert RunDirectory.open(run.path).ceiling(CONFIG.data) == more


def test_what_is_not_a_run_is_refused(tmp_path: Path, run: RunDirectory) -> None:
    """A directory without run.json, a missing file set and a foreign directory each have their error."""
    with pytest.raises(BadValue, match=r"no run\.json"):
        RunDirectory.open(tmp_path)
    with pytest.raises(BadValue, match="missing from the run"):
        run.files("0" * 16)
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ForeignDirectory):
        RunDirectory.create(tmp_path, run.record, [FILES])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "run"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"schema": "loaderprobe/run", "schema_version": 99, "run": {}}', "version 99"),
        (b'{"schema": "loaderprobe/run", "schema_version": 6, "run": {}}', "loaderprobe/run version 6, not"),
        (b'{"schema": "another/program", "schema_version": 1}', "another/program"),
        (b'{"schema": "loaderprobe/run", "schema_version": 1, "run": {"created_utc": 3}}', "damaged"),
        (b'{"schema": "loaderprobe/run", "schema_version": 1}', "damaged"),
        (b"{", "damaged"),
    ],
)
def test_strange_and_damaged_files_are_refused_by_name(run: RunDirectory, data: bytes, says: str) -> None:
    """The error names the file and what is wrong with it."""
    (run.path / "run.json").write_bytes(data)
    with pytest.raises(BadValue, match=says) as caught:
        RunDirectory.open(run.path)
    assert "run.json" in caught.value.message


@pytest.mark.usefixtures("impatient")
def test_only_one_process_holds_a_run(run: RunDirectory) -> None:
    """The second is refused at once, and may have it afterwards."""
    with run.lock(), pytest.raises(Locked), lock_directory(run.path):
        pytest.fail("both hold it")
    with run.lock():
        pass


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, NoSpace), (errno.EACCES, MissingPart)])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """On a full disk nothing is lost and nothing half-written stays."""
    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(error):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_an_envelope_of_another_kind_is_refused() -> None:
    """A measurement is no run."""
    with pytest.raises(BadValue, match="loaderprobe/measurement"):
        decode("run", encode("measurement", FAILURE), RunRecord, "x.json")


def test_a_damaged_measurement_is_measured_again(run: RunDirectory, measure_fake: Measure) -> None:
    """It does not count as measured, its place is named, and a later failure says more than the damage."""
    run.save(measure_fake(Service(cpu_s=0.001), files=FILES))
    assert run.has_measurement(CONFIG.key)
    path = run.path / "measurements" / f"{CONFIG.key}.json"
    path.write_bytes(path.read_bytes()[:-10])
    assert not run.has_measurement(CONFIG.key)
    found = run.result(CONFIG.key)
    assert isinstance(found, DamagedFile) and found.file == f"measurements/{CONFIG.key}.json"
    run.save(FAILURE)
    assert run.result(CONFIG.key) == FAILURE
    run.save(measure_fake(Service(cpu_s=0.001), files=FILES))
    assert run.has_measurement(CONFIG.key)


@pytest.mark.parametrize("name", ["../../aside", "", "x", "0" * 17, "0" * 15 + "/", "0" * 16 + "\n"])
def test_only_a_key_names_a_file(run: RunDirectory, name: str) -> None:
    """Whatever stands in a stored record, no path outside the run is made of it."""
    for ask in (run.result, run.files, run.ceiling):
        with pytest.raises(BadValue, match="names no file of a run"):
            ask(name)


@pytest.mark.parametrize(
    "changes", [{"root": "here"}, {"paths": ("../secret",)}, {"paths": ("/etc/passwd",)}, {"paths": ("a\0b",)}]
)
def test_files_are_those_of_their_name_and_under_their_root(run: RunDirectory, changes: dict[str, object]) -> None:
    """A list whose content does not fit its name is refused, and so is one that leads out of its folder."""
    one = {"paths": ("a",), "classes": (0,), "size_bytes": (1,)}
    odd = replace(FILES, **(one | changes))  # type: ignore[arg-type]  # by name
    (run.path / "files" / f"{odd.fingerprint}.json").write_bytes(encode("files", odd))
    with pytest.raises(DamagedRun, match="is not under"):
        run.files(odd.fingerprint)
    (run.path / "files" / f"{CONFIG.data}.json").write_bytes(encode("files", odd))
    with pytest.raises(DamagedRun, match="other files than its name says"):
        run.files(CONFIG.data)

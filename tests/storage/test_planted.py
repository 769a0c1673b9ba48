"""Disks: two that really are slow, from the command line to the verdict, and what the real one counts.

Of slow ones `scripts/bench` has the others: `bandwidth` plants every kind of disk, `truth` pipelines on them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.verdict.rates import cold_fraction
from loaderprobe.measure.runner import ForkServer
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.storage.probe import ProbePolicy
from tests.cli.invoke import invoke
from tests.conftest import MeasureReal, needs_cold_reads
from tests.planted.slow_cgroup import find
from tests.planted.slow_disk import CannotPlant, SlowDisk, random_files, slow_disk

PlantDisk = Callable[..., SlowDisk]


@pytest.fixture(scope="module")
def plant_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlantDisk]:
    """Plants slow disks that last as long as the module; takes the arguments of `slow_disk` but for `scratch`. All are
    of one kind: the first is verified."""
    planted: list[SlowDisk] = []
    with ExitStack() as undo:

        def plant(**options: object) -> SlowDisk:
            options = {"fill": random_files, "scratch": tmp_path_factory.mktemp("slow-disk"), **options}
            try:
                planted.append(undo.enter_context(slow_disk(verify=not planted, **options)))  # type: ignore[arg-type]  # options by name, for brevity
            except CannotPlant as error:
                pytest.skip(str(error))
            return planted[-1]

        yield plant


@contextmanager
def inside(disk: SlowDisk, *processes: int) -> Iterator[None]:
    """These processes and their children meet the disk's limit."""
    if disk.members is None:
        yield
        return
    _, _, home = find("blkio" if "blkio" in disk.how else "io.max")
    for process in processes:
        disk.members.write_text(str(process))
    try:
        yield
    finally:
        for process in processes:
            (home / "cgroup.procs").write_text(str(process))


def run(*command: object) -> dict[str, Any]:
    """What the command prints as JSON."""
    done = invoke(*command)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.alone
def test_cold_reads_of_the_serial_loader_agree_with_the_device(photographs: FileSet, measure_real: MeasureReal) -> None:
    """With the files consumed within 5 %, the device within 10 % in the quietest segment: others only add reads."""
    needs_cold_reads(Path(photographs.root))
    serial = measure_real(photographs, workers=0, rounds=3)
    assert isinstance(serial, Measurement)
    cold = [segment for segment in serial.segments if segment.mode == "baseline"]
    assert cold_fraction(serial, cold) == pytest.approx(1.0, abs=0.05)
    if any(s.disk_bytes is None for s in cold):
        pytest.skip("the device of the temporary directory is not visible")
    assert min((s.disk_bytes or 0) / (s.delivered_bytes or 1) for s in cold) == pytest.approx(1.0, abs=0.10)


def test_a_throttled_disk_is_bandwidth_limited(plant_disk: PlantDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 20 MB/s the ladder is flat, within a tenth of the limit, cold, and idle time is credit. Opens, which the limit
    leaves alone, are left out."""
    monkeypatch.setattr(ProbePolicy, "_names", lambda *_: None)
    disk = plant_disk(kind="token_bucket", limit=20e6)
    with inside(disk, os.getpid()):
        found = run("bandwidth", disk.folder, "--readers", "1,8", "--seconds", 0.5, "--json")
    assert (found["limit"]["by"], found["kind"]["kind"]) == ("bandwidth", "token_bucket"), found
    assert "Bandwidth-limited" in found["limit"]["sentence"]
    phases = [phase for phase in found["phases"] if phase["name"] in ("files", "direct")]
    assert [phase["bw_bytes"] for phase in phases] == pytest.approx([20e6] * len(phases), rel=0.1)
    if disk.members:
        assert {phase["cache"] for phase in phases} == {"cold"}


def test_a_sweep_holds_the_disk_against_its_ceiling(
    plant_disk: PlantDisk, photographs: FileSet, tmp_path: Path, fork_server: ForkServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two workers are at over 85 % of it in two rounds. The budget is for a busy machine: no more rounds use it up."""
    monkeypatch.setattr("loaderprobe.api.sweep.ForkServer", lambda: nullcontext(fork_server))
    monkeypatch.setattr("loaderprobe.measure.sweep.further_round", lambda *_, **__: ())
    monkeypatch.setattr("loaderprobe.api.sweep.name_kinds", lambda *_: None)

    def fill(folder: Path) -> None:
        # As many as a segment takes: all are read before they are warm.
        for path in photographs.absolute(0, 52):
            place = folder / "photographs" / path.parent.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)

    # Slower than the others: storage is to bind clearly also on a machine whose cores are busy.
    disk = plant_disk(kind="token_bucket", limit=3.5e6, fill=fill)
    if disk.members is None:
        pytest.skip("FUSE does not count reads, so there is no ceiling to hold them against")
    with inside(disk, os.getpid(), fork_server._process.pid):
        summary = run(
            "sweep", disk.folder / "photographs", "--workers", 2, "--no-serial", "--compute", "emulated:mlperf-h100",
            "--batch-size", 2, "--rounds", 2, "--budget", 60, "--json", "--out", tmp_path / "run",
        )  # fmt: skip
    (cold,) = summary["configurations"]
    bound = cold["bound"]
    assert bound["side"] == "input" and bound["reason"]["facts"]["resource"] == "storage", bound
    assert cold["disk_ceiling_fraction"] > 0.85 and 0.95 < cold["read_amplification"] < 1.2
    if bound["reason"]["code"] == "rounds_disturbed":
        pytest.skip("other processes take this machine's cores, so that no cause is named")
    assert bound["cause"] == "storage", bound
    assert "of its ceiling at concurrency 2" in bound["sentence"]
    assert any(each["metric"] == "disk_ceiling_fraction" for each in bound["evidence"])

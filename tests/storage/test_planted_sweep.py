"""A sweep on a slow disk, by the program itself. It feels it when other tests keep the cores busy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loaderprobe.records.files import FileSet
from tests.planted.fixtures import PlantDisk
from tests.storage.test_planted import PROGRAM, run_on


@pytest.mark.alone
def test_a_sweep_holds_the_disk_against_its_ceiling(
    plant_disk: PlantDisk, photographs: FileSet, tmp_path: Path
) -> None:
    """Two workers on the slow disk: input, storage, at over 85 % of the ceiling; with warm files, not storage."""

    def fill(folder: Path) -> None:
        # As many as a segment takes: all are read before they are warm.
        for path in photographs.absolute(0, 96):
            place = folder / "photographs" / path.parent.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)

    # Slower than the others: storage is to bind clearly also on a machine whose cores are busy.
    disk = plant_disk(kind="token_bucket", bytes_per_s=3.5e6, fill=fill)
    if disk.members is None:
        pytest.skip("FUSE does not count reads, so there is no ceiling to hold them against")
    summary = run_on(
        disk, *PROGRAM, "sweep", disk.folder / "photographs", "--workers", 2, "--no-serial", "--cache", "cold,warm",
        "--compute", "emulated:mlperf-h100", "--batch-size", 4, "--rounds", 2, "--budget", 30, "--json",
        "--out", tmp_path / "run",
    )  # fmt: skip
    cold, warm = summary["configurations"]
    assert (cold["bound"]["side"], cold["bound"]["cause"]) == ("input", "storage"), cold["bound"]
    assert cold["disk_ceiling_fraction"] > 0.85 and 0.95 < cold["read_amplification"] < 1.2
    assert "of its ceiling at concurrency 2" in cold["bound"]["sentence"]
    assert any(each["metric"] == "disk_ceiling_fraction" for each in cold["bound"]["evidence"])
    assert warm["bound"]["cause"] != "storage" and warm["disk_ceiling_fraction"] is None
    assert warm["unavailable"]["disk_ceiling_fraction"]["code"] == "warm_as_asked"

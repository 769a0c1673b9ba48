"""The probe, and a sweep, on disks that really are slow: the whole way from the command line to the verdict."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Run
from tests.planted.files import random_files
from tests.planted.slow_disk import SlowDisk

PROGRAM = ("-m", "loaderprobe")
READS_ONLY = """
import sys
from pathlib import Path
from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.render.json import result_json
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.system.pagecache import LinuxPageCache
request = ProbeRequest(path=Path(sys.argv[1]), readers=(1, 8), seconds=1.0)
measured = probe_bandwidth(request, cache=LinuxPageCache(), on_phase=lambda *_: None)
print(result_json(judge_bandwidth(measured, {})))
"""
"""The probe of a sweep, without the opens and stats of the command, which take longer than the reads."""


def run_on(disk: SlowDisk, *command: object) -> dict[str, Any]:
    """What the command prints as JSON, run inside the disk's limit."""
    words = disk.command([sys.executable, *map(str, command)])
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_throttled_disk_is_bandwidth_limited(token_bucket_disk: SlowDisk) -> None:
    """At 20 MB/s the ladder is flat, within a tenth of the limit, cold, and idle time is credit."""
    found = run_on(
        token_bucket_disk, *PROGRAM, "bandwidth", token_bucket_disk.folder, "--readers", "1,8", "--seconds", 1, "--json"
    )
    assert (found["limit"]["by"], found["kind"]["kind"]) == ("bandwidth", "token_bucket"), found
    assert "Bandwidth-limited" in found["limit"]["sentence"]
    phases = [phase for phase in found["phases"] if phase["name"] in ("files", "direct")]
    assert [phase["bw_bytes"] for phase in phases] == pytest.approx([20e6] * len(phases), rel=0.1)
    if token_bucket_disk.members:
        assert {phase["cache"] for phase in phases} == {"cold"}


def test_a_single_queue_is_a_single_server(single_server_disk: SlowDisk) -> None:
    """The ladder of a disk that loses idle time is flat as well; the pauses tell it from a token bucket."""
    found = run_on(single_server_disk, "-c", READS_ONLY, single_server_disk.folder)
    assert (found["limit"]["by"], found["kind"]["kind"]) == ("bandwidth", "single_server"), found


def test_a_far_disk_is_latency_limited(latency_disk: SlowDisk) -> None:
    """At 10 ms a request the ladder rises with the readers, and nothing is claimed about what was cached."""
    found = run_on(latency_disk, "-c", READS_ONLY, latency_disk.folder)
    assert (found["limit"]["by"], found["kind"]["kind"]) == ("latency", "latency"), found
    assert "Latency-limited" in found["limit"]["sentence"]
    ladder = [phase for phase in found["phases"] if phase["name"] == "files"]
    assert ladder[0]["file_ns"]["percentile"]["50.000000"] == pytest.approx(10e6, rel=0.5)
    assert {phase["cache"] for phase in ladder} == {"unproved"} and ladder[0]["storage_bytes"] is None


def test_a_warm_set_is_called_warm(tmp_path: Path, loaderprobe: Run) -> None:
    """Files that another process keeps mapped cannot be evicted: their rate is not passed off as the disk's."""
    random_files(tmp_path, count=40)
    with ExitStack() as held:
        for path in tmp_path.glob("*/*.jpg"):
            file = held.enter_context(path.open("rb"))
            mapped = held.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            assert sum(mapped[:: mmap.PAGESIZE]) >= 0
        done = loaderprobe("bandwidth", tmp_path, "--readers", "1,2", "--seconds", "0.1", "--json")
    found = json.loads(done.stdout)
    if found["location"]["kind"] != "block":
        pytest.skip("reads are not counted here")
    assert [phase["cache"] for phase in found["phases"][:2]] == ["warm", "warm"]
    assert (found["limit"]["by"], found["kind"]["kind"]) == ("memory", "unknown")

"""The probe, and a sweep, on disks that really are slow: the whole way from the command line to the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.measure.clock import SystemClock
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from tests.planted.slow_disk import SlowDisk

PROGRAM = ("-m", "loaderprobe")
READS_ONLY = """
import sys
from pathlib import Path
from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.measure.clock import SystemClock
from loaderprobe.render.json import result_json
from loaderprobe.storage.probe import ProbeRequest, probe_bandwidth
from loaderprobe.system.pagecache import LinuxPageCache
request = ProbeRequest(path=Path(sys.argv[1]), readers=(1, 8), seconds=1.0)
measured = probe_bandwidth(request, cache=LinuxPageCache(), on_phase=lambda *_: None, clock=SystemClock())
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
    options = ("--readers", "1,8", "--seconds", 0.5, "--json")
    found = run_on(token_bucket_disk, *PROGRAM, "bandwidth", token_bucket_disk.folder, *options)
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


def test_names_on_a_disk_just_mounted_are_cold(token_bucket_disk: SlowDisk) -> None:
    """Mounting again forgets the names of one file system only: they then come from its device, by count."""
    if token_bucket_disk.members is None:
        pytest.skip("FUSE counts no reads")
    (device,) = locate(token_bucket_disk.folder).devices
    held = os.open(f"/dev/{device}", os.O_RDONLY)  # a loop device without a user would be freed

    def mount_again() -> None:
        subprocess.run(["umount", token_bucket_disk.folder], check=True)
        subprocess.run(["mount", "-o", "noatime", f"/dev/{device}", token_bucket_disk.folder], check=True)

    try:
        request = ProbeRequest(
            path=token_bucket_disk.folder, readers=(4,), seconds=0.3, metadata=True, drop_all=mount_again
        )
        measured = probe_bandwidth(request, cache=LinuxPageCache(), on_phase=lambda *_: None, clock=SystemClock())
        again = replace(request, drop_all=None)
        kept = probe_bandwidth(again, cache=LinuxPageCache(), on_phase=lambda *_: None, clock=SystemClock())
    finally:
        os.close(held)
    assert [phase.metadata for phase in measured.metadata] == ["cold", "cold"]
    assert [phase.metadata for phase in kept.metadata] == ["warm", "warm"]
    assert all(phase.storage_bytes == 0 for phase in kept.metadata)

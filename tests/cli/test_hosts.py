"""Two hosts with networks of their own, each of which takes its own name for 127.0.1.1, as Debian has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_seats import without_launchers
from tests.planted.hosts import CannotPlant, Host, hosts

PORT = 29500
PROBE = ("--ranks", "2", "--readers", "1", "--seconds", "0.1", "--json", "--quiet")


def begun(host: Host, rank: int, folder: Path) -> subprocess.Popen[str]:
    """The probe there, as one of two processes."""
    torch = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "left", "MASTER_PORT": str(PORT)}
    return subprocess.Popen(
        host.command([sys.executable, "-m", "loaderprobe", "bandwidth", str(folder), *PROBE]),
        env={**without_launchers(os.environ), "OMP_NUM_THREADS": "1", **torch},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def gone(process: Path) -> bool:
    """True of none, and of one that has ended and that init has not waited for yet."""
    try:
        return "State:\tZ" in process.joinpath("status").read_text()
    except OSError:
        return True


def test_ranks_on_two_hosts_meet_by_the_network_that_joins_them(tmp_path: Path) -> None:
    """Not by the addresses of their names, at which they find only themselves; both are named, and nothing is left."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(96):
        folder.joinpath(f"{number}.jpg").write_bytes(os.urandom(10_000))
    try:
        with hosts("left", "right", files=tmp_path, resolve=False) as made:
            running = [begun(host, rank, folder) for rank, host in enumerate(made)]
            ended = [each.communicate(timeout=120) for each in running]
            namespaces = [Path(f"/proc/{host.pid}") for host in made]
    except CannotPlant as error:
        pytest.skip(str(error))
    assert [each.returncode for each in running] == [0, 0], ended
    found: dict[str, Any] = json.loads(ended[0][0])
    assert found["hosts"] == ["left", "right"] and ended[1][0] == ""
    assert [each["host"] for each in found["phases"][-1]["by_rank"]] == ["left", "right"]
    assert all(map(gone, namespaces))

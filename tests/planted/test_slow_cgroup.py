"""Where a cgroup with a limit can be made, and how its rule is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.planted.slow_cgroup import Impossible, blkio, io_max, memory, of_requests


def test_a_cgroup_is_made_under_the_own_one(tmp_path: Path) -> None:
    """Version 1: below this process's cgroup, wherever its hierarchy is mounted; elsewhere it is impossible."""
    mounts = f"30 20 0:9 /docker/x {tmp_path} rw - cgroup cgroup rw,blkio\n31 20 0:9 / /other rw - cgroup cgroup rw,cpu"
    assert blkio(mounts, "3:cpu:/a\n2:blkio:/docker/x/job").parent == tmp_path / "job"
    with pytest.raises(Impossible, match="blkio"):
        blkio("31 20 0:9 / /other rw - cgroup cgroup rw,cpu", "3:cpu:/a")


def test_a_cgroup_of_version_2_is_made_where_io_is_handed_on(tmp_path: Path) -> None:
    """The nearest such cgroup at or above the own one; where there is none, none is made to."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        (folder / "cgroup.subtree_control").write_text("cpu memory\n")
    mounts, memberships = f"30 20 0:9 / {tmp_path} rw - cgroup2 cgroup2 rw,nsdelegate", "0::/a/b"
    with pytest.raises(Impossible, match=r"subtree_control"):
        io_max(mounts, memberships)
    (tmp_path / "cgroup.subtree_control").write_text("cpu io memory\n")
    found = io_max(mounts, memberships)
    assert (found.parent, found.home) == (tmp_path, tmp_path / "a" / "b")
    assert found.rule.format(device="7:1", amount=20_000_000) == "7:1 rbps=20000000"
    assert of_requests(found).rule.format(device="7:1", amount=300) == "7:1 riops=300"


def test_either_version_of_the_memory_controller_is_found(tmp_path: Path) -> None:
    """Version 1 under the own cgroup; else version 2, where a cgroup at or above it hands memory on; else neither."""
    old = f"31 20 0:9 / {tmp_path} rw - cgroup cgroup rw,memory"
    found = memory(old, "4:memory:/job")
    assert (found.parent, found.file) == (tmp_path / "job", "memory.limit_in_bytes")
    new = f"30 20 0:9 / {tmp_path} rw - cgroup2 cgroup2 rw"
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "cgroup.subtree_control").write_text("cpu\n")
    found = memory(new, "0::/job")
    assert (found.parent, found.file) == (tmp_path, "memory.max")
    assert found.rule.format(device="7:1", amount=5) == "5"
    with pytest.raises(Impossible):
        memory("31 20 0:9 / /other rw - cgroup cgroup rw,cpu", "3:cpu:/a")

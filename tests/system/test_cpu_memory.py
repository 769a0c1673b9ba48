from __future__ import annotations

import os
from pathlib import Path

import pytest

from loaderprobe.system.limits import (
    cores_available,
    cpu_model,
    free_shared_memory_bytes,
    memory_bytes,
    shared_memory_bytes,
)


@pytest.fixture(autouse=True)
def sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


def _group(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".", 1)).write_text(text)


def _membership(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "membership"
    path.write_text(text)
    return path


def test_affinity_counts_without_groups(tmp_path: Path) -> None:
    """Without control groups the cores of the affinity are available."""
    assert cores_available(tmp_path, tmp_path / "none") == 16.0


def test_version_2_quota_of_a_parent(tmp_path: Path) -> None:
    """The tightest quota on the way up counts, wherever it is set."""
    root = tmp_path / "cgroup"
    _group(root / "pod", cpu__max="250000 100000\n")
    _group(root / "pod/task", cpu__max="max 100000\n")
    assert cores_available(root, _membership(tmp_path, "0::/pod/task\n")) == 2.5


def test_version_1_quota(tmp_path: Path) -> None:
    """Version 1 writes quota and period in two files, and -1 for no limit."""
    root = tmp_path / "cgroup"
    _group(root / "cpu/job", cpu__cfs_quota_us="400000\n", cpu__cfs_period_us="100000\n")
    _group(root / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert cores_available(root, _membership(tmp_path, "3:cpu,cpuacct:/job\n")) == 4.0


def test_quota_above_the_affinity_does_not_count(tmp_path: Path) -> None:
    """A quota cannot give more cores than the affinity allows."""
    root = tmp_path / "cgroup"
    _group(root, cpu__max="6400000 100000\n")
    assert cores_available(root, _membership(tmp_path, "0::/\n")) == 16.0


def test_group_of_the_host_seen_from_a_container(tmp_path: Path) -> None:
    """A container that sees the host's name of its group, but only its own directory, still finds its quota."""
    root = tmp_path / "cgroup"
    _group(root, cpu__max="150000 100000\n")
    assert cores_available(root, _membership(tmp_path, "0::/system.slice/host-name\n")) == 1.5


def test_cpu_model(tmp_path: Path) -> None:
    """The name is the kernel's; where it gives none, the architecture."""
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Example 9000 @ 3 GHz\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Example 9000 @ 3 GHz"
    assert cpu_model(tmp_path / "none") == os.uname().machine


def test_memory(tmp_path: Path) -> None:
    """Memory has a size; shared memory that is not there is None, not 0."""
    assert memory_bytes() > 0
    assert shared_memory_bytes(tmp_path / "none") is None
    assert free_shared_memory_bytes(tmp_path / "none") is None
    size, free = shared_memory_bytes(tmp_path), free_shared_memory_bytes(tmp_path)
    assert size is not None and free is not None and 0 <= free <= size

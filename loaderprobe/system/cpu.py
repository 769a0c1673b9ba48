"""How many cores this process may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from loaderprobe.system.cgroups import MEMBERSHIP, ROOT, cgroup_directories


def cores_available(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float:
    """Cores within CPU affinity and the smallest cgroup quota (v1 or v2) of this process and its parents."""
    cores = float(len(os.sched_getaffinity(0)))
    quotas = [quota for each in cgroup_directories("cpu", root, membership) if (quota := _quota(each)) is not None]
    return min([cores, *quotas])


def _quota(directory: Path) -> float | None:
    try:
        if (directory / "cpu.max").is_file():
            quota, period = (directory / "cpu.max").read_text().split()
            return None if quota == "max" else int(quota) / int(period)
        quota_us = int((directory / "cpu.cfs_quota_us").read_text())
        period_us = int((directory / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None  # no controller here: no limit from this directory
    return quota_us / period_us if quota_us > 0 else None


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, or the architecture where the kernel does not give one."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())

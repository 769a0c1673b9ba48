"""What the machine and its cgroups leave to this process: cores, memory for files and for itself, open files."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from loaderprobe.system import limits
from loaderprobe.system.limits import cpu_model, memory_bytes, memory_left_bytes, peak_bytes, reset_peak, resident_bytes

STAT_1 = "cache 90\ntotal_active_file 30\ntotal_inactive_file 20\n"
STAT_2 = "anon 5\nactive_file 30\ninactive_file 20\n"
Groups = dict[str, dict[str, str]]


def memory_1(limit: object) -> dict[str, str]:
    return {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": "100\n", "memory.stat": STAT_1}


def memory_2(limit: object) -> dict[str, str]:
    return {"memory.max": f"{limit}\n", "memory.current": "100\n", "memory.stat": STAT_2}


def cpu_1(quota: int) -> dict[str, str]:
    return {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}


def cpu_2(quota: object) -> dict[str, str]:
    return {"cpu.max": f"{quota} 100000\n"}


def write_groups(tmp_path: Path, membership: str, groups: Groups) -> tuple[Path, Path]:
    """The root of the cgroups, and the file that says which of them the process is in."""
    for name, files in groups.items():
        (tmp_path / "cgroup" / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (tmp_path / "cgroup" / name / file).write_text(text)
    (tmp_path / "membership").write_text(membership)
    return tmp_path / "cgroup", tmp_path / "membership"


@pytest.mark.parametrize(
    ("membership", "groups", "limit"),
    [
        ("4:memory:/job\n", {"memory/job": memory_1(400)}, 400),
        ("4:memory:/job\n", {"memory/job": memory_1(400), "memory": memory_1(300)}, 300),
        ("4:memory:/job\n", {"memory/job": memory_1(2**63 - 4096)}, None),
        ("0::/pod/task\n", {"pod/task": memory_2("max"), "pod": memory_2(400)}, 400),
        ("0::/task\n", {"unified/task": memory_2(400)}, 400),
        ("0::/task\n", {"task": memory_2(10)}, 10),
        ("0::/task\n", {"task": memory_2("max") | {"memory.high": "300\n"}}, 300),
        ("0::/task\n", {"task": memory_2(400) | {"memory.high": "300\n"}}, 300),
        ("0::/task\n", {"task": memory_2(400) | {"memory.high": "max\n"}}, 400),
        ("4:cpu:/job\n", {"memory/job": memory_1(400)}, None),
    ],
)
def test_memory_for_files_is_what_is_left(tmp_path: Path, membership: str, groups: Groups, limit: int | None) -> None:
    """A limit less 50 bytes of something else; without one, what the machine has. Memory is the limit."""
    place = write_groups(tmp_path, membership, groups)
    (tmp_path / "meminfo").write_text("MemAvailable:   1000 kB\n")
    assert memory_left_bytes(*place, tmp_path / "meminfo") == (1_024_000 if limit is None else max(0, limit - 50))
    assert memory_bytes(*place) == (memory_bytes(*place[:1], tmp_path / "none") if limit is None else limit)
    assert memory_left_bytes(tmp_path, tmp_path / "none", tmp_path / "none") is None


@pytest.mark.parametrize(
    ("membership", "groups", "cores"),
    [
        ("", {}, 16.0),
        ("0::/pod/task\n", {"pod": cpu_2(250000), "pod/task": cpu_2("max")}, 2.5),
        ("3:cpu,cpuacct:/job\n", {"cpu/job": cpu_1(400000), "cpu": cpu_1(-1)}, 4.0),
        ("0::/\n", {".": cpu_2(6400000)}, 16.0),
        # A container that sees the host's name of its group, but only its own directory.
        ("0::/system.slice/host-name\n", {".": cpu_2(150000)}, 1.5),
    ],
)
def test_cores_are_the_affinity_within_the_tightest_quota_on_the_way_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str, groups: Groups, cores: float
) -> None:
    """Of both versions, wherever it is set; a quota cannot give more cores than the affinity allows."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert limits.cores_available(*write_groups(tmp_path, membership, groups)) == cores


def test_limits_of_cores_that_are_shared_have_the_same_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota by its directory, the affinity by the cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    groups = {"pod": cpu_2(300000), "pod/one": cpu_2(50000), "pod/two": cpu_2(50000)}
    one, two = (limits.core_limits(*write_groups(tmp_path, f"0::/pod/{name}\n", groups)) for name in ("one", "two"))
    assert sorted(one.values()) == sorted(two.values()) == [0.5, 2.0, 3.0]
    assert sorted(one[name] for name in one.keys() & two.keys()) == [2.0, 3.0]


def test_the_machine(tmp_path: Path) -> None:
    """Its processor by the kernel's name, else the architecture, on ARM with numbers. No memory is None, not 0."""
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Example 9000 @ 3 GHz\n")
    assert cpu_model(tmp_path / "cpuinfo") == "Example 9000 @ 3 GHz"
    (tmp_path / "cpuinfo").write_text("processor : 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n")
    assert cpu_model(tmp_path / "cpuinfo") == f"{os.uname().machine} 0x41/0xd4f"
    assert cpu_model(tmp_path / "none") == os.uname().machine
    assert memory_bytes() > 0
    assert limits.shared_memory_bytes(tmp_path / "none") is limits.free_shared_memory_bytes(tmp_path / "none") is None
    size, free = limits.shared_memory_bytes(tmp_path), limits.free_shared_memory_bytes(tmp_path)
    assert size is not None and free is not None and 0 <= free <= size


def test_a_peak_is_seen_after_it_is_gone(tmp_path: Path) -> None:
    """And a reset forgets it, where the kernel allows that. Memory that cannot be read is 0, and has no peak."""
    limits.release_free()
    reset_peak()
    before = resident_bytes()
    held = bytearray(60_000_000)
    held[::4096] = b"x" * len(held[::4096])
    del held
    assert peak_bytes() - before > 40_000_000
    if reset_peak():
        assert peak_bytes() - resident_bytes() < 40_000_000
    assert resident_bytes(tmp_path) == peak_bytes(tmp_path) == 0 and not reset_peak(tmp_path / "none")


UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "then"),
    [
        (1024, 4096, 2000, 2000),
        (1024, 1500, 1500, 1500),
        (4096, 4096, 4096, 4096),
        (1024, UNLIMITED, 2000, 2000),
        (UNLIMITED, UNLIMITED, None, UNLIMITED),
    ],
)
def test_the_soft_limit_of_open_files_is_raised_as_far_as_needed(
    soft: int, hard: int, allowed: int | None, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most to the hard limit, which stays; a larger one stays as well."""
    now = soft, hard

    def prlimit(pid: int, kind: int, limits: tuple[int, int] | None = None) -> tuple[int, int]:
        nonlocal now
        assert (pid, kind) == (7, resource.RLIMIT_NOFILE)
        before, now = now, limits or now
        return before

    monkeypatch.setattr(resource, "prlimit", prlimit)
    assert limits.allow_open_files(2000, 7) == allowed
    assert now == (then, hard)


def test_another_process_of_this_user_may_be_given_more_open_files() -> None:
    """As torchrun, which holds the store; of one that has gone nothing is known. 1,024 end at 154 ranks."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
        resource.prlimit(child.pid, resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        assert limits.allow_open_files(100, child.pid) == 100
        child.communicate()
    assert limits.allow_open_files(100, child.pid) is None
    assert limits.connections_of(154) <= 1024 < limits.connections_of(155) and limits.connections_of(1000) >= 6000

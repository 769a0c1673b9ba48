"""The memory that a machine and its cgroups leave for files."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.system.limits import file_memory_bytes

STAT_1 = "cache 90\ntotal_active_file 30\ntotal_inactive_file 20\n"
STAT_2 = "anon 5\nactive_file 30\ninactive_file 20\n"


def place(tmp_path: Path, membership: str, groups: dict[str, dict[str, str]], available_kb: int | None = 1000) -> Path:
    for name, files in groups.items():
        (tmp_path / "cgroup" / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (tmp_path / "cgroup" / name / file).write_text(text)
    (tmp_path / "membership").write_text(membership)
    (tmp_path / "meminfo").write_text("" if available_kb is None else f"MemAvailable:   {available_kb} kB\n")
    return tmp_path


def left(place: Path) -> int | None:
    return file_memory_bytes(place / "cgroup", place / "membership", place / "meminfo")


def of_version_1(limit: object) -> dict[str, str]:
    return {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": "100\n", "memory.stat": STAT_1}


def of_version_2(limit: object) -> dict[str, str]:
    return {"memory.max": f"{limit}\n", "memory.current": "100\n", "memory.stat": STAT_2}


@pytest.mark.parametrize(
    ("membership", "groups", "bytes_"),
    [
        ("4:memory:/job\n", {"memory/job": of_version_1(400)}, 350),
        ("4:memory:/job\n", {"memory/job": of_version_1(400), "memory": of_version_1(300)}, 250),
        ("4:memory:/job\n", {"memory/job": of_version_1(2**63 - 4096)}, 1_024_000),
        ("0::/pod/task\n", {"pod/task": of_version_2("max"), "pod": of_version_2(400)}, 350),
        ("0::/task\n", {"unified/task": of_version_2(400)}, 350),
        ("0::/task\n", {"task": of_version_2(10)}, 0),
        ("4:cpu:/job\n", {"memory/job": of_version_1(400)}, 1_024_000),
    ],
)
def test_the_tightest_limit_counts_without_what_is_no_file(
    tmp_path: Path, membership: str, groups: dict[str, dict[str, str]], bytes_: int
) -> None:
    """A limit less 50 bytes that are used for something else; without one, what the machine has available."""
    assert left(place(tmp_path, membership, groups)) == bytes_


def test_nothing_is_known_where_nothing_says(tmp_path: Path) -> None:
    """Neither of the machine nor of a cgroup."""
    assert left(place(tmp_path, "", {}, available_kb=None)) is None

"""`loaderprobe bandwidth` as a person meets it: on paths that are no folder of images, and by other users."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loaderprobe.api.bandwidth import Bandwidth
from loaderprobe.cli.app import app
from tests.conftest import Run
from tests.examples.bandwidth import example_bandwidth
from tests.planted.files import random_files

QUICK = ("--readers", "1,2", "--seconds", "0.1", "--json")
UNPRIVILEGED = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
PROBE = (sys.executable, "-m", "loaderprobe", "bandwidth")
INVOKE_EACH = """
import json, sys
from tests.cli.invoke import invoke
done = [invoke("bandwidth", *arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([[each.exit_code, each.stdout, each.stderr] for each in done]))
"""
LONGEST_S = 60.0


def _images(folder: Path, count: int = 12) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.jpg").write_bytes(os.urandom(30_000))
    return folder


def _fifo(place: Path) -> Path:
    os.mkfifo(place / "pipe")
    return place / "pipe"


def _socket(place: Path) -> Path:
    # The path of a socket may not be long.
    path = Path(os.path.relpath(place / "socket"))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    return path


def _loop(place: Path) -> Path:
    (place / "loop").symlink_to(place / "loop")
    return place / "loop"


def _empty_file(place: Path) -> Path:
    (place / "empty").touch()
    return place / "empty"


def _only_odd_things(place: Path) -> Path:
    folder = place / "odd"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "broken.jpg").symlink_to(place / "none")
    (folder / "again").symlink_to(folder)
    return folder


TROUBLE: dict[str, tuple[Callable[[Path], Path], int, str]] = {
    "a pipe": (_fifo, 2, "is a pipe"),
    "a socket": (_socket, 2, "is a socket"),
    "a device": (lambda _: Path("/dev/zero"), 2, "is a device"),
    "a loop of links": (_loop, 2, "symbolic links"),
    "nothing": (lambda place: place / "none", 2, "No such file"),
    "an empty folder": (lambda place: place, 2, "it is empty"),
    "an empty file": (_empty_file, 2, "is empty"),
    "a folder of odd things": (_only_odd_things, 2, "1 a broken link"),
    "below a file": (lambda place: _empty_file(place) / "x", 2, "Not a directory"),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, python: str) -> dict[str, tuple[int, str, str]]:
    """Exit code and output of each trouble, from one process, which may not hang."""
    asked = [[str(make(tmp_path_factory.mktemp("trouble"))), *QUICK] for make, _, _ in TROUBLE.values()]
    done = subprocess.run(
        [python, "-c", INVOKE_EACH, json.dumps(asked)],
        capture_output=True, text=True, check=True, timeout=LONGEST_S,
    )  # fmt: skip
    return dict(zip(TROUBLE, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", TROUBLE)
def test_trouble_has_a_code_a_reason_and_a_next_step(case: str, refused: dict[str, tuple[int, str, str]]) -> None:
    """A path that cannot be probed is refused at once, without hanging, with exit code 2 and what to do."""
    (_, code, says), (exit_code, stdout, stderr) = TROUBLE[case], refused[case]
    words = " ".join(stderr.split())
    assert (exit_code, stdout) == (code, "") and says in words and "try:" in words


@cache
def _runs_unprivileged() -> bool:
    """True when another user may run this interpreter."""
    tried = subprocess.run([*UNPRIVILEGED, sys.executable, "-c", "import loaderprobe"], check=False, stderr=-3)
    return tried.returncode == 0


def _as_unprivileged(*arguments: object) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can become another user, with setpriv")
    if not _runs_unprivileged():
        pytest.skip("another user may not run this interpreter")
    return subprocess.run(
        [*UNPRIVILEGED, *PROBE, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A place that other users may reach."""
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_uid == os.geteuid() and part != Path("/"):
            part.chmod(part.stat().st_mode | 0o055)
    return tmp_path


def test_an_unreadable_file_is_a_missing_permission(public: Path) -> None:
    """A file that this user may not read, alone or as a whole folder, has exit code 3."""
    folder = _images(public / "data", 2)
    for file in folder.iterdir():
        file.chmod(0o600)
    for path in (folder / "0.jpg", folder):
        done = _as_unprivileged(path, *QUICK)
        assert done.returncode == 3 and "try:" in done.stderr, done.stderr


def test_one_unreadable_file_is_left_out(public: Path) -> None:
    """Among others, it is counted and the rest is probed."""
    folder = _images(public / "data")
    (folder / "0.jpg").chmod(0o600)
    done = _as_unprivileged(folder, *QUICK)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["files_used"] == 11 and "1 files skipped: not readable" in [
        note["sentence"] for note in found["notes"]
    ]


def test_an_unprivileged_user_gets_the_truth(public: Path) -> None:
    """Another user's files are evicted and proved cold by bytes; what cannot be known is null and has a note."""
    folder = _images(public / "data")
    subprocess.run(["sync", "-f", str(folder)], check=True)
    done = _as_unprivileged(folder, *QUICK)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ladder = [phase for phase in found["phases"] if phase["name"] == "files"]
    if found["location"]["kind"] == "block":
        assert [phase["cache"] for phase in ladder] == ["cold", "cold"]
    for phase in ladder:
        assert phase["resident_before"] == 0.0 or any("is not known" in note for note in found["notes"])


def test_dropping_all_caches_needs_permission(public: Path) -> None:
    """`--drop-caches` by a user who may not is a missing permission, before anything is read."""
    done = _as_unprivileged(_images(public / "data"), *QUICK, "--drop-caches")
    assert done.returncode == 3 and "drop_caches" in done.stderr


def test_json_has_the_names_of_fio(tmp_path: Path, loaderprobe: Run) -> None:
    """Bandwidth, IOPS and latencies are where a user who knows fio's JSON looks for them."""
    done = loaderprobe("bandwidth", _images(tmp_path / "data"), *QUICK)
    found: dict[str, Any] = json.loads(done.stdout)
    phase = found["phases"][0]
    assert (found["schema"], found["schema_version"]) == ("loaderprobe/bandwidth", 1)
    assert {"bw_bytes", "iops", "runtime", "io_bytes", "total_ios", "clat_ns"} <= phase.keys()
    assert {"min", "max", "mean", "stddev", "N", "percentile"} == phase["clat_ns"].keys()
    assert phase["clat_ns"]["percentile"]["99.000000"] > 0
    assert {feed["accelerator"] for feed in found["feeds"]} >= {"mlperf-h100", "mlperf-a100"}


def test_ctrl_c_shows_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted probe prints the ladder so far, and the exit code says that it was interrupted."""
    interrupted = replace(example_bandwidth(), interrupted=True)
    monkeypatch.setattr("loaderprobe.api.bandwidth.bandwidth", lambda *_, **__: Bandwidth.of(interrupted))
    done = CliRunner().invoke(app, ["bandwidth", "/data", "--quiet"])
    assert done.exit_code == 130
    assert "interrupted" in done.stdout.lower() and "MB/s" in done.stdout
    assert CliRunner().invoke(app, ["bandwidth", "/data", "--quiet", "--md"]).stdout.startswith("# Storage under ")


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

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from loaderprobe.datasets.generate import generate
from loaderprobe.datasets.generate.generate import Entry
from loaderprobe.datasets.generate.manifest import SetSpec, read_manifest
from loaderprobe.datasets.generate.pool import Pool
from loaderprobe.errors import BadValue, ForeignDirectory, LoaderprobeError, Locked, MissingPart, NoSpace, Refused
from loaderprobe.store.run_directory import lock_directory
from tests.datasets.conftest import AsUnprivileged, Make, tree


@pytest.mark.parametrize("name", ["thesis.txt", "spec.json", "manifest.json", ".hidden", "pool.npz"])
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, make: Make, name: str) -> None:
    """Whatever lies there and is not ours stays as it was, and nothing is added."""
    directory = tmp_path / "64x48"
    directory.mkdir()
    (directory / name).write_text("{}")
    with pytest.raises(ForeignDirectory) as refusal:
        make(tmp_path)
    assert refusal.value.exit_code == 5
    assert [path.name for path in directory.iterdir()] == [name]


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"classes": 4}, {"base_images": 5}, {"mean_bytes": 2000}, {"layout": "shards"}]
)
def test_another_set_in_the_directory_is_refused(tmp_path: Path, make: Make, change: dict[str, object]) -> None:
    """Sets of two specs are never mixed."""
    before = tree(make(tmp_path))
    with pytest.raises(Refused, match="another data set") as refusal:
        make(tmp_path, count=140, **change)
    assert refusal.value.hint
    assert tree(tmp_path / "64x48") == before


@pytest.mark.parametrize(
    "change", [{"seed": -1}, {"count": 0}, {"classes": 0}, {"processes": 0}, {"base_images": 0}, {"mean_bytes": 0}]
)
def test_impossible_numbers_are_refused(tmp_path: Path, make: Make, change: dict[str, int]) -> None:
    """A number that cannot be is a bad value, not a traceback from numpy."""
    with pytest.raises(BadValue):
        make(tmp_path, **change)
    assert not any(tmp_path.iterdir())


def test_a_file_in_the_way_is_a_bad_path(tmp_path: Path, make: Make) -> None:
    """A root that is a file is the user's mistake, said in words."""
    (tmp_path / "file").write_text("")
    with pytest.raises(BadValue, match="in the way"):
        make(tmp_path / "file")


@pytest.mark.parametrize("shortage", [{"f_bavail": 10}, {"f_favail": 10}])
def test_too_little_space_is_refused_before_writing(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, shortage: dict[str, int]
) -> None:
    """Bytes or inodes short: nothing is written, not even the base images."""
    room = {"f_bavail": 10**9, "f_frsize": 4096, "f_files": 10**9, "f_favail": 10**9}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**room | shortage))
    with pytest.raises(NoSpace):
        make(tmp_path)
    assert tree(tmp_path) == {}


def test_going_on_needs_space_only_for_what_is_missing(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set that lacks one image completes on a disk with space for two."""
    make(tmp_path, count=69)
    whole = tree(make(tmp_path.parent / f"{tmp_path.name}-whole"))
    room = {"f_bavail": 4, "f_frsize": 4096, "f_files": 0, "f_favail": 0}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**room))
    assert tree(make(tmp_path)) == whole


def test_a_disk_that_fills_up_midway_loses_nothing(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC leaves the whole images and no half one; with space again, the set completes."""
    written = itertools.count()
    write_bytes = Path.write_bytes

    def full_after_forty(path: Path, data: bytes) -> int:
        if path.name.endswith(".part") and next(written) >= 40:
            write_bytes(path, data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full_after_forty)
        with pytest.raises(NoSpace) as full:
            make(tmp_path / "cut")
    assert "it resumes" in full.value.hint
    directory = tmp_path / "cut" / "64x48"
    assert len(list(directory.rglob("*.JPEG"))) == 40
    assert not list(directory.rglob("*.part"))
    assert tree(make(tmp_path / "cut")) == tree(make(tmp_path / "whole"))


@pytest.mark.parametrize("failing", [1, 2])
def test_a_write_that_the_medium_refuses_is_never_called_complete(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The kernel reports once that it could not write back: no manifest then, and no record of those files."""
    calls = itertools.count(1)

    def refused(_: Path) -> None:
        if next(calls) == failing:
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(generate, "sync_filesystem", refused)
        patch.setattr(generate, "SYNC_S", 0.0 if failing == 2 else 1e9)
        with pytest.raises(MissingPart, match="Input/output"):
            make(tmp_path / "cut")
    directory = tmp_path / "cut" / "64x48"
    assert not (directory / "manifest.json").exists()
    assert len(generate.Journal(directory).entries()) == (32 if failing == 2 else 0)
    assert tree(make(tmp_path / "cut")) == tree(make(tmp_path / "whole"))


def test_nothing_is_entered_after_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reported it once, and it may have been any file: the next sync, which succeeds, proves nothing."""
    calls = itertools.count(1)

    def refused_once(_: Path) -> None:
        if next(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(generate, "sync_filesystem", refused_once)
    book = generate.Book(generate.Journal(tmp_path))
    book.add([Entry(number=0, images=1, size_bytes=1, xxh3="")])
    with pytest.raises(OSError, match="Input/output"):
        book.close()
    book.add([Entry(number=1, images=1, size_bytes=1, xxh3="")])
    book.close()
    assert generate.Journal(tmp_path).entries() == []


def test_files_of_somebody_else_are_left_alone(tmp_path: Path, make: Make) -> None:
    """Names like ours in other places stay, when a set is completed, repaired or made larger."""
    directory = make(tmp_path)
    others = [
        "train/n01440764/n01440764_10026.JPEG",
        "train/mine/shard-000000.tar",
        "train/mine/.n00000001_4.JPEG.part",
    ]
    for name in others:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(b"mine")
    (directory / "train/n00000001/n00000001_1.JPEG").unlink()
    make(tmp_path, count=100)
    assert {name: tree(directory)[name] for name in others} == dict.fromkeys(others, b"mine")


@pytest.mark.usefixtures("impatient")
def test_two_at_once_are_refused(tmp_path: Path, make: Make) -> None:
    """While one process writes a set, another refuses and does nothing."""
    with lock_directory(tmp_path / "64x48"), pytest.raises(Locked):
        make(tmp_path)
    assert not list(tmp_path.rglob("*.JPEG"))


@pytest.mark.parametrize("below", ["", "new/deep"])
def test_a_place_without_permission_is_a_missing_part(
    open_path: Path, make: Make, as_unprivileged: AsUnprivileged, below: str
) -> None:
    """Where this user may not write, the error says so and how to go on."""
    open_path.chmod(0o555)
    with as_unprivileged(), pytest.raises(MissingPart) as error:
        make(open_path / below)
    assert "write permission" in error.value.hint


def test_a_complete_set_can_be_used_where_one_may_not_write(
    open_path: Path, make: Make, as_unprivileged: AsUnprivileged
) -> None:
    """Asking for a set that is there needs no permission to write."""
    directory = make(open_path, count=4)
    with as_unprivileged():
        assert make(open_path, count=4) == directory


def test_a_killed_process_is_reported_and_nothing_is_lost(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that the kernel kills gives one clear error, and the next call completes the set."""
    write_file = generate.write_file

    def killed_at_forty(directory: Path, spec: SetSpec, pool: Pool, number: int, indices: range) -> Entry:
        if number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return write_file(directory, spec, pool, number, indices)

    with monkeypatch.context() as patch:
        patch.setattr(generate, "write_file", killed_at_forty)
        with pytest.raises(LoaderprobeError, match="died") as death:
            make(tmp_path / "cut", processes=2)
    assert "it resumes" in death.value.hint
    assert tree(make(tmp_path / "cut")) == tree(make(tmp_path / "whole"))


def test_no_worker_outlives_its_parent(tmp_path: Path, make: Make) -> None:
    """After kill -9 no process goes on writing: the pipe that the workers inherited closes, and the set completes."""
    program = (
        "from pathlib import Path; import sys; from loaderprobe.datasets.generate.generate import generate\n"
        "from loaderprobe.datasets.generate.generate import SetRequest\n"
        "say = lambda done, _: done and print('alive', flush=True)\n"
        "request = SetRequest(resolution=(64, 48), classes=3, base_images=4)\n"
        f"generate(Path({str(tmp_path)!r}), request, count=100_000, processes=2, progress=say)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alive\n"
        process.kill()
        try:
            # Returns when the last holder of the pipe has gone; the limit only keeps a failure from hanging.
            process.communicate(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    directory = make(tmp_path)
    assert read_manifest(directory) is not None
    assert not list(directory.rglob("*.part"))

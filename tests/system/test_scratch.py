"""Temporary directories: removed in the end, or by the next process."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from loaderprobe.errors import MissingPart, NoSpace
from loaderprobe.system.scratch import MARK, remove_batches, scratch_directory, written_in

HOLDS = (
    "import os, signal, sys; from loaderprobe.system.scratch import scratch_directory\n"
    "with scratch_directory() as scratch:\n"
    "    (scratch / 'left').write_text('x'); print(scratch, flush=True); sys.stdin.read()\n"
)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a process that lives stays, and so does what only has such a name."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = tmp_path / "loaderprobe-training"
    other.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert process.stdout is not None
    held = Path(process.stdout.readline().strip())
    with scratch_directory() as own:
        assert own.is_dir() and (held / MARK).exists()
    assert (held / "left").exists() and not own.exists()
    process.kill()
    process.communicate()
    assert (held / "left").exists()
    with scratch_directory():
        assert not held.exists()
        # Of a process that this one started, and that is killed meanwhile.
        abandoned = tmp_path / "loaderprobe-script"
        abandoned.mkdir()
        (abandoned / MARK).touch()
    assert list(tmp_path.iterdir()) == [other]


def test_a_file_system_without_locks_has_scratch_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing marks them there, so no process takes them for abandoned."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refused(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refused)
    with scratch_directory() as scratch, scratch_directory():
        assert scratch.exists() and not (scratch / MARK).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_full_file_system_is_said_with_what_to_do(tmp_path: Path) -> None:
    """Other trouble stays what it is."""
    with pytest.raises(NoSpace, match="temporary files") as caught, written_in(tmp_path):
        raise OSError(errno.ENOSPC, "full")
    assert "TMPDIR" in caught.value.hint
    with pytest.raises(FileNotFoundError), written_in(tmp_path):
        (tmp_path / "none").read_bytes()


def test_a_file_system_that_is_read_only_has_no_scratch_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is said with what to do, as of a container without a /tmp."""
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    with pytest.raises(MissingPart, match="temporary files") as caught, scratch_directory():
        pass
    assert "TMPDIR" in caught.value.hint


def test_shared_memory_of_ended_workers_is_given_back(tmp_path: Path) -> None:
    """That of other processes stays."""
    for name in ("torch_7_1_2", "torch_77_1_2", "sem.x"):
        (tmp_path / name).touch()
    remove_batches([7, 8], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sem.x", "torch_77_1_2"]

"""Temporary directories: removed in the end, or by the next process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loaderprobe.system.scratch import MARK, scratch_directory

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
    assert list(tmp_path.iterdir()) == [other]


def test_a_file_system_without_locks_has_scratch_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing marks them there, so nobody takes them for abandoned."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refused(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refused)
    with scratch_directory() as scratch, scratch_directory():
        assert scratch.exists() and not (scratch / MARK).exists()
    assert list(tmp_path.iterdir()) == []

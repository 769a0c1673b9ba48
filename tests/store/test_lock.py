"""The lock of a run, between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, Locked, MissingPart, Refused
from loaderprobe.records.config import SweepSpec
from loaderprobe.store.run_directory import RunDirectory, RunRecord, lock_directory
from loaderprobe.testing import example_environment

RECORD = RunRecord(created_utc="now", spec=SweepSpec(configs=()), environment=example_environment())
HOLD = (
    "import sys; from pathlib import Path; from loaderprobe.store.run_directory import lock_directory\n"
    "with lock_directory(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
)


@pytest.mark.usefixtures("impatient")
def test_another_process_is_refused_until_the_holder_is_gone(tmp_path: Path) -> None:
    """The lock of a process that was killed is free: no user has to remove a file."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Locked) as caught, lock_directory(tmp_path):
            pytest.fail("both hold it")
        assert str(tmp_path) in caught.value.message and caught.value.hint
        holder.kill()
    with lock_directory(tmp_path):
        pass


def test_a_lock_is_free_once_the_workers_of_a_killed_process_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers inherit the lock and die a moment later than the process that was killed."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def while_waiting(_: float) -> None:
            holder.kill()
            holder.wait()

        monkeypatch.setattr("filelock._api.time.sleep", while_waiting)
        with lock_directory(tmp_path):
            assert holder.returncode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_run_of_another_user_cannot_be_locked() -> None:
    """Without permission to write, resuming says so, with the exit code for it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        run = RunDirectory.create(Path(name) / "run", RECORD, [])
        os.seteuid(65534)
        try:
            with pytest.raises(MissingPart, match="cannot be written"), run.lock():
                pytest.fail("the lock is not writable")
        finally:
            os.seteuid(0)


def test_trouble_while_a_run_is_held_stays_as_it_is(tmp_path: Path) -> None:
    """An error of the work inside is not taken for an error of the lock, and the lock is given back."""
    run = RunDirectory.create(tmp_path / "run", RECORD, [])
    with pytest.raises(FileNotFoundError), run.lock():
        raise FileNotFoundError
    with run.lock():
        pass


def test_a_file_is_no_place_for_a_run(tmp_path: Path) -> None:
    """The path was a bad choice, and nothing becomes of the file."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadValue, match="is a file"):
        RunDirectory.create(tmp_path / "file", RECORD, [])
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    """What was asked of the first, perhaps still at work, stays; the way on is named."""
    RunDirectory.create(tmp_path / "run", RECORD, [])
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(Refused, match="already holds a run") as caught:
        RunDirectory.create(tmp_path / "run", RECORD, [])
    assert "--resume" in caught.value.hint
    assert (tmp_path / "run" / "run.json").read_bytes() == before

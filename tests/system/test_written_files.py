"""What a program writes is listed, no trained model that was there is lost, and temporary directories are removed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from loaderprobe.errors import MissingPart, NoSpace
from loaderprobe.system.scratch import MARK, remove_batches, scratch_directory, written_in
from loaderprobe.system.written_files import WrittenFiles


class Stop(SystemExit):
    """The program's call is stopped."""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "last.pt").write_text("model")
    (tmp_path / "state.json").write_text("{}")
    return tmp_path


@pytest.fixture
def watching(kept: Path) -> Iterator[WrittenFiles]:
    """Once the checkpoint is there."""
    files = WrittenFiles(Mock(side_effect=Stop))
    files.begin()
    yield files
    files.end()


def write_through_a_link(at: Path) -> None:
    """Of the checkpoint, which is lost by that."""
    os.link(at / "last.pt", at / "twin.pt")
    (at / "twin.pt").write_text("other")


@pytest.mark.parametrize(
    "harm",
    [
        lambda at: (at / "last.pt").open("w"),
        lambda at: (at / "last.pt").open("r+"),
        lambda at: (at / "last.pt").open("ab"),
        lambda at: (at / "last.pt").unlink(),
        lambda at: (at / "state.json").write_text("beside a checkpoint"),
        lambda at: shutil.rmtree(at),
        lambda at: os.replace(at / "state.json", at / "last.pt"),
        lambda at: os.replace(at / "last.pt", at / "before.pt"),
        lambda at: at.rename(at.with_name("elsewhere")),
        write_through_a_link,
    ],
)
def test_a_checkpoint_is_neither_written_over_nor_removed(watching: WrittenFiles, kept: Path, harm: object) -> None:
    """The call is stopped before anything changes."""
    assert callable(harm)
    with pytest.raises(Stop):
        harm(kept)
    assert ((kept / "last.pt").read_text(), (kept / "state.json").read_text()) == ("model", "{}")


def test_new_files_are_listed_and_are_the_programs_own(watching: WrittenFiles, kept: Path) -> None:
    """They may be written again and removed; so may logs that were there, also beside a checkpoint. Saving below Python
    is announced by whoever calls it. While it is off, as after a measurement, nothing is heard."""
    other = kept / "other"
    other.mkdir()
    (other / "log.txt").write_text("new")
    (other / "a.pt").write_text("one")
    (other / "a.pt").write_text("two")
    (other / "a.pt").open("ab").close()
    (other / "a.pt").unlink()
    watching.saving(kept / "new.pt")
    assert list(watching.new) == [str(other / "log.txt"), str(other / "a.pt"), str(kept / "new.pt")]
    watching.new.clear()
    (other / "log.txt").write_text("again")
    (other / "log.txt").open("a").close()
    (other / "log.txt").read_text()
    (kept / "state.json").open("a").close()
    assert not watching.new
    with pytest.raises(Stop):
        watching.saving(kept / "last.pt")
    watching.end()
    (kept / "last.pt").unlink()
    assert not (kept / "last.pt").exists()


def test_a_new_checkpoint_may_be_rotated(watching: WrittenFiles, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With its directory, by name or as a whole, however many there are."""
    out = tmp_path_factory.mktemp("out")
    for number in range(300):
        (out / f"step-{number}").mkdir()
        (out / f"step-{number}" / "model.pt").write_text("new")
    os.replace(out / "step-299" / "model.pt", out / "step-299" / "best.pt")
    (out / "step-299" / "best.pt").write_text("newer")
    for link in (os.link, os.symlink):  # as timm keeps its best
        for best in ("step-297", "step-296"):
            (out / "linked.pt").unlink(missing_ok=True)
            link(out / best / "model.pt", out / "linked.pt")
    shutil.rmtree(out / "step-298")
    shutil.rmtree(out / "step-299")


def test_what_the_program_made_before_is_its_own(kept: Path) -> None:
    """Once it is guarded it may write that over and rotate it, which is listed. What was there before it stays safe,
    also where it was renamed: a backup of the last model, by a script that then writes a new one. Other data may be
    opened to be changed, as numpy.memmap does by default."""
    files = WrittenFiles(Mock(side_effect=Stop))
    for there in ("train.bin", "other.pt"):
        (kept / there).write_bytes(b"data")
    files.listen()
    last, log, backup = kept / "epoch.pt", kept / "log.txt", kept / "last.pt.bak.pt"
    last.write_text("first epoch")
    log.write_text("started")
    (kept / "other.pt").write_text("again")
    (kept / "last.pt").rename(backup)
    (kept / "last.pt").write_text("new")
    files.begin()
    last.write_text("second epoch")
    log.open("a").close()
    (kept / "train.bin").open("rb+").close()
    assert list(files.new) == [str(last)]
    last.unlink()
    with pytest.raises(Stop):
        (kept / "other.pt").unlink()
    with pytest.raises(Stop):
        (kept / "last.pt").replace(backup)
    files.end()
    assert backup.read_text() == "model"


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
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError("no locks here")))
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


def test_a_read_only_file_system_has_no_scratch_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

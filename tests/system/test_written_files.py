"""What a program writes is listed, and a trained model that was there is not lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaderprobe.system.written_files import WrittenFiles


class Stop(SystemExit):
    """The program's call is stopped."""


def endangered(path: str) -> None:
    raise Stop(path)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    (tmp_path / "last.pt").write_text("model")
    (tmp_path / "state.json").write_text("{}")
    return tmp_path


@pytest.fixture
def watching(kept: Path) -> Iterator[WrittenFiles]:
    """Once the checkpoint is there."""
    files = WrittenFiles(endangered)
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


def test_saving_below_python_is_announced(watching: WrittenFiles, kept: Path) -> None:
    """By whoever calls it. While it is off, as after a measurement, nothing is heard."""
    with pytest.raises(Stop):
        watching.saving(kept / "last.pt")
    watching.saving(kept / "new.pt")
    assert list(watching.new) == [str(kept / "new.pt")]
    watching.end()
    (kept / "last.pt").unlink()
    assert not (kept / "last.pt").exists()


def test_new_files_are_listed_and_are_the_programs_own(watching: WrittenFiles, kept: Path) -> None:
    """They may be written again and removed; so may logs that were there."""
    other = kept / "other"
    other.mkdir()
    (other / "log.txt").write_text("new")
    (other / "a.pt").write_text("one")
    (other / "a.pt").write_text("two")
    (other / "a.pt").unlink()
    assert list(watching.new) == [str(other / "log.txt"), str(other / "a.pt")]
    watching.new.clear()
    (other / "log.txt").write_text("again")
    (other / "log.txt").open("a").close()
    (other / "log.txt").read_text()
    assert not watching.new


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


def test_data_may_be_opened_to_be_changed(watching: WrittenFiles, kept: Path, tmp_path: Path) -> None:
    """As numpy.memmap does by default; and so may logs beside a checkpoint, and new checkpoints."""
    watching.end()
    (tmp_path / "train.bin").write_bytes(b"data")
    watching.begin()
    (tmp_path / "train.bin").open("rb+").close()
    (kept / "state.json").open("a").close()
    (kept / "new.pt").write_text("new")
    (kept / "new.pt").open("ab").close()

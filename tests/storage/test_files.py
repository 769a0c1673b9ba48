from __future__ import annotations

import os
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.storage.files import (
    BLOCK_BYTES,
    LARGE_BLOCK_BYTES,
    LARGE_FILE_BYTES,
    SEQUENTIAL_FILE_BYTES,
    sample_files,
    scratch_file,
)
from tests.said import all_said


def _sizes(folder: Path, count: int, suffix: str = ".jpg", size_bytes: int = 1000) -> None:
    for number in range(count):
        (folder / f"{number}{suffix}").write_bytes(b"x" * size_bytes)


def test_missing_and_empty_are_bad_values(tmp_path: Path) -> None:
    """A path that is not there, an empty folder and an empty file are the user's to repair."""
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    for name in ("none", "empty", "folder"):
        with pytest.raises(BadValue):
            sample_files(tmp_path / name, limit_bytes=10**9, seed=0)


def test_what_is_no_file_is_counted_and_left_out(tmp_path: Path) -> None:
    """FIFOs, broken links and empty files are noted; a loop of links ends."""
    _sizes(tmp_path, 3)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "broken.jpg").symlink_to(tmp_path / "none")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "void.jpg").touch()
    sample = sample_files(tmp_path, limit_bytes=10**9, seed=0)
    assert len(sample.pieces) == 3
    notes = " ".join(all_said(sample.notes))
    assert "broken link" in notes and "not a regular file" in notes and "empty" in notes


def test_the_seed_decides_the_order(tmp_path: Path) -> None:
    """The same seed gives the same files in the same order, another seed another order."""
    _sizes(tmp_path, 30)
    first, again, other = (sample_files(tmp_path, limit_bytes=10**9, seed=seed).paths for seed in (1, 1, 2))
    assert first == again and first != other and set(first) == set(other)


def test_the_limit_ends_the_sample(tmp_path: Path) -> None:
    """Files are taken until the limit is reached; all are counted as found."""
    _sizes(tmp_path, 30)
    sample = sample_files(tmp_path, limit_bytes=5000, seed=0)
    assert len(sample.pieces) == 5 and sample.found == 30


def test_images_leave_other_files_out(tmp_path: Path) -> None:
    """Among images, a manifest is not read; without images, files are only files."""
    _sizes(tmp_path, 3)
    (tmp_path / "manifest.json").write_text("{}")
    sample = sample_files(tmp_path, limit_bytes=10**9, seed=0)
    assert sample.images and {path.suffix for path in sample.paths} == {".jpg"}
    (tmp_path / "more").mkdir()
    _sizes(tmp_path / "more", 9, suffix=".bin")
    assert not sample_files(tmp_path, limit_bytes=10**9, seed=0).images


def test_a_single_file_is_read_in_blocks(tmp_path: Path) -> None:
    """The blocks of one file cover it once, without overlap."""
    path = tmp_path / "one"
    path.write_bytes(b"x" * (2 * BLOCK_BYTES + 7))
    pieces = sorted(sample_files(path, limit_bytes=10**9, seed=0).pieces, key=lambda piece: piece.offset)
    assert [(piece.offset, piece.size_bytes) for piece in pieces] == [
        (0, BLOCK_BYTES),
        (BLOCK_BYTES, BLOCK_BYTES),
        (2 * BLOCK_BYTES, 7),
    ]


def test_large_files_are_read_in_blocks(tmp_path: Path) -> None:
    """A folder of shards is read in blocks of 1 MiB: no reader needs a buffer as large as a shard."""
    for number in range(2):
        with (tmp_path / f"{number}.tar").open("wb") as file:
            file.truncate(LARGE_FILE_BYTES + 1 + number)
    sample = sample_files(tmp_path, limit_bytes=10**9, seed=0)
    assert sample.block_bytes == LARGE_BLOCK_BYTES and not sample.images
    assert max(piece.size_bytes for piece in sample.pieces) == LARGE_BLOCK_BYTES
    assert sum(piece.size_bytes for piece in sample.pieces) == 2 * LARGE_FILE_BYTES + 3


def test_one_large_file_among_small_ones(tmp_path: Path) -> None:
    """A single shard among images is read in blocks: it neither holds up a phase nor goes beyond the limit."""
    _sizes(tmp_path, 20)
    with (tmp_path / "shard.jpg").open("wb") as file:
        file.truncate(100 * LARGE_FILE_BYTES)
    sample = sample_files(tmp_path, limit_bytes=2 * LARGE_FILE_BYTES, seed=3)
    assert max(piece.size_bytes for piece in sample.pieces) <= LARGE_BLOCK_BYTES
    assert sum(piece.size_bytes for piece in sample.pieces) <= 2 * LARGE_FILE_BYTES + 20_000


def test_a_file_of_two_names_is_read_once(tmp_path: Path) -> None:
    """A second reading would come from the cache, and a set that is half links would look half warm."""
    _sizes(tmp_path, 5)
    for number in range(5):
        (tmp_path / f"hard{number}.jpg").hardlink_to(tmp_path / f"{number}.jpg")
        (tmp_path / f"soft{number}.jpg").symlink_to(tmp_path / f"{number}.jpg")
    sample = sample_files(tmp_path, limit_bytes=10**9, seed=0)
    assert len({path.stat().st_ino for path in sample.paths}) == len(sample.pieces) == 5
    assert "10 files skipped: another name of a file already chosen" in all_said(sample.notes)


def test_only_large_files_can_be_read_in_a_row(tmp_path: Path) -> None:
    """The sequential phase takes the blocks of large files in their order; among small files there is none."""
    _sizes(tmp_path, 9)
    assert sample_files(tmp_path, limit_bytes=10**9, seed=0).sequential() is None
    with (tmp_path / "shard.jpg").open("wb") as file:
        file.truncate(SEQUENTIAL_FILE_BYTES)
    in_a_row = sample_files(tmp_path, limit_bytes=10**9, seed=0).sequential()
    assert in_a_row is not None
    offsets = [piece.offset for piece in in_a_row.pieces]
    assert offsets == sorted(offsets) and sum(p.size_bytes for p in in_a_row.pieces) == SEQUENTIAL_FILE_BYTES


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    """No permission is a missing part, with exit code 3."""
    (tmp_path / "locked").mkdir(mode=0)
    with pytest.raises(MissingPart):
        sample_files(tmp_path / "locked", limit_bytes=10**9, seed=0)


def test_the_scratch_file_is_always_removed(tmp_path: Path) -> None:
    """Whatever happens while it is used, nothing is left under the path."""
    with pytest.raises(KeyboardInterrupt), scratch_file(tmp_path, 3 * BLOCK_BYTES, 0) as sample:
        assert sum(piece.size_bytes for piece in sample.pieces) == 3 * BLOCK_BYTES
        assert sample.paths[0].stat().st_size == 3 * BLOCK_BYTES
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_file_that_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    """Too little space is refused before a byte is written."""
    with pytest.raises(NoSpace), scratch_file(tmp_path, 10**18, 0):
        pytest.fail("must not get here")
    assert list(tmp_path.iterdir()) == []


def test_the_scratch_file_of_another_survives(tmp_path: Path) -> None:
    """A file that this probe did not make, say of a container with the same process id, is not removed."""
    foreign = tmp_path / f".loaderprobe-scratch-{os.getpid()}"
    foreign.write_bytes(b"theirs")
    with scratch_file(tmp_path, BLOCK_BYTES, 0) as sample:
        assert sample.paths != [foreign]
    assert foreign.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [foreign]

"""Small folders of files that are really on a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loaderprobe.storage.files import Sample, sample_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty files of different sizes, as images are, written back."""
    path = tmp_path / "data"
    path.mkdir()
    for number in range(20):
        (path / f"{number}.jpg").write_bytes(os.urandom(20_000 + 1_000 * number))
    for file in path.iterdir():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    return path


@pytest.fixture
def sample(folder: Path) -> Sample:
    """The files of `folder` in random order."""
    return sample_files(folder, seed=0)

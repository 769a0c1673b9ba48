"""Names among the attributes of a data set are files only where they are meant to be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.loaders.data_files import MOST_S, holds_more_than_data, named_files


class Holding:
    """A data set with such attributes."""

    def __init__(self, *names: Any) -> None:
        self.names = names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files in two folders, of which the script runs in one."""
    for name in ("a/1.bin", "a/2.bin", "b/3.bin"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"12345")
    monkeypatch.chdir(tmp_path / "data" / "a")
    return tmp_path / "data"


def names(*given: Any, most: int = 100, **limits: Any) -> list[str] | None:
    """The last parts of the names that are found."""
    found = named_files(Holding(*given), most=most, **limits)
    return None if found is None else sorted(os.path.basename(each) for each in found)


def test_files_and_folders_that_are_named_are_found(folder: Path) -> None:
    """Once, also by a folder and a folder in it, with links and dots resolved."""
    (folder / "link").symlink_to(folder / "a" / "1.bin")
    assert names(str(folder), folder / "a", f"{folder}/a/../b/3.bin") == ["1.bin", "2.bin", "3.bin", "link"]
    assert names(folder / "link") == ["1.bin"]
    assert names("./1.bin", "../b") == ["1.bin", "3.bin"]
    assert named_files(Holding(folder / "b"), most=9) == {str(folder.resolve() / "b" / "3.bin"): 5}


@pytest.mark.parametrize(
    "text",
    ["//", "/", "/./", "//..", "/proc", "/proc/", "/sys/", "//dev/", "/usr", "./", "../", ".//", "../../"],
)
def test_a_text_that_is_not_meant_names_nothing(text: str, folder: Path) -> None:
    """A vocabulary holds many: the root, what the kernel shows as files, folders at the top, dots."""
    assert names(text) == []


def test_nor_does_a_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a whole, or what it is in."""
    monkeypatch.setenv("HOME", str(folder / "a"))
    assert holds_more_than_data(str(folder.resolve())) and holds_more_than_data(str(folder.resolve() / "a"))
    assert names(f"{folder}/", f"{folder}/b/") == ["3.bin"]
    assert holds_more_than_data("/home/someone") and not holds_more_than_data("/home/someone/data")


@pytest.mark.parametrize(
    ("given", "limits", "found"),
    [
        (["."], {"most": 2}, None),
        (["."], {"entries": 4}, None),
        (["."], {"entries": 5}, ["1.bin", "2.bin", "3.bin"]),
        (["."], {"now": iter([0.0, *[MOST_S] * 4, MOST_S + 1]).__next__}, None),
        (["x/this", "x/that", "x/these"], {"now": iter([0.0, MOST_S, MOST_S + 1]).__next__}, None),  # they do not exist
    ],
)
def test_a_walk_ends(folder: Path, given: Iterable[str], limits: dict[str, Any], found: list[str] | None) -> None:
    """After so many files or entries, and when its time is over; then the files are not known."""
    assert names(*(folder / name if name == "." else name for name in given), **limits) == found


def test_a_file_that_fails_ends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out, as is everything where the current folder is gone."""
    usual = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("2.bin"):
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, **options)

    monkeypatch.setattr("loaderprobe.loaders.data_files.os.stat", stat)
    assert names(folder) == ["1.bin", "3.bin"]
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert names("./1.bin", folder / "b") == ["3.bin"]

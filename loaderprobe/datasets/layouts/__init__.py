"""How samples lie on storage: many small files, or few large ones that hold them.

Each layout beside `files` is a module here of the same name, which writes a file of samples (`write`), reads a sample
as users of the layout do in a worker of torch's DataLoader (`Reader`), and counts the samples of a file (`counts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from os import walk
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.units import join_words

FILES = "files"
INDEX = "index.json"
"""Beside the files of layouts whose libraries find them by it."""
T = TypeVar("T")
OnError = Callable[[OSError], None] | None
LABELS = ("label", "labels", "cls", "class")
"""Columns of classes: the first that is there counts."""


class Sample(NamedTuple):
    """An image as it is encoded, and its class."""

    name: str
    """Without suffix: `n00000003_13`."""
    image: bytes
    label: int


class SampleReader(Protocol):
    """Reads samples below a directory. What it has open belongs to the process that read first."""

    def read(self, path: str, position: tuple[int, int]) -> Sample:
        """The sample of a file at (block, number in the block). Raises BadValue for a damaged file."""
        ...


class Format(Protocol):
    """What the module of a layout has."""

    def write(self, samples: Iterable[Sample], path: Path) -> None:
        """A new file of these samples."""
        ...

    def Reader(self, root: Path) -> SampleReader: ...  # a class of the module

    def counts(self, path: Path) -> Sequence[int]:
        """The samples of each block of a file, without reading them. Raises what `damage` raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout of many samples a file."""

    noun: str
    file: str
    """The name of file `number` of a set."""
    mark: str
    """A pattern of a name by which a directory shows that it holds this layout."""
    block: int
    """Most samples that are read in sequence; 0 for all of a file, 1 where each can be read alone."""
    library: str = ""
    """The module that reads it, which the extra of the layout's name installs; empty for Python's own."""
    row_overhead: int = 0
    """Bytes that a sample takes beside its image, at most."""

    @property
    def single(self) -> bool:
        """True where one file holds all of a set."""
        return "{" not in self.file

    def position_of(self, number: int) -> tuple[int, int]:
        """Of sample `number` of a file."""
        return (number // self.block, number % self.block) if self.block else (0, number)


LAYOUTS: dict[str, Layout] = {
    "tar": Layout(noun="tar shards", file="shard-{number:06}.tar", mark="*.tar", block=0, row_overhead=2048),
    "parquet": Layout(
        noun="Parquet files", file="shard-{number:06}.parquet", mark="*.parquet", block=100, library="pyarrow",
        row_overhead=128,
    ),
    "lmdb": Layout(
        noun="LMDB databases", file="data.mdb", mark="data.mdb", block=1, library="lmdb", row_overhead=4096,
    ),
    "mds": Layout(noun="MDS shards", file="shard.{number:05}.mds", mark="*.mds", block=1, row_overhead=16),
    "litdata": Layout(noun="litdata chunks", file="chunk-0-{number}.bin", mark="chunk-*.bin", block=0, row_overhead=20),
}  # fmt: skip
NAMES = (FILES, *LAYOUTS)


def check_layout(name: str) -> str:
    """The name. Raises BadValue for one that is not known, MissingPart where its library is not installed."""
    if name not in NAMES:
        raise BadValue(f"'{name}' is no layout", hint=f"use {join_words(NAMES, 'or')}")
    layout = LAYOUTS.get(name)
    if layout and layout.library and find_spec(layout.library.partition(".")[0]) is None:
        raise MissingPart(
            f"the layout {name} needs {layout.library}, which is not installed",
            hint=f"pip install 'loaderprobe[{name}]'",
        )
    return name


def format_of(name: str) -> Format:
    """The module of a layout. Raises what `check_layout` raises."""
    return cast(Format, import_module(f"{__name__}.{check_layout(name)}"))


def blocks(name: str, root: Path, unlisted: OnError = None) -> Iterator[tuple[str, int, int]]:
    """(file below the directory, number in it, samples) of all that are read in sequence, or that can be read alone.

    `unlisted` hears of folders that cannot be listed. Raises what `check_layout` raises, BadValue for a damaged file.
    """
    form = format_of(name)
    for path, below in layout_files(root, name, unlisted):
        yield from ((below, number, samples) for number, samples in enumerate(form.counts(path)))


def complete(name: str, root: Path) -> None:
    """Write what a layout has beside its files, if it has anything."""
    if name != FILES and hasattr(form := format_of(name), "complete"):
        form.complete(root)


@contextmanager
def damage(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Raises BadValue for these errors, which a damaged file makes; MissingPart without permission to read it."""
    try:
        yield
    except PermissionError as error:
        raise MissingPart(f"no permission to read {path}", hint="run as a user with read permission") from error
    except errors as error:
        raise BadValue(f"{path} is damaged: {error}", hint="write it again, or leave it out") from error


def layout_files(root: Path, name: str, unlisted: OnError = None) -> Iterator[tuple[Path, str]]:
    """The files below a directory that hold a layout, each with its path below it."""
    paths = (Path(folder, file) for folder, _, files in walk(root, onerror=unlisted) for file in files)
    for path in sorted(path for path in paths if path.match(LAYOUTS[name].mark)):
        yield path, str(path.relative_to(root))


def batched(samples: Iterable[T], count: int) -> Iterator[list[T]]:
    """At most so many at a time, as itertools has it from Python 3.12 on."""
    rest = iter(samples)
    while batch := list(islice(rest, count)):
        yield batch


def named(columns: Mapping[Any, T], names: Sequence[str], default: T) -> T:
    """The column of the first of these names that is there, else the first column."""
    return next((columns[name] for name in (*names, *columns) if name in columns), default)


def class_of(text: str | bytes) -> int:
    """Of a number, else 0. Raises ValueError for digits that `int` does not take."""
    return int(text) if text.isdigit() else 0

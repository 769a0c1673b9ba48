"""A loader of one's own, measured by itself or with a step; and the files that it reads, as far as they are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import PartFiles
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.phases import StorageCeiling


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFiles:
    """The files behind the batches of a loader that goes round in a pool of batches, as its workers opened them.

    Speaks of images (samples) like a `FileSet`, but knows only whole batches.
    """

    batch_size: int
    paths: tuple[tuple[str, ...], ...]
    """Absolute paths of each batch of the pool."""
    file_bytes: dict[str, int]
    """Of every file."""
    in_order: bool = True
    """False for an iterable, of which any batch of the pool may be next."""

    @property
    def count(self) -> int:
        """Samples before the first comes again."""
        return len(self.paths) * self.batch_size

    def _batches(self, first: int, count: int) -> list[int]:
        last = -(-(first + count) // self.batch_size)
        return [number % len(self.paths) for number in range(first // self.batch_size, last)]

    def absolute(self, first: int, count: int) -> list[Path]:
        """The files of the batches that hold `count` samples from sample `first` on; each once."""
        wanted = dict.fromkeys(
            self._batches(first, min(count, self.count)) if self.in_order else range(len(self.paths))
        )
        return [Path(path) for path in dict.fromkeys(path for number in wanted for path in self.paths[number])]

    def delivered_bytes(self, first: int, count: int) -> int:
        """The bytes of the files of those batches; a file that is read for several of them counts in each."""
        return sum(self.file_bytes[path] for number in self._batches(first, count) for path in self.paths[number])

    def distinct_bytes(self, since: int, first: int, count: int) -> int:
        """The same, without files that a batch from sample `since` on has read: a sampler may draw a file twice.

        A batch that comes round again ought to have been cold, so its files count again.
        """
        before, wanted = self._batches(since, first - since), self._batches(first, count)
        once = max(0, len(self.paths) - len(before))
        read = {path for number in before for path in self.paths[number]}
        total = 0
        for number in wanted[:once]:
            new = [path for path in self.paths[number] if path not in read]
            total += sum(self.file_bytes[path] for path in new)
            read.update(new)
        return total + sum(self.file_bytes[path] for number in wanted[once:] for path in self.paths[number])


UnknownFilesCode = Literal[
    "none_seen", "none_read", "opened_below_python", "read_in_parts", "read_beside", "too_large", "no_data_loader"
]
"""none_seen: no file was seen at all. none_read: samples read nothing of those that were seen. read_beside: more is
read than the files that are opened in Python. too_large: those of a batch are not known, and all are too many to evict.
no_data_loader: files were not looked for, in an iterable without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFiles:
    """Why the files that a loader reads are not known."""

    code: UnknownFilesCode


LoaderFiles = BatchFiles | PartFiles | UnknownFiles
"""What is known of the files that a user's loader reads."""

DIAGNOSIS_SCHEMA, DIAGNOSIS_VERSION = "loaderprobe/diagnosis", 2
# 1  2026-11  the verdict's figures were fields of the result
# 2  2026-11  they are those of a configuration in a summary


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoader:
    """A function without arguments that returns a loader, or a loader and a step."""

    name: str
    """As it was typed: `train.py:make_loader`, `package.module:make_loader`."""
    folder: str
    """Where its module is looked for first; absolute."""
    module: str
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFound:
    """What is known of a whole data set from the batches that were looked at."""

    hidden: UnknownFiles | None
    """Why its files are not known."""
    size_bytes: float | None
    """Of all files; None when that is not known."""
    root: str
    """Where all the files seen are, if that is no place for everything; else empty."""
    samples: int | None = None
    """None when its length is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMeasured:
    """What measuring a loader came to; of the child of rank 0 it is what all ranks measured."""

    config: RunConfig
    """Of a rank as it was asked for: the loader's own settings are in the measurement's."""
    measurement: Measurement
    data: DataFound
    ceiling: StorageCeiling | None = None

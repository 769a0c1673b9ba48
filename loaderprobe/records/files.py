"""The files of a data set that a run reads; and JSON that holds their names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import msgspec

from loaderprobe.errors import BadValue
from loaderprobe.records import by_key

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"})


_URL = re.compile(r"[a-z][a-z0-9+.:-]*://.*", re.DOTALL)
_USERINFO = re.compile(r"(?<=://)(?:[^/@?#]*|[^@?#]*:[^@?#]*)@")
"""Also a secret with a slash, which no server would take."""
_QUERY = re.compile(r"[?#].*", re.DOTALL)


def is_url(path: object) -> bool:
    """True for `scheme://...`, which fsspec reads; never for a `Path`."""
    return isinstance(path, str) and _URL.match(path) is not None


def masked(text: str) -> str:
    """The text with `***` for the userinfo and the query of the URL that it ends with: they may be credentials."""
    return _URL.sub(lambda url: _QUERY.sub("?***", _USERINFO.sub("***@", url[0], count=1)), text)


ONE_AT_A_TIME = Lock()
"""Held while msgspec reads a record: it may crash (0.22) where two threads read their first of one class."""


def to_json(value: object, order: Literal["sorted"] | None = None) -> bytes:
    """JSON also of file names that are no UTF-8: of a byte that is none, NUL, which no name has, and two hex digits."""
    try:
        return msgspec.json.encode(value, order=order)
    except UnicodeEncodeError:
        return msgspec.json.encode(_texts(msgspec.to_builtins(value), _NOT_UTF8, _escaped), order=order)


def from_json(data: bytes, type_: Any = Any) -> Any:
    """What `to_json` wrote, with such names as Python has them. Raises DecodeError also for another type."""
    with ONE_AT_A_TIME:
        tree = msgspec.json.decode(data, type=type_)
    if b"\\u0000" not in data:
        return tree
    return _texts(tree, _ESCAPED, lambda match: chr(0xDC00 + int(match[1], 16)))


_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile("\0([89a-f][0-9a-f])")


def _escaped(match: re.Match[str]) -> str:
    byte = ord(match[0]) - 0xDC00
    return f"\0{byte:x}" if 0x80 <= byte <= 0xFF else "\ufffd"


def _texts(tree: Any, pattern: re.Pattern[str], change: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(tree, str):
        return pattern.sub(change, tree)
    if isinstance(tree, dict):
        return {_texts(key, pattern, change): _texts(value, pattern, change) for key, value in tree.items()}
    return [_texts(value, pattern, change) for value in tree] if isinstance(tree, list | tuple) else tree


def content_hash(value: object) -> str:
    """16 hex digits that depend on the content of `value` (JSON with sorted keys) and on nothing else."""
    return hashlib.blake2b(to_json(value, "sorted"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file of a data set, or a recording, that cannot be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """That the files are a copy, made to be measured beside those that they were copied from."""

    source: str
    """The label of that data set."""
    bytes_per_s: float | None
    """Of copying, until all was on the disk; None where nothing had to be copied."""
    share: float
    """Of all images that were found, those that there is space for."""


@lru_cache(maxsize=2)  # a measurement asks for all files before every segment
def _below(root: str, paths: tuple[str, ...]) -> tuple[Path, ...]:
    folder = Path(root)
    return tuple(folder / path for path in paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """Files that a loader reads in parts that are not known batch by batch: shards, databases, mapped files.

    So are files that are opened below Python, where only the data set's own lists name them.
    """

    file_bytes: dict[str, int]
    """By absolute path."""

    @property
    def paths(self) -> list[Path]:
        return [Path(path) for path in self.file_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """Exactly the samples that one data set contributes to a run, in the order in which they are read.

    The order is drawn at random once, when the set is made, and read round and round: image `k` of a
    run is sample `k % len(paths)`. A large data set contributes a random sample of itself.
    """

    label: str
    """`500x375`, `500x375 tar`; the name of the folder for a data set with resolutions of its own."""
    root: str
    """Absolute path, or the URL of a store of objects; `paths` are relative to it."""
    generated: bool
    paths: tuple[str, ...]
    """Of each sample, the file that holds it; a shard holds many."""
    classes: tuple[int, ...]
    size_bytes: tuple[int, ...]
    """Of each sample, as it is encoded."""
    images_found: int
    """Usable images in the whole data set, of which `paths` may be a sample."""
    layout: str = "files"
    """A name in `datasets.layouts.LAYOUTS`."""
    places: tuple[tuple[int, int], ...] = ()
    """Of each sample that shares its file: (block of the file, number in the block). A block is read in sequence."""
    whole_bytes: dict[str, int] = field(default_factory=dict)
    """Of the whole files of such a layout, by path."""
    skipped_count: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    """The first few of the skipped files."""
    staged: Staged | None = None
    """None of files that are where they were given."""

    def __post_init__(self) -> None:
        if not len(self.paths) == len(self.classes) == len(self.size_bytes):
            raise BadValue(f"file set {self.label}: paths, classes and sizes differ in number")
        if len(self.places) != (0 if self.layout == "files" else len(self.paths)):
            raise BadValue(f"file set {self.label}: places and paths differ in number")
        if not self.paths:
            raise BadValue(f"file set {self.label}: it has no file")
        if min(*self.size_bytes, self.images_found, self.skipped_count, 0) < 0:
            raise BadValue(f"file set {self.label}: a size or a count is below 0")

    @property
    def fingerprint(self) -> str:
        """Depends on where the files are, on their names, sizes and order."""
        return content_hash([self.root, self.paths, self.size_bytes])

    @property
    def content(self) -> str:
        """Depends on the names below the root, on sizes and order: the same for a copy on another storage."""
        return content_hash([self.paths, self.size_bytes])

    @property
    def remote(self) -> bool:
        """True for objects behind a URL, of which this machine's page cache holds nothing."""
        return is_url(self.root)

    @property
    def folder(self) -> Path:
        return Path(self.root)

    @property
    def mean_size_bytes(self) -> float:
        return sum(self.size_bytes) / len(self.size_bytes)

    @property
    def count(self) -> int:
        """Images before the first comes again."""
        return len(self.paths)

    @property
    def file_bytes(self) -> dict[str, int]:
        """Of each file, by path: one a sample, or those that hold many."""
        return self.whole_bytes or dict(zip(self.paths, self.size_bytes, strict=True))

    @property
    def parts(self) -> PartFiles | None:
        """The files that are read in parts; None where each sample is a file."""
        file_bytes = {str(self.folder / path): size for path, size in self.whole_bytes.items()}
        return PartFiles(file_bytes=file_bytes) if file_bytes else None

    @property
    def images_an_open(self) -> int:
        """Images that are read before another file is opened; MDS shards are opened for each."""
        return 1 if self.layout in ("files", "mds") else max(1, self.count // len(self.file_bytes))

    @property
    def streamed(self) -> bool:
        """True where samples are read in sequence, several a block."""
        return any(number for _, number in self.places)

    def _blocks(self) -> list[list[int]]:
        """The numbers of the samples of each block, or of each sample that can be read alone."""
        if not self.places:
            return [[k] for k in range(self.count)]
        return list(by_key(range(self.count), lambda k: (self.paths[k], self.places[k][0])).values())

    def chosen(self, numbers: Sequence[int]) -> FileSet:
        """These samples, in this order."""
        paths = tuple(self.paths[k] for k in numbers)
        return replace(
            self,
            paths=paths,
            classes=tuple(self.classes[k] for k in numbers),
            size_bytes=tuple(self.size_bytes[k] for k in numbers),
            places=tuple(self.places[k] for k in numbers) if self.places else (),
            whole_bytes={path: self.whole_bytes[path] for path in dict.fromkeys(paths)} if self.places else {},
        )

    def shard(self, rank: int, size: int) -> FileSet:
        """Every `size`-th block from block `rank` on; a file is one, as torch's DistributedSampler deals them out.

        Raises BadValue.
        """
        blocks = self._blocks()
        if len(blocks) < size:
            what = "files" if self.layout == "files" else f"blocks of {self.layout}"
            raise BadValue(f"{len(blocks)} {what} cannot be shared by {size} ranks", hint="use a larger data set")
        return self.chosen([*chain.from_iterable(blocks[rank::size])])

    def dealt(self, workers: int, batch_size: int) -> FileSet:
        """In the order in which as many workers read them, each its share of the blocks, one after the other.

        All make as many batches: what a longer share has beyond the shortest is left out. Raises BadValue.
        """
        if not self.streamed:
            return self
        blocks, lanes = self._blocks(), max(1, workers)
        shares = [[*chain.from_iterable(blocks[lane::lanes])] for lane in range(lanes)]
        batches = min(map(len, shares)) // batch_size
        if not batches:
            raise BadValue(
                f"{len(blocks)} blocks of {self.layout} do not give each of {lanes} workers a batch of {batch_size}",
                hint="use more images, smaller shards, fewer workers or a smaller batch",
            )
        starts = range(0, batches * batch_size, batch_size)
        return self.chosen([k for start in starts for share in shares for k in share[start : start + batch_size]])

    def absolute(self, first: int, count: int) -> list[Path]:
        """The files of `count` images from image `first` on, going round at the end of the set; shards once each."""
        if first == 0 and count == len(self.paths):
            return list(_below(self.root, tuple(self.whole_bytes) or self.paths))
        root = Path(self.root)
        paths = [self.paths[k % len(self.paths)] for k in range(first, first + count)]
        return [root / path for path in (dict.fromkeys(paths) if self.places else paths)]

    def delivered_bytes(self, first: int, count: int) -> int:
        """The bytes of `count` images, as they are encoded, from image `first` on."""
        sums = [0, *accumulate(self.size_bytes)]
        passes, rest = divmod(first + count, len(self.paths))
        before_passes, before = divmod(first, len(self.paths))
        return (passes - before_passes) * sums[-1] + sums[rest] - sums[before]

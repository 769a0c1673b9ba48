"""The files that the probe reads: a random sample of the regular files under a path, or a scratch file."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shutil import disk_usage
from typing import TypeVar

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.files import IMAGE_SUFFIXES
from loaderprobe.records.remark import Remark
from loaderprobe.store.codec import writing
from loaderprobe.system.device import locate
from loaderprobe.units import format_bytes

T = TypeVar("T")
LIMIT_BYTES = 4 * 10**9
"""Of a sample."""
BLOCK_BYTES = 128 * 1024
LARGE_BLOCK_BYTES = 1 << 20
LARGE_FILE_BYTES = 16 << 20
"""Larger than any image: a folder of larger files holds shards, which are read in large blocks."""
SEQUENTIAL_FILE_BYTES = 64 * 10**6
SEQUENTIAL_BYTES = 4 * 10**9
WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one read operation takes: a whole file, or a block of one."""

    path: Path
    offset: int
    size_bytes: int


def encoded_pieces(pieces: Sequence[Piece]) -> bytes:
    """One line of JSON, also of names that are no UTF-8."""
    return json.dumps([(os.fsdecode(piece.path), piece.offset, piece.size_bytes) for piece in pieces]).encode()


def decoded_pieces(line: bytes) -> tuple[Piece, ...]:
    """The pieces of one line of `encoded_pieces`."""
    return tuple(Piece(path=Path(path), offset=offset, size_bytes=size) for path, offset, size in json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the probe reads, in random order."""

    pieces: tuple[Piece, ...]
    total: int = 0
    """Files that there are, of which these are some."""
    images: bool = False
    block_bytes: int | None = None
    """Size of the blocks; None where files are read, of which single large ones may be cut."""
    large: tuple[tuple[Path, int], ...] = ()
    """Files large enough for sequential reads, with their sizes in bytes."""
    notes: tuple[Remark, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """The files, each once."""
        return list(dict.fromkeys(piece.path for piece in self.pieces))

    @property
    def pieces_a_file(self) -> float:
        """On average: more than 1 where single large files are cut among others; 1 where blocks are what is read."""
        return len(self.pieces) / len(self.paths) if self.block_bytes is None else 1.0

    def sequential(self) -> Sample | None:
        """Large blocks of the large files, in sequence; None when there is no large file."""
        in_order = (piece for path, size in self.large for piece in blocks(path, size, LARGE_BLOCK_BYTES))
        pieces = tuple(islice(in_order, SEQUENTIAL_BYTES // LARGE_BLOCK_BYTES))
        return Sample(pieces=pieces, block_bytes=LARGE_BLOCK_BYTES) if pieces else None


def sample_files(path: Path, *, seed: int) -> Sample:
    """Files under `path` in random order, until `LIMIT_BYTES` are reached; a single file is read in blocks.

    Raises BadValue when there is nothing to read, MissingPart without read permission.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISREG(status.st_mode):
        if not os.access(path, os.R_OK):
            raise MissingPart(f"no permission to read {path}", hint="run as a user with read permission")
        return _one_file(path, status.st_size, seed)
    if not stat.S_ISDIR(status.st_mode):
        what = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(status.st_mode), "a device")
        raise BadValue(
            f"{path} is {what}, neither a file nor a folder",
            hint="give the folder of files, or the folder that a device is mounted on",
        )
    return _sample_folder(path, seed)


def _unreadable(path: Path, error: OSError) -> BadValue | MissingPart:
    if error.errno in (errno.EACCES, errno.EPERM):
        return MissingPart(f"no permission to read {path}", hint="run as a user with read permission")
    return BadValue(f"{path} cannot be read: {error.strerror}", hint="give a folder of files, or a file")


def _one_file(path: Path, size_bytes: int, seed: int) -> Sample:
    if size_bytes == 0:
        raise BadValue(f"{path} is empty", hint="give a folder of files, or --scratch 1GB")
    return Sample(
        pieces=shuffled(blocks(path, min(size_bytes, LIMIT_BYTES), BLOCK_BYTES), seed),
        total=1,
        block_bytes=BLOCK_BYTES,
        large=_large([(str(path), size_bytes)]),
    )


def _sample_folder(path: Path, seed: int) -> Sample:
    skipped: Counter[str] = Counter()
    known: set[tuple[int, int]] = set()
    left_bytes = LIMIT_BYTES

    def usable(name: str, size_bytes: int) -> tuple[int, str]:
        """Each once, even if it has several names."""
        nonlocal left_bytes
        path = Path(name)
        if size_bytes == 0 or not os.access(path, os.R_OK):
            return 0, "empty" if size_bytes == 0 else "not readable"
        try:
            status = path.stat()
        except OSError:
            return 0, "vanished"
        if (status.st_dev, status.st_ino) in known:
            return 0, "another name of a file already chosen"
        known.add((status.st_dev, status.st_ino))
        # A shard is cut at the limit; an image is read whole.
        wanted = min(size_bytes, max(LARGE_FILE_BYTES, left_bytes))
        left_bytes -= wanted
        return wanted, ""

    sample, listed = choose(_regular_files(path, skipped), usable, skipped, seed)
    if not sample.pieces:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "it is empty"
        error = MissingPart if set(skipped) == {"not readable"} else BadValue
        raise error(f"{path} holds no file to read ({why})", hint="give a folder of files, or --scratch 1GB")
    shards = sum(piece.size_bytes for piece in sample.pieces) / len(sample.pieces) > LARGE_FILE_BYTES
    sample = replace(sample, block_bytes=LARGE_BLOCK_BYTES if shards else None, large=_large(listed))
    return in_parts(sample, LARGE_BLOCK_BYTES, seed, Remark(code="large_files_in_blocks"))


def choose(
    listed: Iterable[tuple[str, T]], usable: Callable[[str, T], tuple[int, str]], skipped: Counter[str], seed: int
) -> tuple[Sample, list[tuple[str, T]]]:
    """A sample of whole files or objects, until `LIMIT_BYTES` are reached; and all, in the same random order.

    Where most are images, of these alone. `usable` says of a name and what is listed with it how many bytes are to be
    read, or (0, why none), which `skipped` counts.
    """
    rows = list(listed)
    image_files = [row for row in rows if os.path.splitext(row[0])[1].lower() in IMAGE_SUFFIXES]  # noqa: PTH122  # names, not paths: there may be millions
    images = len(image_files) > len(rows) / 2
    # Other files, such as a manifest, are not read by training.
    rows = sorted(image_files if images else rows)
    random.Random(seed).shuffle(rows)
    pieces: list[Piece] = []
    total = 0
    for name, size in rows:
        if total >= LIMIT_BYTES:
            break
        size_bytes, why = usable(name, size)
        if size_bytes:
            pieces.append(Piece(path=Path(name), offset=0, size_bytes=size_bytes))
            total += size_bytes
        else:
            skipped[why] += 1
    notes = [Remark(code="files_skipped", facts={"files": count, "why": why}) for why, count in skipped.items()]
    return Sample(pieces=tuple(pieces), total=len(rows), images=images, notes=tuple(notes)), rows


def in_parts(sample: Sample, part_bytes: int, seed: int, note: Remark) -> Sample:
    """Large ones in parts at random, small ones whole; as it is where none is large."""
    if all(piece.size_bytes <= LARGE_FILE_BYTES for piece in sample.pieces):
        return sample
    parts: list[Piece] = []
    for piece in sample.pieces:
        large = piece.size_bytes > LARGE_FILE_BYTES
        parts += blocks(piece.path, piece.size_bytes, part_bytes) if large else [piece]
    return replace(sample, pieces=shuffled(parts, seed), notes=(*sample.notes, note))


def _large(files: Sequence[tuple[str, int]]) -> tuple[tuple[Path, int], ...]:
    large = [(Path(path), size) for path, size in files if size >= SEQUENTIAL_FILE_BYTES and os.access(path, os.R_OK)]
    return tuple(large[: SEQUENTIAL_BYTES // SEQUENTIAL_FILE_BYTES])


def _regular_files(base: Path, skipped: Counter[str]) -> Iterator[tuple[str, int]]:
    """(path, bytes) of the files below; links to directories are not followed, which also ends loops of links."""

    def unreadable(error: OSError) -> None:
        if Path(error.filename) == base:
            raise _unreadable(base, error) from error
        skipped["in a folder without read permission"] += 1

    for directory, _, names in os.walk(base, onerror=unreadable):
        for name in names:
            path = f"{directory}{os.sep}{name}"
            try:
                status = os.stat(path)  # noqa: PTH116  # names, not paths: there may be millions
            except OSError as error:
                refused = error.errno in (errno.EACCES, errno.EPERM)
                skipped["not readable" if refused else "a broken link"] += 1
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status.st_size
            else:
                skipped["not a regular file"] += 1


def blocks(path: Path, size_bytes: int, block_bytes: int) -> Iterator[Piece]:
    """The blocks of one file, in order; the last may be shorter."""
    for offset in range(0, size_bytes, block_bytes):
        yield Piece(path=path, offset=offset, size_bytes=min(block_bytes, size_bytes - offset))


def shuffled(pieces: Iterable[Piece], seed: int) -> tuple[Piece, ...]:
    """The same pieces in random order."""
    in_order = list(pieces)
    random.Random(seed).shuffle(in_order)
    return tuple(in_order)


@contextmanager
def scratch_file(directory: Path, size_bytes: int, seed: int) -> Iterator[Sample]:
    """A temporary file under `directory`, of incompressible bytes; always removed."""
    if not directory.is_dir():
        raise BadValue(f"{directory} is not a folder", hint="--scratch needs a folder to write to")
    free = disk_usage(directory).free
    if free < size_bytes * 1.02:
        raise NoSpace(f"{directory} has {format_bytes(free)} free", hint="ask for a smaller --scratch")
    with writing(directory, "the scratch file"):
        descriptor, name = tempfile.mkstemp(prefix=".loaderprobe-scratch-", dir=directory)
    path = Path(name)
    try:
        with writing(path, "the scratch file"), os.fdopen(descriptor, "wb") as file:
            for first in range(0, size_bytes, WRITE_BYTES):
                file.write(os.urandom(min(WRITE_BYTES, size_bytes - first)))
            file.flush()
            os.fsync(file.fileno())
        yield Sample(
            pieces=shuffled(blocks(path, size_bytes, BLOCK_BYTES), seed),
            total=1,
            block_bytes=BLOCK_BYTES,
            large=((path, size_bytes),),
            notes=(Remark(code="scratch_file", facts={"size_bytes": size_bytes}),),
        )
    finally:
        path.unlink(missing_ok=True)


LOOKED_AT = 32


def locate_pieces(path: Path, pieces: Sequence[Piece]) -> StorageLocation:
    """The storage under a sample of the files: links and mounted folders may lead away from `path`.

    If the files are on several file systems, no single counter covers them all. Raises OSError when a path cannot
    be opened.
    """
    step = max(1, len(pieces) // LOOKED_AT)
    locations: dict[str, StorageLocation] = {}
    for piece in pieces[::step]:
        # A file that was just removed, or may not be opened, is counted when it is read.
        with suppress(OSError):
            location = locate(piece.path)
            locations[location.mount] = location
    here = locate(path)
    if locations.keys() <= {here.mount}:
        return here
    if len(locations) == 1:
        (location,) = locations.values()
        note = Remark(code="files_elsewhere", facts={"path": str(path), "mount": location.mount})
        return replace(location, path=str(path), notes=(*location.notes, note))
    note = Remark(code="several_filesystems", facts={"mounts": ", ".join(sorted(locations))})
    return replace(here, kind="unknown", devices=(), layers=(), notes=(note,))

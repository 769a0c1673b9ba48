"""The files that the probe reads: a random sample of the regular files under a path, or a scratch file."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shutil import disk_usage

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.records.environment import StorageLocation
from loaderprobe.records.files import IMAGE_SUFFIXES
from loaderprobe.records.remark import Remark
from loaderprobe.store.codec import writing
from loaderprobe.system.device import locate
from loaderprobe.units import format_bytes

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
    found: int = 0
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
        raise BadValue(
            f"{path} is {_what(status.st_mode)}, neither a file nor a folder",
            hint="give the folder of files, or the folder that a device is mounted on",
        )
    return _sample_folder(path, seed)


def _what(mode: int) -> str:
    if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
        return "a device"
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket"


def _unreadable(path: Path, error: OSError) -> BadValue | MissingPart:
    if error.errno in (errno.EACCES, errno.EPERM):
        return MissingPart(f"no permission to read {path}", hint="run as a user with read permission")
    return BadValue(f"{path} cannot be read: {error.strerror}", hint="give a folder of files, or a file")


def _one_file(path: Path, size_bytes: int, seed: int) -> Sample:
    if size_bytes == 0:
        raise BadValue(f"{path} is empty", hint="give a folder of files, or --scratch 1GB")
    return Sample(
        pieces=shuffled(blocks(path, min(size_bytes, LIMIT_BYTES), BLOCK_BYTES), seed),
        found=1,
        block_bytes=BLOCK_BYTES,
        large=_large([(str(path), size_bytes)]),
    )


def _sample_folder(path: Path, seed: int) -> Sample:
    skipped: Counter[str] = Counter()
    found = sorted(_regular_files(path, skipped))
    image_files = [file for file in found if os.path.splitext(file[0])[1].lower() in IMAGE_SUFFIXES]  # noqa: PTH122  # names, not paths: there may be millions
    images = len(image_files) > len(found) / 2
    if images:
        # Other files, such as a manifest, are not read by training.
        found = image_files
    random.Random(seed).shuffle(found)
    chosen = _chosen(found, skipped)
    if not chosen:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "it is empty"
        error = MissingPart if set(skipped) == {"not readable"} else BadValue
        raise error(f"{path} holds no file to read ({why})", hint="give a folder of files, or --scratch 1GB")
    notes = [Remark(code="files_skipped", facts={"files": count, "why": why}) for why, count in skipped.items()]
    shards = sum(piece.size_bytes for piece in chosen) / len(chosen) > LARGE_FILE_BYTES
    pieces = tuple(chosen)
    if any(piece.size_bytes > LARGE_FILE_BYTES for piece in chosen):
        pieces = shuffled((block for piece in chosen for block in in_blocks(piece, LARGE_BLOCK_BYTES)), seed)
        notes.append(Remark(code="large_files_in_blocks"))
    return Sample(
        pieces=pieces,
        found=len(found),
        images=images,
        block_bytes=LARGE_BLOCK_BYTES if shards else None,
        large=_large(found),
        notes=tuple(notes),
    )


def _chosen(found: Sequence[tuple[str, int]], skipped: Counter[str]) -> list[Piece]:
    """The first files, up to `LIMIT_BYTES` in total; each once, even if it has several names."""
    chosen: list[Piece] = []
    known: set[tuple[int, int]] = set()
    total = 0
    for name, size in found:
        if total >= LIMIT_BYTES:
            break
        path = Path(name)
        if size == 0 or not os.access(path, os.R_OK):
            skipped["empty" if size == 0 else "not readable"] += 1
            continue
        try:
            status = path.stat()
        except OSError:
            skipped["vanished"] += 1
            continue
        if (status.st_dev, status.st_ino) in known:
            skipped["another name of a file already chosen"] += 1
            continue
        known.add((status.st_dev, status.st_ino))
        # A shard is cut at the limit; an image is read whole.
        wanted = min(size, max(LARGE_FILE_BYTES, LIMIT_BYTES - total))
        chosen.append(Piece(path=path, offset=0, size_bytes=wanted))
        total += wanted
    return chosen


def in_blocks(piece: Piece, block_bytes: int) -> Iterator[Piece]:
    """A small file or object whole, a large one in blocks."""
    if piece.size_bytes <= LARGE_FILE_BYTES:
        return iter([piece])
    return blocks(piece.path, piece.size_bytes, block_bytes)


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
            found=1,
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
    found: dict[str, StorageLocation] = {}
    for piece in pieces[::step]:
        # A file that was just removed, or may not be opened, is counted when it is read.
        with suppress(OSError):
            place = locate(piece.path)
            found[place.mount] = place
    own = locate(path)
    if found.keys() <= {own.mount}:
        return own
    if len(found) == 1:
        (place,) = found.values()
        note = Remark(code="files_elsewhere", facts={"path": str(path), "mount": place.mount})
        return replace(place, path=str(path), notes=(*place.notes, note))
    note = Remark(code="several_filesystems", facts={"mounts": ", ".join(sorted(found))})
    return replace(own, kind="unknown", devices=(), layers=(), notes=(note,))

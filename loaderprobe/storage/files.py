"""Which files the probe reads: a random sample of the regular files under a path, or a scratch file of its own."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.store.codec import write_error
from loaderprobe.units import format_bytes

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"})
BLOCK_BYTES = 128 * 1024
WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one read operation takes: a whole file, or a block of the scratch file."""

    path: Path
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the probe reads, in random order."""

    pieces: tuple[Piece, ...]
    found: int
    images: bool
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """The files, each once."""
        return list(dict.fromkeys(piece.path for piece in self.pieces))


def sample_files(path: Path, *, limit_bytes: int, seed: int) -> Sample:
    """Files under `path` in random order, until `limit_bytes` are reached; a single file is read in blocks.

    Raises BadValue when there is nothing to read, MissingPart when it may not be read.
    """
    try:
        status = path.stat()
    except PermissionError as error:
        raise MissingPart(f"{path} may not be read", hint="run as a user who may") from error
    except OSError as error:
        raise BadValue(f"{path} cannot be read: {error.strerror}", hint="give a folder of files, or a file") from error
    if stat.S_ISREG(status.st_mode):
        return Sample(
            pieces=blocks_of(path, min(status.st_size, limit_bytes), seed),
            found=1,
            images=False,
            notes=(f"one file, read in blocks of {BLOCK_BYTES // 1024} KiB at random",),
        )
    if not stat.S_ISDIR(status.st_mode):
        raise BadValue(f"{path} is neither a file nor a folder", hint="give a folder of files")
    return _sample_folder(path, limit_bytes, seed)


def _sample_folder(path: Path, limit_bytes: int, seed: int) -> Sample:
    skipped: dict[str, int] = {}
    found = sorted(_regular_files(path, skipped))
    pictures = [file for file in found if file.suffix.lower() in IMAGE_SUFFIXES]
    images = len(pictures) > len(found) / 2
    if images:
        # What else lies about, such as a manifest, is no load that training makes.
        found = pictures
    random.Random(seed).shuffle(found)
    chosen: list[Piece] = []
    total = 0
    for file in found:
        if total >= limit_bytes:
            break
        try:
            size = file.stat().st_size
        except OSError:
            _count(skipped, "vanished")
            continue
        if size == 0 or not os.access(file, os.R_OK):
            _count(skipped, "empty" if size == 0 else "not readable")
            continue
        chosen.append(Piece(path=file, offset=0, size_bytes=size))
        total += size
    if not chosen:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "it is empty"
        raise BadValue(f"{path} holds no file to read ({why})", hint="give a folder of files, or --scratch 1GB")
    notes = tuple(f"{count} files skipped: {reason}" for reason, count in skipped.items())
    return Sample(pieces=tuple(chosen), found=len(found), images=images, notes=notes)


def _count(skipped: dict[str, int], reason: str) -> None:
    skipped[reason] = skipped.get(reason, 0) + 1


def _regular_files(base: Path, skipped: dict[str, int]) -> Iterator[Path]:
    """Links to directories are not followed, so a loop of links ends."""

    def unreadable(error: OSError) -> None:
        if Path(error.filename) == base:
            raise MissingPart(f"{base} may not be read", hint="run as a user who may") from error
        _count(skipped, "in a folder that may not be read")

    for directory, _, names in os.walk(base, onerror=unreadable):
        for name in names:
            path = Path(directory, name)
            try:
                mode = path.stat().st_mode
            except OSError:
                _count(skipped, "a broken link")
                continue
            if stat.S_ISREG(mode):
                yield path
            else:
                _count(skipped, "not a regular file")


def blocks_of(path: Path, size_bytes: int, seed: int) -> tuple[Piece, ...]:
    """The blocks of one file, in random order. Raises BadValue for an empty file."""
    if size_bytes == 0:
        raise BadValue(f"{path} is empty", hint="give a folder of files, or --scratch 1GB")
    offsets = list(range(0, size_bytes, BLOCK_BYTES))
    random.Random(seed).shuffle(offsets)
    return tuple(
        Piece(path=path, offset=offset, size_bytes=min(BLOCK_BYTES, size_bytes - offset)) for offset in offsets
    )


@contextmanager
def scratch_file(directory: Path, size_bytes: int, seed: int) -> Iterator[Sample]:
    """A file of our own under `directory`, of bytes that do not compress, removed in any case."""
    if not directory.is_dir():
        raise BadValue(f"{directory} is not a folder", hint="--scratch needs a folder to write to")
    status = os.statvfs(directory)
    if status.f_bavail * status.f_frsize < size_bytes * 1.02:
        raise NoSpace(
            f"{directory} has {format_bytes(status.f_bavail * status.f_frsize)} free",
            hint="ask for a smaller --scratch",
        )
    try:
        descriptor, name = tempfile.mkstemp(prefix=".loaderprobe-scratch-", dir=directory)
    except OSError as error:
        raise write_error(error, directory) from error
    path = Path(name)
    try:
        try:
            with os.fdopen(descriptor, "wb") as file:
                for first in range(0, size_bytes, WRITE_BYTES):
                    file.write(os.urandom(min(WRITE_BYTES, size_bytes - first)))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_error(error, path) from error
        yield Sample(
            pieces=blocks_of(path, size_bytes, seed),
            found=1,
            images=False,
            notes=(f"a scratch file of {format_bytes(size_bytes)}, read in blocks of {BLOCK_BYTES // 1024} KiB",),
        )
    finally:
        path.unlink(missing_ok=True)

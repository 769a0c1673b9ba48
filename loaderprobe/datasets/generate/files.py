"""Writes the files of a set: images, or tar shards of them in the form of WebDataset."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import xxhash

from loaderprobe.datasets.generate.journal import Entry
from loaderprobe.datasets.generate.manifest import SetSpec
from loaderprobe.datasets.generate.pool import Pool

PART = ".part"
BUFFER = 1 << 20
SENT_AT_ONCE = 16 << 20
# What a tar file adds to an image, at most: two headers, and both members filled up to whole blocks.
SHARD_OVERHEAD = 4 * tarfile.BLOCKSIZE


def write_files(directory: Path, spec: SetSpec, pool: Pool, numbers: Iterable[int], images: int) -> list[Entry]:
    """Files `numbers` of a set of so many images. Raises OSError; a file that was begun is removed then."""
    return [write_file(directory, spec, pool, number, spec.images_in(number, images)) for number in numbers]


def write_file(directory: Path, spec: SetSpec, pool: Pool, number: int, indices: range) -> Entry:
    """Write under another name first, so that an interrupted file never counts as complete."""
    path = directory / spec.path(number)
    part = path.with_name(f".{path.name}{PART}")
    try:
        size, digest = (
            _write_shard(part, spec, pool, indices)
            if spec.layout == "shards"
            else _write_image(part, pool.image(spec.seed, number, spec.oddities))
        )
        part.replace(path)
    except BaseException:
        # Ctrl-C as much as a full disk.
        part.unlink(missing_ok=True)
        raise
    return Entry(number=number, images=len(indices), size_bytes=size, xxh3=digest)


def _write_image(part: Path, data: bytes) -> tuple[int, str]:
    part.write_bytes(data)
    return len(data), xxhash.xxh3_128_hexdigest(data)


def _write_shard(part: Path, spec: SetSpec, pool: Pool, indices: range) -> tuple[int, str]:
    """Each image as NAME.jpg, its class as NAME.cls; all else is zero, so the bytes depend on the images alone."""
    with part.open("wb", buffering=BUFFER) as file:
        out = _Hashed(file)
        for index in indices:
            _add(out, f"{spec.name(index)}.jpg", pool.image(spec.seed, index, spec.oddities))
            _add(out, f"{spec.name(index)}.cls", str(index % spec.classes).encode())
        # POSIX: two empty blocks end an archive, which is filled up to whole records.
        out.write(bytes(2 * tarfile.BLOCKSIZE))
        out.write(bytes(-out.tell() % tarfile.RECORDSIZE))
    return out.tell(), out.digest()


def _add(out: _Hashed, name: str, data: bytes) -> None:
    """One member: tarfile's own `addfile` takes as long as making the image."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    out.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE))


class _Hashed:
    """A file that is written and hashed in one pass, and flushed to the disk while the rest is generated."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128()
        self._size = self._sent = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._size += len(data)
        if self._size - self._sent > SENT_AT_ONCE:
            # Start the write-back now: otherwise the kernel would delay it for seconds.
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self._sent = self._size
        return self._file.write(data)

    def tell(self) -> int:
        return self._size

    def digest(self) -> str:
        return self._hash.hexdigest()

"""Generate a data set: any number of processes write the same bytes, and an interrupted one goes on."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from loaderprobe.datasets.images import ImageSource, PillowImages
from loaderprobe.datasets.manifest import SPEC, Manifest, SetSpec, read_manifest, read_spec, write_manifest, write_spec
from loaderprobe.errors import ForeignDirectory, LoaderprobeError, NoSpace, Refused
from loaderprobe.store.codec import write_error
from loaderprobe.store.run_directory import lock_directory
from loaderprobe.units import format_bytes, format_resolution

CHUNK = 32
SIZED_IMAGES = 3
SPACE_MARGIN = 1.1
# Files take whole blocks; so many bytes are lost to that per file, at most.
BLOCK_BYTES = 4096
OnImages = Callable[[int, int], None]
Entry = tuple[int, int, str]
"""(index, size in bytes, digest)."""


def generate(
    root: Path, resolution: tuple[int, int], *, count: int, classes: int, seed: int, processes: int, progress: OnImages
) -> Path:  # fmt: skip
    """Make, complete or enlarge `root/WxH` to at least `count` images, and return that directory.

    Raises Refused when another set is there, ForeignDirectory when anything else is, Locked when another
    process is at work, NoSpace before writing when there is too little room or midway when it runs out.
    """
    directory = root / format_resolution(*resolution)
    spec = SetSpec(width=resolution[0], height=resolution[1], classes=classes, seed=seed)
    manifest = _known(directory, spec)
    if manifest and len(manifest.size_bytes) >= count:
        return directory
    _check_ours(directory)
    try:
        with lock_directory(directory):
            write_spec(directory, spec)
            _make(directory, spec, manifest, count, processes, progress)
    except OSError as error:
        raise write_error(error, directory) from error
    return directory


def _known(directory: Path, spec: SetSpec) -> Manifest | None:
    found = read_spec(directory)
    if found is not None and found != spec:
        raise Refused(
            f"{directory} holds another data set (seed {found.seed}, {found.classes} classes, {found.generator})",
            hint="choose another directory, or remove it",
        )
    return read_manifest(directory)


def _check_ours(directory: Path) -> None:
    try:
        foreign = directory.exists() and not (directory / SPEC).exists() and any(
            entry.name != ".lock" for entry in directory.iterdir()
        )  # fmt: skip
    except OSError as error:
        raise write_error(error, directory) from error
    if foreign:
        raise ForeignDirectory(
            f"{directory} is not empty and not a generated data set", hint="choose another directory"
        )


def _make(
    directory: Path, spec: SetSpec, manifest: Manifest | None, count: int, processes: int, progress: OnImages
) -> None:  # fmt: skip
    entries = dict(enumerate(zip(manifest.size_bytes, manifest.blake2b, strict=True))) if manifest else {}
    missing = [index for index in range(count) if index not in entries]
    _check_space(directory, spec, len(missing))
    for index in range(spec.classes):
        (directory / spec.path(index)).parent.mkdir(parents=True, exist_ok=True)
    progress(len(entries), count)
    for index, size, digest in _written(directory, spec, missing, processes):
        entries[index] = (size, digest)
        if len(entries) % CHUNK == 0 or len(entries) == count:
            progress(len(entries), count)
    # On the medium before the manifest says so; and only written-back pages can be read cold.
    os.sync()
    ordered = [entries[index] for index in range(count)]
    write_manifest(
        directory,
        Manifest(spec=spec, size_bytes=tuple(s for s, _ in ordered), blake2b=tuple(digest for _, digest in ordered)),
    )


def _check_space(directory: Path, spec: SetSpec, count: int) -> None:
    """Refuse before writing: sizes are measured on a few images of this very set."""
    source = _image_source(spec)
    mean = sum(len(source.jpeg(index)) for index in range(SIZED_IMAGES)) / SIZED_IMAGES
    needed = round(count * (mean + BLOCK_BYTES / 2) * SPACE_MARGIN)
    stat = os.statvfs(directory)
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise NoSpace(
            f"{directory} has {format_bytes(free)} free, and {count} images take about {format_bytes(needed)}",
            hint="choose another directory, or fewer images",
        )
    if stat.f_files and stat.f_favail < count + spec.classes:
        raise NoSpace(f"{directory} has room for only {stat.f_favail} more files", hint="choose another file system")


def _written(directory: Path, spec: SetSpec, indices: list[int], processes: int) -> Iterable[Entry]:
    chunks = [indices[first : first + CHUNK] for first in range(0, len(indices), CHUNK)]
    if processes == 1 or len(chunks) == 1:
        for chunk in chunks:
            yield from _write_chunk(directory, spec, chunk)
        return
    # Forked workers inherit the bases that sizing has just made.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(processes, len(chunks)), mp_context=context) as pool:
        try:
            for future in as_completed([pool.submit(_write_chunk, directory, spec, chunk) for chunk in chunks]):
                yield from future.result()
        except BrokenProcessPool as error:
            raise LoaderprobeError(
                "a process that was generating images died", hint="run the same command again: it goes on from here"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _write_chunk(directory: Path, spec: SetSpec, indices: list[int]) -> list[Entry]:
    source = _image_source(spec)
    return [_write_image(directory / spec.path(index), source, index) for index in indices]


def _write_image(path: Path, source: ImageSource, index: int) -> Entry:
    """Written under another name first, so that an interrupted file is never taken for a whole one."""
    data = source.jpeg(index)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return index, len(data), _digest(data)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@functools.lru_cache(maxsize=1)
def _image_source(spec: SetSpec) -> ImageSource:
    """The one source of this process: its bases take seconds to make at large sizes."""
    return PillowImages(spec.width, spec.height, spec.seed)

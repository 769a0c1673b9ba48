"""Images written again elsewhere, in another layout or as they are: whole files, of which those there are kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from threading import Event

from loaderprobe.datasets.generate.generate import check_space, images_a_shard, lock_set, sync_filesystem
from loaderprobe.datasets.layouts import FILES, INDEX, LAYOUTS, Sample, complete, format_of
from loaderprobe.errors import BadValue, NoSpace, Refused
from loaderprobe.protocols import OnImages, PageCache
from loaderprobe.records.files import FileSet, Staged
from loaderprobe.store.codec import PART, write_atomically, write_error, written_whole
from loaderprobe.system.objects import read_object

SOURCE = "source.txt"
"""The fingerprint of the files that a directory is made from; of a copy, what holds them."""
COPIED = "copied.txt"
"""Bytes and seconds of all copying into a directory."""
SHARD_BYTES = dict.fromkeys(("mds", "litdata"), 4_000_000_000)
"""Most bytes of images in a shard: its offsets are uint32, and there are some bytes beside images."""
COPIERS = 16
"""Files that are copied at the same time."""


def convert(files: FileSet, layout: str, root: Path, progress: OnImages) -> FileSet:
    """The same images in their order, in `root/NAME-LAYOUT`; the same call goes on where it was stopped.

    Raises Refused for a directory that holds something else, Locked, NoSpace before a file is written and where space
    runs out, MissingPart without permission, or without the library of the layout, BadValue for a file that cannot be
    read, or is no longer as it was listed.
    """
    form, row = format_of(layout), LAYOUTS[layout]
    directory = root.absolute() / f"{files.label}-{layout}"
    per_file = files.count if row.single else images_a_shard(files.count)
    if layout in SHARD_BYTES:
        per_file = max(1, min(per_file, SHARD_BYTES[layout] // max(files.size_bytes)))
    parts = {
        f"train/{row.file.format(number=first // per_file)}": range(first, min(first + per_file, files.count))
        for first in range(0, files.count, per_file)
    }
    with _writing(directory, "--convert-to"):
        _check_source(directory, files.fingerprint, "--convert-to", "; --images and --seed choose the images")
        missing = [path for path in parts if not (directory / path).exists()]
        images = sum(len(parts[path]) for path in missing)
        check_space(directory, layout, files.mean_size_bytes, images, len(missing))
        write_atomically(directory / SOURCE, files.fingerprint.encode())
        (directory / "train").mkdir(exist_ok=True)
        for path in missing:
            progress(files.count - images, files.count)
            with written_whole(directory / path) as part:
                form.write(_samples(files, parts[path]), part)
                sync_filesystem(directory)
            images -= len(parts[path])
        complete(layout, directory / "train")
        progress(files.count, files.count)
    return replace(
        files,
        label=f"{files.label} {layout}",
        root=str(directory),
        paths=tuple(path for path, numbers in parts.items() for _ in numbers),
        layout=layout,
        places=tuple(row.position_of(number - numbers.start) for numbers in parts.values() for number in numbers),
        whole_bytes={path: (directory / path).stat().st_size for path in parts},
    )


@contextmanager
def _writing(directory: Path, option: str) -> Iterator[None]:
    """Hold what `option` chose for writing. Raises Locked, NoSpace, MissingPart without permission."""
    try:
        with lock_set(directory):
            yield
    except (OSError, NoSpace) as error:
        trouble = write_error(error, directory, option) if isinstance(error, OSError) else error
        if isinstance(trouble, NoSpace):
            trouble.hint = f"free some, choose another place with {option}, or fewer --images"
        if trouble is error:
            raise
        raise trouble from error


def _check_source(directory: Path, source: str, option: str, more: str = "") -> None:
    """Raises Refused where the directory is made from other files, or holds anything else."""
    marker = directory / SOURCE
    recorded = marker.read_text(errors="surrogateescape") if marker.exists() else ""
    strange = [path.name for path in directory.iterdir() if path.name not in (".lock", f".{SOURCE}{PART}")]
    if recorded != source and (recorded or strange):
        raise Refused(
            f"{directory} holds other images, or others of that folder",
            hint=f"choose another {option}, or remove it{more}",
        )


def _samples(files: FileSet, numbers: range) -> Iterator[Sample]:
    for number in numbers:
        image = b"".join(_pieces(files.folder / files.paths[number]))
        _check_size(files, files.paths[number], files.size_bytes[number], len(image))
        yield Sample(f"{number:08}", image, files.classes[number])


def _check_size(files: FileSet, path: str, size_bytes: int, now_bytes: int) -> None:
    if now_bytes != size_bytes:
        raise BadValue(f"{files.root}/{path} had {size_bytes} bytes, and has {now_bytes}", hint="begin a new sweep")


def stage(files: FileSet, root: Path, cache: PageCache, progress: OnImages) -> FileSet:
    """The same files, and the indexes beside them, in `root/NAME-staged`, copied by several threads.

    The same call goes on where it was stopped. Local files are evicted first, so that they are copied from their
    storage. Raises Refused for a directory that holds something else, Locked, NoSpace before a file is copied and
    where space runs out, MissingPart without permission, BadValue for a file that cannot be read, or is no longer as
    it was listed.
    """
    directory = root.absolute() / f"{files.label.strip('/').replace(' ', '-')}-staged"
    indexes = {f"{Path(path).parent}/{INDEX}" for path in files.whole_bytes}
    sizes = files.file_bytes | {
        path: index.stat().st_size for path in indexes if (index := files.folder / path).is_file()
    }
    if not files.remote and directory.resolve().is_relative_to(files.folder.resolve()):
        raise Refused(f"{directory} is among the images that are copied", hint="choose a --stage outside DATA")
    with _writing(directory, "--stage"):
        _check_source(directory, files.root, "--stage")
        there = {path: copy.stat().st_size for path in sizes if (copy := directory / path).is_file()}
        for path in indexes & there.keys():
            if [*_pieces(files.folder / path)] != [*_pieces(directory / path)]:
                del there[path]
        missing = {path: size for path, size in sizes.items() if there.get(path) != size}
        stat, kept = os.statvfs(directory), sum(sizes.values()) - sum(missing.values())
        # Shards that are read whole stand for the others, with what they hold beside images.
        whole_shards = files.layout in LAYOUTS and not LAYOUTS[files.layout].block
        image_bytes = sum(sizes.values()) / files.count if whole_shards else files.mean_size_bytes
        whole = max(sum(sizes.values()), files.images_found * image_bytes)
        share = min(1.0, (stat.f_bavail * stat.f_frsize + kept) / whole)
        images = sum(path in missing for path in files.paths)
        folders = {(directory / path).parent for path in missing}
        mean_bytes = sum(missing.values()) / max(1, images)
        check_space(directory, FILES, mean_bytes, images, len(missing), len(folders))
        write_atomically(directory / SOURCE, os.fsencode(files.root))
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        if not files.remote:
            cache.evict([files.folder / path for path in missing])
        begun_s = time.perf_counter()
        _copy_all(files, missing, directory, lambda done: progress(len(sizes) - len(missing) + done, len(sizes)))
        sync_filesystem(directory)
        rate = _rate(directory / COPIED, sum(missing.values()), time.perf_counter() - begun_s)
    base = files.label.removesuffix(f" {files.layout}")
    return replace(
        files,
        label=f"{base} staged{files.label.removeprefix(base)}",
        root=str(directory),
        skipped_count=files.skipped_count if files.whole_bytes else 0,
        skipped=files.skipped if files.whole_bytes else (),
        staged=Staged(source=files.label, bytes_per_s=rate, share=share),
    )


def _copy_all(files: FileSet, sizes: dict[str, int], directory: Path, progress: Callable[[int], None]) -> None:
    stop = Event()
    with ThreadPoolExecutor(COPIERS) as threads:
        begun = [threads.submit(_copy, files, path, size, directory / path, stop) for path, size in sizes.items()]
        try:
            progress(0)
            for done, copied in enumerate(as_completed(begun), 1):
                copied.result()
                progress(done)
        except BaseException:
            # Ctrl-C as much as a full disk.
            stop.set()
            threads.shutdown(cancel_futures=True)
            raise


def _copy(files: FileSet, path: str, size_bytes: int, copy: Path, stop: Event) -> None:
    with written_whole(copy) as part:
        with part.open("wb") as target:
            pieces = [read_object(files.root, path)] if files.remote else _pieces(files.folder / path)
            target.writelines(takewhile(lambda _: not stop.is_set(), pieces))
        _check_size(files, path, size_bytes, part.stat().st_size)


def _pieces(file: Path) -> Iterator[bytes]:
    """A file in pieces. Raises BadValue where it cannot be read, which is no error of writing."""
    try:
        with file.open("rb") as source:
            while piece := source.read(1 << 20):
                yield piece
    except OSError as error:
        raise BadValue(
            f"{file} cannot be read: {error.strerror}",
            hint="check its permissions and its disk, then begin again: what was written is kept",
        ) from error


def _rate(kept: Path, size_bytes: int, seconds: float) -> float | None:
    """Bytes/s of all copying so far, which `kept` keeps; None where nothing was copied, or in no time."""
    if size_bytes:
        before = map(float, kept.read_text().split()) if kept.exists() else (0.0, 0.0)
        total = [sum(pair) for pair in zip(before, (size_bytes, seconds), strict=True)]
        write_atomically(kept, f"{total[0]:.0f} {total[1]:.9f}".encode())
    if not kept.exists():
        return None
    copied_bytes, took_s = map(float, kept.read_text().split())
    return copied_bytes / took_s if took_s else None

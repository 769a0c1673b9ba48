"""Images of one's own, written again in another layout: in whole files, of which those that are there are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from loaderprobe.datasets.generate.generate import check_space, images_a_shard, sync_filesystem, written_whole
from loaderprobe.datasets.layouts import LAYOUTS, Sample, complete, format_of
from loaderprobe.errors import Refused
from loaderprobe.records.files import FileSet
from loaderprobe.store.codec import write_atomically, write_error
from loaderprobe.store.run_directory import lock_directory

SOURCE = "source.txt"
"""The fingerprint of the files that a directory is made from."""


def convert(files: FileSet, layout: str, root: Path, progress: Callable[[int, int], None]) -> FileSet:
    """The same images in their order, in `root/NAME-LAYOUT`; the same call goes on where it was stopped.

    Raises Refused for a directory that holds something else, Locked, NoSpace before a file is written and where space
    runs out, MissingPart without permission, or without the library of the layout.
    """
    form, row = format_of(layout), LAYOUTS[layout]
    directory = root.absolute() / f"{files.label}-{layout}"
    each = files.count if row.single else images_a_shard(files.count)
    parts = {
        f"train/{row.file.format(number=first // each)}": range(first, min(first + each, files.count))
        for first in range(0, files.count, each)
    }
    try:
        with lock_directory(directory):
            _check_source(directory, files)
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
    except OSError as error:
        raise write_error(error, directory) from error
    return replace(
        files,
        label=f"{files.label} {layout}",
        root=str(directory),
        paths=tuple(path for path, numbers in parts.items() for _ in numbers),
        layout=layout,
        places=tuple(row.place(number - numbers.start) for numbers in parts.values() for number in numbers),
        whole_bytes={path: (directory / path).stat().st_size for path in parts},
    )


def _check_source(directory: Path, files: FileSet) -> None:
    """Raises Refused where the directory is made from other files, or holds anything else."""
    source = directory / SOURCE
    there = source.read_text() if source.exists() else ""
    strange = [path.name for path in directory.iterdir() if path.name not in (".lock", f".{SOURCE}.part")]
    if there != files.fingerprint and (there or strange):
        raise Refused(
            f"{directory} holds other images, or others of that folder",
            hint="choose another --convert-to, or remove it; --images and --seed choose the images",
        )


def _samples(files: FileSet, numbers: range) -> Iterator[Sample]:
    for number in numbers:
        yield Sample(f"{number:08}", (files.folder / files.paths[number]).read_bytes(), files.classes[number])

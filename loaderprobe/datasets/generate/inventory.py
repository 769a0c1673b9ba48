"""What is there already, and whether there is room for the rest."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.datasets.generate.files import PART, SHARD_OVERHEAD
from loaderprobe.datasets.generate.journal import Entry, Journal
from loaderprobe.datasets.generate.manifest import Manifest, SetSpec
from loaderprobe.errors import NoSpace
from loaderprobe.units import format_bytes

SPACE_MARGIN = 1.03
# Files take whole blocks; so many bytes are lost to that per file, on average.
HALF_BLOCK = 2048
NUMBERED = re.compile(r"\.(?:n\d{8,}_(\d+)\.JPEG|shard-(\d{6,})\.tar)" + re.escape(PART))


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The files of a set that are known to be whole."""

    whole: dict[int, Entry]
    """By number, of the set of so many images as it is asked for now."""
    beyond: tuple[Entry, ...]
    """Of a larger set that was begun before: they are kept, and taken when the set grows."""


def take_inventory(
    directory: Path, spec: SetSpec, manifest: Manifest | None, journal: Journal, count: int
) -> Inventory:
    """Believe the manifest and the journal, as far as the files still have their sizes.

    Nothing is removed but what a killed process left half-written: a file that nobody vouches for is written anew.
    """
    _remove_halves(directory, spec)
    known = _entries(manifest) if manifest else []
    found = {entry.number: entry for entry in (*known, *journal.entries()) if _has_size(directory, spec, entry)}
    inside = {number for number in found if number < spec.files(count)}
    return Inventory(
        whole={n: found[n] for n in sorted(inside) if found[n].images == len(spec.images_in(n, count))},
        beyond=tuple(found[n] for n in sorted(found.keys() - inside)),
    )


def is_whole(directory: Path, manifest: Manifest, count: int) -> bool:
    """True when the files of the first `count` images are there, with their sizes."""
    files = manifest.spec.files(count)
    return manifest.images >= count and all(
        _has_size(directory, manifest.spec, entry) for entry in _entries(manifest)[:files]
    )


def _entries(manifest: Manifest) -> list[Entry]:
    columns = zip(manifest.size_bytes, manifest.xxh3, strict=True)
    return [
        Entry(number=k, images=len(manifest.spec.images_in(k, manifest.images)), size_bytes=size, xxh3=digest)
        for k, (size, digest) in enumerate(columns)
    ]


def _has_size(directory: Path, spec: SetSpec, entry: Entry) -> bool:
    try:
        return (directory / spec.path(entry.number)).stat().st_size == entry.size_bytes
    except FileNotFoundError:
        return False


def _remove_halves(directory: Path, spec: SetSpec) -> None:
    """Only those with the very names that files of this set have while they are written."""
    for part in (directory / "train").rglob(f".*{PART}"):
        match = NUMBERED.fullmatch(part.name)
        if match and part.with_name(part.name[1 : -len(PART)]) == directory / spec.path(int(match[1] or match[2])):
            part.unlink()


def check_space(directory: Path, spec: SetSpec, mean_bytes: float, images: int, files: int) -> None:
    """Refuse before so many images in so many files are written. Raises NoSpace."""
    each = mean_bytes + (SHARD_OVERHEAD if spec.layout == "shards" else 0)
    needed = round((images * each + files * HALF_BLOCK) * SPACE_MARGIN)
    stat = os.statvfs(directory)
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise NoSpace(
            f"{directory} has {format_bytes(free)} free, and {images} images take about {format_bytes(needed)}",
            hint="choose another directory, or fewer images",
        )
    if stat.f_files and stat.f_favail < files + spec.classes:
        raise NoSpace(f"{directory} has room for only {stat.f_favail} more files", hint="choose another file system")

"""The files that exist already, and whether there is space for the rest."""

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
    """The files of a set that are known to be complete."""

    whole: dict[int, Entry]
    """By number: the files of the set at its requested size."""
    beyond: tuple[Entry, ...]
    """Files of a larger set that was begun before: kept, and used when the set grows."""


def take_inventory(
    directory: Path, spec: SetSpec, manifest: Manifest | None, journal: Journal, count: int
) -> Inventory:
    """Files in the manifest and the journal that still have their sizes.

    Removes only files that a killed process left half-written; a file without an entry is written again.
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
    """Remove only files with the temporary names of this set."""
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
        raise NoSpace(f"{directory} has space for only {stat.f_favail} more files", hint="choose another file system")

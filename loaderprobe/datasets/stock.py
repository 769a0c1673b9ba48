"""What is there already, and whether there is room for the rest."""

from __future__ import annotations

import os
import re
from pathlib import Path

from loaderprobe.datasets.files import PART, SHARD_OVERHEAD
from loaderprobe.datasets.journal import Entry, Journal
from loaderprobe.datasets.manifest import Manifest, SetSpec
from loaderprobe.datasets.pool import Pool
from loaderprobe.errors import NoSpace
from loaderprobe.units import format_bytes

SPACE_MARGIN = 1.03
# Files take whole blocks; so many bytes are lost to that per file, on average.
HALF_BLOCK = 2048
OUR_FILE = re.compile(r"n\d{8}_\d+\.JPEG|shard-\d{6}\.tar")


def believed(
    directory: Path, spec: SetSpec, manifest: Manifest | None, journal: Journal, count: int
) -> dict[int, Entry]:
    """The files that are whole, by number; all others, half or of doubtful content, are removed."""
    known = []
    if manifest is not None:
        known = [
            Entry(number=number, images=len(spec.images_in(number, manifest.images)), size_bytes=size, xxh3=digest)
            for number, (size, digest) in enumerate(zip(manifest.size_bytes, manifest.xxh3, strict=True))
        ]
    journaled = journal.entries()
    present = _present(directory)
    whole = {
        entry.number: entry
        for entry in (*known, *journaled)
        if spec.path(entry.number) in present and entry.images == len(spec.images_in(entry.number, count))
    }
    kept = {spec.path(number) for number in whole}
    for path in present - kept:
        # The last shard of a complete set stays until a longer one takes its name.
        if manifest is None or spec.layout == "folder":
            (directory / path).unlink()
    journal.begin(whole[entry.number] for entry in journaled if whole.get(entry.number) == entry)
    return whole


def _present(directory: Path) -> set[str]:
    """Paths of our files that are there; what a killed process left half-written is removed."""
    found = set()
    for path in (directory / "train").rglob("*"):
        if path.name.endswith(PART) and OUR_FILE.fullmatch(path.name[1 : -len(PART)]):
            path.unlink()
        elif OUR_FILE.fullmatch(path.name):
            found.add(path.relative_to(directory).as_posix())
    return found


def check_space(directory: Path, spec: SetSpec, pool: Pool, images: list[int]) -> None:
    """Refuse before writing files of so many images each."""
    each = pool.mean_bytes + (SHARD_OVERHEAD if spec.layout == "shards" else 0)
    needed = round((sum(images) * each + len(images) * HALF_BLOCK) * SPACE_MARGIN)
    stat = os.statvfs(directory)
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise NoSpace(
            f"{directory} has {format_bytes(free)} free, and {sum(images)} images take about {format_bytes(needed)}",
            hint="choose another directory, or fewer images",
        )
    if stat.f_files and stat.f_favail < len(images) + spec.classes:
        raise NoSpace(f"{directory} has room for only {stat.f_favail} more files", hint="choose another file system")

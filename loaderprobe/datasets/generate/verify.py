"""Check that every file of a generated set is as it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import xxhash

from loaderprobe.datasets.generate.manifest import MANIFEST, read_manifest
from loaderprobe.errors import MissingPart

BUFFER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that differs from the manifest."""

    path: str
    trouble: str


def verify_set(directory: Path, progress: Callable[[int, int], None]) -> tuple[Damage, ...]:
    """All files that are missing or differ, from reading every one; of an incomplete set, its manifest.

    Raises MissingPart when the manifest cannot be read.
    """
    try:
        manifest = read_manifest(directory)
    except OSError as error:
        raise MissingPart(
            f"{directory} cannot be read: {error.strerror}", hint="run as a user with read permission"
        ) from error
    if manifest is None:
        return (Damage(path=MANIFEST, trouble="missing: the set is not complete"),)
    found = []
    for number, (size, digest) in enumerate(zip(manifest.size_bytes, manifest.xxh3, strict=True)):
        path = manifest.spec.path(number)
        if trouble := _trouble(directory / path, size, digest):
            found.append(Damage(path=path, trouble=trouble))
        progress(number + 1, len(manifest.size_bytes))
    return tuple(found)


def _trouble(path: Path, size: int, digest: str) -> str:
    """The damage of the file as text; empty when there is none."""
    try:
        found_size = path.stat().st_size
        if found_size != size:
            return f"{found_size} bytes, not {size}"
        found = xxhash.xxh3_128()
        with path.open("rb") as file:
            while data := file.read(BUFFER):
                found.update(data)
    except OSError as error:
        return error.strerror or str(error)
    return "" if found.hexdigest() == digest else "its content has changed"

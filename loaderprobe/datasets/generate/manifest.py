"""The settings and the content of a generated set.

SET/  spec.json       all that its files depend on; written before the first of them
      pool.msgpack    the encoded base images that they are derived from
      train/          the files
      journal.jsonl   files that are known to be complete, while the set is being generated
      manifest.json   written last, so that its presence means complete
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from loaderprobe.datasets.generate.oddities import OddityName
from loaderprobe.datasets.layouts import FILES, LAYOUTS, damage
from loaderprobe.store.codec import decode

SPEC = "spec.json"
POOL = "pool.msgpack"
MANIFEST = "manifest.json"
KIND = "image-set"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSpec:
    """All that the files of a set depend on; their number is not part of it, so a set can grow."""

    resolution: str
    """`500x375`, or `imagenet` for ImageNet's own mixture."""
    classes: int
    seed: int
    base_images: int
    """Base images in the pool."""
    mean_bytes: int | None = None
    """Of a file, as asked for."""
    oddities: tuple[OddityName, ...] = ()
    layout: str = FILES
    shard_images: int | None = 1
    """Images in one file: a shard, or 1; 0 for all, None in a requested spec for as many as usual."""
    generator: str = "free-bits-1"
    pool_sha256: str = ""
    """Digest of the pool; empty in a requested spec."""

    def directory(self, root: Path) -> Path:
        """`500x375`, or `500x375-tar`."""
        return root / (self.resolution if self.layout == FILES else f"{self.resolution}-{self.layout}")

    def name(self, index: int) -> str:
        """Of an image, without suffix: `n00000003_13`."""
        return f"n{index % self.classes:08}_{index}"

    def path(self, number: int) -> str:
        """Path of file `number`: `train/n00000003/n00000003_13.JPEG`, or `train/shard-000013.tar`."""
        if self.layout in LAYOUTS:
            return f"train/{LAYOUTS[self.layout].file.format(number=number)}"
        return f"train/n{number % self.classes:08}/{self.name(number)}.JPEG"

    def files(self, images: int) -> int:
        return -(-images // self.shard_images) if self.shard_images else 1

    def blocks(self, images: int) -> Iterator[tuple[int, range]]:
        """Of so many images, those that are read in sequence, and the number of their file."""
        for number in range(self.files(images)):
            inside = self.images_in(number, images)
            size = (LAYOUTS[self.layout].block if self.layout in LAYOUTS else 0) or len(inside)
            for first in range(0, len(inside), size):
                yield number, inside[first : first + size]

    def images_in(self, number: int, images: int) -> range:
        """The images in file `number` of a set of so many."""
        per_file = self.shard_images or images
        return range(number * per_file, min((number + 1) * per_file, images))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files of a complete set, by number."""

    spec: SetSpec
    images: int
    size_bytes: tuple[int, ...]
    xxh3: tuple[str, ...]
    """128-bit XXH3 digests of the files, in hex."""
    image_bytes: tuple[int, ...] = ()
    """Of each image, where a file holds several."""
    odd_images: dict[OddityName, int] = field(default_factory=dict)
    """Number of images with each requested oddity."""


def read_spec(directory: Path) -> SetSpec | None:
    """The spec of the set in `directory`; None when there is none. Raises BadValue for one that cannot be read."""
    path = directory / SPEC
    return decode(f"{KIND}-spec", path.read_bytes(), SetSpec, str(path)) if path.is_file() else None


def is_generated(directory: Path) -> bool:
    """True for a complete generated set; another program's `manifest.json` does not count."""
    return _is_ours(directory / MANIFEST, KIND)


def sets_in(directory: Path) -> tuple[Path, ...]:
    """The generated sets, complete or not: `directory` itself, else those directly in it, by name."""
    if _is_ours(directory / SPEC, f"{KIND}-spec"):
        return (directory,)
    return tuple(path for path in sorted(directory.glob("*")) if _is_ours(path / SPEC, f"{KIND}-spec"))


def _is_ours(path: Path, kind: str) -> bool:
    """False too for a file in a directory that may not be entered. Raises MissingPart for one that may not be read."""
    with damage(path):
        return os.path.isfile(path) and f'"loaderprobe/{kind}"'.encode() in path.read_bytes()[:200]  # noqa: PTH113  # Path.is_file raises there


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of the set in `directory`; None when it is not complete."""
    path = directory / MANIFEST
    return decode(KIND, path.read_bytes(), Manifest, str(path)) if path.is_file() else None

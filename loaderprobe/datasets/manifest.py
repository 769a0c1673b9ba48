"""What a generated set is and holds: `manifest.json`, written last, so that its presence means complete."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loaderprobe.store.codec import decode, encode, write_atomically

SPEC = "spec.json"
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSpec:
    """All that the images of a set depend on; their number is not part of it, so a set can grow."""

    width: int
    height: int
    classes: int
    seed: int
    generator: str = "pillow-1"

    def path(self, index: int) -> str:
        """Where image `index` lies: `train/n00000003/n00000003_13.JPEG`."""
        name = f"n{index % self.classes:08}"
        return f"train/{name}/{name}_{index}.JPEG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files of a complete set, by index."""

    spec: SetSpec
    size_bytes: tuple[int, ...]
    blake2b: tuple[str, ...]
    """16-byte digests, in hex."""


def read_spec(directory: Path) -> SetSpec | None:
    """The spec of the set in `directory`; None when there is none."""
    path = directory / SPEC
    return decode("dataset-spec", path.read_bytes(), SetSpec, str(path)) if path.is_file() else None


def is_generated(directory: Path) -> bool:
    """True for a complete set of ours; a `manifest.json` of somebody else's is no sign of one."""
    path = directory / MANIFEST
    return path.is_file() and b'"loaderprobe/dataset"' in path.read_bytes()[:200]


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of the set in `directory`; None when it is not complete."""
    path = directory / MANIFEST
    return decode("dataset", path.read_bytes(), Manifest, str(path)) if path.is_file() else None


def write_spec(directory: Path, spec: SetSpec) -> None:
    """Mark `directory` as ours before the first image is written."""
    write_atomically(directory / SPEC, encode("dataset-spec", spec))


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Declare the set complete."""
    write_atomically(directory / MANIFEST, encode("dataset", manifest))

"""Small sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from loaderprobe.datasets.generate.generate import generate, set_asked_for

Make = Callable[..., Path]


def _silent(*_: int) -> None: ...


def make_set(root: Path, **changes: object) -> Path:
    """A set of 70 small images in three chunks, made in this process unless `changes` say otherwise."""
    options: dict[str, object] = {"count": 70, "processes": 1, "progress": _silent, "on_base_image": _silent}
    asked: dict[str, object] = {"resolution": "64x48", "classes": 3, "base_images": 4}
    for name, value in changes.items():
        (options if name in options else asked)[name] = value
    return generate(root, set_asked_for(**asked), **options)  # type: ignore[arg-type]  # a test says what it changes by name


def tree(directory: Path) -> dict[str, bytes]:
    """All files but the lock, by path."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def make() -> Make:
    return make_set

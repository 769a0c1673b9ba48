"""Small sets, and a user who may not do everything."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from PIL import Image

from loaderprobe.datasets.generate.generate import SetRequest, generate

UNPRIVILEGED = 65534
Make = Callable[..., Path]
AsUnprivileged = Callable[[], AbstractContextManager[None]]


def _silent(*_: int) -> None: ...


def make_set(root: Path, **changes: object) -> Path:
    """A set of 70 small images in three chunks, made in this process unless `changes` say otherwise."""
    options: dict[str, object] = {"count": 70, "processes": 1, "progress": _silent, "on_base_image": _silent}
    asked: dict[str, object] = {"resolution": (64, 48), "classes": 3, "base_images": 4}
    for name, value in changes.items():
        (options if name in options else asked)[name] = value
    return generate(root, SetRequest(**asked), **options)  # type: ignore[arg-type]  # a test says what it changes by name


def tree(directory: Path) -> dict[str, bytes]:
    """All files but the lock, by path."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def make() -> Make:
    return make_set


@pytest.fixture
def open_path() -> Iterator[Path]:
    """An empty directory that any user may enter, unlike `tmp_path`; only its owner may write."""
    path = Path(tempfile.mkdtemp(prefix="loaderprobe-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def as_unprivileged() -> AsUnprivileged:
    """A context without root's right to read and write everything; for other users it changes nothing."""
    # Pillow loads its formats on first use, from a place that may be unreadable.
    Image.init()

    @contextmanager
    def lowered() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(UNPRIVILEGED)
        try:
            yield
        finally:
            os.seteuid(0)

    return lowered

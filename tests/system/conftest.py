"""The kernel that tests of devices write out, and folders that real ones are asked about."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.fake_kernel import Kernel


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user may enter, as pytest's own may not be."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)

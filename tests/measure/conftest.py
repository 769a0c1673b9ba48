"""Whole measurements on a fake clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from loaderprobe.measure import pace
from loaderprobe.records.files import FileSet
from tests.conftest import needs_cold_reads
from tests.measure.scripted import FEW_STEPS


@pytest.fixture(autouse=True)
def _few_free_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs no time on a fake clock has this many steps in a segment, and not ten thousand."""
    monkeypatch.setattr(pace, "MOST_BATCHES", FEW_STEPS)


@pytest.fixture(scope="session")
def on_disk(photographs: FileSet) -> FileSet:
    """The photographs, where reads are counted."""
    needs_cold_reads(Path(photographs.root))
    return photographs

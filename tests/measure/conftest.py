"""Whole measurements on a fake clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.measure import pace
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.testing import FakePageCache, Service
from tests.measure.scripted import FEW_STEPS, measured_alone
from tests.skips import needs_cold_reads

Measure = Callable[..., Measurement]


@pytest.fixture(autouse=True)
def _few_free_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What costs no time on a fake clock has this many steps in a segment, and not ten thousand."""
    monkeypatch.setattr(pace, "MOST_BATCHES", FEW_STEPS)


@pytest.fixture(scope="session")
def measure_fake() -> Measure:
    """Measures a scripted loader: `measure_fake(service, files=..., cache=..., **config changes)`."""

    def measure(
        service: Service, *, page_cache: FakePageCache | None = None, thorough: bool = False, **changes: Any
    ) -> Measurement:
        return measured_alone(service, page_cache=page_cache, session={"thorough": thorough}, **changes)

    return measure


@pytest.fixture(scope="session")
def on_disk(photographs: FileSet) -> FileSet:
    """The photographs, where reads are counted."""
    needs_cold_reads(Path(photographs.root))
    return photographs

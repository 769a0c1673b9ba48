"""Made-up figures of what a sweep measures beside its verdicts."""

from __future__ import annotations

from math import ceil
from typing import Any

from loaderprobe.records.studies import BufferEffect, EpochFigures, Epochs, ShortRun, over_steady


def example_effect(factor: int, workers: int = 8, most: float = 9.0, **changes: Any) -> BufferEffect:
    """A measured one, exactly as the law has it."""
    free = workers * factor - (workers - 1) / 2
    counts = (10, 20, 50, 100, 200)
    usual: dict[str, Any] = {
        "batches": workers * factor,
        "free": free,
        "how": "measured",
        "runs": tuple(ShortRun(iterations=count, over_steady=over_steady(count, free, most)) for count in counts),
        "most": most,
        "enough": 1 if most <= 1.02 else ceil(51 * free),
    }
    return BufferEffect(**{**usual, **changes})


def example_epochs(**changes: Any) -> Epochs:
    """Three of a set that fits."""
    usual: dict[str, Any] = {
        "epochs": (
            EpochFigures(images_per_s=312.4, cold_fraction=0.98),
            EpochFigures(images_per_s=480.0, cold_fraction=0.4),
            EpochFigures(images_per_s=690.0, cold_fraction=0.0),
        ),
        "set_bytes": 580_000_000,
        "memory_bytes": 4_200_000_000,
        "fit": "fits",
        "whole_set_bytes": 580_000_000.0,
    }
    return Epochs(**{**usual, **changes})

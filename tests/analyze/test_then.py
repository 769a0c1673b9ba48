"""What limits training once a resource is free."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.report import next_limits
from loaderprobe.records.verdict import Speedup, Verdict
from tests.examples.reports import CASES, verdict_of


def verdict(**speedups: float) -> Verdict:
    """1024x768 with 2 workers on an emulated H100: 63 images/s, mostly waiting for storage."""
    made = verdict_of(CASES[-1])
    found = {name: Speedup(value=value, low=value, high=value, how="measured") for name, value in speedups.items()}
    return replace(made, speedups=replace(made.speedups, **found))


NOW = verdict().images_per_s.value
# 1786 images/s are what compute takes, and 660 what the CPU time of an image allows.
LIMITS: dict[str, tuple[dict[str, float], dict[str, Any], dict[str, str | None]]] = {
    "up to compute alone": ({"preprocessing": 1786 / NOW}, {}, {"preprocessing": "compute"}),
    "up to the cores, but not of free preprocessing": (
        {"storage": 660 / NOW, "preprocessing": 660 / NOW}, {}, {"storage": "cores", "preprocessing": "storage"},
    ),
    "the largest part of a worker that is left": (
        {"storage": 2.0, "preprocessing": 1.1}, {}, {"storage": "preprocessing", "preprocessing": "storage"},
    ),
    # However long workers wait for it: twice as fast, training would read a tenth of what it gave to as many.
    "storage far below its ceiling": (
        {"preprocessing": 2.0}, {"disk_ceiling_fraction": 0.05}, {"preprocessing": "transport"},
    ),
    "not so far": ({"preprocessing": 2.0}, {"disk_ceiling_fraction": 0.3}, {"preprocessing": "storage"}),
    "a ceiling that is not known": (
        {"preprocessing": 2.0}, {"disk_ceiling_fraction": None}, {"preprocessing": "storage"},
    ),
    "a speed-up that is not known": ({}, {}, {"transport": None}),
    "no times of workers": ({"storage": 1.5}, {"worker_time": None}, {"storage": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_what_limits_training_once_a_resource_is_free(name: str) -> None:
    """Compute, the cores, or the largest part of a worker's time that is left."""
    speedups, changes, expected = LIMITS[name]
    found = next_limits(replace(verdict(**speedups), **changes), 2)
    assert {resource: found.get(resource) for resource in expected} == expected

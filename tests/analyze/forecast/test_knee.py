"""The knee: where more workers stop helping, and which resource ends there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.forecast.changes import find_knee, worker_forecasts
from loaderprobe.records.verdict import Interval
from loaderprobe.render.words import knee_words
from tests.analyze.scripted import Truth

TOKEN_BUCKET, LATENCY = Truth(), Truth(model="latency", latency_s=0.02)


@pytest.mark.parametrize(
    ("truth", "knee", "bottleneck"),
    [
        (TOKEN_BUCKET, 2, "storage"),
        (replace(TOKEN_BUCKET, bytes_per_s=1e10, cores=4.0), 6, "cores"),
        (replace(TOKEN_BUCKET, bytes_per_s=1e10, compute=900.0), 6, "compute"),
        (replace(TOKEN_BUCKET, bytes_per_s=1e10, parent_s=0.002), 3, "transport"),
    ],
)
def test_the_knee_is_where_a_resource_ends(truth: Truth, knee: int, bottleneck: str) -> None:
    """Workers stop helping at the disk, the cores, the accelerator or the training thread, and that is named."""
    found = find_knee(["a"], worker_forecasts((truth.point(1), truth.point(2)), truth.storage()))
    assert (found.workers, found.bottleneck) == (knee, bottleneck)
    assert found.how == ("measured" if knee < 3 else "estimated")


def test_a_rate_that_is_noise_is_no_knee() -> None:
    """The fewest workers of the others are, however large it is."""
    forecasts = worker_forecasts((TOKEN_BUCKET.point(1), TOKEN_BUCKET.point(2)), TOKEN_BUCKET.storage())
    noisy = replace(forecasts[1], images_per_s=Interval(value=9000.0, low=0.0, high=20000.0))
    assert find_knee(["a"], {**forecasts, 1: noisy}).workers == 2


def test_a_rate_that_still_rises_has_no_end() -> None:
    """Where the most workers that may be judged are the best, nothing is said to bind."""
    truth = replace(LATENCY, cores=4.0)
    found = find_knee(["a"], worker_forecasts((truth.point(1), truth.point(2)), truth.storage()))
    assert (found.workers, found.bottleneck) == (8, None)
    assert "still rises" in knee_words(found)

"""First epochs and later ones, where a data set makes its samples once and keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.analyze.verdict.rates import rates_by_round
from loaderprobe.records.measurement import Measurement
from loaderprobe.stats import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The loader alone, images/s."""

    first: float
    """While its samples are made."""
    later: float | None
    """Once they are kept; None where that was not measured."""
    judged: str
    """`first` or `later`: what the verdict is on."""


def epochs(measurement: Measurement) -> Epochs | None:
    """None where batches made again take as long, or where nothing was made twice."""
    lap = measurement.first_lap
    if lap is None or not lap.quicker:
        return None
    as_asked = rates_by_round(measurement, "warm" if measurement.config.cache == "warm" else "baseline", "loader_only")
    if not as_asked:
        return None
    rate = median(list(as_asked.values()))
    if measurement.access == "fresh":
        again = rates_by_round(measurement, "warm", "loader_only")
        return Epochs(first=rate, later=median(list(again.values())) if again else None, judged="first")
    return Epochs(first=max(1, measurement.config.loader.workers) * lap.images / lap.wall_s, later=rate, judged="later")

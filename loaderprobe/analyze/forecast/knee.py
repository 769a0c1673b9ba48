"""The knee: the smallest number of workers that trains within 2 % of the best, and why it stops there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from loaderprobe.analyze.forecast.changes import MOST_WORKERS_A_CORE, refused, workers
from loaderprobe.analyze.forecast.fit import fit
from loaderprobe.analyze.forecast.point import Point
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.records.forecast import Forecast, Knee
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Bottleneck, Interval

WITHIN = 0.98


def worker_forecasts(points: Sequence[Point], storage: Storage) -> dict[int, Forecast]:
    """Training for each worker count worth a look, from the measured point nearest to it.

    Measured counts are in it with what was measured. Never more than twice the cores that were measured on.
    """
    by_workers = {point.workers: point for point in points}
    most = math.floor(MOST_WORKERS_A_CORE * min(point.cores for point in points))
    found: dict[int, Forecast] = {}
    for number in sorted({*by_workers, *takewhile(lambda n: n <= max(most, 1), _ladder())}):
        anchor = by_workers[min(by_workers, key=lambda known: abs(_place(known) - _place(number)))]
        fitted = fit(points, anchor, storage)
        if isinstance(fitted, Remark):
            measured = by_workers.get(number)
            found[number] = _as_measured(measured) if measured else refused("workers", str(number), fitted)
        else:
            found[number] = workers(fitted, number)
    return found


def find_knee(keys: Sequence[str], forecasts: dict[int, Forecast], taken: int | None = None) -> Knee:
    """The knee of these forecasts; `keys` name the configurations behind them.

    `taken` is the smallest number of workers that was seen to use all cores: more of them are not forecast.
    """
    rates = {number: each.images_per_s for number, each in forecasts.items() if each.images_per_s}
    chosen = _smallest(rates)
    bottleneck: Bottleneck | None = None
    if chosen is not None:
        # The bottleneck beyond: at the knee itself the workers may still be the limit, within 2 %.
        beyond = [number for number in rates if number >= chosen]
        bottleneck = forecasts[beyond[1] if len(beyond) > 1 else chosen].bottleneck
        if len(beyond) == 1 and forecasts[chosen].rising:
            bottleneck = None
        if taken is not None and chosen >= taken:
            bottleneck = "cores"
    return Knee(
        keys=tuple(keys),
        workers=chosen,
        images_per_s=None if chosen is None else rates[chosen],
        how="estimated" if chosen is None else forecasts[chosen].how,
        bottleneck=bottleneck,
        forecasts=tuple(forecasts.values()),
    )


def _smallest(rates: dict[int, Interval]) -> int | None:
    """Of the rates that are known well enough to rank by, where there are any."""
    known = {number: rate for number, rate in rates.items() if not rate.too_wide} or rates
    best = max((rate.value for rate in known.values()), default=0.0)
    return next((number for number in sorted(known) if known[number].value >= WITHIN * best), None)


def _as_measured(point: Point) -> Forecast:
    rate = Interval(
        value=point.training,
        low=point.training * (1 - point.training_spread),
        high=point.training * (1 + point.training_spread),
    )
    return Forecast(
        changed="workers", to=str(point.workers), images_per_s=rate, bottleneck=None, how="measured", refused=None
    )  # fmt: skip


def _ladder() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    return [1, *sorted(size for power in range(1, 12) for size in (2**power, 3 * 2 ** (power - 1)))]


def _place(number: int) -> float:
    return math.log2(max(number, 0.5))

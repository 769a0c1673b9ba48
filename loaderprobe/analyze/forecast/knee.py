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
from loaderprobe.records.verdict import Binding, Interval
from loaderprobe.units import significant

WITHIN = 0.98
STOPS = {
    "storage": "the storage binds",
    "preprocessing": "more workers gain nothing",
    "cores": "the cores bind",
    "transport": "handing over batches binds",
    "compute": "compute binds",
}


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
        if isinstance(fitted, str):
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
    binds: Binding | None = None
    if chosen is not None:
        # What binds beyond: at the knee itself the workers may still be the limit, within 2 %.
        beyond = [number for number in rates if number >= chosen]
        binds = forecasts[beyond[1] if len(beyond) > 1 else chosen].binds
        if len(beyond) == 1 and forecasts[chosen].rising:
            binds = None
        if taken is not None and chosen >= taken:
            binds = "cores"
    return Knee(
        keys=tuple(keys),
        workers=chosen,
        images_per_s=None if chosen is None else rates[chosen],
        how="estimated" if chosen is None else forecasts[chosen].how,
        binds=binds,
        sentence=_sentence(chosen, forecasts, binds),
        forecasts=tuple(forecasts.values()),
    )


def _smallest(rates: dict[int, Interval]) -> int | None:
    best = max((rate.value for rate in rates.values()), default=0.0)
    return next((number for number in sorted(rates) if rates[number].value >= WITHIN * best), None)


def _sentence(chosen: int | None, forecasts: dict[int, Forecast], binds: Binding | None) -> str:
    if chosen is None:
        reasons = [each.refused for each in forecasts.values() if each.refused]
        return f"No knee: {reasons[0]}." if reasons else "No knee: nothing was measured."
    rate, forecast = forecasts[chosen].images_per_s, forecasts[chosen].how == "estimated"
    assert rate is not None
    words = "the serial loader" if chosen == 0 else f"{chosen} worker{'s' if chosen > 1 else ''}"
    figures = f"{significant(rate.value)} images/s{', forecast' if forecast else ''}"
    refusals = [each.refused for number, each in forecasts.items() if number > chosen and each.refused]
    if refusals:
        return f"{words} ({figures}); more cannot be judged: {refusals[0]}."
    if binds is None and any(number > chosen for number in forecasts):
        return f"{words} ({figures}); more gain nothing."
    if binds is None:
        return f"{words} ({figures}); the rate still rises, as far as this machine can show."
    return f"{words} ({figures}); beyond it {STOPS[binds]}."


def _as_measured(point: Point) -> Forecast:
    rate = Interval(
        value=point.training,
        low=point.training * (1 - point.training_spread),
        high=point.training * (1 + point.training_spread),
    )
    return Forecast(
        changed="workers", to=str(point.workers), images_per_s=rate, binds=None, how="measured", refused=None
    )  # fmt: skip


def _ladder() -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16 and so on."""
    return [1, *sorted(size for power in range(1, 12) for size in (2**power, 3 * 2 ** (power - 1)))]


def _place(number: int) -> float:
    return math.log2(max(number, 0.5))

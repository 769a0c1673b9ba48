"""What a sweep measures next to find the knee."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loaderprobe.analyze.effects import fewest, ladder, ranked
from loaderprobe.records import by_key
from loaderprobe.records.config import Auto, RunConfig, alike_but_for, with_options
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.thresholds import ALIKE
from loaderprobe.records.verdict import Interval, Knee

PREFETCH_FACTORS = (2, 4, 8)
"""That are tried, one after the other; the first is torch's own."""
LEAST_MOST = 8
MOST_A_CORE = 4
"""Workers that wait for storage use no core meanwhile."""


def most_workers(cores: float) -> int:
    """How many workers are tried on so many cores."""
    return max(LEAST_MOST, MOST_A_CORE * math.ceil(cores))


def next_workers(
    rates: Mapping[int, Interval], *, knee: int | None, most: int, compute: float | None = None
) -> int | None:
    """The number of workers to measure next; None once the fewest that are enough are known.

    `rates` are images/s of training by number of workers, `knee` is what the report calls enough, measured or
    forecast. `compute` is what trains without a loader. First the knee, where it is a forecast. Then twice as many
    workers, until the interval of the rate ends less than 2 % above that of fewer workers, or compute is reached: the
    serial loader has no say in that, since one worker may be slower, for it also sends what it loads. Last the numbers
    between the fewest that are enough and those that are not, or 0.
    """
    if not rates:
        return None
    if knee is not None and knee not in rates and knee <= most:
        return knee
    workers = sorted(number for number in rates if number)
    last = max(workers, default=0)
    if last < most and not _ends(rates, workers, compute):
        return min(most, 2 * last or 1)
    chosen = fewest(ranked(rates))
    fewer = max((number for number in workers if chosen and number < chosen), default=0)
    between = [number for number in ladder() if chosen and fewer < number < chosen and number <= most]
    return between[len(between) // 2] if between else None


def _ends(rates: Mapping[int, Interval], workers: Sequence[int], compute: float | None) -> bool:
    """True where more workers than these gain nothing."""
    if compute is not None and max(ranked(rates).values()) >= (1 - ALIKE) * compute:
        return True
    if len(workers) < 2:
        return False
    *fewer, last = workers
    return rates[last].high <= max(rates[number].value for number in fewer) / (1 - ALIKE)


def next_factor(rates: Mapping[int, Interval]) -> int | None:
    """The prefetch factor to measure next, while the last of these gained; None once the smallest enough is known."""
    left = [factor for factor in PREFETCH_FACTORS if factor > max(rates)]
    if len(rates) > 1 and fewest(ranked(rates)) != max(rates):
        return None
    return left[0] if left else None


def next_configs(report: Report, auto: Auto) -> list[RunConfig]:
    """What a sweep measures next: at most one configuration of each data set, device and cache state.

    A number of workers that failed ends the search above it, and is not asked for again.
    """
    groups = by_key(report.configurations, lambda row: alike_but_for(row.config, "workers", "prefetch_factor"))
    configs = [_next_config(rows, report.knees, auto) for rows in groups.values()]
    known = {row.key for row in report.configurations}
    return [config for config in configs if config and config.key not in known]


def _next_config(rows: Sequence[ConfigurationRow], knees: Sequence[Knee], auto: Auto) -> RunConfig | None:
    first = next((row.config.loader.prefetch_factor for row in rows if row.config.loader.workers), 0)
    usual = [row for row in rows if row.config.loader.prefetch_factor in (0, first)]
    rates = {row.config.loader.workers: row.images_per_s for row in usual if row.images_per_s}
    if auto.workers:
        failed = [row.config.loader.workers for row in usual if row.status == "failed" and row.config.loader.workers]
        compute = [row.verdict.rates_images_per_s.compute for row in usual if row.verdict]
        keys = {row.key for row in usual}
        workers = next_workers(
            rates,
            knee=next((knee.workers for knee in knees if knee.keys and keys.issuperset(knee.keys)), None),
            most=min([max([auto.most_workers, *rates]), *(number - 1 for number in failed)]),
            compute=max(filter(None, compute), default=None),
        )
        if workers is not None:
            return with_options(rows[0].config, workers=workers, prefetch_factor=first or PREFETCH_FACTORS[0])
    workers = fewest(ranked(rates))
    if not (auto.prefetch_factor and workers):
        return None
    same = [row for row in rows if row.config.loader.workers == workers]
    if any(row.images_per_s is None for row in same):
        return None
    factor = next_factor({row.config.loader.prefetch_factor: row.images_per_s for row in same if row.images_per_s})
    return None if factor is None else with_options(rows[0].config, workers=workers, prefetch_factor=factor)

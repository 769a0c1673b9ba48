"""What a finished search says of each setting, and what limits the chosen one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from loaderprobe.analyze.tune.standing import over, pairs
from loaderprobe.analyze.tune.workers import WorkersSearch, setting_of
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.tune_workers import ClosedCode, LimitCode, StopCode, WorkersRow, WorkersSetting
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import half_width, median

# Within noise of its limit.
OF_COMPUTE, OF_CORES, OF_THREAD = 0.93, 0.9, 0.85
BLOCKED = 0.5


def rows_of(
    search: WorkersSearch, failures: Mapping[WorkersSetting, LoaderprobeError], *, stop: StopCode
) -> tuple[WorkersRow, ...]:
    """One row for each setting that was measured, failed, or was ruled out; in their order."""
    left: ClosedCode = "interrupted" if stop == "interrupted" else "budget"
    measured = [_measured(search, each) for each in search.rates]
    failed = [
        WorkersRow(setting=each, state="failed", failure=error.message, hint=error.hint)
        for each, error in failures.items()
    ]
    closed = [_closed(search, count, left) for count in search.unseen]
    return tuple(sorted((*measured, *failed, *closed), key=lambda row: row.setting))


def _measured(search: WorkersSearch, setting: WorkersSetting) -> WorkersRow:
    rates = list(search.rates[setting].values())
    return WorkersRow(
        setting=setting,
        state="chosen" if setting == search.choice else "measured",
        visits=len(rates),
        images_per_s=rate_of(rates),
        over_chosen=over(search.rates, setting, search.choice),
        paired=setting == search.choice or bool(pairs(search.rates, setting, search.choice)),
    )


def _closed(search: WorkersSearch, count: int, left: ClosedCode) -> WorkersRow:
    most, _ = search.at_most(count)
    code = search.closed(count) or left
    known = code in ("compute", "cores", "linear", "forecast") and math.isfinite(most)
    chosen = over(search.rates, search.best, search.choice).value
    return WorkersRow(setting=setting_of(count), state="closed", closed=code, at_most=most * chosen if known else None)


def rate_of(rates: Sequence[float]) -> Interval:
    """The median over the visits, with the 95 % interval of their spread; of two visits, both."""
    middle = median(rates)
    if len(rates) <= 2:
        return Interval(value=middle, low=min(rates), high=max(rates))
    half = half_width(rates)
    return Interval(value=middle, low=max(0.0, middle - half), high=middle + half)


def limit_of(search: WorkersSearch) -> LimitCode:
    """What limits the chosen setting, by what its first visit measured."""
    visit, asked = search.first[search.choice], search.asked
    if visit.compute_images_per_s and visit.images_per_s >= OF_COMPUTE * visit.compute_images_per_s:
        return "compute"
    if visit.cores_in_use and visit.cores_in_use >= OF_CORES * asked.cores:
        return "cores"
    if visit.thread_share is not None and visit.thread_share >= OF_THREAD:
        return "transport"
    if search.choice.workers == max(search.counts) and search.choice.workers:
        return "workers"
    if visit.blocked_share >= BLOCKED and visit.blocked_by:
        return visit.blocked_by
    return "unknown"

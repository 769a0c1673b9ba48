"""Forecasts, advice and knees in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from loaderprobe.records.forecast import Forecast, Knee
from loaderprobe.records.resources import RESOURCE
from loaderprobe.records.verdict import Advice, Bottleneck, How, Interval
from loaderprobe.render.action_words import action_words
from loaderprobe.render.remarks import remark_words
from loaderprobe.render.wording import counted, rate
from loaderprobe.units import significant

ROUGH = 0.25
"""Half of a forecast's range: most laws are within 0.2, and one that is not proved here is wider."""
LIMIT = {name: f"{RESOURCE[name].noun} is the limit" for name in get_args(Bottleneck) if name in RESOURCE}
LIMIT["cores"] = f"{RESOURCE['cpu'].noun} are the limit"
"""What limits training after a change."""


def advice_words(advice: Sequence[Advice]) -> str:
    """`use 4 workers: 205 → 391 images/s (352 to 430), 1.91x`; for several, the range of their speed-ups."""
    if not advice[0].is_worth_making:
        return action_words(advice[0].action)
    return f"{action_words(advice[0].action)}: {forecast_words(advice)}"


def forecast_words(advice: Sequence[Advice], sample: str = "images") -> str:
    """`205 → 391 images/s (352 to 430), 1.91x; then CPU cores are the limit`; or `1.9x to 2.8x`.

    A law that can say little says so: `205 → about 391 images/s (211 to 530), 1x to 2.6x`.
    """
    first = advice[0]
    tried = ", measured" if all(each.how == "measured" for each in advice) else ""
    then = (
        f"; then {LIMIT[first.bottleneck]}"
        if first.bottleneck and len({each.bottleneck for each in advice}) == 1
        else ""
    )
    if len(advice) > 1:
        ends = [f"{significant(find(each.speedup for each in advice), 2)}x" for find in (min, max)]
        return f"{_doubt(advice)}{' to '.join(dict.fromkeys(ends))}{tried}{then}"
    after = f"{rate(first.after.low)} to {rate(first.after.high)}"
    about, speedup = "", f"{significant(first.speedup)}x"
    if _is_rough(first.after):
        least, most = (significant(end / first.before.value, 2) for end in (first.after.low, first.after.high))
        about, speedup = "about ", f"{least}x to {most}x"
    return (
        f"{_doubt(advice)}{rate(first.before.value)} → {about}{rate(first.after.value)} {sample}/s "
        f"({after}), {speedup}{tried}{then}"
    )


def _is_rough(forecast: Interval) -> bool:
    """True where the range leaves open how much a change gains."""
    return forecast.high - forecast.low > 2 * ROUGH * forecast.value


def _doubt(advice: Sequence[Advice]) -> str:
    """Where the range of a forecast includes that training gets slower, it says so first."""
    return "not certain, probably " if any(each.after.low < each.before.value for each in advice) else ""


def knee_words(knees: Sequence[Knee]) -> str:
    """`2 workers, 640 images/s; beyond it, CPU cores are the limit.`, or why there is no knee.

    Knees that share all but their rate share the words, with the range of the rates.
    """
    first = knees[0]
    workers, how, bottleneck, reason, more = knee_kind(first)
    if workers is None or first.images_per_s is None:
        return f"No knee: {reason or 'nothing was measured'}."
    rates = sorted(knee.images_per_s.value for knee in knees if knee.images_per_s)
    ends = dict.fromkeys(significant(each) for each in (rates[0], rates[-1]))
    loader = "serial loader" if workers == 0 else counted(workers, "worker")
    about = "about " if any(knee.images_per_s and _is_rough(knee.images_per_s) for knee in knees) else ""
    at = f"{loader}, {about}{' to '.join(ends)} images/s{' (forecast)' if how == 'estimated' else ''}"
    if reason:
        return f"{at}; no forecast for more workers: {reason}."
    if bottleneck == "preprocessing" or (bottleneck is None and more):
        return f"{at}; more workers gain nothing."
    if bottleneck is None:
        return f"{at}; the rate still rises at the most workers that can be judged here."
    return f"{at}; beyond it, {LIMIT[bottleneck]}."


def knee_kind(knee: Knee) -> tuple[int | None, How, Bottleneck | None, str, bool]:
    """(workers, how it is known, the limit beyond it, why nothing is known beyond it, whether more was judged)."""
    after = [each for each in knee.forecasts if knee.workers is None or _count(each) > knee.workers]
    reason = next((remark_words(each.refused) for each in after if each.refused), "")
    return knee.workers, knee.how, knee.bottleneck, reason, bool(after)


def _count(forecast: Forecast) -> int:
    """The number of workers that a forecast of a knee is for."""
    return int(forecast.to)

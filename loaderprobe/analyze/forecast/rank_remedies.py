"""Advice that only several ranks need: on a slow one, on slow batches, on the exchange of gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from loaderprobe.analyze.lock_step.batches import rank_images
from loaderprobe.analyze.lock_step.price import Batches, lock_step
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rank_rule import host_behind, is_imbalanced, speedups_among, straggles
from loaderprobe.analyze.verdict.rates import NS
from loaderprobe.analyze.verdict.rule import contenders
from loaderprobe.records.lock_step import LockStep, PrefetchCost
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.plan_reason import PlanReason
from loaderprobe.records.resources import INPUTS, RESOURCE
from loaderprobe.records.verdict import WORTH, Action, ActionCode, Advice, Interval
from loaderprobe.stats import median

# Of batches that vary, a buffer of so many keeps most ranks from waiting for the slowest.
DEEP = 8
OFF = 0.15
"""A replay that is further than this from what ranks were measured to lose says nothing of what prefetching gains."""


def rank_remedies(measurement: Measurement, found: Experiments) -> tuple[Advice, ...]:
    """The remedy of what leads, and of what is lost beside it; none for one rank."""
    leading = contenders(found)
    if measurement.ranks < 2 or not leading or not found.end_to_end:
        return ()
    if "gradients" in leading and found.speedups["gradients"].value >= WORTH:
        return (_advice(found, RESOURCE["gradients"].remedy, {}, found.speedups["gradients"].value),)
    if not any(name in INPUTS for name in leading):
        return ()
    if is_imbalanced(found) and found.among.slowest is not None:
        facts: dict[str, float | str] = {"rank": found.among.slowest.rank, "host": found.among.slowest.host}
        return (_advice(found, RESOURCE["imbalance"].remedy, facts, found.among.speedups()["imbalance"].value),)
    if (host := host_behind(found)) is not None:
        facts = {"slow_host": host.host, "slow_ranks": host.slow}
        return (_advice(found, "slow_host", facts, speedups_among(found)["imbalance"].value),)
    loader = measurement.config.loader
    if straggles(found) and loader.workers and loader.prefetch_factor < DEEP:
        return _prefetch(measurement, found)
    return ()


def _prefetch(measurement: Measurement, found: Experiments) -> tuple[Advice, ...]:
    """What a replay of the measured batches says that it gains; without one, at most all that is lost."""
    lost = found.among.speedups()["straggler"].value
    replayed = _replayed(measurement, found, lost)
    if replayed is None:
        return (_advice(found, "prefetch", {"batches": DEEP}, lost, command=f"prefetch_factor={DEEP}"),)
    deeper = None if replayed.advised is None else replayed.at(replayed.advised)
    now = replayed.at(replayed.prefetch_factor)
    if deeper is None or now is None:
        return ()
    factor, gain = deeper.prefetch_factor, min(lost, now.step_s / deeper.step_s)
    # All factors are replayed on the same resampled batches: low ends belong together, and high ones.
    ends = [gain, *(_step_s(now, end) / _step_s(deeper, end) for end in ("low", "high"))]
    speedup = Interval(value=gain, low=max(1.0, min(ends)), high=min(lost, max(ends)))
    return (_advised(found, Action(code="prefetch", facts={"batches": factor}), speedup, f"prefetch_factor={factor}"),)


def _step_s(cost: PrefetchCost, end: Literal["low", "high"]) -> float:
    """Of a step of all ranks, at an end of its range."""
    return cost.alone_s * (cost.cost.low if end == "low" else cost.cost.high)


def _replayed(measurement: Measurement, found: Experiments, lost: float) -> LockStep | None:
    """The ranks' own batches at several prefetch factors; None where that does not show what they lost."""
    series = tuple(tuple(each / NS for each in seen.service_ns) for seen in measurement.by_rank)
    if not all(series) or not found.compute:
        return None
    loader = measurement.config.loader
    batches = Batches(
        series=series, by_rank=True, images=rank_images(measurement), workers=loader.workers,
        prefetch_factor=loader.prefetch_factor, ranks=measurement.ranks, measured_cost=lost,
    )  # fmt: skip
    priced = _price(batches, found.batch_size / found.compute, measurement.ranks)
    if isinstance(priced, PlanReason) or priced.replayed_cost is None or abs(priced.replayed_cost / lost - 1) > OFF:
        return None
    return priced


# A verdict is made several times of one measurement.
_price = lru_cache(maxsize=32)(lock_step)


def _advice(
    found: Experiments, code: ActionCode, facts: dict[str, float | str], most: float, *, command: str = ""
) -> Advice:
    """The range begins at the rate of today: the whole of what is lost is seldom won."""
    return _advised(found, Action(code=code, facts=facts), Interval(value=most, low=1.0, high=most), command)


def _advised(found: Experiments, action: Action, speedup: Interval, command: str) -> Advice:
    now = median(list(found.end_to_end.values()))
    return Advice(
        action=action, command=command, speedup=speedup.value, before=Interval(value=now, low=now, high=now),
        after=Interval(value=now * speedup.value, low=now * speedup.low, high=now * speedup.high), how="estimated",
    )  # fmt: skip

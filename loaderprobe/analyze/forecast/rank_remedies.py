"""Advice that only several ranks need: on a slow one, on slow batches, on the exchange of gradients."""

from __future__ import annotations

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rank_rule import host_behind, is_imbalanced, speedups_among, straggles
from loaderprobe.analyze.verdict.rule import INPUT_RESOURCES, WORTH, contenders
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import Action, ActionCode, Advice, Interval
from loaderprobe.stats import median

# Of batches that vary, a buffer of so many keeps most ranks from waiting for the slowest.
DEEP = 8


def rank_remedies(measurement: Measurement, found: Experiments) -> tuple[Advice, ...]:
    """The remedy of what leads, and of what is lost beside it; none for one rank."""
    leading = contenders(found)
    if measurement.ranks < 2 or not leading or not found.end_to_end:
        return ()
    if "gradients" in leading and found.speedups["gradients"].value >= WORTH:
        return (_advice(found, "exchange", {}, found.speedups["gradients"].value),)
    if not any(name in INPUT_RESOURCES for name in leading):
        return ()
    if is_imbalanced(found) and found.among.slowest is not None:
        facts: dict[str, float | str] = {"rank": found.among.slowest.rank, "host": found.among.slowest.host}
        return (_advice(found, "slow_rank", facts, found.among.speedups()["imbalance"].value),)
    if (host := host_behind(found)) is not None:
        facts = {"slow_host": host.host, "slow_ranks": host.slow}
        return (_advice(found, "slow_host", facts, speedups_among(found)["imbalance"].value),)
    loader = measurement.config.loader
    if straggles(found) and loader.workers and loader.prefetch_factor < DEEP:
        gains = found.among.speedups()["straggler"].value
        return (_advice(found, "prefetch", {"batches": DEEP}, gains, command=f"prefetch_factor={DEEP}"),)
    return ()


def _advice(
    found: Experiments, code: ActionCode, facts: dict[str, float | str], most: float, *, command: str = ""
) -> Advice:
    """The range begins at the rate of today: the whole of what is lost is seldom won."""
    now = median(list(found.end_to_end.values()))
    today = Interval(value=now, low=now, high=now)
    after = Interval(value=now * most, low=now, high=now * most)
    return Advice(
        action=Action(code=code, facts=facts), command=command, speedup=most, before=today, after=after,
        how="estimated",
    )  # fmt: skip

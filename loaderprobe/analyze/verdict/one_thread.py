"""A serial loader whose threads spin: seen by CPU time, and proved by loading with torch on one thread.

torch shares an operation on a tensor among OpenMP's threads, which spin between two of them and hardly help with small
ones. Where another process has one of the cores, each operation waits for the thread on it. That is advice, and never a
cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.verdict.rates import NS, rates_by_round, spread_of_both
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Activity, Measurement, Mode, Segment, segments_of
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.verdict import Interval
from loaderprobe.stats import median

Kind = tuple[Mode, Activity]


def on_one_thread_beside(measurement: Measurement, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """What a round that measures the configuration as asked also measures on one thread; nothing where none spins."""
    base = measurement.config.mode
    # Threads of workers are in other processes.
    if measurement.workers or "one_thread" not in measurement.modes or measurement.config.ranks > 1:
        return ()
    if (cores_used(segments_of(measurement, base, "loader_only"), beside=True) or 0.0) < thresholds.SPINNING:
        return ()
    activities: tuple[Activity, ...] = ("loader_only", measurement.judged)
    done = {activity: _both(measurement, activity) for activity in activities}
    gained = any(single >= thresholds.WORTH * usual for rates in done.values() for usual, single in rates.values())
    wanted = {activity for activity, rates in done.items() if len(rates) < (thresholds.MOST_PAIRS if gained else 1)}
    return tuple(("one_thread", activity) for mode, activity in kinds if mode == base and activity in wanted)


def gain_on_one_thread(measurement: Measurement) -> Interval | None:
    """How many times as fast it is on one thread, in the rounds that have both; the range is what steps vary by.

    None where one of them gains no more than that. A single one must gain as much as an estimate.
    """
    judged = measurement.judged
    ratios = {number: single / usual for number, (usual, single) in _both(measurement, judged).items()}
    segments = (segments_of(measurement, mode, judged) for mode in (measurement.config.mode, "one_thread"))
    spread = dict.fromkeys(ratios, 0.0) | spread_of_both(measurement, *segments)
    least = thresholds.WORTH if len(ratios) > 1 else thresholds.OPEN_LEAD
    if not ratios or any(ratio < max(least, 1 + spread[n]) for n, ratio in ratios.items()):
        return None
    return Interval(
        value=median(ratios.values()),
        low=min(ratio / (1 + spread[n]) for n, ratio in ratios.items()),
        high=max(ratio * (1 + spread[n]) for n, ratio in ratios.items()),
    )


def one_thread_notes(measurement: Measurement) -> tuple[Remark, ...]:
    """That torch's threads keep cores busy for nothing, with the figures of both.

    Only where a batch takes clearly less CPU time on one thread, and neither the loader nor training is slower.
    """
    judged = measurement.judged
    alone, judged_rates = _both(measurement, "loader_only"), _both(measurement, judged)
    cores, single_cores = (
        cores_used([segment for segment in segments_of(measurement, mode, "loader_only") if segment.round in alone])
        for mode in (measurement.config.mode, "one_thread")
    )
    if not judged_rates or not cores or single_cores is None:
        return ()
    loader, single_loader = map(median, zip(*alone.values(), strict=True))
    slower = min(single_loader / loader, median([single / usual for usual, single in judged_rates.values()]))
    left = (single_cores / single_loader) / (cores / loader)
    if slower * thresholds.WORTH < 1 or left > 1 - thresholds.SPINNING:
        return ()
    facts: Facts = {
        "cores": cores, "one_thread_cores": single_cores, "loader_per_s": loader, "one_thread_per_s": single_loader,
        "unit": "images/s" if measurement.images else "samples/s",
    }  # fmt: skip
    if judged == "loader_only":
        return (Remark(code="threads_spin", facts=facts),)
    training, single_training = map(median, zip(*judged_rates.values(), strict=True))
    facts |= {"training_per_s": training, "one_thread_training_per_s": single_training}
    return (Remark(code="threads_spin_in_training", facts=facts),)


def _both(measurement: Measurement, activity: Activity) -> dict[int, tuple[float, float]]:
    """Images/s of the rounds that have both: as asked, and on one thread."""
    usual, single = (rates_by_round(measurement, mode, activity) for mode in (measurement.config.mode, "one_thread"))
    return {number: (usual[number], rate) for number, rate in single.items() if number in usual}


def cores_used(segments: Sequence[Segment], *, beside: bool = False) -> float | None:
    """CPU seconds a second of the training process, or of its threads beside the one that trains.

    None where there is no segment, or it was not recorded.
    """
    known = [
        (segment.process_cpu_ns - (segment.thread_cpu_ns if beside else 0)) / NS / segment.seconds
        for segment in segments
        if segment.process_cpu_ns is not None and segment.seconds
    ]
    return median(known) if known else None

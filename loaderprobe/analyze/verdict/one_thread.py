"""A serial loader whose threads spin: seen by CPU time, and proved by loading with torch on one thread.

torch shares an operation on a tensor among OpenMP's threads, which spin between two of them and hardly help with small
ones. Where another process has one of the cores, each operation waits for the thread on it. That is advice, and never a
cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.analyze.verdict.rates import NS, rates_by_round, spread_of_both
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import (
    Activity,
    Measurement,
    Mode,
    Segment,
    judged_activity,
    segment_seconds,
    segments_of,
)
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.stats import median

SegmentKind = tuple[Mode, Activity]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneThread:
    """As asked, and with torch on one thread while a batch is made, in the same rounds."""

    ratios: Mapping[int, float]
    """Rate on one thread over that as asked, by round: of training or, without a step, of the loader alone."""
    spread: Mapping[int, float]
    """Half the 95 % interval of each, as steps vary; a share."""
    training: tuple[float, float] | None
    """Images/s, medians: as asked, on one thread; None without a step."""
    loader: tuple[float, float]
    """The same of the loader alone."""
    cores: tuple[float, float]
    """CPU seconds a second of the training process meanwhile."""

    @property
    def gains(self) -> bool:
        """True where each round gains more than its steps vary by; a single one must gain as much as an estimate."""
        least = thresholds.WORTH if len(self.ratios) > 1 else thresholds.OPEN_LEAD
        return all(ratio >= max(least, 1 + self.spread.get(n, 0.0)) for n, ratio in self.ratios.items())

    @property
    def saves(self) -> bool:
        """True where a batch takes clearly less CPU time, and neither the loader nor training is slower."""
        least = min(median(list(self.ratios.values())), self.loader[1] / self.loader[0])
        left = (self.cores[1] / self.loader[1]) / (self.cores[0] / self.loader[0])
        return least * thresholds.WORTH >= 1 and left <= 1 - thresholds.SPINNING


def spinning(measurement: Measurement) -> float | None:
    """CPU seconds a second that other threads of the training process take while the serial loader loads alone.

    None with workers, whose threads are in other processes, and where it was not recorded.
    """
    if measurement.workers:
        return None
    return _cores(segments_of(measurement, measurement.config.mode, "loader_only"), beside=True)


def on_one_thread_beside(measurement: Measurement, asked: Sequence[SegmentKind]) -> tuple[SegmentKind, ...]:
    """What a round that measures the configuration as asked also measures on one thread; nothing where none spins."""
    if "one_thread" not in measurement.modes or measurement.config.ranks > 1:
        return ()
    if (spinning(measurement) or 0.0) < thresholds.SPINNING:
        return ()
    activities: tuple[Activity, ...] = ("loader_only", judged_activity(measurement))
    done = {each: _ratios(measurement, each) for each in activities}
    gained = any(ratio >= thresholds.WORTH for each in done.values() for ratio in each.values())
    wanted = {each for each, ratios in done.items() if len(ratios) < (thresholds.MOST_PAIRS if gained else 1)}
    base = measurement.config.mode
    return tuple(("one_thread", activity) for mode, activity in asked if mode == base and activity in wanted)


def on_one_thread(measurement: Measurement) -> OneThread | None:
    """None where no round has both, of the loader alone and of what the verdict is on."""
    base, judged = measurement.config.mode, judged_activity(measurement)
    ratios, rounds = _ratios(measurement, judged), _ratios(measurement, "loader_only").keys()
    usual, single = (
        [segment for segment in segments_of(measurement, mode, "loader_only") if segment.round in rounds]
        for mode in (base, "one_thread")
    )
    cores = _cores(usual), _cores(single)
    if not ratios or cores[0] is None or cores[1] is None:
        return None
    both = [segments_of(measurement, mode, judged) for mode in (base, "one_thread")]
    return OneThread(
        ratios=ratios,
        spread=spread_of_both(measurement, both[0], both[1]),
        training=_rates(measurement, "training", ratios) if judged == "training" else None,
        loader=_rates(measurement, "loader_only", rounds),
        cores=(cores[0], cores[1]),
    )


def one_thread_notes(measurement: Measurement) -> tuple[Remark, ...]:
    """That torch's threads keep cores busy for nothing, with the figures of both; empty where that was not shown."""
    found = on_one_thread(measurement)
    if found is None or not found.saves:
        return ()
    facts: Facts = {
        "cores": found.cores[0], "one_thread_cores": found.cores[1], "loader_per_s": found.loader[0],
        "one_thread_per_s": found.loader[1], "unit": "images/s" if measurement.images else "samples/s",
    }  # fmt: skip
    if found.training is None:
        return (Remark(code="threads_spin", facts=facts),)
    facts |= {"training_per_s": found.training[0], "one_thread_training_per_s": found.training[1]}
    return (Remark(code="threads_spin_in_training", facts=facts),)


def _ratios(measurement: Measurement, activity: Activity) -> dict[int, float]:
    usual, single = (rates_by_round(measurement, mode, activity) for mode in (measurement.config.mode, "one_thread"))
    return {number: rate / usual[number] for number, rate in single.items() if number in usual}


def _rates(measurement: Measurement, activity: Activity, rounds: Collection[int]) -> tuple[float, float]:
    usual, single = (rates_by_round(measurement, mode, activity) for mode in (measurement.config.mode, "one_thread"))
    return median([usual[n] for n in rounds]), median([single[n] for n in rounds])


def _cores(segments: Sequence[Segment], *, beside: bool = False) -> float | None:
    """CPU seconds a second of the training process, or of its threads beside the one that trains.

    None where there is no segment, or it was not recorded.
    """
    known = [
        (segment.process_cpu_ns - (segment.thread_cpu_ns if beside else 0)) / NS / segment_seconds(segment)
        for segment in segments
        if segment.process_cpu_ns is not None and segment_seconds(segment)
    ]
    return median(known) if known else None

"""Whether a device, or several, are worth it for a model, and why they are not faster: from what was timed."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.analyze.effects import CLEAR_LEAD, Effect, interval, of_intervals, of_rounds
from loaderprobe.records.devices import (
    EXPERIMENTS,
    EXPERIMENTS_ALONE,
    DeviceCause,
    DeviceGain,
    DeviceSegment,
    GainName,
    Placement,
    PlacementResult,
    PlacementVerdict,
    SegmentName,
    StepParts,
    Workload,
    WorkloadResult,
    WorkloadVerdict,
)
from loaderprobe.records.verdict import WORTH, Interval

WIDEST = 2.0
"""Of a speed-up whose ends are so many times apart, no efficiency follows; nor advice, of seconds that are so vague."""
MILLI = 1e3

ByRound = dict[int, DeviceSegment]


def judge(result: WorkloadResult) -> WorkloadVerdict:
    """The placements that were measured, the fastest of them, and those that do not differ from it beyond noise."""
    workload = result.workload
    measured = [each for each in result.placements if each.failure is None and each.segments]
    epochs = {each.placement: _epoch(each, workload.samples) for each in measured}
    placements = tuple(_placement(each, epochs, workload) for each in measured)
    ranked = sorted(placements, key=lambda each: each.epoch_s.value)
    close = [each.placement for each in ranked[1:] if of_intervals(each.epoch_s, ranked[0].epoch_s).low <= 1]
    return WorkloadVerdict(
        workload=workload,
        placements=placements,
        fastest=ranked[0].placement if ranked else None,
        close=tuple(close),
    )


def is_vague(figure: Interval) -> bool:
    """True where its range is so wide that nothing follows from it."""
    return figure.high >= WIDEST * max(0.0, figure.low)


def why(gains: Sequence[DeviceGain]) -> tuple[DeviceCause, tuple[GainName, ...]]:
    """(the cause, the candidates of `either`): the largest speed-up outside noise, else compute or inconclusive.

    Gains of one round share its drift, so two are compared round by round.
    """
    causes: dict[DeviceGain, GainName] = {each: each.name for each in gains if each.name != "larger"}
    known = [each for each in causes if each.speedup.value >= WORTH and _effect(each).is_faster]
    if not known:
        # Where every speed-up is certainly below that, the device itself is the limit.
        certain = bool(causes) and all(each.speedup.high < CLEAR_LEAD for each in causes)
        return ("compute" if certain else "inconclusive"), ()
    first = max(known, key=lambda each: each.speedup.value)
    beside = [each for each in known if each is not first and not _larger(first, each)]
    if beside:
        return "either", (causes[first], *(causes[each] for each in beside))
    return causes[first], ()


def _larger(first: DeviceGain, other: DeviceGain) -> bool:
    """True when one gain exceeds the other beyond noise."""
    lead = _effect(first).over(_effect(other))
    return lead is not None and lead.is_faster


def _effect(gain: DeviceGain) -> Effect:
    return of_rounds(dict(enumerate(gain.by_round)))


def _placement(result: PlacementResult, epochs: dict[Placement, Interval], workload: Workload) -> PlacementVerdict:
    training = _rounds(result, "training")
    gains = _gains(result)
    cause, candidates = why(gains)
    if is_vague(epochs[result.placement]):
        cause, candidates = "inconclusive", ()
    if cause == "compute" and workload.larger_batch is None:
        # A larger batch, which was not tried, might be faster.
        cause = "inconclusive"
    alone = epochs.get(Placement(device=result.placement.device))
    speedup = of_intervals(alone, epochs[result.placement]) if alone and result.placement.ranks > 1 else None
    return PlacementVerdict(
        placement=result.placement,
        step_ms=interval([each.step_s * MILLI for each in training.values()]),
        epoch_s=epochs[result.placement],
        samples_per_s=interval([each.samples_per_s for each in training.values()]),
        speedup=speedup,
        efficiency=speedup.value / _hardware(result.placement) if speedup and not is_vague(speedup) else None,
        parts=_parts(result),
        gains=gains,
        cause=cause,
        candidates=candidates,
    )


def _hardware(placement: Placement) -> int:
    """How many times the hardware of one process: ranks on the CPU share its cores."""
    return placement.ranks if placement.device == "cuda" else 1


def _epoch(result: PlacementResult, samples: int) -> Interval:
    """Seconds, from the steps that were timed."""
    return interval([samples / each.samples_per_s for each in _rounds(result, "training").values()])


def _rounds(result: PlacementResult, name: SegmentName) -> ByRound:
    return {each.round: each for each in result.segments if each.name == name}


def _gains(result: PlacementResult) -> tuple[DeviceGain, ...]:
    """Of the experiments that were made, from rounds that have both segments."""
    found = []
    for name, (one, other) in (EXPERIMENTS if result.placement.ranks > 1 else EXPERIMENTS_ALONE).items():
        changed, usual = _rounds(result, one), _rounds(result, other)
        ratios = [changed[key].samples_per_s / usual[key].samples_per_s for key in sorted(changed.keys() & usual)]
        if ratios:
            found.append(DeviceGain(name=name, speedup=interval(ratios), by_round=tuple(ratios)))
    return tuple(found)


def _parts(result: PlacementResult) -> StepParts:
    """What the step is longer by than without exchange, and than without input; never below 0."""
    training = _rounds(result, "training")
    step = interval([each.step_s for each in training.values()]).value

    def longer(name: SegmentName) -> float:
        others = _rounds(result, name)
        found = [training[key].step_s - others[key].step_s for key in training.keys() & others]
        return max(0.0, interval(found).value) if found else 0.0

    exchange, given = longer("no_exchange"), longer("resident")
    # Both may hide behind each other: together they take no more than the step.
    shrink = min(1.0, step / (exchange + given)) if exchange + given else 1.0
    exchange, given = exchange * shrink, given * shrink
    return StepParts(exchange=exchange * MILLI, input=given * MILLI, compute=max(0.0, step - exchange - given) * MILLI)

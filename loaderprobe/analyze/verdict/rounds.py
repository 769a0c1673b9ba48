"""What the next round of a configuration measures, given what is known so far: nothing when that is enough.

Every configuration is screened: the loader alone, and training on it. Only where that is inconclusive are ablations
measured, and only of resources that may be the cause.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.analyze.verdict.experiments import Experiments, possible_modes, run_experiments
from loaderprobe.analyze.verdict.rates import NS, rate_interval, rates_by_round, spread_of_both
from loaderprobe.analyze.verdict.rule import (
    beyond_noise,
    compute_is_certain,
    contenders,
    contradiction,
    is_clear,
    judge,
    lead_of,
    misfits_of,
    noise_of,
    prediction_error_of,
)
from loaderprobe.analyze.verdict.validity import by_waiting, counted, fair
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import (
    NO_STEP,
    Activity,
    Measurement,
    Mode,
    Segment,
    base_mode,
    judged_activity,
    segment_seconds,
    segments_of,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import ABLATIONS, SingleCause
from loaderprobe.stats import median

# A serial loader whose threads spin: seen by CPU time, and proved by loading with torch on one thread.
#
# torch shares an operation on a tensor among OpenMP's threads, which spin between two of them. The operations of a
# sample are small: its threads keep cores busy and hardly help, and where another process has one of those cores, each
# operation waits for a thread that does not run. It is no resource and never a cause: what is found here is advice.

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
    return _cores(segments_of(measurement, base_mode(measurement), "loader_only"), beside=True)


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
    base = base_mode(measurement)
    return tuple(("one_thread", activity) for mode, activity in asked if mode == base and activity in wanted)


def on_one_thread(measurement: Measurement) -> OneThread | None:
    """None where no round has both, of the loader alone and of what the verdict is on."""
    base, judged = base_mode(measurement), judged_activity(measurement)
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
        spread=spread_of_both(both[0], both[1], 0, synchronous=measurement.compute.synchronous or judged != "training"),
        training=_rates(measurement, "training", ratios) if judged == "training" else None,
        loader=_rates(measurement, "loader_only", rounds),
        cores=(cores[0], cores[1]),
    )


def one_thread_notes(measurement: Measurement) -> tuple[Remark, ...]:
    """That torch's threads keep cores busy for nothing, with the figures of both; empty where that was not shown."""
    found = on_one_thread(measurement)
    if found is None or not found.saves:
        return ()
    facts: dict[str, float | str] = {
        "cores": found.cores[0], "one_thread_cores": found.cores[1], "loader_per_s": found.loader[0],
        "one_thread_per_s": found.loader[1], "unit": "images/s" if measurement.images else "samples/s",
    }  # fmt: skip
    if found.training is None:
        return (Remark(code="threads_spin", facts=facts),)
    facts |= {"training_per_s": found.training[0], "one_thread_training_per_s": found.training[1]}
    return (Remark(code="threads_spin_in_training", facts=facts),)


def _ratios(measurement: Measurement, activity: Activity) -> dict[int, float]:
    usual, single = (rates_by_round(measurement, mode, activity) for mode in (base_mode(measurement), "one_thread"))
    return {number: rate / usual[number] for number, rate in single.items() if number in usual}


def _rates(measurement: Measurement, activity: Activity, rounds: Collection[int]) -> tuple[float, float]:
    usual, single = (rates_by_round(measurement, mode, activity) for mode in (base_mode(measurement), "one_thread"))
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


Round = tuple[tuple[Mode, Activity], ...]


def next_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The segments of the next round, in no order; none when more would tell nothing new."""
    asked = _for_the_verdict(measurement, thorough=thorough)
    return (*asked, *on_one_thread_beside(measurement, asked))


def _for_the_verdict(measurement: Measurement, *, thorough: bool) -> Round:
    measurement, rounds = counted(measurement), measurement.config.rounds
    # Idle workers of one rank wait for those of another: what they would do by themselves is not to be estimated.
    thorough = thorough or measurement.config.ranks > 1
    possible, screening = possible_modes(measurement), _screening(measurement)
    trained = min(_times(measurement, mode, activity) for mode, activity in screening)
    if not trained:
        return (*screening, *_loader_only(possible if thorough else ()))
    found = run_experiments(measurement)
    disturbed = contradiction(found, contenders(found)) is not None
    doubted = _doubt_of_the_whole(found) >= 1 or _doubted_twice(found)
    unfair = _rests_on_unfair(measurement, found)
    again = doubted or disturbed or unfair
    modes = _in_training(measurement, found) if doubted or found.in_training else ()
    if not thorough and ((_settled(found) and not disturbed) or compute_is_certain(found)):
        return ()
    if modes and (found.in_training or trained >= min(thresholds.DOUBTED_ROUNDS, rounds)):
        return _rounds_of_training(measurement, found, modes)
    if trained < rounds:
        # What the first round leaves open is measured beside the rest of the screening.
        wanted = set(possible) if thorough else _deciding(measurement, found)
        wanted |= {mode for mode in possible if _times(measurement, mode)}
        return (*screening, *_loader_only(tuple(mode for mode in possible if mode in wanted)))
    wanted = set(possible) if thorough else _deciding(measurement, found)
    wanted |= {mode for mode in possible if _times(measurement, mode)}
    if not wanted:
        return screening if again and trained < thresholds.MOST_TIMES * rounds else ()
    least = min(thresholds.ENOUGH_ROUNDS, rounds)
    done = [_times(measurement, mode) for mode in wanted]
    if max(done) >= thresholds.MOST_TIMES * least or (min(done) >= least and not (again or _ambiguous(found))):
        return ()
    beside: Round = screening if again else ((base_mode(measurement), "loader_only"),)
    return (*beside, *_loader_only(tuple(mode for mode in possible if mode in wanted)))


def deciding(measurement: Measurement, plan: Round) -> Round:
    """What of the next round can decide the verdict, where there is no time for all of it.

    Where the only round so far does not fit, that is the screening again: a first round may have been slow. Else it is
    training, or the loader, as asked and without what may lead. What an estimate leaves far behind is left out.
    """
    base, found = base_mode(measurement), run_experiments(measurement)
    beside = ("resident", "one_thread")
    trained = tuple(each for each in plan if each[1] == "training" and each[0] not in beside)
    without = {each[0] for each in plan} - {base, *beside}
    if not without or not found.speedups:
        return plan
    if len(trained) < 2 and len(misfits_of(found)) == 1 and _doubt_of_the_whole(found) >= 1:
        return tuple(each for each in plan if each[0] == base)
    top = max(found.speedups, key=lambda name: found.speedups[name].value)
    leading = {ABLATIONS[name] for name in ABLATIONS if name == top or not _far_behind(found, top, name)}
    return tuple(each for each in plan if each[0] == base or each[0] in leading)


def _far_behind(found: Experiments, top: SingleCause, other: SingleCause) -> bool:
    """True when one speed-up is behind another by what makes an estimate firm."""
    speedup = found.speedups.get(other)
    return speedup is not None and found.speedups[top].value >= thresholds.OPEN_LEAD * speedup.value


def _rests_on_unfair(measurement: Measurement, found: Experiments) -> bool:
    """True where others disturbed so many rounds that a word, or a lead which is not far, rests on them."""
    workers, cores = measurement.workers, measurement.cores_available
    if judge(found, workers=workers, cores_available=cores).reason.code == "rounds_disturbed":
        return True
    names = contenders(found)
    if names and lead_of(found, names[0]) >= thresholds.FAR_LEAD:
        return False
    segments = (segment for segment in measurement.segments if segment.without is None and segment.mode != "one_thread")
    ran = {(segment.mode, segment.activity) for segment in segments}
    least, undisturbed = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds), fair(measurement)
    return any(undisturbed.get(each, 0) < min(least, _times(measurement, *each)) for each in ran)


def further_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The same in time that other configurations leave: also another round of what is judged, where its rate is wide.

    Rounds differ, so longer ones would not help.
    """
    asked = next_round(measurement, thorough=thorough)
    if asked:
        return asked
    judged = base_mode(measurement), judged_activity(measurement)
    times = _times(measurement, *judged)
    if not times or times >= thresholds.MOST_TIMES * measurement.config.rounds:
        return ()
    measurement = counted(measurement)  # what the verdict shows
    rate = rate_interval(measurement, segments_of(measurement, *judged))
    return (judged,) if rate.high - rate.value > thresholds.WIDE * rate.value else ()


def _in_training(measurement: Measurement, found: Experiments) -> tuple[Mode, ...]:
    """The modes to train in where the parts do not predict training; transport only where it may matter."""
    transport = found.speedups.get("transport")
    matters = transport is not None and transport.value >= thresholds.CLEAR_LEAD
    begun = _times(measurement, "no_transport", "training")
    return tuple(mode for mode in possible_modes(measurement) if mode != "no_transport" or matters or begun)


def _rounds_of_training(measurement: Measurement, found: Experiments, modes: tuple[Mode, ...]) -> Round:
    """Training as asked and without each resource, in turns, in three rounds; in six where that leaves a doubt."""
    least = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds)
    done = min(_times(measurement, mode, "training") for mode in modes)
    doubt = contradiction(found, contenders(found)) or _rests_on_unfair(measurement, found)
    clear = not (_ambiguous(found) or doubt)
    if done >= thresholds.MOST_TIMES * least or (done >= least and clear):
        return ()
    return (*_screening(measurement), *((mode, "training") for mode in modes))


def ablations(measurement: Measurement) -> Remark:
    """Which resources were made free in this measurement, and why no more."""
    measurement = counted(measurement)
    found = run_experiments(measurement)
    measured = {name: times for name, mode in ABLATIONS.items() if (times := _times(measurement, mode))}
    if found.base == "warm":
        measured.pop("storage", None)
    if found.in_training:
        rounds = max(_times(measurement, mode, "training") for mode in ABLATIONS.values())
        return Remark(code="ablated_in_training", facts={"rounds": rounds})
    if measured:
        facts: dict[str, float | str] = {name: float(times) for name, times in measured.items()}
        return Remark(code="ablated", facts=facts | {"rounds": float(max(measured.values()))})
    if not found.predicted:
        return Remark(code="nothing_to_ablate", facts={})
    if _cannot_matter(found):
        facts = {"input": found.free_input_speedup}
        facts["compute"] = found.speedups["compute"].value
        return Remark(code="ablations_cannot_matter", facts=facts)
    ranked = sorted(found.speedups.items(), key=lambda item: -item[1].value)
    code = "ablations_not_possible" if _open(measurement, found) else "ablations_not_needed"
    return Remark(code=code, facts={name: speedup.value for name, speedup in ranked})


def _screening(measurement: Measurement) -> Round:
    base = base_mode(measurement)
    if measurement.compute.name == NO_STEP:
        return ((base, "loader_only"),)
    both: Round = ((base, "loader_only"), (base, "training"))
    return both if measurement.compute.specified_images_per_s is not None else (*both, ("resident", "training"))


def _loader_only(modes: tuple[Mode, ...]) -> Round:
    return tuple((mode, "loader_only") for mode in modes)


def _times(measurement: Measurement, mode: Mode, activity: Activity = "loader_only") -> int:
    return len(segments_of(measurement, mode, activity))


def _deciding(measurement: Measurement, found: Experiments) -> set[Mode]:
    """The modes without which no firm word is possible; none when the estimates leave no doubt."""
    possible = possible_modes(measurement)
    return {ABLATIONS[name] for name in _open(measurement, found) if ABLATIONS.get(name) in possible}


def _open(measurement: Measurement, found: Experiments) -> set[SingleCause]:
    """The resources among which the cause is to be found; empty when it is clear, or when nothing can make it so."""
    if not found.predicted or _cannot_matter(found):
        return set()
    worth = {name for name, speedup in found.speedups.items() if speedup.value >= thresholds.WORTH}
    unmeasured = {name for name, why in found.missing.items() if why.code == "not_measured"}
    if (found.missing.keys() - unmeasured) & ABLATIONS.keys():
        # Where reads are not counted, warm reads beside cold ones prove them cold. What else is missing stays so.
        provable = not found.missing.keys() & (ABLATIONS.keys() - {"storage"}) and by_waiting(measurement)
        return {"storage", *worth} if provable and not _times(measurement, "warm") else set()
    if not worth or unmeasured:
        return unmeasured
    top = max(found.speedups, key=lambda name: found.speedups[name].value)
    near = {name for name in worth if name != top and not _far(found, top, name)}
    if top in found.open:
        # An estimate is no basis for spending where it can be measured; these two may hide behind each other.
        beside: set[SingleCause] = {"storage", "preprocessing"} if top in ("storage", "preprocessing") else set()
        return {top, *near, *beside}
    return {top, *near} if near else set()


def _cannot_matter(found: Experiments) -> bool:
    """True when even an input without cost would not change the bottleneck."""
    compute = found.speedups.get("compute")
    free = found.free_input_speedup
    return free < thresholds.WORTH or (compute is not None and compute.value >= free * thresholds.CLEAR_LEAD)


def _settled(found: Experiments) -> bool:
    """True when compute leads so far, and training is so near what the parts predict, that nothing is open."""
    compute = found.speedups.get("compute")
    fits = _doubt_of_the_whole(found) < 1 and found.free_input_speedup < thresholds.WORTH and not found.met_warm
    return fits and compute is not None and compute.value >= thresholds.CERTAIN_LEAD


def _far(found: Experiments, top: SingleCause, other: SingleCause) -> bool:
    """True when one speed-up leads the other clearly: with an estimate among them in every round, by a wide margin."""
    rounds = found.ratios[top].keys() & found.ratios[other].keys()
    wide = all(found.ratios[top][n] >= thresholds.OPEN_LEAD * max(1.0, found.ratios[other][n]) for n in rounds)
    measured = found.how[top] == found.how[other] == "measured"
    return is_clear(found, top, other) and (measured or wide)


def _doubt_of_the_whole(found: Experiments) -> float:
    """How far training is from what its parts predict, in units of what noise explains."""
    prediction_error, tolerance = prediction_error_of(found)
    if prediction_error is None:
        return 0.0
    # Rounds that differ too much are worth repeating, as is a whole a little away from its parts.
    return max(abs(prediction_error) / tolerance, 1.0 if noise_of(found) > thresholds.MOST_NOISE else 0.0)


def _doubted_twice(found: Experiments) -> bool:
    """True when there were two rounds, and training in each is off its prediction to the same side.

    Two rounds have no useful interval, by which a third would be measured first.
    """
    logs = list(misfits_of(found).values())
    nearest = min((abs(log) for log in logs), default=0.0)
    one_side = all(log > 0 for log in logs) or all(log < 0 for log in logs)
    beyond = nearest > math.log1p(thresholds.LEAST_PREDICTION_ERROR)
    return len(logs) == thresholds.DOUBTED_ROUNDS and one_side and beyond


def _ambiguous(found: Experiments) -> bool:
    """True when measured speed-ups do not differ, or are noise, which more rounds may change."""
    names = contenders(found)
    unclear = len(names) > 1 or (len(names) == 1 and not beyond_noise(found, names[0]))
    return unclear and not found.missing and all(found.how[name] == "measured" for name in names)

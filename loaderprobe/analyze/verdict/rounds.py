"""What the next round of a configuration measures, given what is known so far: nothing when that is enough.

Every configuration is screened: the loader alone, and training on it. Only where that is inconclusive are ablations
measured, and only of resources that may be the cause.
"""

from __future__ import annotations

import math

from loaderprobe.analyze.verdict.experiments import Experiments, possible_modes, run_experiments
from loaderprobe.analyze.verdict.judge import (
    beyond_noise,
    compute_is_certain,
    contenders,
    contradiction,
    judge,
    lead_of,
    open_causes,
    times_measured,
)
from loaderprobe.analyze.verdict.one_thread import on_one_thread_beside
from loaderprobe.analyze.verdict.validity import fair
from loaderprobe.protocols import Round
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import NO_STEP, Measurement, Mode
from loaderprobe.records.resources import ABLATIONS


def next_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The segments of the next round, in no order; none when more would tell nothing new."""
    kinds = _for_the_verdict(measurement, thorough=thorough)
    return (*kinds, *on_one_thread_beside(measurement, kinds))


def _for_the_verdict(measurement: Measurement, *, thorough: bool) -> Round:
    trials = run_experiments(measurement)
    measurement, rounds = trials.measurement, measurement.config.rounds
    # Idle workers of one rank wait for those of another: what they would do by themselves is not to be estimated.
    thorough = thorough or measurement.config.ranks > 1
    possible, screening = possible_modes(measurement), _screening(measurement)
    trained = min(times_measured(measurement, mode, activity) for mode, activity in screening)
    if not trained:
        return (*screening, *_loader_only(possible if thorough else ()))
    disturbed = contradiction(trials) is not None
    doubted = _doubt_of_the_whole(trials) >= 1 or _doubted_twice(trials)
    unfair = _rests_on_unfair(trials)
    again = doubted or disturbed or unfair
    modes = _in_training(trials) if doubted or trials.in_training else ()
    if not thorough and ((_settled(trials) and not disturbed) or compute_is_certain(trials)):
        return ()
    if modes and (trials.in_training or trained >= min(thresholds.DOUBTED_ROUNDS, rounds)):
        return _rounds_of_training(trials, modes)
    # Without these no firm word is possible; there are none when the estimates leave no doubt.
    leading = set() if thorough else {ABLATIONS.get(name) for name in open_causes(trials)}
    wanted = {mode for mode in possible if thorough or mode in leading}
    wanted |= {mode for mode in possible if times_measured(measurement, mode)}
    without = _loader_only(tuple(mode for mode in possible if mode in wanted))
    if trained < rounds:
        # What the first round leaves open is measured beside the rest of the screening.
        return (*screening, *without)
    if not wanted:
        return screening if again and trained < thresholds.MOST_TIMES * rounds else ()
    least = min(thresholds.ENOUGH_ROUNDS, rounds)
    done = [times_measured(measurement, mode) for mode in wanted]
    if max(done) >= thresholds.MOST_TIMES * least or (min(done) >= least and not (again or _ambiguous(trials))):
        return ()
    beside: Round = screening if again else ((measurement.config.mode, "loader_only"),)
    return (*beside, *without)


def deciding(measurement: Measurement, plan: Round) -> Round:
    """What of the next round can decide the verdict, where there is no time for all of it.

    Where the only round so far does not fit, that is the screening again: a first round may have been slow. Else it is
    training, or the loader, as asked and without what may lead. What an estimate leaves far behind is left out.
    """
    base, trials = measurement.config.mode, run_experiments(measurement)
    beside = ("resident", "one_thread")
    trained = tuple(kind for kind in plan if kind[1] == "training" and kind[0] not in beside)
    without = {kind[0] for kind in plan} - {base, *beside}
    if not without or not trials.speedups:
        return plan
    if len(trained) < 2 and len(trials.misfits) == 1 and _doubt_of_the_whole(trials) >= 1:
        return tuple(kind for kind in plan if kind[0] == base)
    largest = max(speedup.value for speedup in trials.speedups.values())
    # By as much an estimate is firm.
    behind = {name for name, speedup in trials.speedups.items() if largest >= thresholds.OPEN_LEAD * speedup.value}
    leading = {mode for name, mode in ABLATIONS.items() if name not in behind}
    return tuple(kind for kind in plan if kind[0] == base or kind[0] in leading)


def _rests_on_unfair(trials: Experiments) -> bool:
    """True where others disturbed so many rounds that a word, or a lead which is not far, rests on them."""
    measurement = trials.measurement
    if judge(trials).reason.code == "rounds_disturbed":
        return True
    names = contenders(trials)
    if names and lead_of(trials, names[0]) >= thresholds.FAR_LEAD:
        return False
    segments = (segment for segment in measurement.segments if segment.without is None and segment.mode != "one_thread")
    ran = {(segment.mode, segment.activity) for segment in segments}
    least, undisturbed = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds), fair(measurement)
    return any(undisturbed.get(kind, 0) < min(least, times_measured(measurement, *kind)) for kind in ran)


def further_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The same in time that other configurations leave: also another round of what is judged, where its rate is wide.

    Rounds differ, so longer ones would not help.
    """
    kinds = next_round(measurement, thorough=thorough)
    if kinds:
        return kinds
    judged = measurement.config.mode, measurement.judged
    times = times_measured(measurement, *judged)
    if not times or times >= thresholds.MOST_TIMES * measurement.config.rounds:
        return ()
    rate = run_experiments(measurement).rate
    return (judged,) if rate and rate.high - rate.value > thresholds.WIDE * rate.value else ()


def _in_training(trials: Experiments) -> tuple[Mode, ...]:
    """The modes to train in where the parts do not predict training; transport only where it may matter."""
    transport = trials.speedups.get("transport")
    matters = transport is not None and transport.value >= thresholds.CLEAR_LEAD
    begun = times_measured(trials.measurement, "no_transport", "training")
    return tuple(mode for mode in possible_modes(trials.measurement) if mode != "no_transport" or matters or begun)


def _rounds_of_training(trials: Experiments, modes: tuple[Mode, ...]) -> Round:
    """Training as asked and without each resource, in turns, in three rounds; in six where that leaves a doubt."""
    measurement = trials.measurement
    least = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds)
    done = min(times_measured(measurement, mode, "training") for mode in modes)
    doubt = contradiction(trials) or _rests_on_unfair(trials)
    clear = not (_ambiguous(trials) or doubt)
    if done >= thresholds.MOST_TIMES * least or (done >= least and clear):
        return ()
    return (*_screening(measurement), *((mode, "training") for mode in modes))


def _screening(measurement: Measurement) -> Round:
    base = measurement.config.mode
    if measurement.compute.name == NO_STEP:
        return ((base, "loader_only"),)
    both: Round = ((base, "loader_only"), (base, "training"))
    return both if measurement.compute.specified_images_per_s is not None else (*both, ("resident", "training"))


def _loader_only(modes: tuple[Mode, ...]) -> Round:
    return tuple((mode, "loader_only") for mode in modes)


def _settled(trials: Experiments) -> bool:
    """True when compute leads so far, and training is so near what the parts predict, that nothing is open."""
    compute = trials.speedups.get("compute")
    fits = _doubt_of_the_whole(trials) < 1 and trials.free_input_speedup < thresholds.WORTH and not trials.met_warm
    return fits and compute is not None and compute.value >= thresholds.CERTAIN_LEAD


def _doubt_of_the_whole(trials: Experiments) -> float:
    """How far training is from what its parts predict, in units of what noise explains."""
    prediction_error, tolerance = trials.prediction_error
    # Rounds that differ too much are worth repeating, as is a whole a little away from its parts.
    return max(abs(prediction_error or 0.0) / tolerance, 1.0 if trials.noise > thresholds.MOST_NOISE else 0.0)


def _doubted_twice(trials: Experiments) -> bool:
    """True when there were two rounds, and training in each is off its prediction to the same side.

    Two rounds have no useful interval, by which a third would be measured first.
    """
    logs = list(trials.misfits.values())
    nearest = min((abs(log) for log in logs), default=0.0)
    one_side = all(log > 0 for log in logs) or all(log < 0 for log in logs)
    beyond = nearest > math.log1p(thresholds.LEAST_PREDICTION_ERROR)
    return len(logs) == thresholds.DOUBTED_ROUNDS and one_side and beyond


def _ambiguous(trials: Experiments) -> bool:
    """True when measured speed-ups do not differ, or are noise, which more rounds may change."""
    names = contenders(trials)
    unclear = len(names) > 1 or (len(names) == 1 and not beyond_noise(trials, names[0]))
    return unclear and not trials.missing and all(map(trials.is_measured, names))

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
    asked = _for_the_verdict(measurement, thorough=thorough)
    return (*asked, *on_one_thread_beside(measurement, asked))


def _for_the_verdict(measurement: Measurement, *, thorough: bool) -> Round:
    found = run_experiments(measurement)
    measurement, rounds = found.measurement, measurement.config.rounds
    # Idle workers of one rank wait for those of another: what they would do by themselves is not to be estimated.
    thorough = thorough or measurement.config.ranks > 1
    possible, screening = possible_modes(measurement), _screening(measurement)
    trained = min(times_measured(measurement, mode, activity) for mode, activity in screening)
    if not trained:
        return (*screening, *_loader_only(possible if thorough else ()))
    disturbed = contradiction(found) is not None
    doubted = _doubt_of_the_whole(found) >= 1 or _doubted_twice(found)
    unfair = _rests_on_unfair(found)
    again = doubted or disturbed or unfair
    modes = _in_training(found) if doubted or found.in_training else ()
    if not thorough and ((_settled(found) and not disturbed) or compute_is_certain(found)):
        return ()
    if modes and (found.in_training or trained >= min(thresholds.DOUBTED_ROUNDS, rounds)):
        return _rounds_of_training(found, modes)
    # Without these no firm word is possible; there are none when the estimates leave no doubt.
    leading = set() if thorough else {ABLATIONS.get(name) for name in open_causes(found)}
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
    if max(done) >= thresholds.MOST_TIMES * least or (min(done) >= least and not (again or _ambiguous(found))):
        return ()
    beside: Round = screening if again else ((measurement.config.mode, "loader_only"),)
    return (*beside, *without)


def deciding(measurement: Measurement, plan: Round) -> Round:
    """What of the next round can decide the verdict, where there is no time for all of it.

    Where the only round so far does not fit, that is the screening again: a first round may have been slow. Else it is
    training, or the loader, as asked and without what may lead. What an estimate leaves far behind is left out.
    """
    base, found = measurement.config.mode, run_experiments(measurement)
    beside = ("resident", "one_thread")
    trained = tuple(each for each in plan if each[1] == "training" and each[0] not in beside)
    without = {each[0] for each in plan} - {base, *beside}
    if not without or not found.speedups:
        return plan
    if len(trained) < 2 and len(found.misfits) == 1 and _doubt_of_the_whole(found) >= 1:
        return tuple(each for each in plan if each[0] == base)
    most = max(speedup.value for speedup in found.speedups.values())
    # By as much an estimate is firm.
    behind = {name for name, speedup in found.speedups.items() if most >= thresholds.OPEN_LEAD * speedup.value}
    leading = {mode for name, mode in ABLATIONS.items() if name not in behind}
    return tuple(each for each in plan if each[0] == base or each[0] in leading)


def _rests_on_unfair(found: Experiments) -> bool:
    """True where others disturbed so many rounds that a word, or a lead which is not far, rests on them."""
    measurement = found.measurement
    if judge(found).reason.code == "rounds_disturbed":
        return True
    names = contenders(found)
    if names and lead_of(found, names[0]) >= thresholds.FAR_LEAD:
        return False
    segments = (segment for segment in measurement.segments if segment.without is None and segment.mode != "one_thread")
    ran = {(segment.mode, segment.activity) for segment in segments}
    least, undisturbed = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds), fair(measurement)
    return any(undisturbed.get(each, 0) < min(least, times_measured(measurement, *each)) for each in ran)


def further_round(measurement: Measurement, *, thorough: bool) -> Round:
    """The same in time that other configurations leave: also another round of what is judged, where its rate is wide.

    Rounds differ, so longer ones would not help.
    """
    asked = next_round(measurement, thorough=thorough)
    if asked:
        return asked
    judged = measurement.config.mode, measurement.judged
    times = times_measured(measurement, *judged)
    if not times or times >= thresholds.MOST_TIMES * measurement.config.rounds:
        return ()
    rate = run_experiments(measurement).rate
    return (judged,) if rate and rate.high - rate.value > thresholds.WIDE * rate.value else ()


def _in_training(found: Experiments) -> tuple[Mode, ...]:
    """The modes to train in where the parts do not predict training; transport only where it may matter."""
    transport = found.speedups.get("transport")
    matters = transport is not None and transport.value >= thresholds.CLEAR_LEAD
    begun = times_measured(found.measurement, "no_transport", "training")
    return tuple(mode for mode in possible_modes(found.measurement) if mode != "no_transport" or matters or begun)


def _rounds_of_training(found: Experiments, modes: tuple[Mode, ...]) -> Round:
    """Training as asked and without each resource, in turns, in three rounds; in six where that leaves a doubt."""
    measurement = found.measurement
    least = min(thresholds.ENOUGH_ROUNDS, measurement.config.rounds)
    done = min(times_measured(measurement, mode, "training") for mode in modes)
    doubt = contradiction(found) or _rests_on_unfair(found)
    clear = not (_ambiguous(found) or doubt)
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


def _settled(found: Experiments) -> bool:
    """True when compute leads so far, and training is so near what the parts predict, that nothing is open."""
    compute = found.speedups.get("compute")
    fits = _doubt_of_the_whole(found) < 1 and found.free_input_speedup < thresholds.WORTH and not found.met_warm
    return fits and compute is not None and compute.value >= thresholds.CERTAIN_LEAD


def _doubt_of_the_whole(found: Experiments) -> float:
    """How far training is from what its parts predict, in units of what noise explains."""
    prediction_error, tolerance = found.prediction_error
    # Rounds that differ too much are worth repeating, as is a whole a little away from its parts.
    return max(abs(prediction_error or 0.0) / tolerance, 1.0 if found.noise > thresholds.MOST_NOISE else 0.0)


def _doubted_twice(found: Experiments) -> bool:
    """True when there were two rounds, and training in each is off its prediction to the same side.

    Two rounds have no useful interval, by which a third would be measured first.
    """
    logs = list(found.misfits.values())
    nearest = min((abs(log) for log in logs), default=0.0)
    one_side = all(log > 0 for log in logs) or all(log < 0 for log in logs)
    beyond = nearest > math.log1p(thresholds.LEAST_PREDICTION_ERROR)
    return len(logs) == thresholds.DOUBTED_ROUNDS and one_side and beyond


def _ambiguous(found: Experiments) -> bool:
    """True when measured speed-ups do not differ, or are noise, which more rounds may change."""
    names = contenders(found)
    unclear = len(names) > 1 or (len(names) == 1 and not beyond_noise(found, names[0]))
    return unclear and not found.missing and all(map(found.is_measured, names))

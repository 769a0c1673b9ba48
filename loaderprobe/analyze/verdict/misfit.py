"""What rounds contradict: training off what its parts predict, and a loader that is slower with less to do."""

from __future__ import annotations

import math

from loaderprobe.analyze.effects import ENOUGH_ROUNDS
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.stats import half_width, median

# The median drift of CPU speed within 15 s on an idle virtual machine was 8 %.
LEAST_PREDICTION_ERROR = 0.1
# Noise between rounds excuses no more than this.
MOST_PREDICTION_ERROR = 0.25
# Rounds that differ by more than this from the middle one tell nothing of a whole and its parts.
MOST_NOISE = 0.5


def predictions_of(found: Experiments) -> dict[int, float]:
    """Images/s of training by round, from its parts: of what the sizes of files leave open, the nearest to training.

    A segment of few batches reads files that are a tenth larger than those of the next. A loader that is limited by
    bytes then makes fewer images of them, and one that is not does not: the prediction lies between the two.
    """
    nearest = {}
    for number, rate in found.predicted.items():
        low, high = sorted((rate, found.predicted_by_bytes.get(number, rate)))
        nearest[number] = min(max(found.end_to_end.get(number, rate), low), high)
    return nearest


def misfits_of(found: Experiments) -> dict[int, float]:
    """The logarithm of training over its prediction, of the rounds that have both."""
    predicted = predictions_of(found)
    return {n: math.log(found.end_to_end[n] / rate) for n, rate in predicted.items() if n in found.end_to_end}


def prediction_error_of(found: Experiments) -> tuple[float | None, float]:
    """(measured end-to-end rate over the predicted one minus 1, the most that noise explains).

    Rounds are compared pair by pair, since both rates of a round saw the same machine. In a single round the steps show
    the noise: eight batches from a disk may end a tenth early or late.
    """
    misfits = misfits_of(found)
    if not misfits:
        return None, LEAST_PREDICTION_ERROR
    logs = list(misfits.values())
    noise = half_width(logs) if len(logs) > 1 else found.spread_of_steps.get(next(iter(misfits)), 0.0)
    return math.expm1(median(logs)), max(LEAST_PREDICTION_ERROR, min(MOST_PREDICTION_ERROR, noise))


def noise_of(found: Experiments) -> float:
    """By how much, at most, a round's training over its parts differs from that of the middle round."""
    logs = list(misfits_of(found).values())
    return max((abs(each - median(logs)) for each in logs), default=0.0)


def slowed(found: Experiments) -> tuple[str, float] | None:
    """The resource without which the loader (or training) was slowest, and by what factor; None within the noise band.

    Nothing gets slower by having less to do. Something else did: another process, or a device that recovers.
    """
    factors: dict[str, float] = {}
    for name in found.without.keys() | (found.ratios.keys() - {"compute"} if found.in_training else set()):
        logs = _logs_without(found, name)
        noise = half_width(logs) if len(logs) >= ENOUGH_ROUNDS else MOST_PREDICTION_ERROR
        band = max(LEAST_PREDICTION_ERROR, min(MOST_PREDICTION_ERROR, noise))
        if logs and median(logs) < -math.log1p(band):
            factors[name] = math.exp(-median(logs))
    worst = max(factors, key=lambda name: factors[name], default=None)
    return None if worst is None else (worst, factors[worst])


def _logs_without(found: Experiments, name: str) -> list[float]:
    """Of each round, the logarithm of the rate without a resource over that as asked. An estimate is never below 1."""
    if found.in_training:
        return [math.log(ratio) for ratio in found.ratios.get(name, {}).values() if ratio > 0]
    rates = found.without[name]
    return [math.log(rate / found.loader[n]) for n, rate in rates.items() if n in found.loader and rate > 0]

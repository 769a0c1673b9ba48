"""How far training is from what its parts predict, round by round."""

from __future__ import annotations

import math

from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.stats import half_width, median

# The median drift of CPU speed within 15 s on an idle virtual machine was 8 %.
LEAST_PREDICTION_ERROR = 0.1
# Noise between rounds excuses no more than this.
MOST_PREDICTION_ERROR = 0.25
# Rounds that differ by more than this from the middle one tell nothing of a whole and its parts.
MOST_NOISE = 0.5


def misfits_of(found: Experiments) -> list[float]:
    """By round, the logarithm of training over its prediction, less what the sizes of its files explain.

    A round of few batches reads files that are a tenth larger in one segment than in the next. A loader that is
    limited by bytes then makes fewer images of them, one that is not does not: what lies between is no misfit.
    """
    misfits = []
    for number in (n for n in found.predicted if n in found.end_to_end):
        rates = found.predicted[number], found.predicted_by_bytes.get(number, found.predicted[number])
        low, high = sorted(math.log(found.end_to_end[number] / rate) for rate in rates)
        misfits.append(low if low > 0 else min(high, 0.0))
    return misfits


def prediction_error_of(found: Experiments) -> tuple[float | None, float]:
    """(measured end-to-end rate over the predicted one minus 1, the most that noise explains).

    Rounds are compared pair by pair, since both rates of a round saw the same machine. In a single round the steps show
    the noise: eight batches from a disk may end a tenth early or late.
    """
    logs = misfits_of(found)
    if not logs:
        return None, LEAST_PREDICTION_ERROR
    noise = half_width(logs) if len(logs) > 1 else max(found.spread_of_steps.values(), default=0.0)
    return math.expm1(median(logs)), max(LEAST_PREDICTION_ERROR, min(MOST_PREDICTION_ERROR, noise))


def noise_of(found: Experiments) -> float:
    """By how much, at most, a round's training over its parts differs from that of the middle round."""
    logs = misfits_of(found)
    return max((abs(each - median(logs)) for each in logs), default=0.0)

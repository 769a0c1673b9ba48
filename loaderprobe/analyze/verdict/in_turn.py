"""What one round measures of a configuration that is measured in turn with another: training, in every round."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.effects import ENOUGH_ROUNDS
from loaderprobe.analyze.verdict.rounds import Round, next_round
from loaderprobe.analyze.verdict.speedups import judged_activity
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.measurement import Measurement


def round_in_turn(measurement: Measurement, *, thorough: bool) -> Round:
    """What the verdict asks for in its usual rounds, and then training alone, whose rates are compared in pairs."""
    trained = base_mode(measurement), judged_activity(measurement)
    if len({each.round for each in measurement.segments}) >= ENOUGH_ROUNDS:
        return (trained,)
    config = replace(measurement.config, rounds=min(measurement.config.rounds, ENOUGH_ROUNDS))
    asked = next_round(replace(measurement, config=config), thorough=thorough)
    return asked if trained in asked else (*asked, trained)

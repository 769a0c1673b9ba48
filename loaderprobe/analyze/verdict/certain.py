"""Where compute is the limit for certain, although the rates of the parts do not predict training well enough.

One round, or a step on the CPU that shares its cores, may miss the prediction by more than the noise band. Two things
that were measured apart from each other may still leave nothing but compute: the loader alone is many times as fast as
training, and training itself spends next to nothing outside its steps.
"""

from __future__ import annotations

import math
from dataclasses import replace

from loaderprobe.analyze.effects import OPEN_LEAD
from loaderprobe.analyze.verdict.evidence import evidence_of
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.misfit import MOST_PREDICTION_ERROR, prediction_error_of
from loaderprobe.analyze.verdict.rule import CORES_IN_USE_SHARE, Judgement, inconclusive
from loaderprobe.records.resources import INPUTS
from loaderprobe.records.verdict import WORTH, Evidence, How, Reason

# Rounds differ by a factor of 2 at most on a busy machine: rates of single segments so far apart keep their order.
CERTAIN_LEAD = 5.0
# Compute alone may be this much faster than training: what else it may be gains at most a third, compute five times.
MOST_UNEXPLAINED = 1 / (1 - MOST_PREDICTION_ERROR)


def compute_is_certain(found: Experiments) -> tuple[Evidence, ...]:
    """The evidence that leaves nothing but compute, in every round; empty where something else is left.

    The files must have been what was asked for: warm ones say nothing of how a loader keeps up with cold ones.
    """
    lead = min(found.loader.values(), default=0.0) / max(found.end_to_end.values(), default=1.0)
    most = max(found.input_at_most.values(), default=math.inf)
    alone = found.compute_over_training
    if found.met_warm or found.above_ceiling or "storage" in found.missing or found.in_training or alone is None:
        return ()
    if lead < CERTAIN_LEAD or most >= WORTH or alone > MOST_UNEXPLAINED:
        return ()
    how: How | None = "estimated" if found.estimated_parts else None
    return (
        *evidence_of([("loader_over_training", lead, CERTAIN_LEAD)], unit="x", how=how),
        *evidence_of([("free_input_at_most", most, WORTH)], unit="x"),
        *evidence_of([("compute_over_training", alone, MOST_UNEXPLAINED)], unit="x", how=how),
    )


def below_compute(found: Experiments) -> bool:
    """True where training stays far below compute alone, and nothing that was removed in training explains it.

    What else ran beside the steps, or the machine itself, held them up: compute is not all that is left.
    """
    alone = found.compute_over_training
    if not found.in_training or alone is None:
        return False
    inputs = [found.speedups[name] for name in INPUTS if name in found.speedups]
    # An estimate is only an upper bound here.
    explained = max((each.value for each in inputs if each.how == "measured"), default=1.0)
    return alone >= OPEN_LEAD * explained


def cores_shared(found: Experiments, cores_available: float) -> bool:
    """True where compute alone is estimated from steps that workers may have held up, since all cores were busy.

    Not where the most that they can have taken from the steps is far less than what free compute would gain.
    """
    busy = found.training_cores is not None and found.training_cores >= CORES_IN_USE_SHARE * cores_available
    most = max(found.input_at_most.values(), default=math.inf)
    return "compute" in found.estimated_parts and busy and found.speedups["compute"].value < OPEN_LEAD * most


def with_certainty(judgement: Judgement, found: Experiments, cores_available: float) -> Judgement:
    """Compute-bound where the rule names no cause and nothing but compute is left; not where more than that is."""
    if judgement.cause in ("compute", "balanced") and cores_shared(found, cores_available):
        shared: dict[str, float | str] = {"own_cores": found.training_cores or 0.0, "cores": cores_available}
        return inconclusive(found, Reason(code="cores_shared", facts=shared), judgement.evidence)
    if judgement.cause == "compute" and below_compute(found):
        error, tolerance = prediction_error_of(found)
        facts: dict[str, float | str] = {"predicted_share": 1 + (error or 0.0), "noise_band": tolerance}
        return inconclusive(found, Reason(code="outside_noise_band", facts=facts), judgement.evidence)
    evidence = compute_is_certain(found)
    if judgement.cause not in ("inconclusive", "either") or not evidence or found.loader_over_training is None:
        return judgement
    gradients = found.speedups.get("gradients")
    if gradients is not None and gradients.value >= WORTH:
        # Not the device alone: its exchange with the other ranks may be what takes the time.
        side_only = replace(judgement, side="compute", evidence=(*evidence, *judgement.evidence))
        return side_only if judgement.cause == "inconclusive" else judgement
    facts = {"resource": "compute", "speedup": found.loader_over_training, "how": found.how["compute"]}
    reason = Reason(code="largest_speedup", facts=facts)
    return Judgement(side="compute", cause="compute", reason=reason, evidence=(*evidence, *judgement.evidence))

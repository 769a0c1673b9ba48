"""What several ranks add to a verdict: a slow rank as its cause, and what else they lose to each other beside it."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.verdict.evidence import speedup_evidence
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rule import (
    CLEAR_LEAD,
    COMPUTE_RESOURCES,
    INPUT_RESOURCES,
    LEAST_ROUNDS,
    OPEN_LEAD,
    WORTH,
    Judgement,
)
from loaderprobe.records.verdict import Reason
from loaderprobe.stats import median

# Of two segments on a busy machine: CPU time differs by a factor of 2 at most.
LEAD_OF_ONE_ROUND = 2.0


def with_ranks(judgement: Judgement, found: Experiments) -> Judgement:
    """The judgement on all ranks, unless their input is the limit and that of one rank makes the others wait."""
    speedups = found.among.speedups()
    evidence = (
        *speedup_evidence({name: each for name, each in speedups.items() if name == "imbalance"}, CLEAR_LEAD),
        *speedup_evidence({name: each for name, each in speedups.items() if name == "straggler"}, WORTH),
    )
    judgement = replace(judgement, evidence=(*judgement.evidence, *evidence))
    if judgement.cause in COMPUTE_RESOURCES:
        return _with_facts(judgement, _beside_gradients(judgement, found))
    if judgement.side != "input":
        return judgement
    if is_imbalanced(found):
        return replace(judgement, cause="imbalance", candidates=(), reason=Reason(code="slow_rank", facts=_slow(found)))
    return _with_facts(judgement, {"straggler_speedup": speedups["straggler"].value} if straggles(found) else {})


def is_imbalanced(found: Experiments) -> bool:
    """True where the slowest rank's input holds up the others, in every round; of few rounds, by a wide margin.

    By itself that rank must be slower, too: what two experiments do not agree on is noise.
    """
    ratios = list(found.among.ratios.get("imbalance", {}).values())
    if not ratios or found.among.middle_alone < WORTH * found.among.slowest_alone:
        return False
    least = CLEAR_LEAD if len(ratios) >= LEAST_ROUNDS else OPEN_LEAD if len(ratios) > 1 else LEAD_OF_ONE_ROUND
    return min(ratios) >= least


def straggles(found: Experiments) -> bool:
    """True where ranks alike lose more than noise by waiting for each other's slow batches."""
    ratios = list(found.among.ratios.get("straggler", {}).values())
    if not ratios or is_imbalanced(found) or not found.among.alike:
        return False
    enough = len(ratios) >= LEAST_ROUNDS
    return median(ratios) >= (WORTH if enough else OPEN_LEAD) and min(ratios) > 1.0


def _slow(found: Experiments) -> dict[str, float | str]:
    """Who all wait for, for what, and how its loader compares with another's."""
    among, inputs = found.among, [name for name in INPUT_RESOURCES if name in found.speedups]
    facts: dict[str, float | str] = {"speedup": among.speedups()["imbalance"].value, "how": "measured"}
    if inputs:
        facts["resource"] = max(inputs, key=lambda name: found.speedups[name].value)
    if among.slowest is None:
        return facts
    # A number would be worded as a range where several configurations share a sentence.
    facts |= {"rank": str(among.slowest.rank), "host": among.slowest.host}
    return facts | {"slow_images_per_s": among.slowest_alone, "middle_images_per_s": among.middle_alone}


def _beside_gradients(judgement: Judgement, found: Experiments) -> dict[str, float | str]:
    """What a free device, and no exchange of gradients, gain: a free device still exchanges them."""
    gradients, compute = found.speedups.get("gradients"), found.speedups.get("compute")
    if gradients is None or compute is None:
        return {}
    held = bool(found.among.compute) and found.ratios["compute"] == dict(found.among.compute)
    if judgement.cause == "compute" and gradients.value < WORTH and not held:
        return {}
    return {"compute_speedup": compute.value, "gradients_speedup": gradients.value}


def _with_facts(judgement: Judgement, facts: dict[str, float | str]) -> Judgement:
    return replace(judgement, reason=replace(judgement.reason, facts={**judgement.reason.facts, **facts}))

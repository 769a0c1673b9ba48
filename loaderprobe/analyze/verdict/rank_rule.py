"""What several ranks add to a verdict: a slow rank, or host, as its cause, and what else they lose to each other."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.effects import CLEAR_LEAD, ENOUGH_ROUNDS, OPEN_LEAD, of_rounds
from loaderprobe.analyze.slow_host import SlowHost
from loaderprobe.analyze.verdict.evidence import speedup_evidence
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.rule import Judgement
from loaderprobe.records.resources import IN_STEP, INPUTS
from loaderprobe.records.verdict import WORTH, Reason, Speedup
from loaderprobe.stats import median


def with_ranks(judgement: Judgement, found: Experiments) -> Judgement:
    """The judgement on all ranks, unless their input is the limit and that of one rank, or host, makes others wait."""
    speedups = speedups_among(found)
    evidence = (
        *speedup_evidence({name: each for name, each in speedups.items() if name == "imbalance"}, CLEAR_LEAD),
        *speedup_evidence({name: each for name, each in speedups.items() if name == "straggler"}, WORTH),
    )
    judgement = replace(judgement, evidence=(*judgement.evidence, *evidence))
    if judgement.cause in IN_STEP:
        return _with_facts(judgement, _beside_gradients(judgement, found))
    if judgement.side != "input":
        return judgement
    if is_imbalanced(found):
        return replace(judgement, cause="imbalance", candidates=(), reason=Reason(code="slow_rank", facts=_slow(found)))
    if (host := host_behind(found)) is not None:
        facts = _slow_host(found, host)
        return replace(judgement, cause="imbalance", candidates=(), reason=Reason(code="slow_host", facts=facts))
    return _with_facts(judgement, {"straggler_speedup": speedups["straggler"].value} if straggles(found) else {})


def is_imbalanced(found: Experiments) -> bool:
    """True where the slowest rank's input holds up the others, in every round; of few rounds, by a wide margin.

    By itself that rank must be slower, too: what two experiments do not agree on is noise.
    """
    ratios = found.among.ratios.get("imbalance", {})
    if not ratios or found.among.middle_alone < WORTH * found.among.slowest_alone:
        return False
    return of_rounds(ratios).leads_in_each()


def host_behind(found: Experiments) -> SlowHost | None:
    """The host for whose ranks all others wait; None without one, and where one rank is what they wait for.

    In every round nearly all its ranks must be slower by themselves than each rank elsewhere, of few rounds by a wide
    margin. All together must also load faster by themselves than in step: where hosts share a saturated storage
    unevenly, the faster ones only leave more to the others in step.
    """
    among, alone = found.among, list(found.among.ratios.get("straggler", {}).values())
    if among.host is None or not among.host_ratios or not alone or is_imbalanced(found):
        return None
    leads = (dict(enumerate(among.host_leads)), among.host_ratios)
    slow = all(of_rounds(each).leads_in_each() for each in leads) and min(alone) >= WORTH
    return among.host if slow else None


def speedups_among(found: Experiments) -> dict[str, Speedup]:
    """Over the rounds. Where a host is slow, imbalance is that of the host: estimated, and the most that it gains."""
    speedups = found.among.speedups()
    if host_behind(found) is None:
        return speedups
    most = median(list(found.among.host_ratios.values()))
    low = min(most, speedups["straggler"].value)
    return {**speedups, "imbalance": Speedup(value=most, low=low, high=most, how="estimated")}


def straggles(found: Experiments) -> bool:
    """True where ranks alike lose more than noise by waiting for each other's slow batches."""
    ratios = list(found.among.ratios.get("straggler", {}).values())
    if not ratios or is_imbalanced(found) or host_behind(found) or not found.among.alike:
        return False
    enough = len(ratios) >= ENOUGH_ROUNDS
    return median(ratios) >= (WORTH if enough else OPEN_LEAD) and min(ratios) > 1.0


def _slow(found: Experiments) -> dict[str, float | str]:
    """Who all wait for, for what, and how its loader compares with another's."""
    among = found.among
    facts: dict[str, float | str] = {"speedup": among.speedups()["imbalance"].value, "how": "measured"}
    facts |= _resource(found)
    if among.slowest is None:
        return facts
    # A number would be worded as a range where several configurations share a sentence.
    facts |= {"rank": str(among.slowest.rank), "host": among.slowest.host}
    return facts | {"slow_images_per_s": among.slowest_alone, "middle_images_per_s": among.middle_alone}


def _slow_host(found: Experiments, host: SlowHost) -> dict[str, float | str]:
    """The host that all wait for, for what, and how its ranks compare with those elsewhere."""
    most = speedups_among(found)["imbalance"]
    facts: dict[str, float | str] = {"speedup": most.value, "how": most.how, **_resource(found), "host": host.host}
    # Numbers would be worded as a range where several configurations share a sentence.
    facts |= {"slow_ranks": str(host.slow), "host_ranks": str(host.ranks)}
    return facts | {"slow_images_per_s": host.rate, "other_images_per_s": host.elsewhere}


def _resource(found: Experiments) -> dict[str, float | str]:
    """The part of the input that would gain most if it were free."""
    inputs = [name for name in INPUTS if name in found.speedups]
    return {"resource": max(inputs, key=lambda name: found.speedups[name].value)} if inputs else {}


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

"""From what is asked, a workload and the storages on offer to the plan. Pure; words are made where it is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from loaderprobe.analyze.caches import lru_hits, page_cache_hits, pinned_hits
from loaderprobe.analyze.lock_step import lock_step
from loaderprobe.analyze.plan.demand import BUSY_CORES, TRAINING_CORES, demand, needs, workers_of
from loaderprobe.analyze.plan.supply import Offer, judge_supplies, judge_supply, levers, measured_offer
from loaderprobe.analyze.plan.workload import REQUEST_BYTES, PlanWorkload, Stalls, known, product
from loaderprobe.records.plan import (
    Acceptance,
    Asked,
    CacheCurves,
    CacheHits,
    EpochPlan,
    EpochShare,
    LedgerEntry,
    LockStep,
    Need,
    NodeEpochs,
    PlanPart,
    PlanReport,
    PlanSource,
    Quantity,
    Scenario,
    Stragglers,
)
from loaderprobe.records.remark import Remark

# What caches do in general, for the nodes of a plan: cold reads by epoch, and hits by the size of a cache.

CURVE_EPOCHS = 20
CURVE_SHARES = tuple(number / 20 for number in range(21))
OTHER_NODES = 8
"""Beside a plan of one node."""


def cache_curves(nodes: int) -> CacheCurves:
    """What a cache of the whole set leaves to storage by epoch, on one node and on these; hits by a cache's size."""
    shown = sorted({1, nodes if nodes > 1 else OTHER_NODES})
    return CacheCurves(
        epochs=tuple(
            NodeEpochs(nodes=each, cold=tuple(1 - lru_hits(1.0, each, epoch) for epoch in range(1, CURVE_EPOCHS + 1)))
            for each in shown
        ),
        sizes=tuple(
            CacheHits(
                share=share,
                lru=lru_hits(share, nodes),
                page=page_cache_hits(share, nodes),
                pinned=pinned_hits(share),
            )
            for share in CURVE_SHARES
        ),
    )


# What waiting for the slowest of N ranks costs, from the late steps of one.
#
# All ranks wait for the slowest of them at every step. Where they wait together, a step is as late as one rank's; where
# they wait independently, it is as late as the largest of N. Published records of single ranks lie between the two.

LEAST_STEPS = 30


def expected_most(values: Sequence[float], ranks: int) -> float:
    """The mean of the largest of `ranks` values drawn from these, each drawn independently."""
    ordered, count = sorted(values), len(values)
    below = [(place / count) ** ranks for place in range(count + 1)]
    return math.fsum(value * (below[place + 1] - below[place]) for place, value in enumerate(ordered))


def stragglers(stalls: Stalls, ranks: int, utilization: float) -> Stragglers | Remark:
    """The range of what N ranks wait, or why it cannot be said."""
    late, steps = stalls.late_s, len(stalls.late_s)
    if steps < LEAST_STEPS:
        return Remark(code="too_few_steps", facts={"steps": steps, "least": LEAST_STEPS})
    if ranks > steps:
        return Remark(code="fewer_steps_than_ranks", facts={"steps": steps, "ranks": ranks})
    mean, most = math.fsum(late) / steps, expected_most(late, ranks)
    alone = mean / (stalls.step_s + mean)
    if alone > 1 - utilization:
        return Remark(code="accelerator_waited", facts={"share": alone})
    return Stragglers(
        ranks=ranks, steps=steps, longest_s=max(late), alone=alone, independent=most / (stalls.step_s + most)
    )


SHOWN_EPOCHS = (1, 2, 3, 5, 10, 20, 50)
USES = (0.7, 0.9)
"""Other shares of a limit that one may dare to use."""
READERS = 8
"""A node, for the acceptance test, where nothing says how many it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """By what and when."""

    loaderprobe: str
    created_utc: str


def make_plan(
    workload: PlanWorkload, asked: Asked, offers: Sequence[Offer], source: PlanSource, made: Made,
    rulers: Sequence[Offer] = (),
) -> PlanReport:  # fmt: skip
    """The plan. `offers` are beside the storage that the run measured; `rulers` are only compared with the need."""
    measured = measured_offer(workload)
    every = (*((measured,) if measured else ()), *offers)
    one = demand(workload, asked.utilization, asked.images_per_file)
    supplies = judge_supplies(every, one, asked)
    found, refused = needs(workload, asked)
    late = _stragglers(workload, asked)
    if isinstance(late, Remark):
        refused["stragglers"] = late
    in_step = _lock_step(workload, asked)
    if isinstance(in_step, Remark):
        refused["lock_step"] = in_step
    return PlanReport(
        loaderprobe=made.loaderprobe,
        created_utc=made.created_utc,
        source=source,
        asked=asked,
        needs=found,
        supplies=supplies,
        rulers=judge_supplies(rulers, one, asked),
        ramp=workload.storage.ramp if workload.storage else (),
        epochs=epoch_plan(workload, asked),
        curves=cache_curves(asked.nodes),
        stragglers=None if isinstance(late, Remark) else late,
        lock_step=None if isinstance(in_step, Remark) else in_step,
        levers=levers(workload, asked, every, supplies),
        ledger=_ledger(workload, asked, every[0] if every else None, found),
        acceptance=_acceptance(workload, asked, found),
        refused=_in_order({**_beside(workload, in_step), **refused}),
        notes=workload.notes,
    )


def _in_order(refused: Mapping[PlanPart, Remark]) -> dict[PlanPart, Remark]:
    return {part: refused[part] for part in get_args(PlanPart) if part in refused}


def _stragglers(workload: PlanWorkload, asked: Asked) -> Stragglers | Remark:
    if workload.stalls is None:
        return workload.refused.get("stragglers", Remark(code="steps_not_recorded"))
    return stragglers(workload.stalls, asked.accelerators, asked.utilization)


def _lock_step(workload: PlanWorkload, asked: Asked) -> LockStep | Remark | None:
    """What waiting for each other costs as many ranks as are planned for or asked for; None where that is no matter."""
    batches = workload.batches
    if asked.simulate_ranks is None and (batches is None or batches.ranks == 1):
        return None
    if batches is None:
        return workload.refused.get("lock_step", Remark(code="batches_not_timed"))
    ranks = asked.simulate_ranks or asked.accelerators
    return lock_step(batches, batches.images / workload.rate.value, ranks)


def _beside(workload: PlanWorkload, in_step: LockStep | Remark | None) -> Mapping[PlanPart, Remark]:
    """What the workload lacks; without the cost of lock-step where that is no matter."""
    if in_step is not None:
        return workload.refused
    return {part: why for part, why in workload.refused.items() if part != "lock_step"}


def epoch_plan(workload: PlanWorkload, asked: Asked) -> EpochPlan:
    """How long an epoch takes, and what of it reaches the shared storage."""
    if workload.images is None:
        return EpochPlan(seconds=None, cache_share=None, shares=(), sets_read=None)
    seconds = product(
        [workload.images], "s", "images / (N G u)", factor=1 / (asked.accelerators * asked.utilization),
        over=[workload.rate],
    )  # fmt: skip
    if asked.cache.kind == "none":
        return EpochPlan(seconds=seconds, cache_share=None, shares=(), sets_read=None)
    share = min(1.0, asked.cache.bytes / (workload.images.value * workload.file_bytes.value))
    shown = sorted({epoch for epoch in (*SHOWN_EPOCHS, asked.epochs) if epoch <= asked.epochs})
    epochs = [_epoch_share(asked, share, epoch) for epoch in shown]
    return EpochPlan(
        seconds=seconds,
        cache_share=share,
        shares=tuple(epochs),
        sets_read=_sets_read(asked, share),
    )


def _epoch_share(asked: Asked, share: float, epoch: int) -> EpochShare:
    if asked.cache.kind == "pinned":
        cold = 1 - (pinned_hits(share) if epoch > 1 else 0.0)
        return EpochShare(epoch=epoch, cold_low=cold, cold_high=cold)
    hits = page_cache_hits(share, asked.nodes, epoch)
    return EpochShare(epoch=epoch, cold_low=1 - hits.high, cold_high=1 - hits.low)


def _sets_read(asked: Asked, share: float) -> tuple[float, float]:
    shares = [_epoch_share(asked, share, epoch) for epoch in range(1, asked.epochs + 1)]
    return math.fsum(each.cold_low for each in shares), math.fsum(each.cold_high for each in shares)


def _ledger(
    workload: PlanWorkload, asked: Asked, first: Offer | None, found: Sequence[Need]
) -> tuple[LedgerEntry, ...]:
    """All inputs of the plan: first what the run shows, then what was given, then what is assumed."""
    entries: list[tuple[str, Quantity | None]] = [
        ("rate", workload.rate),
        ("file_bytes", workload.file_bytes),
        ("amplification", workload.amplification),
        ("images", workload.images),
        ("cpu_s", workload.cpu_s),
        ("wait_s", workload.wait_s),
        ("other_s", workload.other_s),
        ("utilization", _asked(asked.utilization, given=asked.utilization_given, option="utilization")),
        ("requests_per_file", workload.requests_per_file if asked.images_per_file == 1 else None),
        (
            "request_bytes",
            known(REQUEST_BYTES, "B", "assumed", f"{REQUEST_BYTES // 1024} KiB, the read-ahead of most Linux systems"),
        ),
    ]
    if workload.cpu_s is not None:
        entries.append(("busy_cores", known(BUSY_CORES, "", "assumed", "busier cores make workers wait")))
        entries.append(("training_cores", known(TRAINING_CORES, "cores", "assumed", "one training thread")))
    use = _asked(asked.use, given=asked.use_given, option="use")
    scenarios = tuple(_scenario(value, workload, asked, first) for value in USES if value != asked.use)
    return (
        *(LedgerEntry(name=name, quantity=quantity) for name, quantity in entries if quantity is not None),
        LedgerEntry(name="use", quantity=use, scenarios=scenarios),
    )


def _asked(share: float, *, given: bool, option: str) -> Quantity:
    """A share that an option gives, or its default: an assumption."""
    return known(share, "", "given", option) if given else known(share, "", "assumed", "default")


def _scenario(use: float, workload: PlanWorkload, asked: Asked, first: Offer | None) -> Scenario:
    daring = replace(asked, use=use)
    one = demand(workload, asked.utilization, asked.images_per_file)
    return Scenario(
        value=use,
        read_bytes_to_buy=asked.accelerators * one.read_bytes.value / use,
        feeds=judge_supply(first, one, daring).feeds if first else None,
    )


def _acceptance(workload: PlanWorkload, asked: Asked, found: Sequence[Need]) -> Acceptance:
    """What one node must read, all nodes at once, with the headroom that is bought."""
    node = min(asked.per_node, asked.accelerators)
    images_per_s = node * workload.rate.value * asked.utilization / asked.use
    workers = workers_of(workload, asked.utilization)
    flying = next((need.node for need in found if need.name == "reads_in_flight"), None)
    count = math.ceil(workers.value) if isinstance(workers, Quantity) else None
    readers = node * count if count else math.ceil(flying.high) if flying else READERS * node
    return Acceptance(
        nodes=asked.nodes,
        readers=max(1, readers),
        readers_from="workers" if count else "reads_in_flight" if flying else "assumed",
        bytes_per_s=images_per_s * workload.file_bytes.value,
        files_per_s=images_per_s if asked.images_per_file == 1 else None,
        compute=workload.compute,
        workers=count,
    )

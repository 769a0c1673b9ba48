"""What accelerators need of storage, workers and cores, and what a storage gives: for reports, bandwidth and plans."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.plan.workload import REQUEST_BYTES, PlanWorkload, assumed_too, known, product, scaled, total
from loaderprobe.records.supply import Asked, Feed, PlanSupply, Quantity, SupplyLimit
from loaderprobe.records.thresholds import SATURATED

# What accelerators need of storage, workers and cores.
#
# G images/s of one accelerator alone, u its wanted utilization, s bytes of a file, a storage bytes over bytes asked
# for, f files opened an image. N accelerators need N times that.

Demand = dict[str, Quantity]
"""Of one accelerator at one utilization, by the name of the need."""


def demand(workload: PlanWorkload, utilization: float, images_per_file: int = 1) -> Demand:
    """What one accelerator needs of storage a second, files cold: bytes, requests and, where they are known, opens."""
    read = product([workload.rate, workload.file_bytes, workload.amplification], "B/s", "G u s a", factor=utilization)
    limit = f"{REQUEST_BYTES // 1024} KiB"
    if images_per_file <= 1:
        asked = [workload.rate, workload.requests_per_file]
        requests = product(asked, "1/s", f"G u ceil(s / {limit})", factor=utilization)
    else:
        requests = assumed_too(scaled(replace(read, unit="1/s"), 1 / REQUEST_BYTES, f"{read.formula} / {limit}"))
    if not images_per_file:
        return {"read_bytes": read, "requests": requests}
    opens = product([workload.rate], "1/s", "G u f", factor=utilization / images_per_file)
    return {"read_bytes": read, "opens": opens, "requests": requests}


def cores_of(workload: PlanWorkload, utilization: float) -> Quantity | None:
    """Cores that one accelerator needs; None where the workload has a reason not to know."""
    if "cpu_s" not in workload.times:
        return None
    workers = product([workload.rate, workload.times["cpu_s"]], "cores", "", factor=utilization / SATURATED)
    training = known(1.0, "cores", "assumed", "one training thread")
    return total([workers, training], "cores", f"G u cpu / {SATURATED:g} + 1")


def in_flight(opens: Quantity, file_s: Quantity) -> Quantity:
    """Reads under way at a time (Little 1961): their rate times how long one takes."""
    found = product([opens, file_s], "reads", f"{opens.formula} x time of a file")
    return replace(found, low=opens.value * file_s.low, high=opens.value * file_s.high)


def judge_supply(offer: PlanSupply, one: Demand, asked: Asked) -> PlanSupply:
    """A storage on offer, judged; the limit that is reached first stands first."""
    offered = [limit for limit in offer.limits if limit.resource != "opens" or "opens" in one]
    if asked.nic_bytes_per_s is not None:
        offered.append(SupplyLimit(resource="nic", limit=known(asked.nic_bytes_per_s, "B/s", "given", "nic")))
    limits = sorted((_judged_limit(limit, one, asked) for limit in offered), key=lambda limit: limit.feeds)
    first = limits[0] if limits else None
    timed = offer.latency_s if asked.images_per_file == 1 else None
    return replace(
        offer,
        limits=tuple(limits),
        first_limit=first.resource if first else None,
        feeds=first.feeds if first else None,
        at_least=first.at_least if first else False,
        reads_in_flight=None if timed is None else in_flight(one["opens"], timed),
    )


ONE = Asked(accelerators=1)
"""What is asked of a storage when nothing else is said."""


def feed_of(workload: PlanWorkload) -> Feed | None:
    """How many of the accelerators of a workload its storage feeds; None where it has none that counts."""
    offer = workload.storage
    supply = judge_supply(offer, demand(workload, ONE.utilization), ONE) if offer else None
    if supply is None or supply.feeds is None or supply.first_limit is None:
        return None
    return Feed(
        accelerator=workload.accelerator, images_per_s=workload.rate.value, count=supply.feeds,
        utilization=ONE.utilization, use=ONE.use, first_limit=supply.first_limit, at_least=supply.at_least,
    )  # fmt: skip


def _judged_limit(offered: SupplyLimit, one: Demand, asked: Asked) -> SupplyLimit:
    limit, need = offered.limit, one.get(offered.resource, one["read_bytes"])
    if offered.resource in ("client", "nic"):
        # Of each node, and of the last node only as much as of the others: what it has to spare is of no use to them.
        nodes = asked.accelerators / asked.of_node
        limit = replace(scaled(limit, nodes, "N/A x limit of a node"), label=limit.label)
    return replace(offered, limit=limit, feeds=asked.use * limit.value / need.value)

"""What accelerators need of storage, workers and cores, and what a storage gives: for reports, bandwidth and plans."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from loaderprobe.analyze.plan.workload import (
    HERE,
    REQUEST_BYTES,
    PlanWorkload,
    assumed_too,
    known,
    negative,
    product,
    scaled,
    total,
)
from loaderprobe.records.bandwidth import Feed
from loaderprobe.records.plan import (
    Asked,
    Need,
    NeedName,
    PlanPart,
    PlanSupply,
    Quantity,
    SupplyLimit,
    SupplyResource,
)
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import SATURATED

# What accelerators need of storage, workers and cores.
#
# G images/s of one accelerator alone, u its wanted utilization, s bytes of a file, a storage bytes over bytes asked
# for, f files opened an image. N accelerators need N times that.

TRAINING_CORES = 1.0
"""The training thread of an accelerator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Of one accelerator at one utilization, while files are cold."""

    read_bytes: Quantity
    """Bytes/s from storage."""
    opens: Quantity
    requests: Quantity

    def times(self, accelerators: float) -> Demand:
        """Of so many accelerators together."""
        return Demand(
            read_bytes=scaled(self.read_bytes, accelerators, f"N {self.read_bytes.formula}"),
            opens=scaled(self.opens, accelerators, f"N {self.opens.formula}"),
            requests=scaled(self.requests, accelerators, f"N {self.requests.formula}"),
        )


def demand(workload: PlanWorkload, utilization: float, images_per_file: int = 1) -> Demand:
    """What one accelerator needs."""
    read = product([workload.rate, workload.file_bytes, workload.amplification], "B/s", "G u s a", factor=utilization)
    opens = product([workload.rate], "1/s", "G u f", factor=utilization / images_per_file)
    limit = f"{REQUEST_BYTES // 1024} KiB"
    if images_per_file == 1:
        asked = [workload.rate, workload.requests_per_file]
        requests = product(asked, "1/s", f"G u ceil(s / {limit})", factor=utilization)
    else:
        requests = assumed_too(scaled(replace(read, unit="1/s"), 1 / REQUEST_BYTES, f"{read.formula} / {limit}"))
    return Demand(read_bytes=read, opens=opens, requests=requests)


def needs(workload: PlanWorkload, asked: Asked) -> tuple[tuple[Need, ...], dict[PlanPart, Remark]]:
    """What all accelerators need, and what cannot be said."""
    made = [*_from_storage(workload, asked), *_kept(workload, asked)]
    refused: dict[PlanPart, Remark] = {}
    if not any(need.name == "reads_in_flight" for need in made):
        code: str = "read_not_timed" if asked.images_per_file == 1 else "read_in_shard_not_timed"
        refused["reads_in_flight"] = Remark(code=code)
    workers, most = _whole_workers(workload, asked.utilization), _whole_workers(workload, 1.0)
    if isinstance(workers, Remark):
        refused["workers"] = workers
    elif isinstance(most, Quantity):
        made += _read_time(workload, asked.utilization, workers, most)
        made.append(_of_each("workers", workers, most, asked))
    cores, at_most = cores_of(workload, asked.utilization), cores_of(workload, 1.0)
    if isinstance(cores, Remark):
        refused["cores"] = cores
    elif isinstance(at_most, Quantity):
        made.append(_of_each("cores", cores, at_most, asked))
    return tuple(made), refused


def _of_each(name: NeedName, wanted: Quantity, most: Quantity, asked: Asked) -> Need:
    """A need of one accelerator, in its host."""
    node = scaled(wanted, asked.of_node, f"A {wanted.formula}")
    return Need(name=name, at_utilization=wanted, at_most=most, to_buy=None, node=node)


def workers_of(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Workers that one accelerator needs, or why that is not known."""
    parts = workload.cpu_s, workload.wait_s, workload.other_s
    if parts[0] is None or parts[1] is None or parts[2] is None:
        return _reason(workload, "workers")
    whole = total([parts[0], parts[1], parts[2]], "s", "cpu + wait + other")
    return product([workload.rate, whole], "workers", "G u (cpu + wait + other)", factor=utilization)


def cores_of(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Cores that one accelerator needs, or why that is not known."""
    if workload.cpu_s is None:
        return _reason(workload, "cores")
    workers = product([workload.rate, workload.cpu_s], "cores", "", factor=utilization / SATURATED)
    training = known(TRAINING_CORES, "cores", "assumed", "one training thread")
    return total([workers, training], "cores", f"G u cpu / {SATURATED:g} + 1")


def _whole_workers(workload: PlanWorkload, utilization: float) -> Quantity | Remark:
    """Rounded up, as workers are whole."""
    found = workers_of(workload, utilization)
    if isinstance(found, Remark):
        return found
    value, low, high = (float(math.ceil(end)) for end in (found.value, found.low, found.high))
    return replace(found, value=value, low=low, high=high, formula=f"ceil({found.formula})")


def _read_time(workload: PlanWorkload, utilization: float, workers: Quantity, most: Quantity) -> Iterator[Need]:
    """What a read may take on average, so that so many workers are enough."""
    if workload.cpu_s is None or workload.other_s is None:
        return
    busy = negative(workload.cpu_s), negative(workload.other_s)
    times: list[Quantity] = []
    for count, share in ((workers, utilization), (most, 1.0)):
        exact = replace(count, low=count.value, high=count.value)
        image_s = product([exact], "s", "", over=[workload.rate], factor=1 / share)
        times.append(total([image_s, *busy], "s", "W / (G u) - cpu - other"))
    if times[0].value > 0:
        yield Need(name="read_time", at_utilization=times[0], at_most=times[1], to_buy=None, node=None)


def in_flight(opens: Quantity, file_s: Quantity) -> Quantity:
    """Reads under way at a time (Little 1961): their rate times how long one takes."""
    found = product([opens, file_s], "reads", f"{opens.formula} x time of a file")
    return replace(found, low=opens.value * file_s.low, high=opens.value * file_s.high)


def _from_storage(workload: PlanWorkload, asked: Asked) -> Iterator[Need]:
    mean = demand(workload, asked.utilization, asked.images_per_file)
    most = demand(workload, 1.0, asked.images_per_file)
    yield _need("read_bytes", mean.read_bytes, most.read_bytes, asked)
    yield _need("opens", mean.opens, most.opens, asked)
    yield _need("requests", mean.requests, most.requests, asked)
    storage = workload.storage
    if storage is not None and asked.images_per_file == 1 and workload.same_files:
        wanted, at_most = (in_flight(one.times(asked.accelerators).opens, storage.file_s) for one in (mean, most))
        node = in_flight(mean.times(asked.of_node).opens, storage.file_s)
        yield Need(name="reads_in_flight", at_utilization=wanted, at_most=at_most, to_buy=None, node=node)


def _kept(workload: PlanWorkload, asked: Asked) -> Iterator[Need]:
    """What storage must hold, and how fast it must take a checkpoint that was asked for."""
    if workload.images is not None:
        yield _bought("capacity", product([workload.images, workload.file_bytes], "B", "images s"), asked)
    write = asked.checkpoint
    if write is not None:
        rate = known(write.bytes / (write.every_s * write.share), "B/s", "given", "checkpoint")
        yield _bought("checkpoint", rate, asked)


def _bought(name: NeedName, need: Quantity, asked: Asked) -> Need:
    """A need that does not depend on how well accelerators are used."""
    return Need(name=name, at_utilization=need, at_most=need, to_buy=_to_buy(need, asked), node=None)


def _to_buy(need: Quantity, asked: Asked) -> Quantity:
    to_buy = scaled(need, 1 / asked.use, f"{need.formula or need.source} / r")
    return to_buy if asked.use_given else assumed_too(to_buy)


def _need(name: NeedName, one: Quantity, full: Quantity, asked: Asked) -> Need:
    at_utilization = scaled(one, asked.accelerators, f"N {one.formula}")
    return Need(
        name=name,
        at_utilization=at_utilization,
        at_most=scaled(full, asked.accelerators, f"N {full.formula}, u = 1"),
        to_buy=_to_buy(at_utilization, asked),
        node=scaled(one, asked.of_node, f"A {one.formula}"),
    )


def _reason(workload: PlanWorkload, part: PlanPart) -> Remark:
    return workload.refused.get(part, Remark(code="part_not_measured"))


# What a storage supplies: its limits beside the need, the one that is reached first, and how many it feeds.

PER_NODE: tuple[SupplyResource, ...] = ("client", "nic")


def measured_offer(workload: PlanWorkload) -> PlanSupply | None:
    """The storage that the run measured; None where it measured none that counts."""
    storage = workload.storage
    if storage is None:
        return None
    limits = [SupplyLimit(resource="bandwidth", limit=storage.read_bytes_per_s, at_least=storage.at_least)]
    if storage.opens_per_s is not None:
        limits.append(SupplyLimit(resource="opens", limit=storage.opens_per_s, at_least=storage.opens_at_least))
    elif not workload.same_files:
        # Of the very files that are planned for, files/s and bytes/s are one figure.
        limits.append(SupplyLimit(resource="opens", limit=storage.files_per_s, at_least=True))
    return PlanSupply(
        name=HERE,
        label="measured",
        source=storage.source,
        limits=tuple(limits),
        latency_s=storage.file_s if workload.same_files else None,
        notes=storage.notes,
    )


def judge_supply(offer: PlanSupply, one: Demand, asked: Asked) -> PlanSupply:
    """A storage on offer, judged; the limit that is reached first stands first."""
    offered = list(offer.limits)
    if asked.nic_bytes_per_s is not None:
        offered.append(SupplyLimit(resource="nic", limit=known(asked.nic_bytes_per_s, "B/s", "given", "nic")))
    limits = sorted((_judged_limit(limit, one, asked) for limit in offered), key=lambda limit: limit.feeds)
    first = limits[0] if limits and math.isfinite(limits[0].feeds) else None
    flying = None if offer.latency_s is None else in_flight(one.opens, offer.latency_s)
    return replace(
        offer,
        limits=tuple(limits),
        first_limit=first.resource if first else None,
        feeds=first.feeds if first else None,
        at_least=first.at_least if first else False,
        reads_in_flight=flying if asked.images_per_file == 1 else None,
    )


ONE = Asked(accelerators=1)
"""What is asked of a storage when nothing else is said."""


def feed_of(workload: PlanWorkload) -> Feed | None:
    """How many of the accelerators of a workload its storage feeds; None where it has none that counts."""
    offer = measured_offer(workload)
    supply = judge_supply(offer, demand(workload, ONE.utilization), ONE) if offer else None
    if supply is None or supply.feeds is None or supply.first_limit is None:
        return None
    return Feed(
        accelerator=workload.accelerator, images_per_s=workload.rate.value, count=supply.feeds,
        utilization=ONE.utilization, use=ONE.use, first_limit=supply.first_limit, at_least=supply.at_least,
    )  # fmt: skip


def _judged_limit(offered: SupplyLimit, one: Demand, asked: Asked) -> SupplyLimit:
    need = {
        "bandwidth": one.read_bytes,
        "opens": one.opens,
        "requests": one.requests,
        "client": one.read_bytes,
        "nic": one.read_bytes,
    }[offered.resource]
    limit = offered.limit
    if offered.resource in PER_NODE:
        limit = replace(scaled(limit, asked.nodes, "M x limit of a node"), label=limit.label)
    return replace(offered, limit=limit, feeds=asked.use * limit.value / need.value)

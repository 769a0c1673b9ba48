"""A workload from a bandwidth result of ranks: readers of the storage are counted, in whichever rank they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.analyze.plan.from_bandwidth import workload_of_bandwidth
from loaderprobe.analyze.plan.quantities import scaled
from loaderprobe.analyze.plan.workload import Workload
from loaderprobe.analyze.rank_bandwidth import UNFAIR, has_ended
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthPhase, RankBandwidthReport, RanksPhase
from loaderprobe.records.plan import Quantity
from loaderprobe.records.remark import Remark


def workload_of_ranks(found: RankBandwidthReport, accelerator: str, rate: Quantity) -> Workload:
    """What the ranks read, for accelerators of this name and rate. Raises BadValue where files are not images."""
    ladder = _ladder(found.phases)
    workload = workload_of_bandwidth(_as_one_process(found, ladder), accelerator, rate)
    storage, most = workload.storage, found.largest
    if storage is None or most is None:
        return workload
    facts: dict[str, float | str] = {"clients": most.clients, "next": 2 * most.clients}
    ended = has_ended(found.phases)
    notes = (*([] if ended else [Remark(code="clients_at_least", facts=facts)]), *_uneven(most))
    best = next(each for each in ladder if each.clients == storage.readers)
    source = f"{storage.source} in {best.ranks} rank{'s' * (best.ranks > 1)}"
    return replace(
        workload, storage=replace(storage, source=source, at_least=not ended, notes=(*storage.notes, *notes))
    )


def by_slowest(workload: Workload, found: RankBandwidthReport) -> Workload:
    """The same with a storage that gives as many times what the slowest of the most ranks gets."""
    storage, most = workload.storage, found.largest
    if storage is None or most is None:
        return workload
    best = next(each for each in _ladder(found.phases) if each.clients == storage.readers)
    share = most.in_step_bw_bytes / best.bw_bytes
    slower = replace(
        storage,
        read_bytes_per_s=scaled(storage.read_bytes_per_s, share, "R x slowest"),
        files_per_s=scaled(storage.files_per_s, share, "R x slowest"),
    )
    return replace(workload, storage=slower)


def _uneven(most: RanksPhase) -> Sequence[Remark]:
    """Accelerators in step wait for the slowest rank."""
    if most.fairness >= UNFAIR or not most.long_enough:
        return ()
    slow = most.slowest
    facts: dict[str, float | str] = {
        "rank": str(slow.rank), "host": slow.host, "share": most.fairness, "bytes_per_s": most.in_step_bw_bytes,
    }  # fmt: skip
    return (Remark(code="ranks_uneven", facts=facts),)


def _ladder(phases: Sequence[RanksPhase]) -> list[RanksPhase]:
    """By readers of all ranks; of steps with as many the fastest, since one process or node may hold the others up."""
    best: dict[int, RanksPhase] = {}
    for each in sorted(phases, key=lambda phase: phase.bw_bytes):
        best[each.clients] = each
    return [best[clients] for clients in sorted(best)]


def _as_one_process(found: RankBandwidthReport, ladder: Sequence[RanksPhase]) -> BandwidthMeasurement:
    """The same reads as if one process had made them."""
    environment = found.origin.environment
    phases = [_phase(each, found) for each in ladder]
    # Also of a step that is no part of the ladder.
    if any(each.cache in ("warm", "mixed") for each in found.phases):
        phases = [replace(each, cache="mixed") for each in phases]
    return BandwidthMeasurement(
        loaderprobe=environment.loaderprobe,
        fio=None,
        created_utc=found.origin.created_utc,
        kernel=environment.kernel,
        cores_available=environment.cores_available,
        path=found.path,
        location=found.location,
        files_found=found.files_found,
        files_used=found.files_used,
        mean_size_bytes=found.mean_size_bytes,
        images=found.images,
        scratch=False,
        drop_caches=False,
        interrupted=found.interrupted,
        phases=tuple(phases),
        notes=found.notes,
    )


def _phase(step: RanksPhase, found: RankBandwidthReport) -> BandwidthPhase:
    delivered = sum(each.io_bytes for each in step.by_rank)
    counted = [each.storage_bytes for each in step.by_rank if each.storage_bytes is not None]
    storage = sum(counted) if len(counted) == len(step.by_rank) else None
    return BandwidthPhase(
        name="files",
        engine="threads",
        readers=step.clients,
        block_bytes=None if found.whole_files else round(found.mean_size_bytes),
        pause_s_per_byte=0.0,
        runtime=step.runtime,
        io_bytes=delivered,
        bw_bytes=step.bw_bytes,
        bw_low=step.bw_low,
        bw_high=step.bw_high,
        settled=step.settled,
        iops=step.files_per_s,
        total_ios=round(step.files_per_s * step.runtime / 1e3),
        files_per_s=step.files_per_s,
        clat_ns=step.file_ns,
        file_ns=step.file_ns,
        storage_bytes=storage,
        cold_fraction=step.cold_fraction,
        amplification=storage / delivered if storage and step.cache == "cold" else None,
        other_bytes_per_s=None,
        resident_before=None,
        cache=step.cache,
        first_third_bw_bytes=step.bw_bytes,
        last_third_bw_bytes=step.bw_bytes,
        cpu_cores=step.cpu_cores,
        at_least=step.at_least,
        unread=step.unread,
    )

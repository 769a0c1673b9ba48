"""The batches of a measurement that a replay draws from: of ranks those that each made alone, else of the loader."""

from __future__ import annotations

from loaderprobe.analyze.forecast.schedule import batch_seconds
from loaderprobe.analyze.lock_step.price import Batches
from loaderprobe.analyze.slow_host import host_names
from loaderprobe.analyze.verdict.disk import NEAR_CEILING
from loaderprobe.analyze.verdict.rates import NS
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Verdict


def batches_of(measurement: Measurement, verdict: Verdict) -> Batches | Remark:
    """What was measured of one configuration, or why no batch's time is known."""
    loader, bound = measurement.config.loader, verdict.bound
    alone = tuple(tuple(each / NS for each in seen.service_ns) for seen in measurement.by_rank)
    series = alone or tuple(map(tuple, batch_seconds(measurement, base_mode(measurement))))
    if not any(series):
        return Remark(code="batches_not_timed")
    straggler = verdict.speedups.straggler
    return Batches(
        series=series,
        by_rank=bool(alone),
        images=rank_images(measurement),
        workers=loader.workers,
        prefetch_factor=loader.prefetch_factor,
        ranks=measurement.ranks,
        slow_ranks=_slow_ranks(measurement, verdict),
        slow_host=bound.host if bound.cause == "imbalance" and bound.rank is None else "",
        saturated=(verdict.disk_ceiling_fraction or 0.0) >= NEAR_CEILING,
        measured_cost=straggler.value if alone and straggler is not None and straggler.how == "measured" else None,
    )


def _slow_ranks(measurement: Measurement, verdict: Verdict) -> frozenset[int]:
    """The rank that the verdict names, or all ranks of the host that it names."""
    bound = verdict.bound
    if bound.cause != "imbalance":
        return frozenset()
    if bound.rank is not None:
        return frozenset({bound.rank})
    hosts = host_names([(seen.node, seen.host) for seen in measurement.by_rank])
    return frozenset(seen.rank for seen, host in zip(measurement.by_rank, hosts, strict=True) if host == bound.host)


def rank_images(measurement: Measurement) -> int:
    """Images of one rank's batch: a sweep is asked for that many, while the ranks of a script ask for all together."""
    together = measurement.config.compute.batch_size
    return together if measurement.config.ranks > 1 else max(1, together // measurement.ranks)

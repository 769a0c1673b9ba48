"""Changes that lower the need: shards, caches, fewer bytes, a lower utilization; and what each storage feeds then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.analyze.caches import page_cache_share_for
from loaderprobe.analyze.plan.demand import Demand, demand
from loaderprobe.analyze.plan.quantities import scaled
from loaderprobe.analyze.plan.supply import Offer, judge_supplies
from loaderprobe.analyze.plan.workload import Workload
from loaderprobe.records.plan import Asked, CacheSize, Lever, LeverName, Supply, SupplyFeeds

SHARD_IMAGES = 1251
"""Images a shard of MLPerf Storage's ResNet-50."""
LESS_UTILIZATION = 0.1
LEAST_UTILIZATION = 0.5
_LEAST_HITS = 1e-9


def levers(workload: Workload, asked: Asked, offers: Sequence[Offer], supplies: Sequence[Supply]) -> tuple[Lever, ...]:
    """Every change that applies."""
    made: list[Lever] = []
    if asked.images_per_file == 1:
        sharded = replace(asked, images_per_file=SHARD_IMAGES)
        made.append(_lever("shards", SHARD_IMAGES, workload, sharded, offers))
    caches = tuple(size for supply in supplies if (size := _cache_for(supply, workload, asked)))
    if caches:
        now = demand(workload, asked.utilization, asked.images_per_file)
        made.append(_of("cache", 0.0, now, asked, (), caches))
    half = workload.file_bytes.value / 2
    made.append(_lever("half_size", half, workload.changed(file_bytes=half), asked, offers))
    lower = asked.utilization - LESS_UTILIZATION
    if lower >= LEAST_UTILIZATION:
        made.append(_lever("utilization", lower, workload, replace(asked, utilization=lower), offers))
    return tuple(made)


def _lever(name: LeverName, to: float, workload: Workload, asked: Asked, offers: Sequence[Offer]) -> Lever:
    one = demand(workload, asked.utilization, asked.images_per_file)
    feeds = tuple(
        SupplyFeeds(supply=each.name, feeds=each.feeds, first_limit=each.first_limit)
        for each in judge_supplies(offers, one, asked)
    )
    return _of(name, to, one, asked, feeds, ())


def _of(
    name: LeverName, to: float, one: Demand, asked: Asked, feeds: tuple[SupplyFeeds, ...],
    caches: tuple[CacheSize, ...],
) -> Lever:  # fmt: skip
    count = asked.accelerators
    return Lever(
        name=name,
        to=to,
        read_bytes=scaled(one.read_bytes, count, f"N {one.read_bytes.formula}"),
        opens=scaled(one.opens, count, f"N {one.opens.formula}"),
        feeds=feeds,
        caches=caches,
    )


def _cache_for(supply: Supply, workload: Workload, asked: Asked) -> CacheSize | None:
    """The hits that let this storage feed all accelerators, and the cache of a node that gives them.

    None where it is enough, and where it may be: of a storage that gives at least so much, no need follows.
    """
    if supply.feeds is None or supply.at_least or supply.feeds >= asked.accelerators:
        return None
    hits = 1 - supply.feeds / asked.accelerators
    if hits < _LEAST_HITS:
        return None
    set_bytes = None if workload.images is None else workload.images.value * workload.file_bytes.value
    page = page_cache_share_for(hits, asked.nodes)
    return CacheSize(
        supply=supply.name,
        hits=hits,
        pinned_bytes=None if set_bytes is None else hits * set_bytes,
        page_bytes=None if set_bytes is None else page.high * set_bytes,
        page_bytes_low=None if set_bytes is None else page.low * set_bytes,
    )

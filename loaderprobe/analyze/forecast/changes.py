"""Forecasts: the rate of training after one change, by the models of the storage at hand, with its range.

Each follows the measured configuration: the model gives what the loader changes to, the loop what that means for
training, and what measured training differed by from its parts is kept. What was measured outranks the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from loaderprobe.analyze.effects import fewest, ladder, ranked
from loaderprobe.analyze.forecast.fit import Fit, Point, ServiceTimes, fit
from loaderprobe.records import thresholds
from loaderprobe.records.measurement import Alternative
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.remark import Remark
from loaderprobe.records.resources import Bottleneck
from loaderprobe.records.verdict import Changed, Forecast, How, Interval, Knee
from loaderprobe.stats import lowest
from loaderprobe.units import significant

TAR_BYTES = 1800
"""Of a sample beside its image: two headers, its class, and what fills up blocks of 512 bytes (POSIX ustar)."""
TAR_READ_BYTES = 1 << 20
"""What a reader of tar takes at once, here and in others."""
UNDER_WAY = 2
"""Requests that a reader in sequence waits for at once: Linux asks for the next part where it comes to one, before it
waits for that. From: page_cache_async_ra in mm/readahead.c; seen on a FUSE disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneAFile:
    """Images that lie one a file."""

    image_bytes: float
    read_ahead_bytes: int
    """What a request of a file that is read in sequence brings at most."""
    generated: bool
    """True where a sweep writes them in the layouts that it is asked for."""


LoaderRate = Callable[[ServiceTimes, float], float]
"""From an altered service and the rate of its model to the rate of the loader."""


def _trained(fit: Fit, at: Point, service: ServiceTimes, rate_of: LoaderRate) -> tuple[Interval, Bottleneck, bool]:
    """(images/s, the bottleneck, whether more workers gain more) by an altered model."""
    anchor, loader = fit.anchor, rate_of(service, service.loader(at.workers))
    down, up = _drift(fit, at, service, rate_of, loader)
    # A serial loader has no work of the training thread, and takes it from the fit.
    at = replace(at, parent_s=anchor.parent_s if anchor.workers else service.parent_s)

    def training(loader: float, compute: float) -> float:
        return at.loop.end_to_end(loader, compute) * fit.whole

    value = training(loader, at.compute)
    low = training(loader * (1 - down), at.compute * (1 - anchor.compute_spread))
    high = training(loader * (1 + up), at.compute * (1 + anchor.compute_spread))
    margin = max(thresholds.REPEAT, anchor.training_spread)
    terms = _terms(at, service, loader)
    nearest, next_nearest = sorted(terms.values())[:2]
    if next_nearest <= thresholds.CLEAR_LEAD * nearest:
        margin = max(margin, thresholds.NEAR_KNEE)
    by_law = service.terms(at.workers)
    rising = by_law["workers"] <= min(*by_law.values(), terms["compute"]) and not service.crowded(at.workers)
    rate = Interval(value=value, low=min(low, value * (1 - margin)), high=max(high, value * (1 + margin)))
    return rate, lowest(terms), rising


def _drift(fit: Fit, at: Point, service: ServiceTimes, rate_of: LoaderRate, loader: float) -> tuple[float, float]:
    """Relative: how much slower and faster the loader may be at another time.

    In two factors: the CPU time of an image, as far as the model makes the rate depend on it, and all else. They have
    nothing to do with each other, so their squares add up.
    """

    def at_speed(factor: float) -> float:
        altered = service.with_cpu_speed(factor)
        return rate_of(altered, altered.loader(at.workers)) / loader

    unseen = at.workers and not service.parent_s and not fit.anchor.workers
    down = math.hypot(fit.drift, max(0.0, 1 - at_speed(1 / (1 + fit.cpu_drift))))
    up = math.hypot(fit.drift, max(0.0, at_speed(1 + fit.cpu_drift) - 1))
    sent = 1 - 1 / (1 + thresholds.UNSEEN_COPIES * fit.anchor.collated)
    return min(thresholds.MOST_DOWN, down + (max(thresholds.UNSEEN_HANDOVER, sent) if unseen else 0.0)), up


def _terms(at: Point, service: ServiceTimes, loader: float) -> dict[Bottleneck, float]:
    """Images/s that each resource allows; a loader held down by an experiment is held down in its tightest term."""
    terms: dict[Bottleneck, float] = {"compute": at.compute}
    if at.synchronous and at.workers:
        terms["compute"] = 1 / (1 / at.compute + at.parent_s)
    by_law = service.terms(at.workers)
    tightest = lowest(by_law)
    for term, rate in by_law.items():
        name = service.bottleneck(term, at.workers)
        terms[name] = min(terms.get(name, math.inf), loader if term == tightest else rate)
    return terms


def workers(fit: Fit, count: int) -> Forecast:
    """With another number of workers; 0 is the serial loader."""
    if count == fit.anchor.workers:
        return unchanged(fit)
    return _forecast(fit, "workers", str(count), at=replace(fit.anchor, workers=count))


def unchanged(fit: Fit) -> Forecast:
    """The measured configuration itself: its own rate, and what the models say limits it.

    Where more of a token bucket's credit was in it than it repeats by, the rate that lasts, which is estimated.
    """
    found = _forecast(fit, "workers", str(fit.anchor.workers))
    spread = max(thresholds.REPEAT, fit.anchor.training_spread)
    measured = fit.anchor.training * fit.credit
    lasts = fit.credit <= 1 + thresholds.REPEAT
    value = measured if lasts else fit.anchor.training
    rate = Interval(value=value, low=value * (1 - spread), high=max(value, measured) * (1 + spread))
    return replace(found, images_per_s=rate, how="measured" if lasts else "estimated", refused=None)


def disk(fit: Fit, factor: float) -> Forecast:
    """On storage of the same kind, `factor` times as fast."""
    to = f"{significant(factor)} times as fast"
    if fit.anchor.unproved:
        return refused("disk_speed", to, fit.anchor.unproved)
    # No storage makes the loader faster than memory does, where that was measured.
    most = max(fit.anchor.measured.get("storage", math.inf), fit.anchor.loader)
    return _forecast(
        fit, "disk_speed", to, alter=lambda service: service.with_disk(factor), loader=lambda _, rate: min(rate, most)
    )


def shards(fit: Fit, images: OneAFile, storage: StorageCeiling) -> Forecast:
    """With the same images in tar shards that workers read in sequence.

    A file takes a request for each part of it that is read ahead. So does a shard, but its parts hold whole images, and
    of those that are read at once the first has arrived while images were decoded. Where requests are the limit, one
    brings more than what is read ahead, and what is read at once or more: the forecast is between these. How far
    readers and kernel run ahead of the decoding is not known, so the range ends where no request is waited for.
    """
    if fit.anchor.unproved:
        return refused("layout", "tar", fit.anchor.unproved)
    ahead, by_requests = images.read_ahead_bytes, storage.by_requests
    if by_requests is None and storage.device_kind in ("token_bucket", "single_server"):
        return refused("layout", "tar", Remark(code="requests_or_bytes"))
    at_once = max(ahead, TAR_READ_BYTES)
    under_way = 1 if by_requests else UNDER_WAY
    waits = math.ceil((at_once / ahead - 1) / under_way)
    waited = at_once / waits if waits else math.inf
    brings = (ahead, math.sqrt(ahead * at_once) if by_requests else waited, math.inf)
    larger = 1 + TAR_BYTES / images.image_bytes
    now = math.ceil(images.image_bytes / ahead / under_way)
    # No layout makes the loader faster than memory does, where that was measured.
    most = max(fit.anchor.measured.get("storage", math.inf), fit.anchor.loader)

    def made(brought: float) -> Forecast:
        # Where nothing is waited for, opening fewer files also saves the CPU time of it, how much is not known.
        faster = 1.0 if brought < math.inf else 1 + thresholds.LAYOUT_SAVES
        requests = min(1.0, larger * images.image_bytes / brought / now)
        return _forecast(
            fit, "layout", "tar", loader=lambda _, rate: min(rate, faster * most),
            alter=lambda service: service.in_shards(requests, larger, by_requests=bool(by_requests)),
        )  # fmt: skip

    return _ranging([made(brought) for brought in brings])


def _ranging(made: Sequence[Forecast]) -> Forecast:
    """The one in the middle of three, whose range holds those of all; or the first that is refused."""
    rates = [each.images_per_s for each in made if each.images_per_s]
    if len(rates) < len(made):
        return next(each for each in made if each.refused)
    low, high = min(rate.low for rate in rates), max(rate.high for rate in rates)
    return replace(made[1], images_per_s=replace(rates[1], low=low, high=high))


def cached(fit: Fit, share: float) -> Forecast:
    """With memory for this share of the files in the page cache, which answers less than that: `page_cache_hits`.

    The range holds the range of that model. All of the files is the rate with warm files, where that was measured.
    """
    hits = page_cache_hits(share)
    hit = f", {100 * hits.low:.0f} to {100 * hits.high:.0f} % hits" if hits.low < hits.high else ""
    to = f"{100 * share:.0f} % of the files{hit}"
    return _ranging([_answered(fit, "page_cache_share", to, each) for each in (hits.low, hits.value, hits.high)])


def pinned(fit: Fit, share: float) -> Forecast:
    """With this share of the files always in memory (locked, or as a copy in tmpfs): it is the share of hits."""
    return _answered(fit, "pinned_share", f"{100 * share:.0f} % of the files", share)


def accelerator(fit: Fit, images_per_s: float, name: str = "") -> Forecast:
    """With an accelerator that trains at this rate by itself. Unlike a CPU, it works while the host goes on."""
    at = replace(fit.anchor, compute=images_per_s, synchronous=fit.anchor.synchronous and not fit.anchor.on_cpu)
    return _forecast(fit, "accelerator", name or f"{significant(images_per_s)} images/s", at=at)


def examples(fit: Fit) -> list[Forecast]:
    """Changes that are forecast but never advised: storage twice as fast, and memory for half of the files."""
    return [disk(fit, 2.0), cached(fit, 0.5), pinned(fit, 0.5)] if fit.anchor.from_storage else []


def alternative(fit: Fit, measured: Alternative) -> Forecast:
    """With another decoder, or with bytes sent instead of floats; from CPU times of one rank, measured side by side."""
    changed: Changed = "tensor" if measured.name == "uint8" else "decoder"
    free = fit.anchor.measured.get("preprocessing", math.inf) if changed == "decoder" else math.inf
    ranks = fit.anchor.ranks
    return _forecast(
        fit,
        changed,
        measured.name,
        alter=lambda service: service.with_cpu(measured.cpu_s / ranks, measured.usual_cpu_s / ranks),
        loader=lambda _, rate: min(rate, max(free, fit.anchor.loader)),
    )


def refused(changed: Changed, to: str, reason: Remark) -> Forecast:
    """No rate, and why."""
    return Forecast(changed=changed, to=to, images_per_s=None, bottleneck=None, how="estimated", refused=reason)


def _answered(fit: Fit, changed: Changed, to: str, hits: float) -> Forecast:
    """With this share of the reads answered from memory."""
    if fit.anchor.unproved:
        return refused(changed, to, fit.anchor.unproved)
    warm = fit.anchor.measured.get("storage")
    now_s = 1 / fit.anchor.loader

    def between(service: ServiceTimes, rate: float) -> float:
        if warm is None:
            return rate
        # The model's time an image, led to the measured one where everything is in memory.
        by_law = service.with_cached(1.0).loader(fit.anchor.workers)
        return 1 / min(now_s, max(1e-12, 1 / rate + hits * (1 / warm - 1 / by_law)))

    # The loader's rate is measured then; what training makes of it is predicted, unless it was measured, too.
    how: How = "measured" if warm is not None and hits == 1 and fit.anchor.trained_warm else "estimated"
    return _forecast(fit, changed, to, alter=lambda service: service.with_cached(hits), loader=between, how=how)


def _forecast(
    fit: Fit, changed: Changed, to: str, *, at: Point | None = None, how: How = "estimated",
    alter: Callable[[ServiceTimes], ServiceTimes] = lambda service: service,
    loader: LoaderRate = lambda _, rate: rate,
) -> Forecast:  # fmt: skip
    """With one change to a fit: to its service, its loop, or what was measured instead.

    `at` is the measured configuration, with the workers and the compute that it has then.
    """
    found, at = [], at or fit.anchor
    for model in fit.models:
        service = alter(model)
        rate, bottleneck, rising = _trained(fit, at, service, loader)
        asked = min(loader(service, service.loader(at.workers)), rate.value) * service.bytes_per_image
        if asked > service.unproved_bytes_per_s:
            return refused(changed, to, Remark(code="more_than_storage", facts={"bytes_per_s": asked}))
        found.append((rate, bottleneck, rising))
    found.sort(key=lambda trained: trained[0].value)
    rates = [rate for rate, *_ in found]
    least, most = rates[0].value, rates[-1].value
    if most > thresholds.MODELS_DISAGREE * least:
        reason = Remark(code="laws_disagree", facts={"least_images_per_s": least, "most_images_per_s": most})
        return refused(changed, to, reason)
    middle, bottleneck, rising = found[len(found) // 2]
    return Forecast(
        changed=changed,
        to=to,
        images_per_s=replace(middle, low=min(rate.low for rate in rates), high=max(rate.high for rate in rates)),
        bottleneck=bottleneck,
        rising=rising,
        how=how,
        refused=None,
    )


def worker_forecasts(points: Sequence[Point], storage: StorageCeiling) -> dict[int, Forecast]:
    """Training for each worker count worth a look, from the measured point nearest to it.

    Measured counts are in it with what was measured. Never more than twice the cores that were measured on.
    """
    by_workers = {point.workers: point for point in points}
    most = math.floor(thresholds.MOST_WORKERS_A_CORE * min(point.cores for point in points))
    found: dict[int, Forecast] = {}
    for number in sorted({*by_workers, *takewhile(lambda n: n <= max(most, 1), ladder())}):
        anchor = by_workers[min(by_workers, key=lambda known: abs(_place(known) - _place(number)))]
        fitted = fit(points, anchor, storage)
        if not isinstance(fitted, Remark):
            found[number] = workers(fitted, number)
        elif point := by_workers.get(number):
            found[number] = measured(number, point.rate)
        else:
            found[number] = refused("workers", str(number), fitted)
    return found


def measured(workers: int, rate: Interval) -> Forecast:
    """The rate with so many workers, of which no model knows more than that."""
    return Forecast(
        changed="workers", to=str(workers), images_per_s=rate, bottleneck=None, how="measured", refused=None
    )


def find_knee(keys: Sequence[str], forecasts: dict[int, Forecast], taken: int | None = None) -> Knee:
    """The knee of these forecasts; `keys` name the configurations behind them.

    `taken` is the smallest number of workers that was seen to use all cores: more of them are not forecast.
    """
    rates = {number: each.images_per_s for number, each in forecasts.items() if each.images_per_s}
    chosen = fewest(ranked(rates))
    bottleneck: Bottleneck | None = None
    if chosen is not None:
        # The bottleneck beyond: at the knee itself the workers may still be the limit, within 2 %.
        beyond = [number for number in rates if number >= chosen]
        bottleneck = forecasts[beyond[1] if len(beyond) > 1 else chosen].bottleneck
        if len(beyond) == 1 and forecasts[chosen].rising:
            bottleneck = None
        if taken is not None and chosen >= taken:
            bottleneck = "cores"
    return Knee(
        keys=tuple(keys),
        workers=chosen,
        images_per_s=None if chosen is None else rates[chosen],
        how="estimated" if chosen is None else forecasts[chosen].how,
        bottleneck=bottleneck,
        forecasts=tuple(forecasts.values()),
    )


def _place(number: int) -> float:
    return math.log2(max(number, 0.5))


# What caches answer where every epoch reads each image once, in a random order: a part of the set in memory.
#
# Pinned and page cache are two things: a pinned part of the files always stays, and answers its share of the reads from
# the epoch after the one that fills it; in the page cache the kernel decides what stays.


def lru_hits(share: float) -> float:
    """Share of reads that one node's cache answers which drops the least recently used files: c + (1-c) ln(1-c).

    An image is found again when this node read fewer than c of the set since: last read at position x and now at y,
    that is (1-x) (1-y) >= 1 - c.
    """
    return share + (1 - share) * math.log1p(-share) if share < 1 else 1.0


def lru_share_for(hits: float) -> float:
    """The share of the set that such a cache must hold for so many hits: the inverse, by Lambert's W."""
    from scipy.special import lambertw

    return float(1 - math.exp(1 + lambertw((hits - 1) / math.e, -1).real))


def seen_before(nodes: int, epoch: int) -> float:
    """Share of a node's reads that it made in an epoch before: 1 - (1-1/M)^(e-1).

    Each node gets a random part of every epoch (a shuffle over all images, as `DistributedSampler` with `set_epoch`
    makes it). So no cache of several nodes that fills as they read answers more, however large.
    """
    return 1 - (1 - 1 / nodes) ** (epoch - 1)


def page_cache_hits(share: float, epoch: int | None = None) -> Interval:
    """The same of Linux's page cache on one node, with a range: from LRU's hits to 3/4 of the way to pinned files.

    Measured on Linux 6.18 (active and inactive lists), `scripts/bench forecast caches`: `explain plan` has the table.

    By epoch 2 the kernel has seen no file twice, so it has LRU's hits. What is read twice moves to the active list,
    which from 1 GiB on may be sqrt(10 x GiB) times as long as the other: so a larger cache answers more, up to the
    upper end in a simulation of these lists for 1 TB.
    """
    least = lru_hits(share)
    if epoch == 2:
        return Interval(value=least, low=least if share >= 1 else thresholds.LEAST_OF_LRU * least, high=least)
    more = share - least
    return Interval(value=least + thresholds.WAY * more, low=least, high=least + thresholds.MOST_WAY * more)

"""How many accelerators ranks that read at once feed: what `plan` says of the same result, and in step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from loaderprobe.analyze.bandwidth import feed_of
from loaderprobe.analyze.plan.from_rank_bandwidth import by_slowest, workload_of_ranks
from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.workload import Workload
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import Feed, RankBandwidthReport


def rank_feeds(found: RankBandwidthReport, accelerators: Mapping[str, float]) -> tuple[Feed, ...]:
    """By what all ranks get together; `accelerators` gives images/s by name."""
    return tuple(feed for each in _workloads(found, accelerators) if (feed := feed_of(each)))


def rank_feeds_in_step(found: RankBandwidthReport, accelerators: Mapping[str, float]) -> tuple[Feed, ...]:
    """By as many times the slowest of the most ranks."""
    return tuple(feed for each in _workloads(found, accelerators) if (feed := feed_of(by_slowest(each, found))))


def _workloads(found: RankBandwidthReport, accelerators: Mapping[str, float]) -> Iterator[Workload]:
    """None of files that are no images, or of blocks: the bytes of an image are not known."""
    if not found.images:
        return
    for name, rate in accelerators.items():
        try:
            yield workload_of_ranks(found, name, known(rate, "images/s", "given", name))
        except BadValue:
            return

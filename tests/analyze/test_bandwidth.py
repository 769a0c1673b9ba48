"""What a ladder means, on made-up ladders of known shape: of readers of one process, and of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.phases import BandwidthPhase, CacheLabel
from tests.examples.bandwidth import FILE_BYTES, ORIGIN, example_bandwidth, example_phase, example_ranks
from tests.fakes import example_location

FLAT = {1: 20.1e6, 2: 20.0e6, 4: 20.3e6}
RISING = {1: 8.8e6, 2: 17.6e6, 4: 34.7e6, 8: 68e6, 16: 104e6}
LEVELLING = {1: 600e6, 2: 900e6, 4: 1050e6, 8: 1100e6, 16: 1110e6}
UNEVEN = {1: 392e6, 4: 634e6, 16: 700e6, 32: 600e6, 64: 760e6}


def phases_of(ladder: Mapping[int, float], paced: float | None = None) -> tuple[BandwidthPhase, ...]:
    """A ladder of bytes/s by readers; `paced` is the time a file takes after pauses over that without."""
    steps = [example_phase(readers, rate) for readers, rate in ladder.items()]
    if paced is None:
        return tuple(steps)
    alone = FILE_BYTES / ladder[1]
    resting = example_phase(1, FILE_BYTES / (paced * alone), name="paced", pause_s_per_byte=2 / ladder[1])
    # Pauses count in the rate, but not in the time a file takes.
    return (*steps, replace(resting, bw_bytes=ladder[1] / 3, files_per_s=ladder[1] / 3 / FILE_BYTES))


def judged(*phases: BandwidthPhase, **changes: Any) -> BandwidthReport:
    example = example_bandwidth()
    known = {field.name: getattr(example, field.name) for field in fields(BandwidthMeasurement)}
    measured = BandwidthMeasurement(**{**known, "phases": phases, "missing": (), "notes": (), **changes})
    return judge_bandwidth(measured, {"mlperf-h100": 1000.0, "slow": 10.0}, ORIGIN)


@pytest.mark.parametrize(
    ("ladder", "code", "by", "knee"),
    [
        (FLAT, "flat", "bandwidth", 1),
        (RISING, "rises", "latency", None),
        ({**RISING, 32: 105e6, 64: 106e6}, "rises", "latency", 16),
        (LEVELLING, "rises_then_flat", "latency then bandwidth", 8),
        ({1: 600e6, 4: 1000e6, 16: 1200e6}, "rises_then_flat", "unknown", None),
        (UNEVEN, "uneven", "unknown", None),
        ({4: 20e6}, "one_step", "unknown", None),
        ({}, "no_step", "unknown", None),
    ],
)
def test_the_shape_shows_the_limit(ladder: dict[int, float], code: str, by: str, knee: int | None) -> None:
    """A flat ladder is bandwidth, one in proportion is latency, one that levels off is both, one step is neither."""
    limit = judged(*phases_of(ladder)).limit
    assert (limit.code, limit.by, limit.knee_readers) == (code, by, knee)
    if code == "uneven":
        names = ("before_readers", "after_readers", "before_bytes_per_s", "after_bytes_per_s")
        assert [limit.facts[name] for name in names] == [16, 32, 700e6, 600e6]


ONE, TWO, FOUR = example_ranks(20e6), example_ranks(10.2e6, 10.2e6), example_ranks(*[5.1e6] * 4)
UNEQUAL = example_ranks(6e6, 6e6, 6e6, 3.5e6)


def short(phase: BandwidthPhase) -> BandwidthPhase:
    """The same from 0.1 s of reading."""
    return replace(phase, by_rank=tuple(replace(rank, seconds=0.1) for rank in phase.by_rank))


SLOW_HOST = example_ranks(9e6, 8e6, 4e6, 4.5e6, nodes=2)
NODE, SPREAD = (example_ranks(*[rate] * 8, nodes=nodes) for rate, nodes in ((2e6, 1), (3e6, 8)))


@pytest.mark.parametrize(
    ("phases", "code", "by", "facts"),
    [
        ((ONE, TWO, FOUR), "plateau", "bandwidth", {}),
        ((ONE, TWO), "rising", "unknown", {}),
        ((ONE, example_ranks(18e6, 18e6), example_ranks(*[15e6] * 4)), "rising", "unknown", {}),
        ((FOUR,), "one_step_of_ranks", "unknown", {}),
        ((ONE, TWO, UNEQUAL), "slow_rank", "rank", {"rank": 3, "host": "node0", "share": 3.5 / 6}),
        ((ONE, TWO, example_ranks(5.3e6, 5.3e6, 5.3e6, 4.4e6)), "plateau", "bandwidth", {}),
        ((ONE, TWO, short(UNEQUAL)), "too_short", "unknown", {}),
        ((ONE, SLOW_HOST), "slow_host", "host", {"host": "node1", "slow_ranks": 2, "host_ranks": 2}),
        ((ONE, example_ranks(*[8e6] * 4, nodes=4), example_ranks(18e6, readers=8)), "process", "process", {}),
        ((NODE, SPREAD), "process", "process", {"fewer_nodes": 1, "nodes": 8}),
        ((ONE, TWO, replace(FOUR, at_least=True)), "probe_busy", "probe", {}),
        ((ONE, TWO, replace(FOUR, cache="warm")), "from_memory", "memory", {}),
    ],
)
def test_the_steps_of_ranks_show_the_limit(
    phases: tuple[BandwidthPhase, ...], code: str, by: str, facts: dict[str, Any]
) -> None:
    """Two doublings without a gain are the storage's; what ranks, hosts and processes hold up is theirs, and named."""
    report = judged(*phases)
    assert (report.limit.code, report.limit.by) == (code, by)
    assert {name: report.limit.facts[name] for name in facts} == pytest.approx(facts)
    assert report.kind.facts == {"because": "ranks_do_not_pause"}


def with_cache(label: CacheLabel, *, readers: int | None = None) -> list[BandwidthPhase]:
    """A flat ladder whose phases, or only that of so many readers, were in this state."""
    phases = phases_of(FLAT, paced=0.05)
    return [replace(each, cache=label if readers in (None, each.readers) else "cold") for each in phases]


@pytest.mark.parametrize(
    ("phases", "changes", "by", "share"),
    [
        (with_cache("warm"), {}, "memory", "wholly"),
        (with_cache("mixed"), {}, "memory", "partly"),
        (with_cache("mixed", readers=4), {}, "memory", "partly"),
        (with_cache("unproved"), {"location": replace(example_location("/data"), kind="memory", devices=())}, "memory",
         "wholly"),
        ([replace(each, at_least=each.readers > 1) for each in phases_of(FLAT, paced=0.05)], {}, "probe", None),
    ],
)  # fmt: skip
def test_memory_and_a_busy_probe_are_no_limit_of_storage(
    phases: list[BandwidthPhase], changes: dict[str, Any], by: str, share: str | None
) -> None:
    """Whatever the shape, one step is enough: no kind of device either, and memory feeds nothing."""
    report = judged(*phases, **changes)
    assert (report.limit.by, report.limit.facts.get("share"), report.kind.kind) == (by, share, "unknown")
    assert bool(report.feeds) == (by == "probe")


@pytest.mark.parametrize(
    ("ladder", "paced", "kind"),
    [
        (FLAT, 0.05, "token_bucket"),
        (FLAT, 0.45, "token_bucket"),
        (FLAT, 1.02, "single_server"),
        (FLAT, 0.7, "unknown"),
        (RISING, 1.07, "latency"),
        (RISING, 0.3, "unknown"),
        (LEVELLING, 1.1, "unknown"),
        (LEVELLING, 0.3, "unknown"),
    ],
)
def test_ladder_and_pauses_show_the_kind(ladder: dict[int, float], paced: float, kind: str) -> None:
    """Flat and quick after pauses: token bucket. Flat and as slow: single server. In proportion: latency."""
    found = judged(*phases_of(ladder, paced)).kind
    assert found.kind == kind
    assert [part.value for part in found.evidence] == pytest.approx([ladder[max(ladder)] / ladder[1], paced], rel=1e-6)


def test_a_ladder_that_was_cut_short_has_no_limit() -> None:
    """More readers, or more ranks, might get more: what was measured is flat, but nothing ended the ladder."""
    assert judged(*phases_of(FLAT, paced=0.3), interrupted=True).limit.code == "flat"
    for phases in (phases_of(FLAT), (ONE, TWO, FOUR)):
        limit = judged(*phases, interrupted=True, metadata=()).limit
        assert (limit.code, limit.by, limit.knee_readers) == ("interrupted", "unknown", None)


def test_feeds_counts_accelerators() -> None:
    """Four fifths of the images/s of the best step, over nine tenths of those of one; no images feed none."""
    ladder = phases_of({1: 100 * FILE_BYTES, 2: 500 * FILE_BYTES})
    report = judged(*ladder)
    counts = {"mlperf-h100": 0.5 * 0.8 / 0.9, "slow": 50.0 * 0.8 / 0.9}
    assert {feed.accelerator: feed.count for feed in report.feeds} == pytest.approx(counts)
    assert {(feed.utilization, feed.use, feed.first_limit) for feed in report.feeds} == {(0.9, 0.8, "bandwidth")}
    blocks = (replace(phase, block_bytes=131_072) for phase in ladder)
    unproved = (replace(phase, cache="unproved") for phase in ladder)
    assert judged(*ladder, images=False).feeds == judged(*blocks).feeds == judged(*unproved).feeds == ()
    # Ranks in step get four times what the slowest gets, of 53 MB/s.
    of_ranks = judged(example_ranks(20e6), example_ranks(15e6, 15e6, 15e6, 8e6))
    in_step = [feed.count * 53 / 32 for feed in of_ranks.feeds_in_step]
    assert in_step == pytest.approx([feed.count for feed in of_ranks.feeds]) and len(in_step) == 2
    assert report.feeds_in_step == ()

"""`bandwidth`: of this process and of ranks, on paths that are no folder of images, and what its ladder means."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import loaderprobe
from loaderprobe.analyze.plan.sources import judge_bandwidth
from loaderprobe.api.bandwidth import Bandwidth, ladder_of
from loaderprobe.cli.border import as_ctrl_c
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.ranks.launch import spread
from loaderprobe.measure.runner import Order
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.phases import BandwidthPhase, CacheLabel
from loaderprobe.records.rank_processes import Node, ReadResult
from loaderprobe.render.bandwidth import bandwidth_document
from loaderprobe.storage.by_ranks import RankReader, read_step
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing import example_config
from tests.cli.invoke import invoke
from tests.examples.bandwidth import FILE_BYTES, ORIGIN, example_bandwidth, example_phase, example_ranks
from tests.fakes import FakeGroup, example_location
from tests.planted.slow_disk import random_files
from tests.stored import failure

TWO_NODES = (Node(host="a", processes=(0, 1), gpus=0), Node(host="b", processes=(2, 3), gpus=0))


def coordinator_of_one(failed: RunFailure | None = None) -> Any:
    """Rank 0 of one, which reads in this process; `failed` is how that ends, where it fails."""

    def run(order: Order, *_: Any, **__: Any) -> ReadResult | RunFailure:
        assert order.read is not None
        (group,) = FakeGroup.of(1)
        phase = read_step(RankReader(order.read, group, LinuxPageCache(), 4.0))
        return failed or ReadResult(config=order.config, phase=phase)

    return SimpleNamespace(nodes=(Node(host="a", processes=(0,), gpus=0),), run=run)


def test_one_rank_reads_and_one_that_fails_is_named_with_its_host(tmp_path: Path) -> None:
    """Real files, whole, each within the agreed time; each rank reads files of its own."""
    random_files(tmp_path, count=256)
    coordinator = coordinator_of_one()
    found = loaderprobe.bandwidth(tmp_path, coordinator=coordinator, readers=2, seconds=0.1)
    (phase,) = found.phases
    assert phase.bw_bytes > 0 and phase.by_rank[0].host == "a" and found.images and not found.interrupted
    assert found.limit.code in ("one_step_of_ranks", "probe_busy", "from_memory") and found.kind.kind == "unknown"
    failing = coordinator_of_one(failure(example_config(), "it was killed by SIGKILL", stage="run 1", rank=1, host="b"))
    with pytest.raises(LoaderprobeError, match=r"rank 1 \(b\): it was killed by SIGKILL \(run 1\)"):
        loaderprobe.bandwidth(tmp_path, coordinator=failing, readers=2, seconds=0.1)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "0.jpg").write_bytes(bytes(50_000))
    with pytest.raises(BadValue, match="has 1 file to read, too few for 1 rank of 1 reader: 4 are needed"):
        loaderprobe.bandwidth(tmp_path / "one", coordinator=coordinator, readers=1)


def test_the_ladder_of_ranks() -> None:
    """(ranks, nodes, readers): doubles up to all processes, and ends with as many readers in one, which separates the
    limit of a process from the storage's; layouts choose the nodes."""

    def steps(*layouts: str) -> list[tuple[int, int, int]]:
        found = ladder_of([spread(text, TWO_NODES) for text in layouts] or None, TWO_NODES, 2)
        return [(step.ranks, step.nodes, step.readers) for step in found]

    assert steps() == [(1, 1, 2), (2, 1, 2), (4, 2, 2), (1, 1, 8)] and steps("2", "2x1") == [(2, 1, 2), (2, 2, 2)]
    with pytest.raises(BadValue, match="8 ranks are asked for"):
        steps("8")


def test_caches_that_may_not_be_dropped_are_a_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a user without root's rights."""
    random_files(tmp_path, count=12)
    refused = Mock(side_effect=MissingPart("not permitted here"))
    monkeypatch.setattr("loaderprobe.api.bandwidth.drop_all_caches", refused)
    with pytest.raises(MissingPart, match="not permitted here"):
        loaderprobe.bandwidth(tmp_path, drop_caches=True, readers=1, seconds=0.1)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_hangup_interrupts_unless_it_is_ignored(before: signal.Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by nohup: the probe goes on when its terminal is closed. Who calls the command has its signals back."""
    during: list[object] = []

    def probe(*_: object, **__: object) -> Bandwidth:
        during.append(signal.getsignal(signal.SIGHUP))
        return Bandwidth.of(example_bandwidth())

    monkeypatch.setattr("loaderprobe.api.bandwidth.bandwidth", probe)
    usual = {number: signal.signal(number, before) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        done = invoke("bandwidth", "/data", "--quiet", "--md")
        assert done.exit_code == 0 and done.stdout.startswith("# Storage, or its cache, delivers ")
        assert {signal.getsignal(number) for number in usual} == {before}
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    assert during == [before if before == signal.SIG_IGN else as_ctrl_c]


FLAT, TOKENS = {1: 20.1e6, 2: 20.0e6, 4: 20.3e6}, "token_bucket"
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
    ("ladder", "code", "by", "knee", "kinds"),
    [
        (FLAT, "flat", "bandwidth", 1, {0.05: TOKENS, 0.45: TOKENS, 1.02: "single_server", 0.7: "unknown"}),
        (RISING, "rises", "latency", None, {1.07: "latency", 0.3: "unknown"}),
        ({**RISING, 32: 105e6, 64: 106e6}, "rises", "latency", 16, {}),
        (LEVELLING, "rises_then_flat", "latency then bandwidth", 8, {1.1: "unknown", 0.3: "unknown"}),
        ({1: 600e6, 4: 1000e6, 16: 1200e6}, "rises_then_flat", "unknown", None, {}),
        (UNEVEN, "uneven", "unknown", None, {}),
        ({4: 20e6}, "one_step", "unknown", None, {}),
        ({}, "no_step", "unknown", None, {}),
    ],
)
def test_the_shape_shows_the_limit_and_pauses_the_kind(
    ladder: dict[int, float], code: str, by: str, knee: int | None, kinds: dict[float, str]
) -> None:
    """A flat ladder is bandwidth, one in proportion is latency, one that levels off is both, one step is neither.

    Flat and quick after pauses: token bucket. Flat and as slow: single server. In proportion: latency.
    """
    limit = judged(*phases_of(ladder)).limit
    assert (limit.code, limit.by, limit.knee_readers) == (code, by, knee)
    if code == "uneven":
        names = ("before_readers", "after_readers", "before_bytes_per_s", "after_bytes_per_s")
        assert [limit.facts[name] for name in names] == [16, 32, 700e6, 600e6]
    for paced, kind in kinds.items():
        found = judged(*phases_of(ladder, paced)).kind
        shown = [part.value for part in found.evidence]
        assert found.kind == kind and shown == pytest.approx([ladder[max(ladder)] / ladder[1], paced], rel=1e-6)


@pytest.mark.parametrize(("busy", "kind"), [((16,), "latency"), ((1,), "unknown"), ((4, 8, 16), "latency")])
def test_a_rate_of_at_least_that_shows_latency(busy: tuple[int, ...], kind: str) -> None:
    """Where the probe was the limit with many readers, they would have scaled further; not where one reader kept it."""
    phases = [replace(each, at_least=each.readers in busy) for each in phases_of(RISING, 1.0)]
    assert judged(*phases).kind.kind == kind


ONE, TWO, FOUR = example_ranks(20e6), example_ranks(10.2e6, 10.2e6), example_ranks(*[5.1e6] * 4)
UNEQUAL = example_ranks(6e6, 6e6, 6e6, 3.5e6)


def short(phase: BandwidthPhase) -> BandwidthPhase:
    """The same from 0.1 s of reading."""
    return replace(phase, by_rank=tuple(replace(rank, seconds=0.1) for rank in phase.by_rank))


def on_hosts(nodes: int, *rates: float) -> BandwidthPhase:
    """One rank of each rate, in 100 kB/s, as many on each host."""
    return example_ranks(*(rate * 1e5 for rate in rates), nodes=nodes)


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
        # All of its ranks but one in eight are slower than every rank elsewhere, of which there are several.
        ((ONE, on_hosts(3, 114, 110, 37, 40, 120, 112)), "slow_host", "host", {"bytes_per_s": 38.5e5}),
        ((ONE, on_hosts(2, *[110] * 8, *[37] * 7, 111)), "slow_host", "host", {"slow_ranks": 7, "host_ranks": 8}),
        ((ONE, on_hosts(2, *[110] * 7, *[37] * 6, 111)), "slow_rank", "rank", {}),
        ((ONE, on_hosts(2, 114, 37)), "slow_rank", "rank", {"rank": 1}),
        ((ONE, on_hosts(2, 114, 110, 37, 95)), "slow_rank", "rank", {"rank": 2}),
        ((ONE, on_hosts(3, 114, 110, 37, 37, 36, 38)), "slow_rank", "rank", {"rank": 4}),
        ((ONE, example_ranks(*[8e6] * 4, nodes=4), example_ranks(18e6, readers=8)), "process", "process", {}),
        ((NODE, SPREAD), "process", "process", {"fewer_nodes": 1, "nodes": 8}),
        ((ONE, TWO, replace(FOUR, at_least=True)), "probe_busy", "probe", {}),
        ((ONE, TWO, replace(FOUR, cache="warm")), "from_memory", "memory", {}),
    ],
)
def test_ranks_show_the_limit(phases: tuple[BandwidthPhase, ...], code: str, by: str, facts: dict[str, Any]) -> None:
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
def test_no_limit_of_storage(phases: list[BandwidthPhase], changes: dict[str, Any], by: str, share: str | None) -> None:
    """Whatever the shape, one step is enough: no kind of device either, and memory feeds nothing."""
    report = judged(*phases, **changes)
    assert (report.limit.by, report.limit.facts.get("share"), report.kind.kind) == (by, share, "unknown")
    assert bool(report.feeds) == (by == "probe")
    # The step that is called the best came from storage, where one did.
    assert report.best and (report.best.cache == "cold") == any(phase.cache == "cold" for phase in phases)
    shown, cold = bandwidth_document(report), report.best.cache == "cold"
    assert shown.unsure == (by == "memory") and ("at least" in shown.headline) == cold


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

"""What a ladder means, on made-up ladders of known shape."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthPhase, BandwidthReport
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from tests.examples.bandwidth import FILE_BYTES, example_bandwidth, example_operations, example_phase
from tests.said import said

FLAT = {1: 20.1e6, 2: 20.0e6, 4: 20.3e6}
RISING = {1: 8.8e6, 2: 17.6e6, 4: 34.7e6, 8: 68e6, 16: 104e6}
LEVELLING = {1: 600e6, 2: 900e6, 4: 1050e6, 8: 1100e6, 16: 1110e6}


def judged(ladder: dict[int, float], *, paced: float | None = None, **changes: Any) -> BandwidthReport:
    """The report of a ladder of bytes/s by readers; `paced` is the time a file takes after pauses over that without."""
    phases = [example_phase(readers, rate) for readers, rate in ladder.items()]
    if paced is not None:
        alone = FILE_BYTES / ladder[1]
        resting = example_phase(1, FILE_BYTES / (paced * alone), name="paced", pause_s_per_byte=2 / ladder[1])
        # Pauses count in the rate, but not in the time a file takes.
        phases.append(replace(resting, bw_bytes=ladder[1] / 3, files_per_s=ladder[1] / 3 / FILE_BYTES))
    return judged_phases(*phases, **changes)


def judged_phases(*phases: BandwidthPhase, **changes: Any) -> BandwidthReport:
    example = example_bandwidth()
    known = {field.name: getattr(example, field.name) for field in fields(BandwidthMeasurement)}
    measured = BandwidthMeasurement(**{**known, "phases": phases, "missing": (), "notes": (), **changes})
    return judge_bandwidth(measured, {"mlperf-h100": 1000.0, "slow": 10.0})


@pytest.mark.parametrize(
    ("ladder", "by", "knee"),
    [
        (FLAT, "bandwidth", 1),
        (RISING, "latency", None),
        ({**RISING, 32: 105e6, 64: 106e6}, "latency", 16),
        (LEVELLING, "latency then bandwidth", 8),
        ({1: 600e6, 4: 1000e6, 16: 1200e6}, "unknown", None),
        ({4: 20e6}, "unknown", None),
        ({}, "unknown", None),
    ],
)
def test_the_shape_shows_the_limit(ladder: dict[int, float], by: str, knee: int | None) -> None:
    """A flat ladder is bandwidth, one in proportion is latency, one that levels off is both, one step is neither."""
    limit = judged(ladder).limit
    assert (limit.by, limit.knee_readers) == (by, knee) and said(limit).endswith(".")


def test_the_words_are_those_of_storage_people() -> None:
    """The sentences say bandwidth-limited and latency-limited, with the rate."""
    assert "Bandwidth-limited" in said(judged(FLAT).limit) and "20.3 MB/s" in said(judged(FLAT).limit)
    assert "Latency-limited" in said(judged(RISING).limit)


@pytest.mark.parametrize(("label", "word"), [("warm", "wholly"), ("mixed", "partly")])
def test_memory_is_no_limit_of_storage(label: str, word: str) -> None:
    """Files that came from memory tell nothing about the disk, whatever the shape."""
    phases = [example_phase(readers, 5e9, cache=label) for readers in (1, 2, 4)]
    limit = judged_phases(*phases).limit
    assert limit.by == "memory" and word in said(limit)
    assert judged_phases(*phases).feeds == ()


def test_a_probe_that_is_the_limit_says_so() -> None:
    """When the probe's CPU is used up, the storage may be faster."""
    limit = judged_phases(example_phase(1, 3e9), example_phase(4, 6e9, at_least=True)).limit
    assert limit.by == "probe"


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
    found = judged(ladder, paced=paced).kind
    assert found.kind == kind
    assert [each.value for each in found.evidence] == pytest.approx([ladder[max(ladder)] / ladder[1], paced], rel=1e-6)


def test_no_kind_without_its_phases() -> None:
    """Where the paced phase was left out, the kind is unknown, with the phase's reason."""
    found = judged(FLAT, missing=(Missing(name="paced", reason=Remark(code="no_single_reader")),)).kind
    assert found.kind == "unknown" and "concurrency 1" in said(found)


def test_no_kind_from_memory() -> None:
    """Reads that came from memory say nothing about the device's kind."""
    report = judged(FLAT, paced=0.05)
    phases = tuple(replace(phase, cache="warm") for phase in report.phases)
    assert judged_phases(*phases).kind.kind == "unknown"


def test_one_step_from_memory_spoils_the_shape() -> None:
    """A ladder of which one step came from memory has no limit and no kind, wherever that step is."""
    for spoiled in (1, 4):
        report = judged(FLAT, paced=0.05)
        phases = [replace(phase, cache="mixed") if phase.readers == spoiled else phase for phase in report.phases]
        again = judged_phases(*phases)
        assert (again.limit.by, again.kind.kind, again.feeds) == ("memory", "unknown", ())


def test_a_file_system_in_memory_is_no_storage() -> None:
    """Where nothing is counted because everything is memory, nothing is said of a device."""
    place = replace(example_bandwidth().location, kind="memory", devices=())
    phases = [replace(phase, cache="unproved") for phase in judged(FLAT, paced=1.0).phases]
    report = judged_phases(*phases, location=place)
    assert (report.limit.by, report.kind.kind, report.feeds) == ("memory", "unknown", ())


def test_a_busy_probe_gives_no_kind() -> None:
    """A ladder that is flat because the probe ran out of cores is no single server."""
    phases = [replace(phase, at_least=phase.readers > 1) for phase in judged(FLAT, paced=1.0).phases]
    assert judged_phases(*phases).kind.kind == "unknown"


def test_a_noisy_ladder_is_not_surely_flat() -> None:
    """Where the intervals allow a rise, or there are none, no kind is given."""
    for width in (0.0, 0.35):
        phases = [
            replace(phase, bw_low=(1 - width) * phase.bw_bytes, bw_high=(1 + width) * phase.bw_bytes)
            for phase in judged(FLAT, paced=1.0).phases
        ]
        assert judged_phases(*phases).kind.kind == "unknown"


def test_a_ladder_that_was_cut_short_has_no_limit() -> None:
    """More readers might get more: what was measured is flat, but nothing ended the ladder."""
    assert judged(FLAT, metadata=()).limit.by == judged(FLAT, paced=0.3, interrupted=True).limit.by == "bandwidth"
    limit = judged(FLAT, interrupted=True, metadata=()).limit
    assert (limit.by, limit.knee_readers) == ("unknown", None) and "interrupted" in said(limit)


def test_feeds_counts_accelerators() -> None:
    """Four fifths of the images/s of the best step, over nine tenths of those of one; no images feed none."""
    report = judged({1: 100 * FILE_BYTES, 2: 500 * FILE_BYTES})
    counts = {"mlperf-h100": 0.5 * 0.8 / 0.9, "slow": 50.0 * 0.8 / 0.9}
    assert {feed.accelerator: feed.count for feed in report.feeds} == pytest.approx(counts)
    assert {(feed.utilization, feed.use, feed.first_limit) for feed in report.feeds} == {(0.9, 0.8, "bandwidth")}
    assert judged(FLAT, images=False).feeds == ()


def test_opens_give_out_before_bandwidth() -> None:
    """Cold opens/s below the files/s of the ladder end the count; warm ones never do."""
    ladder: dict[int, float] = {1: 100 * FILE_BYTES, 2: 500 * FILE_BYTES}
    cold = judged(ladder, metadata=example_operations({1: 90.0, 4: 100.0, 16: 100.0}))
    assert {feed.accelerator: feed.count for feed in cold.feeds}["slow"] == pytest.approx(10 * 0.8 / 0.9)
    assert {feed.first_limit for feed in cold.feeds} == {"opens"}
    warm = judged(ladder, metadata=example_operations({1: 100.0}, metadata="warm", drops=0))
    assert warm.feeds == judged(ladder).feeds


def test_what_cannot_be_proved_cold_feeds_none() -> None:
    """As in a plan: where nothing counts what storage delivered, no accelerators are counted."""
    unproved = [replace(phase, cache="unproved") for phase in judged(FLAT).phases]
    assert judged_phases(*unproved).feeds == ()


def test_an_unsettled_step_is_not_the_best() -> None:
    """749 ±92 is no better than 736 ±20: the lower end of the interval counts. 1500 ±92 is."""
    steady = example_phase(8, 736e6, bw_low=716e6, bw_high=756e6)
    noisy = example_phase(16, 749e6, bw_low=657e6, bw_high=841e6, settled=False)
    assert judged_phases(steady, noisy).best == steady
    faster = replace(noisy, bw_bytes=1500e6, bw_low=1408e6, bw_high=1592e6)
    assert judged_phases(steady, faster).best == faster


def test_an_uneven_ladder_is_not_latency_limited_to_its_end() -> None:
    """Where 32 readers get less than 16, and 64 more again, it is not known where it levels off; both are named."""
    limit = judged({1: 392e6, 4: 634e6, 16: 700e6, 32: 600e6, 64: 760e6}).limit
    assert (limit.by, limit.knee_readers) == ("unknown", None)
    assert "32 readers fewer (600 MB/s) than 16 (700 MB/s)" in said(limit)
    assert "Latency-limited" not in said(limit)

"""The disk's side of a measurement: shares, read-ahead, others' reads, and reasons where there is no figure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.verdict.validity import DiskUse, disk_use
from loaderprobe.records.bandwidth import BandwidthPhase, StorageCeiling
from loaderprobe.records.measurement import Measurement, segments_of
from loaderprobe.records.remark import Remark, reported
from tests.analyze.runs import Cost, alike, run
from tests.examples.bandwidth import example_phase

TRAINING = 700.0
"""Images/s."""


def _read_ahead() -> Measurement:
    """A cold measurement with 2 workers, whose disk moved what the loader read and as much for others."""
    made = run(alike(baseline=TRAINING), Cost(cpu_s=0.001, blocked_s=0.002), workers=2)
    segments = tuple(
        replace(s, delivered_bytes=1000 * s.steps * s.batch_size, disk_bytes=2200 * s.steps * s.batch_size)
        for s in made.segments
    )
    records = made.worker_batches
    batches = replace(records, read_bytes=tuple(1100 * images for images in records.images))
    return replace(made, segments=segments, worker_batches=batches)


MEASURED = _read_ahead()


def _use(measurement: Measurement, *phases: BandwidthPhase, **changes: Any) -> DiskUse:
    ceiling = StorageCeiling(data=measurement.config.data, phases=phases, **changes) if phases or changes else None
    return disk_use(measurement, segments_of(measurement, "baseline", "training"), ceiling, TRAINING)


def test_the_share_is_of_the_ceiling_at_this_concurrency() -> None:
    """Device bytes are compared with device bytes: read-ahead counts on both sides."""
    rate = _use(MEASURED).read_bytes_per_s
    assert rate
    phase = example_phase(2, rate, io_bytes=1000, storage_bytes=2000)
    found = _use(MEASURED, example_phase(1, 1e3), phase)
    assert found.ceiling_fraction == pytest.approx(0.5)
    assert found.facts() == {"read_bytes_per_s": rate, "ceiling_share": pytest.approx(0.5), "concurrency": 2.0}


def test_amplification_and_others() -> None:
    """Storage bytes over bytes delivered is read-ahead; what the device moved beyond ours is others'."""
    found = _use(MEASURED)
    assert found.amplification == pytest.approx(1.1)
    assert found.read_bytes_per_s and found.other_bytes_per_s == pytest.approx(found.read_bytes_per_s)
    metrics = [each.metric for each in found.evidence()]
    assert {"read_amplification", "other_read_bytes_per_s"} <= set(metrics)


@pytest.mark.parametrize("label", ["warm", "mixed", "unproved"])
def test_a_ceiling_that_was_not_cold_is_none(label: str) -> None:
    """A ceiling measured from memory would make any disk look idle."""
    found = _use(MEASURED, example_phase(2, 1e6, cache=label))
    assert found.ceiling_fraction is None and found.facts() == {}
    assert found.unavailable["disk_ceiling_fraction"] == Remark(code="ceiling_not_cold", facts={"files": label})


def test_a_ceiling_of_the_probe_is_none_of_the_disk() -> None:
    """Where the probe ran out of cores the disk's own ceiling is higher, and not known."""
    found = _use(MEASURED, example_phase(2, 3e9, at_least=True))
    reason = Remark(code="cores_below_ceiling", facts={"bytes_per_s": 3e9})
    assert found.ceiling_fraction is None and found.unavailable["disk_ceiling_fraction"] == reason


def test_every_missing_figure_has_a_reason() -> None:
    """Without a ceiling, with its failure, on uncounted storage, and with warm files, the reason is given."""
    assert _use(MEASURED).unavailable["disk_ceiling_fraction"].code == "ceiling_not_measured"
    failed = _use(MEASURED, missing=reported("the files vanished"))
    assert failed.unavailable["disk_ceiling_fraction"] == reported("the files vanished")
    uncounted = _use(replace(MEASURED, storage_counts_reads=False), example_phase(2, 1e6))
    assert (uncounted.read_bytes_per_s, uncounted.cold_fraction, uncounted.amplification) == (None, None, None)
    assert {"disk_read_bytes_per_s", "cold_fraction", "read_amplification", "other_read_bytes_per_s",
            "disk_ceiling_fraction"} <= uncounted.unavailable.keys()  # fmt: skip
    warm = replace(MEASURED, config=replace(MEASURED.config, cache="warm"))
    assert _use(warm, example_phase(2, 1e6)).unavailable["disk_ceiling_fraction"].code == "warm_as_asked"


def test_delivered_bytes_alone_say_nothing_of_the_disk() -> None:
    """Where no device byte is counted there is neither a rate nor a share of the disk, however much was delivered."""
    found = _use(replace(MEASURED, storage_counts_reads=False), example_phase(2, 1e6))
    assert found.evidence() == () and found.facts() == {}

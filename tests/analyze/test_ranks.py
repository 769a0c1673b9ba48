"""Ranks in step are judged as one process: rates, images and bytes of all, times and cores of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.ranks import as_one, cores
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import Measurement, Missing, Segment, Series
from loaderprobe.records.ranks import RankMeasurement
from loaderprobe.records.remark import reported
from loaderprobe.testing import Service
from tests.measure.conftest import Measure, measure_fake

__all__ = ["measure_fake"]
PER_IMAGE, DISK = 1000, 5000
"""Bytes."""


@pytest.fixture(scope="module")
def alone(measure_fake: Measure) -> Measurement:
    """What one process measures with 2 workers that wait for storage; its host's disk moves more than it reads."""
    made = measure_fake(Service(cpu_s=0.001, blocked_s=0.004), workers=2)
    segments = tuple(
        replace(s, delivered_bytes=PER_IMAGE * s.steps * s.batch_size, disk_bytes=DISK) for s in made.segments
    )
    records = made.worker_batches
    warm = {n for s in segments if s.mode == "warm" for n in range(s.first_batch, s.first_batch + s.steps)}
    counts = zip(records.batch, records.images, strict=True)
    read = tuple(0 if number in warm else PER_IMAGE * images for number, images in counts)
    return replace(
        made, segments=segments, worker_batches=replace(records, read_bytes=read),
        storage_counts_reads=True, storage_kind="block",
    )  # fmt: skip


def rank(
    number: int, measurement: Measurement, *, host: str = "one", cores: float = 4.0,
    affinity: tuple[int, ...] = (0, 1, 2, 3),
) -> RankMeasurement:  # fmt: skip
    return RankMeasurement(rank=number, host=host, cores=cores, affinity=affinity, measurement=measurement)


def renumbered(measurement: Measurement, by: int) -> Measurement:
    """The same, with batches that are numbered otherwise, as after other flushes."""
    records = measurement.worker_batches
    return replace(
        measurement,
        segments=tuple(
            replace(each, first_batch=each.first_batch + by) if each.first_batch >= 0 else each
            for each in measurement.segments
        ),
        worker_batches=replace(records, batch=tuple(number + by for number in records.batch)),
    )


def test_one_rank_is_itself(alone: Measurement) -> None:
    """Unchanged."""
    assert as_one([rank(0, alone)]) is alone


def test_two_alike_have_the_same_verdict_at_twice_the_rate(alone: Measurement) -> None:
    """With the same shares and speed-ups; and cores that both use count once."""
    before, both = verdict(alone), verdict(as_one([rank(0, alone), rank(1, renumbered(alone, 5))]))
    assert both.bound.cause == before.bound.cause
    assert both.images_per_s.value == pytest.approx(2 * before.images_per_s.value)
    assert both.speedups.storage and before.speedups.storage
    assert both.speedups.storage.value == pytest.approx(before.speedups.storage.value)
    assert both.cold_fraction == pytest.approx(before.cold_fraction)
    assert both.rates_images_per_s.cpu_limit == pytest.approx(
        (before.rates_images_per_s.cpu_limit or 0) * 4.0 / alone.cores_available
    )


def test_times_are_those_of_the_rank_with_the_slowest_workers(alone: Measurement) -> None:
    """Whichever it is."""
    records = alone.worker_batches
    slow = replace(alone, worker_batches=replace(records, wall_ns=tuple(2 * wall for wall in records.wall_ns)))
    for ranks in ([alone, slow], [slow, alone]):
        found = as_one([rank(number, each) for number, each in enumerate(ranks)])
        assert found.worker_batches.wall_ns == slow.worker_batches.wall_ns
        assert found.ranks == 2


def test_a_hosts_devices_and_cores_count_once(alone: Measurement) -> None:
    """Bytes that its ranks were given are summed."""
    same = as_one([rank(0, alone), rank(1, alone)])
    apart = as_one([rank(0, alone), rank(1, alone, host="two")])
    assert {each.disk_bytes for each in same.segments} == {DISK}
    assert {each.disk_bytes for each in apart.segments} == {2 * DISK}
    for found in (same, apart):
        assert found.segments[0].delivered_bytes == 2 * (alone.segments[0].delivered_bytes or 0)
    assert cores([rank(0, alone), rank(1, alone)]) == 4
    assert cores([rank(0, alone), rank(1, alone, host="two")]) == 8
    assert cores([rank(0, alone), replace(rank(1, alone), node=1)]) == 8, "two nodes of one name"
    assert cores([rank(0, alone, affinity=(0, 1), cores=2.0), rank(1, alone, affinity=(2, 3), cores=2.0)]) == 4
    assert cores([rank(0, alone, affinity=(0, 1, 2), cores=3.0), rank(1, alone, affinity=(1, 2, 3), cores=3.0)]) == 4
    assert cores([rank(0, alone, affinity=(0, 1), cores=0.5), rank(1, alone, affinity=(1, 2), cores=0.5)]) == 1


def test_files_that_were_warm_on_one_rank_were_not_cold(alone: Measurement) -> None:
    """Half of the bytes then came from memory."""
    warm = replace(
        alone, worker_batches=replace(alone.worker_batches, read_bytes=(0,) * len(alone.worker_batches.batch))
    )
    assert verdict(as_one([rank(0, alone), rank(1, warm)])).files_were == "partly warm"


def test_only_modes_of_all_ranks_are_possible(alone: Measurement) -> None:
    """One that a rank lacks is not measured on the others."""
    assert as_one([rank(0, alone), rank(1, replace(alone, modes=("baseline",)))]).modes == ("baseline",)


def test_unlike_numbers_of_steps_are_an_error(alone: Measurement) -> None:
    """They cannot have trained in step."""
    with pytest.raises(LoaderprobeError, match="the same steps"):
        as_one([rank(0, alone), rank(1, replace(alone, segments=alone.segments[:-1]))])


def in_a_sweep(measurement: Measurement, *, alone_steps: int, absent: bool = False) -> Measurement:
    """The same as one of two ranks, with a segment alone and one without the input of rank 1."""
    config = replace(measurement.config, ranks=2)
    first = measurement.segments[0]
    alone = replace(_shortened(first, alone_steps), activity="alone")
    without = replace(first, without=1)
    if absent:
        without = replace(without, first_batch=-1, delivered_bytes=None)
    return replace(measurement, config=config, segments=(*measurement.segments, alone, without))


def _shortened(segment: Segment, steps: int) -> Segment:
    columns = ("begin_ns", "ready_ns", "copied_ns", "end_ns", "finished_ns", "device_begin_ns")
    return replace(segment, **{name: getattr(segment, name)[:steps] for name in columns})


def test_ranks_of_a_sweep_keep_what_was_asked_and_what_each_saw(alone: Measurement) -> None:
    """Steps alone may differ: the slowest alone gives the times. One without input has no bytes to add."""
    fast, slow = in_a_sweep(alone, alone_steps=9), in_a_sweep(alone, alone_steps=4, absent=True)
    found = as_one([rank(0, fast), rank(1, slow)])
    assert found.config == fast.config and found.ranks == 2
    assert [each.steps[-2] for each in found.by_rank] == [9, 4]
    assert found.segments[-2].steps == 4 and found.segments[-2].batch_size == 2 * alone.config.compute.batch_size
    assert found.segments[-1].delivered_bytes == fast.segments[-1].delivered_bytes
    assert found.by_rank[0].read_bytes[0] == fast.segments[0].delivered_bytes
    assert len(found.by_rank[0].service_ns) == 9


def test_counters_of_a_node_are_those_of_its_first_rank(alone: Measurement) -> None:
    """Whichever rank of it is the slowest; what an own worker waited for is missing on its own."""
    disk = Series(name="disk", unit="bytes", source="made", time_ns=(1,), values=(2.0,))
    own, nodes = (Missing(name=name, reason=reported("none")) for name in ("waits", "disk"))
    first = replace(in_a_sweep(alone, alone_steps=9), series=(disk,), missing=())
    second = replace(in_a_sweep(alone, alone_steps=4), series=(), missing=(own, nodes))
    found = as_one([rank(0, first), rank(1, second)])
    assert found.series == (disk,) and found.missing == (own,)

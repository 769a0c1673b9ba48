"""Workers that wait for each other: before a single server, for the cores; and what storage gives them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.forecast.changes import unchanged, workers
from loaderprobe.analyze.forecast.fit import Storage
from loaderprobe.records.bandwidth import StorageCeiling
from tests.analyze.scripted import Truth
from tests.examples.bandwidth import example_phase

SINGLE_SERVER = Truth(model="single_server")


@pytest.mark.parametrize(("count", "expected"), [(1, 1 / 2), (2, 4 / 5), (3, 15 / 16)])
def test_workers_queue_before_a_serial_disk(count: int, expected: float) -> None:
    """Where the disk takes as long as the rest, two workers reach 4/5 of what it can, and three 15/16."""
    service = replace(SINGLE_SERVER, cpu_s=0.0025, latency_s=0.0).service()
    assert service.loader(count) * service.transfer_s == pytest.approx(expected)
    assert service.bottleneck("workers", 9) == "storage"


@pytest.mark.parametrize(("count", "expected"), [(1, 250.0), (2, 437.5), (4, 437.5)])
def test_workers_share_the_cores_with_what_sends_and_receives(count: int, expected: float) -> None:
    """Of two cores an eighth goes to sending and receiving: two workers have 1.75, and four no more than that."""
    service = replace(
        Truth(cpu_s=0.004, latency_s=0.0, cores=2.0, parent_s=0.0, bytes_per_s=1e10).service(), sending_s=0.004 / 7
    )
    assert service.loader(count) == pytest.approx(expected, rel=1e-6)


def test_workers_that_wait_half_their_time_meet_on_one_core() -> None:
    """As before a single server of 1/2: the cores are a queue, too."""
    service = replace(Truth(cpu_s=0.0025, latency_s=0.0025, cores=1.0, parent_s=0.0).service(), model="latency")
    assert [service.loader(count) * service.cpu_s for count in (1, 2, 3)] == pytest.approx([1 / 2, 4 / 5, 15 / 16])
    assert service.bottleneck("workers", 3) == "cores"


def test_storage_is_as_fast_as_all_phases_that_are_alike() -> None:
    """The fastest of three noisy phases is above what lasts; a phase that is clearly slower has too few readers."""
    slow, one, two = (
        replace(example_phase(readers, rate), bw_low=rate * 0.95, bw_high=rate * 1.05, runtime=1000.0)
        for readers, rate in ((1, 10e6), (4, 20e6), (16, 21e6))
    )
    assert Storage(ceiling=StorageCeiling(data="", phases=(slow, one, two))).bytes_per_s == pytest.approx(20.5e6)


def test_uncounted_reads_are_believed_where_the_kind_is_known() -> None:
    """A file system that accounts no reads still has a bandwidth, once the probe saw readers wait for each other."""
    ceiling = SINGLE_SERVER.storage().ceiling
    assert ceiling
    unproved = tuple(replace(phase, cache="unproved") for phase in ceiling.phases)
    assert Storage(ceiling=replace(ceiling, phases=unproved)).bytes_per_s == SINGLE_SERVER.bytes_per_s
    assert Storage(ceiling=replace(ceiling, phases=unproved, kind=None)).bytes_per_s is None


def test_a_lone_reader_shows_what_a_file_takes_beside_its_bytes() -> None:
    """Before a single server its mean counts; on a token bucket, and among others, only the fastest file."""
    ceiling = SINGLE_SERVER.storage().ceiling
    assert ceiling
    lone, more = phases = tuple(replace(example_phase(readers, 20e6), cache="cold") for readers in (1, 4))
    assert lone.file_ns
    assert more.file_ns
    bucket = Truth().storage().ceiling
    assert bucket
    found = [
        Storage(ceiling=replace(each, phases=some)).alone_s * 1e9
        for each, some in ((ceiling, phases), (ceiling, (more,)), (bucket, phases))
    ]
    assert found == [lone.file_ns.mean, more.file_ns.min, lone.file_ns.min]


def test_a_full_token_bucket_is_as_fast_as_the_probe_saw() -> None:
    """Rounds that reach its rate show that it is full, whatever the middle one was; others are what they are."""
    truth = Truth()
    for spread, expected in ((0.08, 400.0), (0.02, 380.0)):
        found = truth.fit(2, anchor=2, training=380.0, loader=380.0, training_spread=spread, loader_spread=spread)
        assert found.anchor.training == pytest.approx(expected)
        same = unchanged(found, "workers", "2")
        assert same.how == "measured"
        assert same.images_per_s
        assert same.images_per_s.value == pytest.approx(380.0)


def test_the_queue_before_a_single_server_is_no_latency() -> None:
    """Four workers that use two thirds of it wait for each other, and one alone does not."""
    truth = Truth(model="single_server", cpu_s=0.01)
    found = workers(truth.fit(4, anchor=4), 1).images_per_s
    assert found
    assert found.value == pytest.approx(truth.training(1))

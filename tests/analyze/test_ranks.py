"""Ranks in step are judged as one process: rates, images and bytes of all, times and cores of one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.ranks import as_one, cores, differing, same_samples
from loaderprobe.analyze.verdict.rates import input_at_most
from loaderprobe.analyze.verdict.slow_host import host_names, slow_host
from loaderprobe.analyze.verdict.validity import is_disturbed
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.measurement import Measurement, Others, Segment
from loaderprobe.records.rank_processes import RankInput, RankMeasurement
from tests.analyze.runs import with_steps, with_training
from tests.analyze.scripted import Truth, measured


@pytest.fixture(scope="module")
def alone() -> Measurement:
    """What one process measures with 2 workers that wait for storage; its host's disk moves more than it reads."""
    made = measured(Truth(model="latency", cpu_s=0.001, latency_s=0.004), 2)
    return replace(made, segments=tuple(replace(each, disk_bytes=10**9) for each in made.segments))


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


def test_two_alike_have_the_same_verdict_at_twice_the_rate(alone: Measurement) -> None:
    """With the same shares and speed-ups; and cores that both use count once. A single rank is itself."""
    assert as_one([rank(0, alone)]) is alone
    before, both = verdict(alone), verdict(as_one([rank(0, alone), rank(1, renumbered(alone, 5))]))
    assert both.bound.cause == before.bound.cause
    assert both.images_per_s.value == pytest.approx(2 * before.images_per_s.value)
    assert both.speedups.storage and before.speedups.storage
    assert both.speedups.storage.value == pytest.approx(before.speedups.storage.value)
    assert both.cold_fraction == pytest.approx(before.cold_fraction)
    assert both.rates_images_per_s.cpu_limit == pytest.approx(
        (before.rates_images_per_s.cpu_limit or 0) * 4.0 / alone.cores_available
    )


ALL, LOWER, UPPER = (0, 1, 2, 3), (0, 1), (2, 3)
NOT_SAID: list[dict[str, float]] = [{}, {}]


@pytest.mark.parametrize(
    ("sets", "cores_each", "quotas", "expected"),
    [
        ([ALL, ALL], 4.0, NOT_SAID, 4),
        ([LOWER, UPPER], 2.0, NOT_SAID, 4),
        ([(0, 1, 2), (1, 2, 3)], 3.0, NOT_SAID, 4),
        ([LOWER, (1, 2)], 0.5, NOT_SAID, 1),
        ([LOWER, UPPER], 2.0, [{"pod": 1.5}, {"pod": 1.5}], 1.5),
        ([LOWER, UPPER], 2.0, [{"first": 1.5}, {"second": 1.5}], 3),
        ([ALL, ALL], 4.0, [{"first": 1.5}, {"second": 1.5}], 3),
        ([ALL, ALL], 4.0, [{"first": 1.5, "pod": 2.0}, {"second": 1.5, "pod": 2.0}], 2),
    ],
    ids=[
        "shared", "apart", "some shared", "less than they may run on", "a quota of all", "each its own",
        "each its own of the same cores", "and one of all",
    ],
)  # fmt: skip
def test_cores_and_quotas_that_ranks_share_count_once(
    alone: Measurement, sets: list[tuple[int, ...]], cores_each: float, quotas: list[dict[str, float]], expected: float
) -> None:
    """Where each has its own, they add up."""
    ranks = [
        replace(
            rank(number, alone, affinity=affinity, cores=cores_each),
            core_limits={str(affinity): cores_each, **quota} if quota else {},
        )
        for number, (affinity, quota) in enumerate(zip(sets, quotas, strict=True))
    ]
    assert cores(ranks) == expected


@pytest.mark.parametrize(("host", "node"), [("large", 0), ("one", 1)], ids=["two hosts", "two nodes of one name"])
def test_cores_are_those_of_the_host_of_the_slowest_rank(alone: Measurement, host: str, node: int) -> None:
    """Ranks there share them; another host may have more."""
    fast, slow = in_a_sweep(alone, alone_steps=9), in_a_sweep(alone, alone_steps=4)
    elsewhere = replace(rank(0, fast, host=host, cores=32.0, affinity=tuple(range(32))), node=node)
    assert as_one([elsewhere, rank(1, slow), rank(2, slow)]).cores_available == 2


@pytest.mark.parametrize("asked", [{}, {"ranks": 2, "nodes": 2}], ids=["a script", "a sweep"])
def test_what_others_take_of_a_host_is_compared_with_the_cores_there(alone: Measurement, asked: dict[str, Any]) -> None:
    """On each of two hosts others fill the 48 of 64 cores that may not be used."""
    others = Others(span_ns=10**9, cores=64, cpu_ns=46 * 10**9, own_cpu_ns=16 * 10**9, steal_ns=0)
    segments = tuple(replace(each, others=others) for each in alone.segments)
    given = replace(alone, config=replace(alone.config, **asked), segments=segments)
    where: dict[str, Any] = {"cores": 16.0, "affinity": tuple(range(64))}
    both = as_one([rank(0, given, **where), rank(1, given, **where, host="two")])
    assert not is_disturbed(both, both.segments[0])


@pytest.mark.parametrize(("host", "nodes"), [("one", 1), ("two", 2)])
def test_a_script_may_gain_from_input_as_much_as_a_sweep(alone: Measurement, host: str, nodes: int) -> None:
    """All workers of its host may hold its steps up, and none of another."""
    stepping = with_training(alone, lambda each: with_steps(each, outside=0.1))

    def most(**asked: Any) -> float:
        given = replace(stepping, config=replace(alone.config, **asked))
        return input_at_most(as_one([rank(0, given), rank(1, given, host=host)]))

    assert math.isfinite(most()) and most() == most(ranks=2, nodes=nodes)


def test_files_that_were_warm_on_one_rank_were_not_cold(alone: Measurement) -> None:
    """Half of the bytes then came from memory."""
    warm = replace(
        alone, worker_batches=replace(alone.worker_batches, read_bytes=(0,) * len(alone.worker_batches.batch))
    )
    assert verdict(as_one([rank(0, alone), rank(1, warm)])).files_were == "partly warm"


def test_ranks_did_the_same_in_step(alone: Measurement) -> None:
    """A mode that one lacks is not measured on the others, and unlike numbers of steps are an error."""
    assert as_one([rank(0, alone), rank(1, replace(alone, modes=("baseline",)))]).modes == ("baseline",)
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


ONE = RankInput(batch_size=8, workers=2, prefetch_factor=2, files=tuple(range(100)), first=1, whole=False)
HIDDEN, LABELS = replace(ONE, files=()), 9999


def files(first: int, *, whole: bool = False) -> RankInput:
    """A rank that read 100 files from this number on; `whole` where its sampler goes through all of its data set."""
    return replace(ONE, files=tuple(range(first, first + 100)), first=first, whole=whole)


def with_labels(first: int) -> RankInput:
    return replace(ONE, files=(LABELS, *range(first, first + 50)), whole=True)


@pytest.mark.parametrize(
    ("ranks", "code", "facts"),
    [
        ([files(0), files(100)], None, {}),
        ([files(0), files(95), files(190)], None, {}),
        ([ONE] * 2, "same_samples", {"ranks": 2, "again": 100.0, "files": 200.0}),
        ([ONE] * 8, "same_samples", {"ranks": 8, "again": 700.0, "files": 800.0}),
        ([files(0, whole=True), files(96, whole=True)], "same_samples", {}),
        ([files(0, whole=True), files(96)], None, {}),
        ([files(0, whole=True), files(100, whole=True)], None, {}),
        ([with_labels(0), with_labels(50)], None, {}),
        ([HIDDEN] * 2, "same_batches", {}),
        ([HIDDEN, replace(HIDDEN, first=2)], None, {}),
        ([replace(HIDDEN, first=None)] * 2, None, {}),
    ],
    ids=[
        "shares of one data set", "a few samples are repeated", "the same files", "eight times the same",
        "a large data set overlaps by chance", "only one goes through all of it", "a data set of each rank's own",
        "and all open a file of labels", "the same first batch", "another", "one that could not be hashed",
    ],
)  # fmt: skip
def test_ranks_that_each_take_all_of_a_data_set_are_seen(
    ranks: list[RankInput], code: str | None, facts: dict[str, float]
) -> None:
    """By the files that they read, or without them by their first batches; all but one rank read them again."""
    note = same_samples(ranks)
    assert (note and note.code) == code
    if facts:
        assert note and note.facts == facts


@pytest.mark.parametrize(
    ("ranks", "found"),
    [
        ([ONE, ONE], None),
        ([ONE, ONE, replace(ONE, workers=3)], (2, "workers")),
        ([ONE, replace(ONE, exchanges=True)], (1, "exchanges")),
    ],
)
def test_the_rank_whose_loader_is_another_is_found(ranks: list[RankInput], found: tuple[int, str] | None) -> None:
    """With the first setting that differs."""
    assert differing(ranks) == found


Rates = list[tuple[str, float]]


def hosts(**rates: list[float]) -> Rates:
    """(host, rate) of each rank."""
    return [(host, rate) for host, each in rates.items() for rate in each]


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        (hosts(a=[114.0, 110.0], b=[37.0, 40.0], c=[120.0, 112.0]), ("b", 2, 2, 38.5, 110.0)),
        (hosts(a=[110.0] * 8, b=[37.0] * 7 + [111.0]), ("b", 7, 8, 37.0, 110.0)),
        (hosts(a=[114.0, 110.0], b=[37.0] * 6 + [111.0]), None),
        (hosts(a=[114.0], b=[37.0]), None),
        (hosts(a=[114.0, 110.0], b=[37.0, 37.0], c=[36.0, 38.0]), None),
        (hosts(a=[114.0, 110.0], b=[0.0, 0.0]), None),
        ([], None),
    ],
    ids=["a slow host", "7 of 8", "6 of 7", "one rank each", "two hosts", "nothing", "none"],
)
def test_a_slow_host_is_named_with_its_ranks_and_the_slowest_elsewhere(rates: Rates, named: Any) -> None:
    """All of its ranks but one in eight must be slower than every rank elsewhere; by how much, and at what rate."""
    found = slow_host(rates)
    assert (found and (found.host, found.slow, found.ranks, found.rate, found.elsewhere)) == named
    if found is not None:
        assert found.lead == pytest.approx(found.elsewhere / (40.0 if found.slow == 2 else 37.0))


def test_nodes_of_one_name_are_kept_apart() -> None:
    """As containers may have."""
    assert host_names([(0, "a"), (0, "a"), (1, "b")]) == ["a", "a", "b"]
    assert host_names([(0, "a"), (1, "a"), (2, "b")]) == ["a (node 0)", "a (node 1)", "b"]


@settings(max_examples=80)
@given(st.lists(st.lists(st.floats(1.0, 100.0), min_size=1, max_size=9), min_size=1, max_size=5))
def test_what_is_named_is_slower_than_all_others(each: list[list[float]]) -> None:
    """Whatever the rates: all its ranks but one in eight, and the order of ranks is no matter."""
    rates = [(f"h{number}", rate) for number, own in enumerate(each) for rate in own]
    found = slow_host(rates)
    assert slow_host(rates[::-1]) == found
    if found is not None:
        elsewhere = min(rate for host, rate in rates if host != found.host)
        own = [rate for host, rate in rates if host == found.host]
        assert found.lead > 1 and found.elsewhere == elsewhere
        assert sum(rate >= elsewhere for rate in own) <= len(own) // 8

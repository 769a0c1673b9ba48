"""`plan` on results of `bandwidth`: what is taken from them, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.api.bandwidth import Bandwidth
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport, CacheLabel
from loaderprobe.records.remark import Remark
from loaderprobe.render.json import result_json
from loaderprobe.testing import example_location
from tests.examples.bandwidth import (
    ORIGIN,
    example_bandwidth,
    example_operations,
    example_phase,
    example_rank_bandwidth,
    example_ranks,
)

COLD_OPENS = example_operations({1: 300.0, 4: 1000.0, 16: 1010.0})


def cold_bandwidth(**changes: Any) -> BandwidthReport:
    """A ladder whose best step came from storage, below the limit of the probe."""
    phases = (example_phase(1, 60e6), example_phase(8, 290e6), example_phase(16, 288e6))
    return replace(example_bandwidth(), **({"phases": phases} | changes))


def test_a_bandwidth_result_is_planned_from_its_file_and_as_it_is(tmp_path: Path) -> None:
    """Its files and its storage."""
    file = tmp_path / "bandwidth.json"
    file.write_text(result_json(cold_bandwidth()))
    plan = loaderprobe.plan(file, kind="mlperf-h100", accelerators=16)
    own = loaderprobe.plan(Bandwidth.of(cold_bandwidth()), kind="mlperf-h100", accelerators=16)
    assert plan.needs == own.needs and plan.supplies == own.supplies
    assert plan.supplies[0].limits[0].limit.value == pytest.approx(290e6 * 1.02, rel=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"metadata": COLD_OPENS},
        {"metadata": example_operations({1: 300.0}, metadata="warm", drops=0)},
        {"phases": (example_phase(1, 60e6), example_phase(8, 290e6, at_least=True))},
        {"phases": (example_phase(1, 60e6, cache="mixed"), example_phase(8, 290e6))},
        {"phases": (example_phase(1, 60e6), example_phase(8, 290e6, cache="unproved"))},
        {"scratch": True},
    ],
)
def test_bandwidth_and_plan_feed_as_many(changes: dict[str, Any]) -> None:
    """Of the same result, for each accelerator, without options: one definition, one figure, one first limit."""
    report = cold_bandwidth(**changes)
    measured = BandwidthMeasurement(
        **{field.name: getattr(report, field.name) for field in fields(BandwidthMeasurement)}
    )
    rates = {"mlperf-a100": 400 / 0.435, "mlperf-h100": 400 / 0.224}
    feeds = {each.accelerator: each for each in judge_bandwidth(measured, rates, ORIGIN).feeds}
    for name in rates:
        try:
            supplies = loaderprobe.plan(report, kind=name).supplies
        except BadValue:
            supplies = ()
        assert (name in feeds) == bool(supplies)
        for supply in supplies:
            assert feeds[name].count == pytest.approx(supply.feeds, rel=1e-3)
            assert (feeds[name].first_limit, feeds[name].at_least) == (supply.first_limit, supply.at_least)


def test_measured_cold_opens_are_a_limit_beside_bandwidth(tmp_path: Path) -> None:
    """1010 of them a second feed half an H100 at 90 % with 80 % in use, long before bandwidth gives out."""
    file = tmp_path / "bandwidth.json"
    file.write_text(result_json(cold_bandwidth(metadata=COLD_OPENS)))
    (supply,) = loaderprobe.plan(file, kind="mlperf-h100").supplies
    assert [limit.resource for limit in supply.limits] == ["opens", "bandwidth"]
    opens = supply.limits[0]
    assert (opens.limit.value, opens.limit.label, opens.at_least) == (1010.0, "measured", False)
    assert supply.feeds == pytest.approx(0.8 * 1010 / (0.9 * 400 / 0.224))
    assert supply.first_limit == "opens"
    short = tuple(replace(phase, short=True) for phase in COLD_OPENS)
    doubted = loaderprobe.plan(cold_bandwidth(metadata=short), kind="mlperf-h100").supplies[0]
    assert any(note.code == "opens_short" for note in doubted.notes) and supply.notes == ()
    noisy = tuple(replace(phase, ops_high=2 * phase.ops_per_s) for phase in COLD_OPENS)
    unsettled = loaderprobe.plan(cold_bandwidth(metadata=noisy), kind="mlperf-h100").supplies[0]
    assert unsettled.notes == (Remark(code="opens_unsettled"),)
    shards = loaderprobe.plan(file, kind="mlperf-h100", layout="shards:1000").supplies[0]
    assert shards.first_limit == "bandwidth"


def test_opens_that_still_rise_are_a_lower_bound() -> None:
    """Also where the probe may be the limit, or one number of readers was tried; never from under a second."""
    for operations in (
        example_operations({1: 300.0, 4: 1000.0}), example_operations({4: 1000.0}),
        example_operations({1: 300.0, 4: 1000.0, 16: 1010.0}, at_least=True),
    ):  # fmt: skip
        (supply,) = loaderprobe.plan(cold_bandwidth(metadata=operations), kind="mlperf-h100").supplies
        assert supply.limits[0].resource == "opens" and supply.at_least
        short = tuple(replace(phase, short=True) for phase in operations)
        (supply,) = loaderprobe.plan(cold_bandwidth(metadata=short), kind="mlperf-h100").supplies
        assert not supply.at_least


@pytest.mark.parametrize(
    ("operations", "code", "why"),
    [
        ((), "opens_not_measured", "were not measured"),
        (example_operations({1: 2e5}, metadata="warm", drops=0), "opens_from_memory", "only bandwidth --drop-caches"),
        (
            example_operations({1: 2e5}, metadata="warm", drops=3),
            "opens_from_memory_after_drop",
            "from memory all the same",
        ),
        (
            example_operations({1: 200.0}, metadata="unproved", storage_bytes=None),
            "opens_unproved",
            "nothing counts",
        ),
    ],
)
def test_opens_that_were_not_cold_are_no_supply(operations: tuple[Any, ...], code: str, why: str) -> None:
    """Never a limit, whatever their rate; the plan says why on its page, and bandwidth still counts."""
    plan = loaderprobe.plan(cold_bandwidth(metadata=operations), kind="mlperf-h100")
    assert [limit.resource for limit in plan.supplies[0].limits] == ["bandwidth"]
    assert plan.refused["cold_opens"].code == code
    assert why in " ".join(plan.text(width=400).split())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scratch": True}, "read in blocks"),
        ({"mean_size_bytes": 0.0}, "are empty"),
        ({"phases": (example_phase(1, 60e6, block_bytes=1 << 20),)}, "read in blocks"),
    ],
)
def test_a_bandwidth_result_without_bytes_an_image_is_refused(changes: dict[str, Any], why: str) -> None:
    """A scratch file, empty files, shards."""
    with pytest.raises(BadValue, match=why):
        loaderprobe.plan(cold_bandwidth(**changes), kind="mlperf-h100")


def test_a_bandwidth_result_from_memory_feeds_nothing() -> None:
    """tmpfs; and one in which nothing was measured."""
    memory = replace(example_location("/dev/shm"), kind="memory", filesystem="tmpfs")
    for report, code in (
        (cold_bandwidth(location=memory), "no_storage_behind_files"),
        (cold_bandwidth(phases=()), "ladder_not_measured"),
    ):
        plan = loaderprobe.plan(report, kind="mlperf-h100")
        assert plan.supplies == ()
        assert plan.refused["measured_storage"].code == code


def ranks_bandwidth(*most: float, **changes: Any) -> Bandwidth:
    """A ladder of one, two and four ranks of two readers each, the last with these rates."""
    phases = (example_ranks(20e6), example_ranks(10.2e6, 10.2e6), example_ranks(*most), example_ranks(20e6, readers=8))
    return Bandwidth.of(example_rank_bandwidth(*phases, **changes))


def test_a_bandwidth_result_of_ranks_is_planned_from_its_directory_and_as_it_is(tmp_path: Path) -> None:
    """The readers of all ranks are the ladder; four times as many gained nothing, so it is the storage's limit."""
    found = ranks_bandwidth(*[5.1e6] * 4)
    found.save(tmp_path / "kept")
    plans = [
        loaderprobe.plan(each, kind="mlperf-h100") for each in (found, tmp_path / "kept", tmp_path / "kept/result.json")
    ]
    (supply,) = plans[0].supplies
    assert all(each.supplies == (supply,) for each in plans)
    (limit,) = supply.limits
    assert limit.limit.value == pytest.approx(20.4e6) and not limit.at_least and supply.notes == ()
    assert supply.source == "4 readers of whole files in 2 ranks"


def test_a_ladder_of_ranks_that_climbs_is_at_least_that() -> None:
    """With the number of readers that may show more; a slow rank stands beside it."""
    found = loaderprobe.plan(ranks_bandwidth(15e6, 15e6, 15e6, 8e6), kind="mlperf-h100")
    (supply,) = found.supplies
    assert supply.limits[0].at_least
    assert [each.code for each in supply.notes] == ["clients_at_least", "ranks_uneven"]
    assert supply.notes[1].facts == {
        "rank": "3", "host": "node0", "share": pytest.approx(8 / 15), "bytes_per_s": pytest.approx(32e6),
    }  # fmt: skip


def test_one_process_is_no_limit_of_the_storage() -> None:
    """As many readers in four ranks get more than in one: the plateau would be that of a process."""
    phases = example_ranks(*[20e6] * 4), example_ranks(50e6, readers=8)
    found = loaderprobe.plan(example_rank_bandwidth(*phases), kind="mlperf-h100")
    assert found.supplies[0].limits[0].limit.value == pytest.approx(80e6) and found.supplies[0].limits[0].at_least


@pytest.mark.parametrize(("cache", "code"), [("mixed", "reads_not_cold"), ("unproved", "reads_unproved")])
def test_ranks_whose_reads_are_not_proved_give_no_storage(cache: CacheLabel, code: str) -> None:
    """As of one process."""
    phases = (example_ranks(20e6, cache=cache), example_ranks(10e6, 10e6, cache=cache))
    found = loaderprobe.plan(example_rank_bandwidth(*phases), kind="mlperf-h100")
    assert found.supplies == () and found.refused["measured_storage"].code == code


def test_blocks_of_ranks_are_no_images() -> None:
    """The bytes of an image are not known."""
    with pytest.raises(BadValue, match="read in blocks"):
        loaderprobe.plan(example_rank_bandwidth(example_ranks(20e6, block_bytes=131_072)), kind="mlperf-h100")

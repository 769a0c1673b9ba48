"""The plan as a whole: epochs, levers, the ledger, the acceptance test, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.plan.plan import epoch_plan
from loaderprobe.records.plan import CacheAsked, Lever, PlanReport
from loaderprobe.records.remark import Remark
from tests.examples.plan import example_asked, example_batches, example_plan, example_storage, example_workload

SET_BYTES = 1_281_167 * 115_000.0


def lever(plan: PlanReport, name: str) -> Lever:
    """The lever of this name."""
    return next(each for each in plan.levers if each.name == name)


def test_an_epoch_takes_its_images_over_the_rate() -> None:
    """12.5 s for ImageNet on 64 H100 at 90 %."""
    seconds = epoch_plan(example_workload(), example_asked(64)).seconds
    assert seconds is not None and seconds.value == pytest.approx(12.46, abs=0.01)


def test_the_second_epoch_of_eight_nodes_is_nearly_cold() -> None:
    """A page cache that holds all: 88 % cold in epoch 2, 30 % in epoch 10; eight sets are read in all."""
    asked = replace(example_asked(64), cache=CacheAsked(kind="page", bytes=2 * SET_BYTES))
    found = epoch_plan(example_workload(), asked)
    cold = {each.epoch: each.cold_high for each in found.shares}
    assert (cold[1], cold[2], cold[10]) == pytest.approx((1.0, 0.875, (7 / 8) ** 9))
    assert found.sets_read is not None and found.sets_read[1] == pytest.approx(8 * (1 - (7 / 8) ** 90))


def test_half_a_set_is_a_range_in_the_page_cache_and_a_figure_pinned() -> None:
    """One node: 15 to 41 % hits against 50 %, and 10 to 15 % in epoch 2; the first epoch is cold either way."""
    one = example_asked(8)
    page, pinned = (
        epoch_plan(example_workload(), replace(one, cache=CacheAsked(kind=kind, bytes=SET_BYTES / 2))).shares
        for kind in ("page", "pinned")
    )
    assert [(each.cold_low, each.cold_high) for each in (page[0], pinned[0])] == [(1.0, 1.0), (1.0, 1.0)]
    assert (page[1].cold_low, page[1].cold_high) == pytest.approx((0.847, 0.900), abs=1e-3)
    assert (page[2].cold_low, page[2].cold_high) == pytest.approx((0.587, 0.847), abs=1e-3)
    assert (pinned[1].cold_low, pinned[1].cold_high) == (0.5, 0.5)


def test_levers_lower_the_need_and_feed_more() -> None:
    """Shards end the limit by opens, half the size doubles what bandwidth feeds, 80 % need 8/9 of 90 %."""
    plan = example_plan()
    need = plan.need("read_bytes")
    assert need is not None
    measured, given = plan.supplies
    assert given.first_limit == "opens" and measured.feeds is not None and given.feeds is not None
    shards = lever(plan, "shards")
    assert shards.feeds[1].first_limit == "bandwidth" and (shards.feeds[1].feeds or 0) > 2 * given.feeds
    assert shards.feeds[0].feeds == pytest.approx(measured.feeds)
    assert lever(plan, "half_size").read_bytes.value == pytest.approx(need.at_utilization.value / 2)
    assert lever(plan, "utilization").read_bytes.value == pytest.approx(need.at_utilization.value * 8 / 9)


def test_the_cache_that_makes_a_storage_enough_does() -> None:
    """What remains cold is what the storage feeds; a page cache must be larger than pinned files."""
    plan = example_plan()
    for size, supply in zip(lever(plan, "cache").caches, plan.supplies, strict=True):
        assert supply.feeds is not None and size.pinned_bytes is not None
        assert size.page_bytes is not None and size.page_bytes_low is not None
        assert (1 - size.hits) * 64 == pytest.approx(supply.feeds)
        assert size.pinned_bytes == pytest.approx(size.hits * SET_BYTES)
        assert size.pinned_bytes < size.page_bytes_low < size.page_bytes <= SET_BYTES


def test_no_cache_follows_from_a_storage_that_gives_at_least_so_much() -> None:
    """It may feed all of them."""
    plan = example_plan(example_workload(storage=example_storage(at_least=True)))
    assert [size.supply for size in lever(plan, "cache").caches] == [plan.supplies[1].name]


def test_no_cache_is_needed_where_storage_is_enough() -> None:
    """Nor shards, where there are shards already."""
    plan = example_plan(asked=replace(example_asked(2), images_per_file=1251))
    assert {each.name for each in plan.levers} == {"half_size", "utilization"}


def test_the_ledger_labels_every_figure_and_tries_other_assumptions() -> None:
    """80 % use is assumed; at 70 % one buys more and feeds fewer."""
    plan = example_plan()
    labels = {entry.name: entry.quantity.label for entry in plan.ledger}
    assert (labels["rate"], labels["file_bytes"], labels["request_bytes"]) == ("given", "measured", "assumed")
    use = next(entry for entry in plan.ledger if entry.name == "use")
    assert use.quantity.label == "assumed"
    timid, daring = use.scenarios
    assert (timid.value, daring.value) == (0.7, 0.9)
    assert timid.read_bytes_to_buy > daring.read_bytes_to_buy
    assert timid.feeds is not None and daring.feeds is not None and timid.feeds < daring.feeds
    given = example_plan(asked=replace(example_asked(), use=0.7, use_given=True))
    (entry,) = [each for each in given.ledger if each.name == "use"]
    assert entry.quantity.label == "given" and [each.value for each in entry.scenarios] == [0.9]


def test_the_test_on_delivery_asks_one_node_for_what_is_bought() -> None:
    """Eight accelerators of 1,607 images/s over 80 %: 16,071 files/s and 1.85 GB/s, with 8 x 5 workers reading."""
    test = example_plan().acceptance
    assert (test.nodes, test.readers, test.readers_from, test.workers) == (8, 40, "workers", 5)
    assert test.files_per_s == pytest.approx(16_071, rel=1e-4)
    assert test.bytes_per_s == pytest.approx(16_071 * 115_000, rel=1e-4)
    small = example_plan(asked=example_asked(3)).acceptance
    assert (small.nodes, small.readers) == (1, 15)


def test_readers_of_the_test_come_from_reads_in_flight_without_worker_times() -> None:
    """And are assumed where not even those are known."""
    no_workers = example_workload(cpu_s=None)
    assert example_plan(no_workers).acceptance.readers_from == "reads_in_flight"
    neither = replace(no_workers, storage=None)
    assert example_plan(neither).acceptance.readers_from == "assumed"


def test_what_is_not_known_is_refused_and_the_rest_is_planned() -> None:
    """Each with its reason, in one order whatever was found missing first."""
    workload = example_workload(
        cpu_s=None, wait_s=None, storage=None, stalls=None,
        refused={
            "workers": Remark(code="no_worker_times"),
            "cores": Remark(code="no_worker_times"),
            "stragglers": Remark(code="steps_of_another"),
            "measured_storage": Remark(code="reads_not_cold", facts={"files": "warm"}),
        },
    )  # fmt: skip
    plan = example_plan(workload)
    assert [(part, why.code) for part, why in plan.refused.items()] == [
        ("measured_storage", "reads_not_cold"),
        ("workers", "no_worker_times"),
        ("cores", "no_worker_times"),
        ("reads_in_flight", "read_not_timed"),
        ("stragglers", "steps_of_another"),
    ]
    assert plan.need("opens") is not None and [supply.label for supply in plan.supplies] == ["given"]


def test_lock_step_is_priced_where_the_run_has_ranks_or_ranks_are_asked_for() -> None:
    """Of one rank's run it is no matter until it is asked for; then it is refused without batches."""
    assert example_plan().lock_step is None and "lock_step" not in example_plan().refused
    alone = example_workload(batches=example_batches())
    assert example_plan(alone).lock_step is None
    asked = example_plan(alone, replace(example_asked(64), simulate_ranks=128)).lock_step
    assert asked is not None and asked.asked == 128 and asked.compute_s == pytest.approx(0.224)
    ranks = example_plan(example_workload(batches=replace(example_batches(), ranks=4))).lock_step
    assert ranks is not None and (ranks.asked, ranks.measured_ranks) == (64, 4)
    assert example_plan(asked=replace(example_asked(), simulate_ranks=8)).refused["lock_step"] == Remark(
        code="batches_not_timed"
    )

"""What accelerators need: properties of the formulas, their ranges and their labels."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loaderprobe.analyze.plan.plan import Demand, demand, given_offer, judge_supply, needs, workers_of
from loaderprobe.analyze.plan.workload import known, product, requests, total
from loaderprobe.records.plan import Quantity
from loaderprobe.records.remark import Remark
from tests.examples.plan import example_asked, example_workload

COUNTS = st.integers(1, 100_000)
RATES = st.floats(0.1, 1e6)
SIZES = st.floats(100, 1e9)
SHARES = st.floats(0.01, 1)
HITS = st.floats(0, 0.99)


@given(COUNTS, RATES, SIZES, SHARES, SHARES)
def test_what_is_bought_for_n_feeds_n(count: int, rate: float, size: float, utilization: float, use: float) -> None:
    """Both directions are inverse of each other, for every resource."""
    one = demand(example_workload(rate, size), utilization)
    asked = replace(example_asked(count), utilization=utilization, use=use)
    bought = {"bandwidth": one.read_bytes, "opens": one.opens, "requests": one.requests}
    for resource, need in bought.items():
        offer = given_offer("", {resource: count * need.value / use})
        assert judge_supply(offer, one, asked).feeds == pytest.approx(count, rel=1e-9)


@given(RATES, SIZES, SHARES, HITS, st.floats(1.01, 10))
def test_need_rises_with_each_factor_and_falls_with_hits(
    rate: float, size: float, utilization: float, hits: float, more: float
) -> None:
    """With accelerators, their rate, their utilization and the size of a file."""
    least = demand(example_workload(rate, size), utilization, hits=hits)
    assert least.times(2).read_bytes.value > least.read_bytes.value
    assert demand(example_workload(rate * more, size), utilization, hits=hits).opens.value > least.opens.value
    larger = demand(example_workload(rate, size * more), utilization, hits=hits)
    assert larger.read_bytes.value > least.read_bytes.value
    assert larger.opens.value == least.opens.value
    assert demand(example_workload(rate, size), utilization / more, hits=hits).opens.value < least.opens.value
    assume(hits > 0.01)
    for name in ("read_bytes", "opens", "requests"):
        assert _value(demand(example_workload(rate, size), utilization), name) > _value(least, name)


def _value(found: Demand, name: str) -> float:
    quantity: Quantity = getattr(found, name)
    return quantity.value


def test_the_figures_of_64_h100() -> None:
    """1,785.7 images/s each at 90 %: 102,857 files/s of 115 kB are 11.83 GB/s."""
    found = demand(example_workload(), 0.9).times(64)
    assert found.opens.value == pytest.approx(102_857, rel=1e-5)
    assert found.read_bytes.value == pytest.approx(11.8286e9, rel=1e-4)


def test_shards_open_little_and_read_as_much() -> None:
    """1,251 images a file: 82 opens/s, the same bytes."""
    files, shards = demand(example_workload(), 0.9), demand(example_workload(), 0.9, images_per_file=1251)
    assert shards.times(64).opens.value == pytest.approx(82.2, rel=1e-3)
    assert shards.read_bytes.value == files.read_bytes.value
    assert shards.requests.weakest == "assumed"


def test_requests_are_counted_file_by_file() -> None:
    """Files of 1 B and 129 KiB: one request and two; the mean size alone would say one."""
    assert requests([1, 129 * 1024], exact=True).value == 1.5
    assert requests([65 * 1024], exact=False).value == 1.0


def test_what_is_bought_is_the_need_over_the_use_and_a_node_has_its_share() -> None:
    """Utilization multiplies, use divides; the bound is at a utilization of 1."""
    made, refused = needs(example_workload(), example_asked(64))
    read = next(need for need in made if need.name == "read_bytes")
    assert refused == {}
    assert read.to_buy is not None and read.node is not None
    assert read.at_most.value == pytest.approx(read.at_utilization.value / 0.9)
    assert read.to_buy.value == pytest.approx(read.at_utilization.value / 0.8)
    assert read.node.value == pytest.approx(read.at_utilization.value / 8)


def test_workers_and_cores_come_from_worker_times() -> None:
    """1,607 images/s of 3.0 ms in a worker are 4.8, so 5 workers; of 2.5 ms CPU on cores 85 % busy 4.7 and a thread."""
    made, _ = needs(example_workload(), example_asked())
    found = {need.name: need.at_utilization.value for need in made}
    assert found["workers"] == 5
    assert found["cores"] == pytest.approx(5.73, rel=1e-2)


def test_workers_hold_batches_and_bear_slow_reads() -> None:
    """5 workers of 2 batches ahead: 15 of 400 x 0.6 MB; 0.51 ms a file where CPU takes 2.6 of 3.11; 2.5 s late."""
    made, _ = needs(example_workload(), example_asked())
    found = {need.name: need for need in made}
    assert found["batch_memory"].at_utilization.value == pytest.approx(15 * 400 * 602_112)
    assert found["read_time"].at_utilization.value == pytest.approx(5 / (0.9 * 1785.714) - 0.0026, rel=1e-6)
    assert found["stall"].at_utilization.value == pytest.approx(5 * 2 * 400 / (0.9 * 1785.714), rel=1e-6)
    node = found["batch_memory"].node
    assert node is not None and node.value == pytest.approx(8 * 15 * 400 * 602_112)
    assert found["read_time"].node is None


def test_a_slower_file_than_that_takes_another_worker() -> None:
    """And one that is as slow does not."""
    workload = example_workload()
    limit = next(need.at_utilization.value for need in needs(workload, example_asked())[0] if need.name == "read_time")
    for times, workers in ((0.999, 5), (1.001, 6)):
        found = workers_of(replace(workload, wait_s=known(times * limit, "s", "measured", "")), 0.9)
        assert isinstance(found, Quantity) and math.ceil(found.value) == workers


def test_folders_are_listed_by_each_process_in_the_time_for_it() -> None:
    """1,281,167 entries in 60 s, 64 times; in shards of 1,251 images 1,251 times fewer."""
    listed = {
        layout: next(need for need in needs(example_workload(), asked)[0] if need.name == "listing")
        for layout, asked in (("folder", example_asked()), ("shards", example_asked(images_per_file=1251)))
    }
    assert listed["folder"].at_utilization.value == pytest.approx(64 * 1_281_167 / 60)
    assert listed["folder"].at_utilization.weakest == "assumed"
    assert listed["shards"].at_utilization.value == pytest.approx(64 * 1_281_167 / 60 / 1251)


def test_reads_in_flight_follow_from_the_time_of_a_read() -> None:
    """102,857 files/s of 0.3 to 2 ms each are 31 to 206 reads under way."""
    made, _ = needs(example_workload(), example_asked())
    flying = next(need.at_utilization for need in made if need.name == "reads_in_flight")
    assert (flying.low, flying.high) == pytest.approx((30.9, 205.7), rel=1e-2)


def test_what_was_not_measured_is_refused_with_its_reason() -> None:
    """No worker times: neither workers nor cores; no storage: no reads in flight. The rest stands."""
    reason = Remark(code="no_worker_times")
    workload = example_workload(cpu_s=None, wait_s=None, storage=None, refused={"workers": reason, "cores": reason})
    made, refused = needs(workload, example_asked())
    assert {need.name for need in made} == {"read_bytes", "opens", "requests", "listing", "capacity", "checkpoint"}
    assert refused == {"workers": reason, "cores": reason, "reads_in_flight": Remark(code="read_not_timed")}
    assert workers_of(workload, 0.9) == reason


def test_workers_without_a_wait_are_refused_and_cores_are_not() -> None:
    """A core is busy with CPU time alone. In shards, the time of a whole file says nothing of a read."""
    made, refused = needs(example_workload(wait_s=None), example_asked(images_per_file=1251))
    assert "cores" in {need.name for need in made}
    assert refused == {
        "workers": Remark(code="part_not_measured"),
        "reads_in_flight": Remark(code="read_in_shard_not_timed"),
    }


def test_a_derived_figure_has_the_weakest_label_of_its_inputs() -> None:
    """And its formula; measured, given, published, assumed is the order."""
    measured, assumed = known(2.0, "B", "measured", ""), known(3.0, "x", "assumed", "")
    given_ = known(4.0, "", "given", "")
    found = product([measured, assumed, given_], "B", "s a")
    assert (found.value, found.label, found.weakest, found.formula) == (24.0, "derived", "assumed", "s a")
    assert product([measured, given_], "B", "").weakest == "given"
    use = next(need for need in needs(example_workload(), example_asked())[0] if need.name == "opens")
    assert use.to_buy is not None and (use.at_utilization.weakest, use.to_buy.weakest) == ("given", "assumed")
    stated = needs(example_workload(), replace(example_asked(), use_given=True))[0][0]
    assert stated.to_buy is not None and stated.to_buy.weakest == "given"


def test_ranges_add_in_quadrature() -> None:
    """Relative ones of a product (3 and 4 % are 5 %), absolute ones of a sum (3 and 4 are 5)."""
    found = product([known(100, "", "measured", "", half=3), known(10, "", "measured", "", half=0.4)], "", "")
    assert (found.low, found.high) == pytest.approx((950, 1050))
    added = total([known(100, "s", "measured", "", half=3), known(50, "s", "measured", "", half=4)], "s", "")
    assert (added.low, added.high) == pytest.approx((145, 155))

"""What storages supply: which limit gives out first, at which number of accelerators."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from loaderprobe.analyze.plan.plan import Offer, catalogue_offer, demand, given_offer, judge_supply, measured_offer
from loaderprobe.errors import BadValue
from loaderprobe.records.plan import Amount, CatalogueEntry, PlanSupply, Tier
from loaderprobe.storage.catalogue import entry_named, published
from tests.examples.plan import example_asked, example_workload
from tests.said import all_said

TODAY = date(2026, 11, 22)


def judged(offer: Offer, **changes: Any) -> PlanSupply:
    """For 64 H100 at 90 %, with 80 % of a limit in use."""
    asked = replace(example_asked(64), **changes)
    return judge_supply(offer, demand(example_workload(), asked.utilization, asked.images_per_file), asked)


def bought(name: str, size: float | None = None) -> Offer:
    """From the catalogue that comes with loaderprobe."""
    return catalogue_offer(entry_named(published(), name), name, size, TODAY)


def test_opens_give_out_before_bandwidth() -> None:
    """24 TiB of FSx at 250 MB/s each have bandwidth for 26 accelerators, and opens for 12; as shards, for all 26."""
    found = judged(bought("fsx-lustre-250", 24))
    assert (found.name, found.first_limit) == ("fsx-lustre-250:24TiB", "opens")
    assert found.feeds == pytest.approx(0.8 * 24_000 / (0.9 * 400 / 0.224))
    assert [(limit.resource, round(limit.feeds)) for limit in found.limits][:2] == [("opens", 12), ("bandwidth", 26)]
    sharded = judged(bought("fsx-lustre-250", 24), images_per_file=1251)
    assert (sharded.first_limit, round(sharded.feeds or 0)) == ("bandwidth", 26)


def test_a_limit_that_is_not_published_for_a_size_is_missing_and_said() -> None:
    """The opens of a small FSx are not guessed."""
    small = bought("fsx-lustre-250", 2)
    assert {limit.resource for limit in small.limits} == {"bandwidth", "client"}
    assert any("opens at this size" in note for note in all_said(small.notes))


def test_the_storage_of_the_run_feeds_by_its_bandwidth() -> None:
    """0.92 GB/s of 115 kB files: 4.0 H100. Files of another size are limited by files/s, too, at least."""
    offer = measured_offer(example_workload())
    assert offer is not None and judged(offer).feeds == pytest.approx(3.98, abs=0.01)
    smaller = example_workload().changed(file_bytes=1000.0)
    other = measured_offer(smaller)
    assert other is not None
    found = judge_supply(other, demand(smaller, 0.9), example_asked(64))
    assert (found.first_limit, found.at_least) == ("opens", True)
    assert measured_offer(example_workload(storage=None)) is None


def test_a_node_has_limits_of_its_own() -> None:
    """Eight nodes with 1.5 GB/s each have 12 GB/s; a network of 1 GB/s gives out before that."""
    offer = given_offer("x", {"bandwidth": 100e9, "client": 1.5e9})
    assert judged(offer).first_limit == "client"
    assert judged(offer).limits[0].limit.value == 12e9
    assert judged(offer, nic_bytes_per_s=1e9).first_limit == "nic"


def test_latency_asks_for_reads_in_flight() -> None:
    """A read of 100 to 200 ms at 1,607 images/s: 161 to 321 reads in flight an accelerator."""
    flying = judged(bought("s3-standard", 16)).reads_in_flight
    assert flying is not None
    assert (round(flying.low), round(flying.high)) == (161, 321)
    assert judged(bought("s3-standard", 16)).at_least
    assert judged(bought("s3-standard", 16), images_per_file=100).reads_in_flight is None


def test_a_storage_without_a_known_limit_feeds_nothing_that_is_said() -> None:
    """None, never 0 or infinity."""
    found = judged(Offer(name="x", label="given", source="", limits=()))
    assert (found.feeds, found.first_limit, found.limits) == (None, None, ())


def _entry(**changes: Any) -> CatalogueEntry:
    fields: dict[str, Any] = {
        "name": "x", "family": "file", "unit": "TiB", "least_size": 2.0, "most_size": 10.0,
        "read_bytes_per_s": Amount(base=1e9, per_unit=1e8, at_most=1.5e9), "read_on": "2025-11-22", "source": "a page",
    }  # fmt: skip
    return CatalogueEntry(**(fields | changes))


def test_a_limit_grows_with_the_size_to_its_maximum() -> None:
    """1.2 GB/s at 2 TiB, 1.5 GB/s from 5 TiB on."""
    rates = [catalogue_offer(_entry(), "x", size, TODAY).limits[0].quantity.value for size in (2, 5, 10)]
    assert rates == [1.2e9, 1.5e9, 1.5e9]


@pytest.mark.parametrize("size", [None, 1.0, 11.0])
def test_a_size_that_is_not_sold_is_a_bad_value(size: float | None) -> None:
    """None, too small, too large."""
    with pytest.raises(BadValue):
        catalogue_offer(_entry(), "x", size, TODAY)


def test_a_size_of_what_has_none_is_a_bad_value() -> None:
    """`efs-elastic:5TiB` means nothing."""
    with pytest.raises(BadValue, match="not bought by size"):
        bought("efs-elastic", 5)


def test_figures_of_the_catalogue_are_stale_after_twelve_months() -> None:
    """To the day."""
    assert catalogue_offer(_entry(), "x", 2, TODAY).stale
    assert not catalogue_offer(_entry(read_on="2025-11-23"), "x", 2, TODAY).stale


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Fsx Lustre"}, {"name": ""}, {"source": ""}, {"read_on": "yesterday"}, {"least_size": float("nan")},
        {"client_bytes_per_s": -1.0}, {"latency_s": (0.1, float("inf"))},
    ],
)  # fmt: skip
def test_impossible_entries_cannot_be_made(changes: dict[str, Any]) -> None:
    """Plug-ins make them, too."""
    with pytest.raises(BadValue):
        _entry(**changes)
    with pytest.raises(BadValue):
        Amount(base=0.0)
    with pytest.raises(BadValue):
        Tier(name="250", read_bytes_per_s_per_unit=-5.0)

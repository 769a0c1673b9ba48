"""What limits training once a resource is free."""

from __future__ import annotations

from dataclasses import replace

from loaderprobe.analyze.report import next_limits
from loaderprobe.records.verdict import Speedup, Verdict
from tests.examples.study import CASES
from tests.examples.verdicts import verdict_of


def verdict(**speedups: float) -> Verdict:
    """1024x768 with 2 workers on an emulated H100: 63 images/s, mostly waiting for storage."""
    made = verdict_of(CASES[-1])
    found = {name: Speedup(value=value, low=value, high=value, how="measured") for name, value in speedups.items()}
    return replace(made, speedups=replace(made.speedups, **found))


def test_all_that_compute_takes_is_limited_by_compute() -> None:
    """A speed-up that leads up to the rate of compute alone ends there."""
    compute, now = 1786.0, verdict().images_per_s.value
    assert next_limits(verdict(preprocessing=compute / now), 2)["preprocessing"] == "compute"


def test_all_that_the_cores_can_is_limited_by_the_cores() -> None:
    """660 images/s is what the CPU time of an image allows; free preprocessing needs no cores."""
    now = verdict().images_per_s.value
    found = next_limits(verdict(storage=660 / now, preprocessing=660 / now), 2)
    assert found["storage"] == "cores"
    assert found["preprocessing"] != "cores"


def test_what_is_left_is_limited_by_the_largest_part_of_a_worker() -> None:
    """Without storage it is preprocessing, without preprocessing storage."""
    found = next_limits(verdict(storage=2.0, preprocessing=1.1), 2)
    assert (found["storage"], found["preprocessing"]) == ("preprocessing", "storage")


def test_storage_far_below_its_ceiling_is_no_next_limit() -> None:
    """However long workers wait for it: twice as fast, training would read a tenth of what it gave to as many."""
    made = verdict(preprocessing=2.0)
    assert next_limits(replace(made, disk_ceiling_fraction=0.3), 2)["preprocessing"] == "storage"
    assert next_limits(replace(made, disk_ceiling_fraction=0.05), 2)["preprocessing"] == "transport"
    assert next_limits(replace(made, disk_ceiling_fraction=None), 2)["preprocessing"] == "storage"


def test_only_known_speedups_have_a_next_limit() -> None:
    """And without worker times, none is made up."""
    assert "transport" not in next_limits(verdict(), 2)
    assert next_limits(replace(verdict(storage=1.5), worker_time=None), 2).get("storage") is None

"""Short benchmarks from a full buffer, by the law."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import buffer_effect, enough
from loaderprobe.records.config import LoaderSpec
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled, free_batches, over_steady
from tests.analyze.measured import measured
from tests.analyze.runs import segment
from tests.analyze.scripted import Truth

SLOW = measured(Truth(compute=100000.0), 2)
"""Its loader is the limit."""


@pytest.mark.parametrize(
    ("iterations", "free", "most", "ratio"),
    [(100, 12, 10.0, 100 / 88), (12, 12, 10.0, 10.0), (10, 12, 10.0, 10.0), (13, 12, 10.0, 10.0), (100, 12, 1.1, 1.1)],
)
def test_free_batches_cost_nothing(iterations: int, free: float, most: float, ratio: float) -> None:
    """k iterations cost k minus those at the steady rate; compute alone is the most there is."""
    assert over_steady(iterations, free, most) == pytest.approx(ratio)


@pytest.mark.parametrize(("free", "most", "iterations"), [(12.0, 10.0, 612), (60.0, 2.0, 3060), (12.0, 1.01, 1)])
def test_iterations_that_are_enough(free: float, most: float, iterations: int) -> None:
    """51 times the free batches for 2 %; where compute is the limit, the first one will do."""
    assert enough(free, most) == iterations
    assert over_steady(iterations, free, most) <= 1.02 + 1e-9
    assert iterations == 1 or over_steady(iterations - 1, free, most) > 1.02


@pytest.mark.parametrize(("workers", "factor", "free"), [(8, 2, 12.5), (8, 4, 28.5), (2, 8, 15.5), (3, 2, 5.0)])
def test_a_full_buffer_holds_free_batches(workers: int, factor: int, free: float) -> None:
    """As many as are ahead, less those that half of the other workers would have begun meanwhile."""
    assert free_batches(LoaderSpec(workers=workers, prefetch_factor=factor)) == free


def test_an_effect_that_was_not_measured_is_estimated() -> None:
    """From the rates of the verdict; a study that was refused gives its reason."""
    judged = verdict(SLOW)
    few = Remark(code="too_few_for_buffer", facts={"images": 99, "least": 100})
    refused = Prefilled(config=SLOW.config, started_utc="", reason=few)
    found = buffer_effect(SLOW, judged, refused)
    assert found is not None
    assert (found.batches, found.how, found.reason) == (4, "estimated", few)
    assert {each.iterations: each.over_steady for each in found.runs}[100] == pytest.approx(100 / 96.5)
    assert found.measured(100) is None and found.predicted(100) == pytest.approx(100 / 96.5)


def test_a_serial_loader_has_no_buffer_and_unknown_compute_no_estimate() -> None:
    """The one makes a batch when it is asked for it; the other is the most that a full buffer can do."""
    serial, judged = measured(Truth(compute=1000.0), 0), verdict(SLOW)
    assert buffer_effect(serial, verdict(serial), None) is None
    rates = replace(judged.rates_images_per_s, compute=None)
    assert buffer_effect(SLOW, replace(judged, rates_images_per_s=rates), None) is None


def test_the_noise_is_half_of_what_steady_rates_differ_by() -> None:
    """100 and 110 images/s: in the time of both, 104.8 within 5."""
    made = (
        segment("baseline", "training", 0, 0, rate, steps=40, thread_cpu_ns=0, delivered_bytes=None)
        for rate in (100.0, 110.0)
    )
    slow, fast = (replace(each, finished_ns=(*each.begin_ns[1:], each.closed_ns)) for each in made)
    study = Prefilled(config=SLOW.config, started_utc="", steady=(slow, fast), prefilled=slow)
    found = buffer_effect(SLOW, verdict(SLOW), study)
    assert found is not None and found.how == "measured"
    assert found.noise == pytest.approx(5 / 104.8, rel=0.01)
    assert found.measured(20) == pytest.approx(100 / 104.8, rel=0.01)

"""Short benchmarks from a full buffer, by the law."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import buffer_effect, enough
from loaderprobe.records.config import LoaderSpec
from loaderprobe.records.measurement import Segment
from loaderprobe.records.remark import Remark
from loaderprobe.records.studies import Prefilled, free_batches, over_steady
from loaderprobe.stats import mean
from tests.analyze.measured import measured
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


@pytest.mark.parametrize(("workers", "factor"), [(8, 2), (8, 4), (2, 8), (3, 2)])
def test_the_law_is_that_of_the_schedule(workers: int, factor: int) -> None:
    """DataLoader's own: task k goes to worker k mod N, a new one is sent when a batch is taken."""
    loader = LoaderSpec(workers=workers, prefetch_factor=factor)
    ends = [finished(loader, seed) for seed in range(20)]
    for buffers in (2, 5, 9):
        group = range(buffers * loader.batches_ahead, buffers * loader.batches_ahead + workers)
        # A worker makes a batch a second, and so N a second of all.
        seen = mean([iterations / end[iterations - 1] / workers for end in ends for iterations in group])
        assert seen == pytest.approx(over_steady(round(mean(group)), free_batches(loader), 1e9), rel=0.06)


def finished(loader: LoaderSpec, seed: int) -> list[float]:
    """When each batch is taken, by a device that takes no time; batches of a second, a tenth more or less."""
    chance, ahead = random.Random(seed), loader.batches_ahead
    free, ready, now, taken = [0.0] * loader.workers, [0.0] * ahead, 0.0, []
    for number in range(10 * ahead):
        now = max(now, ready[number])
        taken.append(now)
        worker = number % loader.workers
        free[worker] = max(free[worker], now) + chance.gauss(1.0, 0.1)
        ready.append(free[worker])
    return taken


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


def test_the_serial_loader_has_no_buffer() -> None:
    """It makes a batch when it is asked for one."""
    serial = measured(Truth(compute=1000.0), 0)
    assert buffer_effect(serial, verdict(serial), None) is None


def test_without_the_rate_of_compute_nothing_is_estimated() -> None:
    """It is the most that a full buffer can do."""
    judged = verdict(SLOW)
    rates = replace(judged.rates_images_per_s, compute=None)
    assert buffer_effect(SLOW, replace(judged, rates_images_per_s=rates), None) is None


def test_the_noise_is_half_of_what_steady_rates_differ_by() -> None:
    """100 and 110 images/s: in the time of both, 104.8 within 5."""
    slow, fast = (segment(rate) for rate in (100.0, 110.0))
    study = Prefilled(config=SLOW.config, started_utc="", steady=(slow, fast), prefilled=segment(100.0))
    found = buffer_effect(SLOW, verdict(SLOW), study)
    assert found is not None and found.how == "measured"
    assert found.noise == pytest.approx(5 / 104.8, rel=0.01)
    assert found.measured(20) == pytest.approx(100 / 104.8, rel=0.01)


def segment(images_per_s: float) -> Segment:
    """40 steps of 10 images."""
    stamps = tuple(round(number * 1e10 / images_per_s) for number in range(41))
    return Segment(
        mode="baseline", activity="training", round=0, first_batch=0, batch_size=10, begin_ns=stamps[:-1],
        ready_ns=stamps[:-1], copied_ns=stamps[:-1], end_ns=stamps[:-1], finished_ns=stamps[1:], closed_ns=stamps[-1],
        thread_cpu_ns=0, delivered_bytes=None, disk_bytes=None, resident_before=None,
    )  # fmt: skip

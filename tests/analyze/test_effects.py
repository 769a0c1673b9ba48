"""Welch, Holm, the smallest visible change and intervals of rates, against figures by hand, published or simulated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from loaderprobe.analyze.comparison import LogMean, RunReading, drift_of, holm, mean_effect, sample, unpaired
from loaderprobe.analyze.effects import interval, of_rounds
from loaderprobe.analyze.verdict.rates import Waiting, rate_interval
from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.records.thresholds import REPEAT
from loaderprobe.records.verdict import Interval
from loaderprobe.records.waits import WaitKind
from loaderprobe.stats import Noise
from tests.analyze.runs import BATCH, Cost, alike, run, segment, stamped


def reading(*values: float, low: float | None = None, high: float | None = None) -> RunReading:
    """One run; its interval is empty unless given."""
    middle = sorted(values)[len(values) // 2]
    return RunReading(values=values, figure=Interval(value=middle, low=low or middle, high=high or middle))


def found(before: list[float], after: list[float], *, drift: float = 0.0) -> LogMean:
    """The effect of two single runs."""
    samples = [sample([reading(*values)]) for values in (before, after)]
    assert samples[0] and samples[1]
    return unpaired(samples[0], samples[1], drift=drift)


def test_welch_gives_the_published_freedom_and_probability() -> None:
    """Logs 1, 2, 3 and 2, 4, 6, 8: t = 2.121, 4.07 degrees of freedom and p = 0.0998, by hand and by tables."""
    one = found([math.exp(x) for x in (1, 2, 3)], [math.exp(x) for x in (2, 4, 6, 8)])
    assert one.mean == pytest.approx(3.0)
    assert one.error == pytest.approx(math.sqrt(1 / 3 + (20 / 3) / 4))
    assert one.freedom == pytest.approx(2.0**2 / ((1 / 3) ** 2 / 2 + (5 / 3) ** 2 / 3), rel=1e-9)
    assert one.p == pytest.approx(0.0998, abs=0.002)


@pytest.mark.parametrize(
    ("rounds", "spread", "visible"),
    [(3, 0.03, 0.068), (5, 0.03, 0.044), (10, 0.03, 0.028), (3, 0.10, 0.227), (5, 0.10, 0.146), (10, 0.10, 0.094)],
)
def test_the_smallest_visible_change_is_that_of_the_formula(rounds: int, spread: float, visible: float) -> None:
    """Student's t times the spread times sqrt(2/n), for n rounds of equal spread on each side."""
    variance = 2 * spread**2 / rounds
    one = LogMean(mean=0.0, noise=Noise(variance=variance, freedom=2 * (rounds - 1)), of_rounds=2 * spread**2)
    assert one.half() == pytest.approx(visible, abs=0.001)


def test_drift_is_added_once_and_makes_no_freedom() -> None:
    """A single run cannot show how runs differ: 3 % stand in, and an exact measurement has that interval."""
    drift = drift_of((1, 1))
    exact = found([5.0, 5.0, 5.0], [5.0, 5.0, 5.0], drift=drift)
    assert exact.half() == pytest.approx(REPEAT, rel=1e-3) and exact.p == 1.0 and exact.freedom == math.inf
    mean = mean_effect([exact] * 9)
    assert mean.half() == pytest.approx(REPEAT, rel=1e-3)
    assert drift_of((3, 3)) == 0.0 and drift_of((1, 3)) == drift


def test_holm_multiplies_the_smallest_by_the_number_of_rows() -> None:
    """The example of Holm's procedure with four tests; never above 1, never in another order."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_what_a_side_varies_by_comes_from_runs_then_rounds_then_steps() -> None:
    """Three runs stand for themselves; fewer are pooled; one round has the interval of its steps, or nothing."""
    runs = sample([reading(1.0, 9.0), reading(2.0, 9.0), reading(4.0, 9.0)])
    assert runs and runs.noise.variance == 0.0
    pooled = sample([reading(1.0, 2.0), reading(3.0)])
    assert pooled and pooled.freedom == pytest.approx(2)
    steps = sample([reading(100.0, low=90.0, high=110.0)])
    assert steps and math.sqrt(steps.noise.variance) == pytest.approx(0.1 / 2.571, rel=1e-3)
    assert sample([reading(100.0)]) is None


@pytest.mark.parametrize(("rounds", "least"), [((2.0,), 0.15), ((2.0, 2.0), 0.08), ((2.0, 2.1), 0.09)])
def test_few_rounds_have_the_interval_of_what_rounds_differ_by(rounds: tuple[float, ...], least: float) -> None:
    """A speed-up that was measured once is not known exactly."""
    assert least < half(of_rounds(dict(enumerate(rounds))).ratio) < 0.18


@pytest.mark.parametrize(
    ("rounds", "leads"),
    [
        ((1.2, 1.21, 1.22), True),
        ((1.01, 1.5, 1.02, 1.6, 1.03), False),
        ((1.4, 1.41), False),
        ((1.6, 1.61), True),
        ((1.9,), False),
    ],
)
def test_few_rounds_need_a_wider_lead(rounds: tuple[float, ...], leads: bool) -> None:
    """Each round by 1.15, two by 1.5, one by 2."""
    assert of_rounds(dict(enumerate(rounds))).leads_in_each() is leads


def half(found: Interval) -> float:
    """Half the interval, as a share of the value."""
    return (found.high - found.value) / found.value


def trained(seconds: Sequence[float], number: int = 0) -> Segment:
    """A round of training whose steps take so long."""
    made = segment("baseline", "training", number, 0, 100.0, thread_cpu_ns=0, delivered_bytes=None)
    stamps = [round(1e9 * math.fsum(seconds[:step])) for step in range(len(seconds) + 1)]
    return replace(made, **stamped(tuple(stamps[:-1])), finished_ns=(), closed_ns=stamps[-1])


def rounds_of(segments: Sequence[Segment], **facts: object) -> Measurement:
    """A measurement of these rounds, on a device that the host waits for."""
    return run(
        alike(1, baseline=100), Cost(), synchronous=True, facts={"segments": tuple(segments), **facts}, workers=1
    )


def rate_of(rounds: Sequence[Sequence[float]]) -> Interval:
    """Of rounds of these steps."""
    segments = [trained(each, number) for number, each in enumerate(rounds)]
    return rate_interval(rounds_of(segments), segments)


def test_a_single_round_has_what_rounds_are_assumed_to_differ_by() -> None:
    """And what its steps vary by; two or three that agree have less, and rounds that differ have more."""
    even, uneven = [0.1] * 24, ([0.05] * 4 + [0.15] * 4) * 3
    one, two, three = (half(rate_of([even] * count)) for count in (1, 2, 3))
    assert 0.15 < one < 0.17 and two < 0.6 * one and three < 0.07
    assert half(rate_of([uneven])) > one
    apart = rate_of([even, [0.11] * 22, [0.09] * 26])
    assert apart.value == pytest.approx(BATCH / 0.1) and 0.08 < half(apart) < 0.25


@pytest.mark.parametrize(
    ("steps", "waits", "unequal", "least", "most"),
    [(8, True, False, 0.0, 0.2), (8, True, True, 1.0, 3.0), (4, True, True, 3.0, 9.0), (8, False, True, 0.0, 0.2)],
)
def test_batches_that_differ_widen_a_rate_of_few_steps(
    steps: int, waits: bool, unequal: bool, least: float, most: float
) -> None:
    """One period of 8 workers, or half of it, shows no noise; batches of 5 and 60 s do, where steps wait for them."""
    found = run(alike(1, baseline=100), Cost(), workers=8)
    long = trained([20.0] * steps)
    ends = (*long.begin_ns[1:], long.closed_ns)
    judged = replace(long, ready_ns=ends, copied_ns=ends, end_ns=ends) if waits else long
    walls = [5, 60] if unequal else [20, 20]
    batches = replace(found.worker_batches, wall_ns=tuple(walls * (len(found.worker_batches.batch) // 2)))
    measured = replace(found, segments=(judged,), worker_batches=batches)
    assert least < half(rate_interval(measured, [judged])) < most


def test_two_values_have_no_quantile_of_one_degree_of_freedom() -> None:
    """12.7 times the difference says nothing of two speed-ups; the spread between rounds does."""
    assert half(interval([1.0, 1.02])) < 0.1
    assert half(interval([1.0, 1.5])) > half(interval([1.0, 1.1])) > half(interval([1.0, 1.0])) > 0
    assert half(interval([5.0])) == 0, "nothing is known of a single value"


@pytest.mark.parametrize("rounds", [1, 3, 6])
@pytest.mark.parametrize("drift", [0.02, 0.05, 0.08])
def test_intervals_hold_the_rate_of_a_long_loop(drift: float, rounds: int) -> None:
    """Of 200 measurements, rounds of which drift and whose steps depend on each other; and are not much too wide."""
    draw = random.Random(17)
    errors, halves = [], []
    for _ in range(200):
        segments = []
        for number in range(rounds):
            speed, noise, steps = draw.gauss(0, drift), 0.0, []
            for _ in range(12):
                noise = 0.3 * noise + draw.gauss(0, 0.05)
                steps.append(0.1 * math.exp(noise + speed))
            segments.append(trained(steps, number))
        found = rate_interval(rounds_of(segments), segments)
        errors.append(abs(found.value / (BATCH / 0.1) - 1))
        halves.append(half(found))
    held = sum(error <= each for error, each in zip(errors, halves, strict=True)) / len(errors)
    narrowest = sorted(errors)[189]
    # What is assumed is right for 5 %; a single round cannot show that its machine is another.
    assert held >= {0.02: 0.95, 0.05: 0.92, 0.08: 0.85}[drift]
    assert median(halves) <= {0.02: 3.2, 0.05: 1.6, 0.08: 1.2}[drift] * narrowest


@pytest.mark.parametrize(
    ("kinds", "least", "most"),
    [({"network": 60}, 0.0, 0.06), ({"network": 30, "lock": 30}, 0.38, 0.62), ({}, 0.0, 1.0)],
)
def test_the_ends_of_a_share_are_never_its_middle(kinds: dict[WaitKind, int], least: float, most: float) -> None:
    """No look at a lock in 60 still allows a share of some 6 %, and half of 60 one of 38 to 62 %; few allow any."""
    found = Waiting(samples=60, kinds=kinds)
    assert (found.least("lock"), found.most("lock")) == pytest.approx((least, most), abs=0.01)

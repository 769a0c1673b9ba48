"""Rates and their intervals."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe.analyze.effects import interval
from loaderprobe.analyze.verdict.rates import Waiting, rate_interval
from loaderprobe.records.measurement import Measurement, Segment
from loaderprobe.records.verdict import Interval
from loaderprobe.records.waits import WaitKind
from tests.analyze.runs import BATCH, Cost, alike, run, segment


def half(found: Interval) -> float:
    """Half the interval, as a share of the value."""
    return (found.high - found.value) / found.value


def trained(seconds: Sequence[float], number: int = 0) -> Segment:
    """A round of training whose steps take so long."""
    made = segment("baseline", "training", number, 0, 100.0, thread_cpu_ns=0, delivered_bytes=None)
    stamps = [round(1e9 * math.fsum(seconds[:step])) for step in range(len(seconds) + 1)]
    begin = tuple(stamps[:-1])
    return replace(
        made, begin_ns=begin, ready_ns=begin, copied_ns=begin, end_ns=begin, finished_ns=(), closed_ns=stamps[-1]
    )


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


def test_two_values_have_no_quantile_of_one_degree_of_freedom() -> None:
    """12.7 times the difference says nothing of two speed-ups; the spread between rounds does."""
    assert half(interval([1.0, 1.02])) < 0.1
    assert half(interval([1.0, 1.5])) > half(interval([1.0, 1.1])) > half(interval([1.0, 1.0])) > 0
    assert half(interval([5.0])) == 0, "nothing is known of a single value"


@given(rates=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=8), scale=st.floats(0.01, 100))
def test_an_interval_holds_its_value_at_any_scale(rates: list[float], scale: float) -> None:
    """A machine that is so many times as fast has an interval that is as many times as wide."""
    one, other = rate_of([[each] * 12 for each in rates]), rate_of([[each / scale] * 12 for each in rates])
    assert 0 <= one.low <= one.value < one.high
    assert half(other) == pytest.approx(half(one), rel=1e-3) and other.value == pytest.approx(
        one.value * scale, rel=1e-3
    )


@pytest.mark.parametrize("rounds", [1, 2, 3, 6])
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

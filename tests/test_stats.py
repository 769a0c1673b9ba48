"""Intervals against tables, means and quantiles against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe import stats

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(VALUES, st.floats(0, 1))
def test_means_quantiles_and_errors_are_those_of_numpy(values: list[float], share: float) -> None:
    """Quantiles are linear between the two nearest; the standard error divides by n - 1, and half the interval is as
    many of them as Student's t says: a single value has none."""
    assert stats.quantile(values, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-6)
    assert stats.median(values) == pytest.approx(float(np.median(values)), abs=1e-6)
    assert stats.mean(values) == pytest.approx(float(np.mean(values)), abs=1e-6)
    expected = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    assert stats.standard_error(values) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    student = stats.student_quantile(0.05, len(values) - 1) if len(values) > 1 else 0.0
    assert stats.half_width(values) == pytest.approx(student * expected, rel=1e-6, abs=1e-4)


def test_nothing_has_no_mean() -> None:
    """An empty list is the caller's mistake; its interval has no width."""
    assert stats.half_width([]) == 0.0
    for figure in (stats.mean, lambda values: stats.quantile(values, 0.5)):
        with pytest.raises(ValueError, match="nothing"):
            figure([])


@pytest.mark.parametrize(
    ("tails", "freedom", "t"),
    [
        (0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 4, 2.776), (0.05, 10, 2.228), (0.05, 30, 2.042),
        (0.05, 120, 1.980), (0.05, math.inf, 1.960), (0.01, 5, 4.032), (0.001, 3, 12.924), (0.10, 2e5, 1.645),
    ],
)  # fmt: skip
def test_students_t_is_that_of_the_tables(tails: float, freedom: float, t: float) -> None:
    """The published quantiles, and the probability of each."""
    assert stats.student_quantile(tails, freedom) == pytest.approx(t, abs=6e-4)
    assert stats.student_tails(t, freedom) == pytest.approx(tails, rel=2e-3)
    assert stats.student_tails(-t, freedom) == stats.student_tails(t, freedom)


@given(st.floats(0.5, 1e4), st.floats(-50, 50))
def test_tails_of_t_are_a_probability(freedom: float, t: float) -> None:
    """1 at 0, less the farther, and never outside 0 to 1, for parts of a degree of freedom, too."""
    found = stats.student_tails(t, freedom)
    assert 0.0 <= found <= 1.0 and stats.student_tails(0.0, freedom) == pytest.approx(1.0)
    assert stats.student_tails(1.1 * t, freedom) <= found + 1e-12


def test_the_lowest_is_the_same_whatever_the_last_digits_are() -> None:
    """Values that differ by rounding alone are alike: the first is named."""
    assert stats.lowest({"disk": 0.1 + 0.2, "cores": 0.3}) == stats.lowest({"disk": 0.3, "cores": 0.1 + 0.2}) == "disk"
    assert stats.lowest({"disk": 0.31, "cores": 0.3}) == "cores"

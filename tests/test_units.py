"""Units are read and written back, also where rounding changes the unit; the statistics are those of numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe import stats, units
from loaderprobe.errors import BadValue


@given(st.floats(1e-9, 1e12), st.integers(1, 6), st.sampled_from([1, -1]))
def test_significant_figures_are_plain_and_as_many_as_asked(value: float, figures: int, sign: int) -> None:
    """Decimal notation without an exponent, within half a unit of the last figure, with the sign kept."""
    text = units.significant(sign * value, figures)
    assert "e" not in text.lower()
    assert float(text) == pytest.approx(sign * value, rel=0.5001 * 10 ** (1 - figures))


@given(st.integers(0, 10**15))
def test_a_size_survives_writing_and_reading(count: int) -> None:
    """What format_bytes writes, parse_bytes reads, within half a percent."""
    assert units.parse_bytes(units.format_bytes(count)) == pytest.approx(count, rel=0.00501)


@given(st.integers(16, 16384), st.integers(16, 16384))
def test_a_resolution_survives_writing_and_reading(width: int, height: int) -> None:
    """Exactly, with a small or a large x."""
    text = f"{width}x{height}"
    assert units.parse_resolution(text) == units.parse_resolution(text.upper()) == text


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (units.parse_bytes("110kB"), 110_000), (units.parse_bytes("1.5 GiB"), 3 * 2**29),
        (units.parse_bytes("64MB"), 64 * 10**6), (units.parse_bytes("4096"), 4096), (units.parse_bytes("1 mib"), 2**20),
        (units.parse_resolution("ImageNet"), "imagenet"),
        (units.parse_list("1, 2,2", units.parse_count), (1, 2)),
        ([units.significant(n) for n in (0.0, 1e-5, 999.6)], ["0", "0.00001", "1000"]),
        ([units.format_bytes(n) for n in (0, 12, 114_660, 3.2e9)], ["0 B", "12 B", "115 kB", "3.20 GB"]),
        ([units.format_bytes(n) for n in (999.4, 999.6, 999_501)], ["999 B", "1.00 kB", "1.00 MB"]),
        (units.format_rate(20_100_000), "20.1 MB/s"),
        ([units.format_duration(s) for s in (0, 0.00034, 0.0012, 4.5)], ["0 us", "340 us", "1.20 ms", "4.5 s"]),
        ([units.format_duration(s) for s in (200, 7200, 7500)], ["3 min 20 s", "2 h", "2 h 5 min"]),
        ([units.format_duration(s) for s in (0.0009994, 0.0009996)], ["999 us", "1.00 ms"]),
        ([units.format_duration(s) for s in (0.9994, 0.9996, -0.04)], ["999 ms", "1.0 s", "-40.0 ms"]),
        ([units.format_duration(s) for s in (59.4, 59.7, 3599.8)], ["59 s", "1 min", "1 h"]),
        ([units.join_words(words) for words in ([], ["a"], ["a", "b"])], ["", "a", "a and b"]),
        (units.join_words(["a", "b", "c"], "or"), "a, b or c"),
    ],
)  # fmt: skip
def test_quantities_are_read_and_written_as_people_write_them(found: object, expected: object) -> None:
    """MB is 10^6 and MiB 2^20; a figure that rounds up takes the next unit, never 1000 kB or 60 s."""
    assert found == expected


SIZES = ("", "MB", "3 apples", "-1MB", "9" * 400, "1e400", "nan", "inf MB", "1..5MB", "1,5MB")
RESOLUTIONS = ("500", "500x", "8x8", "99999x5", "axb", "9" * 5000 + "x5", "15x16", "16x16385", "-16x16", "16.0x16")


def counts(text: str) -> object:
    return units.parse_list(text, units.parse_count)


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        *((units.parse_bytes, text, "not a size") for text in SIZES),
        *((units.parse_resolution, text, "not a resolution") for text in RESOLUTIONS),
        *((counts, text, "not a whole number") for text in ("-1", "1.0", "two", "1" * 10)),
        *((counts, text, "empty") for text in ("", ",,")),
    ],
)
def test_other_quantities_are_refused(parse: Callable[[str], object], text: str, says: str) -> None:
    """Just outside the limits, too large for a float, too long for Python to read, in another notation, or a list of
    nothing, which is no request; of sizes with the forms that are understood."""
    with pytest.raises(BadValue, match=says) as caught:
        parse(text)
    assert parse is not units.parse_bytes or "64MB" in caught.value.hint


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
        with pytest.raises(ValueError, match=r"nothing|at least one"):
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

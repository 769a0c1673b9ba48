"""Units: what people write is read and written back, also where rounding changes the unit; the rest is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaderprobe import units
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
    text = units.format_resolution((width, height))
    assert units.parse_resolution(text) == units.parse_resolution(text.upper()) == (width, height)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (units.parse_bytes("110kB"), 110_000), (units.parse_bytes("1.5 GiB"), 3 * 2**29),
        (units.parse_bytes("64MB"), 64 * 10**6), (units.parse_bytes("4096"), 4096), (units.parse_bytes("1 mib"), 2**20),
        (units.format_resolution(units.parse_resolution("ImageNet")), "imagenet"),
        (units.parse_list("1, 2,2", units.parse_count), (1, 2)),
        ([units.significant(n) for n in (0.0, 1e-5, 999.6)], ["0", "0.00001", "1000"]),
        ([units.format_bytes(n) for n in (0, 12, 114_660, 3.2e9)], ["0 B", "12 B", "115 kB", "3.20 GB"]),
        ([units.format_bytes(n) for n in (999.4, 999.6, 999_501)], ["999 B", "1.00 kB", "1.00 MB"]),
        (units.format_rate(20_100_000), "20.1 MB/s"),
        ([units.format_duration(s) for s in (0, 0.00034, 0.0012, 4.5)], ["0 us", "340 us", "1.20 ms", "4.5 s"]),
        ([units.format_duration(s) for s in (200, 7200, 7500)], ["3 min 20 s", "2 h", "2 h 5 min"]),
        ([units.format_duration(s) for s in (0.0009994, 0.0009996)], ["999 us", "1.00 ms"]),
        ([units.format_duration(s) for s in (0.9994, 0.9996)], ["999 ms", "1.0 s"]),
        ([units.format_duration(s) for s in (59.4, 59.7, 3599.8)], ["59 s", "1 min", "1 h"]),
        ([units.join_words(words) for words in ([], ["a"], ["a", "b"])], ["", "a", "a and b"]),
        (units.join_words(["a", "b", "c"], "or"), "a, b or c"),
    ],
)  # fmt: skip
def test_quantities_are_read_and_written_as_people_write_them(found: object, expected: object) -> None:
    """MB is 10^6 and MiB 2^20; a figure that rounds up takes the next unit, never 1000 kB or 60 s."""
    assert found == expected


@pytest.mark.parametrize("text", ["", "MB", "3 apples", "-1MB", "9" * 400, "1e400", "nan", "inf MB", "1..5MB", "1,5MB"])
def test_other_sizes_are_refused(text: str) -> None:
    """A number too large for a float, or in another notation, too; with the forms that are understood."""
    with pytest.raises(BadValue, match="not a size") as caught:
        units.parse_bytes(text)
    assert "64MB" in caught.value.hint


@pytest.mark.parametrize(
    "text", ["500", "500x", "8x8", "99999x5", "axb", "9" * 5000 + "x5", "15x16", "16x16385", "-16x16", "16.0x16"]
)
def test_other_resolutions_are_refused(text: str) -> None:
    """Just outside the limits, or too long for Python to read as a number."""
    with pytest.raises(BadValue, match="not a resolution"):
        units.parse_resolution(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [*((text, "not a whole number") for text in ("-1", "1.0", "two", "1" * 10)), ("", "empty"), (",,", "empty")],
)
def test_counts_are_whole_and_not_negative(text: str, says: str) -> None:
    """And a list of nothing asks for nothing, which is no request."""
    with pytest.raises(BadValue, match=says):
        units.parse_list(text, units.parse_count)

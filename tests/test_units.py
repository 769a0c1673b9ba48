"""Units at their edges: where rounding changes the unit, and what cannot be a number."""

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


def test_zero_and_the_smallest_are_written_out() -> None:
    """Zero is one digit, and a hundred-thousandth is not 1e-05."""
    assert (units.significant(0.0), units.significant(1e-5), units.significant(999.6)) == ("0", "0.00001", "1000")


@given(st.integers(0, 10**15))
def test_a_size_survives_writing_and_reading(count: int) -> None:
    """What format_bytes writes, parse_bytes reads, within half a percent."""
    assert units.parse_bytes(units.format_bytes(count)) == pytest.approx(count, rel=0.00501)


@given(st.integers(16, 16384), st.integers(16, 16384))
def test_a_resolution_survives_writing_and_reading(width: int, height: int) -> None:
    """Exactly, with a small or a large x."""
    text = units.format_resolution((width, height))
    assert units.parse_resolution(text) == units.parse_resolution(text.upper()) == (width, height)


def test_the_mixture_is_a_resolution_by_name() -> None:
    """`imagenet`, in any case, comes back as it is."""
    assert units.format_resolution(units.parse_resolution("ImageNet")) == "imagenet"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 us"), (0.0009994, "999 us"), (0.0009996, "1.00 ms"), (0.9994, "999 ms"), (0.9996, "1.0 s"),
        (59.4, "59 s"), (59.7, "1 min"), (3599.8, "1 h"), (7200, "2 h"),
    ],
)  # fmt: skip
def test_a_duration_that_rounds_up_takes_the_next_unit(seconds: float, text: str) -> None:
    """Never 1000 us, 1000 ms, 60 s or 60 min."""
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(999.4, "999 B"), (999.6, "1.00 kB"), (999_501, "1.00 MB"), (0, "0 B")])
def test_a_size_that_rounds_up_takes_the_next_unit(count: float, text: str) -> None:
    """Never 1000 kB."""
    assert units.format_bytes(count) == text


@pytest.mark.parametrize("text", ["9" * 400, "1e400", "nan", "inf MB", "1..5MB", "1,5MB"])
def test_sizes_beyond_reason_are_bad_values(text: str) -> None:
    """A number too large for a float, or in another notation, is refused, not a traceback."""
    with pytest.raises(BadValue, match="not a size"):
        units.parse_bytes(text)


@pytest.mark.parametrize("text", ["9" * 5000 + "x5", "15x16", "16x16385", "-16x16", "16.0x16"])
def test_resolutions_beyond_reason_are_bad_values(text: str) -> None:
    """Just outside the limits, or too long for Python to read as a number."""
    with pytest.raises(BadValue, match="not a resolution"):
        units.parse_resolution(text)


@pytest.mark.parametrize("text", ["-1", "1.0", "", "two", "1" * 10])
def test_counts_are_whole_and_not_negative(text: str) -> None:
    """Anything else is refused by name."""
    with pytest.raises(BadValue, match="not a whole number"):
        units.parse_count(text)


@pytest.mark.parametrize("text", ["", " ", ",,"])
def test_an_empty_list_is_refused(text: str) -> None:
    """A list of nothing asks for nothing, which is no request."""
    with pytest.raises(BadValue, match="empty"):
        units.parse_list(text, units.parse_count)


def test_words_are_joined() -> None:
    """None, one and two words need no comma."""
    assert [units.join_words(words) for words in ([], ["a"], ["a", "b"])] == ["", "a", "a and b"]

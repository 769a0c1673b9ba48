"""Intervals and ranges of figures in words."""

from __future__ import annotations

from collections.abc import Sequence

from loaderprobe.units import significant


def half_interval(value: float, half: float) -> str:
    """`±6`, to the decimal place of the value with three figures; `half` is above 0."""
    decimals = len(significant(value).partition(".")[2])
    text = f"{half:.{decimals}f}"
    return f"±{text if float(text) else significant(half, 1)}"


def value_range(values: Sequence[float]) -> str:
    """`12.5`, or `12.5 to 20.1`; empty without a value."""
    return " to ".join(dict.fromkeys(significant(value) for value in (min(values), max(values)))) if values else ""

"""Parse and format sizes, rates, durations and resolutions.

MB is 10^6 bytes and MiB is 2^20 bytes, always named. Formatting keeps three significant figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeVar

from loaderprobe.errors import BadValue

T = TypeVar("T")
IMAGENET = "imagenet"

_SIZE_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip


def significant(value: float, figures: int = 3) -> str:
    """`value` in plain decimal notation with `figures` significant figures: 0.0123, 4.56, 1790."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{figures - 1}e}")
    whole_digits = len(str(int(abs(rounded)))) if abs(rounded) >= 1 else 0
    if whole_digits:
        return f"{rounded:.{max(0, figures - whole_digits)}f}"
    # The `g` notation, but without its exponent for the smallest.
    return f"{Decimal(f'{rounded:.{figures}g}'):f}"


def format_bytes(count: float) -> str:
    """A number of bytes in decimal units: 114 kB, 1.15 MB, 3.20 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size * 0.9995:
            return f"{significant(count / size)} {unit}"
    return f"{count:.0f} B"


def format_rate(bytes_per_s: float) -> str:
    """A bandwidth in decimal units: 20.1 MB/s."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_duration(seconds: float) -> str:
    """A duration with the unit a person would choose: 340 us, 1.2 ms, 4.5 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    # Each limit is where rounding would reach the next unit: 1 min, never 60 s.
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.9995:
        return f"{significant(seconds * 1e3)} ms"
    if seconds < 59.5:
        return f"{significant(seconds, 2)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def parse_bytes(text: str) -> int:
    """Bytes from `110kB`, `1.5 GiB` or `4096`. Raises BadValue."""
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in _SIZE_UNITS:
        raise BadValue(f"'{text}' is not a size", hint="write 110kB, 64MB or 2GiB (MB = 10^6, MiB = 2^20 bytes)")
    return round(float(match[1]) * _SIZE_UNITS[match[2].upper()])


def parse_resolution(text: str) -> str:
    """`500x375` in pixels, or `imagenet` for ImageNet's own mixture of resolutions. Raises BadValue."""
    if text.strip().lower() == IMAGENET:
        return IMAGENET
    match = re.fullmatch(r"\s*(\d{1,5})[xX](\d{1,5})\s*", text)
    if not match or not (16 <= int(match[1]) <= 16384 and 16 <= int(match[2]) <= 16384):
        raise BadValue(
            f"'{text}' is not a resolution",
            hint="write WIDTHxHEIGHT in pixels (16 to 16384), like 500x375, or imagenet for its mixture",
        )
    return f"{int(match[1])}x{int(match[2])}"


def parse_list(text: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    """The distinct items of a comma-separated list, in the order given. Raises BadValue."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise BadValue("the list is empty", hint="give at least one value, separated by commas")
    return tuple(dict.fromkeys(parse(item) for item in items))


def parse_count(text: str) -> int:
    """A whole number of at least 0. Raises BadValue."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise BadValue(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def join_words(words: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else ""

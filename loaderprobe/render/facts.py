"""Facts as sentences quote them, each by the end of its name."""

from __future__ import annotations

from collections.abc import Callable

from loaderprobe.render.counter_words import nvml_words
from loaderprobe.units import format_bytes, format_duration, format_rate, significant


def fact(name: str, value: float | str) -> str:
    """`15%` of a share, `20.3 MB/s`, `1.86 ms`; a word is itself, a count without a decimal point."""
    if isinstance(value, str):
        return value
    return next((shown(value) for ends, shown in _BY_END if name.endswith(ends)), f"{value:.10g}")


def read_ahead_words(size_bytes: float) -> str:
    """`read-ahead 128 KiB`, as `read_ahead_kb` of the kernel has it."""
    return f"read-ahead {size_bytes / 1024:.0f} KiB"


def _milliseconds(seconds: float) -> str:
    return significant(seconds * 1e3)


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


# The first that fits.
_BY_END: tuple[tuple[str | tuple[str, ...], Callable[[float], str]], ...] = (
    ("status", nvml_words),
    ("bytes_per_s", format_rate),
    ("read_ahead_bytes", read_ahead_words),
    ("_per_s", significant),
    ("bytes", format_bytes),
    ("exact_share", "{:.1%}".format),
    (("share", "most", "idle_by_gaps", "idle_by_rates"), "{:.0%}".format),
    (("cold_s", "warm_s"), _milliseconds),
    (("clock_s", "most_s"), _microseconds),
    (("file_s", "meeting_s", "paused_s", "within_s", "take_s", "timeout_s"), format_duration),
    ("ended_after_s", "{:.1f}".format),
    ("_s", "{:.0f}".format),
    ("amplification", "{:.2g}".format),
    ("seconds", "{:.2f}".format),
    (("cores", "cores_available", "rise", "paced"), "{:.3g}".format),
)

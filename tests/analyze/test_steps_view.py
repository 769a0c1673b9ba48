"""The steps of training as stretches of time."""

from __future__ import annotations

from loaderprobe.records.verdict import Stretches


def total(ranges: Stretches) -> int:
    return sum(end - begin for begin, end in ranges)

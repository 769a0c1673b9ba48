"""What was predicted and what was then measured: one record, one table, one rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.stats import median, quantile
from scripts.benches.score import aligned


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One prediction beside one measurement, both in the same unit."""

    group: str
    """Its line in the summary; a part of it stands after a colon."""
    name: str
    measured: float
    predicted: float | None = None
    """None where the product refuses to predict."""
    low: float | None = None
    high: float | None = None
    """Of the range, where one is given."""
    repeat: float | None = None
    """The relative error of an earlier measurement of the same."""
    trivial: bool = False
    """What was measured is what was given: it would only make errors small."""
    wrong: str = ""
    """What may not be, by a rule of this kind alone."""
    note: str = ""

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.measured - 1 if self.measured else math.inf

    @property
    def in_range(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What each group must reach."""

    error: float = math.inf
    """Of the median error."""
    times_repeat: float = math.inf
    """The median error over that of repeats."""
    in_range: float = 0.0
    """Share of the ranges that hold."""


HEAD = ("kind", "row", "predicted", "range", "measured", "error", "repeat", "")


def report(rows: Sequence[Compared], limits: Limits, everything: bool) -> bool:
    """Print the rows, then a line for each group and each part of one; True where all is as good as it has to be."""
    shown = [row for row in rows if everything or row.wrong]
    if shown:
        print(aligned([HEAD, *(_cells(row) for row in shown)]) + "\n")
    groups = dict.fromkeys(row.group.partition(":")[0] for row in rows)
    print(f"{'kind':24} rows  error: median    p90  repeats: median   p90   held  range: median")
    good = not any(row.wrong for row in rows)
    for group in groups:
        of_group = [row for row in rows if row.group.partition(":")[0] == group]
        good &= _line(group, of_group, limits)
        for part in dict.fromkeys(row.group for row in of_group if ":" in row.group):
            _line(part.replace(group, " "), [row for row in of_group if row.group == part], None)
    return good


def _cells(row: Compared) -> tuple[str, ...]:
    missed = "" if row.in_range is not False else "NOT HELD "
    return (
        row.group, row.name, "refused" if row.predicted is None else f"{row.predicted:.4g}",
        "" if row.low is None else f"{row.low:.4g} to {row.high:.4g}", f"{row.measured:.4g}",
        "" if row.error is None else f"{row.error:+.1%}", "" if row.repeat is None else f"{row.repeat:.1%}",
        missed + (f"WRONG: {row.wrong} " if row.wrong else "") + row.note,
    )  # fmt: skip


def _line(group: str, rows: Sequence[Compared], limits: Limits | None) -> bool:
    """One line; whether it is within the limits, which None are not judged by."""
    made = [row for row in rows if row.predicted is not None and not row.trivial]
    errors = [abs(row.error) for row in made if row.error is not None]
    repeats = [row.repeat for row in made if row.repeat is not None]
    in_range = [row.in_range for row in made if row.in_range is not None]
    ranges = [(row.low, row.high, row.predicted) for row in made]
    widths = [(high - low) / 2 / value for low, high, value in ranges if low is not None and high and value]
    if not errors:
        print(f"{group:24} none of {len(rows)} predicted")
        return limits is None or limits == Limits()
    middle, again = median(errors), median(repeats) if repeats else math.inf
    share = sum(in_range) / len(in_range) if in_range else 1.0
    good = limits is None or (
        not any(row.wrong for row in rows)
        and middle <= limits.error
        and share >= limits.in_range
        and (limits.times_repeat == math.inf or middle <= limits.times_repeat * again)
    )
    words = {True: "good", False: "NOT SHOWN"}
    of_repeats = f"{again:16.1%} {quantile(repeats, 0.9):5.1%}" if repeats else " " * 22
    print(
        f"{group:24}{len(made):5} {middle:14.1%} {quantile(errors, 0.9):6.1%} {of_repeats} "
        f"{format(share, '.0%') if in_range else '':>6} {'±' + format(median(widths), '.0%') if widths else '':>14}  "
        f"{'' if limits is None else words[good]}"
    )
    left = len([row for row in rows if row.trivial]), len([row for row in rows if row.predicted is None])
    if any(left):
        print(f"{'':24} beside these, {left[0]} where what was given was all, {left[1]} refused")
    return good

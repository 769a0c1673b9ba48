"""What limits a configuration, in letters and short words, and what a speed-up gains: how the first page says it.

And the map of all configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from loaderprobe.analyze.answer import best_ceiling, main_speedups, read_rate
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import RESOURCE, RESOURCES
from loaderprobe.records.verdict import Bottleneck, ShortVerdict
from loaderprobe.render.groups import Group
from loaderprobe.render.wording import (
    MISSING,
    factor,
    megabytes_per_s,
    percent,
    rate,
    speed,
    tone,
    variation,
    verdict_tone,
)

NEXT = {name: RESOURCE[name].short or name for name in get_args(Bottleneck) if name in RESOURCE}
NEXT["cores"] = RESOURCE["cpu"].noun
"""What limits next, in short."""
LETTERS = {
    each.name: (each.letter, each.legend or each.noun)
    for each in sorted(RESOURCES, key=lambda each: each.name != "compute")
    if each.is_cause
} | {"balanced": ("B", "balanced"), "inconclusive": ("?", "inconclusive"), "failed": ("x", "failed")}
"""By tone: the letter of a cell, and what it stands for."""
ABOUT_ALL = 1.1
"""Training cannot outrun compute alone: up to this share of it, more than all of it is noise."""


def limits_of(row: ConfigurationRow) -> tuple[str, ...]:
    """The tones of what limits a measured row; both of two that cannot be separated."""
    if row.bound is None:
        return (tone(row) if tone(row) in LETTERS else "inconclusive",)
    return limits_in(row.bound)


def limits_in(bound: ShortVerdict) -> tuple[str, ...]:
    """The same of a verdict alone."""
    names = bound.candidates if bound.cause == "either" else ()
    found = verdict_tone(bound)
    return names or (found if found in LETTERS else "inconclusive",)


def letters_of(row: ConfigurationRow) -> str:
    """`F`, or `S/C`."""
    return _letters(limits_of(row))


def letters_in(bound: ShortVerdict) -> str:
    """The same of a verdict alone."""
    return _letters(limits_in(bound))


def _letters(limits: tuple[str, ...]) -> str:
    return "/".join(LETTERS[name][0] for name in limits)


def used_words(row: ConfigurationRow, *, beside_rate: bool) -> str:
    """`39 %` of what compute alone does, or `98 % of 6.05`; `~100 %` where noise makes it more."""
    verdict = row.verdict
    if verdict is None or verdict.accelerator_utilization is None:
        return MISSING
    share = verdict.accelerator_utilization
    words = "~100 %" if 1.005 <= share <= ABOUT_ALL else percent(share)
    alone = verdict.rates_images_per_s.compute
    return f"{words} of {rate(alone)}" if beside_rate and alone else words


def read_words(report: Report, row: ConfigurationRow) -> str:
    """`51.3 of 713`: MB/s while training, and the most that the storage alone gave; or the first alone."""
    read, ceiling = read_rate(row), best_ceiling(report, row)
    if read is None or ceiling is None:
        return megabytes_per_s(read)
    return f"{megabytes_per_s(read)} of {megabytes_per_s(ceiling.read_bytes_per_s)}"


def gain_words(row: ConfigurationRow, then: Mapping[str, Bottleneck]) -> str:
    """`decoding 2.55x → compute`: the speed-ups that the verdict names, and what limits next."""
    none = "inconclusive" if row.bound and row.bound.cause == "inconclusive" else MISSING
    return (
        ", ".join(
            f"{RESOURCE[name].short or name} {factor(speedup)}{f' → {NEXT[then[name]]}' if name in then else ''}"
            for name, speedup in main_speedups(row)
        )
        or none
    )


# The map: what limits training, by data set and number of workers, as letters that need no colour.


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCell:
    """One configuration."""

    speed: str
    """Images/s with half the 95 % interval; a dash where there is none."""
    tight: str
    """The same without a space, for narrow columns."""
    letters: str
    """What limits; both of two that cannot be separated; empty for what was skipped."""
    tone: str
    words: str
    """What limits, for those who hear the page."""

    @property
    def text(self) -> str:
        """`690±181 F`."""
        return f"{self.tight} {self.letters}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitMap:
    """The configurations of one device and cache state."""

    workers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[MapCell | None, ...]], ...]
    """(data set, and what else sets its line apart; a cell for each number of workers, None where none was asked)."""

    @property
    def legend(self) -> tuple[tuple[str, str, str], ...]:
        """(letter, words, tone) of the letters that occur, in the order of `LETTERS`."""
        seen = {letter for _, cells in self.lines for cell in cells if cell for letter in cell.letters.split("/")}
        return tuple((letter, words, name) for name, (letter, words) in LETTERS.items() if letter in seen)

    @property
    def key(self) -> str:
        """The legend as words: `D decoding, cores free; F decoding, cores full`."""
        return "; ".join(f"{letter} {words}" for letter, words, _ in self.legend)


def limit_map(group: Group) -> LimitMap:
    """The map of a group, its lines in the order of the report, its columns by number of workers."""
    counts = sorted({row.config.loader.workers for row in group.rows})
    lines: dict[str, dict[int, ConfigurationRow]] = {}
    for row in group.rows:
        lines.setdefault(line_of(row, group.rows), {}).setdefault(row.config.loader.workers, row)
    return LimitMap(
        workers=tuple("serial" if count == 0 else str(count) for count in counts),
        lines=tuple(
            (label, tuple(_cell(cells[count]) if count in cells else None for count in counts))
            for label, cells in lines.items()
        ),
    )


def line_of(row: ConfigurationRow, rows: Sequence[ConfigurationRow]) -> str:
    """The data set, and what else sets a line apart; that the serial loader has no prefetching does not."""
    same = [other for other in rows if bool(other.config.loader.workers) == bool(row.config.loader.workers)]
    return ", ".join(part for part in (row.config.resolution, variation(row, same)) if part)


def _cell(row: ConfigurationRow) -> MapCell:
    if row.status != "measured":
        letter = LETTERS["failed"][0] if row.status == "failed" else ""
        return MapCell(speed=MISSING, tight=MISSING, letters=letter, tone=row.status, words=row.status)
    return MapCell(
        speed=speed(row),
        tight=speed(row, gap=""),
        letters=letters_of(row),
        tone=tone(row),
        words=" or ".join(LETTERS[name][1] for name in limits_of(row)),
    )

"""The map: what limits training, by data set and number of workers, as letters that need no colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.records.report import ConfigurationRow
from loaderprobe.render.groups import Group
from loaderprobe.render.limits import LETTERS, letters_of, limits_of
from loaderprobe.render.wording import MISSING, speed, tone, variation


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

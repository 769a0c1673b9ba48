"""What is true of a row and what was said of it: one record, one rule of right and wrong, one table.

**Truth.** The true speed-up of a resource is the rate without it over the rate with it, round by round (the geometric
mean, as the machine drifts between rounds but hardly within one). A row is clear when the largest speed-up leads the
next, or 1 where there is none, by over 15 % and over 2 standard errors; or when all are under 3 %, which is the truth
`balanced`. Where a cause is planted and nothing removed, that cause is the truth.

**Outcome.** A firm word is one cause, or `balanced`. On a clear row it is right when it is the truth, else wrong; on
others it is wrong when following it gains over 10 % less than following what leads, beyond 2 standard errors, else
unclear. `either` that does not name a clear truth is wrong. `cpu` is `preprocessing` with full cores: each family says
what it is worth where preprocessing is true. A side said firmly is wrong where the best of its resources falls behind
as far. A rule that says nothing is never wrong: so a family also asks for a share of clear rows that are right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from loaderprobe.stats import mean, standard_error

LEAD = 1.15
NOTHING = 1.03
LOST = 1.10
RATE_WITHIN = 0.15
"""Of a rate that is said, against that of the plain loop."""
Outcome = Literal["right", "wrong", "unclear", "either", "inconclusive", "failed", "unasked"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
INPUT = ("storage", "preprocessing", "network", "lock", "wait", "transport")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one driver, or one rule, said of a row."""

    cause: str
    candidates: tuple[str, ...] = ()
    side: str = ""
    images_per_s: float | None = None
    sentence: str = ""

    @property
    def named(self) -> tuple[str, ...]:
        """The resources named; none when inconclusive."""
        causes = self.candidates if self.cause == "either" else () if self.cause == "inconclusive" else (self.cause,)
        return tuple("preprocessing" if name == "cpu" else name for name in causes)

    def __str__(self) -> str:
        return " or ".join(self.candidates) or self.cause


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str
    logs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """By resource that was removed, the logarithm of the speed-up in each round."""
    planted: tuple[str, ...] = ()
    """Causes that are right, where nothing was removed."""
    cpu: Outcome = "right"
    """What the word `cpu` is where preprocessing is true."""
    images_per_s: float | None = None
    """Of the plain loop."""
    said: Mapping[str, Said | None] = field(default_factory=dict)
    """By driver; None where it failed."""
    details: tuple[str, ...] = ()
    trouble: str = ""
    """Why what was measured is not what it was to be; empty when it was."""
    faults: tuple[str, ...] = ()
    """What is wrong beside words."""

    @cached_property
    def speedups(self) -> dict[str, float]:
        return {name: math.exp(mean(logs)) for name, logs in self.logs.items()}

    @property
    def best(self) -> str:
        return max(self.speedups, key=lambda name: self.speedups[name], default="")

    @cached_property
    def clear(self) -> bool:
        if not self.logs:
            return bool(self.planted)
        return self.word == "balanced" or self._behind(self._second, LEAD)

    @property
    def word(self) -> str:
        """The truth; where it is not clear, what leads."""
        if not self.logs:
            return "/".join(self.planted)
        return self.best if self.speedups[self.best] >= NOTHING else "balanced"

    @property
    def _second(self) -> str:
        others = [name for name in self.speedups if name != self.best and self.speedups[name] > 1]
        return max(others, key=lambda name: self.speedups[name], default="")

    def _behind(self, name: str, factor: float) -> bool:
        """True when the best leads this one, or 1, by more than the factor and 2 standard errors."""
        best = self.logs[self.best]
        differences = [a - b for a, b in zip(best, self.logs.get(name, [0.0] * len(best)), strict=True)]
        return mean(differences) > max(math.log(factor), 2 * standard_error(differences))

    def outcome(self, said: Said | None) -> Outcome:
        if said is None:
            return "failed"
        if said.cause in ("either", "inconclusive"):
            missed = self.clear and said.named and not {*said.named} & {self.word, *self.planted}
            return "wrong" if missed else "either" if said.cause == "either" else "inconclusive"
        (named,) = said.named
        if not self.logs:
            return "unclear" if not self.planted else "right" if said.cause in self.planted else "wrong"
        if named == self.word:
            return "unclear" if not self.clear else self.cpu if said.cause == "cpu" else "right"
        return "wrong" if self.clear or self._behind(named, LOST) else "unclear"

    def side_wrong(self, said: Said | None) -> bool:
        if said is None or said.side not in ("input", "compute") or not self.logs:
            return False
        of_side = [name for name in self.speedups if (name in INPUT) == (said.side == "input")]
        return self._behind(max(of_side, key=lambda name: self.speedups[name], default=""), LOST)

    def rate_error(self, said: Said | None) -> float | None:
        """Of the rate that is said; None where none is, or there is none to compare with."""
        if said is None or said.images_per_s is None or self.images_per_s is None:
            return None
        return said.images_per_s / self.images_per_s - 1

    def gains(self) -> str:
        errors = {name: 2 * standard_error(logs) * self.speedups[name] for name, logs in self.logs.items()}
        return "  ".join(f"{name} {gain:.2f}±{errors[name]:.2f}" for name, gain in self.speedups.items())


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A table; the first line is its head."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def words_of(rows: Sequence[Row]) -> list[tuple[Row, str, Said | None, Outcome]]:
    """Each row with each driver: what it said, and what that is."""
    return [
        (row, driver, said, row.outcome(said) if driver else "unasked")
        for row in rows
        for driver, said in (row.said or {"": None}).items()
    ]


def report(rows: Sequence[Row], right_at_least: float, everything: bool) -> bool:
    """Print all of it; True when no firm word is wrong, and so large a share of the clear rows right."""
    words = words_of(rows)
    wrong = [f"{row.name}: {fault}" for row in rows for fault in row.faults]
    wrong += [f"{row.name}: WRONG SIDE {said.side}" for row, _, said, _ in words if said and row.side_wrong(said)]
    for row, driver, said, outcome in words:
        if (
            everything
            or outcome not in ("right", "unclear", "unasked")
            or row.faults
            or row.trouble
            or row.side_wrong(said)
        ):
            print(f"{outcome.upper()}: {row.name} {driver}\n    {row.gains()}")
            lines = (*row.details, said.sentence if said else "", row.trouble and f"trouble: {row.trouble}")
            print("".join(f"    {line}\n" for line in lines if line), end="")
    print(aligned([HEAD, *(_cells(*word) for word in words)]) + "\n")
    drivers = dict.fromkeys(driver for _, driver, _, _ in words if driver)
    good = [
        _summary(name, [(row, row.said[name]) for row in rows if name in row.said], right_at_least) for name in drivers
    ]
    errors = [error for row, _, said, _ in words if (error := row.rate_error(said)) is not None]
    near, trouble = sum(abs(error) <= RATE_WITHIN for error in errors), sum(bool(row.trouble) for row in rows)
    print(
        f"\n{near} of {len(errors)} rates within {RATE_WITHIN:.0%} of the plain loop; {trouble} rows whose truth has "
        f"trouble; {len(wrong)} other faults"
    )
    print("".join(f"WRONG {line}\n" for line in wrong), end="")
    return all(good) and not wrong


HEAD = ("row", "driver", "truth", "said", "outcome", "images/s", "said", "off")


def _cells(row: Row, driver: str, said: Said | None, outcome: Outcome) -> tuple[str, ...]:
    error = row.rate_error(said)
    return (
        row.name, driver, f"{row.word or 'not known'}{'' if row.clear else '?'}", str(said or "-"), outcome,
        f"{row.images_per_s:.3g}" if row.images_per_s else "-",
        f"{said.images_per_s:.3g}" if said and said.images_per_s else "-",
        "-" if error is None else f"{error:+.0%}",
    )  # fmt: skip


def _summary(name: str, pairs: Sequence[tuple[Row, Said | None]], right_at_least: float) -> bool:
    """One line for a driver; True where no firm word is wrong, and enough are right."""
    counts = Counter(row.outcome(said) for row, said in pairs)
    clear = [(row, said) for row, said in pairs if row.clear]
    right = sum(row.outcome(said) == "right" for row, said in clear) / len(clear) if clear else 0.0
    words = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    print(f"{name:14} {len(pairs):4} rows, {len(clear)} clear, {right:.0%} of these right; {words}")
    return not counts["wrong"] and right >= right_at_least

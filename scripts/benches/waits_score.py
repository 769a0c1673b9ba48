"""What counts as right in `waits`: what was measured by plain loops, against what `diagnose` said.

**Truth.** The true speed-up of a resource is the rate of the plain loop without it over that of the plain loop as
asked, round by round (the geometric mean, as the machine drifts between rounds). The truth's word is the resource
with the largest speed-up, and `balanced` when no speed-up reaches 5 %. A row is clear when the largest
leads the next, or 1 where there is none, by over 15 % and over 2 standard errors; or when all speed-ups are under 1.03.

**Words.** `cpu` is `preprocess` with the addition that the cores are all taken: right only where they were, in the
plain loop. `either` and `inconclusive` are not firm. A firm word is right when it is the truth's; it is
wrong when following it gains over 5 % less than following the truth (the regret), beyond 2 standard errors; else it
is near. A side said firmly is wrong in the same way: when the best of its resources falls so far behind the best.

**Bytes.** Who says that files were cold, at a rate that takes over 15 % more bytes a second than the disk gives,
contradicts the storage, whatever the word.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from loaderprobe.stats import mean, median, standard_error
from scripts.benches.waits_truth import BASE

WORTH = 1.05
LEAD = 1.15
NOTHING = 1.03
LOST = 1.05
RATE_WITHIN = 0.15
BUSY = 0.8
COLD_RESIDENT = 0.05
WARM_RESIDENT = 0.95
COLD_READ = 0.8
ABOVE_STORAGE = 1.15
UNASKED = "not asked"
NOT_FIRM = ("either", "inconclusive")
INPUT = ("storage", "preprocessing", "network", "lock", "wait", "transport")


@dataclass(frozen=True)
class Judged:
    """One row, from what was stored of it."""

    stored: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.stored["name"])

    @property
    def rounds(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.stored["truth"]
        return found

    @property
    def said(self) -> dict[str, Any] | None:
        """The diagnosis; None when it failed."""
        found: dict[str, Any] | None = self.stored["diagnosis"]
        return found

    @cached_property
    def logs(self) -> dict[str, list[float]]:
        rates = [{name: one["images_per_s"] for name, one in each.items()} for each in self.rounds]
        names = [name for name in rates[0] if name != BASE]
        return {name: [math.log(rate[name] / rate[BASE]) for rate in rates] for name in names}

    @cached_property
    def speedups(self) -> dict[str, float]:
        return {name: math.exp(mean(found)) for name, found in self.logs.items()}

    @property
    def images_per_s(self) -> float:
        return median([each[BASE]["images_per_s"] for each in self.rounds])

    @property
    def cores_busy(self) -> bool:
        seen = [each[BASE]["cores"] for each in self.rounds if each[BASE]["cores"] is not None]
        return bool(seen) and median(seen) >= BUSY * self.stored["cores"]

    @property
    def best(self) -> str:
        return max(self.speedups, key=lambda name: self.speedups[name])

    @property
    def word(self) -> str:
        return self.best if self.speedups[self.best] >= WORTH else "balanced"

    @property
    def clear(self) -> bool:
        if max(self.speedups.values()) < NOTHING:
            return True
        others = [name for name in self.speedups if name != self.best and self.speedups[name] > 1]
        second = max(others, key=lambda name: self.speedups[name], default="")
        return self.word != "balanced" and self._behind(second, LEAD)

    def _behind(self, name: str, factor: float) -> bool:
        """True when the best leads this one by more than the factor and 2 standard errors."""
        best = self.logs[self.best]
        differences = [a - b for a, b in zip(best, self.logs.get(name, [0.0] * len(best)), strict=True)]
        return mean(differences) > max(math.log(factor), 2 * standard_error(differences))

    def regret(self, name: str) -> float:
        """Best true speed-up over that of the resource named, minus 1."""
        return max(1.0, self.speedups[self.best]) / max(1.0, self.speedups.get(name, 1.0)) - 1

    @property
    def outcome(self) -> str:
        if self.said is None:
            return "unasked" if self.stored["error"] == UNASKED else "failed"
        cause = self.said["cause"]
        if cause in NOT_FIRM:
            return "either" if cause == "either" else "inconclusive"
        named = "preprocessing" if cause == "cpu" else cause
        if named == self.word:
            return "near" if cause == "cpu" and not self.cores_busy else "right"
        return "wrong" if self._behind(named, LOST) else "near"

    @property
    def side_wrong(self) -> bool:
        side = self.said["side"] if self.said else ""
        if side not in ("input", "compute"):
            return False
        own = [name for name in self.speedups if (name in INPUT) == (side == "input")]
        return self._behind(max(own, key=lambda name: self.speedups[name], default=""), LOST)

    @property
    def rate_error(self) -> float | None:
        """Of what the diagnosis says against the plain loop; None where its figures are called warm."""
        if self.said is None or self.said["cache"] == "warm":
            return None
        return float(self.said["images_per_s"]["value"]) / self.images_per_s - 1

    @property
    def rate_right(self) -> bool:
        return self.rate_error is None or abs(self.rate_error) <= RATE_WITHIN

    @property
    def over_storage(self) -> float | None:
        """Bytes of the samples that are said to be delivered over what the disk gives; None where it has no limit."""
        limit, size = self.stored.get("disk_bytes_per_s"), self.stored.get("sample_bytes")
        if self.said is None or not limit or not size:
            return None
        return float(self.said["images_per_s"]["value"]) * float(size) / float(limit)

    @property
    def contradicts_storage(self) -> bool:
        cold = self.said is not None and self.said["files_were"] == "cold"
        return cold and self.over_storage is not None and self.over_storage > ABOVE_STORAGE

    @property
    def read_amplification(self) -> float | None:
        """Of the plain loop on cold files: bytes from storage over bytes of samples."""
        found = [each[BASE].get("read_amplification") for each in self.rounds]
        known = [each for each in found if each is not None]
        return median(known) if known else None

    @property
    def trouble(self) -> str:
        """Why what was measured is not what it was to be; empty when it was."""
        found = []
        for name in self.rounds[0]:
            there = [each[name]["resident"] for each in self.rounds if each[name]["resident"] is not None]
            if there and (min(there) < WARM_RESIDENT if name == "storage" else max(there) > COLD_RESIDENT):
                found.append(f"{name}: {max(there):.0%} of the files in memory at its begin")
            found_read = [each[name].get("read_amplification") for each in self.rounds]
            read = [each for each in found_read if each is not None]
            if name == BASE and read and min(read) < COLD_READ:
                found.append(f"{name}: {min(read):.0%} of the bytes came from storage")
            if name == "storage" and read and max(read) > 1 - WARM_RESIDENT:
                found.append(f"warm files: {max(read):.0%} of the bytes came from storage")
        return ", ".join(found)


def load(folder: Path, only: str) -> list[Judged]:
    """All rows that were kept there."""
    found = [Judged(json.loads(path.read_text())) for path in sorted(folder.glob("*.row.json"))]
    return [row for row in found if any(part in row.name for part in only.split(","))]


def show(row: Judged) -> str:
    """Some lines on one row."""
    errors = {name: 2 * standard_error(found) for name, found in row.logs.items()}
    speedups = "  ".join(f"{name} {speedup:.2f}±{errors[name] * speedup:.2f}" for name, speedup in row.speedups.items())
    lines = [
        f"{row.outcome.upper()}: {row.name}: truth {row.word}{'' if row.clear else ' (ambiguous)'}, said "
        + (_words(row.said) if row.said else row.stored["error"]),
        f"    truth     {row.images_per_s:7.1f} images/s  {speedups}{'  cores busy' * row.cores_busy}",
    ]
    if row.read_amplification is not None:
        lines.append(f"    cold      {_read(row)}")
    if row.said:
        rate, error = row.said["images_per_s"]["value"], row.rate_error
        own = ((name, found) for name, found in row.said["speedups"].items() if found)
        said = "  ".join(f"{name} {found['value']:.2f} ({found['how']})" for name, found in own)
        named = row.said["cause"] if row.said["cause"] not in NOT_FIRM else ""
        lost = f"  regret {row.regret('preprocess' if named == 'cpu' else named):.2f}" if named else ""
        away = "called warm" if error is None else f"{error:+.0%}"
        files = f"asked {row.said['cache']}, files were {row.said['files_were'] or 'unknown'}"
        lines.append(f"    diagnosis {rate:7.1f} images/s ({away}, {files})  {said}{lost}")
        lines.append(f"    {row.said['sentence']}  [{row.stored['seconds']:.0f} s]")
    lines += ["    WRONG SIDE"] * row.side_wrong
    if row.contradicts_storage:
        lines.append(f"    CONTRADICTS THE STORAGE: {row.over_storage:.2f} times what the disk gives, from cold files")
    return "\n".join([*lines, *([f"    trouble: {row.trouble}"] if row.trouble else [])])


def _read(row: Judged) -> str:
    """Bytes from storage, and how it begins on the row's own set."""
    base = row.rounds[0][BASE]
    first = base.get("first_pass", base)
    trace = "; ".join(
        f"{samples} : {seconds:.2f} : {(read or 0) / 1e6:.0f}" for samples, seconds, read in first["trace"]
    )
    rate = f", first pass over the own set {first['images_per_s']:.0f} images/s" if first is not base else ""
    ahead = row.stored.get("read_ahead_kb")
    return (
        f"{row.read_amplification:.2f} bytes read for one of a sample, {ahead} kB ahead{rate}; samples : s : MB {trace}"
    )


def table(rows: Sequence[Judged]) -> str:
    """One line a row: rates in images/s, and what contradicts the storage."""
    header = (
        "row",
        "true word",
        "said",
        "outcome",
        "cold",
        "first",
        "later",
        "reads",
        "said rate",
        "x disk",
        "files were",
    )
    lines = [header, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: Judged) -> tuple[str, ...]:
    base = row.rounds[0][BASE]
    first = base["first_pass"]["images_per_s"] if "first_pass" in base else None
    later = median([each["storage"]["images_per_s"] for each in row.rounds]) if "storage" in row.speedups else None
    rate = row.said["images_per_s"]["value"] if row.said else None
    over = "-" if row.over_storage is None else f"{row.over_storage:.2f}{' CONTRADICTS' * row.contradicts_storage}"
    return (
        row.name,
        f"{row.word}{'' if row.clear else '?'}",
        _words(row.said) if row.said else row.stored["error"],
        row.outcome,
        *(
            "-" if each is None else f"{each:.3g}"
            for each in (row.images_per_s, first, later, row.read_amplification, rate)
        ),
        over,
        (row.said["files_were"] or "unknown") if row.said else "-",
    )


def _words(said: dict[str, Any]) -> str:
    return " ".join(filter(None, (said["side"], "/", said["cause"], " or ".join(said["candidates"]))))

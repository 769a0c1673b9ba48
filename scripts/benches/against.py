"""Does measuring in turn (`sweep --against`) see a loss that two sweeps apart miss? Real rounds of one configuration.

Two long sweeps against one run: one without a change, and one whose loader makes one image in nine twice, a loss of
10 % where workers limit. Their rounds are cut into groups, each as long as a sweep. Of all groups it counts those that
fail a gate of 5 %, in turn; and apart, where A of one group is compared with B of the next, by what two sweeps with a
while between them would show. Rounds are kept in a folder, and a later call adds to them: run it while the machine is
idle, or while it does what it usually does.

Ends with code 1 when in turn more than one in ten groups without a change fail, or fewer than nine in ten losses are
found.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import loaderprobe
from loaderprobe.analyze.comparison import SideRow, compare_rows, judge_gates
from loaderprobe.analyze.effects import RunReading, interval
from loaderprobe.api.against import PAIRS, against_request, measure_sides, sides_in, start_against
from loaderprobe.api.compare import sources
from loaderprobe.loaders.torch import ImageFiles, TorchLoader
from loaderprobe.records.compare import MATTERS, Compared, Subject
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.stats import quantile
from scripts.benches.harness import parser

TWICE = 9
"""One image in so many is made twice."""
CHANGES: dict[str, dict[str, Any]] = {"null": {}, "loss": {"loader": "scripts.benches.against:Slower"}}
LONGEST = 400
"""Pairs of rounds, of each of the two sweeps."""
NULL_AT_MOST, FOUND_AT_LEAST = 0.1, 0.9


class TwiceMade(ImageFiles):
    """Some images are made twice."""

    def __getitem__(self, k: int) -> Any:
        if k % TWICE == 0:
            super().__getitem__(k)
        return super().__getitem__(k)


class Slower(TorchLoader):
    """torch's loader with a tenth less speed, where its workers limit."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, scratch)
        self._loader.dataset.__class__ = TwiceMade


def go_on(folder: Path, workers: int, seconds: float) -> None:
    """Add rounds of as many seconds to both sweeps."""
    run = folder / "run"
    if not (run / "report.html").exists():
        loaderprobe.sweep(
            resolutions="256x256", data_dir=folder / "data", workers=workers or (), serial=not workers,
            compute="emulated:mlperf-h100", rounds=1, out=run,
        )  # fmt: skip
    for name, changes in CHANGES.items():
        sides = sides_in(folder / name) or start_against(
            against_request(
                run, None, rounds=LONGEST, budget_s=seconds, time_limit_s=60.0, thorough=False, out=folder / name,
                changes=changes, command=(),
            )
        )  # fmt: skip
        measure_sides(sides, lambda _: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Neighbouring rounds of A and of B."""

    a: RunReading
    b: RunReading


def groups_of(out: Path, size: int) -> list[Group]:
    """All that are whole."""
    a, b = (sources(out / name)[0].result[0].reading for name in ("a", "b"))
    count = min(len(a.values), len(b.values)) // size
    parts = [slice(size * number, size * (number + 1)) for number in range(count)]
    return [Group(a=_cut(a, part), b=_cut(b, part)) for part in parts]


def _cut(reading: RunReading, part: slice) -> RunReading:
    values = reading.values[part]
    return replace(reading, values=values, at_s=reading.at_s[part], figure=interval(values))


def judged(a: RunReading, b: RunReading) -> tuple[Compared, bool]:
    """The row of two sides, and whether it fails the gate."""
    one, other = (
        SideRow(subject=Subject(kind="configuration"), unit="images/s", readings=(reading,)) for reading in (a, b)
    )
    rows, whole = compare_rows([(one, other)], matters=MATTERS)
    (gate,) = judge_gates(["slower"], rows, whole, matters=MATTERS, missing=0, kind="sweep", allow_unclear=True)
    return rows[0], not gate.passed


def show(name: str, found: Sequence[tuple[Compared, bool]]) -> int:
    """A line with the gates that fail, the changes and what was visible; returns how many fail."""
    failed = sum(fails for _, fails in found)
    if not found:
        print(f"{name:12}    too few rounds")
        return 0
    ratios = [row.ratio.value for row, _ in found if row.ratio] or [math.nan]
    visible = [row.visible for row, _ in found if row.visible is not None] or [math.nan]
    changes = ", ".join(f"{100 * (quantile(ratios, share) - 1):+.1f}" for share in (0.1, 0.5, 0.9))
    print(f"{name:12}{f'{failed} of {len(found)}':>12}{changes:>24}{100 * quantile(visible, 0.5):9.1f} %", flush=True)
    return failed


def apart(groups: Sequence[Group]) -> list[tuple[Compared, bool]]:
    """A of each group with B of the next."""
    return [judged(replace(one.a, turns=None), replace(other.b, turns=None)) for one, other in pairwise(groups)]


def judge(folder: Path, size: int) -> bool:
    """What all groups show; True where the claims hold."""
    null, loss = (groups_of(folder / name, size) for name in CHANGES)
    print(f"groups of {size} pairs of rounds\n{'':12}{'gate fails':>12}{'change 10, 50, 90 %':>24}{'visible':>11}")
    print("no change")
    failed = show("  in turn", [judged(each.a, each.b) for each in null])
    show("  apart", apart(null))
    print("a loss of 10 %")
    found = show("  in turn", [judged(each.a, each.b) for each in loss])
    show("  apart", apart(loss))
    return failed <= NULL_AT_MOST * len(null) and found >= FOUND_AT_LEAST * len(loss)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--sets", type=int, default=6, help="how often both sweeps go on; 0 judges what is there")
    options.add_argument("--seconds", type=float, default=60.0, help="of each sweep, each time")
    options.add_argument("--keep", type=Path, help="folder of the rounds; those that are in it count, too")
    options.add_argument("--workers", type=int, default=2, help="0 is the serial loader")
    options.add_argument("--group", type=int, default=PAIRS, help="pairs of rounds in a group")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(asked.sets):
            go_on(folder, asked.workers, asked.seconds)
        return 0 if judge(folder, asked.group) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Does `compare` see what changed, and only that? On sweeps made up of real noise, and on rounds measured in turn.

`made`: each configuration of a made-up sweep has rounds that vary as those of recorded sweeps do: their deviations, of
all configurations together, are drawn with replacement. Both sweeps of a pair also drift, by what `compare` assumes of
single runs. Of many pairs it counts: null pairs that fail the gate of 5 %; pairs that lost 10 % in all configurations,
and in one, that are found; and how often a loss as large as the row says is visible, and twice that, is seen. Then the
same of sweeps measured in turn, on a machine whose speed drifts from pair to pair of rounds as much as rounds vary. At
most 5 of 100 null pairs fail, at least 90 of 100 losses of 10 % in all are found with the most rounds, and losses of
the visible size are seen about half of the time.

`turns`: does measuring in turn (`sweep --against`) see a loss that two sweeps apart miss? Two long sweeps against one
run: one without a change, and one whose loader makes one image in nine twice, a loss of 10 % where workers limit. Their
rounds are cut into groups, each as long as a sweep. Of all groups it counts those that fail a gate of 5 %, in turn; and
apart, where A of one group is compared with B of the next, by what two sweeps with a while between them would show.
Rounds are kept in a folder, and a later call adds to them: run it while the machine is idle, or while it does what it
usually does. In turn at most one in ten groups without a change fail, and nine in ten losses are found.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import loaderprobe
from loaderprobe.analyze.comparison import SideRow, compare_rows, judge_gates
from loaderprobe.analyze.effects import ENOUGH_ROUNDS, NORMAL, REPEAT, RunReading, interval
from loaderprobe.api.against import PAIRS, against_request, measure_sides, sides_in, start_against
from loaderprobe.api.compare import sources
from loaderprobe.records.compare import MATTERS, Compared, Subject
from loaderprobe.records.config import Turns
from loaderprobe.stats import mean, quantile
from scripts.benches.harness import answer, parser

LOSS = 0.10
NULL_AT_MOST, FOUND_AT_LEAST, HALF = 0.05, 0.90, (0.3, 0.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Makes pairs of sweeps."""

    noise: Sequence[float]
    """Deviations of the logarithm of single rounds."""
    rows: int
    rounds: int
    draw: random.Random
    in_turn: bool

    def pair(self, losses: Sequence[float]) -> tuple[tuple[Compared, ...], Compared | None]:
        """Compared; the second sweep lost these shares of its speed, a row each."""
        drift = 0.0 if self.in_turn else self.draw.gauss(0, REPEAT / NORMAL)
        pairs = []
        for loss in losses:
            machine = [self.draw.choice(self.noise) if self.in_turn else 0.0 for _ in range(self.rounds)]
            pairs.append((self._side("A", 0.0, machine), self._side("B", drift + math.log1p(-loss), machine)))
        return compare_rows(pairs, matters=MATTERS)

    def _side(self, side: Literal["A", "B"], log: float, machine: Sequence[float]) -> SideRow:
        values = tuple(100 * math.exp(log + each + self.draw.choice(self.noise)) for each in machine)
        turns = Turns(pair="made up", side=side, changes=(), against="") if self.in_turn else None
        reading = RunReading(values=values, figure=interval(values), turns=turns, at_s=(0.0,) * self.rounds)
        return SideRow(subject=Subject(kind="configuration"), unit="images/s", readings=(reading,))

    def failed(self, losses: Sequence[float]) -> bool:
        """True where the gate of 5 % sees a loss; rows may be too noisy for it."""
        rows, whole = self.pair(losses)
        (gate,) = judge_gates(
            ["slower"], rows, whole, matters=MATTERS, missing=0, kind="sweep", allow_unclear=True
        )  # fmt: skip
        return not gate.passed

    def first_seen(self, loss: float) -> bool:
        """True where the first row is found slower."""
        return self.pair([loss, *[0.0] * (self.rows - 1)])[0][0].word == "slower"

    def visible(self) -> float:
        """The median of what rows without a change say would have been seen."""
        return quantile([row.visible for row in self.pair([0.0] * self.rows)[0] if row.visible is not None], 0.5)


def noise_of(runs: Sequence[Path]) -> list[float]:
    """The deviations of rounds from the mean of their configuration, widened by what that mean took up."""
    noise: list[float] = []
    for run in runs:
        for found in sources(run)[0].result:
            logs = [math.log(value) for value in found.reading.values]
            if len(logs) >= ENOUGH_ROUNDS:
                noise += [(log - mean(logs)) * math.sqrt(len(logs) / (len(logs) - 1)) for log in logs]
    if not noise:
        raise SystemExit("no configuration of these runs has three rounds or more")
    return noise


def recorded(place: Path) -> Path:
    """A sweep measured now."""
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", "--workers", "2", "--compute", "emulated:mlperf-h100",
        "--resolutions", "256x256,500x375", "--rounds", "6", "--thorough", "--json",
        "--data-dir", str(place / "data"), "--out", str(place / "run"),
    ]  # fmt: skip
    answer(command)
    return place / "run"


def share(happened: Sequence[bool]) -> str:
    return f"{sum(happened)} of {len(happened)}"


def tried(asked: argparse.Namespace, noise: Sequence[float], in_turn: bool) -> bool:
    """A line for each number of rounds; True where all that is promised holds."""
    good, count = True, asked.pairs
    for rounds in asked.rounds:
        maker = Maker(noise=noise, rows=asked.rows, rounds=rounds, draw=random.Random(rounds), in_turn=in_turn)
        null = [maker.failed([0.0] * asked.rows) for _ in range(count)]
        everywhere = [maker.failed([LOSS] * asked.rows) for _ in range(count)]
        one = [maker.first_seen(LOSS) for _ in range(count)]
        visible = quantile([maker.visible() for _ in range(count)], 0.5)
        size, twice = ([maker.first_seen(min(0.9, loss)) for _ in range(count)] for loss in (visible, 2 * visible))
        found = (f"{share(each):>14}" for each in (null, everywhere, one, size, twice))
        print(f"{rounds:6}{''.join(found)}{100 * visible:8.1f} %", flush=True)
        good &= sum(null) <= NULL_AT_MOST * count and HALF[0] * count <= sum(size) <= HALF[1] * count
        good &= rounds < max(asked.rounds) or sum(everywhere) >= FOUND_AT_LEAST * count
    return good


CHANGES: dict[str, dict[str, Any]] = {"null": {}, "loss": {"loader": "scripts.benches.plants:Slower"}}
LONGEST = 400
"""Pairs of rounds, of each of the two sweeps."""


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
    return failed <= NULL_IN_TURN * len(null) and found >= FOUND_IN_TURN * len(loss)


NULL_IN_TURN, FOUND_IN_TURN = 0.1, 0.9


def made(asked: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        noise = noise_of(asked.runs or [recorded(Path(temporary))])
    spread = math.sqrt(mean([each**2 for each in noise]))
    print(f"{len(noise)} rounds vary by {100 * spread:.1f} % (standard deviation); {asked.rows} configurations a sweep")
    good = True
    for in_turn in (False, True):
        heads = ("null fail", "-10 % in all", "-10 % in one", "visible size", "twice that")
        print(f"{'in turn' if in_turn else 'apart'}\nrounds{''.join(f'{head:>14}' for head in heads)}   visible")
        good &= tried(asked, noise, in_turn)
    return good


def turns(asked: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(asked.sets):
            go_on(folder, asked.workers, asked.seconds)
        return judge(folder, asked.group)


PARTS = {"made": made, "turns": turns}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("runs", nargs="*", type=Path, help="recorded sweeps of made; without them, one is measured")
    options.add_argument("--only", default="made", help="of made,turns (%(default)s)")
    options.add_argument("--pairs", type=int, default=100, help="pairs of each kind")
    options.add_argument("--rows", type=int, default=6, help="configurations of a sweep")
    options.add_argument("--rounds", type=int, nargs="+", default=[3, 5, 10])
    options.add_argument("--sets", type=int, default=6, help="how often both sweeps go on; 0 judges what is there")
    options.add_argument("--seconds", type=float, default=60.0, help="of each sweep, each time")
    options.add_argument("--keep", type=Path, help="folder of the rounds; those that are in it count, too")
    options.add_argument("--workers", type=int, default=2, help="of turns; 0 is the serial loader")
    options.add_argument("--group", type=int, default=PAIRS, help="pairs of rounds in a group")
    asked = options.parse_args()
    good = [PARTS[name](asked) for name in asked.only.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

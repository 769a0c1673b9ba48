"""Does `compare` see what changed, and only that? Sweeps made of the noise between rounds of recorded sweeps.

Each configuration of a made-up sweep has rounds that vary as those of the recorded sweeps do: their deviations, of all
configurations together, are drawn with replacement. Both sweeps of a pair also drift, by what `compare` assumes of
single runs. Of many pairs it counts: null pairs that fail the gate of 5 %; pairs that lost 10 % in all configurations,
and in one, that are found; and how often a loss as large as the row says is visible, and twice that, is seen. Then the
same of sweeps measured in turn, on a machine whose speed drifts from pair to pair of rounds as much as rounds vary.

Ends with code 1 when more than 5 of 100 null pairs fail, when fewer than 90 of 100 losses of 10 % in all are found with
the most rounds, or when losses of the visible size are not seen about half of the time.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loaderprobe.analyze.comparison import SideRow, compare_rows, judge_gates
from loaderprobe.analyze.effects import ENOUGH_ROUNDS, NORMAL, REPEAT, RunReading, interval
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


def main() -> int:
    options = parser(__doc__)
    options.add_argument("runs", nargs="*", type=Path, help="recorded sweeps; without them, one is measured")
    options.add_argument("--pairs", type=int, default=100, help="pairs of each kind")
    options.add_argument("--rows", type=int, default=6, help="configurations of a sweep")
    options.add_argument("--rounds", type=int, nargs="+", default=[3, 5, 10])
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        noise = noise_of(asked.runs or [recorded(Path(temporary))])
    spread = math.sqrt(mean([each**2 for each in noise]))
    print(f"{len(noise)} rounds vary by {100 * spread:.1f} % (standard deviation); {asked.rows} configurations a sweep")
    good = True
    for in_turn in (False, True):
        heads = ("null fail", "-10 % in all", "-10 % in one", "visible size", "twice that")
        print(f"{'in turn' if in_turn else 'apart'}\nrounds{''.join(f'{head:>14}' for head in heads)}   visible")
        good &= tried(asked, noise, in_turn)
    return 0 if good else 1


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


if __name__ == "__main__":
    sys.exit(main())

"""Does `compare` see what changed, and only that? On sweeps made up of real noise, and on the speed of this machine.

`made`: each configuration of a made-up sweep has rounds that vary as those of recorded sweeps do: their deviations, of
all configurations together, are drawn with replacement. Both sweeps of a pair also drift, by what `compare` assumes of
single runs. Of many pairs it counts: null pairs that fail the gate of 5 %; and pairs that lost 10 % in all
configurations, and in one, that are found. At most 5 of 100 null pairs fail, and at least 90 of 100 losses of 10 % in
all are found with the most rounds.

`drift`: for some minutes one core keeps decoding a picture; images per second of CPU time show how the speed
of the machine drifts. Null runs are then laid over the recording, with the times of a sweep's rounds, from every place
on: two runs one after the other, and several runs a side, begun in turn (A B B A). It prints what they differ by, what
`compare` says would have been seen, and how often it sees a change where there is none; of runs begun in turn, in at
most one of ten. Neighbouring places share most of their rounds, so counts are rough.
"""

from __future__ import annotations

import argparse
import io
import math
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

import loaderprobe
from loaderprobe.analyze.comparison import RunReading, SideRow, compare_rows, judge_gates
from loaderprobe.analyze.effects import interval
from loaderprobe.api.compare import sources
from loaderprobe.measure.sweep import START_SECONDS, USUAL_ROUNDS, USUAL_SECONDS
from loaderprobe.records.compare import Compared, Subject
from loaderprobe.records.thresholds import ALPHA, ENOUGH_ROUNDS, MATTERS, NORMAL, REPEAT
from loaderprobe.render.format import counted
from loaderprobe.stats import mean, quantile
from scripts.benches.harness import parser

LOSS = 0.10
NULL_AT_MOST, FOUND_AT_LEAST = 0.05, 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Makes pairs of sweeps."""

    noise: Sequence[float]
    """Deviations of the logarithm of single rounds."""
    rows: int
    rounds: int
    draw: random.Random

    def pair(self, losses: Sequence[float]) -> tuple[tuple[Compared, ...], Compared | None]:
        """Compared; the second sweep lost these shares of its speed, a row each."""
        drift = self.draw.gauss(0, REPEAT / NORMAL)
        pairs = [(self._side(0.0), self._side(drift + math.log1p(-loss))) for loss in losses]
        return compare_rows(pairs, matters=MATTERS)

    def _side(self, log: float) -> SideRow:
        values = tuple(100 * math.exp(log + self.draw.choice(self.noise)) for _ in range(self.rounds))
        reading = RunReading(values=values, figure=interval(values))
        return SideRow(subject=Subject(kind="configuration"), unit="images/s", readings=(reading,))

    def failed(self, losses: Sequence[float]) -> bool:
        """True where the gate of 5 % sees a loss; rows may be too noisy for it."""
        rows, whole = self.pair(losses)
        (gate,) = judge_gates(["slower"], rows, whole, matters=MATTERS, missing=0, kind="sweep", allow_unclear=True)
        return not gate.passed

    def first_seen(self) -> bool:
        """True where the first row, which alone has the loss, is found slower."""
        return self.pair([LOSS, *[0.0] * (self.rows - 1)])[0][0].word == "slower"


def noise_of(runs: Sequence[Path]) -> list[float]:
    """The deviations of rounds from the mean of their configuration, widened by what that mean took up."""
    noise: list[float] = []
    for run in runs:
        for row in sources(run)[0].result:
            logs = [math.log(value) for value in row.reading.values]
            if len(logs) >= ENOUGH_ROUNDS:
                noise += [(log - mean(logs)) * math.sqrt(len(logs) / (len(logs) - 1)) for log in logs]
    if not noise:
        raise SystemExit("no configuration of these runs has three rounds or more")
    return noise


def recorded(folder: Path) -> Path:
    return loaderprobe.sweep(
        workers=2, compute="emulated:mlperf-h100", resolutions="256x256,500x375", rounds=6, thorough=True,
        data_dir=folder / "data", out=folder / "run",
    ).path  # fmt: skip


def share(happened: Sequence[bool]) -> str:
    return f"{sum(happened)} of {len(happened)}"


def report(chosen: argparse.Namespace, noise: Sequence[float]) -> bool:
    """A line for each number of rounds; True where all that is promised holds."""
    good, count = True, chosen.pairs
    for rounds in chosen.rounds:
        maker = Maker(noise=noise, rows=chosen.rows, rounds=rounds, draw=random.Random(rounds))
        null = [maker.failed([0.0] * chosen.rows) for _ in range(count)]
        everywhere = [maker.failed([LOSS] * chosen.rows) for _ in range(count)]
        in_one = [maker.first_seen() for _ in range(count)]
        print(f"{rounds:6}{''.join(f'{share(happened):>14}' for happened in (null, everywhere, in_one))}", flush=True)
        good &= sum(null) <= NULL_AT_MOST * count
        good &= rounds < max(chosen.rounds) or sum(everywhere) >= FOUND_AT_LEAST * count
    return good


SEGMENT_S, BUSY_S = 2.0, 0.25
"""Of training in a round; of CPU time between two readings of the speed."""
LAYOUTS: tuple[tuple[int, int], ...] = ((1, 3), (1, 8), (3, 3), (5, 3), (6, 1))
"""(Runs a side, rounds of each)."""
ALARMS_AT_MOST, STEP_S = 0.1, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Images that one core decoded per second of CPU time, from one moment to another."""

    begin_s: float
    end_s: float
    images_per_s: float


def record(file: Path, seconds: float) -> None:
    """Write the speed of this machine, a line a reading."""
    coded = io.BytesIO()
    noise = Image.frombytes("RGB", (50, 38), random.Random(0).randbytes(50 * 38 * 3))
    noise.resize((500, 375)).save(coded, "JPEG", quality=90)
    until_s = time.monotonic() + seconds
    with file.open("w") as out:
        while (begin_s := time.monotonic()) < until_s:
            images, busy_s = 0, time.process_time()
            while time.process_time() - busy_s < BUSY_S:
                Image.open(io.BytesIO(coded.getvalue())).convert("RGB")
                images += 1
            print(begin_s, time.monotonic(), images / (time.process_time() - busy_s), file=out)


def null_run(speeds: Sequence[Speed], begin_s: float, rounds: int) -> RunReading | None:
    """A sweep of one configuration that begins then; None where the recording has a gap."""
    values = []
    for number in range(rounds):
        from_s = begin_s + START_SECONDS + number * USUAL_SECONDS / USUAL_ROUNDS
        near = [speed.images_per_s for speed in speeds if speed.end_s > from_s and speed.begin_s < from_s + SEGMENT_S]
        if not near:
            return None
        values.append(mean(near))
    return RunReading(values=tuple(values), figure=interval(values))


def null_pair(speeds: Sequence[Speed], begin_s: float, runs: int, rounds: int) -> Compared | None:
    """Both sides, of runs begun in turn from then on; None where the recording ends or has a gap."""
    run_s = START_SECONDS + rounds * USUAL_SECONDS / USUAL_ROUNDS
    if begin_s + 2 * runs * run_s > speeds[-1].end_s:
        return None
    sides: dict[str, list[RunReading]] = {"A": [], "B": []}
    for number, side in enumerate(("ABBA" * runs)[: 2 * runs]):
        if (reading := null_run(speeds, begin_s + number * run_s, rounds)) is None:
            return None
        sides[side].append(reading)
    subject = Subject(kind="configuration")
    a, b = (SideRow(subject=subject, unit="images/s", readings=tuple(sides[side])) for side in "AB")
    return compare_rows([(a, b)], matters=MATTERS)[0][0]


def drift(chosen: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        file = chosen.keep or Path(temporary) / "speed"
        if not file.exists():
            record(file, chosen.seconds)
        readings = (map(float, line.split()) for line in file.read_text().splitlines())
        speeds = [Speed(begin_s=begin, end_s=end, images_per_s=speed) for begin, end, speed in readings]
    print(f"{speeds[-1].end_s - speeds[0].begin_s:.0f} s\n{'':32}{'differ by':>12}{'visible':>12}{'seen':>14}")
    good = True
    for runs, rounds in LAYOUTS:
        steps = range(int((speeds[-1].end_s - speeds[0].begin_s) / STEP_S))
        pairs = (null_pair(speeds, speeds[0].begin_s + STEP_S * step, runs, rounds) for step in steps)
        rows = [row for row in pairs if row and row.ratio and row.visible is not None and row.p is not None]
        if not rows:
            print(f"{runs} a side, {rounds} rounds each: the recording is too short")
            return False
        difference = math.sqrt(mean([math.log(row.ratio.value) ** 2 for row in rows if row.ratio]))
        visible = quantile([row.visible for row in rows if row.visible is not None], 0.5)
        alarms = [row.p <= ALPHA for row in rows if row.p is not None]
        name = f"{counted(runs, 'run')} a side, {counted(rounds, 'round')} each"
        print(f"{name:32}{100 * difference:10.1f} %{100 * visible:10.1f} %{share(alarms):>14}")
        good &= runs < ENOUGH_ROUNDS or sum(alarms) <= ALARMS_AT_MOST * len(alarms)
    return good


def made(chosen: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as temporary:
        noise = noise_of(chosen.runs or [recorded(Path(temporary))])
    std = math.sqrt(mean([deviation**2 for deviation in noise]))
    print(f"{len(noise)} rounds vary by {100 * std:.1f} % (standard deviation); {chosen.rows} configurations a sweep")
    print(f"rounds{'null fail':>14}{'-10 % in all':>14}{'-10 % in one':>14}")
    return report(chosen, noise)


PARTS = {"made": made, "drift": drift}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("runs", nargs="*", type=Path, help="recorded sweeps of made; without them, one is measured")
    options.add_argument("--only", default="made", help="of made,drift (%(default)s)")
    options.add_argument("--pairs", type=int, default=100, help="pairs of each kind")
    options.add_argument("--rows", type=int, default=6, help="configurations of a sweep")
    options.add_argument("--rounds", type=int, nargs="+", default=[3, 5, 10])
    options.add_argument("--seconds", type=float, default=900.0, help="of drift, to record")
    options.add_argument("--keep", type=Path, help="file of the speed that drift recorded, or is to record")
    chosen = options.parse_args()
    good = [PARTS[name](chosen) for name in chosen.only.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

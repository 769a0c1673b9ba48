"""Does the interval of a rate hold what a long loop runs at, and is it as narrow as it can be?

Rows are cut from long plain loops that are measured now or were kept (`--loops`): so many rounds of a usual segment,
against the rate of the whole loop, from many places in it. For each kind of row: how many intervals hold the rate, and
their width over that of the narrowest that would hold it 95 times of 100, taken from the same errors. A child prints
the time stamps of every step of one loop: emulated devices, CPU work, decoding, cold reads; some beside neighbours that
come and go. Eleven loops of 40 s each.

Ends with code 1 when fewer than 92 or more than 99 of 100 hold it over all rows, or when intervals are more than 1.5
times as wide as need be at the median over the rows. Rows of a device that is exact have no errors, and no such ratio.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from loaderprobe.analyze.verdict.rates import rate_interval
from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.measure.pace import Pace, pace_for
from loaderprobe.measure.segments import load_only, train
from loaderprobe.measure.sweep import USUAL_ROUNDS, USUAL_SECONDS
from loaderprobe.records.measurement import ComputeInfo, Measurement, Segment, segments_of
from loaderprobe.render.format import counted
from loaderprobe.stats import mean, median, quantile
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import example_arguments
from scripts.benches.beside import neighbour
from scripts.benches.harness import answer, child, parser, photographs, photographs_in
from scripts.benches.loaders import burn
from tests.analyze.runs import Cost, alike, run, segment
from tests.planted.slow_reader import evict

BATCH = 32
KINDS = ("emulated-steady", "emulated-hungry", "cpu", "cpu-serial", "decoding", "decoding-serial", "cold-files")
BESIDE = ("cpu", "decoding", "decoding-serial", "cold-files")
"""Beside neighbours that come and go, too."""
APART_S = 4.5
"""Between the beginnings of two rounds of training: the usual 13 s over three of them."""
ALONE_S = 1.5
"""From a round of training to that of the loader alone."""
LEAST, MOST, WIDE = 0.92, 0.99, 1.5
NARROWEST = 1e-3
"""Errors below this are those of a clock, and no scale for a width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One loop, measured in so many rounds from many places in it."""

    kind: str
    rounds: int
    covered: float
    """Share of the intervals that hold the truth."""
    half: float
    """Median half width, as a share of the rate."""
    narrowest: float
    """The half width that 95 % of the errors are within."""


BLANK = {number: run(alike(1, baseline=100), Cost(), workers=number) for number in (0, 2)}


def segment_of(number: int, stamps: Sequence[float], finished: Sequence[float] = ()) -> Segment:
    """A round of training whose steps begin at these times, in seconds; the last is the end."""
    ns = [round(second * 1e9) for second in stamps]
    begin, made = tuple(ns[:-1]), segment("baseline", "training", number, 0, 100.0, thread_cpu_ns=0, delivered_bytes=0)
    return replace(
        made, batch_size=BATCH, begin_ns=begin, ready_ns=begin, copied_ns=begin, end_ns=begin, closed_ns=ns[-1],
        finished_ns=tuple(round(second * 1e9) for second in finished),
    )  # fmt: skip


def cut(stamps: Sequence[float], pace: Pace, begin: int = 0) -> list[float]:
    """As many of these times as a segment from there has; empty where they are too few."""
    for steps in range(1, len(stamps) - begin):
        if pace.enough(steps, stamps[begin + steps] - stamps[begin]):
            return list(stamps[begin : begin + steps + 1])
    return []


def rows_of(kind: str, loop: dict[str, Any]) -> Iterator[Row]:
    """Cut from one loop: measurements of one, two, three and six rounds, from many places in it."""
    finished, workers, specified = [ns / 1e9 for ns in loop["finished_ns"]], loop["workers"], loop["specified"]
    pace = pace_for(workers=workers, rounds=USUAL_ROUNDS, budget_s=USUAL_SECONDS)
    compute = ComputeInfo(
        name="bench", device="", synchronous=specified is None, specified_images_per_s=specified, source=""
    )
    host = [ns / 1e9 for ns in (*loop["begin_ns"], loop["closed_ns"])]
    truth = BATCH * (len(host) - 1) / (host[-1] - host[0])
    if finished:
        truth = BATCH * (len(finished) - 1) / (finished[-1] - finished[0])
    cuts = [(first, stamps) for first in range(0, len(host) - 1, max(workers, 1)) if (stamps := cut(host, pace, first))]

    def at(second: float, number: int) -> Segment | None:
        piece = next(((first, stamps) for first, stamps in cuts if stamps[0] - host[0] >= second), None)
        if piece is None:
            return None
        first, stamps = piece
        return segment_of(number, stamps, finished[first : first + len(stamps) - 1])

    for rounds in (1, 2, 3, 6):
        apart_s = APART_S if rounds < 6 else APART_S / 2
        made: list[Measurement] = []
        for begin_s in itertools.count(0, 0.75):
            segments = [at(begin_s + apart_s * number, number) for number in range(rounds)]
            alone = [at(begin_s + apart_s * number + ALONE_S, number) for number in range(rounds)]
            if None in (*segments, *alone):
                break
            training = [segment for segment in segments if segment]
            loader = [replace(segment, activity="loader_only", finished_ns=()) for segment in alone if segment]
            made.append(replace(BLANK[workers], segments=(*training, *loader), compute=compute))
        if made:
            yield row_of(kind, rounds, made, truth)


def row_of(kind: str, rounds: int, measurements: Sequence[Measurement], images_per_s: float) -> Row:
    """Their intervals against the rate of the whole loop."""
    intervals = [rate_interval(measured, segments_of(measured, "baseline", "training")) for measured in measurements]
    errors = [abs(interval.value / images_per_s - 1) for interval in intervals]
    halves = [(interval.high - interval.value) / images_per_s for interval in intervals]
    return Row(
        kind=kind, rounds=rounds, covered=mean([error <= half for error, half in zip(errors, halves, strict=True)]),
        half=median(halves), narrowest=quantile(errors, 0.95),
    )  # fmt: skip


def show(name: str, rows: Sequence[Row]) -> bool:
    """Print a line for these rows; True where intervals hold as often as they should, and are no wider than need be."""
    ratios = [row.half / row.narrowest for row in rows if row.narrowest > NARROWEST]
    covered = mean([row.covered for row in rows])
    half, narrowest = (100 * median([getattr(row, name) for row in rows]) for name in ("half", "narrowest"))
    times = f"{median(ratios):8.2f}" if ratios else "       -"
    print(f"{name:36}{len(rows):5}{100 * covered:9.1f} %{half:10.2f} %{narrowest:10.2f} %{times}")
    return LEAST <= covered <= MOST and (not ratios or median(ratios) <= WIDE)


def loops_in(folder: Path, seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """The loops that are kept there, by name; those that are not are measured first."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*KINDS, *(f"{kind}+neighbours" for kind in BESIDE)):
        path = folder / f"{name}.json"
        if not path.exists():
            pictures = photographs(folder / "data", "256x256", 640)
            path.write_text(json.dumps(answer(child(stamps, name, pictures, seconds))))
            print(f"{name}: {seconds:g} s", file=sys.stderr, flush=True)
        yield name, json.loads(path.read_text())


WARM_UP = 12
"""Batches before the loop: those of the start of workers, and made ahead."""
BURN_S = 0.002


class Samples(Dataset[Any]):
    """Samples of one kind: CPU time that is burnt, photographs that are decoded, or files read from storage."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.files = photographs_in(folder)
        self.change = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return 10**7

    def __getitem__(self, index: int) -> torch.Tensor:
        draw = random.Random(index)
        if self.kind.startswith("cpu"):
            burn(BURN_S * draw.lognormvariate(0, 0.3))
            return torch.zeros(16)
        path = draw.choice(self.files)
        if self.kind == "cold-files":
            evict([path])
            path.read_bytes()
            return torch.zeros(16)
        return torch.from_numpy(np.array(self.change(Image.open(path).convert("RGB"))))


def stamps(name: str, folder: str, seconds: float) -> dict[str, Any]:
    """Of one loop: `begin_ns`, `closed_ns`, `finished_ns`, its workers, the specified rate of an emulated device."""
    kind, _, beside = name.partition("+")
    torch.set_num_threads(1)
    workers = 0 if kind.endswith("serial") else 2
    samples = Samples("decoding" if "emulated" in kind else kind, Path(folder))
    loader: Any = DataLoader(samples, BATCH, num_workers=workers)
    pace = Pace(min_s=seconds, max_s=seconds, min_batches=1, max_batches=10**6)
    rate = {"emulated-steady": 75.0, "emulated-hungry": 3000.0}.get(kind)
    with neighbour(name) if beside else nullcontext():
        batches, clock = iter(loader), SystemClock()
        for _ in range(WARM_UP):
            next(batches)
        if rate is None:
            steps = load_only(batches, clock, pace.enough)
        else:
            arguments = example_arguments(clock, compute=f"emulated:{rate:g}")
            steps = train(batches, EmulatedCompute(arguments), clock, pace.enough)
    return {
        "begin_ns": steps.begin_ns, "closed_ns": steps.closed_ns, "finished_ns": steps.finished_ns,
        "workers": workers, "specified": rate,
    }  # fmt: skip


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--loops", type=Path, help="keep the long loops there; what is there is not measured again")
    options.add_argument("--seconds", type=float, default=40.0, help="of each loop that is measured")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="loaderprobe-loops-") as scratch:
        loops = loops_in(chosen.loops or Path(scratch), chosen.seconds)
        rows = [row for name, loop in loops for row in rows_of(name, loop)]
    print(f"{'':36} rows    covered    ± median  narrowest   times")
    for row in rows:
        show(f"{row.kind}, {counted(row.rounds, 'round')}", [row])
    return 0 if show("all", rows) else 1


if __name__ == "__main__":
    sys.exit(main())

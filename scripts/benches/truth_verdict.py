"""Family `verdict`: photographs on slow disks, each loader with several emulated accelerators in turn.

Three kinds of slow disk are planted and verified, and a warm one beside them. One process measures one block: a loader,
whose rounds for the verdict and rounds for the truth alternate inside one iterator. What it saw is cut into two
`Measurement`s for each accelerator: what the verdict asked for itself, and the truth, in which the accelerator trains
on the loader as it is, without storage (warm files), without preprocessing (bytes read, cached samples), and without
transport; and the loader runs without the accelerator. This truth has no say on cores: `cpu` counts as `preprocessing`.
"""

from __future__ import annotations

import argparse
import io
import math
import shutil
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rates import cold_fraction, worker_cost
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.compute.step import NoCompute
from loaderprobe.measure import session
from loaderprobe.measure.user.loader import LoaderRequest, measure_loader
from loaderprobe.protocols import Compute, ComputeArguments, NextRound
from loaderprobe.records.config import CacheState, with_options
from loaderprobe.records.measurement import (
    Activity,
    ComputeInfo,
    Measurement,
    Mode,
    Segment,
    base_mode,
    segment_seconds,
    segments_of,
)
from loaderprobe.records.thresholds import COLD_AT_LEAST, WARM_AT_MOST
from loaderprobe.stats import median
from loaderprobe.store.codec import decode, encode, write_atomically
from scripts.benches.harness import LATENCY_S, Plant, Progress, part_of, photographs, planted, ran, wanted
from scripts.benches.score import Marks, Row, Said

MARKS = Marks(right_at_least=0.85, regret_at_most=0.005)
IMAGES = 512
CHILD_LIMIT_S = 600
ROUNDS = 3
RESOURCES = ("storage", "preprocessing", "transport", "compute")
WITHOUT: dict[str, Mode] = {"storage": "warm", "preprocessing": "cached_samples", "transport": "no_transport"}
WAITED_LESS = 0.33
"""Warm files are waited for less than this share of the time that cold ones are."""

DiskKind = Literal["token_bucket", "single_server", "latency", "warm"]
Variant = Literal["plain", "lazy", "burn", "heavy"]

BATCH_SIZE = 8
BURN_S = 0.006
HEAVY_SIDE = 768
_TRANSFORM = v2.Compose([v2.RandomResizedCrop(224), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One loader on one disk, and the accelerators (images/s, or `none`) that it is to feed."""

    disk: DiskKind
    mb_per_s: float
    """Of a token bucket or a single server; 0 for the others."""
    resolution: str
    workers: int
    variant: Variant
    accelerators: tuple[str, ...]

    @property
    def name(self) -> str:
        rate = f"{self.mb_per_s:g}" if self.mb_per_s else ""
        return f"{self.disk}{rate}-{self.resolution}-n{self.workers}-{self.variant}"


def _block(text: str) -> Block:
    disk, rate, resolution, workers, variant, accelerators = text.split()
    return Block(
        disk=disk,  # type: ignore[arg-type]  # a table of this file
        mb_per_s=float(rate),
        resolution=resolution,
        workers=int(workers),
        variant=variant,  # type: ignore[arg-type]
        accelerators=tuple(accelerators.split(",")),
    )


BLOCKS = tuple(
    _block(line)
    for line in """\
token_bucket   6 256x256 0 plain 50,150,none
token_bucket   6 256x256 1 lazy  150,400,none
token_bucket  16 500x375 2 plain 50,150,none
token_bucket  16 256x256 4 plain 150,400,none
token_bucket  16 256x256 2 burn  150,400,none
token_bucket  16 256x256 2 heavy 150,400,none
single_server  6 256x256 2 lazy  150,400,none
single_server 16 500x375 0 plain 50,150,400
single_server 16 256x256 4 plain 150,400,none
single_server 16 256x256 1 burn  150,400,none
latency         0 256x256 1 plain 50,150,none
latency         0 256x256 2 plain 150,400,none
latency         0 500x375 4 lazy  150,400,none
latency         0 256x256 4 burn  50,150,none
warm            0 500x375 0 plain 150,400,none
warm            0 256x256 1 plain 150,400,none
warm            0 500x375 4 plain 150,400,none
warm            0 256x256 2 burn  50,150,400
warm            0 256x256 1 heavy 150,400,none
warm            0 256x256 2 heavy 150,400,none
""".splitlines()
)


class Photographs(Dataset[tuple[Any, ...]]):
    """Photographs as anyone reads them: at once, or as the decoder asks; with more CPU, or large tensors beside."""

    def __init__(self, folder: Path, variant: Variant) -> None:
        self._files = sorted(folder.rglob("*.JPEG"))
        self._variant = variant
        self._heavy = torch.rand(3, HEAVY_SIDE, HEAVY_SIDE) if variant == "heavy" else None

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        file = self._files[index]
        if self._variant == "lazy":
            with file.open("rb") as opened:
                return _TRANSFORM(Image.open(opened).convert("RGB")), index
        data = file.read_bytes()
        if self._variant == "burn":
            end_s = time.thread_time() + BURN_S
            while time.thread_time() < end_s:
                pass
        image = _TRANSFORM(Image.open(io.BytesIO(data)).convert("RGB"))
        return (image, index) if self._heavy is None else (image, index, self._heavy)


Plan = tuple[tuple[Mode, Activity], ...]

LOADER_ROUNDS_OF_VERDICT = 100
"""Added to the rounds of the verdict's own loader segments that stand beside the truth."""


class Rack:
    """Several devices behind one: each training segment is run by the next in turn."""

    synchronous = False

    def __init__(self, names: Sequence[str], arguments: ComputeArguments) -> None:
        self.devices = {name: _device(name, arguments) for name in names}
        self.turns: deque[str] = deque(names)
        self._untimed = True

    def begin(self, names: Sequence[str]) -> None:
        """A round begins, in which these train in turn."""
        self.turns, self._untimed = deque(names), True

    def info(self) -> ComputeInfo:
        return self.devices[self.turns[0]].info()

    def copy(self, batch: Any) -> Any:
        return batch

    def step(self, batch: Any) -> None:
        # Without transport only the number of samples arrives; the device is to train on as many.
        self.devices[self.turns[0]].step(np.empty(batch) if isinstance(batch, int) else batch)

    def finish(self) -> tuple[int, ...]:
        finished = self.devices[self.turns[0]].finish()
        # Each training segment begins with a step that is not timed, and that the device finishes for itself.
        if not self._untimed:
            self.turns.rotate(-1)
        self._untimed = not self._untimed
        return finished


def _training(plan: Plan) -> list[tuple[Mode, Activity]]:
    return [each for each in plan if each[1] == "training"]


def _device(name: str, arguments: ComputeArguments) -> Compute:
    if name == "none":
        return NoCompute(arguments)
    return EmulatedCompute(replace(arguments, spec=replace(arguments.spec, name=f"emulated:{name}")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one round was for: the segments of each accelerator, and who had which training segment."""

    truth: bool
    asked: dict[str, Plan]
    trained: tuple[str, ...]


class Director:
    """Decides the rounds of a block: the verdict's own, as the standard asks, and in between those of the truth.

    A loader segment that several accelerators ask for in one round is measured once. The truth has rounds of its own
    for each accelerator, so that all its parts see the same machine.
    """

    def __init__(self, accelerators: Sequence[str], truth_rounds: int, standard: NextRound) -> None:
        self._accelerators = accelerators
        self._truth_rounds = truth_rounds
        self._standard = standard
        self._plans = self._all_plans()
        self._seen: Measurement | None = None
        self._rack: Rack | None = None
        self.parts: list[Part] = []

    def rack(self, arguments: ComputeArguments) -> Rack:
        self._rack = Rack(self._accelerators, arguments)
        return self._rack

    def __call__(self, measurement: Measurement, *, thorough: bool) -> Plan:
        self._seen = measurement
        return next(self._plans, ())

    def _all_plans(self) -> Iterator[Plan]:
        open_still, number = list(self._accelerators), 0
        while open_still or number < self._truth_rounds:
            asked = {name: tuple(self._standard(self.verdict_of(name), thorough=False)) for name in open_still}
            open_still = [name for name in open_still if asked[name]]
            together = [name for name in open_still if len(_training(asked[name])) <= 1]
            if together:
                yield self._verdict_round({name: asked[name] for name in together}, turn=number)
            for name in open_still:
                if name not in together:
                    # Several modes in training: a round of its own.
                    yield self._round_of(name, asked[name], truth=False)
            if number < self._truth_rounds:
                for name in self._accelerators:
                    yield self._truth_round(name)
            number += 1

    def _verdict_round(self, asked: dict[str, Plan], turn: int) -> Plan:
        loader_only = dict.fromkeys(each for plan in asked.values() for each in plan if each[1] == "loader_only")
        training = {name: _training(plan) for name, plan in asked.items()}
        names = [name for name in asked if training[name]]
        order = names[turn % len(names) :] + names[: turn % len(names)] if names else []
        if len({each for plan in training.values() for each in plan}) > 1:
            raise ValueError(f"training in several modes in one round cannot be separated: {training}")
        return self._begin(
            Part(truth=False, asked=asked, trained=tuple(order)), loader_only, [training[n][0] for n in order]
        )

    def _truth_round(self, name: str) -> Plan:
        assert self._seen
        base: Mode = "warm" if self._seen.config.cache == "warm" else "baseline"
        modes = [
            base,
            *(mode for mode in ("warm", "cached_samples", "no_transport") if mode != base and mode in self._seen.modes),
        ]
        plan: list[tuple[Mode, Activity]] = [(base, "loader_only"), *((mode, "training") for mode in modes)]
        return self._round_of(name, tuple(plan), truth=True)

    def _round_of(self, name: str, plan: Plan, *, truth: bool) -> Plan:
        """A round of one accelerator, which has all its training segments."""
        training = _training(plan)
        part = Part(truth=truth, asked={name: plan}, trained=(name,) * len(training))
        return self._begin(part, [each for each in plan if each not in training], training)

    def _begin(self, part: Part, loader_only: Any, training: Any) -> Plan:
        assert self._rack
        self.parts.append(part)
        self._rack.begin(part.trained or self._accelerators)
        return (*loader_only, *training)

    def verdict_of(self, name: str) -> Measurement:
        """What the standard asked for on behalf of one accelerator, as if nothing else had been measured."""
        return self._cut(name, truth=False)

    def truth_of(self, name: str) -> Measurement:
        """The measured speed-ups of one accelerator, and beside them all loader segments of the verdict's rounds."""
        return self._cut(name, truth=True)

    def _cut(self, name: str, *, truth: bool) -> Measurement:
        assert self._seen
        assert self._rack
        segments: list[Segment] = []
        rounds = 0
        for number, part in enumerate(self.parts):
            found = [segment for segment in self._seen.segments if segment.round == number]
            if part.truth == truth and name in part.asked:
                segments += [replace(s, round=rounds) for s in _of(name, part, found)]
                rounds += 1
            elif truth and not part.truth:
                segments += [
                    replace(s, round=LOADER_ROUNDS_OF_VERDICT + number) for s in found if s.activity == "loader_only"
                ]
        info = self._rack.devices[name].info()
        config = with_options(self._seen.config, compute=info.name)
        return replace(self._seen, config=config, compute=info, segments=tuple(segments))

    def finished(self, measurement: Measurement) -> None:
        self._seen = measurement


def _of(name: str, part: Part, segments: Sequence[Segment]) -> Iterator[Segment]:
    """The segments of one round that were measured for one accelerator."""
    trained = iter(part.trained)
    for segment in segments:
        whose = next(trained) if segment.activity == "training" else name
        if whose == name and (segment.mode, segment.activity) in part.asked[name]:
            yield segment


def disk_of(undo: ExitStack, kind: str, mb_per_s: float, source: Path, scratch: Path) -> Plant | None:
    """The photographs on such a disk; None where none can be planted."""
    if kind == "warm":
        return Plant(folder=source)
    name, limit = (f"{kind} {mb_per_s:g} MB/s", mb_per_s * 1e6) if mb_per_s else (f"{kind} 10 ms", LATENCY_S)
    fill = partial(shutil.copytree, source, dirs_exist_ok=True)
    return planted(undo, name, kind, limit, fill=fill, scratch=scratch, keep_cache=True)


def names() -> list[str]:
    return [block.name for block in BLOCKS]


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Plant each disk in turn, and measure its blocks there, each in a process of its own; True when none failed."""
    blocks = [block for block in BLOCKS if block.name in wanted(names(), chosen.only)]
    progress, complete = Progress(len(blocks)), True
    with tempfile.TemporaryDirectory(prefix="loaderprobe-verdict-") as scratch:
        source = Path(scratch, "photographs")
        for resolution in sorted({block.resolution for block in blocks}):
            photographs(source, resolution, IMAGES)
        for (kind, mb_per_s), group in groupby(blocks, key=lambda block: (block.disk, block.mb_per_s)):
            with ExitStack() as undo:
                place = disk_of(undo, kind, mb_per_s, source, Path(scratch))
                if place is None:
                    continue
                for block in group:
                    own = {"block": block.name, "folder": str(place.folder / block.resolution), "out": str(out),
                           "rounds": chosen.rounds or ROUNDS}  # fmt: skip
                    complete &= ran(place.command(part_of("truth", "verdict", own)), block.name, CHILD_LIMIT_S)
                    progress.done(block.name)
    return complete


def run_child(given: dict[str, Any]) -> None:
    """Measure one block in this process; two files for each accelerator go to `out`."""
    block = next(block for block in BLOCKS if block.name == given["block"])
    out = Path(given["out"])
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    # The truth takes rounds beyond those that a verdict may take.
    session.MOST_ROUNDS = 1000
    loader = DataLoader(
        Photographs(Path(given["folder"]), block.variant), batch_size=BATCH_SIZE, shuffle=True,
        num_workers=block.workers,
    )  # fmt: skip

    director = Director(block.accelerators, given["rounds"], next_round)
    cache: CacheState = "warm" if block.disk == "warm" else "cold"
    asked = LoaderRequest(cache=cache, budget_s=None, decide=director)
    found = measure_loader(loader, director.rack, asked, lambda *_: None)
    if found.data.hidden:
        raise SystemExit(f"{block.name}: {found.data.hidden.code}")
    director.finished(found.measurement)
    for name in block.accelerators:
        stem = f"{block.name}-{'a' if name != 'none' else ''}{name}"
        write_atomically(out / f"{stem}.verdict.json", encode("measurement", director.verdict_of(name)))
        write_atomically(out / f"{stem}.truth.json", encode("measurement", director.truth_of(name)))


def load(folder: Path, chosen: argparse.Namespace) -> list[Row]:
    """The rows of all measurements in a folder, judged now."""
    rows = []
    kept = {file.name.removesuffix(".verdict.json"): file for file in sorted(folder.glob("*.verdict.json"))}
    for name in wanted(list(kept), chosen.only):
        files = (kept[name], folder / f"{name}.truth.json")
        rows.append(judged(name, *(decode("measurement", p.read_bytes(), Measurement, str(p)) for p in files)))
    return rows


def judged(name: str, own: Measurement, truth: Measurement) -> Row:
    """One row, from the two measurements of a configuration."""
    found = verdict(own)
    bound, error = found.bound, found.prediction_error
    base = base_mode(truth)
    training = [segment for segment in truth.segments if segment.activity == "training"]
    logs, rate = logs_of(truth, training, base)
    own_gains = [(resource, getattr(found.speedups, resource)) for resource in RESOURCES]
    gains = "  ".join(
        f"{resource} {each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for resource, each in own_gains if each
    )
    seconds, rounds = sum(map(segment_seconds, own.segments)), len({segment.round for segment in own.segments})
    said = Said(
        cause=bound.cause, candidates=tuple(bound.candidates), side=bound.side, images_per_s=found.images_per_s.value
    )
    return Row(
        name=name, logs=logs, images_per_s=rate, said={"verdict": said},
        details=(
            f"verdict  {gains}  prediction_error {'-' if error is None else f'{error:+.2f}'}",
            f"{rounds} rounds, {seconds:.1f} s of timed segments; {bound.reason.code} {bound.reason.facts}",
        ),
        trouble=_trouble(truth, training, base),
    )  # fmt: skip


def logs_of(measured: Measurement, training: Sequence[Segment], base: Mode) -> tuple[dict[str, list[float]], float]:
    """(By resource, the logarithm of its true speed-up in each round; images/s as it is.)"""
    workers = measured.config.loader.workers
    logs: dict[str, list[float]] = {name: [] for name in RESOURCES}
    rates = []
    for number in sorted({segment.round for segment in training}):
        rate = {s.mode: images_per_s(s, workers) for s in training if s.round == number}
        loader_only = (s for s in segments_of(measured, base, "loader_only") if s.round == number)
        alone = images_per_s(next(loader_only), workers)
        rates.append(rate[base])
        for resource, mode in WITHOUT.items():
            logs[resource].append(math.log(rate.get(mode, rate[base]) / rate[base]))
        # Where there is no accelerator, none can be faster.
        logs["compute"].append(0.0 if measured.compute.name == "none" else math.log(alone / rate[base]))
    return logs, median(rates)


def images_per_s(segment: Segment, workers: int) -> float:
    """Whole iterations; for a training segment the device's timeline, where that is slower.

    Each flatters in one case: iterations when the host runs ahead of its device; the timeline, which begins with
    the end of a step, when N workers deliver N batches at once. So it counts whole multiples of N steps.
    """
    whole = segment.batch_size * segment.steps / segment_seconds(segment)
    ends = segment.finished_ns
    first = (len(ends) - 1) % max(workers, 1)
    if len(ends) - first < 2 or ends[-1] <= ends[first]:
        return whole
    return min(whole, segment.batch_size * (len(ends) - 1 - first) * 1e9 / (ends[-1] - ends[first]))


def _trouble(measured: Measurement, training: Sequence[Segment], base: Mode) -> str:
    """By bytes where they are counted, else by how long workers waited for an image."""
    of = {
        mode: [s for s in training if s.mode == mode] for mode in ("baseline", "warm", "cached_samples", "no_transport")
    }
    share = {mode: cold_fraction(measured, segments) for mode, segments in of.items() if segments}
    found = [
        f"{value:.0%} of the bytes of {mode} came from storage"
        for mode, value in share.items()
        if value is not None and (value > WARM_AT_MOST if "warm" in (mode, base) else value < COLD_AT_LEAST)
    ]
    costs = {mode: worker_cost(measured.worker_batches, segments) for mode, segments in of.items()}
    cold, warm = costs["baseline"], costs["warm"]
    if base == "baseline" and share["baseline"] is None and cold and warm:
        cold_s, warm_s = (each.blocked_s / each.images for each in (cold, warm))
        if warm_s > WAITED_LESS * cold_s:
            found.append(f"workers waited {cold_s * 1e3:.1f} ms an image cold and {warm_s * 1e3:.1f} ms warm")
    return ", ".join(found)

"""What `verdict` measures: loaders on slow disks, each with several emulated accelerators in turn.

One process measures one block: a loader, whose rounds for the verdict and rounds for the truth alternate inside
one iterator. What it saw is cut into two `Measurement`s for each accelerator: what the verdict asked for itself,
and the truth.
"""

from __future__ import annotations

import io
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.api.policy import JUDGING
from loaderprobe.measure import session
from loaderprobe.measure.own.loader import LoaderRequest, measure_loader
from loaderprobe.records.files import UnknownFiles
from loaderprobe.store.codec import encode, write_atomically
from scripts.benches.neighbours import set_paused
from scripts.benches.verdict_rounds import Director

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


def measure_block(block: Block, folder: Path, out: Path, truth_rounds: int, neighbour: int, suffix: str) -> None:
    """Measure one block in this process; two files for each accelerator go to `out`, or one without truth rounds.

    The process `neighbour`, if not 0, is paused in the rounds for the truth.
    """
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    # The truth takes rounds beyond those that a verdict may take.
    session.MOST_ROUNDS = 1000
    loader = DataLoader(
        Photographs(folder, block.variant), batch_size=BATCH_SIZE, shuffle=True, num_workers=block.workers
    )

    def on_round(truth: bool) -> None:
        if neighbour:
            set_paused(neighbour, truth)

    director = Director(block.accelerators, truth_rounds, next_round, on_round)
    asked = LoaderRequest(
        judging=JUDGING, cache="warm" if block.disk == "warm" else "cold", budget_s=None, next_round=director
    )
    found = measure_loader(loader, director.rack, asked, lambda *_: None)
    if isinstance(found.files, UnknownFiles):
        raise SystemExit(f"{block.name}: {found.files.code}")
    director.finished(found.measurement)
    for name in block.accelerators:
        stem = f"{block.name}-{'a' if name != 'none' else ''}{name}{suffix}"
        write_atomically(out / f"{stem}.verdict.json", encode("measurement", director.verdict_of(name)))
        if truth_rounds:
            write_atomically(out / f"{stem}.truth.json", encode("measurement", director.truth_of(name)))

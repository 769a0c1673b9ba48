"""Does `loaderprobe run` find in an unchanged loop what `diagnose` finds with a step? Planted pairs; as root for disks.

Each row is a loop over a data set whose samples take CPU time, wait, or are read from a slow disk, and whose step takes
time. `diagnose(loader, step)` and `attached()` around the loop measure it in turn, each in a process of its own. Ends
with code 1 when a firm word of either is wrong, when two firm words differ, or a median rate differs by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import pil_to_tensor

import loaderprobe
from loaderprobe.stats import median
from scripts.benches.harness import Plant, Progress, answer, child, parser, photographs, planted

BATCH = 8
SAMPLES = 4000
MOST_APART = 0.10
UNSURE = ("either", "inconclusive", "balanced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One loop: ms a sample of CPU time or waiting, ms a step of sleep, and the causes that are true."""

    name: str
    causes: tuple[str, ...]
    burn_ms: float = 0.0
    wait_ms: float = 0.0
    step_ms: float = 0.0
    workers: int = 0
    disk_mb_per_s: float = 0.0


ROWS = (
    Row(name="burn6-n0", burn_ms=6, step_ms=2, causes=("preprocessing",)),
    Row(name="burn6-n1", burn_ms=6, step_ms=2, workers=1, causes=("preprocessing",)),
    Row(name="burn6-n2", burn_ms=6, step_ms=2, workers=2, causes=("preprocessing", "cpu")),
    Row(name="burn2-n0", burn_ms=2, step_ms=2, causes=("preprocessing",)),
    Row(name="burn3-n1", burn_ms=3, step_ms=10, workers=1, causes=("preprocessing",)),
    Row(name="step100-n0", burn_ms=0.1, step_ms=100, causes=("compute",)),
    Row(name="step50-n1", burn_ms=0.5, step_ms=50, workers=1, causes=("compute",)),
    Row(name="step60-n2", burn_ms=1, step_ms=60, workers=2, causes=("compute",)),
    Row(name="step30-n0", burn_ms=0.2, step_ms=30, causes=("compute",)),
    Row(name="wait10-n0", wait_ms=10, step_ms=2, causes=("wait",)),
    Row(name="wait8-n2", wait_ms=8, step_ms=2, workers=2, causes=("wait",)),
    Row(name="disk6-n0", disk_mb_per_s=6, step_ms=2, causes=("storage",)),
    Row(name="disk6-n2", disk_mb_per_s=6, step_ms=10, workers=2, causes=("storage",)),
    Row(name="disk6-n2-step200", disk_mb_per_s=6, step_ms=200, workers=2, causes=("compute",)),
)


class Planted(Dataset[tuple[torch.Tensor, int]]):
    """Samples that cost what a row says; with files, they are read and decoded."""

    def __init__(self, row: Row, files: list[str]) -> None:
        self.row, self.files = row, files

    def __len__(self) -> int:
        return len(self.files) or SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.row.wait_ms:
            time.sleep(self.row.wait_ms / 1e3)
        end = time.thread_time() + self.row.burn_ms / 1e3
        while time.thread_time() < end:
            pass
        if not self.files:
            return torch.full((3, 64, 64), float(index % 7)), index % 10
        with Image.open(self.files[index]) as image:
            return pil_to_tensor(image.convert("RGB").resize((64, 64))).float(), index % 10


def measure(row: Row, way: str, folder: str, budget_s: float) -> dict[str, Any]:
    """Side, cause and rate, as `diagnose` or as `attached` finds them."""
    torch.set_num_threads(1)
    files = sorted(map(str, Path(folder).rglob("*.JPEG"))) if folder else []
    loader = DataLoader(Planted(row, files), BATCH, shuffle=True, num_workers=row.workers)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch: Any) -> None:
        time.sleep(row.step_ms / 1e3)
        model(batch[0][:, 0, 0, :10]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    if way == "diagnose":
        found = loaderprobe.diagnose(loader, step, budget_s=budget_s)
    else:
        with loaderprobe.attached(budget_s=budget_s) as block:
            while True:
                for batch in loader:
                    step(batch)
        if block.diagnosis is None:
            raise SystemExit(block.reason)
        found = block.diagnosis
    return {"cause": found.cause, "rate": found.images_per_s.value, "sentence": found.sentence}


def disks(undo: ExitStack, rows: list[Row], scratch: Path) -> dict[float, Plant]:
    """The slow disks of the rows, with photographs."""
    made = {0.0: Plant(folder=scratch)}
    wanted = {row.disk_mb_per_s for row in rows} - {0.0}
    if wanted:
        source = photographs(scratch / "photographs", "500x375", 1200)
    for mb_per_s in sorted(wanted):
        fill = partial(copytree, source, dirs_exist_ok=True)
        place = planted(
            undo, f"{mb_per_s:g} MB/s", "token_bucket", mb_per_s * 1e6, fill=fill, scratch=scratch, keep_cache=True
        )
        if place is not None:
            made[mb_per_s] = place
    return made


def judged(row: Row, found: dict[str, list[dict[str, Any]]]) -> tuple[str, bool]:
    """(a line of the table, whether the row is right)."""
    causes = {way: [each["cause"] for each in several] for way, several in found.items()}
    rates = {way: median([each["rate"] for each in several]) for way, several in found.items()}
    firm = {way: {each for each in several if each not in UNSURE} for way, several in causes.items()}
    wrong = any(cause not in row.causes for several in firm.values() for cause in several)
    ratio = rates["attached"] / rates["diagnose"]
    apart = abs(ratio - 1) > MOST_APART
    line = (
        f"{row.name:18} {'/'.join(causes['diagnose']):28} {'/'.join(causes['attached']):28} {rates['diagnose']:8.4g} "
        f"{rates['attached']:8.4g} {ratio:6.2f}  {'WRONG' if wrong else ''}{' APART' if apart else ''}"
    )
    return line, not wrong and not apart


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default="", help="rows whose name contains this")
    options.add_argument("--repeats", type=int, default=2, help="of each way, in turn")
    options.add_argument("--budget", type=float, default=12.0, help="seconds of each measurement")
    options.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        way, row_text, folder = chosen.child
        given = json.loads(row_text)
        row = Row(**{**given, "causes": tuple(given["causes"])})
        print(json.dumps(measure(row, way, folder, chosen.budget)))
        return 0
    rows = [row for row in ROWS if chosen.only in row.name]
    progress, lines, right = Progress(len(rows)), [], 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-run-") as scratch, ExitStack() as undo:
        places = disks(undo, rows, Path(scratch))
        for row in (row for row in rows if row.disk_mb_per_s in places):
            place, found = places[row.disk_mb_per_s], dict[str, list[dict[str, Any]]]()
            folder = str(place.folder) if row.disk_mb_per_s else ""
            for way in ("diagnose", "attached") * chosen.repeats:
                own = ("--budget", chosen.budget, "--child", way, json.dumps(asdict(row)), folder)
                found.setdefault(way, []).append(answer(place.command(child("run", *own))))
            line, fine = judged(row, found)
            lines.append(line)
            right += fine
            progress.done(line)
    print(f"{'row':18} {'diagnose':28} {'attached':28} {'images/s':>8} {'attached':>8} {'ratio':>6}")
    print("\n".join(lines))
    print(f"{right} of {len(lines)} rows: no firm word wrong, rates within {MOST_APART:.0%}")
    return 0 if right == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())

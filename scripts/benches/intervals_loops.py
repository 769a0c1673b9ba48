"""Long plain loops for `scripts/bench intervals`: emulated devices, CPU work, decoding, cold reads.

A child prints one JSON object: the time stamps of every step of one loop.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from loaderprobe.compute.emulated import EmulatedCompute
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.segments import Pace, load_only, train
from loaderprobe.protocols import ComputeArguments
from loaderprobe.records.config import ComputeSpec, LoaderSpec
from scripts.benches.intervals import BATCH

WARM_UP = 12
"""Batches before the loop: those of the start of workers, and made ahead."""
BURN_S = 0.002


class Samples(Dataset[Any]):
    """Samples of one kind: CPU time that is burnt, photographs that are decoded, or files read from storage."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.files = sorted(folder.rglob("*.JPEG"))
        self.change = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return 10**7

    def __getitem__(self, index: int) -> torch.Tensor:
        draw = random.Random(index)
        if self.kind.startswith("cpu"):
            end_s = time.thread_time() + BURN_S * draw.lognormvariate(0, 0.3)
            while time.thread_time() < end_s:
                pass
            return torch.zeros(16)
        path = draw.choice(self.files)
        if self.kind == "cold-files":
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.read(fd, 1 << 22)
            os.close(fd)
            return torch.zeros(16)
        return torch.from_numpy(np.array(self.change(Image.open(path).convert("RGB"))))


@contextmanager
def neighbours() -> Iterator[None]:
    """A busy process that comes and goes, 0.2 to 5 s each."""
    code = (
        "import random, time\nd = random.Random(5)\nwhile True:\n"
        "    e = time.monotonic() + d.uniform(0.2, 5)\n    while time.monotonic() < e: pass\n"
        "    time.sleep(d.uniform(0.2, 5))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def stamps(kind: str, folder: Path, seconds: float) -> dict[str, Any]:
    """Of one loop: `begin_ns`, `closed_ns`, `finished_ns`, its workers, the specified rate of an emulated device."""
    torch.set_num_threads(1)
    workers = 0 if kind.endswith("serial") else 2
    loader: Any = DataLoader(Samples("decoding" if "emulated" in kind else kind, folder), BATCH, num_workers=workers)
    batches, clock = iter(loader), SystemClock()
    for _ in range(WARM_UP):
        next(batches)
    pace = Pace(min_s=seconds, max_s=seconds, min_batches=1, max_batches=10**6)
    rate = {"emulated-steady": 75.0, "emulated-hungry": 3000.0}.get(kind)
    if rate is None:
        steps = load_only(batches, clock, pace)
    else:
        spec = ComputeSpec(name=f"emulated:{rate:g}", batch_size=BATCH)
        steps = train(
            batches,
            EmulatedCompute(
                ComputeArguments(spec=spec, loader=LoaderSpec(workers=workers, prefetch_factor=2), clock=clock)
            ),
            clock,
            pace,
        )
    return {
        "begin_ns": steps.begin_ns, "closed_ns": steps.closed_ns, "finished_ns": steps.finished_ns,
        "workers": workers, "specified": rate,
    }  # fmt: skip


if __name__ == "__main__":
    kind, folder, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    if kind.endswith("+neighbours"):
        with neighbours():
            print(json.dumps(stamps(kind.removesuffix("+neighbours"), folder, seconds)))
    else:
        print(json.dumps(stamps(kind, folder, seconds)))

"""An unchanged script for some steps with fixed seeds: its losses, what its model was given, and its CPU time.

Imports nothing of the project, so that it is the same with `loaderprobe run --watch` and without.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import resource
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scripts_truth import run_script  # type: ignore[import-not-found]  # beside this file

SETTLE = 40
"""Steps whose CPU time does not count: imports, and the first of everything. At most half of all."""


class Log:
    """Hears of each backward pass."""

    def __init__(self, out: Path, steps: int) -> None:
        self.out, self.steps, self.settle = out, steps, min(SETTLE, steps // 2)
        self.losses: list[str] = []
        self.inputs = hashlib.blake2b()
        self.first = True
        self.began = (0.0, 0.0)

    def called(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """The first module that gets tensors in a step gets the batch."""
        tensors = [each for each in inputs if isinstance(each, torch.Tensor)]
        if self.first and tensors and torch.is_grad_enabled():
            self.first = False
            self.inputs.update(tensors[0].detach().contiguous().cpu().numpy().tobytes())

    def backward(self, loss: torch.Tensor) -> None:
        """A step's loss. Ends the script after the last step."""
        self.first = True
        self.losses.append(float(loss.detach()).hex())
        if len(self.losses) == self.settle:
            self.began = cpu_s()
        if len(self.losses) == self.steps:
            self.end()

    def end(self) -> None:
        """Keep all, and end the script."""
        own, workers = (after - before for before, after in zip(self.began, cpu_s(), strict=True))
        found = {
            "losses": self.losses,
            "inputs": self.inputs.hexdigest(),
            "random": [random.random(), float(np.random.random()), float(torch.rand(1))],
            "own_cpu_s": own / (self.steps - self.settle),
            "worker_cpu_s": workers / (self.steps - self.settle),
        }
        self.out.write_text(json.dumps(found))
        raise SystemExit(0)


def cpu_s() -> tuple[float, float]:
    """CPU time of this process, and of its workers, those that have ended among them; s."""
    own, ended = (resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    threads = [
        thread for each in multiprocessing.active_children() for thread in Path(f"/proc/{each.pid}/task").glob("*")
    ]
    living_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    return own.ru_utime + own.ru_stime, ended.ru_utime + ended.ru_stime + living_ns / 1e9


def listen(log: Log) -> None:
    """From now on."""
    original = torch.Tensor.backward

    def backward(loss: torch.Tensor, *given: Any, **named: Any) -> None:
        original(loss, *given, **named)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if os.getpid() == owner:
            log.backward(loss)

    owner = os.getpid()
    torch.Tensor.backward = backward  # type: ignore[method-assign,assignment]  # to listen
    torch.nn.modules.module.register_module_forward_pre_hook(log.called)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, required=True, help="file for the JSON")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("words", nargs=argparse.REMAINDER)
    asked = options.parse_args()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    listen(Log(asked.out, asked.steps))
    run_script(asked.words)

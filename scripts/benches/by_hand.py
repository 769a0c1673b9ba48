"""An unchanged script with one change to its loop, and the rate that it then has; or its losses.

`training` is the script as it is, its files cold with each epoch; `warm` the same with files in memory; `cached` with
samples that were made before; `resident` with one batch over and over; `loader` its loader alone; `more` with one more
worker. `losses` runs it for some steps with fixed seeds: its losses, what its model was given, and its CPU time.
Imports nothing of the project, so that it is the same with `loaderprobe run --watch` and without. Writes JSON and ends
the script once it has seen enough.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import resource
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch.utils.data import DataLoader, get_worker_info

WAYS = ("training", "loader", "resident", "warm", "cached", "more")
SETTLE, SETTLE_WORKER = 6, 3
"""Batches of each epoch that do not count, and so many more for each worker: made ahead. At most a third."""
PREFETCHED = 2
"""Batches a worker makes ahead, where a loader without workers says nothing."""
KEPT = 32
"""Samples that are made once, for `cached`: of all classes, since the loss of one class alone is soon zero."""


def kept_of(samples: int) -> range:
    """Evenly over a data set."""
    return range(0, samples - samples % KEPT, samples // KEPT) if samples >= KEPT else range(samples)


class Kept:
    """A data set of samples that were made before."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.samples = [inner[number] for number in kept_of(len(inner))]

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        sample = self.samples[index % len(self.samples)]
        return dict(sample) if isinstance(sample, dict) else sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def samples_of(loader: Any) -> float:
    """Of its data set; without end where this has no length."""
    try:
        return loader.d.n if hasattr(loader, "d") else len(loader.dataset)
    except TypeError:
        return float("inf")


def batches_of(loader: Any) -> float:
    """Of an epoch; without end where these are not known."""
    try:
        return len(loader.d if hasattr(loader, "d") else loader)
    except TypeError:
        return float("inf")


def images_of(batch: Any) -> int:
    """Length of the first tensor that is found."""
    if isinstance(batch, torch.Tensor):
        return len(batch)
    for value in batch.values() if isinstance(batch, dict) else batch:
        if found := images_of(value):
            return found
    return 0


class ByHand:
    """Iterates in place of the loader with at least `least` samples, in one of the ways."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.way, self.out, self.seconds, self.least = asked.way, asked.out, asked.seconds, asked.least
        self.files = [path for path in Path(asked.folder).resolve().rglob("*") if path.is_file()]
        self.images = self.steps = 0
        self.spent_s = 0.0
        self.of_batch, self.endless = asked.batch, asked.endless
        self.begun = self.inside = False
        self.batch: Any = None
        self.backwards = 0

    def iterate(self, loader: Any, original: Callable[[Any], Any]) -> Any:
        """What the script iterates."""
        fastai = hasattr(loader, "d")
        others = self.of_batch and loader.batch_size != self.of_batch
        if get_worker_info() is not None or samples_of(loader) < self.least or others:
            return original(loader)
        if not self.begun:
            self.begun = True
            self.change(loader, fastai)
        return self.alone(loader, original) if self.way == "loader" else self.timed(loader, original)

    def alone(self, loader: Any, original: Callable[[Any], Any]) -> Iterator[Any]:
        """Epoch after epoch; the script gets nothing."""
        while True:
            yield from (batch for batch in self.timed(loader, original) if batch is None)

    def change(self, loader: Any, fastai: bool) -> None:
        """Once, before the first batch."""
        if self.way == "warm":
            for path in self.files:
                path.read_bytes()
        if self.way == "more":
            loader.__dict__["num_workers"] += 1
            loader.__dict__["prefetch_factor"] = loader.prefetch_factor or PREFETCHED
        if self.way == "cached" and fastai:
            samples = [loader.d.do_item(number) for number in kept_of(loader.d.n)]
            loader.d.do_item = lambda index: samples[index % KEPT]
        elif self.way == "cached":
            loader.__dict__["dataset"] = Kept(loader.dataset)

    def source(self, loader: Any, original: Callable[[Any], Any]) -> Iterator[Any]:
        """The batches of an epoch."""
        if self.way in ("training", "loader", "more"):
            for path in self.files:
                evict(path)
        if self.way != "resident":
            yield from original(loader)
            return
        if self.batch is None:
            real = original(loader)
            self.batch = next(real)
            getattr(real, "_shutdown_workers", lambda: None)()
        batches = batches_of(loader)
        endless = self.endless or batches == float("inf")
        for _ in count() if endless else range(int(batches)):
            yield dict(self.batch) if isinstance(self.batch, dict) else self.batch

    def timed(self, loader: Any, original: Callable[[Any], Any]) -> Iterator[Any]:
        """The same, until it has seen enough."""
        settle = min(SETTLE + SETTLE_WORKER * loader.num_workers, batches_of(loader) // 3)
        last_s, images, backwards = 0.0, 0, 0
        for number, batch in enumerate(self.source(loader, original)):
            now_s = time.perf_counter()
            if number > settle and (self.way == "loader" or self.backwards > backwards):
                self.images, self.steps = self.images + images, self.steps + 1
                self.spent_s += now_s - last_s
                if self.spent_s > self.seconds:
                    self.end()
            last_s, images, backwards = now_s, getattr(loader, "batch_size", None) or images_of(batch), self.backwards
            yield batch

    def end(self) -> NoReturn:
        """Keep the rate, and end the process."""
        found = {"images_per_s": self.images / self.spent_s, "steps": self.steps, "seconds": self.spent_s}
        self.out.write_text(json.dumps(found))
        sys.stdout.flush()
        for worker in multiprocessing.active_children():
            worker.kill()
        os._exit(0)


def evict(path: Path) -> None:
    """Out of the page cache."""
    number = os.open(path, os.O_RDONLY)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(number)


def put_between(hand: ByHand, fastai: bool) -> None:
    """Between the script and torch's loaders, or fastai's."""
    original, made, backward = DataLoader.__iter__, DataLoader._get_iterator, torch.autograd.backward

    def whole(loader: Any) -> Any:
        hand.inside = True
        try:
            return original(loader)
        finally:
            hand.inside = False

    def asked(loader: Any) -> Any:
        """By a loader that keeps its iterator."""
        return made(loader) if hand.inside else hand.iterate(loader, made)

    def counted(*given: Any, **named: Any) -> None:
        backward(*given, **named)
        hand.backwards += 1

    DataLoader.__iter__ = lambda loader: hand.iterate(loader, whole)  # type: ignore[method-assign]  # by hand
    DataLoader._get_iterator = asked  # type: ignore[method-assign,assignment]  # by hand
    torch.autograd.backward = counted
    if fastai:
        load = vars(import_module("fastai.data.load"))
        kinds = load["_loaders"]
        load["_loaders"] = tuple(lambda fake, kind=kind: hand.iterate(fake, kind) for kind in kinds)


def run_script(words: list[str]) -> None:
    """As `python SCRIPT ARGS` or `python -m MODULE ARGS` does."""
    script, *sys.argv[1:] = words[1:] if words[0] == "--" else words
    if script == "-m":
        module = sys.argv.pop(1)
        sys.path[0] = ""
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    sys.argv[0] = script
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


SETTLE_STEPS = 40
"""Steps whose CPU time does not count: imports, and the first of everything. At most half of all."""


class Log:
    """Hears of each backward pass."""

    def __init__(self, out: Path, steps: int) -> None:
        self.out, self.steps, self.settle = out, steps, min(SETTLE_STEPS, steps // 2)
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
    options.add_argument("--way", choices=(*WAYS, "losses"), required=True)
    options.add_argument("--out", type=Path, required=True, help="file for the JSON")
    options.add_argument("--folder", default="", help="of the files that the script reads")
    options.add_argument("--seconds", type=float, default=8.0)
    options.add_argument("--least", type=int, default=500, help="samples of the loader that trains")
    options.add_argument("--batch", type=int, default=0, help="of the loader that trains; 0 for any")
    options.add_argument("--steps", type=int, default=200, help="of losses")
    options.add_argument("--fastai", action="store_true")
    options.add_argument("--endless", action="store_true", help="the loader keeps one iterator for all epochs")
    options.add_argument("words", nargs=argparse.REMAINDER)
    asked = options.parse_args()
    if asked.way == "losses":
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        torch.set_num_threads(1)
        listen(Log(asked.out, asked.steps))
    else:
        put_between(ByHand(asked), asked.fastai)
    run_script(asked.words)

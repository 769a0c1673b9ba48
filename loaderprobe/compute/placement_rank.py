"""One rank of a placement: it meets the others, trains its share of every batch, and times segments in step.

All ranks take the same steps in the same order: one step more on one of them would wait for ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from loaderprobe.compute.trainer import Training, moved
from loaderprobe.errors import BadValue
from loaderprobe.protocols import Clock
from loaderprobe.records.devices import LARGER, DeviceSegment, SegmentName
from loaderprobe.records.ranks import RankOrder, RankRecord
from loaderprobe.store.marks import MarksFile

LEARNING_RATE = 0.01
MOMENTUM = 0.9
SEGMENT_S = 0.7
"""About as long as a segment is, unless two steps take longer."""
LEAST_STEPS = 2
PACE_S = 0.1
"""Steps that together take less than this give no pace yet."""
MOST_PACE_STEPS = 128
MORE = 4
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# Ranks that wait longer for each other than the parent waits for a step are ended by it, which knows who is behind.
PATIENCE = 10


class RankGroup:
    """The ranks of a placement; alone, there is no one to wait for."""

    def __init__(self, order: RankOrder, rank: int, device: torch.device) -> None:
        self.size, self.rank, self._device = order.placement.ranks, rank, device
        self.backend = BACKENDS[order.placement.device] if self.size > 1 else ""
        if self.size > 1:
            store: Any = dist.FileStore(str(order.store), self.size)  # type: ignore[attr-defined]  # not listed
            dist.init_process_group(
                self.backend, store=store, rank=rank, world_size=self.size,
                timeout=timedelta(seconds=order.timeout_s * PATIENCE),
            )  # fmt: skip

    def meet(self) -> None:
        """Wait until every rank is here, and its device has done all."""
        self.least(0.0)
        self.wait()

    def least(self, value: float) -> float:
        """The smallest that a rank gives."""
        if self.size == 1:
            return value
        given = torch.tensor([value], device=self._device, dtype=torch.float64)
        dist.all_reduce(given, op=dist.ReduceOp.MIN)
        return float(given.item())

    def wait(self) -> None:
        """Until this rank's device has done all."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class PlacementSession:
    """Trains and times one rank."""

    def __init__(self, order: RankOrder, training: Training, rank: int, marks: MarksFile, clock: Clock) -> None:
        self._order, self._training, self._marks, self._clock = order, training, marks, clock
        self._device = torch.device(order.placement.device, rank) if order.placement.device == "cuda" else _CPU
        torch.set_num_threads(order.threads)
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        self._group = RankGroup(order, rank, self._device)
        self._model = training.model.to(self._device).train()
        self._parallel = self._spread()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self._usual = self._batches(order.workload.batch_size)
        self._larger = self._batches(order.workload.batch_size * LARGER)
        self._resident = moved(next(self._usual), self._device)

    def run(self) -> RankRecord:
        """Warm up, choose the number of steps, then rounds of segments in shuffled order."""
        names = self._warm_up()
        steps = self._order.steps or self._pace()
        orders = random.Random(self._order.seed)
        segments: list[DeviceSegment] = []
        total = self._order.rounds * len(names)
        for number in range(self._order.rounds):
            for name in orders.sample(names, len(names)):
                self._marks.segment(len(segments), total)
                segments.append(self._segment(name, number, steps))
        self._marks.segment(total, total)
        self._group.meet()
        return RankRecord(
            rank=self._group.rank,
            device=torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "",
            backend=self._group.backend,
            gradient_bytes=sum(
                each.numel() * each.element_size() for each in self._model.parameters() if each.requires_grad
            ),
            segments=tuple(segments),
        )

    def _spread(self) -> torch.nn.Module:
        if self._group.size == 1:
            return self._model
        return DistributedDataParallel(self._model, device_ids=[self._device] if self._device.type == "cuda" else None)

    def _batches(self, batch_size: int) -> Iterator[Any]:
        """This rank's share of batches of that size, epoch after epoch. Raises BadValue where an epoch has none."""
        ranks, rank = self._group.size, self._group.rank
        sampler: DistributedSampler[Any] | None = (
            DistributedSampler(self._training.samples, ranks, rank, seed=self._order.seed) if ranks > 1 else None
        )
        loader = DataLoader(
            self._training.samples, batch_size=batch_size // ranks, sampler=sampler, shuffle=sampler is None,
            drop_last=True, pin_memory=self._device.type == "cuda",
        )  # fmt: skip
        if not len(loader):
            raise BadValue(
                f"an epoch of {self._order.workload.samples} samples has no batch of {batch_size}",
                hint="raise --samples",
            )
        epoch = 0
        while True:
            if sampler is not None:
                sampler.set_epoch(epoch)
            yield from loader
            epoch += 1

    def _warm_up(self) -> list[SegmentName]:
        """A few steps of each kind; returns the kinds that can be timed here."""
        self._first_steps()
        names: list[SegmentName] = ["training", "resident"]
        self._segment("resident", 0, 1)
        if self._group.size > 1:
            names.append("no_exchange")
            self._segment("no_exchange", 0, 1)
        if self._order.workload.larger_batch and self._group.least(self._fits()) > 0:
            names += ["larger_batch", "larger_no_exchange"] if self._group.size > 1 else ["larger_batch"]
            self._segment("larger_batch", 0, LARGER)
        return names

    def _first_steps(self) -> None:
        """Raises BadValue for a model that fails alone: it would fail on every placement."""
        try:
            self._segment("training", 0, LEAST_STEPS)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if self._group.size > 1:
                raise
            reason = " ".join(str(error).split())[:300]
            raise BadValue(
                f"the model '{self._order.workload.model}' fails in its first step: {type(error).__name__}: {reason}",
                hint="check that it trains on such samples without loaderprobe",
            ) from error

    def _fits(self) -> float:
        """1 when a larger batch fits into memory. Without exchange: a rank that failed would be waited for."""
        try:
            with self._no_exchange():
                self._step(next(self._larger))
        except torch.OutOfMemoryError:
            self._optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            return 0.0
        return 1.0

    def _pace(self) -> int:
        """Steps of a segment, the same on every rank."""
        steps = LEAST_STEPS
        while True:
            seconds = -self._group.least(-max(self._segment("training", 0, steps).seconds))
            if seconds >= PACE_S or steps >= MOST_PACE_STEPS:
                return max(LEAST_STEPS, round(SEGMENT_S * steps / max(seconds, 1e-9)))
            steps *= MORE

    def _segment(self, name: SegmentName, number: int, steps: int) -> DeviceSegment:
        """Steps of one kind, begun by all ranks together; of larger batches fewer, with as many samples."""
        size = self._order.workload.batch_size
        if name.startswith("larger"):
            size, steps = size * LARGER, max(1, steps // LARGER)
        batches = self._kinds()[name]
        self._marks.mark()
        self._group.meet()
        with self._no_exchange() if name.endswith("no_exchange") else nullcontext():
            begin_ns = self._clock.now_ns()
            for _ in range(steps):
                self._step(batches())
            self._group.wait()
            seconds = (self._clock.now_ns() - begin_ns) / 1e9
        return DeviceSegment(name=name, round=number, batch_size=size, steps=steps, seconds=(seconds,))

    def _kinds(self) -> dict[SegmentName, Callable[[], Any]]:
        return {
            "training": lambda: next(self._usual),
            "no_exchange": lambda: next(self._usual),
            "resident": lambda: self._resident,
            "larger_batch": lambda: next(self._larger),
            "larger_no_exchange": lambda: next(self._larger),
        }

    @contextmanager
    def _no_exchange(self) -> Iterator[None]:
        parallel = self._parallel
        off: AbstractContextManager[Any] = (
            parallel.no_sync() if isinstance(parallel, DistributedDataParallel) else nullcontext()
        )
        with off:
            yield

    def _step(self, batch: Any) -> None:
        self._marks.mark()
        inputs, targets = moved(batch, self._device)
        loss = self._training.loss(self._parallel(inputs), targets)
        # A rank that stays behind in its own forward pass is one mark behind those that wait for its gradients.
        self._marks.mark()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


_CPU = torch.device("cpu")

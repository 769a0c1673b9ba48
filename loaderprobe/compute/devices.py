"""A model on one device, or one rank of several: it trains its share of every batch, and times segments in step.

All ranks take the same steps in the same order: one step more on one of them would wait for ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from loaderprobe.compute.torch import BACKENDS, Gradients, gpu_of
from loaderprobe.compute.trainer import MOMENTUM, Training, moved
from loaderprobe.errors import BadValue
from loaderprobe.protocols import Clock, Group, Peers
from loaderprobe.records.devices import LARGER, DeviceSegment, DeviceWork, PlacementResult, SegmentName

LEARNING_RATE = 0.01
SEGMENT_S = 0.7
"""About as long as a segment is, unless two steps take longer."""
LEAST_STEPS = 2
PACE_S = 0.1
"""Steps that together take less than this give no pace yet."""
MOST_PACE_STEPS = 128
MORE = 4
SAY_NS = 10**9
OnStage = Callable[[str, int, int], None]


class DeviceSession:
    """Trains and times one rank, in step with those of `group`; `peers` are the others for its device, None alone.

    `on_stage(name, done, total)` is called before every segment, and now and then in a long one.
    """

    def __init__(
        self, work: DeviceWork, training: Training, group: Group, peers: Peers | None, clock: Clock, on_stage: OnStage
    ) -> None:
        self._work, self._training, self._clock, self._on_stage = work, training, clock, on_stage
        self._stage: tuple[str, int, int] = "starting the device", 0, 0
        self._said_ns = clock.now_ns()
        on_cuda = work.placement.device == "cuda"
        self._device = torch.device("cuda", gpu_of(0, peers)) if on_cuda else torch.device("cpu")
        torch.set_num_threads(work.threads)
        if on_cuda:
            torch.cuda.set_device(self._device)
        self._group = group
        self._model = training.model.to(self._device).train()
        self._parallel = Gradients(self._device, peers).exchanged_by(self._model)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self._usual = self._batches(work.workload.batch_size)
        self._larger = self._batches(work.workload.batch_size * LARGER)
        self._resident = moved(next(self._usual), self._device)

    def run(self) -> PlacementResult:
        """Warm up, choose the number of steps, then rounds of segments in shuffled order."""
        names = self._warm_up()
        steps = self._work.steps or self._pace()
        orders = random.Random(self._work.seed)
        segments: list[DeviceSegment] = []
        total = self._work.rounds * len(names)
        for number in range(self._work.rounds):
            for name in orders.sample(names, len(names)):
                self._say(f"round {number + 1}: {name}", len(segments), total)
                segments.append(self._segment(name, number, steps))
        return PlacementResult(
            placement=self._work.placement,
            device=torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "",
            backend=BACKENDS[self._device.type] if self._group.size > 1 else "",
            threads=self._work.threads,
            gradient_bytes=sum(
                each.numel() * each.element_size() for each in self._model.parameters() if each.requires_grad
            ),
            segments=tuple(segments),
        )

    def _batches(self, batch_size: int) -> Iterator[Any]:
        """This rank's share of batches of that size, epoch after epoch. Raises BadValue where an epoch has none."""
        ranks, rank = self._group.size, self._group.rank
        sampler: DistributedSampler[Any] | None = (
            DistributedSampler(self._training.samples, ranks, rank, seed=self._work.seed) if ranks > 1 else None
        )
        loader = DataLoader(
            self._training.samples, batch_size=batch_size // ranks, sampler=sampler, shuffle=sampler is None,
            drop_last=True, pin_memory=self._device.type == "cuda",
        )  # fmt: skip
        if not len(loader):
            raise BadValue(
                f"an epoch of {self._work.workload.samples} samples has no batch of {batch_size}",
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
        self._say("warming up", 0, 0)
        self._first_steps()
        names: list[SegmentName] = ["training", "resident"]
        self._segment("resident", 0, 1)
        if self._group.size > 1:
            names.append("no_exchange")
            self._segment("no_exchange", 0, 1)
        if self._work.workload.larger_batch and self._group.most(self._lacks_memory()) == (0,):
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
                f"the model '{self._work.workload.model}' fails in its first step: {type(error).__name__}: {reason}",
                hint="check that it trains on such samples without loaderprobe",
            ) from error

    def _lacks_memory(self) -> int:
        """1 where a larger batch is too large for it. Without exchange: a rank that failed would be waited for."""
        try:
            with self._no_exchange():
                self._step(next(self._larger))
        except torch.OutOfMemoryError:
            self._optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            return 1
        return 0

    def _pace(self) -> int:
        """Steps of a segment, the same on every rank."""
        steps = LEAST_STEPS
        while True:
            (longest_ns,) = self._group.most(round(max(self._segment("training", 0, steps).seconds) * 1e9))
            seconds = longest_ns / 1e9
            if seconds >= PACE_S or steps >= MOST_PACE_STEPS:
                return max(LEAST_STEPS, round(SEGMENT_S * steps / max(seconds, 1e-9)))
            steps *= MORE

    def _segment(self, name: SegmentName, number: int, steps: int) -> DeviceSegment:
        """Steps of one kind, begun by all ranks together; of larger batches fewer, with as many samples."""
        size = self._work.workload.batch_size
        if name.startswith("larger"):
            size, steps = size * LARGER, max(1, steps // LARGER)
        batches = self._kinds()[name]
        self._wait()
        self._group.most(0)
        with self._no_exchange() if name.endswith("no_exchange") else nullcontext():
            begin_ns = self._clock.now_ns()
            for _ in range(steps):
                self._step(batches())
            self._wait()
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

    def _wait(self) -> None:
        """Until this rank's device has done all."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _say(self, name: str, done: int, total: int) -> None:
        self._stage, self._said_ns = (name, done, total), self._clock.now_ns()
        self._on_stage(*self._stage)

    def _step(self, batch: Any) -> None:
        if self._clock.now_ns() - self._said_ns > SAY_NS:
            # One that says nothing for long is taken for one that hangs.
            self._say(*self._stage)
        inputs, targets = moved(batch, self._device)
        loss = self._training.loss(self._parallel(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

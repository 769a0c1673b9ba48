"""Real ResNet-50 training steps with torch: forward, backward, SGD with momentum; on CUDA or on the CPU."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torchvision.models import resnet50

from loaderprobe.errors import MissingPart
from loaderprobe.protocols import Clock
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN
from loaderprobe.records.measurement import ComputeInfo

LEARNING_RATE = 0.1
MOMENTUM = 0.9
CLASSES = 1000


class _Trainer:
    """A ResNet-50, its optimizer and its loss on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._model = resnet50(num_classes=CLASSES).to(device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        self._loss = torch.nn.CrossEntropyLoss()
        self._mean, self._deviation = (
            torch.tensor(values, device=device).reshape(1, 3, 1, 1) for values in (CHANNEL_MEAN, CHANNEL_DEVIATION)
        )

    def copy(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (N x 3 x 224 x 224) and labels on the device; asynchronous from pinned memory.

        Bytes are normalised there, as floats are in the workers.
        """
        images, labels = batch
        images = images.to(self.device, non_blocking=True, memory_format=torch.channels_last)
        return (
            images if images.is_floating_point() else (images.float() / 255 - self._mean) / self._deviation,
            labels.to(self.device, non_blocking=True),
        )

    def train_step(self, batch: Any) -> None:
        """One step. The loss stays on the device: reading it would wait for the GPU."""
        images, labels = batch
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = self._loss(self._model(images), labels)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


class CudaCompute:
    """Training on an NVIDIA GPU in bf16 autocast and channels_last. The argument is the device number, or empty."""

    def __init__(self, argument: str, clock: Clock) -> None:
        if not torch.cuda.is_available():
            raise MissingPart(
                "torch sees no CUDA device",
                hint="run `loaderprobe doctor`; or use --compute cpu, or --compute emulated:mlperf-h100",
            )
        self._clock = clock
        self._device = torch.device("cuda", int(argument or 0))
        torch.backends.cudnn.benchmark = True
        self._trainer = _Trainer(self._device)
        self._events: list[torch.cuda.Event] = []

    def info(self) -> ComputeInfo:
        """The GPU by name."""
        return ComputeInfo(
            name="cuda",
            device=torch.cuda.get_device_name(self._device),
            synchronous=False,
            given_images_per_s=None,
            source="ResNet-50 training steps, bf16 autocast, channels_last, SGD with momentum",
        )

    def uuid(self) -> str:
        """The GPU's UUID in NVML's form."""
        found = str(torch.cuda.get_device_properties(self._device).uuid)
        return found if found.startswith(("GPU-", "MIG-")) else f"GPU-{found}"

    def copy(self, batch: Any) -> Any:
        """Enqueue the copy to the GPU."""
        return self._trainer.copy(batch)

    def step(self, batch: Any) -> None:
        """Enqueue one step and an event behind it; never synchronises."""
        self._trainer.train_step(batch)
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        event.record(torch.cuda.current_stream(self._device))
        self._events.append(event)

    def finish(self) -> tuple[int, ...]:
        """Synchronise once; the events' times, placed on the host clock by the end of the last one."""
        torch.cuda.synchronize(self._device)
        end_ns = self._clock.now_ns()
        events, self._events = self._events, []
        return tuple(end_ns - round(event.elapsed_time(events[-1]) * 1e6) for event in events)


class CpuCompute:
    """Training on the CPU in float32 with torch's own threads; a step ends before the host goes on."""

    def __init__(self, argument: str, clock: Clock) -> None:
        self._clock = clock
        self._trainer = _Trainer(torch.device("cpu"))
        self._finished: list[int] = []

    def info(self) -> ComputeInfo:
        """The processor and the number of threads."""
        return ComputeInfo(
            name="cpu",
            device=f"CPU ({platform.machine()}), {torch.get_num_threads()} threads",
            synchronous=True,
            given_images_per_s=None,
            source="ResNet-50 training steps, float32, channels_last, SGD with momentum",
        )

    def copy(self, batch: Any) -> Any:
        """Only a change of memory format."""
        return self._trainer.copy(batch)

    def step(self, batch: Any) -> None:
        """One whole step."""
        self._trainer.train_step(batch)
        self._finished.append(self._clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        """When each step ended."""
        finished, self._finished = tuple(self._finished), []
        return finished

"""Real training steps with torch, on CUDA or on the CPU."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from loaderprobe.compute.decode import GpuDecoder
from loaderprobe.compute.gradients import Gradients
from loaderprobe.compute.occupancy import DeviceLimits
from loaderprobe.compute.profile import Device, Stage, record_window
from loaderprobe.compute.stepped import StepEvents
from loaderprobe.compute.trainer import Trainer
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import ComputeArguments, Peers
from loaderprobe.records.measurement import ComputeInfo
from loaderprobe.records.options import asked_of_device
from loaderprobe.records.timeline import Timeline
from loaderprobe.system.environment import list_gpus
from loaderprobe.units import join_words

ON_ROCM = "ROCm: kernels are recorded without their occupancy"
OF_CPU = frozenset({"model", "precision", "memory_format", "compile"})
# The device of AMD's driver: torch names such GPUs cuda, too, and NVML does not know them.
ROCM = Path("/dev/kfd")
INSTEAD = "run `loaderprobe doctor`; or use --compute cpu, or --compute emulated:mlperf-h100"


def _on_rocm() -> bool:
    return getattr(torch.version, "hip", None) is not None


def _gpu_of(first: int, peers: Peers | None) -> int:
    """The number of a rank's GPU: those of a node's ranks follow each other. Raises MissingPart without one.

    A rank that sees one GPU sees its own, which is its first: its child, or a launcher, hides the others.
    """
    if peers is None:
        return first
    seen = torch.cuda.device_count()
    number = 0 if seen == 1 else first + peers.local_rank
    if number >= seen:
        raise MissingPart(f"rank {peers.local_rank} of this node has no GPU: there are {seen}", hint="use fewer ranks")
    return number


class _Exchanging:
    """A device whose steps exchange gradients where there are several ranks."""

    _gradients: Gradients

    @property
    def in_step(self) -> bool:
        """True with several ranks."""
        return self._gradients.among_ranks

    def exchange(self, *, on: bool) -> None:
        """Whether steps from now on exchange gradients."""
        self._gradients.exchanged = on


class CudaCompute(_Exchanging):
    """Training on a GPU, by default in bf16 autocast and channels_last. The argument is its number, or empty."""

    def __init__(self, arguments: ComputeArguments) -> None:
        if not torch.cuda.is_available():
            raise MissingPart("torch finds no CUDA device", hint=INSTEAD)
        spec = arguments.spec
        self._loader = arguments.loader
        self._device = torch.device("cuda", _gpu_of(int(spec.argument or 0), arguments.peers))
        torch.cuda.set_device(self._device)
        torch.backends.cudnn.benchmark = True
        self._gradients = Gradients(self._device, arguments.peers)
        self._trainer = Trainer(self._device, spec, arguments.make_model, self._gradients.exchanged_by)
        self._events = StepEvents(self._device, arguments.clock)
        self._side = torch.cuda.Stream(self._device) if spec.side_stream else None  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._decoder = GpuDecoder(self._device) if self._loader.gpu_decode else None

    @staticmethod
    def check(arguments: ComputeArguments) -> None:
        """Raises BadValue for options that exclude each other and for a bad number, MissingPart without a GPU."""
        number = arguments.spec.argument
        if number and not number.isdecimal():
            raise BadValue(f"'{number}' is not the number of a GPU", hint="use cuda, or cuda:1 for the second GPU")
        if arguments.loader.gpu_decode and arguments.spec.side_stream:
            raise BadValue("gpu_decode already uses a separate stream: leave out side_stream")
        gpus, none = list_gpus()
        if not gpus and not ROCM.exists():
            error = none.facts.get("error") if none else None
            raise MissingPart(f"there is no GPU to train on{f': {error}' if error else ''}", hint=INSTEAD)

    def info(self) -> ComputeInfo:
        """The GPU's name and the training options."""
        how = [
            self._trainer.words(),
            *(["batches copied on a separate stream"] if self._side else []),
            *(["JPEG files decoded on the GPU"] if self._decoder else []),
            *([] if self._loader.pin_memory else ["from pageable memory"]),
            *([ON_ROCM] if _on_rocm() else []),
        ]
        return ComputeInfo(
            name="cuda",
            device=torch.cuda.get_device_name(self._device),
            synchronous=False,
            specified_images_per_s=None,
            source=", ".join(how),
        )

    def uuid(self) -> str:
        """The GPU's UUID in NVML's form."""
        found = str(torch.cuda.get_device_properties(self._device).uuid)
        return found if found.startswith(("GPU-", "MIG-")) else f"GPU-{found}"

    def copy(self, batch: Any) -> Any:
        """Enqueue the copy to the GPU, and an event before it."""
        self._events.begin()
        user = torch.cuda.current_stream(self._device)
        if self._decoder is not None:
            images, labels = self._decoder.decode(batch, user)
            return self._trainer.normalised(images).contiguous(memory_format=self._trainer.memory_format), labels
        if self._side is None:
            return self._trainer.copy(batch)
        with torch.cuda.stream(self._side):
            copied = self._trainer.copy(batch)
        user.wait_stream(self._side)
        for tensor in copied:
            # Their memory belongs to the side stream, which must not reuse it before training has finished with it.
            tensor.record_stream(user)
        return copied

    def step(self, batch: Any) -> None:
        """Enqueue one step and an event after it; never synchronises."""
        self._events.begin()
        self._gradients.step(lambda: self._trainer.train_step(batch))
        self._events.end()

    def exchange_alone(self) -> None:
        """Enqueue the exchange of one step, and events around it."""
        self._events.begin()
        self._gradients.exchange_alone()
        self._events.end()

    def finish(self) -> tuple[int, ...]:
        """Synchronise once; the events' times on the host clock, aligned at the end of the last one."""
        return self._events.finish()

    def begun(self) -> tuple[int, ...]:
        """Begin of each of those steps on the GPU."""
        return self._events.begun

    def profile(self, feed: Callable[[int], Iterator[Any]], *, steps: int, warm_up: int, batch_size: int) -> Timeline:
        """One window of torch's profiler. Raises any error of the profiler."""
        stage = Stage(
            step=lambda batch: self.step(self.copy(batch)),
            synchronize=lambda: torch.cuda.synchronize(self._device),
            activities=(ProfilerActivity.CUDA,),
        )
        device = Device(
            name=torch.cuda.get_device_name(self._device),
            index=self._device.index,
            limits=None if _on_rocm() else DeviceLimits.of(torch.cuda.get_device_properties(self._device)),
            backward_threads=lambda: self._trainer.backward_threads,
            loader_streams=self._decoder is not None or self._side is not None,
        )
        try:
            return record_window(feed, stage, device, steps=steps, warm_up=warm_up, batch_size=batch_size)
        finally:
            self.finish()


class CpuCompute(_Exchanging):
    """Training on the CPU, by default in float32, with torch's own threads; a step ends before the host continues."""

    def __init__(self, arguments: ComputeArguments) -> None:
        self._clock = arguments.clock
        cpu = torch.device("cpu")
        if arguments.peers is not None:
            torch.set_num_threads(min(torch.get_num_threads(), max(1, int(arguments.peers.cores))))
        self._gradients = Gradients(cpu, arguments.peers)
        self._trainer = Trainer(cpu, arguments.spec, arguments.make_model, self._gradients.exchanged_by)
        self._finished: list[int] = []

    @staticmethod
    def check(arguments: ComputeArguments) -> None:
        """Raises BadValue for options that only a GPU has."""
        precision = arguments.spec.precision
        beyond = [name for name in asked_of_device(arguments.loader, arguments.spec) if name not in OF_CPU]
        if beyond:
            raise BadValue(f"{join_words(beyond)} need{'s' * (len(beyond) == 1)} a GPU", hint="use --compute cuda")
        if precision not in ("auto", "bf16", "fp32"):
            raise BadValue(f"precision {precision} needs a GPU", hint="the CPU trains in fp32 or bf16")

    def info(self) -> ComputeInfo:
        """The processor and the number of threads."""
        return ComputeInfo(
            name="cpu",
            device=f"CPU ({platform.machine()}), {torch.get_num_threads()} threads",
            synchronous=True,
            specified_images_per_s=None,
            source=self._trainer.words(),
        )

    def copy(self, batch: Any) -> Any:
        """Only a change of memory format."""
        return self._trainer.copy(batch)

    def step(self, batch: Any) -> None:
        """One whole step."""
        self._gradients.step(lambda: self._trainer.train_step(batch))
        self._finished.append(self._clock.now_ns())

    def exchange_alone(self) -> None:
        """The exchange of one step."""
        self._gradients.exchange_alone()
        self._finished.append(self._clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        """When each step ended."""
        finished, self._finished = tuple(self._finished), []
        return finished

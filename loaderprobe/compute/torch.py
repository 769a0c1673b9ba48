"""Real training steps with torch, on CUDA or on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaderprobe.compute.kineto import DeviceLimits
from loaderprobe.compute.profile import Device, record_window
from loaderprobe.compute.trainer import Trainer, device_words, uuid_of
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.protocols import Clock, ComputeArguments, Peers
from loaderprobe.records.config import asked_of_device
from loaderprobe.records.measurement import ComputeInfo, Timeline
from loaderprobe.system.environment import ROCM, list_gpus
from loaderprobe.system.limits import cores_available
from loaderprobe.units import join_words

if TYPE_CHECKING:
    from torchvision.transforms.v2 import Compose

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
BUCKET_BYTES = 25 << 20
"""DistributedDataParallel's own."""


class Gradients:
    """Of the model on one device, exchanged by DistributedDataParallel; of one rank they stay where they are."""

    def __init__(self, device: torch.device, peers: Peers | None) -> None:
        """Meets the other ranks; raises torch's errors where they do not come."""
        self.exchanged = True
        """Whether steps exchange gradients; without, all ranks still end each step together."""
        self.among_ranks = peers is not None
        self._device = device
        self._model: Any = None
        if peers is not None:
            on_gpu: dict[str, Any] = {"device_id": device} if device.type == "cuda" else {}
            dist.init_process_group(
                BACKENDS[device.type],
                store=peers.store,  # type: ignore[arg-type]  # torch's
                rank=peers.group.rank,
                world_size=peers.group.size,
                timeout=timedelta(seconds=peers.timeout_s),
                **on_gpu,
            )
            self._one = torch.zeros(1, device=device)

    def exchanged_by(self, model: torch.nn.Module) -> Any:
        """The model, which exchanges its gradients in each step."""
        if self.among_ranks:
            number = [self._device] if self._device.type == "cuda" else None
            self._model = DistributedDataParallel(model, device_ids=number)
            self._buckets = gradient_buckets(model)
            return self._model
        return model

    def step(self, train: Callable[[], None]) -> None:
        """One step, with the exchange or without."""
        if not self.among_ranks or self.exchanged:
            train()
            return
        with self._model.no_sync():
            train()
        dist.all_reduce(self._one)

    def exchange_alone(self) -> None:
        """As many bytes as the gradients have, in buckets of the same size, and nothing else."""
        for handle in [dist.all_reduce(bucket, async_op=True) for bucket in self._buckets]:
            handle.wait()


def gradient_buckets(model: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    """Tensors as large as the gradients of a model, in buckets as DistributedDataParallel makes them."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        return ()
    whole = torch.zeros(-(-gradient_bytes(model) // 4), dtype=torch.float32, device=trained[0].device)
    return torch.split(whole, BUCKET_BYTES // whole.element_size())


def gradient_bytes(model: torch.nn.Module) -> int:
    """Bytes of the gradients of a model."""
    return sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)


class StepEvents:
    """Records events on the current stream of a GPU, by default of the current one.

    Events are used again: making one costs a call to the driver.
    """

    def __init__(self, clock: Clock, device: torch.device | None = None) -> None:
        self._device = device
        self._clock = clock
        self._spare: list[Any] = []
        self._pairs: list[tuple[Any, Any]] = []
        self._open: Any = None
        self.begun: tuple[int, ...] = ()
        """Begin of each step that `finish` returned last, on the device, in ns of the clock; empty where one is not
        known."""

    def begin(self) -> None:
        """Record the first event of a step: before its copy, or before its kernels where nothing is copied."""
        if self._open is None:
            self._open = self._recorded()

    def end(self) -> None:
        """Record the event after the last kernel of the step."""
        self._pairs.append((self._open, self._recorded()))
        self._open = None

    def finish(self) -> tuple[int, ...]:
        """Synchronise once; the end of each step on the device, in ns of the clock.

        Events give only the time between each other, so the last one is placed at the end of the wait for it. A step
        that began and failed leaves its event to no other.
        """
        torch.cuda.synchronize(self._device)
        end_ns = self._clock.now_ns()
        pairs, self._pairs, self._open = self._pairs, [], None
        begins, ends = zip(*pairs, strict=True) if pairs else ((), ())

        def stamps(events: Iterable[Any]) -> tuple[int, ...]:
            return tuple(end_ns - round(event.elapsed_time(ends[-1]) * 1e6) for event in events)

        self.begun = stamps(begins) if all(begins) else ()
        self._spare.extend(event for event in (*begins, *ends) if event)
        return stamps(ends)

    def _recorded(self) -> Any:
        event = self._spare.pop() if self._spare else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        event.record(torch.cuda.current_stream(self._device))
        return event


SIDE = 224


class GpuDecoder:
    """Decodes batches of JPEG files on a separate stream, and crops them to 224 x 224 there.

    nvJPEG's hardware path ignores the order of streams: it may write into memory that earlier queued kernels still
    read (torchvision issue 9606). So only the decoder uses the stream that owns the memory, and synchronises it before
    each call. Memory that training still uses returns to that stream's pool only after training has finished with
    it (`record_stream`). On an H100 images kept their colours; the overwriting of that issue was not provoked.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._crop = crop()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def decode(self, batch: Any, user: torch.cuda.Stream) -> tuple[torch.Tensor, torch.Tensor]:
        """Images uint8 N x 3 x 224 x 224 and labels, ready for work queued on `user` from now on.

        `batch` is (lengths, bytes of all files in a row, labels), all on the host. Raises BadValue for files that
        are not JPEG.
        """
        from torchvision.io import ImageReadMode, decode_jpeg

        lengths, packed, labels = batch
        with torch.cuda.stream(self._stream):
            self._stream.synchronize()
            try:
                files = list(torch.split(packed, lengths.tolist()))
                decoded = decode_jpeg(files, mode=ImageReadMode.RGB, device=self._device)
            except RuntimeError as error:
                raise BadValue(
                    f"the GPU cannot decode a batch: {error}", hint="the GPU decodes only JPEG files"
                ) from error
            images = torch.stack([self._crop(image) for image in decoded])
            labels = labels.to(self._device, non_blocking=True)
        user.wait_stream(self._stream)
        for tensor in (images, labels):
            tensor.record_stream(user)
        return images, labels


def crop() -> Compose:
    """Training's random resized crop and flip, to 3 x 224 x 224, of one image on its device.

    Boxes are drawn on the host with torch's generator, so drawing them does not wait for the device.
    """
    from torchvision.transforms import v2  # over a second, which a step of the user's own need not wait for

    return v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])


ON_ROCM = "ROCm: kernels are recorded without their occupancy"
OF_CPU = frozenset({"model", "precision", "memory_format", "compile"})
INSTEAD = "run `loaderprobe doctor`; or use --compute cpu, or --compute emulated:mlperf-h100"


def _on_rocm() -> bool:
    return getattr(torch.version, "hip", None) is not None


def gpu_of(first: int, peers: Peers | None) -> int:
    """The number of a rank's GPU: those of a node's ranks follow each other. Raises MissingPart without one.

    A rank that sees one GPU sees its own, which is its first: its child, or a launcher, hides the others.
    """
    if peers is None:
        return first
    gpus = torch.cuda.device_count()
    number = 0 if gpus == 1 else first + peers.local_rank
    if number >= gpus:
        raise MissingPart(f"rank {peers.local_rank} of this node has no GPU: there are {gpus}", hint="use fewer ranks")
    return number


class _Exchanging:
    """A device whose steps exchange gradients where there are several ranks."""

    _gradients: Gradients

    @property
    def in_step(self) -> bool:
        return self._gradients.among_ranks

    def exchange(self, *, on: bool) -> None:
        self._gradients.exchanged = on


class CudaCompute(_Exchanging):
    """Training on a GPU, by default in bf16 autocast and channels_last. The argument is its number, or empty."""

    def __init__(self, arguments: ComputeArguments) -> None:
        if not torch.cuda.is_available():
            raise MissingPart("torch finds no CUDA device", hint=INSTEAD)
        spec = arguments.spec
        self._loader = arguments.loader
        self._device = torch.device("cuda", gpu_of(int(spec.argument or 0), arguments.peers))
        torch.cuda.set_device(self._device)
        torch.backends.cudnn.benchmark = True
        self._gradients = Gradients(self._device, arguments.peers)
        self._trainer = Trainer(self._device, spec, arguments.make_model, self._gradients.exchanged_by)
        self._events = StepEvents(arguments.clock, self._device)
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
        how = [
            self._trainer.words(),
            *(["batches copied on a separate stream"] if self._side else []),
            *(["JPEG files decoded on the GPU"] if self._decoder else []),
            *([] if self._loader.pin_memory else ["from pageable memory"]),
            *([ON_ROCM] if _on_rocm() else []),
        ]
        return ComputeInfo(
            name="cuda",
            device=device_words(self._device),
            synchronous=False,
            specified_images_per_s=None,
            source=", ".join(how),
        )

    def uuid(self) -> str:
        return uuid_of(self._device)

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
        self._events.begin()
        self._gradients.exchange_alone()
        self._events.end()

    def finish(self) -> tuple[int, ...]:
        return self._events.finish()

    def begun(self) -> tuple[int, ...]:
        return self._events.begun

    def profile(self, feed: Callable[[int], Iterator[Any]], *, steps: int, warm_up: int, batch_size: int) -> Timeline:
        device = Device(
            name=device_words(self._device),
            index=self._device.index,
            limits=None if _on_rocm() else DeviceLimits.of(torch.cuda.get_device_properties(self._device)),
            step=lambda batch: self.step(self.copy(batch)),
            synchronize=lambda: torch.cuda.synchronize(self._device),
            backward_threads=lambda: self._trainer.backward_threads,
            loader_streams=self._decoder is not None or self._side is not None,
        )
        try:
            return record_window(feed, device, steps=steps, warm_up=warm_up, batch_size=batch_size)
        finally:
            self.finish()


class CpuCompute(_Exchanging):
    """Training on the CPU, by default in float32, with torch's own threads; a step ends before the host continues."""

    def __init__(self, arguments: ComputeArguments) -> None:
        self._clock = arguments.clock
        cpu = torch.device("cpu")
        cores = cores_available() if arguments.peers is None else arguments.peers.cores
        if arguments.peers is not None or "OMP_NUM_THREADS" not in os.environ:
            # torch does not know of quotas.
            torch.set_num_threads(min(torch.get_num_threads(), max(1, int(cores))))
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
        return ComputeInfo(
            name="cpu",
            device=device_words(torch.device("cpu")),
            synchronous=True,
            specified_images_per_s=None,
            source=self._trainer.words(),
        )

    def copy(self, batch: Any) -> Any:
        """Only a change of memory format."""
        return self._trainer.copy(batch)

    def step(self, batch: Any) -> None:
        self._gradients.step(lambda: self._trainer.train_step(batch))
        self._finished.append(self._clock.now_ns())

    def exchange_alone(self) -> None:
        self._gradients.exchange_alone()
        self._finished.append(self._clock.now_ns())

    def finish(self) -> tuple[int, ...]:
        finished, self._finished = tuple(self._finished), []
        return finished

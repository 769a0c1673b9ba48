"""What is asked: one configuration, the sweep over many."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, Literal

from loaderprobe.errors import BadValue
from loaderprobe.records.files import content_hash

CacheState = Literal["cold", "warm", "as-found"]
"""as-found: the files are not known, so what the cache holds of them is neither changed nor checked."""
Pipeline = Literal["imagenet", "crop"]
Decoder = Literal["pillow", "torchvision"]
TensorType = Literal["float32", "uint8"]
"""What a worker sends: normalised floats, or bytes that the device normalises."""
Precision = Literal["auto", "bf16", "fp16", "fp32", "tf32"]
"""Of the training: bf16 and fp16 by autocast, fp16 with a scaled loss; tf32 is fp32 whose products NVIDIA's tensor
cores round. auto: bf16 on CUDA, fp32 on the CPU."""
MemoryFormat = Literal["channels_last", "contiguous"]

PUBLISHED_MODEL = "resnet50"
"""The model whose training rates are published for accelerators, and so the one that is trained unless asked."""

# The channel means and deviations of ImageNet that torchvision's models are trained with.
CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_DEVIATION = (0.229, 0.224, 0.225)


_MOST = {"workers": 4096, "prefetch_factor": 4096, "batch_size": 2**24, "rounds": 10_000}
"""More is a mistake or a damaged file, and takes forever to forecast."""


def _check_most(spec: object) -> None:
    """Raises BadValue when an option is absurdly large."""
    for name, most in _MOST.items():
        if getattr(spec, name, 0) > most:
            raise BadValue(f"{getattr(spec, name)} for {name.replace('_', ' ')} is more than the {most} allowed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSpec:
    """How batches are loaded, up to pinned memory."""

    name: str = "torch"
    """`torch`, or `package.module:Class`."""
    workers: int
    """0 is the serial loader: the training thread loads its own batches."""
    prefetch_factor: int
    """Batches requested ahead per worker; without meaning, and 0, for the serial loader."""
    pipeline: Pipeline = "imagenet"
    decoder: Decoder = "pillow"
    tensor: TensorType = "float32"
    pin_memory: bool = True
    """Batches for a GPU are put into pinned memory, from which copies do not hold up the host."""
    gpu_decode: bool = False
    """Workers send encoded files; the GPU decodes, crops and normalises them."""

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise BadValue("workers must be 0 or more")
        _check_most(self)
        if self.prefetch_factor < 0 or (self.workers == 0) != (self.prefetch_factor == 0):
            raise BadValue("the prefetch factor is 0 for the serial loader and 1 or more for workers")
        if self.gpu_decode and self.decoder != "pillow":
            raise BadValue(f"decoder {self.decoder} decodes on the CPU, but with gpu_decode the GPU does")
        if self.gpu_decode and self.pipeline != "imagenet":
            raise BadValue("with gpu_decode the GPU crops, by the imagenet pipeline only")

    @property
    def batches_ahead(self) -> int:
        """Batches that the loader has requested but not yet received."""
        return self.workers * self.prefetch_factor

    @property
    def batches_begun(self) -> int:
        """Most batches that are made or in progress at any time, which a switch of modes does not reach."""
        return self.workers * (self.prefetch_factor + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSpec:
    """What trains, how it runs its steps, and how batches are copied to it."""

    name: str
    """`cuda`, `cpu`, `emulated:NAME`, `emulated:IMAGES_PER_S`, or `package.module:Class`."""
    batch_size: int
    model: str = PUBLISHED_MODEL
    """What a real device trains: a name, or `package.module:factory`."""
    precision: Precision = "auto"
    memory_format: MemoryFormat = "channels_last"
    """Of model and images."""
    compile: bool = False
    """The model goes through torch.compile."""
    side_stream: bool = False
    """Batches are copied on a stream of their own, beside the kernels of the step before."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise BadValue("the batch size must be 1 or more")
        _check_most(self)

    @property
    def kind(self) -> str:
        """The name without its argument: `emulated`; all of `package.module:Class`."""
        head = self.name.partition(":")[0]
        return self.name if "." in head else head

    @property
    def argument(self) -> str:
        """What follows the colon: `mlperf-h100`; empty where nothing does."""
        return self.name.removeprefix(self.kind).removeprefix(":")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One configuration to measure. Two configurations with the same `key` measure the same thing."""

    data: str
    """Fingerprint of the `FileSet`."""
    resolution: str
    loader: LoaderSpec
    compute: ComputeSpec
    cache: CacheState = "cold"
    rounds: int = 3
    seed: int = 0
    ranks: int = 1
    """Processes that train in step, each with a loader, a share of the files and a batch of its own."""
    nodes: int = 1
    """That the ranks are spread over evenly."""

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadValue("rounds must be 1 or more")
        if self.nodes < 1 or self.ranks < 1 or self.ranks % self.nodes:
            raise BadValue(f"{self.ranks} ranks cannot be spread evenly over {self.nodes} nodes")
        _check_most(self)

    @property
    def key(self) -> str:
        """The content hash that names this configuration's files and lets a sweep resume.

        Only of what is not as usual, so that an option that is new tomorrow leaves today's keys alone.
        """
        return content_hash(_unusual(self))

    def title(self) -> str:
        """A short name for people."""
        workers = self.loader.workers
        loading = "serial" if workers == 0 else f"{workers} worker{'s' if workers > 1 else ''}"
        together = f", {self.ranks} ranks" if self.ranks > 1 else ""
        spread = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.resolution}, {loading}, {self.compute.name}, {self.cache}{together}{spread}"

    @property
    def readers(self) -> int:
        """That read at the same time: the workers of all ranks, or their training threads."""
        return max(1, self.loader.workers) * self.ranks

    @property
    def step_images(self) -> int:
        """Images of one step: the batches of all ranks together."""
        return self.compute.batch_size * self.ranks


def _unusual(spec: Any) -> dict[str, Any]:
    """The fields of a record that have no default or another value than it, nested."""
    values = {each.name: getattr(spec, each.name) for each in fields(spec)}
    return {
        each.name: _unusual(values[each.name]) if is_dataclass(values[each.name]) else values[each.name]
        for each in fields(spec)
        if each.default is MISSING or values[each.name] != each.default
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Of a run that was measured in turn with another one: A B, then B A, round by round."""

    pair: str
    """The same for both, and for no other run."""
    side: Literal["A", "B"]
    changes: tuple[str, ...]
    """The options in which B differs from A."""
    against: str
    """The run whose configurations these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """What one sweep measures: the product of its axes, and how long it may take."""

    configs: tuple[RunConfig, ...]
    budget_s: float | None = None
    """Wall seconds for the whole sweep; None leaves each configuration its usual time."""
    time_limit_s: float = 600.0
    """Timeout of one configuration, which is then stopped."""
    thorough: bool = False
    """Every mode for every configuration; otherwise the costly ones only where the verdict is open."""
    epochs: int = 0
    """Whole epochs that are trained beside the verdict, the first one cold."""
    command: tuple[str, ...] = field(default=())
    """The command line, for the report."""
    turns: Turns | None = None
    """None for a run that was measured by itself."""

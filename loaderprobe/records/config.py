"""What is asked: one configuration, the sweep over many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal, get_type_hints

from loaderprobe.errors import BadValue
from loaderprobe.records import values
from loaderprobe.records.files import content_hash
from loaderprobe.units import join_words

CacheState = Literal["cold", "warm", "as-found"]
"""as-found: of files that are not known, and of objects behind a URL, the cache is neither changed nor checked."""
Pipeline = Literal["imagenet", "crop"]
Decoder = Literal["pillow", "torchvision", "simplejpeg", "opencv", "torchcodec"]
DECODER_LIBRARIES = {
    "simplejpeg": ("simplejpeg", "simplejpeg"), "opencv": ("cv2", "opencv-python-headless"),
    "torchcodec": ("torchcodec", "torchcodec"),
}  # fmt: skip
"""(module, package) of each decoder that torchvision does not bring."""
_IMPORTS = {
    "spdl": "spdl.pipeline", "dali": "nvidia.dali", "torchdata": "torchdata.nodes", "mds": "streaming",
    "energon": "megatron.energon",
}  # fmt: skip
_OF_LIBRARIES = iter_modules([str(Path(__file__).parents[1] / "loaders" / "libraries")])
LIBRARIES = {module.name: _IMPORTS.get(module.name, module.name) for module in _OF_LIBRARIES if module.name[0] != "_"}
"""What each loader beside torch's imports: a module in `loaders/libraries/`, whose name is its extra's, too."""
NO_SERIAL = ("spdl", "dali")
"""Loaders that cannot work in the training thread."""
ANY_LAYOUT = ("torch", "grain")
"""Loaders that read large files, too: batches are made by processes, as threads would share what is open."""
ONE_LAYOUT = {"webdataset": "tar", "datasets": "parquet", "litdata": "litdata", "mds": "mds", "energon": "tar"}
"""Loaders of one layout of large files. Those in neither read files of one image."""
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

_LIMITS = {"workers": 4096, "prefetch_factor": 4096, "batch_size": 2**24, "rounds": 10_000}
"""More is a mistake or a damaged file, and takes forever to forecast."""


def _check_limits(spec: object) -> None:
    """Raises BadValue when an option is absurdly large."""
    for name, limit in _LIMITS.items():
        if getattr(spec, name, 0) > limit:
            raise BadValue(f"{getattr(spec, name)} for {name.replace('_', ' ')} is more than the {limit} allowed")


ITERABLE = "iterable"
"""The name of a loader that is no DataLoader: it has no number of workers that could be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSpec:
    """How batches are loaded, up to pinned memory."""

    name: str = "torch"
    """A loader by name, or `package.module:Class`; `own` for a user's DataLoader, `ITERABLE` for another iterable."""
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
        _check_limits(self)
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
        _check_limits(self)

    @property
    def kind(self) -> str:
        """The name without its argument: `emulated`; all of `package.module:Class`."""
        head = self.name.partition(":")[0]
        return self.name if "." in head else head

    @property
    def argument(self) -> str:
        """What follows the colon: `mlperf-h100`; empty where nothing does."""
        return self.name.removeprefix(self.kind).removeprefix(":")


ACCELERATORS: dict[str, tuple[float, str]] = {
    "mlperf-a100": (400 / 0.435, "MLPerf Storage v1.0, ResNet-50 on A100: 0.435 s per batch of 400"),
    "mlperf-h100": (400 / 0.224, "MLPerf Storage v1.0, ResNet-50 on H100: 0.224 s per batch of 400"),
    "v100-amp": (1200.0, "NVIDIA DeepLearningExamples, ResNet-50 PyTorch, V100 16 GB, mixed precision"),
    "a100-amp": (2470.0, "NVIDIA DeepLearningExamples, ResNet-50 PyTorch, A100 80 GB, mixed precision"),
    "a100-tf32": (938.0, "NVIDIA DeepLearningExamples, ResNet-50 PyTorch, A100 80 GB, TF32"),
    "h100-bf16": (256 / 0.0642, "measured by loaderprobe, ResNet-50 on H100 80 GB, bf16: 64.2 ms per batch of 256"),
    "rtx3090-amp": (1218.0, "timm benchmark results, ResNet-50, RTX 3090, mixed precision, channels_last"),
}
"""Images/s of training ResNet-50 and their source, by the name that `emulated:NAME` has."""
RATES = {name: rate for name, (rate, _) in ACCELERATORS.items()}
RECIPES = {"mlperf-a100": "a100-amp", "mlperf-h100": "h100-bf16"}
"""Of those whose rate is the pace of a storage benchmark, the training whose rate stands beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One configuration to measure. Two configurations with the same `key` measure the same thing."""

    data: str
    """Fingerprint of the `FileSet`."""
    resolution: str
    layout: str = "files"
    """How samples lie on storage, by its name in `datasets.layouts.LAYOUTS`; `files`: each is a file."""
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
        _check_limits(self)

    @property
    def key(self) -> str:
        """The content hash that names this configuration's files and lets a sweep resume.

        Only of what is not as usual, so that an option that is new tomorrow leaves today's keys alone.
        """
        return _key(self)

    def title(self) -> str:
        workers = self.loader.workers
        loader = "" if self.loader.name == "torch" else f"{self.loader.name}, "
        loading = "serial" if workers == 0 else f"{workers} worker{'s' if workers > 1 else ''}"
        model = "" if self.compute.model == PUBLISHED_MODEL else f", {self.compute.model}"
        together = f", {self.ranks} ranks" if self.ranks > 1 else ""
        spread = f" on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.resolution}, {loader}{loading}, {self.compute.name}{model}, {self.cache}{together}{spread}"

    @property
    def mode(self) -> Literal["baseline", "warm"]:
        """The mode of a loader that is this configuration as asked."""
        return "warm" if self.cache == "warm" else "baseline"

    @property
    def readers(self) -> int:
        """That read at the same time: the workers of all ranks, or their training threads."""
        return max(1, self.loader.workers) * self.ranks


@lru_cache(maxsize=4096)
def _key(config: RunConfig) -> str:
    return content_hash(_unusual(config))


def _unusual(spec: Any) -> dict[str, Any]:
    """The fields of a record that have no default or another value than it, nested."""
    said = values(spec)
    return {
        field.name: _unusual(said[field.name]) if is_dataclass(said[field.name]) else said[field.name]
        for field in fields(spec)
        if field.default is MISSING or said[field.name] != field.default
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """What a sweep chooses while it measures: it adds configurations until it knows which are enough."""

    workers: bool
    prefetch_factor: bool
    most_workers: int
    """That are tried; by the cores when the sweep began."""

    @property
    def likely(self) -> int:
        """Configurations of one data set, device and cache state, about: twice as many workers each time."""
        return (3 + int(math.log2(self.most_workers)) if self.workers else 0) + (1 if self.prefetch_factor else 0)


def check_seconds(name: str, seconds: float | None) -> None:
    """Raises BadValue for what is no time that anything can take."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise BadValue(f"the {name} must be a number of seconds above 0, not {seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """What one sweep measures: the product of its axes, and how long it may take."""

    configs: tuple[RunConfig, ...]
    """All that was asked for, of each data set; with `auto`, all so far."""
    auto: Auto | None = None
    """None where all configurations are known beforehand."""
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

    def __post_init__(self) -> None:
        for name, seconds in (("budget", self.budget_s), ("time limit", self.time_limit_s)):
            check_seconds(name, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One field of a `RunConfig` or of a record in it, under the one name that it has in files, tables and calls."""

    name: str
    """`workers`; the `name` of a record in the configuration is called as that record is: `loader`, `compute`."""
    path: tuple[str, ...]
    """The fields that lead to it: `loader`, `workers`."""
    type: Any
    default: Any
    """`dataclasses.MISSING` where it is always asked for."""

    def of(self, config: RunConfig) -> Any:
        return reduce(getattr, self.path, config)

    def usual(self, config: RunConfig) -> bool:
        """True when it has its default."""
        return bool(self.of(config) == self.default)


def _walk(record: type, path: tuple[str, ...] = ()) -> Iterator[Setting]:
    kinds = get_type_hints(record)
    for part in fields(record):
        here = (*path, part.name)
        if is_dataclass(kinds[part.name]):
            yield from _walk(kinds[part.name], here)
        else:
            name = path[-1] if path and part.name == "name" else part.name
            yield Setting(name=name, path=here, type=kinds[part.name], default=part.default)


OPTIONS: dict[str, Setting] = {option.name: option for option in _walk(RunConfig)}
REQUIRED = frozenset(name for name, option in OPTIONS.items() if option.default is MISSING)


def options_of(config: RunConfig) -> dict[str, Any]:
    """The value of every option, by its name."""
    return {name: option.of(config) for name, option in OPTIONS.items()}


def with_options(config: RunConfig, **changes: Any) -> RunConfig:
    """The configuration with options changed. Raises BadValue for an option that does not exist, or such a value."""
    unknown = [name for name in changes if name not in OPTIONS]
    if unknown:
        raise BadValue(f"a configuration has no option '{unknown[0]}'")
    parts: dict[str, dict[str, Any]] = {}
    top_level: dict[str, Any] = {}
    for name, value in changes.items():
        *into, last = OPTIONS[name].path
        (parts.setdefault(into[0], {}) if into else top_level)[last] = value
    nested = {part: replace(getattr(config, part), **values) for part, values in parts.items()}
    return replace(config, **top_level, **nested)


def alike_but_for(config: RunConfig, *names: str) -> tuple[Any, ...]:
    """The values of all other options: the same for configurations that differ in those only."""
    return tuple(option.of(config) for name, option in OPTIONS.items() if name not in names)


def asked_of_device(loader: LoaderSpec, compute: ComputeSpec) -> list[str]:
    """The names of options that are not as usual and change what a device does: not every device has them."""
    shared = [(loader, field) for field in fields(loader) if field.name in ("pin_memory", "gpu_decode")]
    of_compute = [(compute, field) for field in fields(compute) if field.default is not MISSING]
    return [field.name for spec, field in (*of_compute, *shared) if getattr(spec, field.name) != field.default]


def refuse_options(loader: LoaderSpec, compute: ComputeSpec, why: str) -> None:
    """Raise BadValue for options that are not as usual, for a device on which they would have no effect."""
    if names := asked_of_device(loader, compute):
        verb = "do" if len(names) > 1 else "does"
        raise BadValue(f"{join_words(names)} {verb} not apply to {compute.name}: {why}", hint="train on cuda or cpu")


Study = Literal["prefilled", "epochs"]
"""Measured beside the verdicts: training from a full buffer, and whole epochs."""


def asks_for(spec: SweepSpec) -> dict[Study, list[RunConfig]]:
    """The configurations that a sweep studies: of those that differ in workers only, the one with the most.

    A full buffer where several prefetch factors were asked for, or all is measured; epochs where they are asked for,
    which begin cold.
    """
    chosen = _with_most_workers([config for config in spec.configs if config.ranks == 1])
    loading = [config for config in chosen if config.loader.workers]
    several = len({config.loader.prefetch_factor for config in loading}) > 1
    several = several and not (spec.auto and spec.auto.prefetch_factor)
    studies: dict[Study, list[RunConfig]] = {
        "prefilled": loading if several or spec.thorough else [],
        "epochs": [config for config in chosen if config.cache == "cold"] if spec.epochs else [],
    }
    return {study: configs for study, configs in studies.items() if configs}


def _with_most_workers(configs: Sequence[RunConfig]) -> list[RunConfig]:
    alike = {config: alike_but_for(config, "workers", "prefetch_factor") for config in configs}
    most_workers: dict[tuple[object, ...], int] = {}
    for config, same in alike.items():
        most_workers[same] = max(config.loader.workers, most_workers.get(same, 0))
    return [config for config in configs if config.loader.workers == most_workers[alike[config]]]

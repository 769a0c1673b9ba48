"""What is asked: the files, one configuration, the sweep over many."""

from __future__ import annotations

import hashlib
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import msgspec

from loaderprobe.errors import BadValue

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

# The channel means and deviations of ImageNet that torchvision's models are trained with.
CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_DEVIATION = (0.229, 0.224, 0.225)
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"})


def content_hash(value: object) -> str:
    """16 hex digits that depend on the content of `value` (JSON with sorted keys) and on nothing else."""
    encoded = msgspec.json.encode(value, order="sorted")
    return hashlib.blake2b(encoded, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file in a data set that cannot be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """Exactly the files that one data set contributes to a run, in the order in which they are read.

    The order is drawn at random once, when the set is made, and read round and round: image `k` of a
    run is file `k % len(paths)`. A large data set contributes a random sample of itself.
    """

    label: str
    """`500x375`, or `as-found` for a data set with resolutions of its own."""
    root: str
    """Absolute path; `paths` are relative to it."""
    generated: bool
    paths: tuple[str, ...]
    classes: tuple[int, ...]
    size_bytes: tuple[int, ...]
    images_found: int
    """Usable images in the whole data set, of which `paths` may be a sample."""
    skipped_count: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    """The first few of the skipped files."""

    def __post_init__(self) -> None:
        if not len(self.paths) == len(self.classes) == len(self.size_bytes):
            raise BadValue(f"file set {self.label}: paths, classes and sizes differ in number")
        if not self.paths:
            raise BadValue(f"file set {self.label}: it has no file")
        if min(*self.size_bytes, self.images_found, self.skipped_count, 0) < 0:
            raise BadValue(f"file set {self.label}: a size or a count is below 0")

    @property
    def fingerprint(self) -> str:
        """Depends on where the files are, on their names, sizes and order."""
        return content_hash([self.root, self.paths, self.size_bytes])

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return Path(self.root)

    @property
    def mean_size_bytes(self) -> float:
        return sum(self.size_bytes) / len(self.size_bytes)

    @property
    def count(self) -> int:
        """Images before the first comes again."""
        return len(self.paths)

    def absolute(self, first: int, count: int) -> list[Path]:
        """The files of `count` images from image `first` on, going round at the end of the set."""
        root = Path(self.root)
        return [root / self.paths[k % len(self.paths)] for k in range(first, first + count)]

    def delivered_bytes(self, first: int, count: int) -> int:
        """The bytes of the files of `count` images from image `first` on."""
        sums = [0, *accumulate(self.size_bytes)]
        laps, rest = divmod(first + count, len(self.paths))
        before_laps, before = divmod(first, len(self.paths))
        return (laps - before_laps) * sums[-1] + sums[rest] - sums[before]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFiles:
    """The files behind the batches of a loader that goes round in a pool of batches, as its workers opened them.

    Speaks of images (samples) like a `FileSet`, but knows only whole batches.
    """

    batch_size: int
    paths: tuple[tuple[str, ...], ...]
    """Absolute paths of each batch of the pool."""
    file_bytes: dict[str, int]
    """Of every file."""
    in_order: bool = True
    """False for an iterable, of which any batch of the pool may be next."""

    @property
    def count(self) -> int:
        """Samples before the first comes again."""
        return len(self.paths) * self.batch_size

    @property
    def total_bytes(self) -> int:
        """Of all batches of the pool; a file that is read for several of them counts in each."""
        return sum(self.file_bytes[path] for batch in self.paths for path in batch)

    def _batches(self, first: int, count: int) -> list[int]:
        last = -(-(first + count) // self.batch_size)
        return [number % len(self.paths) for number in range(first // self.batch_size, last)]

    def absolute(self, first: int, count: int) -> list[Path]:
        """The files of the batches that hold `count` samples from sample `first` on; each once."""
        wanted = dict.fromkeys(
            self._batches(first, min(count, self.count)) if self.in_order else range(len(self.paths))
        )
        return [Path(path) for path in dict.fromkeys(path for number in wanted for path in self.paths[number])]

    def delivered_bytes(self, first: int, count: int) -> int:
        """The bytes of the files of those batches; a file that is read for several of them counts in each."""
        return sum(self.file_bytes[path] for number in self._batches(first, count) for path in self.paths[number])

    def distinct_bytes(self, since: int, first: int, count: int) -> int:
        """The same, without files that a batch from sample `since` on has read: a sampler may draw a file twice.

        A batch that comes round again ought to have been cold, so its files count again.
        """
        before, wanted = self._batches(since, first - since), self._batches(first, count)
        once = max(0, len(self.paths) - len(before))
        read = {path for number in before for path in self.paths[number]}
        total = 0
        for number in wanted[:once]:
            new = [path for path in self.paths[number] if path not in read]
            total += sum(self.file_bytes[path] for path in new)
            read.update(new)
        return total + sum(self.file_bytes[path] for number in wanted[once:] for path in self.paths[number])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFiles:
    """Files that a loader reads in parts that are not known batch by batch: shards, databases, mapped files.

    So are files that are opened below Python, where only the data set's own lists name them.
    """

    file_bytes: dict[str, int]
    """By absolute path."""
    why: str
    """Why it is not known what a batch reads."""

    @property
    def paths(self) -> list[Path]:
        """All files."""
        return [Path(path) for path in self.file_bytes]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSpec:
    """What trains, how it runs its steps, and how batches are copied to it."""

    name: str
    """`cuda`, `cpu`, `emulated:NAME`, `emulated:IMAGES_PER_S`, or `package.module:Class`."""
    batch_size: int
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

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise BadValue("rounds must be 1 or more")
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
        return f"{self.resolution}, {loading}, {self.compute.name}, {self.cache}"


def _unusual(spec: Any) -> dict[str, Any]:
    """The fields of a record that have no default or another value than it, nested."""
    values = {each.name: getattr(spec, each.name) for each in fields(spec)}
    return {
        each.name: _unusual(values[each.name]) if is_dataclass(values[each.name]) else values[each.name]
        for each in fields(spec)
        if each.default is MISSING or values[each.name] != each.default
    }


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
    command: tuple[str, ...] = field(default=())
    """The command line, for the report."""

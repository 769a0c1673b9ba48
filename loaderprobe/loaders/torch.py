"""torch's DataLoader over image files: serial, or with N worker processes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate

from loaderprobe.datasets.layouts import FILES, format_of
from loaderprobe.errors import BadValue, NoSpace
from loaderprobe.loaders.switched import SwitchedLoader
from loaderprobe.loaders.worker_probe import one_thread
from loaderprobe.records.config import (
    CHANNEL_DEVIATION,
    CHANNEL_MEAN,
    DECODER_LIBRARIES,
    Decoder,
    LoaderSpec,
    RunConfig,
    with_options,
)
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative
from loaderprobe.stats import median
from loaderprobe.system.limits import free_shared_memory_bytes, shared_memory_bytes
from loaderprobe.system.objects import read_object
from loaderprobe.system.process import SHARED_MEMORY_HINT
from loaderprobe.units import format_bytes

if TYPE_CHECKING:
    from torchvision.transforms.v2 import Compose

SIDE = 224


def pipeline_steps(spec: LoaderSpec) -> Compose:
    """The transforms after decoding; they give tensors of 3 x 224 x 224: normalised floats, or bytes as decoded."""
    from torchvision.transforms import v2  # over a second

    crops: dict[str, list[Any]] = {
        "imagenet": [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()],
        "crop": [v2.RandomCrop(SIDE, pad_if_needed=True)],
    }
    to_tensor = [v2.PILToTensor()] if spec.decoder == "pillow" else []
    scale = (
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(CHANNEL_MEAN, CHANNEL_DEVIATION)]
        if spec.tensor == "float32"
        else []
    )
    return v2.Compose([*crops[spec.pipeline], *to_tensor, *scale])


def _content(encoded: Path | bytes) -> bytes:
    return encoded.read_bytes() if isinstance(encoded, Path) else encoded


def _by_torchvision(encoded: Path | bytes) -> Any:
    from torchvision import io as tvio

    data = tvio.read_file(str(encoded)) if isinstance(encoded, Path) else as_tensor(encoded)
    return tvio.decode_image(data, mode=tvio.ImageReadMode.RGB)


def _by_opencv(encoded: Path | bytes) -> Any:
    """As it is stored: EXIF turns it for no other decoder either."""
    cv2 = import_module("cv2")
    cv2.setNumThreads(0)  # its threads would be lost in workers, which are forked
    data = np.frombuffer(_content(encoded), np.uint8)
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION) if len(data) else None
    if decoded is None:
        raise ValueError("it finds no image")
    return torch.from_numpy(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)).permute(2, 0, 1)


DECODERS: dict[Decoder, Callable[[Path | bytes], Any]] = {
    "pillow": lambda encoded: Image.open(io.BytesIO(_content(encoded))).convert("RGB"),
    "torchvision": _by_torchvision,
    "simplejpeg": lambda encoded: torch.from_numpy(import_module("simplejpeg").decode_jpeg(_content(encoded))).permute(
        2, 0, 1
    ),
    "opencv": _by_opencv,
    "torchcodec": lambda encoded: import_module("torchcodec.decoders").decode_image(_content(encoded)),
}
"""Give an RGB image, of a whole file or of its bytes: a Pillow image, or a uint8 tensor of 3 x H x W."""
NOT_DECODED = (OSError, RuntimeError, SyntaxError, ValueError)
"""What decoders raise."""


def as_tensor(data: bytes) -> torch.Tensor:
    """The bytes as uint8. A tensor may be written to, so it needs memory of its own."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class _FilesInTurn(Dataset[tuple[torch.Tensor, int]]):
    """A file set that is read round and round, in any layout."""

    def __init__(self, files: FileSet) -> None:
        self._paths = [files.folder / path for path in files.paths]
        self._classes = files.classes
        self._files = files
        # Nothing is open yet: each worker opens its own.
        self._reader = None if files.layout == FILES else format_of(files.layout).Reader(files.folder)

    def files_of(self, batch: Sequence[int]) -> Iterator[Path]:
        """The files that hold the samples of a batch; not called where those are objects."""
        return (self._paths[k % len(self._paths)] for k in batch)

    def _encoded(self, index: int) -> Path | bytes:
        """The file of a sample, or its bytes where a file holds several, or where it is an object."""
        if self._files.remote:
            return read_object(self._files.root, self._files.paths[index])
        if self._reader is None:
            return self._paths[index]
        return self._reader.read(self._files.paths[index], self._files.places[index]).image


class ImageFiles(_FilesInTurn):
    """Image `k` of a file set that is read round and round: (3 x 224 x 224, class number).

    Raises BadValue, naming the file, when it cannot be decoded.
    """

    def __init__(self, files: FileSet, spec: LoaderSpec) -> None:
        super().__init__(files)
        self._decoder = spec.decoder
        self._transform = pipeline_steps(spec)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        return self.augmented(self.decoded(k), k)

    def decoded(self, k: int) -> Any:
        index = k % len(self._paths)
        try:
            return DECODERS[self._decoder](self._encoded(index))
        except NOT_DECODED as error:
            path = f"{self._files.root}/{self._files.paths[index]}"
            raise BadValue(f"{path} cannot be decoded by {self._decoder}: {error}") from error

    def augmented(self, image: Any, k: int) -> tuple[torch.Tensor, int]:
        """The sample of image `k`, which was decoded before."""
        return self._transform(image), self._classes[k % len(self._paths)]


class EncodedFiles(_FilesInTurn):
    """Sample `k` of a file set that is read round and round, not decoded: (bytes as uint8, class number)."""

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        """Read sample `k`. Raises BadValue for an empty one."""
        index = k % len(self._paths)
        content = _content(self._encoded(index))
        if not content:
            raise BadValue(f"{self._paths[index]} is empty")
        return as_tensor(content), self._classes[index]


def pack(samples: Sequence[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch of encoded files: (length of each, int64 N; the bytes of all in a row, uint8; labels, int64 N).

    One tensor for all: each tensor that a worker sends takes a file descriptor.
    """
    files, labels = zip(*samples, strict=True)
    return torch.tensor([len(file) for file in files]), torch.cat(files), torch.tensor(labels)


Way = Decoder | Literal["usual", "uint8", "decoded"]
IMAGES = 12
# CPU time for each alternative; large images get fewer tries.
ENOUGH_NS = 250_000_000


def alternatives(config: RunConfig, files: FileSet) -> tuple[Alternative, ...]:
    """CPU time of whole samples, collated, with the alternatives to `config` and with `config` itself, in turn.

    One of them augments an image that was decoded before: what is missing to the whole is decoding.

    The files are read once before, so that all alternatives find them in the cache. Files that cannot be decoded
    are skipped: the loader reports them. A decoder that is not installed, or decodes not all of them, is left out. None
    where the GPU decodes.
    """
    if config.loader.gpu_decode:
        return ()
    if files.remote:
        with TemporaryDirectory() as folder:
            return alternatives(config, _copied(files, Path(folder)))
    others = [name for name in DECODERS if name != config.loader.decoder and is_installed(name)]
    ways: dict[Way, RunConfig] = {"usual": config, **{name: with_options(config, decoder=name) for name in others}}
    if config.loader.tensor == "float32":
        ways["uint8"] = with_options(config, tensor="uint8")
    made, before = {name: ImageFiles(files, way.loader) for name, way in ways.items()}, ImageFiles(files, config.loader)
    timed: dict[Way, list[int]] = {name: [] for name in (*ways, "decoded")}
    for number in range(min(IMAGES, files.count)):
        try:
            decoded = before.decoded(number)
        except BadValue:
            continue
        for name, images in [*made.items()]:
            try:
                timed[name].append(_cpu_ns(images.__getitem__, number))
            except (BadValue, ImportError):
                del made[name], timed[name]
        timed["decoded"].append(_cpu_ns(partial(before.augmented, decoded), number))
        if sum(timed["usual"]) > ENOUGH_NS and number > 1:
            break
    if not timed["usual"]:
        return ()
    # The first image of each alternative imports what it needs.
    usual_s = median(timed["usual"][1:] or timed["usual"]) / 1e9
    return tuple(
        Alternative(name=name, cpu_s=median(timed[name][1:] or timed[name]) / 1e9, usual_cpu_s=usual_s)
        for name in timed
        if name != "usual"
    )


def is_installed(decoder: Decoder) -> bool:
    """True where the library of a decoder is there. It is not imported."""
    return decoder not in DECODER_LIBRARIES or find_spec(DECODER_LIBRARIES[decoder][0]) is not None


def _copied(files: FileSet, folder: Path) -> FileSet:
    """The first few objects as files: what it takes to fetch one is not to be compared."""
    for path in files.paths[:IMAGES]:
        copy = folder / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(read_object(files.root, path))
    return replace(files, root=str(folder))


def _cpu_ns(sample: Callable[[int], Any], number: int) -> int:
    """Of a batch of one, in one thread, as in a worker; every alternative draws the same crop."""
    with one_thread(), torch.random.fork_rng(devices=()):
        torch.manual_seed(number)
        before = time.thread_time_ns()
        default_collate([sample(number)])
        return time.thread_time_ns() - before


class InOrder(Sampler[int]):
    """0, 1, 2, ... without end: the file set's own order is already random."""

    def __iter__(self) -> Iterator[int]:
        return count()


def shared_memory_needed(config: RunConfig, largest_file_bytes: int = 0) -> int:
    """Bytes of shared memory that a configuration's batches in flight take at most."""
    spec = config.loader
    image = largest_file_bytes if spec.gpu_decode else 3 * SIDE * SIDE * (4 if spec.tensor == "float32" else 1)
    batch = config.compute.batch_size * image
    # Those ahead, the one in the training thread's hands, and one a worker is making.
    return batch * (spec.batches_ahead + 1 + spec.workers) if spec.workers else 0


def samples_of(config: RunConfig, files: FileSet) -> _FilesInTurn:
    """By number: (image 3 x 224 x 224, class number); for a GPU that decodes, (bytes as uint8, class number)."""
    return EncodedFiles(files) if config.loader.gpu_decode else ImageFiles(files, config.loader)


def image_loader(config: RunConfig, files: FileSet, samples: Any = None) -> DataLoader[Any]:
    """The DataLoader of a configuration: (images N x 3 x 224 x 224, labels int64 N), without end, in order.

    For a GPU that decodes: packed files, see `pack`. `samples` are others than those of `samples_of`, in any order.
    """
    spec = config.loader
    samples = samples_of(config, files) if samples is None else samples
    return DataLoader(
        samples,
        batch_size=config.compute.batch_size,
        sampler=None if isinstance(samples, IterableDataset) else InOrder(),
        collate_fn=pack if spec.gpu_decode else None,
        drop_last=True,
        num_workers=spec.workers,
        prefetch_factor=spec.prefetch_factor or None,
        # The GPU's decoder takes files from ordinary memory.
        pin_memory=config.compute.name.startswith("cuda") and spec.pin_memory and not spec.gpu_decode,
        generator=torch.Generator().manual_seed(config.seed),
        # Workers are tied to this process, whose children they must be.
        multiprocessing_context="fork" if spec.workers else None,
    )


class TorchLoader(SwitchedLoader):
    """`torch.utils.data.DataLoader` over image files.

    Raises NoSpace before any worker starts when shared memory is too small for the batches in flight: a
    worker would die there of a bus error.
    """

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        self._config = config
        self._largest_file_bytes = max(files.size_bytes, default=0)
        samples = self.samples_of(config, files, scratch)
        super().__init__(
            image_loader(config, files, samples), scratch, files_of=samples.files_of, tied=True, maps=bool(files.places)
        )
        self._by_key = bool(files.places) and not files.streamed

    def samples_of(self, config: RunConfig, files: FileSet, _scratch: Path) -> Any:
        """A data set with `files_of`, of which the workers make batches."""
        return samples_of(config, files)

    def evicts(self) -> bool:
        """True where samples are read by their keys, in random order."""
        return self._by_key

    def extend_pool(self, batches: int) -> int:
        """The samples of a file set come round as they are: 0, as the pool cannot be longer."""
        return 0

    alternatives = staticmethod(alternatives)

    def __enter__(self) -> Self:
        free = free_shared_memory_bytes()
        needed = shared_memory_needed(self._config, self._largest_file_bytes)
        if free is not None and free < needed:
            raise NoSpace(
                f"shared memory has {format_bytes(free)} free, but the batches in flight take {format_bytes(needed)}",
                hint=SHARED_MEMORY_HINT,
            )
        # What the other ranks of the node take may be free still.
        size, ranks = shared_memory_bytes(), self._config.ranks // self._config.nodes
        if size is not None and size < ranks * needed:
            raise NoSpace(
                f"shared memory has {format_bytes(size)}, but the batches in flight of {ranks} ranks take "
                f"{format_bytes(ranks * needed)}",
                hint=SHARED_MEMORY_HINT,
            )
        return super().__enter__()

"""Loaders of other libraries in a sweep, a file each: the same images, work and batches as torch's.

A new one is a file here. Where it reads one layout, has no serial loader, or imports its library by another name,
`records/config.py` says so. `tests/test_plugins.py` holds its extra, the guide and its benchmark together.
Loaders that users bring to `diagnose` do not belong here.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from threading import current_thread, local, main_thread
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset

from loaderprobe.datasets.layouts import INDEX, LABELS, class_of, damage, named
from loaderprobe.errors import BadValue
from loaderprobe.loaders.iterable import IterableLoader, OwnIterable
from loaderprobe.loaders.torch import DECODERS, NOT_DECODED, TorchLoader, as_tensor, image_loader, pipeline_steps
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import IMAGE_SUFFIXES, FileSet
from loaderprobe.system.host import SystemClock

Encoded = tuple[bytes, int]
"""An image as it is encoded, and its class."""


class OwnThreadsLoader(IterableLoader, ABC):
    """A library whose own threads or processes make the batches: warm files are measured, other causes estimated."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        given = OwnIterable(partial(self.make, config, files))
        given.num_workers, given.prefetch_factor = config.loader.workers, config.loader.prefetch_factor
        super().__init__(given, SystemClock(), lambda: None)

    @staticmethod
    @abstractmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """(images N x 3 x 224 x 224, labels int64 N) without end, in the order of the files; closing it ends all."""


class PythonLoader(OwnThreadsLoader):
    """One that calls the functions that torch's workers call."""

    alternatives = staticmethod(TorchLoader.alternatives)


class Stream(IterableDataset[Any]):
    """What a worker's share of some shards holds, decoded and augmented as torch's workers do it."""

    def __init__(self, config: RunConfig, files: FileSet, encoded: Callable[[], Iterator[Encoded]]) -> None:
        self._spec, self._shards, self._encoded = config.loader, files, encoded
        if len(files.whole_bytes) < config.loader.workers:
            raise BadValue(
                f"{len(files.whole_bytes)} shards do not give each of {config.loader.workers} workers of "
                f"{config.loader.name} one",
                hint="use more images, smaller shards or fewer workers",
            )

    def files_of(self, batch: Sequence[Any]) -> tuple[Path, ...]:
        """Not known batch by batch."""
        return ()

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        """One pass. Raises BadValue for what cannot be decoded."""
        spec = self._spec
        transform = pipeline_steps(spec)
        for encoded, label in self._encoded():
            if spec.gpu_decode:
                yield as_tensor(encoded), label
                continue
            try:
                image = DECODERS[spec.decoder](encoded)
            except NOT_DECODED as error:
                # What was seen to be damaged before is left out of what torch reads, but not of the shards.
                left_out = ", ".join(file.path for file in self._shards.skipped[:3])
                raise BadValue(
                    f"an image in {self._shards.root} cannot be decoded by {spec.decoder}: {error}",
                    hint=f"--loader torch leaves out what is damaged ({left_out}); write the shards without it"
                    if left_out
                    else "--loader torch names its file",
                ) from error
            yield transform(image), label


class StreamLoader(TorchLoader, ABC):
    """A library that streams whole shards in torch's workers, and deals them out: all ablations that shards allow."""

    def samples_of(self, config: RunConfig, files: FileSet, scratch: Path) -> Stream:
        """Shards in the order in which the set has them. Raises BadValue for fewer than workers."""
        return Stream(config, files, partial(self.encoded, self.opened(config, files, scratch)))

    def evicts(self) -> bool:
        """False: whatever the layout, nothing asks for a sample by its key."""
        return False

    def opened(self, config: RunConfig, files: FileSet, scratch: Path) -> Any:
        """What a worker makes its pass of: the paths of the shards."""
        return [str(path) for path in files.absolute(0, files.count)]

    @staticmethod
    @abstractmethod
    def encoded(opened: Any) -> Iterator[Encoded]:
        """In a worker: one pass over its share of the shards."""


def linked(
    config: RunConfig, files: FileSet, scratch: Path, entries: str, file_of: Callable[[Any], tuple[str, int]]
) -> str:
    """A folder with links to the shards of the set, and an index of them alone, in their order.

    `entries` are those of the index; `file_of` gives (name, bytes) of one. Raises BadValue for what it cannot have, and
    for a shard that is not as long as its entry says: the libraries wait for the rest of it, or end without a word.
    """
    name, shards = config.loader.name, files.absolute(0, files.count)
    source = shards[0].parent
    if config.ranks > 1:
        raise BadValue(f"{name} deals shards to ranks by itself", hint="compare loaders with one rank")
    if len({path.parent for path in shards}) > 1:
        what = f"{name} reads shards of one directory, and {files.root} has them in several"
        raise BadValue(what, hint="put them in one, with one index.json, or use --loader torch")
    with damage(source / INDEX, OSError, ValueError, LookupError, TypeError):
        index = json.loads((source / INDEX).read_bytes())
        known = {file_of(entry)[0]: entry for entry in index[entries]}
        index[entries] = [known[path.name] for path in shards]
    for entry, path in zip(index[entries], shards, strict=True):
        if file_of(entry)[1] != path.stat().st_size:
            raise BadValue(f"{path} is damaged: {INDEX} has another size for it", hint="write it again")
    folder = links({path.name: path for path in shards}, scratch)
    (folder / INDEX).write_text(json.dumps(index))
    return str(folder)


def links(shards: dict[str, Path], scratch: Path) -> Path:
    """A folder with links of these names, beside which a library may write."""
    folder = Path(mkdtemp(prefix="linked-", dir=scratch))
    for name, path in shards.items():
        (folder / name).symlink_to(path)
    return folder


def from_tar(samples: Iterable[dict[str, Any]]) -> Iterator[Encoded]:
    """Of each sample of tar shards, by the suffixes of its files, the first image, and its class where it has one."""
    for sample in samples:
        images = (data for suffix, data in sample.items() if f".{suffix.rpartition('.')[2]}".lower() in IMAGE_SUFFIXES)
        for image in images:
            yield image, class_of(sample.get("cls", b"").strip())
            break


def encoded_in(row: Any) -> Encoded:
    """The image and the class of a row, by name, else the first. Raises BadValue for an image that is no bytes."""
    columns = row if isinstance(row, dict) else dict(enumerate(row))
    pixels = {
        name: value for name, value in columns.items()
        if isinstance(value, Image.Image) or (isinstance(value, torch.Tensor) and value.ndim == 3)
    }  # fmt: skip
    encoded = {name: value for name, value in columns.items() if isinstance(value, bytes | memoryview)}
    image = named({**pixels, **encoded}, ["image"], None)
    if not isinstance(image, bytes | memoryview):
        raise BadValue("the library decodes images of this set by itself", hint="--loader torch reads their bytes")
    numbers = {name: int(value) for name, value in columns.items() if isinstance(value, int | np.integer)}
    return bytes(image), named(numbers, LABELS, 0)


def samples_of(config: RunConfig, files: FileSet) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """(the samples by number, what makes a batch of some), as torch's workers have them; pinned where theirs are."""
    loader: Any = image_loader(config, files)
    return loader.dataset, partial(_pinned, loader.collate_fn) if loader.pin_memory else loader.collate_fn


def by_threads(samples: Any) -> Callable[[int], Any]:
    """A sample by its number, for threads of a library: torch takes one thread in each, as in its own workers.

    More spin for each small operation: one thread of SPDL made 12 to 88 images/s on two busy cores, and 400 so.
    """
    known = local()

    def sample(number: int) -> Any:
        if not hasattr(known, "one") and current_thread() is not main_thread():
            torch.set_num_threads(1)
            known.one = True
        return samples[number]

    return sample


def _pinned(collate: Callable[[Sequence[Any]], Any], samples: Sequence[Any]) -> Any:
    return [tensor.pin_memory() for tensor in collate(samples)]

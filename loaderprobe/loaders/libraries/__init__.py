"""Loaders of other libraries in a sweep, a file each: the same images, work and batches as torch's.

Loaders that users bring to `diagnose` do not belong here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset

from loaderprobe.errors import BadValue
from loaderprobe.loaders.iterable import IterableLoader, OwnIterable
from loaderprobe.loaders.torch import NOT_DECODED, TorchLoader, as_tensor, decode, image_loader, pipeline_steps
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.system.clock import SystemClock

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

    def __init__(self, config: RunConfig, files: FileSet, encoded: Callable[[list[str]], Iterator[Encoded]]) -> None:
        self._spec, self._shards, self._encoded = config.loader, files, encoded
        if len(files.whole_bytes) < config.loader.workers:
            raise BadValue(
                f"{config.loader.name} deals out whole shards, and {len(files.whole_bytes)} do not give each of "
                f"{config.loader.workers} workers one",
                hint="use more images, smaller shards or fewer workers",
            )

    def files_of(self, batch: Sequence[Any]) -> tuple[Path, ...]:
        """Not known batch by batch."""
        return ()

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        """One pass. Raises BadValue for what cannot be decoded."""
        spec = self._spec
        transform = pipeline_steps(spec.pipeline, spec.decoder, spec.tensor)
        for encoded, label in self._encoded([str(path) for path in self._shards.absolute(0, self._shards.count)]):
            if spec.gpu_decode:
                yield as_tensor(encoded), label
                continue
            try:
                image = decode(encoded, spec.decoder)
            except NOT_DECODED as error:
                raise BadValue(
                    f"an image in {self._shards.root} cannot be decoded by {spec.decoder}: {error}",
                    hint="--loader torch names its file",
                ) from error
            yield transform(image), label


class StreamLoader(TorchLoader, ABC):
    """A library that streams whole shards in torch's workers, and deals them out: all ablations that shards allow."""

    @classmethod
    def samples_of(cls, config: RunConfig, files: FileSet) -> Stream:
        """Shards in the order in which the set has them. Raises BadValue for fewer than workers."""
        return Stream(config, files, cls.encoded)

    @staticmethod
    @abstractmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        """In a worker: one pass over its share of these files."""


def samples_of(config: RunConfig, files: FileSet) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """(the samples by number, what makes a batch of some), as torch's workers have them; pinned where theirs are."""
    loader: Any = image_loader(config, files)
    return loader.dataset, partial(_pinned, loader.collate_fn) if loader.pin_memory else loader.collate_fn


def _pinned(collate: Callable[[Sequence[Any]], Any], samples: Sequence[Any]) -> Any:
    return [tensor.pin_memory() for tensor in collate(samples)]

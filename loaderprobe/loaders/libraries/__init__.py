"""Loaders of other libraries in a sweep, a file each: the same images, work and batches as torch's.

Loaders that users bring to `diagnose` do not belong here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from loaderprobe.loaders.iterable import IterableLoader, OwnIterable
from loaderprobe.loaders.torch import TorchLoader, image_loader
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.system.clock import SystemClock


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


def samples_of(config: RunConfig, files: FileSet) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """(the samples by number, what makes a batch of some), as torch's workers have them; pinned where theirs are."""
    loader: Any = image_loader(config, files)
    return loader.dataset, partial(_pinned, loader.collate_fn) if loader.pin_memory else loader.collate_fn


def _pinned(collate: Callable[[Sequence[Any]], Any], samples: Sequence[Any]) -> Any:
    return [tensor.pin_memory() for tensor in collate(samples)]

"""Data sets of `waits` that read one file a sample, each as someone writes it; and what all data sets share.

A sample is read, then finished: decoded and augmented. What is to be removed for the truth is named by
`Work.without`, and the data set itself leaves it out: `preprocess` returns a ready sample once the bytes are read,
`lock` takes no lock, `wait` does not sleep, `network` asks the server's fast side.
"""

from __future__ import annotations

import io
import mmap
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, TypeVar

import cv2
import numpy as np
import torch
import torchvision
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchvision import transforms
from torchvision.transforms import v2

PHOTOGRAPHS = 1500
TINY_FILES = 4000
TINY_SIDE = 64
BATCH_SIZE = 8
SIDE = 192
PIXEL_BYTES = SIDE * SIDE * 3
POOL_THREADS = 4
AHEAD = 32
READY = torch.zeros(3, 224, 224)
READY_TINY = torch.zeros(3, TINY_SIDE, TINY_SIDE)
_AUGMENT = v2.Compose([v2.RandomResizedCrop(224), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
_AUGMENT_TINY = v2.Compose([v2.RandomResizedCrop(TINY_SIDE), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
_OF_FOLDER = transforms.Compose(
    [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
_AUGMENT_TENSOR = v2.Compose([v2.RandomResizedCrop(224), v2.ToDtype(torch.float32, scale=True)])

Sample = tuple[torch.Tensor, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a sample costs beside reading it, and which resource is removed."""

    count: int
    burn_s: float = 0.0
    """CPU time of the thread, never wall time."""
    wait_s: float = 0.0
    lock: Any = None
    """Held while a sample is read."""
    without: str = ""

    def held(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.lock is None or self.without == "lock" else self.lock

    def wait(self) -> None:
        if self.wait_s and self.without != "wait":
            time.sleep(self.wait_s)

    def burn(self, times: float = 1.0) -> None:
        end_s = time.thread_time() + self.burn_s * times
        while time.thread_time() < end_s:
            pass


class Finish:
    """From bytes to a sample."""

    work: Work
    ready = READY

    def finish(self, data: Any, index: int) -> Sample:
        if self.work.without == "preprocessing":
            return self.ready, index
        self.work.burn()
        return self.decode(data), index

    def decode(self, data: Any) -> torch.Tensor:
        image: torch.Tensor = _AUGMENT(Image.open(io.BytesIO(data)).convert("RGB"))
        return image


class Pixels(Finish):
    """Pixels that are stored as they are."""

    def decode(self, data: Any) -> torch.Tensor:
        pixels = np.array(data, dtype=np.uint8).reshape(SIDE, SIDE, 3)
        image: torch.Tensor = _AUGMENT_TENSOR(torch.from_numpy(pixels).permute(2, 0, 1))
        return image


class Samples(Finish, Dataset[Sample]):
    """Map-style: one sample is read, under a lock if there is one, then waited for, then finished."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.folder = folder
        self.work = work

    def __len__(self) -> int:
        return self.work.count

    def __getitem__(self, index: int) -> Sample:
        with self.work.held():
            data = self.read(index)
        self.work.wait()
        return self.finish(data, index)

    def read(self, index: int) -> Any:
        raise NotImplementedError


def photographs_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.JPEG"))


def part_of_worker(items: Sequence[T]) -> Sequence[T]:
    """Those that this worker serves; all of them in the process of the loader."""
    info = get_worker_info()
    return items[info.id :: info.num_workers] if info else items


class PythonFiles(Samples):
    """open().read(), as in most tutorials."""

    def __init__(self, folder: Path, work: Work) -> None:
        super().__init__(folder, work)
        self.files = [str(file) for file in photographs_in(folder)]

    def read(self, index: int) -> Any:
        with open(self.files[index], "rb") as opened:  # noqa: PTH123  # as people write it
            return opened.read()


class TinyFiles(PythonFiles):
    """Thousands of them, each of a few pages."""

    ready = READY_TINY

    def decode(self, data: Any) -> torch.Tensor:
        image: torch.Tensor = _AUGMENT_TINY(Image.open(io.BytesIO(data)).convert("RGB"))
        return image


class FolderFiles(PythonFiles):
    """As torchvision's ImageFolder with the transforms of its examples: small float operations on each sample."""

    def decode(self, data: Any) -> torch.Tensor:
        image: torch.Tensor = _OF_FOLDER(Image.open(io.BytesIO(data)).convert("RGB"))
        return image


class NativeFiles(PythonFiles):
    """Read and decoded by torchvision's C code."""

    def read(self, index: int) -> Any:
        data = torchvision.io.read_file(self.files[index])
        # It only maps the file: who does not decode it must still touch it.
        return data.clone() if self.work.without == "preprocessing" else data

    def decode(self, data: Any) -> torch.Tensor:
        image = torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB)
        augmented: torch.Tensor = _AUGMENT_TENSOR(image)
        return augmented


class CvFiles(NativeFiles):
    """cv2.imread, which reads and decodes in one call."""

    def read(self, index: int) -> Any:
        return super().read(index) if self.work.without == "preprocessing" else cv2.imread(self.files[index])

    def decode(self, data: Any) -> torch.Tensor:
        rgb = cv2.cvtColor(data, cv2.COLOR_BGR2RGB)
        image: torch.Tensor = _AUGMENT_TENSOR(torch.from_numpy(rgb).permute(2, 0, 1))
        return image


class LazyFiles(PythonFiles):
    """Image.open(path): the bytes are read while the decoder asks for them."""

    def read(self, index: int) -> Any:
        return super().read(index) if self.work.without == "preprocessing" else self.files[index]

    def decode(self, data: Any) -> torch.Tensor:
        with Image.open(data) as image:
            augmented: torch.Tensor = _AUGMENT(image.convert("RGB"))
        return augmented


class MappedFiles(PythonFiles):
    """Each file mapped into memory."""

    def read(self, index: int) -> Any:
        with (
            Path(self.files[index]).open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            return bytes(mapped)


class PooledFiles(PythonFiles):
    """A thread pool inside the data set reads and finishes the samples of a batch."""

    _pool: ThreadPoolExecutor | None = None

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(POOL_THREADS)
        return list(self._pool.map(self.__getitem__, indices))


class LockedFiles(PythonFiles):
    """A batch is read under a lock, then finished without it."""

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        with self.work.held():
            found = [self.read(index) for index in indices]
        return [self.finish(data, index) for data, index in zip(found, indices, strict=True)]


class CachedFiles(PythonFiles):
    """Each worker keeps what it has read and finished; the first epoch is judged."""

    def __init__(self, folder: Path, work: Work) -> None:
        super().__init__(folder, work)
        self._kept: dict[int, Sample] = {}

    def __getitem__(self, index: int) -> Sample:
        if index not in self._kept:
            image, number = super().__getitem__(index)
            self._kept[index] = (image.half(), number)
        return self._kept[index]


class AheadFiles(Finish, IterableDataset[Sample]):
    """A thread reads ahead, the worker's own thread finishes."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.files = photographs_in(folder)
        self.work = work

    def __iter__(self) -> Any:
        own = part_of_worker(range(self.work.count))
        queue: Queue[tuple[bytes, int] | None] = Queue(AHEAD)

        def read() -> None:
            for index in own:
                queue.put((self.files[index].read_bytes(), index))
            queue.put(None)

        Thread(target=read, daemon=True).start()
        while (found := queue.get()) is not None:
            yield self.finish(*found)

"""Data sets, collate functions, samplers and wrappers as users write them. Spawned workers can import them."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate, get_worker_info

SIDE = 8
FILE_BYTES = 3 * SIDE * SIDE
SHAPE = (3, SIDE, SIDE)
MAKING_S = 0.02


class Sample(NamedTuple):
    """As some data sets return."""

    image: torch.Tensor
    label: int


def raw_files(folder: Path) -> list[str]:
    """64 files of one small image each, as raw bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03}.raw" for number in range(64)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * FILE_BYTES)
    return [str(path) for path in paths]


def photo_files(folder: Path) -> list[str]:
    """24 JPEG files of noise."""
    folder.mkdir(parents=True, exist_ok=True)
    made = np.random.default_rng(0)
    paths = [folder / f"{number:03}.jpg" for number in range(24)]
    for path in paths:
        Image.fromarray(made.integers(0, 255, (48, 64, 3), dtype=np.uint8)).save(path)
    return [str(path) for path in paths]


def read_raw(path: str) -> torch.Tensor:
    """3 x 8 x 8 from a file."""
    data = bytearray(Path(path).read_bytes())
    return torch.frombuffer(data, dtype=torch.uint8).reshape(SHAPE).float()


class RawImages(Dataset[Any]):
    """Map-style: (image, label), or in another form."""

    def __init__(self, paths: list[str], form: str = "tuple") -> None:
        self.paths = paths
        self.form = form

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = read_raw(self.paths[index])
        forms: dict[str, Any] = {
            "tuple": (image, index),
            "dict": {"image": image, "label": index},
            "nested": {"views": [image, (image, {"again": image})], "label": index},
            "namedtuple": Sample(image, index),
            "alone": image,
        }
        return forms[self.form]


class InOneGo(RawImages):
    """Has `__getitems__`, which torch prefers."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Cropped(RawImages):
    """Random crops of photographs, read as most people do."""

    def __getitem__(self, index: int) -> Any:
        with Image.open(self.paths[index]) as image:
            x, y = random.randrange(16), random.randrange(16)
            crop = np.array(image.convert("RGB").crop((x, y, x + 32, y + 32)))
        return torch.from_numpy(crop).permute(2, 0, 1), index


class Shared(IterableDataset[Any]):
    """Iterable: each worker takes its share, shuffled again each time; `once` can be iterated only once."""

    def __init__(self, paths: list[str], *, once: bool = False, shares: bool = True, length: int | None = None) -> None:
        self.paths = paths
        self.once = once
        self.shares = shares
        self.length = length
        self.used = False

    def __iter__(self) -> Iterator[Any]:
        if self.once and self.used:
            return
        self.used = True
        info = get_worker_info()
        mine = self.paths[info.id :: info.num_workers] if info else list(self.paths)
        if info and not self.shares:
            mine = self.paths if info.id == 0 else []
        random.shuffle(mine)
        for path in mine:
            yield read_raw(path), 0

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("no length")
        return self.length


class Counting(IterableDataset[Any]):
    """Counts its epochs in memory that all workers share, and gives another order in each."""

    def __init__(self) -> None:
        self.epoch = multiprocessing.Value("i", 0)

    def __iter__(self) -> Iterator[Any]:
        with self.epoch.get_lock():
            epoch, self.epoch.value = self.epoch.value, self.epoch.value + 1
        for number in range(64):
            yield (number * 7 + epoch) % 64


class RowGroups(IterableDataset[Any]):
    """Finished batches of 1 and 7 samples in turn, from memory."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(1000):
            yield torch.zeros(1 if number % 2 == 0 else 7, 5)


class Numbers(Dataset[Any]):
    """No images and no files: features and a target."""

    def __init__(self, count: int = 64) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((5,), float(index)), index


class Finished(Numbers):
    """Returns batches that are finished."""

    def __getitems__(self, indices: list[int]) -> Any:
        return torch.stack([self[index][0] for index in indices]), torch.tensor(indices)


class Made(Numbers):
    """Samples that a function makes of their numbers, with what else such a data set knows."""

    def __init__(self, make: Callable[[Any], Any], count: int = 64, **known: Any) -> None:
        super().__init__(count)
        self.make = make
        vars(self).update(known)

    def __getitem__(self, index: Any) -> Any:
        return self.make(index)


def listed(indices: list[int]) -> Any:
    """Several samples at once, with what is no array."""
    return torch.tensor(indices, dtype=torch.float32), "no array"


def long_and_short(index: int) -> Any:
    """Texts of very different lengths, by batches of four."""
    return torch.zeros(8 << (index // 4 % 4))


def broken(index: int) -> Any:
    """Raises at one sample."""
    if index == 40:
        raise FileNotFoundError("sample 40 is gone")
    return torch.full((5,), float(index)), index


def deadly(index: int) -> Any:
    """Kills the worker that makes a certain sample."""
    if index == 40 and get_worker_info() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.full((5,), float(index)), index


def finished(batch: Any) -> Any:
    """A collate_fn with nothing to do."""
    return batch


def read_in_c(paths: list[str]) -> Made:
    """Hides its files: they are opened below Python."""
    from torchvision.io import read_file

    return Made(lambda index: (read_file(paths[index]).reshape(SHAPE).clone(), index), len(paths), paths=paths)


def mapped(paths: list[str]) -> Made:
    """Hides its file, which has all images: opened once, read through memory."""
    whole = Path(paths[0]).with_name("whole.mapped")
    whole.write_bytes(b"".join(Path(path).read_bytes() for path in paths))
    values = np.memmap(whole, dtype=np.uint8, mode="r", shape=(len(paths), *SHAPE))
    return Made(lambda index: (torch.from_numpy(np.array(values[index])), index), len(paths), values=values)


class Kept(Numbers):
    """Makes each sample once, with 20 ms of CPU time: a kept one is faster even where the host takes half the time."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.kept:
            end_s = time.thread_time() + MAKING_S
            while time.thread_time() < end_s:
                pass
            self.kept[index] = super().__getitem__(index)
        return self.kept[index]


class Dreaming(Numbers):
    """Keeps generators of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.python_state = random.Random(1)
        self.numpy_state = np.random.default_rng(1)
        self.torch_state = torch.Generator().manual_seed(1)

    def __getitem__(self, index: int) -> Any:
        own = self.python_state.random() + self.numpy_state.random() + torch.rand(1, generator=self.torch_state).item()
        return torch.full((5,), own + random.random() + np.random.random() + torch.rand(1).item()), index


class Backwards(Sampler[int]):
    """A sampler of one's own, that counts how often it was begun."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return iter(range(self.count - 1, -1, -1))

    def __len__(self) -> int:
        return self.count


class Pairs(Sampler[list[int]]):
    """A batch sampler of one's own: neighbours, and a short one at the end."""

    def __init__(self, count: int, size: int) -> None:
        self.batches = [list(range(first, min(first + size, count))) for first in range(0, count, size)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class Moving(DataLoader[Any]):
    """A sub-class that works on what it yields, and counts its batches by its length."""

    def __iter__(self) -> Any:
        for number, (images, labels) in enumerate(super().__iter__()):
            if number >= len(self):
                return
            yield images * 2, labels


def taking_apart(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """A collate_fn that empties the samples it is given."""
    images = torch.stack([sample.pop("image") for sample in samples])
    return {"image": images, "rest": default_collate(samples)}


def noted(folder: Path, worker: int) -> None:
    """A worker_init_fn that leaves a file for each worker."""
    info = get_worker_info()
    assert info is not None
    (folder / f"worker-{worker}-of-{info.num_workers}").touch()


class Foreign(DataLoader[Any]):
    """Takes no batch of torch's."""

    def __iter__(self) -> Any:
        yield from ([1], [2])


class Merging(DataLoader[Any]):
    """Takes two batches of torch's iterator to give one."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        yield from zip(batches, batches, strict=False)


class MergingBelow(DataLoader[Any]):
    """The same, in the iterator that torch's class asks for."""

    def _get_iterator(self) -> Any:
        batches = super()._get_iterator()
        yield from zip(batches, batches, strict=False)


class Prefetching(DataLoader[Any]):
    """Takes as many batches ahead as `BackgroundGenerator(super().__iter__(), max_prefetch=10)`, at once."""

    def __iter__(self) -> Any:
        inner = super().__iter__()
        ready = deque(islice(inner, 11))
        for batch in inner:
            ready.append(batch)
            yield ready.popleft()


class Nested(IterableDataset[Any]):
    """Takes its samples of a DataLoader of its own."""

    def __iter__(self) -> Iterator[Any]:
        for batch in DataLoader(Made(float), batch_size=2):
            yield from batch


class EagerlyNested(Nested):
    """The same; its first batch is there when it is begun."""

    def __iter__(self) -> Iterator[Any]:
        batches = iter(DataLoader(Made(float), batch_size=2))
        return chain(next(batches), chain.from_iterable(batches))


class Doubling:
    """Works on each batch, and notes its length."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seen: list[int] = []

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self.inner:
            self.seen.append(len(labels))
            yield images * 2, labels * 2


class Ahead(Doubling):
    """Holds one batch back, as those do that prefetch to a device."""

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        held = next(batches)
        for batch in batches:
            yield held
            held = batch
        yield held


class Joining(Doubling):
    """Makes one batch of two."""

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        for first in batches:
            yield first, next(batches)


class Disguised:
    """Passes for its DataLoader, and calls its sampler's set_epoch, as Accelerate does."""

    def __init__(self, base: DataLoader[Any]) -> None:
        self.base = base
        self.iteration = 0

    @property  # type: ignore[misc]  # the point of it
    def __class__(self) -> Any:
        return self.base.__class__

    def __getattr__(self, name: str) -> Any:
        if name == "base":
            raise AttributeError(name)
        return getattr(self.base, name)

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self.batch_sampler.sampler, "set_epoch"):
            self.batch_sampler.sampler.set_epoch(self.iteration)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(self.iteration)
        yield from self.base
        self.iteration += 1


class Piped:
    """A list of stages, the first a DataLoader, as WebDataset's."""

    def __init__(self, stages: list[Any]) -> None:
        self.stages = stages

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.stages[0])
        for stage in self.stages[1:]:
            batches = stage(batches)
        yield from batches

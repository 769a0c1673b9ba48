"""Small data sets in the formats of other libraries. Importable, so that spawned workers find them."""

from __future__ import annotations

import importlib
import io
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

COUNT, SIDE = 64, 16
SHAPE = (SIDE, SIDE, 3)
BATCH = 4


def images() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """COUNT images of noise."""
    return np.random.default_rng(0).integers(0, 255, (COUNT, *SHAPE), dtype=np.uint8)


def encoded(number: int, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """As JPEG."""
    out = io.BytesIO()
    Image.fromarray(pixels[number]).save(out, "jpeg")
    return out.getvalue()


def decoded(data: bytes) -> torch.Tensor:
    """3 x 16 x 16."""
    with Image.open(io.BytesIO(data)) as image:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


def jpegs(folder: Path) -> list[str]:
    """One file each, in a folder for each class."""
    pixels = images()
    paths = [folder / str(number % 2) / f"{number:03}.jpg" for number in range(COUNT)]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(number, pixels))
    return [str(path) for path in paths]


def shards(folder: Path, count: int = 4) -> list[str]:
    """Tar files as WebDataset reads them."""
    pixels, paths = images(), [folder / f"{number}.tar" for number in range(count)]
    for shard, path in enumerate(paths):
        with tarfile.open(path, "w") as tar:
            for number in range(shard, COUNT, count):
                for ending, data in (("jpg", encoded(number, pixels)), ("cls", str(number).encode())):
                    info = tarfile.TarInfo(f"{number:03}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return [str(path) for path in paths]


class Read(Dataset[Any]):
    """Map-style: `read` makes a sample of what `opened` gives, once in each process, and a number."""

    def __init__(self, opened: Callable[[], Any], read: Callable[[Any, int], Any], count: int = COUNT) -> None:
        self.opened = opened
        self.read = read
        self.count = count
        self.handle: Any = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if self.handle is None:
            self.handle = self.opened()
        return torch.as_tensor(np.asarray(self.read(self.handle, index))).float(), index

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "handle": None}


class Dicts(Dataset[Any]):
    """Images by name."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        image, label = self.inner[index]
        return {"x": image, "labels": label}


def open_zarr(path: str) -> Any:
    """For reading."""
    zarr: Any = importlib.import_module("zarr")
    return zarr.open(path, mode="r")


def item(held: Any, number: int) -> Any:
    return held[number]


def database(path: Path) -> Path:
    """A table of JPEG images."""
    pixels = images()
    with sqlite3.connect(path) as base:
        base.execute("create table images (number integer primary key, data blob)")
        base.executemany("insert into images values (?, ?)", [(n, encoded(n, pixels)) for n in range(COUNT)])
    base.close()
    return path


def from_database(base: sqlite3.Connection, number: int) -> torch.Tensor:
    """One image of the table."""
    return decoded(base.execute("select data from images where number = ?", (number,)).fetchone()[0])

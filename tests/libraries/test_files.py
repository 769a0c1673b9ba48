"""Map-style data sets on other libraries' formats and readers."""

from __future__ import annotations

import importlib
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.libraries import data
from tests.libraries.conftest import Tried
from tests.libraries.data import BATCH, COUNT, Read, images

WHY = "scripts/bench libraries installs it"
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def _loader(dataset: Any, workers: int, **options: Any) -> Any:
    return lambda: DataLoader(dataset(), batch_size=BATCH, shuffle=True, num_workers=workers, **options)


@WORKERS
def test_cv2_imread(tried: Tried, photos: list[str], workers: int) -> None:
    """Opens files in C."""
    cv2 = pytest.importorskip("cv2", reason=WHY)
    read = lambda _, number: cv2.imread(photos[number])  # noqa: E731  # one line is clearer here
    tried(_loader(lambda: Read(lambda: 0, read), workers), "opencv-python-headless", f"cv2.imread, {workers} workers")


@WORKERS
def test_torchvision_read_file(tried: Tried, photos: list[str], workers: int) -> None:
    """Opens files in C."""
    torchvision = pytest.importorskip("torchvision", reason=WHY)
    read = lambda _, number: torchvision.io.decode_jpeg(torchvision.io.read_file(photos[number]))  # noqa: E731
    tried(_loader(lambda: Read(lambda: 0, read), workers), "torchvision", f"read_file, {workers} workers")


@WORKERS
def test_torchvision_image_folder(tried: Tried, photos: list[str], workers: int) -> None:
    """Opens files in Python."""
    torchvision = pytest.importorskip("torchvision", reason=WHY)
    folder, change = Path(photos[0]).parents[1], torchvision.transforms.ToTensor()
    make = _loader(lambda: torchvision.datasets.ImageFolder(folder, change), workers)
    assert tried(make, "torchvision", f"ImageFolder, {workers} workers").cache == "cold"


@WORKERS
def test_numpy_memmap(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Maps a file into memory."""
    path = tmp_path / "images.npy"
    np.save(path, images())
    make = _loader(lambda: Read(lambda: np.load(path, mmap_mode="r"), lambda held, n: np.array(held[n])), workers)
    tried(make, "numpy", f"memmap, {workers} workers")


@WORKERS
def test_safetensors(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Maps a file into memory."""
    safetensors = pytest.importorskip("safetensors.torch", reason=WHY)
    path = tmp_path / "images.safetensors"
    safetensors.save_file({"images": torch.from_numpy(images())}, path)
    opened = lambda: safetensors.safe_open(path, "pt").get_slice("images")  # noqa: E731
    tried(_loader(lambda: Read(opened, lambda held, n: held[n]), workers), "safetensors", f"slice, {workers} workers")


@WORKERS
def test_sqlite3(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Reads pages of one file in C."""
    path = data.database(tmp_path / "images.db")
    make = _loader(lambda: Read(lambda: sqlite3.connect(path), data.from_database), workers)
    tried(make, "", f"sqlite3, {workers} workers")


@WORKERS
def test_lmdb(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Maps one file into memory."""
    lmdb = pytest.importorskip("lmdb", reason=WHY)
    pixels, path = images(), str(tmp_path / "images.lmdb")
    with lmdb.open(path, map_size=2**24) as base, base.begin(write=True) as writing:
        for number in range(COUNT):
            writing.put(str(number).encode(), data.encoded(number, pixels))
    opened = lambda: lmdb.open(path, readonly=True, lock=False).begin(buffers=False)  # noqa: E731
    read = lambda held, number: data.decoded(held.get(str(number).encode()))  # noqa: E731
    tried(_loader(lambda: Read(opened, read), workers), "lmdb", f"{workers} workers")


@WORKERS
def test_h5py(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Reads parts of one file in C."""
    h5py = pytest.importorskip("h5py", reason=WHY)
    path = tmp_path / "images.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images(), chunks=(1, *data.SHAPE), compression="gzip")
    make = _loader(lambda: Read(lambda: h5py.File(path)["images"], lambda held, n: held[n]), workers)
    tried(make, "h5py", f"{workers} workers")


@WORKERS
def test_zarr(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Reads one file a chunk, in threads of its own; those do not survive a fork."""
    zarr = pytest.importorskip("zarr", reason=WHY)
    path = tmp_path / "images.zarr"
    made = zarr.open(str(path), mode="w", shape=(COUNT, *data.SHAPE), chunks=(1, *data.SHAPE), dtype="u1")
    made[:] = images()
    context = {"multiprocessing_context": "forkserver"} if workers else {}
    dataset = lambda: Read(_OpenZarr(str(path)), _item)  # noqa: E731
    tried(_loader(dataset, workers, **context), "zarr", f"{workers} workers")


class _OpenZarr:
    """Opens an array for reading; can be pickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> Any:
        zarr: Any = importlib.import_module("zarr")
        return zarr.open(self.path, mode="r")


def _item(held: Any, number: int) -> Any:
    return held[number]


@WORKERS
def test_datasets_arrow(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Maps Arrow files into memory."""
    datasets = pytest.importorskip("datasets", reason=WHY)
    made = datasets.Dataset.from_dict({"image": list(images()), "label": list(range(COUNT))})
    made.save_to_disk(str(tmp_path / "arrow"))
    make = _loader(lambda: datasets.load_from_disk(str(tmp_path / "arrow")).with_format("torch"), workers)
    tried(make, "datasets", f"Arrow, map-style, {workers} workers")

"""Data sets of `waits` that keep many samples in one file, and how their files are written.

Handles are opened by each worker for itself, on its first sample, as the libraries ask for.
"""

from __future__ import annotations

import io
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import IterableDataset

from scripts.benches.waits_samples import (
    PIXEL_BYTES,
    SIDE,
    TINY_FILES,
    Finish,
    Pixels,
    Sample,
    Samples,
    Work,
    part_of_worker,
)
from scripts.benches.waits_texts import write_tokens

SHARDS = 8
ARROW_ROWS, ARROW_ROWS_OF_MANY = 50, 1000
"""In a record batch: opening the file touches the head of each, with all that is read ahead there. 1000 are what
Hugging Face's data sets write."""
MANY = 5000
PARQUET_ROWS = 26
"""In a row group: some 3 MB, and 16 groups for each of two workers."""
TINY_CROP = 128
"""Pixels a side: 4 to 8 kB as JPEG."""


class Opened(Samples):
    """What is opened once in each worker."""

    _handle: Any = None

    @property
    def handle(self) -> Any:
        if self._handle is None:
            self._handle = self.open()
        return self._handle

    def open(self) -> Any:
        raise NotImplementedError


class BigMap(Pixels, Opened):
    """One big array, np.memmap."""

    def open(self) -> Any:
        return np.load(self.folder / "pixels.npy", mmap_mode="r")

    def read(self, index: int) -> Any:
        return np.array(self.handle[index])


class Lmdb(Opened):
    def open(self) -> Any:
        import lmdb

        return lmdb.open(str(self.folder), readonly=True, lock=False, readahead=False, meminit=False)

    def read(self, index: int) -> Any:
        with self.handle.begin() as transaction:
            return transaction.get(b"%08d" % index)


class Hdf5(Pixels, Opened):
    """Opened once in each worker."""

    def open(self) -> Any:
        import h5py

        return h5py.File(self.folder / "pixels.h5", "r")["pixels"]

    def read(self, index: int) -> Any:
        return self.handle[index]


class Hdf5Each(Pixels, Samples):
    """Opened for each sample, as many do against trouble with fork."""

    def read(self, index: int) -> Any:
        import h5py

        with h5py.File(self.folder / "pixels.h5", "r") as file:
            return file["pixels"][index]


class Arrow(Opened):
    """A table mapped into memory, as Hugging Face's data sets are."""

    def open(self) -> Any:
        import pyarrow

        return pyarrow.ipc.open_file(pyarrow.memory_map(str(self.folder / "images.arrow"))).read_all()["image"]

    def read(self, index: int) -> Any:
        return self.handle[index].as_py()


class Sqlite(Opened):
    def open(self) -> Any:
        return sqlite3.connect(f"file:{self.folder / 'images.sqlite'}?mode=ro", uri=True)

    def read(self, index: int) -> Any:
        return self.handle.execute("select image from samples where id = ?", (index,)).fetchone()[0]


class Zarr(Pixels, Opened):
    """One chunk a sample, a file each; zarr reads with threads of its own."""

    def open(self) -> Any:
        import zarr

        return zarr.open_array(str(self.folder / "pixels.zarr"), mode="r")

    def read(self, index: int) -> Any:
        return self.handle[index]


class TarShards(Finish, IterableDataset[Sample]):
    """Shards read from begin to end with tarfile."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.shards = sorted(folder.glob("*.tar"))
        self.work = work

    def __iter__(self) -> Any:
        for shard in part_of_worker(self.shards):
            with tarfile.open(shard, "r|") as opened:
                for member in opened:
                    file = opened.extractfile(member)
                    assert file
                    yield self.finish(file.read(), 0)


class _FinishShard(Finish):
    def __init__(self, work: Work) -> None:
        self.work = work

    def __call__(self, sample: dict[str, Any]) -> Sample:
        return self.finish(sample["jpg"], 0)


class Parquet(Finish, IterableDataset[Sample]):
    """A table read from begin to end, one row group after the other."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.file = str(folder / "images.parquet")
        self.work = work

    def __iter__(self) -> Any:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(self.file) as opened:
            for group in part_of_worker(range(opened.num_row_groups)):
                for image in opened.read_row_group(group)["image"]:
                    yield self.finish(image.as_py(), 0)


def webdataset_of(folder: Path, work: Work) -> Any:
    import webdataset

    shards = [str(file) for file in sorted(folder.glob("*.tar"))]
    return webdataset.WebDataset(shards, shardshuffle=False).map(_FinishShard(work))


def web_loader(dataset: Any, *, batch_size: int, **common: Any) -> Any:
    """As its authors recommend: samples are batched in the workers."""
    import webdataset

    return webdataset.WebLoader(dataset.batched(batch_size), batch_size=None, **common)


def _pixels(count: int) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(1).integers(0, 256, count * PIXEL_BYTES, dtype=np.uint8)
    return drawn.reshape(count, SIDE, SIDE, 3)


def _write_npy(photographs: Sequence[Path], folder: Path) -> None:
    np.save(folder / "pixels.npy", _pixels(len(photographs)))


def _write_lmdb(photographs: Sequence[Path], folder: Path) -> None:
    import lmdb

    with lmdb.open(str(folder), map_size=1 << 32) as database, database.begin(write=True) as transaction:
        for index, file in enumerate(photographs):
            transaction.put(b"%08d" % index, file.read_bytes())


def _write_hdf5(photographs: Sequence[Path], folder: Path) -> None:
    import h5py

    pixels = _pixels(len(photographs))
    with h5py.File(folder / "pixels.h5", "w") as file:
        file.create_dataset("pixels", data=pixels, chunks=(1, SIDE, SIDE, 3))


def _write_arrow(photographs: Sequence[Path], folder: Path) -> None:
    import pyarrow

    schema = pyarrow.schema([("image", pyarrow.binary())])
    with pyarrow.ipc.new_file(str(folder / "images.arrow"), schema) as writer:
        rows = ARROW_ROWS_OF_MANY if len(photographs) >= MANY else ARROW_ROWS
        for first in range(0, len(photographs), rows):
            images = [file.read_bytes() for file in photographs[first : first + rows]]
            writer.write_batch(pyarrow.record_batch([pyarrow.array(images, pyarrow.binary())], schema=schema))


def _write_parquet(photographs: Sequence[Path], folder: Path) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = pyarrow.schema([("image", pyarrow.binary())])
    with ParquetWriter(str(folder / "images.parquet"), schema) as writer:
        for first in range(0, len(photographs), PARQUET_ROWS):
            images = [file.read_bytes() for file in photographs[first : first + PARQUET_ROWS]]
            writer.write_table(pyarrow.table([pyarrow.array(images, pyarrow.binary())], schema=schema))


def _write_sqlite(photographs: Sequence[Path], folder: Path) -> None:
    database = sqlite3.connect(folder / "images.sqlite")
    database.execute("create table samples (id integer primary key, image blob)")
    rows = ((index, file.read_bytes()) for index, file in enumerate(photographs))
    database.executemany("insert into samples values (?, ?)", rows)
    database.commit()
    database.close()


def _write_zarr(photographs: Sequence[Path], folder: Path) -> None:
    import zarr

    count = len(photographs)
    array = zarr.create_array(
        store=str(folder / "pixels.zarr"),
        shape=(count, SIDE, SIDE, 3),
        chunks=(1, SIDE, SIDE, 3),
        dtype="uint8",
        compressors=None,
    )
    array[:] = _pixels(count)


def _write_shards(photographs: Sequence[Path], folder: Path) -> None:
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as opened:
            for index, file in list(enumerate(photographs))[shard::SHARDS]:
                member = tarfile.TarInfo(f"{index:08}.jpg")
                data = file.read_bytes()
                member.size = len(data)
                opened.addfile(member, io.BytesIO(data))


def _write_files(photographs: Sequence[Path], folder: Path) -> None:
    for file in photographs:
        shutil.copy(file, folder / file.name)


def _write_tiny(photographs: Sequence[Path], folder: Path) -> None:
    """Pieces of the photographs, from the corners inwards."""
    corners = -(-TINY_FILES // len(photographs))
    for index in range(TINY_FILES):
        number, corner = divmod(index, corners)
        left, top = corner % 3 * TINY_CROP, corner // 3 % 2 * TINY_CROP
        with Image.open(photographs[number]) as image:
            piece = image.crop((left, top, left + TINY_CROP, top + TINY_CROP))
        piece.save(folder / f"{index:06}.JPEG", quality=85)


def _write_tokens(_: Sequence[Path], folder: Path) -> None:
    write_tokens(folder)


Write = Callable[[Sequence[Path], Path], None]
WRITERS: dict[str, Write] = {
    "files": _write_files,
    "npy": _write_npy,
    "lmdb": _write_lmdb,
    "hdf5": _write_hdf5,
    "arrow": _write_arrow,
    "parquet": _write_parquet,
    "sqlite": _write_sqlite,
    "zarr": _write_zarr,
    "shards": _write_shards,
    "tiny": _write_tiny,
    "tokens": _write_tokens,
}
"""Each writes a folder from the photographs."""


def folder_of(kind: str, samples: int) -> str:
    """The name of the folder with so many samples in this format."""
    return f"{kind}-{samples}"


def write_format(kind: str, samples: int, photographs: Sequence[Path], root: Path) -> None:
    """So many samples, from the photographs over and over."""
    folder = root / folder_of(kind, samples)
    folder.mkdir()
    WRITERS[kind](list(islice(cycle(photographs), samples)), folder)


def copy_folders(names: Sequence[str], source: Path) -> Callable[[Path], None]:
    """What fills a disk with these folders."""
    return partial(_copy, tuple(names), source)


def _copy(names: Sequence[str], source: Path, disk: Path) -> None:
    for name in names:
        shutil.copytree(source / name, disk / name)

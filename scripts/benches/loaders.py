"""Loaders as people write them: data sets on files, shards, tables and servers, and steps; the rows of `truth waits`.

A sample is read, then finished: decoded and augmented. What is to be removed for the truth is named by `Work.without`,
and the data set itself leaves it out: `preprocessing` returns a ready sample once the bytes are read, `lock` takes no
lock, `wait` does not sleep, `network` asks the server's fast side. Without `transport` workers send no more than the
number of samples. Handles are opened by each worker for itself, on its first sample, as the libraries ask for.
"""

from __future__ import annotations

import http.client
import importlib.util
import io
import mmap
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, get_worker_info
from torchvision import transforms
from torchvision.transforms import v2

from scripts.benches.beside import held_lock
from scripts.benches.harness import photographs_in

PHOTOGRAPHS = 1500
TINY_FILES = 4000
TINY_SIDE = 64
BATCH_SIZE = 8
SIDE = 192
PIXEL_BYTES = SIDE * SIDE * 3
READY = torch.zeros(3, 224, 224)
READY_LARGE = torch.zeros(3, 768, 768)
READY_TINY = torch.zeros(3, TINY_SIDE, TINY_SIDE)
Augment = Callable[[Any], torch.Tensor]
_AUGMENT: Augment = v2.Compose([v2.RandomResizedCrop(224), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
_AUGMENT_TINY = v2.Compose([v2.RandomResizedCrop(TINY_SIDE), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)])
_OF_FOLDER = transforms.Compose(
    [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
_AUGMENT_TENSOR: Augment = v2.Compose([v2.RandomResizedCrop(224), v2.ToDtype(torch.float32, scale=True)])

Sample = tuple[torch.Tensor, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a sample costs beside reading it, and which resource is removed."""

    count: int
    burn_s: float = 0.0
    wait_s: float = 0.0
    lock: Any = None
    """Held while a sample is read."""
    without: str = ""

    def locked(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.lock is None or self.without == "lock" else self.lock

    def wait(self) -> None:
        if self.wait_s and self.without != "wait":
            time.sleep(self.wait_s)


def burn(seconds: float) -> None:
    """CPU time of the thread, never wall time."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


class Finish:
    """From bytes to a sample."""

    work: Work
    ready = READY
    augment: Augment = _AUGMENT

    def finish(self, data: Any, index: int) -> Sample:
        if self.work.without == "preprocessing":
            return self.ready, index
        burn(self.work.burn_s)
        return self.decode(data), index

    def decode(self, data: Any) -> torch.Tensor:
        return self.augment(Image.open(io.BytesIO(data)).convert("RGB"))


class Pixels(Finish):
    def decode(self, data: Any) -> torch.Tensor:
        pixels = np.array(data, dtype=np.uint8).reshape(SIDE, SIDE, 3)
        return _AUGMENT_TENSOR(torch.from_numpy(pixels).permute(2, 0, 1))


class Samples(Finish, Dataset[Sample]):
    """Map-style: one sample is read, under a lock if there is one, then waited for, then finished."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.folder = folder
        self.work = work

    def __len__(self) -> int:
        return self.work.count

    def __getitem__(self, index: int) -> Sample:
        with self.work.locked():
            data = self.read(index)
        self.work.wait()
        return self.finish(data, index)

    def read(self, index: int) -> Any:
        raise NotImplementedError


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
    ready = READY_TINY
    augment = _AUGMENT_TINY


class FolderFiles(PythonFiles):
    """As torchvision's ImageFolder with the transforms of its examples: small float operations on each sample."""

    augment = _OF_FOLDER


class NativeFiles(PythonFiles):
    """Read and decoded by torchvision's C code."""

    def read(self, index: int) -> Any:
        data = torchvision.io.read_file(self.files[index])
        # It only maps the file: who does not decode it must still touch it.
        return data.clone() if self.work.without == "preprocessing" else data

    def decode(self, data: Any) -> torch.Tensor:
        return _AUGMENT_TENSOR(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))


class LazyFiles(PythonFiles):
    """Image.open(path): the bytes are read while the decoder asks for them."""

    def read(self, index: int) -> Any:
        return super().read(index) if self.work.without == "preprocessing" else self.files[index]

    def decode(self, data: Any) -> torch.Tensor:
        with Image.open(data) as image:
            return _AUGMENT(image.convert("RGB"))


class MappedFiles(PythonFiles):
    def read(self, index: int) -> Any:
        with (
            Path(self.files[index]).open("rb") as opened,
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        ):
            return bytes(mapped)


class LargeSamples(PythonFiles):
    """Each becomes a tensor of 7 MB, as frames of a video do, which is sent for longer than it is made."""

    ready = READY_LARGE

    def decode(self, data: Any) -> torch.Tensor:
        super().decode(data)
        return self.ready


class LockedFiles(PythonFiles):
    """A batch is read under a lock, then finished without it."""

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        with self.work.locked():
            contents = [self.read(index) for index in indices]
        return [self.finish(data, index) for data, index in zip(contents, indices, strict=True)]


class Made(Samples):
    ready = READY_TINY

    def read(self, index: int) -> Any:
        return float(index % 7)

    def decode(self, data: Any) -> torch.Tensor:
        return torch.full((3, TINY_SIDE, TINY_SIDE), data)


class ResizedFiles(LazyFiles):
    """Decoded to the size of a thumbnail."""

    ready = READY_TINY

    def decode(self, data: Any) -> torch.Tensor:
        with Image.open(data) as image:
            small = image.convert("RGB").resize((TINY_SIDE, TINY_SIDE))
        pixels: torch.Tensor = transforms.functional.pil_to_tensor(small).float()
        return pixels


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
    @cached_property
    def handle(self) -> Any:
        return self.open()

    def open(self) -> Any:
        raise NotImplementedError


class BigMap(Pixels, Opened):
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
    def open(self) -> Any:
        import h5py

        return h5py.File(self.folder / "pixels.h5", "r")["pixels"]

    def read(self, index: int) -> Any:
        return self.handle[index]


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


def litdata_of(folder: Path, work: Work) -> Any:
    from litdata import StreamingDataset

    finish = _FinishShard(work)

    class Chunks(StreamingDataset):  # type: ignore[misc]  # litdata has no types
        def __getitem__(self, index: Any) -> Sample:
            return finish(super().__getitem__(index))

    return Chunks(str(folder))


def litdata_loader(dataset: Any, **common: Any) -> Any:
    from litdata import StreamingDataLoader

    return StreamingDataLoader(dataset, **common)


TIMEOUT_S = 30.0


class Remote(Samples):
    """Objects by GET, with the headers of a client of an object store, over a connection in each worker that stays."""

    def __init__(self, folder: Path, work: Work, url: str, how: str) -> None:
        super().__init__(folder, work)
        self.keys = [f"bucket/train/{file.name}" for file in photographs_in(folder)]
        self.url = url
        self.side = "fast" if work.without == "network" else how
        self._client: http.client.HTTPConnection | None = None

    def read(self, index: int) -> Any:
        if self._client is None:
            self._client = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        headers = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ")}
        self._client.request("GET", f"/{self.side}/{self.keys[index]}", headers=headers)
        return self._client.getresponse().read()


class Streamed(Finish, IterableDataset[Sample]):
    """All objects in one response, read one after the other while the next ones come, as shards by URL are."""

    def __init__(self, folder: Path, work: Work, url: str, how: str) -> None:
        self.sizes = [file.stat().st_size for file in photographs_in(folder)]
        self.url = url
        self.side = "fast" if work.without == "network" else how
        self.work = work

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        client = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        client.request("GET", f"/{self.side}/every/{step}/from/{first}")
        response = client.getresponse()
        for index, size in enumerate(part_of_worker(self.sizes)):
            yield self.finish(response.read(size), index)


Access = Literal["file", "stream", "chunks", "random", "none"]


@dataclass(frozen=True, slots=True)
class Reader:
    make: Callable[..., Any]
    """The data set, from its folder and `Work`; a remote one takes the address of its server as well."""
    format: str = "files"
    """Of its folder, as in `WRITERS`; `files` is one file a sample."""
    library: str = "torch"
    iterable: bool = False
    remote: bool = False
    access: Access = "file"
    """A file a sample, with nothing of another in it; shards from begin to end; the same, of which whole
    chunks are read ahead; anywhere in one file; no file."""
    loader: Callable[..., Any] = DataLoader

    def missing(self) -> str:
        """The library that is not installed; empty when nothing is missing."""
        return "" if importlib.util.find_spec(self.library) else self.library


READERS = {
    "python": Reader(PythonFiles),
    "native": Reader(NativeFiles),
    "lazy": Reader(LazyFiles),
    "mmap": Reader(MappedFiles),
    "large": Reader(LargeSamples),
    "locked": Reader(LockedFiles),
    "tiny": Reader(TinyFiles, "tiny"),
    "memmap": Reader(BigMap, "npy", access="random"),
    "lmdb": Reader(Lmdb, "lmdb", "lmdb", access="random"),
    "hdf5": Reader(Hdf5, "hdf5", "h5py", access="random"),
    "arrow": Reader(Arrow, "arrow", "pyarrow", access="random"),
    "sqlite": Reader(Sqlite, "sqlite", access="random"),
    "tar": Reader(TarShards, "shards", iterable=True, access="stream"),
    "webdataset": Reader(webdataset_of, "shards", "webdataset", iterable=True, access="stream"),
    "webloader": Reader(webdataset_of, "shards", "webdataset", iterable=True, access="stream", loader=web_loader),
    "parquet": Reader(Parquet, "parquet", "pyarrow", iterable=True, access="stream"),
    "litdata": Reader(litdata_of, "litdata", "litdata", iterable=True, access="chunks", loader=litdata_loader),
    "http": Reader(partial(Remote, how="10ms"), remote=True),
    "httpfar": Reader(partial(Remote, how="40ms"), remote=True),
    "s3": Reader(partial(Remote, how="20ms"), remote=True),
    "streamed": Reader(partial(Streamed, how="5MBps"), iterable=True, remote=True),
    "imagefolder": Reader(FolderFiles),
    "made": Reader(Made, "nothing", access="none"),
    "resized": Reader(ResizedFiles),
}


def _pixels(count: int) -> np.ndarray[Any, Any]:
    pixels = np.random.default_rng(1).integers(0, 256, count * PIXEL_BYTES, dtype=np.uint8)
    return pixels.reshape(count, SIDE, SIDE, 3)


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


def _image_rows(photographs: Sequence[Path], rows: int, name: str, writer: Callable[[str, Any], Any]) -> None:
    """So many images in a batch of a table with one column."""
    import pyarrow

    schema = pyarrow.schema([("image", pyarrow.binary())])
    with writer(name, schema) as opened:
        for first in range(0, len(photographs), rows):
            images = pyarrow.array([file.read_bytes() for file in photographs[first : first + rows]], pyarrow.binary())
            opened.write_batch(pyarrow.record_batch([images], schema=schema))


def _write_arrow(photographs: Sequence[Path], folder: Path) -> None:
    import pyarrow

    rows = ARROW_ROWS_OF_MANY if len(photographs) >= MANY else ARROW_ROWS
    _image_rows(photographs, rows, str(folder / "images.arrow"), pyarrow.ipc.new_file)


def _write_parquet(photographs: Sequence[Path], folder: Path) -> None:
    from pyarrow.parquet import ParquetWriter

    _image_rows(photographs, PARQUET_ROWS, str(folder / "images.parquet"), ParquetWriter)


def _write_litdata(photographs: Sequence[Path], folder: Path) -> None:
    from litdata.streaming import Cache

    chunks = Cache(str(folder), chunk_size=-(-len(photographs) // SHARDS))
    for index, file in enumerate(photographs):
        chunks[index] = {"jpg": file.read_bytes()}
    chunks.done()
    chunks.merge()


def _write_sqlite(photographs: Sequence[Path], folder: Path) -> None:
    database = sqlite3.connect(folder / "images.sqlite")
    database.execute("create table samples (id integer primary key, image blob)")
    rows = ((index, file.read_bytes()) for index, file in enumerate(photographs))
    database.executemany("insert into samples values (?, ?)", rows)
    database.commit()
    database.close()


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


WRITERS: dict[str, Callable[[Sequence[Path], Path], None]] = {
    "files": _write_files,
    "npy": _write_npy,
    "lmdb": _write_lmdb,
    "hdf5": _write_hdf5,
    "arrow": _write_arrow,
    "parquet": _write_parquet,
    "litdata": _write_litdata,
    "sqlite": _write_sqlite,
    "shards": _write_shards,
    "tiny": _write_tiny,
    "nothing": lambda photographs, folder: None,
}
"""Each writes a folder from the photographs."""


def folder_of(kind: str, samples: int) -> str:
    return f"{kind}-{samples}"


def write_format(kind: str, samples: int, photographs: Sequence[Path], root: Path) -> None:
    """So many samples, from the photographs over and over."""
    folder = root / folder_of(kind, samples)
    folder.mkdir()
    WRITERS[kind](list(islice(cycle(photographs), samples)), folder)


def copy_folders(names: Sequence[str], source: Path, disk: Path) -> None:
    for name in names:
        shutil.copytree(source / name, disk / name)


READ_AHEAD_KB = (128, 2560, 8192)
"""Linux's default, that of a RAID of a few disks, and that of some cloud volumes and devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    kind: Literal["token_bucket", "single_server", "latency", "own"] = "token_bucket"
    bytes_per_s: float = 0.0
    read_ahead_kb: int | None = None
    """None for what Linux reads ahead by default."""


DISKS = {
    "bucket6": Disk(bytes_per_s=6e6),
    "bucket16": Disk(bytes_per_s=16e6),
    "bucket20": Disk(bytes_per_s=20e6),
    "single16": Disk(kind="single_server", bytes_per_s=16e6),
    "latency": Disk(kind="latency"),
    "fast": Disk(kind="own"),
    **{f"bucket20ra{kb}": Disk(bytes_per_s=20e6, read_ahead_kb=kb) for kb in READ_AHEAD_KB},
}
SMALL_SAMPLES = 832
"""Of a set that read-ahead soon brings into memory: 90 MB."""
LARGE_SAMPLES = 8320
"""Of a copy in which samples can be drawn that nothing else's read-ahead serves: 900 MB."""

Start = Literal["fork", "spawn", "forkserver"]
Step = Literal["none", "sleep", "conv", "train"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One loader on one disk with one step."""

    disk: str
    reader: str
    workers: int
    burn_ms: float = 0.0
    """CPU time a sample, beside decoding."""
    wait_ms: float = 0.0
    """Slept in each sample."""
    lock: bool = False
    """Another process holds it most of the time."""
    start: Start = "fork"
    step: Step = "none"
    step_ms: float = 0.0
    """Of a batch: slept, or times the first layer's width for `conv`; `train` sleeps and trains a small layer."""
    order: Literal["shuffled", "replacement"] = "shuffled"
    texts: tuple[str, ...] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        return "-".join((self.disk, self.reader, f"n{self.workers}", *self.texts))

    @property
    def format(self) -> str:
        return READERS[self.reader].format

    @property
    def samples(self) -> int:
        if self.reader == "tiny":
            return TINY_FILES
        return SMALL_SAMPLES if DISKS[self.disk].read_ahead_kb else PHOTOGRAPHS

    @property
    def folder(self) -> str:
        return folder_of(self.format, self.samples)

    @property
    def large_folder(self) -> str:
        """With the larger copy that the truth is measured on; empty where read-ahead serves no other sample."""
        large = READERS[self.reader].access == "random" and self.disk != "fast"
        return folder_of(self.format, LARGE_SAMPLES) if large else ""

    @property
    def remote(self) -> bool:
        return READERS[self.reader].remote

    @property
    def on_files(self) -> bool:
        return not self.remote and READERS[self.reader].access != "none"

    @property
    def drivers(self) -> tuple[str, ...]:
        """`run` attaches to a loop that trains a model."""
        return ("diagnose", "run") if self.step == "train" else ("diagnose",)

    @property
    def budget_s(self) -> float:
        return 30.0 if len(self.drivers) == 1 else 12.0

    @property
    def resources(self) -> tuple[str, ...]:
        """What can be removed from it."""
        there = {
            "storage": self.on_files,
            "network": self.remote,
            "preprocessing": True,
            "transport": self.reader == "large",
            "lock": self.lock,
            "wait": bool(self.wait_ms),
            "compute": self.step != "none",
        }
        return tuple(name for name, is_there in there.items() if is_there)


def _row(line: str) -> Row:
    disk, reader, workers, *texts = line.split()
    given: dict[str, object] = {}
    for text in texts:
        key, _, value = text.rpartition("=")
        if key in ("burn", "wait"):
            given[f"{key}_ms"] = float(value)
        elif key in ("sleep", "conv", "train"):
            given |= {"step": key, "step_ms": float(value)}
        elif value == "lock":
            given["lock"] = True
        else:
            given["order" if value == "replacement" else "start"] = value
    words = tuple(text.replace("=", "") for text in texts)
    return Row(disk=disk, reader=reader, workers=int(workers), texts=words, **given)  # type: ignore[arg-type]


_AS_LINUX_DOES = """\
bucket16 python     0
bucket16 python     1
bucket16 python     2
bucket16 python     4
bucket16 python     2 spawn
bucket16 python     2 forkserver
bucket16 python     2 replacement
bucket16 native     2
bucket16 lazy       2
bucket16 mmap       2
bucket16 lmdb       2
bucket16 hdf5       2
bucket16 arrow      2
bucket16 tar        2
bucket16 webdataset 2
bucket16 sqlite     2
bucket16 python     2 sleep=20
bucket16 lmdb       2 sleep=150
bucket16 tar        2 sleep=150
bucket16 hdf5       2 sleep=20
bucket16 sqlite     2 sleep=20
bucket16 sqlite     2 conv=16
bucket16 python     0 burn=6
bucket6  native     0
bucket6  memmap     2
bucket6  lmdb       4
bucket6  arrow      1 sleep=20
bucket6  python     0 sleep=50
bucket20 python     1 burn=25
bucket20 native     2 burn=25
bucket20 lmdb       2 burn=25
bucket20 arrow      1 burn=25
bucket20 tar        2 burn=25
bucket20 sqlite     0 burn=25
bucket20 python     2 sleep=43
bucket20 litdata    2
bucket16 large      2 sleep=20
single16 python     4
single16 python     1 burn=6
single16 python     2 sleep=20
single16 lazy       2
latency  python     1
latency  native     2
latency  hdf5       2
latency  memmap     1
latency  python     2 burn=60
latency  python     2 burn=10
fast     large      1
fast     large      2
fast     large      2 sleep=20
fast     python     0 burn=10
fast     lazy       2 sleep=100
fast     python     0 sleep=100
fast     http       1
fast     http       2
fast     http       4
fast     http       2 burn=60
fast     httpfar    2
fast     httpfar    2 sleep=50
fast     httpfar    2 conv=16
fast     s3         2
fast     s3         0
fast     s3         2 sleep=150
fast     streamed   1
fast     streamed   1 burn=60
fast     locked     2 lock
fast     python     2 wait=20
fast     native     0 wait=20
fast     python     2 burn=30 conv=32
fast     memmap     2 conv=64
fast     native     2 burn=4 conv=16
fast     imagefolder 0
fast     made       0 burn=6 train=2
fast     made       1 burn=6 train=2
fast     made       2 burn=6 train=2
fast     made       0 burn=2 train=2
fast     made       1 burn=3 train=10
fast     made       0 burn=0.1 train=100
fast     made       1 burn=0.5 train=50
fast     made       2 burn=1 train=60
fast     made       0 burn=0.2 train=30
fast     made       0 wait=10 train=2
fast     made       2 wait=8 train=2
bucket6  resized    0 train=2
bucket6  resized    2 train=10
bucket6  resized    2 train=200
"""
_READ_AHEAD = """\
python    2
arrow     2
memmap    2
hdf5      2
sqlite    0
tar       2
webloader 2
parquet   2
tiny      2
"""
ROWS = (
    *(_row(line) for line in _AS_LINUX_DOES.splitlines()),
    *(_row(f"bucket20ra{kb} {line}") for kb in READ_AHEAD_KB for line in _READ_AHEAD.splitlines()),
)

STEP_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a row finds its data."""

    folder: Path
    """Holds the row's format."""
    large: Path | None = None
    """Holds it once more, with many more samples."""
    url: str = ""
    lock: Any = None


@contextmanager
def source_of(row: Row, disk: Path, url: str) -> Iterator[Source]:
    """On this disk, with the lock held by someone, while it is used."""
    folder, large = disk / row.folder, disk / row.large_folder if row.large_folder else None
    with held_lock() if row.lock else nullcontext() as lock:
        yield Source(folder=folder, large=large, url=url, lock=lock)


def make_loader(row: Row, source: Source, without: str = "", distance: int = 0) -> Any:
    """As anyone would write it; for the truth without one resource, or with samples of the large copy so far apart."""
    folder = source.large if distance and source.large else source.folder
    work = Work(
        count=LARGE_SAMPLES if distance else row.samples, burn_s=row.burn_ms / 1e3, wait_s=row.wait_ms / 1e3,
        lock=source.lock, without=without,
    )  # fmt: skip
    common: dict[str, Any] = {"num_workers": row.workers, "multiprocessing_context": row.start if row.workers else None}
    reader = READERS[row.reader]
    dataset = reader.make(folder, work, *([source.url] if reader.remote else []))
    if without == "transport":
        common["collate_fn"] = their_number
    if distance:
        common["sampler"] = far_apart(LARGE_SAMPLES, distance)
    elif row.order == "replacement":
        common["sampler"] = RandomSampler(dataset, replacement=True, num_samples=row.samples)
    elif not reader.iterable:
        common["shuffle"] = True
    return reader.loader(dataset, batch_size=BATCH_SIZE, **common)


def their_number(samples: Sequence[Sample]) -> torch.Tensor:
    """Of a batch, which stays in the worker."""
    return torch.empty(len(samples))


def far_apart(count: int, distance: int) -> list[int]:
    """All indices, first those that are at least so far apart, then those halfway between, and so on; each in turn.

    A loader that reads ahead is too slow to get past the first in a timed part; one that does not needs more of them.
    """
    distance = 1 << (distance - 1).bit_length()
    begin, order = int(torch.randint(distance, ())), dict[int, None]()
    while distance:
        indices = torch.arange(begin % distance, count, distance)
        order |= dict.fromkeys(index for index in indices[torch.randperm(len(indices))].tolist() if index not in order)
        distance //= 2
    return list(order)


def make_step(row: Row) -> Callable[[Any], Any] | None:
    """An accelerator that is waited for, or a real step that shares the cores; None for the loader alone."""
    seconds, width = row.step_ms / 1e3, int(row.step_ms)
    if row.step == "none":
        return None
    if row.step == "sleep":
        return lambda batch: time.sleep(seconds)
    torch.set_num_threads(1 if row.step == "train" else STEP_THREADS)
    model = nn.Linear(10, 1) if row.step == "train" else nn.Sequential(
        nn.Conv2d(3, width, 7, stride=4), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        images, numbers = batch
        optimizer.zero_grad()
        if row.step == "train":
            time.sleep(seconds)
            loss = model(images[:, 0, 0, :10]).sum()
        else:
            loss = nn.functional.cross_entropy(model(images), numbers % 10)
        loss.backward()
        optimizer.step()

    return step

"""The readers of `waits`: the data set of each, what its files look like, and the library that it takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch.utils.data import DataLoader

from scripts.benches.waits_formats import (
    Arrow,
    BigMap,
    Hdf5,
    Hdf5Each,
    Lmdb,
    Parquet,
    Sqlite,
    TarShards,
    Zarr,
    web_loader,
    webdataset_of,
)
from scripts.benches.waits_remote import S3, HttpRequests, S3Narrow, SlowHttp
from scripts.benches.waits_samples import (
    AheadFiles,
    CachedFiles,
    CvFiles,
    FolderFiles,
    LazyFiles,
    LockedFiles,
    MappedFiles,
    NativeFiles,
    PooledFiles,
    PythonFiles,
    TinyFiles,
)
from scripts.benches.waits_texts import Texts

Access = Literal["file", "stream", "random"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A way to read samples."""

    make: Callable[..., Any]
    """The data set, from its folder and `Work`; a remote one takes the address of its server as well."""
    format: str = "files"
    """Of its folder, as in `waits_formats.WRITERS`; `files` is one file a sample."""
    library: str = "torch"
    iterable: bool = False
    remote: bool = False
    access: Access = "file"
    """A file a sample, with nothing of another sample in it; shards from begin to end; or anywhere in one file."""
    loader: Callable[..., Any] = DataLoader

    def missing(self) -> str:
        """The library that is not installed; empty when nothing is missing."""
        return "" if importlib.util.find_spec(self.library) else self.library


READERS = {
    "python": Reader(PythonFiles),
    "native": Reader(NativeFiles),
    "cv2": Reader(CvFiles, library="cv2"),
    "lazy": Reader(LazyFiles),
    "mmap": Reader(MappedFiles),
    "pool": Reader(PooledFiles),
    "ahead": Reader(AheadFiles, iterable=True),
    "cached": Reader(CachedFiles),
    "locked": Reader(LockedFiles),
    "tiny": Reader(TinyFiles, "tiny"),
    "memmap": Reader(BigMap, "npy", access="random"),
    "lmdb": Reader(Lmdb, "lmdb", "lmdb", access="random"),
    "hdf5": Reader(Hdf5, "hdf5", "h5py", access="random"),
    "hdf5each": Reader(Hdf5Each, "hdf5", "h5py", access="random"),
    "arrow": Reader(Arrow, "arrow", "pyarrow", access="random"),
    "sqlite": Reader(Sqlite, "sqlite", access="random"),
    "zarr": Reader(Zarr, "zarr", "zarr"),
    "tar": Reader(TarShards, "shards", iterable=True, access="stream"),
    "webdataset": Reader(webdataset_of, "shards", "webdataset", iterable=True, access="stream"),
    "webloader": Reader(webdataset_of, "shards", "webdataset", iterable=True, access="stream", loader=web_loader),
    "parquet": Reader(Parquet, "parquet", "pyarrow", iterable=True, access="stream"),
    "text": Reader(Texts, "tokens"),
    "http": Reader(HttpRequests, library="requests", remote=True),
    "httpfar": Reader(SlowHttp, library="requests", remote=True),
    "s3": Reader(S3, remote=True),
    "s3narrow": Reader(S3Narrow, remote=True),
    "imagefolder": Reader(FolderFiles),
}

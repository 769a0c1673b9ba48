"""The readers of `waits`: the data set of each, what its files look like, and the library that it takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scripts.benches.waits_formats import (
    Arrow,
    BigMap,
    Hdf5,
    Hdf5Each,
    Lmdb,
    Sqlite,
    TarShards,
    Zarr,
    webdataset_of,
)
from scripts.benches.waits_remote import S3, HttpRequests, S3Narrow
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
)
from scripts.benches.waits_texts import Texts


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
    "memmap": Reader(BigMap, "npy"),
    "lmdb": Reader(Lmdb, "lmdb", "lmdb"),
    "hdf5": Reader(Hdf5, "hdf5", "h5py"),
    "hdf5each": Reader(Hdf5Each, "hdf5", "h5py"),
    "arrow": Reader(Arrow, "arrow", "pyarrow"),
    "sqlite": Reader(Sqlite, "sqlite"),
    "zarr": Reader(Zarr, "zarr", "zarr"),
    "tar": Reader(TarShards, "shards", iterable=True),
    "webdataset": Reader(webdataset_of, "shards", "webdataset", iterable=True),
    "text": Reader(Texts, "tokens"),
    "http": Reader(HttpRequests, library="requests", remote=True),
    "s3": Reader(S3, remote=True),
    "s3narrow": Reader(S3Narrow, remote=True),
    "imagefolder": Reader(FolderFiles),
}

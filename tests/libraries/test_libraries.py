"""Loaders of other libraries: map-style on their formats, iterable, resumable, wrapped, and without a DataLoader.

Each way makes a loader from the modules that it asks for, a place and a number of workers; its row is one of the guide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.api.samples import Shared
from tests.libraries import data
from tests.libraries.conftest import Tried
from tests.libraries.data import BATCH, COUNT, Read, images
from tests.said import all_said

WHY = "scripts/bench libraries installs it"
Make = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Place:
    """What a loader is made of."""

    photos: list[str]
    folder: Path
    workers: int

    def plain(self, dataset: Callable[[], Any], **options: Any) -> Make:
        return lambda: DataLoader(dataset(), **{"batch_size": BATCH, "num_workers": self.workers, **options})

    def shuffled(self, dataset: Callable[[], Any], **options: Any) -> Make:
        return self.plain(dataset, shuffle=True, **options)

    def read(self, opened: Callable[[], Any], read: Callable[[Any, int], Any] = data.item, **options: Any) -> Make:
        """Shuffled; `read` makes a sample of what `opened` gives, and a number."""
        return self.shuffled(lambda: Read(opened, read), **options)

    def images(self) -> Any:
        torchvision = pytest.importorskip("torchvision", reason=WHY)
        return torchvision.datasets.ImageFolder(Path(self.photos[0]).parents[1], torchvision.transforms.ToTensor())


@dataclass(frozen=True, slots=True)
class Way:
    """How to make a loader, and what must hold of its diagnosis."""

    library: str
    how: str
    modules: tuple[str, ...]
    make: Callable[..., Make]
    """Of the modules and a place."""
    _: KW_ONLY
    workers: tuple[int, ...] = (0, 2)
    cold: bool = False
    says: str = ""
    """A note says so; empty where none says that something was left out."""


def memmap(place: Place) -> Make:
    path = place.folder / "images.npy"
    np.save(path, images())
    return place.read(lambda: np.load(path, mmap_mode="r"), lambda held, number: np.array(held[number]))


def safetensors_slice(safetensors: Any, place: Place) -> Make:
    path = place.folder / "images.safetensors"
    safetensors.save_file({"images": torch.from_numpy(images())}, path)
    return place.read(lambda: safetensors.safe_open(path, "pt").get_slice("images"))


def sqlite(place: Place) -> Make:
    path = data.database(place.folder / "images.db")
    return place.read(lambda: sqlite3.connect(path), data.from_database)


def lmdb_cursor(lmdb: Any, place: Place) -> Make:
    pixels, path = images(), str(place.folder / "images.lmdb")
    with lmdb.open(path, map_size=2**24) as base, base.begin(write=True) as writing:
        for number in range(COUNT):
            writing.put(str(number).encode(), data.encoded(number, pixels))

    def opened() -> Any:
        return lmdb.open(path, readonly=True, lock=False).begin(buffers=False)

    return place.read(opened, lambda held, number: data.decoded(held.get(str(number).encode())))


def hdf5(h5py: Any, place: Place) -> Make:
    path = place.folder / "images.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images(), chunks=(1, *data.SHAPE), compression="gzip")
    return place.read(lambda: h5py.File(path)["images"])


def zarr_chunks(zarr: Any, place: Place) -> Make:
    path = str(place.folder / "images.zarr")
    made = zarr.open(path, mode="w", shape=(COUNT, *data.SHAPE), chunks=(1, *data.SHAPE), dtype="u1")
    made[:] = images()
    context: dict[str, Any] = {"multiprocessing_context": "forkserver"} if place.workers else {}
    return place.read(partial(data.open_zarr, path), **context)


def _hugging_face(datasets: Any) -> Any:
    return datasets.Dataset.from_dict({"image": list(images()), "label": list(range(COUNT))})


def arrow(datasets: Any, place: Place) -> Make:
    path = str(place.folder / "arrow")
    _hugging_face(datasets).save_to_disk(path)
    return place.shuffled(lambda: datasets.load_from_disk(path).with_format("torch"))


def _web(wds: Any, place: Place) -> Any:
    dataset = wds.WebDataset(data.shards(place.folder), shardshuffle=False, empty_check=False)
    return dataset.compose(wds.detshuffle(8, seed=1)).decode("torchrgb").to_tuple("jpg", "cls").batched(BATCH)


def web_loader(wds: Any, place: Place) -> Make:
    return lambda: wds.WebLoader(_web(wds, place), batch_size=None, num_workers=place.workers)


def web_loader_that_puts_batches_together_again(wds: Any, place: Place) -> Make:
    inner = web_loader(wds, place)
    return lambda: inner().unbatched().compose(wds.detshuffle(8, seed=1)).batched(BATCH)


def iterable(datasets: Any, place: Place, shards: int = 4) -> Make:
    return place.plain(lambda: _hugging_face(datasets).to_iterable_dataset(num_shards=shards).with_format("torch"))


def mosaic(streaming: Any, place: Place) -> Make:
    local, columns = str(place.folder / "mds"), {"image": "ndarray:uint8", "label": "int"}
    with streaming.MDSWriter(out=local, columns=columns, size_limit=2**14) as out:
        for number, image in enumerate(images()):
            out.write({"image": image, "label": number})

    def make() -> Any:
        streaming.base.util.clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(local=local, shuffle=True, batch_size=BATCH)
        assert dataset.next_epoch == 0
        return place.plain(lambda: dataset)()

    return make


def lit(litdata: Any, place: Place) -> Make:
    folder = str(place.folder / "lit")
    writer = litdata.streaming.writer.BinaryWriter(folder, chunk_size=8)
    for number, image in enumerate(images()):
        writer[number] = {"image": image.copy(), "label": number}
    writer.done()
    writer.merge()

    def make() -> Any:
        dataset = litdata.StreamingDataset(folder, shuffle=True, seed=1)
        return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=place.workers)

    return make


def stateful_loader(stateful: Any, place: Place) -> Make:
    def make() -> Any:
        loader = stateful.StatefulDataLoader(place.images(), batch_size=BATCH, shuffle=True, num_workers=place.workers)
        loader.state_dict()
        return loader

    return make


def _accelerated(accelerate: Any, inner: Make, **settings: Any) -> Make:
    asked = accelerate.DataLoaderConfiguration(**settings)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=asked)

    def make() -> Any:
        assert accelerator.gradient_state.active_dataloader is None, "none is left in the state of gradients"
        return accelerator.prepare(inner())

    return make


def dispatcher(accelerate: Any, place: Place) -> Make:
    return _accelerated(accelerate, place.plain(lambda: _Images(sorted(place.photos))), dispatch_batches=True)


class _Images(Shared):
    """Iterable over JPEG files."""

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        for path in self.paths[info.id :: info.num_workers] if info else self.paths:
            yield torch.tensor(list(Path(path).read_bytes()[:300]))


class _Model(torch.nn.Module):
    """Takes what the collator gives."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (x.mean() * self.weight).sum()}


def trainer(transformers: Any, place: Place) -> Make:
    options: dict[str, Any] = {"per_device_train_batch_size": BATCH, "dataloader_num_workers": place.workers}
    asked = transformers.TrainingArguments(str(place.folder), use_cpu=True, report_to=[], **options)

    def make() -> Any:
        given = transformers.Trainer(model=_Model(), args=asked, train_dataset=data.Dicts(place.images()))
        return given.get_train_dataloader()

    return make


def fabric(lightning: Any, place: Place) -> Make:
    made, inner = lightning.Fabric(accelerator="cpu", devices=1), place.shuffled(place.images)
    return lambda: made.setup_dataloaders(inner())


def prefetch_loader(timm: Any, place: Place) -> Make:
    inner = place.shuffled(place.images)
    return lambda: timm.PrefetchLoader(inner(), device=torch.device("cpu"))


def _kept(place: Place) -> dict[str, Any]:
    """Options of a loader of timm, which keeps its workers."""
    return {"batch_size": BATCH, "num_workers": place.workers, "persistent_workers": bool(place.workers)}


def multi_epochs_loader(timm: Any, place: Place) -> Make:
    return lambda: timm.MultiEpochsDataLoader(place.images(), shuffle=True, **_kept(place))


def create_loader(timm: Any, place: Place) -> Make:
    options = {"input_size": (3, 16, 16), "is_training": True, "use_multi_epochs_loader": True, **_kept(place)}
    root = str(Path(place.photos[0]).parents[1])
    return lambda: timm.create_loader(timm.create_dataset("", root), device=torch.device("cpu"), **options)


def _decoded(path: str) -> torch.Tensor:
    return data.decoded(Path(path).read_bytes())


def generator_function(place: Place) -> Make:
    class Batches:
        def __iter__(self) -> Any:
            for first in range(0, COUNT, BATCH):
                yield torch.stack([_decoded(path) for path in place.photos[first : first + BATCH]])

    return Batches


def nodes(tn: Any, place: Place) -> Make:
    def make() -> Any:
        read = tn.ParallelMapper(tn.IterableWrapper(place.photos), _decoded, num_workers=place.workers, method="thread")
        batches = tn.Mapper(tn.Batcher(read, BATCH), torch.stack)
        return tn.Loader(tn.Prefetcher(batches, 4) if place.workers else batches)

    return make


def spdl_loader(spdl: Any, place: Place) -> Make:
    work: dict[str, Any] = {"preprocessor": _decoded, "aggregator": torch.stack, "output_order": "input"}
    return lambda: spdl.DataLoader(place.photos, batch_size=BATCH, num_threads=place.workers, **work)


def grain_threads(grain: Any, place: Place) -> Make:
    samples = grain.MapDataset.source(sorted(place.photos)).map(_as_array).batch(BATCH)
    return lambda: samples.to_iter_dataset(grain.ReadOptions(num_threads=place.workers))


def _as_array(path: str) -> Any:
    return _decoded(path).numpy()


def combined_loader(combined: Any, place: Place) -> Make:
    first, second = place.plain(place.images), place.plain(place.images)
    return lambda: combined.CombinedLoader({"first": first(), "second": second()}, "min_size")


ITSELF = "is no DataLoader that can be copied"
WAYS = (
    # Map-style data sets on other libraries' formats and readers. Some open files in C, in Python, or map them.
    Way(
        "opencv-python-headless", "cv2.imread", ("cv2",),
        lambda cv2, place: place.read(lambda: 0, lambda _, number: cv2.imread(place.photos[number])),
    ),
    Way(
        "torchvision", "read_file", ("torchvision.io",),
        lambda io, place: place.read(lambda: 0, lambda _, number: io.decode_jpeg(io.read_file(place.photos[number]))),
    ),
    Way("torchvision", "ImageFolder", (), lambda place: place.shuffled(place.images), cold=True),
    Way("numpy", "memmap", (), memmap),
    Way("safetensors", "slice", ("safetensors.torch",), safetensors_slice),
    Way("", "sqlite3", (), sqlite),
    Way("lmdb", "", ("lmdb",), lmdb_cursor),
    Way("h5py", "", ("h5py",), hdf5),
    # Reads one file a chunk, in threads of its own; those do not survive a fork.
    Way("zarr", "", ("zarr",), zarr_chunks),
    Way("datasets", "Arrow, map-style", ("datasets",), arrow),
    # Iterable data sets, and loaders that can be resumed.
    Way(
        "webdataset", "DataLoader", ("webdataset",),
        lambda wds, place: place.plain(lambda: _web(wds, place), batch_size=None),
    ),
    # A DataLoader as the first and only stage of a pipeline; with others, the DataLoader inside is measured.
    Way("webdataset", "WebLoader", ("webdataset",), web_loader),
    Way(
        "webdataset", "WebLoader.unbatched().shuffle().batched()", ("webdataset",),
        web_loader_that_puts_batches_together_again, says="pipeline[0], which is measured",
    ),
    # As many shards as workers, or more. With one it trains with one; so it is measured with one.
    Way("datasets", "iterable", ("datasets",), iterable),
    Way(
        "datasets", "iterable, one shard on two workers", ("datasets",),
        lambda datasets, place: iterable(datasets, place, 1),
        workers=(2,), says="workers without data: 1 of 2; measured with 1 worker",
    ),
    # Its epoch is counted in shared memory, and is the first again.
    Way("mosaicml-streaming", "StreamingDataset", ("streaming",), mosaic),
    # A loader of its own, with iterators of its own.
    Way("litdata", "StreamingDataLoader", ("litdata",), lit),
    # Its state goes on from where it was.
    Way("torchdata", "StatefulDataLoader", ("torchdata.stateful_dataloader",), stateful_loader, cold=True),
    # What wraps a DataLoader, with work of its own: moves or normalises batches, or keeps one iterator for all epochs.
    Way(
        "accelerate", "DataLoaderShard", ("accelerate",),
        lambda accelerate, place: _accelerated(accelerate, place.shuffled(place.images)), cold=True,
    ),
    Way(
        "accelerate", "stateful DataLoaderShard", ("accelerate", "torchdata"),
        lambda accelerate, _, place: _accelerated(
            accelerate, place.shuffled(place.images), use_stateful_dataloader=True
        ), cold=True,
    ),
    # As iterable data sets get it.
    Way("accelerate", "DataLoaderDispatcher", ("accelerate",), dispatcher),
    Way("transformers", "Trainer.get_train_dataloader()", ("transformers",), trainer, cold=True),
    Way("lightning", "Fabric", ("lightning.fabric",), fabric, cold=True),
    Way("timm", "PrefetchLoader", ("timm.data.loader",), prefetch_loader, cold=True),
    Way("timm", "MultiEpochsDataLoader", ("timm.data.loader",), multi_epochs_loader, cold=True),
    # Both, as its training script makes them.
    Way("timm", "create_loader(use_multi_epochs_loader=True)", ("timm.data",), create_loader, cold=True),
    # Iterables without a DataLoader, or with several: they are iterated themselves, and begin again with each epoch.
    Way("", "a generator function", (), generator_function, workers=(0,), says=ITSELF),
    # These have threads of their own where they have workers.
    Way("torchdata", "nodes", ("torchdata.nodes",), nodes, says=ITSELF),
    Way("spdl", "DataLoader", ("spdl.dataloader",), spdl_loader, workers=(2,), says=ITSELF),
    Way("grain", "MapDataset.to_iter_dataset", ("grain",), grain_threads, says=ITSELF),
    Way(
        "lightning", "CombinedLoader of two", ("lightning.pytorch.utilities.combined_loader",), combined_loader,
        says=ITSELF,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("way", "workers"),
    [pytest.param(way, workers, id=f"{way.library} {way.how} {workers}") for way in WAYS for workers in way.workers],
)
def test_a_library_is_diagnosed(way: Way, workers: int, tried: Tried, photos: list[str], tmp_path: Path) -> None:
    """And gives the samples that it gave without, in each of two epochs."""
    modules = [pytest.importorskip(name, reason=WHY) for name in way.modules]
    make = way.make(*modules, Place(photos, tmp_path, workers))
    found = tried(make, way.library, f"{way.how}, {workers} workers".removeprefix(", "))
    notes = all_said(found.detail.notes)
    if way.says:
        assert any(way.says in note for note in notes)
    elif way.cold or way.how == "WebLoader":
        assert not any("left out" in note for note in notes)
    assert found.row.config.cache == "cold" or not way.cold

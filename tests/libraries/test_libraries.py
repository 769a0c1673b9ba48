"""Loaders of other libraries: map-style on their formats, iterable, resumable, wrapped, and without a DataLoader.

Each way makes a loader from the modules that it asks for, a place and a number of workers; its row is one of the guide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
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

    def images(self) -> Any:
        torchvision = pytest.importorskip("torchvision", reason=WHY)
        return torchvision.datasets.ImageFolder(Path(self.photos[0]).parents[1], torchvision.transforms.ToTensor())


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How to make a loader, and what must hold of its diagnosis."""

    library: str
    how: str
    modules: tuple[str, ...]
    make: Callable[..., Make]
    workers: tuple[int, ...]
    cold: bool
    says: str
    """A note says so; empty where none says that something was left out."""


WAYS: list[Way] = []


def way(
    library: str, how: str, *modules: str, workers: tuple[int, ...] = (0, 2), cold: bool = False, says: str = ""
) -> Callable[[Callable[..., Make]], Callable[..., Make]]:
    """Adds a way; the function takes the modules and a place, and gives what makes the loader."""

    def add(make: Callable[..., Make]) -> Callable[..., Make]:
        WAYS.append(Way(library=library, how=how, modules=modules, make=make, workers=workers, cold=cold, says=says))
        return make

    return add


# Map-style data sets on other libraries' formats and readers.


@way("opencv-python-headless", "cv2.imread", "cv2")
def cv2_imread(cv2: Any, place: Place) -> Make:
    """Opens files in C."""
    return place.shuffled(lambda: Read(lambda: 0, lambda _, number: cv2.imread(place.photos[number])))


@way("torchvision", "read_file", "torchvision")
def read_file(torchvision: Any, place: Place) -> Make:
    """Opens files in C."""
    io = torchvision.io
    return place.shuffled(lambda: Read(lambda: 0, lambda _, number: io.decode_jpeg(io.read_file(place.photos[number]))))


@way("torchvision", "ImageFolder", cold=True)
def image_folder(place: Place) -> Make:
    """Opens files in Python."""
    return place.shuffled(place.images)


@way("numpy", "memmap")
def memmap(place: Place) -> Make:
    """Maps a file into memory."""
    path = place.folder / "images.npy"
    np.save(path, images())
    return place.shuffled(lambda: Read(lambda: np.load(path, mmap_mode="r"), lambda held, n: np.array(held[n])))


@way("safetensors", "slice", "safetensors.torch")
def safetensors_slice(safetensors: Any, place: Place) -> Make:
    """Maps a file into memory."""
    path = place.folder / "images.safetensors"
    safetensors.save_file({"images": torch.from_numpy(images())}, path)
    return place.shuffled(
        lambda: Read(lambda: safetensors.safe_open(path, "pt").get_slice("images"), lambda held, n: held[n])
    )


@way("", "sqlite3")
def sqlite(place: Place) -> Make:
    """Reads pages of one file in C."""
    path = data.database(place.folder / "images.db")
    return place.shuffled(lambda: Read(lambda: sqlite3.connect(path), data.from_database))


@way("lmdb", "", "lmdb")
def lmdb_cursor(lmdb: Any, place: Place) -> Make:
    """Maps one file into memory."""
    pixels, path = images(), str(place.folder / "images.lmdb")
    with lmdb.open(path, map_size=2**24) as base, base.begin(write=True) as writing:
        for number in range(COUNT):
            writing.put(str(number).encode(), data.encoded(number, pixels))

    def opened() -> Any:
        return lmdb.open(path, readonly=True, lock=False).begin(buffers=False)

    return place.shuffled(lambda: Read(opened, lambda held, number: data.decoded(held.get(str(number).encode()))))


@way("h5py", "", "h5py")
def hdf5(h5py: Any, place: Place) -> Make:
    """Reads parts of one file in C."""
    path = place.folder / "images.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images(), chunks=(1, *data.SHAPE), compression="gzip")
    return place.shuffled(lambda: Read(lambda: h5py.File(path)["images"], lambda held, n: held[n]))


@way("zarr", "", "zarr")
def zarr_chunks(zarr: Any, place: Place) -> Make:
    """Reads one file a chunk, in threads of its own; those do not survive a fork."""
    path = str(place.folder / "images.zarr")
    made = zarr.open(path, mode="w", shape=(COUNT, *data.SHAPE), chunks=(1, *data.SHAPE), dtype="u1")
    made[:] = images()
    context = {"multiprocessing_context": "forkserver"} if place.workers else {}
    return place.shuffled(lambda: Read(data.OpenZarr(path), data.item), **context)


def _hugging_face(datasets: Any) -> Any:
    return datasets.Dataset.from_dict({"image": list(images()), "label": list(range(COUNT))})


@way("datasets", "Arrow, map-style", "datasets")
def arrow(datasets: Any, place: Place) -> Make:
    """Maps Arrow files into memory."""
    path = str(place.folder / "arrow")
    _hugging_face(datasets).save_to_disk(path)
    return place.shuffled(lambda: datasets.load_from_disk(path).with_format("torch"))


# Iterable data sets, and loaders that can be resumed.


def _web(wds: Any, place: Place) -> Any:
    dataset = wds.WebDataset(data.shards(place.folder), shardshuffle=False, empty_check=False)
    return dataset.compose(wds.detshuffle(8, seed=1)).decode("torchrgb").to_tuple("jpg", "cls").batched(BATCH)


@way("webdataset", "DataLoader", "webdataset")
def web_in_a_plain_loader(wds: Any, place: Place) -> Make:
    """Reads tar files from end to end."""
    return place.plain(lambda: _web(wds, place), batch_size=None)


@way("webdataset", "WebLoader", "webdataset")
def web_loader(wds: Any, place: Place) -> Make:
    """A DataLoader as the first and only stage of a pipeline."""
    return lambda: wds.WebLoader(_web(wds, place), batch_size=None, num_workers=place.workers)


@way("webdataset", "WebLoader.unbatched().shuffle().batched()", "webdataset", says="pipeline[0], which is measured")
def web_loader_that_puts_batches_together_again(wds: Any, place: Place) -> Make:
    """The DataLoader inside is measured, and a note says so."""
    inner = web_loader(wds, place)
    return lambda: inner().unbatched().compose(wds.detshuffle(8, seed=1)).batched(BATCH)


@way("datasets", "iterable", "datasets")
def iterable(datasets: Any, place: Place, shards: int = 4) -> Make:
    """As many shards as workers, or more."""
    return place.plain(lambda: _hugging_face(datasets).to_iterable_dataset(num_shards=shards).with_format("torch"))


@way(
    "datasets",
    "iterable, one shard on two workers",
    "datasets",
    workers=(2,),
    says="workers without data: 1 of 2; measured with 1 worker",
)
def one_shard(datasets: Any, place: Place) -> Make:
    """It trains with one; so it is measured with one."""
    return iterable(datasets, place, 1)


@way("mosaicml-streaming", "StreamingDataset", "streaming")
def mosaic(streaming: Any, place: Place) -> Make:
    """Its epoch is counted in shared memory, and is the first again."""
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


@way("litdata", "StreamingDataLoader", "litdata")
def lit(litdata: Any, place: Place) -> Make:
    """A loader of its own, with iterators of its own."""
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


@way("torchdata", "StatefulDataLoader", "torchdata.stateful_dataloader", cold=True)
def stateful_loader(stateful: Any, place: Place) -> Make:
    """Its state goes on from where it was."""

    def make() -> Any:
        loader = stateful.StatefulDataLoader(place.images(), batch_size=BATCH, shuffle=True, num_workers=place.workers)
        loader.state_dict()
        return loader

    return make


# What wraps a DataLoader, with work of its own.


def _accelerated(accelerate: Any, dataset: Callable[[], Any], place: Place, **settings: Any) -> Make:
    asked = accelerate.DataLoaderConfiguration(**settings)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=asked)
    inner = place.plain(dataset) if "dispatch_batches" in settings else place.shuffled(dataset)

    def make() -> Any:
        assert accelerator.gradient_state.active_dataloader is None, "none is left in the state of gradients"
        return accelerator.prepare(inner())

    return make


@way("accelerate", "DataLoaderShard", "accelerate", cold=True)
def shard(accelerate: Any, place: Place) -> Make:
    """Around a plain DataLoader."""
    return _accelerated(accelerate, place.images, place)


@way("accelerate", "stateful DataLoaderShard", "accelerate", "torchdata", cold=True)
def stateful_shard(accelerate: Any, _: Any, place: Place) -> Make:
    """Around a StatefulDataLoader."""
    return _accelerated(accelerate, place.images, place, use_stateful_dataloader=True)


@way("accelerate", "DataLoaderDispatcher", "accelerate")
def dispatcher(accelerate: Any, place: Place) -> Make:
    """As iterable data sets get it."""
    return _accelerated(accelerate, lambda: _Images(sorted(place.photos)), place, dispatch_batches=True)


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


@way("transformers", "Trainer.get_train_dataloader()", "transformers", cold=True)
def trainer(transformers: Any, place: Place) -> Make:
    """The loader that it trains with."""
    asked = transformers.TrainingArguments(
        str(place.folder),
        per_device_train_batch_size=BATCH,
        dataloader_num_workers=place.workers,
        use_cpu=True,
        report_to=[],
    )
    return lambda: transformers.Trainer(
        model=_Model(), args=asked, train_dataset=data.Dicts(place.images())
    ).get_train_dataloader()


@way("lightning", "Fabric", "lightning.fabric", cold=True)
def fabric(lightning: Any, place: Place) -> Make:
    """Moves batches to the device."""
    made, inner = lightning.Fabric(accelerator="cpu", devices=1), place.shuffled(place.images)
    return lambda: made.setup_dataloaders(inner())


@way("timm", "PrefetchLoader", "timm.data.loader", cold=True)
def prefetch_loader(timm: Any, place: Place) -> Make:
    """Normalises on the device."""
    inner = place.shuffled(place.images)
    return lambda: timm.PrefetchLoader(inner(), device=torch.device("cpu"))


@way("timm", "MultiEpochsDataLoader", "timm.data.loader", cold=True)
def multi_epochs_loader(timm: Any, place: Place) -> Make:
    """Keeps one iterator for all epochs."""
    return lambda: timm.MultiEpochsDataLoader(
        place.images(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=place.workers,
        persistent_workers=bool(place.workers),
    )


@way("timm", "create_loader(use_multi_epochs_loader=True)", "timm.data", cold=True)
def create_loader(timm: Any, place: Place) -> Make:
    """Both, as its training script makes them."""
    return lambda: timm.create_loader(
        timm.create_dataset("", str(Path(place.photos[0]).parents[1])),
        input_size=(3, 16, 16),
        batch_size=BATCH,
        is_training=True,
        num_workers=place.workers,
        use_multi_epochs_loader=True,
        persistent_workers=bool(place.workers),
        device=torch.device("cpu"),
    )


# Iterables without a DataLoader, or with several: they are iterated themselves, and begin again with each epoch.

ITSELF = "is no DataLoader that can be copied"


def _decoded(path: str) -> torch.Tensor:
    return data.decoded(Path(path).read_bytes())


@way("", "a generator function", workers=(0,), says=ITSELF)
def generator_function(place: Place) -> Make:
    """Makes its batches in the training thread."""

    class Batches:
        def __iter__(self) -> Any:
            for first in range(0, COUNT, BATCH):
                yield torch.stack([_decoded(path) for path in place.photos[first : first + BATCH]])

    return Batches


@way("torchdata", "nodes", "torchdata.nodes", says=ITSELF)
def nodes(tn: Any, place: Place) -> Make:
    """With threads of its own where it has workers."""

    def make() -> Any:
        read = tn.ParallelMapper(tn.IterableWrapper(place.photos), _decoded, num_workers=place.workers, method="thread")
        batches = tn.Mapper(tn.Batcher(read, BATCH), torch.stack)
        return tn.Loader(tn.Prefetcher(batches, 4) if place.workers else batches)

    return make


@way("spdl", "DataLoader", "spdl.dataloader", workers=(2,), says=ITSELF)
def spdl_loader(spdl: Any, place: Place) -> Make:
    """Always makes its batches in threads of its own."""
    return lambda: spdl.DataLoader(
        place.photos,
        preprocessor=_decoded,
        batch_size=BATCH,
        aggregator=torch.stack,
        num_threads=place.workers,
        output_order="input",
    )


@way("grain", "MapDataset.to_iter_dataset", "grain", says=ITSELF)
def grain_threads(grain: Any, place: Place) -> Make:
    """Reads in threads of its own where it has workers."""
    samples = grain.MapDataset.source(sorted(place.photos)).map(_as_array).batch(BATCH)
    return lambda: samples.to_iter_dataset(grain.ReadOptions(num_threads=place.workers))


def _as_array(path: str) -> Any:
    return _decoded(path).numpy()


@way("lightning", "CombinedLoader of two", "lightning.pytorch.utilities.combined_loader", says=ITSELF)
def combined_loader(combined: Any, place: Place) -> Make:
    """Takes a batch of each at a time."""
    first, second = place.plain(place.images), place.plain(place.images)
    return lambda: combined.CombinedLoader({"first": first(), "second": second()}, "min_size")


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

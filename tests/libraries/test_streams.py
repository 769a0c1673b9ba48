"""Iterable data sets of other libraries, and loaders that can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.libraries import data
from tests.libraries.conftest import Tried
from tests.libraries.data import BATCH, COUNT, images
from tests.said import all_said

WHY = "scripts/bench libraries installs it"
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def _web(wds: Any, folder: Path) -> Any:
    dataset = wds.WebDataset(data.shards(folder), shardshuffle=False, empty_check=False)
    return dataset.compose(wds.detshuffle(8, seed=1)).decode("torchrgb").to_tuple("jpg", "cls")


@WORKERS
def test_webdataset_in_a_plain_loader(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Reads tar files from end to end."""
    wds = pytest.importorskip("webdataset", reason=WHY)
    make = lambda: DataLoader(_web(wds, tmp_path).batched(BATCH), batch_size=None, num_workers=workers)  # noqa: E731
    tried(make, "webdataset", f"DataLoader, {workers} workers")


@WORKERS
def test_webloader(tried: Tried, tmp_path: Path, workers: int) -> None:
    """A DataLoader as the first and only stage of a pipeline."""
    wds = pytest.importorskip("webdataset", reason=WHY)
    make = lambda: wds.WebLoader(_web(wds, tmp_path).batched(BATCH), batch_size=None, num_workers=workers)  # noqa: E731
    found = tried(make, "webdataset", f"WebLoader, {workers} workers")
    assert not any("left out" in note for note in all_said(found.notes))


@WORKERS
def test_webloader_that_puts_batches_together_anew(tried: Tried, tmp_path: Path, workers: int) -> None:
    """The DataLoader inside is measured, and a note says so."""
    wds = pytest.importorskip("webdataset", reason=WHY)

    def make() -> Any:
        inner = wds.WebLoader(_web(wds, tmp_path).batched(BATCH), batch_size=None, num_workers=workers)
        return inner.unbatched().compose(wds.detshuffle(8, seed=1)).batched(BATCH)

    found = tried(make, "webdataset", f"WebLoader.unbatched().shuffle().batched(), {workers} workers")
    assert any("loader.pipeline[0] is measured" in note for note in all_said(found.notes))


def _iterable(datasets: Any, shards: int) -> Any:
    made = datasets.Dataset.from_dict({"image": list(images()), "label": list(range(COUNT))})
    return made.to_iterable_dataset(num_shards=shards).with_format("torch")


@WORKERS
def test_datasets_iterable(tried: Tried, workers: int) -> None:
    """As many shards as workers, or more."""
    datasets = pytest.importorskip("datasets", reason=WHY)
    make = lambda: DataLoader(_iterable(datasets, 4), batch_size=BATCH, num_workers=workers)  # noqa: E731
    tried(make, "datasets", f"iterable, {workers} workers")


def test_datasets_with_one_shard_on_two_workers(tried: Tried) -> None:
    """It trains with one; so it is measured with one."""
    datasets = pytest.importorskip("datasets", reason=WHY)
    make = lambda: DataLoader(_iterable(datasets, 1), batch_size=BATCH, num_workers=2)  # noqa: E731
    found = tried(make, "datasets", "iterable, one shard on two workers")
    assert "workers without data: 1 of 2; measured with 1 worker" in all_said(found.notes)


@WORKERS
def test_mosaicml_streaming(tried: Tried, tmp_path: Path, workers: int) -> None:
    """Its epoch is counted in shared memory."""
    streaming = pytest.importorskip("streaming", reason=WHY)
    columns = {"image": "ndarray:uint8", "label": "int"}
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns=columns, size_limit=2**14) as out:
        for number, image in enumerate(images()):
            out.write({"image": image, "label": number})

    def make() -> Any:
        streaming.base.util.clean_stale_shared_memory()
        dataset = streaming.StreamingDataset(local=str(tmp_path / "mds"), shuffle=True, batch_size=BATCH)
        return DataLoader(dataset, batch_size=BATCH, num_workers=workers)

    tried(make, "mosaicml-streaming", f"StreamingDataset, {workers} workers")
    dataset = make().dataset
    assert dataset.next_epoch == 0


@WORKERS
def test_litdata(tried: Tried, tmp_path: Path, workers: int) -> None:
    """A loader of its own, with iterators of its own."""
    litdata = pytest.importorskip("litdata", reason=WHY)
    folder = tmp_path / "lit"
    writer = litdata.streaming.writer.BinaryWriter(str(folder), chunk_size=8)
    for number, image in enumerate(images()):
        writer[number] = {"image": image.copy(), "label": number}
    writer.done()
    writer.merge()

    def make() -> Any:
        dataset = litdata.StreamingDataset(str(folder), shuffle=True, seed=1)
        return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)

    tried(make, "litdata", f"StreamingDataLoader, {workers} workers")


@WORKERS
def test_torchdata_stateful(tried: Tried, photos: list[str], workers: int) -> None:
    """Its state goes on from where it was."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason=WHY)
    torchvision = pytest.importorskip("torchvision", reason=WHY)
    folder, change = Path(photos[0]).parents[1], torchvision.transforms.ToTensor()

    def make() -> Any:
        dataset = torchvision.datasets.ImageFolder(folder, change)
        loader = stateful.StatefulDataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers)
        loader.state_dict()
        return loader

    assert tried(make, "torchdata", f"StatefulDataLoader, {workers} workers").cache == "cold"

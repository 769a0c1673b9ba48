"""What other libraries wrap around a DataLoader, with the work they do there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.api.samples import Shared
from tests.libraries.conftest import Tried
from tests.libraries.data import BATCH
from tests.said import all_said

WHY = "scripts/bench libraries installs it"
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def _folder(photos: list[str]) -> Any:
    torchvision = pytest.importorskip("torchvision", reason=WHY)
    return torchvision.datasets.ImageFolder(Path(photos[0]).parents[1], torchvision.transforms.ToTensor())


def _plain(photos: list[str], workers: int) -> Any:
    return DataLoader(_folder(photos), batch_size=BATCH, shuffle=True, num_workers=workers)


def _kept(found: Any) -> None:
    assert not any("left out" in note for note in all_said(found.notes))
    assert found.cache == "cold"


@WORKERS
@pytest.mark.parametrize("stateful", [False, True])
def test_accelerate(tried: Tried, photos: list[str], workers: int, stateful: bool) -> None:
    """DataLoaderShard, around a plain DataLoader or a StatefulDataLoader; none is left in the state of gradients."""
    accelerate = pytest.importorskip("accelerate", reason=WHY)
    if stateful:
        pytest.importorskip("torchdata", reason=WHY)
    settings = accelerate.DataLoaderConfiguration(use_stateful_dataloader=stateful)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)
    what = "stateful DataLoaderShard" if stateful else "DataLoaderShard"
    _kept(tried(lambda: accelerator.prepare(_plain(photos, workers)), "accelerate", f"{what}, {workers} workers"))
    assert accelerator.gradient_state.active_dataloader is None


@WORKERS
def test_accelerate_dispatcher(tried: Tried, photos: list[str], workers: int) -> None:
    """As iterable data sets get it."""
    accelerate = pytest.importorskip("accelerate", reason=WHY)
    settings = accelerate.DataLoaderConfiguration(dispatch_batches=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=settings)

    def make() -> Any:
        return accelerator.prepare(DataLoader(_Images(sorted(photos)), batch_size=BATCH, num_workers=workers))

    tried(make, "accelerate", f"DataLoaderDispatcher, {workers} workers")


class _Images(Shared):
    """Iterable over JPEG files."""

    def __iter__(self) -> Any:
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers] if info else self.paths:
            yield torch.tensor(list(Path(path).read_bytes()[:300]))


class _Model(torch.nn.Module):
    """Takes what the collator gives."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (x.mean() * self.weight).sum()}


class _Dicts(torch.utils.data.Dataset[Any]):
    """Images by name."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Any:
        image, label = self.inner[index]
        return {"x": image, "labels": label}


@WORKERS
def test_trainer_of_transformers(tried: Tried, photos: list[str], tmp_path: Path, workers: int) -> None:
    """The loader that it trains with."""
    transformers = pytest.importorskip("transformers", reason=WHY)

    def make() -> Any:
        asked = transformers.TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=BATCH,
            dataloader_num_workers=workers,
            use_cpu=True,
            report_to=[],
        )
        data = _Dicts(_folder(photos))
        return transformers.Trainer(model=_Model(), args=asked, train_dataset=data).get_train_dataloader()

    _kept(tried(make, "transformers", f"Trainer.get_train_dataloader(), {workers} workers"))


@WORKERS
def test_lightning_fabric(tried: Tried, photos: list[str], workers: int) -> None:
    """Moves batches to the device."""
    fabric = pytest.importorskip("lightning.fabric", reason=WHY)
    made = fabric.Fabric(accelerator="cpu", devices=1)
    _kept(tried(lambda: made.setup_dataloaders(_plain(photos, workers)), "lightning", f"Fabric, {workers} workers"))


@WORKERS
def test_timm_prefetch_loader(tried: Tried, photos: list[str], workers: int) -> None:
    """Normalises on the device."""
    timm = pytest.importorskip("timm.data.loader", reason=WHY)
    make = lambda: timm.PrefetchLoader(_plain(photos, workers), device=torch.device("cpu"))  # noqa: E731
    _kept(tried(make, "timm", f"PrefetchLoader, {workers} workers"))


@WORKERS
def test_timm_multi_epochs_loader(tried: Tried, photos: list[str], workers: int) -> None:
    """Keeps one iterator for all epochs."""
    timm = pytest.importorskip("timm.data.loader", reason=WHY)
    make = lambda: timm.MultiEpochsDataLoader(  # noqa: E731
        _folder(photos), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=bool(workers)
    )
    _kept(tried(make, "timm", f"MultiEpochsDataLoader, {workers} workers"))


@WORKERS
def test_timm_create_loader(tried: Tried, photos: list[str], workers: int) -> None:
    """Both, as its training script makes them."""
    timm = pytest.importorskip("timm.data", reason=WHY)

    def make() -> Any:
        return timm.create_loader(
            timm.create_dataset("", str(Path(photos[0]).parents[1])),
            input_size=(3, 16, 16),
            batch_size=BATCH,
            is_training=True,
            num_workers=workers,
            use_multi_epochs_loader=True,
            persistent_workers=bool(workers),
            device=torch.device("cpu"),
        )

    _kept(tried(make, "timm", f"create_loader(use_multi_epochs_loader=True), {workers} workers"))

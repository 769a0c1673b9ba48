"""Loaders of one layout of large files: what each does beyond what holds for all of them (test_streams)."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from loaderprobe.datasets.folder import generated_set, scan_layout
from loaderprobe.errors import BadValue
from loaderprobe.plugins import resolve
from loaderprobe.records.files import FileSet
from loaderprobe.testing import example_config
from tests.datasets.conftest import make_set

BATCH, COUNT = 5, 80


def make(folder: Path, layout: str) -> Path:
    """Four shards of 20 images in three classes."""
    return make_set(folder, count=COUNT, layout=layout, shard_images=20)


def labels(name: str, files: FileSet, workers: int, scratch: Path, passes: int = 2) -> list[Any]:
    """Of each batch."""
    config = example_config(data=files.fingerprint, workers=workers, batch_size=BATCH, loader=name)
    with resolve("loader", name)(config, files, scratch) as loader:
        return [batch[1].tolist() for batch in islice(loader.batches(), passes * COUNT // BATCH)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_energon_are_those_of_torch(tmp_path: Path, workers: int) -> None:
    """In their order, for as many workers; nothing is written beside the shards."""
    pytest.importorskip("megatron.energon", reason="energon is not installed")
    root = make(tmp_path / "data", "tar")
    before = sorted(root.rglob("*"))
    files = generated_set(root, sample=COUNT, seed=3).dealt(workers, BATCH)
    assert labels("energon", files, workers, tmp_path) == labels("torch", files, workers, tmp_path)
    assert sorted(root.rglob("*")) == before


def test_energon_takes_no_two_samples_of_one_name(tmp_path: Path) -> None:
    """As its own `energon prepare` refuses them, with what to do."""
    pytest.importorskip("megatron.energon", reason="energon is not installed")
    root = make(tmp_path / "data", "tar") / "train"
    copy(root / "shard-000000.tar", root / "shard-000009.tar")
    files = scan_layout(root, "tar", sample=5 * COUNT, seed=0, progress=lambda *_: None)
    with pytest.raises(BadValue, match="energon needs a name of its own for each sample") as error:
        labels("energon", files, 0, tmp_path)
    assert "energon prepare --fix-duplicates" in error.value.hint


def test_workers_of_mds_do_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each begins a pass when all do: they get as many images, or one of them would fall behind in each pass."""
    streaming = pytest.importorskip("loaderprobe.loaders.libraries.mds", reason="mds is not installed")
    make_loader = streaming.image_loader

    def impatient(*arguments: Any) -> Any:
        loader: Any = image_loader(*arguments)
        loader.timeout = 60
        return loader

    monkeypatch.setattr(streaming, "image_loader", impatient)
    files = generated_set(make(tmp_path / "data", "mds"), sample=COUNT, seed=3)
    assert len(labels("mds", files, 3, tmp_path, passes=9)) == 9 * COUNT // BATCH
    with pytest.raises(BadValue, match="9 images do not give each of 3 workers a batch of 5"):
        labels("mds", files.chosen(range(9)), 3, tmp_path)

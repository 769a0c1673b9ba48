"""Megatron's energon: what it does beyond what holds for every loader of one layout (test_streams)."""

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
pytest.importorskip("megatron.energon", reason="energon is not installed")


def make(folder: Path) -> Path:
    """Four shards of 20 images in three classes."""
    return make_set(folder, count=COUNT, layout="tar", shard_images=20)


def labels(name: str, files: FileSet, workers: int, scratch: Path) -> list[Any]:
    """Of each batch of two passes."""
    config = example_config(data=files.fingerprint, workers=workers, batch_size=BATCH, loader=name, layout="tar")
    with resolve("loader", name)(config, files, scratch) as loader:
        return [batch[1].tolist() for batch in islice(loader.batches(), 2 * COUNT // BATCH)]


@pytest.mark.parametrize("workers", [0, 2])
def test_its_batches_are_those_of_torch(tmp_path: Path, workers: int) -> None:
    """In their order, for as many workers; nothing is written beside the shards."""
    root = make(tmp_path / "data")
    before = sorted(root.rglob("*"))
    files = generated_set(root, sample=COUNT, seed=3).dealt(workers, BATCH)
    assert labels("energon", files, workers, tmp_path) == labels("torch", files, workers, tmp_path)
    assert sorted(root.rglob("*")) == before


def test_two_samples_of_one_name_are_refused(tmp_path: Path) -> None:
    """As its own `energon prepare` refuses them, with what to do."""
    root = make(tmp_path / "data") / "train"
    copy(root / "shard-000000.tar", root / "shard-000009.tar")
    files = scan_layout(root, "tar", sample=5 * COUNT, seed=0, progress=lambda *_: None)
    with pytest.raises(BadValue, match="energon needs a name of its own for each sample") as error:
        labels("energon", files, 0, tmp_path)
    assert "energon prepare --fix-duplicates" in error.value.hint

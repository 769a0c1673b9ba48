"""Loaders of one layout of large files: its images, each once a pass, by torch's workers, which can be switched.

The last tests are of single ones, which do more than what holds for all.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from loaderprobe.api.sweep import sweep
from loaderprobe.datasets.folder import generated_set, scan_layout
from loaderprobe.errors import BadValue
from loaderprobe.plugins import LIBRARIES, ONE_LAYOUT, resolve
from loaderprobe.protocols import OwnThreads
from loaderprobe.records.config import RunConfig, with_options
from loaderprobe.records.files import FileSet
from loaderprobe.testing import example_config
from tests.datasets.conftest import make_set

BATCH, COUNT = 5, 80
each_library = pytest.mark.parametrize("name", ONE_LAYOUT)
OWN_PASSES = {"mds"}
"""Whose workers begin each pass together, so that they cannot be switched."""


def make(folder: Path, layout: str) -> Path:
    """Four shards of 20 images in three classes."""
    return make_set(folder, count=COUNT, layout=layout, shard_images=20)


@pytest.fixture
def files(name: str, tmp_path: Path) -> FileSet:
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")
    pytest.importorskip("pyarrow")
    return generated_set(make(tmp_path, ONE_LAYOUT[name]), sample=COUNT, seed=3)


def config_of(name: str, files: FileSet, workers: int) -> RunConfig:
    return with_options(example_config(data=files.fingerprint, workers=workers, batch_size=BATCH), loader=name)


@each_library
@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_has_every_image_once(name: str, files: FileSet, tmp_path: Path, workers: int) -> None:
    """Of the classes that they have, in batches like torch's, and the next pass begins by itself."""
    config = config_of(name, files, workers)
    with resolve("loader", name)(config, files, tmp_path) as loader:
        batches = [*islice(loader.batches(), 2 * COUNT // BATCH)]
        records = loader.records()
        assert len(loader.workers()) == workers and isinstance(loader, OwnThreads) == (name in OWN_PASSES)
    assert {tuple(images.shape) for images, _ in batches} == {(BATCH, 3, 224, 224)}
    for half in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
        assert Counter(label for _, labels in half for label in labels.tolist()) == Counter(files.classes)
    assert set(records.images) == {BATCH}


@each_library
def test_fewer_shards_than_workers_are_refused(name: str, files: FileSet, tmp_path: Path) -> None:
    """Before workers start that would have nothing to do."""
    with (
        pytest.raises(BadValue, match=f"4 shards do not give each of 5 workers of {name} one"),
        resolve("loader", name)(config_of(name, files, 5), files, tmp_path) as loader,
    ):
        next(iter(loader.batches()))


@each_library
def test_a_damaged_shard_ends_it(name: str, files: FileSet, tmp_path: Path) -> None:
    """In an error, and not in fewer images."""
    for path in files.absolute(0, files.count):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with (
        pytest.raises(
            Exception, match=r"unexpected end of data .*tar|corrupted or this is not a parquet file|is damaged"
        ),
        resolve("loader", name)(config_of(name, files, 0), files, tmp_path) as loader,
    ):
        [*islice(loader.batches(), COUNT // BATCH)]


@each_library
def test_a_sweep_measures_it_beside_torch(name: str, files: FileSet, tmp_path: Path) -> None:
    """Over the same shards; with the ablations that shards allow, where it does not read whole ones ahead."""
    run = sweep(
        files.root, loader=("torch", name), workers=1, serial=False, compute="emulated:100000", batch_size=BATCH,
        rounds=1, thorough=True, out=tmp_path / "run",
    )  # fmt: skip
    rows = run.report().summary.configurations
    assert [(row.config.loader.name, row.status) for row in rows] == [("torch", "measured"), (name, "measured")]
    assert all(row.verdict and row.verdict.speedups.preprocessing for row in rows)
    assert name in ("litdata", "mds") or all(row.verdict and row.verdict.speedups.transport for row in rows)


def labels(name: str, files: FileSet, workers: int, scratch: Path, passes: int = 2) -> list[Any]:
    """Of each batch."""
    with resolve("loader", name)(config_of(name, files, workers), files, scratch) as loader:
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
        loader = make_loader(*arguments)
        loader.timeout = 60
        return loader

    monkeypatch.setattr(streaming, "image_loader", impatient)
    files = generated_set(make(tmp_path / "data", "mds"), sample=COUNT, seed=3)
    assert len(labels("mds", files, 3, tmp_path, passes=9)) == 9 * COUNT // BATCH
    with pytest.raises(BadValue, match="9 images do not give each of 3 workers a batch of 5"):
        labels("mds", files.chosen(range(9)), 3, tmp_path)

"""Loaders of one layout of large files: its images, each once a pass, by torch's workers, which can be switched."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from loaderprobe.api.sweep import sweep
from loaderprobe.datasets.folder import generated_set
from loaderprobe.errors import BadValue
from loaderprobe.plugins import LIBRARIES, ONE_LAYOUT, resolve
from loaderprobe.protocols import OwnThreads
from loaderprobe.records.config import RunConfig, with_options
from loaderprobe.records.files import FileSet
from loaderprobe.testing import example_config
from tests.datasets.conftest import make_set

BATCH, COUNT = 5, 80
pytestmark = pytest.mark.parametrize("name", ONE_LAYOUT)
OWN_PASSES = {"mds"}
"""Whose workers begin each pass together, so that they cannot be switched."""


@pytest.fixture
def files(name: str, tmp_path: Path) -> FileSet:
    """Four shards of 20 images in three classes."""
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")
    pytest.importorskip("pyarrow")
    made = make_set(tmp_path, count=COUNT, layout=ONE_LAYOUT[name], shard_images=20)
    return generated_set(made, sample=COUNT, seed=3)


def config_of(name: str, files: FileSet, workers: int) -> RunConfig:
    return with_options(example_config(data=files.fingerprint, workers=workers, batch_size=BATCH), loader=name)


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


def test_fewer_shards_than_workers_are_refused(name: str, files: FileSet, tmp_path: Path) -> None:
    """Before workers start that would have nothing to do."""
    with (
        pytest.raises(BadValue, match=f"4 shards do not give each of 5 workers of {name} one"),
        resolve("loader", name)(config_of(name, files, 5), files, tmp_path) as loader,
    ):
        next(iter(loader.batches()))


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

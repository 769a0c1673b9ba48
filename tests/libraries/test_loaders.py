"""Loaders of other libraries in a sweep: the same batches as torch's, without end, by as many workers as asked for."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from loaderprobe.api.sweep import sweep
from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.image_data import image_files
from loaderprobe.plugins import NO_SERIAL, ONE_LAYOUT, check_installed, resolve
from loaderprobe.protocols import Loader, OwnThreads, WithAlternatives
from loaderprobe.records.config import LIBRARIES, RunConfig, with_options
from loaderprobe.records.files import FileSet
from loaderprobe.testing import example_config

BATCH, COUNT = 4, 10
PROCESSES = {"grain"}
"""Whose workers are processes; those of the others are threads."""
OF_FILES = [name for name in LIBRARIES if name not in ONE_LAYOUT]
pytestmark = pytest.mark.parametrize("name", OF_FILES)


@pytest.fixture(scope="module")
def photographs(photos: list[str]) -> FileSet:
    """Ten files in two classes: batches of 4 do not divide them."""
    return image_files(Path(photos[0]).parents[1], sample=COUNT)


@pytest.fixture
def config(name: str, photographs: FileSet) -> RunConfig:
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")
    return with_options(example_config(data=photographs.fingerprint, workers=2, batch_size=BATCH), loader=name)


@pytest.fixture
def made(config: RunConfig, photographs: FileSet, tmp_path: Path) -> Iterator[Loader]:
    with resolve("loader", config.loader.name)(config, photographs, tmp_path) as loader:
        yield loader


def labels_of(files: FileSet, batch: int) -> list[int]:
    """The classes of a batch, round and round."""
    return [files.classes[number % files.count] for number in range(batch * BATCH, (batch + 1) * BATCH)]


def test_batches_are_those_of_torch(made: Loader, photographs: FileSet) -> None:
    """Shape, type, classes in the order of the set, beyond its end; each is recorded."""
    for number, (images, labels) in enumerate(islice(made.batches(), 8)):
        assert (tuple(images.shape), images.dtype, labels.dtype) == ((BATCH, 3, 224, 224), torch.float32, torch.int64)
        assert labels.tolist() == labels_of(photographs, number)
        assert images.std() > 0.3
    records = made.records()
    assert records.batch == tuple(range(8)) and set(records.images) == {BATCH}
    assert isinstance(made, OwnThreads)


@pytest.mark.parametrize("options", [{"tensor": "uint8"}, {"pipeline": "crop"}], ids=str)
def test_options_of_the_work_hold(
    config: RunConfig, photographs: FileSet, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Bytes where they are asked for; a plain crop of small images is padded."""
    asked = with_options(config, **options)
    with resolve("loader", asked.loader.name)(asked, photographs, tmp_path) as loader:
        images, _ = next(iter(loader.batches()))
    assert images.shape == (BATCH, 3, 224, 224)
    assert images.dtype == (torch.uint8 if "tensor" in options else torch.float32)


def test_workers_are_processes_or_threads(made: Loader, name: str) -> None:
    """Processes are named to be sampled, and end with the loader."""
    next(iter(made.batches()))
    assert len(made.workers()) == (2 if name in PROCESSES else 0)
    made.__exit__(None, None, None)
    assert not [child for child in multiprocessing.active_children() if child.pid in made.workers()]


def test_the_serial_loader_makes_the_same(config: RunConfig, photographs: FileSet, tmp_path: Path) -> None:
    """Where a library has one."""
    if config.loader.name in NO_SERIAL:
        pytest.skip("has no serial loader")
    serial = with_options(config, workers=0, prefetch_factor=0)
    with resolve("loader", serial.loader.name)(serial, photographs, tmp_path) as loader:
        _, (_, labels) = islice(loader.batches(), 2)
    assert labels.tolist() == labels_of(photographs, 1)


def test_a_damaged_file_ends_it(config: RunConfig, photographs: FileSet, tmp_path: Path) -> None:
    """With the name of the file, which DALI does not say; no image is left out in silence."""
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(b"no image")
    files = replace(photographs, root=str(tmp_path), paths=("damaged.jpg",) * COUNT)
    with (
        resolve("loader", config.loader.name)(config, files, tmp_path) as loader,
        pytest.raises(LoaderprobeError, match=r"damaged\.jpg|DALI cannot make a batch: nvImageCodec failure"),
    ):
        next(iter(loader.batches()))


def test_a_sweep_measures_it_beside_torch(config: RunConfig, photographs: FileSet, tmp_path: Path) -> None:
    """One table; cold and warm files are measured, preprocessing is estimated, transport is not known."""
    name = config.loader.name
    check_installed("loader", name)
    assert isinstance(resolve("loader", name), WithAlternatives) == (name != "dali")
    run = sweep(
        photographs.root, loader=("torch", name), workers=1, serial=False, compute="emulated:100000", batch_size=BATCH,
        rounds=1, thorough=True, out=tmp_path / "run",
    )  # fmt: skip
    rows = run.report().summary.configurations
    assert [row.config.loader.name for row in rows] == ["torch", name]
    assert [row.status for row in rows] == ["measured", "measured"]

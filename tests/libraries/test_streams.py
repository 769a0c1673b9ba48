"""Loaders of one layout of large files: its images, each once a pass, by torch's workers, which can be switched.

Then come single ones, which do more than what holds for all; the last tests need no library.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from shutil import copy
from types import ModuleType
from typing import Any

import pytest

from loaderprobe.api.sweep import sweep
from loaderprobe.datasets.folder import generated_set, scan_layout
from loaderprobe.errors import BadValue
from loaderprobe.loaders.libraries import Stream, linked
from loaderprobe.plugins import ONE_LAYOUT, resolve
from loaderprobe.protocols import OwnThreads
from loaderprobe.records.config import LIBRARIES, RunConfig, with_options
from loaderprobe.records.files import FileSet, SkippedFile
from loaderprobe.system.scratch import MARK
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
    assert all(row.verdict and row.verdict.speedups["preprocessing"] for row in rows)
    assert name in ("litdata", "mds") or all(row.verdict and row.verdict.speedups["transport"] for row in rows)


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


def shards(root: Path, *names: str) -> FileSet:
    """One image a shard of 5 bytes, and the index of those directly in `root`."""
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"image")
    own = [{"raw_data": {"basename": path.name, "bytes": 5}} for path in sorted(root.glob("*.mds"))]
    (root / "index.json").write_text(json.dumps({"shards": own}))
    count = len(names)
    return FileSet(
        label="own mds", root=str(root), generated=False, paths=names, classes=(0,) * count, size_bytes=(5,) * count,
        images_found=count, layout="mds", places=((0, 0),) * count, whole_bytes=dict.fromkeys(names, 5),
    )  # fmt: skip


def name_and_size(entry: Any) -> tuple[str, int]:
    return entry["raw_data"]["basename"], entry["raw_data"]["bytes"]


def test_shards_in_several_directories_are_refused(tmp_path: Path) -> None:
    """With what to do: those libraries know one directory with one index."""
    files = shards(tmp_path, "a.mds", "more/b.mds")
    with pytest.raises(BadValue, match="reads shards of one directory") as error:
        linked(example_config(), files, tmp_path, "shards", name_and_size)
    assert "put them in one" in error.value.hint and "--loader torch" in error.value.hint


@pytest.mark.parametrize("skipped", [0, 1])
def test_an_image_that_torch_leaves_out_is_named(tmp_path: Path, skipped: int) -> None:
    """A library reads whole shards, so also what was seen to be damaged: torch does not, and so would name nothing."""
    files = shards(tmp_path, "a.mds")
    files = replace(files, skipped=(SkippedFile(path="a.mds, sample 7", reason="damaged"),) * skipped)
    config = example_config(workers=1)
    with pytest.raises(BadValue, match="cannot be decoded by pillow") as error:
        next(iter(Stream(config, files, lambda: iter([(b"no image", 0)]))))
    assert ("(a.mds, sample 7); write" in error.value.hint) == bool(skipped)
    assert ("names its file" in error.value.hint) != bool(skipped)


def test_links_to_shards_are_removed_after_a_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in a scratch directory, which the next process removes."""
    streaming, base, shared = (ModuleType(name) for name in ("streaming", "base", "shared"))
    marked: list[bool] = []

    def opened(local: str, **_: object) -> None:
        marked.append((Path(local).parent / MARK).exists())
        raise InterruptedError

    vars(streaming)["StreamingDataset"], vars(shared)["SharedMemory"] = opened, object
    for name, module in (("streaming", streaming), ("streaming.base", base), ("streaming.base.shared", shared)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "loaderprobe.loaders.libraries.mds", base)
    del sys.modules["loaderprobe.loaders.libraries.mds"]
    mds = import_module("loaderprobe.loaders.libraries.mds")
    with pytest.raises(InterruptedError):
        next(mds.MdsLoader.make(example_config(workers=1, batch_size=1), shards(tmp_path, "a.mds")))
    assert marked == [True]

"""Loaders of other libraries: the same batches as torch's, without end, by as many workers as asked for.

First what holds for all, those of files and those of one layout of large files; then what single ones do more. The last
tests need no library.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from shutil import copy
from types import ModuleType
from typing import Any

import pytest
import torch

from loaderprobe.api.sweep import sweep
from loaderprobe.datasets.folder import generated_set, scan_layout
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.loaders.libraries import Stream, linked
from loaderprobe.measure.image_data import image_files
from loaderprobe.plugins import resolve
from loaderprobe.protocols import Loader, OwnThreads, WithAlternatives
from loaderprobe.records.config import LIBRARIES, NO_SERIAL, ONE_LAYOUT, RunConfig, with_options
from loaderprobe.records.files import FileSet, SkippedFile
from loaderprobe.system.scratch import MARK
from loaderprobe.testing import example_config
from tests.datasets.conftest import make_set

BATCH, COUNT = 5, 80
PROCESSES = {"grain", *ONE_LAYOUT}
"""Whose workers are processes; those of the others are threads."""
OWN_PASSES = {"mds"}
"""Of one layout: its workers begin each pass together, so that they cannot be switched."""
DAMAGED_FILE = r"damaged\.jpg|DALI cannot make a batch: nvImageCodec failure"
DAMAGED_SHARD = r"unexpected end of data .*tar|corrupted or this is not a parquet file|is damaged"

Opened = Callable[..., Loader]
each_library = pytest.mark.parametrize("name", LIBRARIES)
each_of_files = pytest.mark.parametrize("name", [name for name in LIBRARIES if name not in ONE_LAYOUT])
each_of_shards = pytest.mark.parametrize("name", ONE_LAYOUT)


def make(folder: Path, layout: str) -> Path:
    """Four shards of 20 images in three classes."""
    return make_set(folder, count=COUNT, layout=layout, shard_images=20)


def found(module: str) -> bool:
    with suppress(ImportError):
        return bool(import_module(module))
    return False


@pytest.fixture
def files(name: str, photos: list[str], tmp_path: Path) -> FileSet:
    """Of a library of files 24 in two classes, which batches of 5 do not divide."""
    pytest.importorskip(LIBRARIES[name], reason=f"{name} is not installed")
    if name not in ONE_LAYOUT:
        return image_files(Path(photos[0]).parents[1], sample=24)
    pytest.importorskip("pyarrow")
    return generated_set(make(tmp_path, ONE_LAYOUT[name]), sample=COUNT, seed=3)


def config_of(name: str, files: FileSet, workers: int, **options: Any) -> RunConfig:
    given = {} if workers else {"prefetch_factor": 0}
    config = example_config(data=files.fingerprint, workers=2, batch_size=BATCH)
    return with_options(config, loader=name, workers=workers, **given, **options)


@pytest.fixture
def opened(name: str, files: FileSet, tmp_path: Path) -> Opened:
    """Makes the loader, of other files where they are given."""

    def run(workers: int = 2, of: FileSet = files, **options: Any) -> Loader:
        loader: Loader = resolve("loader", name)(config_of(name, files, workers, **options), of, tmp_path)
        return loader

    return run


@each_library
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_torch(name: str, files: FileSet, opened: Opened, workers: int) -> None:
    """Shape, type, each image once a pass: of files in the order of the set, beyond its end. Each is recorded;
    processes are named to be sampled, and end with the loader."""
    if not workers and name in NO_SERIAL:
        pytest.skip("has no serial loader")
    shards = name in ONE_LAYOUT
    with opened(workers) as loader:
        batches = [*islice(loader.batches(), 2 * files.count // BATCH)]
        records, processes = loader.records(), [*loader.workers()]
        assert len(processes) == (workers if name in PROCESSES else 0)
        assert isinstance(loader, OwnThreads) == (not shards or name in OWN_PASSES)
    assert not [child for child in multiprocessing.active_children() if child.pid in processes]
    seen = {(tuple(images.shape), images.dtype, labels.dtype) for images, labels in batches}
    assert seen == {((BATCH, 3, 224, 224), torch.float32, torch.int64)}
    assert all(images.std() > 0.3 for images, _ in batches)
    labels = [label for _, labels in batches for label in labels.tolist()]
    expected = [files.classes[number % files.count] for number in range(len(labels))]
    assert shards or labels == expected
    assert Counter(labels[: files.count]) == Counter(expected[: files.count])
    assert Counter(labels) == Counter(expected)
    assert set(records.images) == {BATCH} and (shards or records.batch == tuple(range(len(batches))))


@each_of_files
@pytest.mark.parametrize("options", [{"tensor": "uint8"}, {"pipeline": "crop"}], ids=str)
def test_options_of_the_work_hold(opened: Opened, options: dict[str, Any]) -> None:
    """Bytes where they are asked for; a plain crop of small images is padded."""
    with opened(**options) as loader:
        images, _ = next(iter(loader.batches()))
    assert images.shape == (BATCH, 3, 224, 224)
    assert images.dtype == (torch.uint8 if "tensor" in options else torch.float32)


@each_library
def test_a_damaged_file_ends_it(name: str, files: FileSet, opened: Opened, tmp_path: Path) -> None:
    """With its name, which DALI does not say; no image is left out in silence."""
    if name in ONE_LAYOUT:
        for path in files.absolute(0, files.count):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
        refused: Any = pytest.raises(Exception, match=DAMAGED_SHARD)
    else:
        (tmp_path / "damaged.jpg").write_bytes(b"no image")
        files = replace(files, root=str(tmp_path), paths=("damaged.jpg",) * files.count)
        refused = pytest.raises(LoaderprobeError, match=DAMAGED_FILE)
    with refused, opened(0 if name in ONE_LAYOUT else 2, files) as loader:
        [*islice(loader.batches(), COUNT // BATCH)]


@pytest.mark.parametrize("layout", ["files", *sorted({*ONE_LAYOUT.values()})])
def test_a_sweep_measures_them_beside_torch(layout: str, photos: list[str], tmp_path: Path) -> None:
    """One table, over the same files; with the ablations that shards allow, unless whole ones are read ahead."""
    of_layout = [name for name in LIBRARIES if ONE_LAYOUT.get(name, "files") == layout]
    libraries = [name for name in of_layout if found(LIBRARIES[name])]
    if not libraries:
        pytest.skip("none is installed")
    assert all(isinstance(resolve("loader", name), WithAlternatives) == (name != "dali") for name in libraries)
    run = sweep(
        Path(photos[0]).parents[1] if layout == "files" else make(tmp_path, layout), loader=("torch", *libraries),
        workers=1, serial=False, compute="emulated:100000", batch_size=BATCH, rounds=1, thorough=True,
        out=tmp_path / "run",
    )  # fmt: skip
    rows = run.report().configurations
    assert {row.config.loader.name: row.status for row in rows} == dict.fromkeys(("torch", *libraries), "measured")
    if layout != "files":
        assert all(row.verdict and row.verdict.speedups["preprocessing"] for row in rows)
        assert layout in ("litdata", "mds") or all(row.verdict and row.verdict.speedups["transport"] for row in rows)


@each_of_shards
def test_fewer_shards_than_workers_are_refused(name: str, opened: Opened) -> None:
    """Before workers start that would have nothing to do."""
    refused = pytest.raises(BadValue, match=f"4 shards do not give each of 5 workers of {name} one")
    with refused, opened(5) as loader:
        next(iter(loader.batches()))


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

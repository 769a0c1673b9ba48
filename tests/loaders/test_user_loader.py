"""The pool that a sampler is asked for, files that are opened or named, and the samples that a rank takes."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from loaderprobe.batches import holds_images, samples_in, samples_without_collation
from loaderprobe.errors import BadValue, LoaderprobeError, NoSpace
from loaderprobe.loaders import reads
from loaderprobe.loaders.ranks import rank_input
from loaderprobe.loaders.reads import MOST_S, BatchReads, OpenedFiles, holds_more_than_data, loader_files, named_files
from loaderprobe.loaders.unwrap import unwrap
from loaderprobe.loaders.user_loader import BatchPool, StreamPool, UserLoader
from loaderprobe.records.diagnosis import BatchFiles, UnknownFiles
from loaderprobe.records.files import PartFiles
from loaderprobe.testing import example_config
from tests.api.samples import Ahead, Moving, Numbers
from tests.examples.iterated import Transforming


@given(st.integers(1, 40), st.integers(0, 5), st.integers(1, 60))
def test_a_pool_gives_every_worker_the_same_batches_each_time(count: int, workers: int, taken: int) -> None:
    """It is a whole multiple of the workers, and after the first time batch k is batch k modulo its size, for ever."""
    pool = BatchPool([[number] for number in range(count)], workers)
    batches = iter(pool)
    first = [next(batches) for _ in range(taken)]
    pool.settle(taken, 0)
    rest = [next(batches) for _ in range(3 * (count + taken) + 5)]
    if pool.size:
        assert pool.size % max(workers, 1) == 0
        whole = first + rest
        assert all(whole[number] == whole[number % pool.size] for number in range(max(count, taken), len(whole)))


def test_a_pool_keeps_batches_of_one_length() -> None:
    """The others are counted; one of nothing ends."""
    pool = BatchPool([[1, 2], [3], [4, 5], [6, 7, 8]], 1)
    assert list(islice(iter(pool), 4)) == [[1, 2], [4, 5], [1, 2], [4, 5]]
    assert pool.odd == 2 and list(iter(BatchPool([], 2))) == []


def settled(count: int, workers: int, taken: int) -> tuple[BatchPool, list[list[int]], Any]:
    """A pool of which so many batches were taken; and those."""
    pool = BatchPool([[number] for number in range(count)], workers)
    batches = iter(pool)
    first = list(islice(batches, taken))
    pool.settle(taken, 0)
    return pool, first, batches


def test_new_batches_were_not_taken_before() -> None:
    """Not those of the pool, though it has gone round since; a sampler without new ones says so."""
    pool, first, batches = settled(40, 2, 8)
    assert list(islice(batches, 8)) == first
    pool.take_new()
    assert list(islice(batches, 10)) == [[number] for number in range(8, 18)]
    assert (pool.new_left(), pool.passes) == (22, 0)
    pool, _, batches = settled(12, 2, 8)
    pool.take_new()
    list(islice(batches, 6))
    assert pool.passes >= 1 and pool.new_left() == -pool.passes


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda pair: pair.tolist(), "numbers": list, "array": lambda pair: pair, "tensor": torch.from_numpy,
    "tensors": lambda pair: list(torch.from_numpy(pair)), "one": lambda pair: torch.tensor(pair[0] // 2),
}  # fmt: skip
OTHERS: dict[str, Callable[[Any], Any]] = {
    "texts": lambda _: ["a", "b"], "rows": lambda pair: np.stack([pair, pair]), "bytes": lambda _: bytes(2),
    "text": lambda pair: "a" * (1 + int(pair[0]) % 3),
}  # fmt: skip
"""The indices of a batch of two, or one index, as samplers give them."""


@pytest.mark.parametrize("kind", [*NUMBERS, *OTHERS])
def test_indices_are_known_again_whatever_their_type(kind: str) -> None:
    """By a sampler that goes on for ever, and as a sequence; a short batch is odd. Indices that are no numbers are
    taken for new ones, in sequence; a text is one index, however long."""
    order = [{**NUMBERS, **OTHERS}[kind](np.arange(first, first + 2)) for first in range(0, 80, 2)]
    pool = BatchPool(cycle(order), 2)
    batches = iter(pool)
    list(islice(batches, 6))
    pool.settle(6, 0)
    pool.take_new()
    list(islice(batches, 34))
    assert pool.in_sequence() and (pool.passes, pool.odd) == (0, 0)
    list(islice(batches, 8))
    assert pool.passes == (8 if kind in NUMBERS else 0)
    if kind in NUMBERS and kind != "one":
        pool = BatchPool([*order, order[0][:1]], 1)
        list(islice(iter(pool), 50))
        assert pool.odd == 1


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_repeated_batches_go_to_the_worker_that_had_them(workers: int) -> None:
    """What a data set keeps, it keeps in the worker that made it."""
    pool, first, batches = settled(60, workers, 6)
    pool.take_new()
    new = list(islice(batches, 12))
    had = {batch[0]: number % workers for number, batch in enumerate([*first, *new])}
    pool.repeat(9)
    for number, batch in enumerate(islice(batches, 30), start=len(had)):
        assert had[batch[0]] == number % workers
        assert batch[0] >= 18 - 9 - workers


PROJECT: dict[int, str] = {}


class OfProject:
    """Holds the name of its file; its code names the folder of all."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __getitem__(self, index: int) -> str:
        return PROJECT[0]


@pytest.mark.parametrize(
    ("opened", "data", "most", "found"),
    [
        ({}, Numbers, 20_000, "none_seen"),
        # They are seen, mapped into memory, whatever opened them.
        ({f"/d/{number}": 1 for number in range(20_001)}, Numbers, 20_000, "too_large"),
        # They are named, without one being opened, and however many more there are.
        ({}, lambda folder: SimpleNamespace(root=str(folder)), 1, "too_large"),
        # Many files that code names are left out; what the data set holds, or has open, is evicted all the same.
        ({}, lambda folder: OfProject(folder / "b" / "3.bin"), 9, 3),
        ({}, lambda folder: OfProject(folder / "b" / "3.bin"), 2, 1),
    ],
)  # fmt: skip
def test_files_that_are_too_many_to_evict_are_said_so(
    opened: dict[str, int], data: Any, most: int, found: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, or how many are evicted."""
    monkeypatch.setattr(reads, "MOST_FILES", most)
    monkeypatch.setitem(PROJECT, 0, str(folder))
    given = data() if data is Numbers else data(folder)
    files = loader_files([BatchReads(kept_open=opened)], given, batch_size=1, in_order=True)
    assert (len(files.file_bytes) if isinstance(files, PartFiles) else files) == (
        found if isinstance(found, int) else UnknownFiles(code=found)
    )


def test_files_that_are_opened_are_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that is read, once each, by absolute path; not what is written, code, devices, or what has gone."""
    data, code, package, gone = (tmp_path / name for name in ("a.raw", "b.py", "site-packages/c.json", "gone"))
    package.parent.mkdir()
    for path in (data, code, package, gone):
        path.write_bytes(b"12345")
    opened = OpenedFiles()
    opened.start()
    for path in (data, data, code, package, gone):
        path.read_bytes()
    os.close(os.open(bytes(data), os.O_RDONLY))
    Path("/dev/null").read_bytes()
    (tmp_path / "written").write_bytes(b"1")
    gone.unlink()
    assert opened.stop() == [(str(data), 5)]
    data.read_bytes()
    assert opened.stop() == []
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    (tmp_path / "folder").rmdir()
    opened.start()
    with pytest.raises(FileNotFoundError):
        Path("relative").read_bytes()
    assert opened.stop() == []


IMAGE, IMAGES, LABELS = torch.zeros(3, 8, 8), torch.zeros(6, 3, 8, 8), torch.zeros(6)
FEATURES = {"x": torch.zeros(7, 5), "y": torch.zeros(7)}


@pytest.mark.parametrize(
    ("item", "samples"),
    [((IMAGE, 1), 1), (IMAGE, 1), (IMAGES, 6), ((IMAGES, LABELS), 6), (FEATURES, 7), ("text", 1), (LABELS[0], 1)],
)
def test_batches_and_samples_are_separate(item: Any, samples: int) -> None:
    """Without a collate_fn a data set yields one sample, or batches of its own; features are no images."""
    assert samples_without_collation(item) == samples
    assert samples_in(FEATURES) == 7
    assert holds_images(IMAGES) and holds_images([{"x": (LABELS, IMAGES)}]) and not holds_images((LABELS, IMAGE))


SERIAL = {"baseline", "warm", "cached_samples"}


def test_a_twin_shares_nothing_that_it_changes(tmp_path: Path) -> None:
    """The loader keeps its own settings, and what may be done with a sub-class is less."""
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    before = dict(vars(loader))
    assert UserLoader(loader, tmp_path).modes() == {*SERIAL, "no_transport"}
    assert vars(loader) == before
    for kind in (Moving, Transforming):
        assert UserLoader(kind(Numbers(), batch_size=4, num_workers=2), tmp_path).modes() == SERIAL
    assert UserLoader(DataLoader(Numbers(), batch_size=4), tmp_path).modes() == {*SERIAL, "one_thread"}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["files", "stacks"])
def test_a_full_disk_is_said(tmp_path: Path, kind: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its files cannot be kept, that is said; without its stacks, the rest is measured."""
    usual = Path.open

    def full(path: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
        if kind in path.name and mode in "wa":
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(path, mode, *given, **named)

    monkeypatch.setattr(Path, "open", full)
    monkeypatch.setattr("loaderprobe.loaders.worker_probe.STACKS_EVERY_S", 0.0)
    if kind == "files":
        loader = UserLoader(DataLoader(Numbers(), 4, num_workers=workers), tmp_path)
        with pytest.raises(NoSpace, match=f"^no space left for temporary files in {tmp_path}$") as caught, loader:
            next(loader.batches())
        assert "TMPDIR" in caught.value.hint
        return
    with UserLoader(DataLoader(Numbers(), 4, num_workers=workers), tmp_path) as loader:
        assert len(list(islice(loader.batches(), 4))) == 4
    assert loader.stacks() is None


class Shuffled(IterableDataset[int]):
    """Draws its order, of Python's generator and torch's, before it gives a sample."""

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(64).tolist()
        random.shuffle(order)
        return iter(order)


@pytest.mark.parametrize("generator", [None, torch.Generator()])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterable_gives_the_same_samples_in_each_pass(tmp_path: Path, workers: int, generator: Any) -> None:
    """The first among them: its files are the ones that are known."""
    with UserLoader(DataLoader(Shuffled(), 32, num_workers=workers, generator=generator), tmp_path) as loader:
        passes = [torch.cat(list(islice(loader.batches(), 2))).tolist() for _ in range(3)]
    assert passes[0] == passes[1] == passes[2] and sorted(passes[0]) == list(range(64)) != passes[0]


class Stuck(Numbers):
    """Its fourth sample waits to be let through."""

    def __init__(self) -> None:
        super().__init__()
        context = multiprocessing.get_context("fork")
        self.begun, self.through = context.Event(), context.Event()

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            self.begun.set()
            self.through.wait()
        return super().__getitem__(index)


def test_workers_make_a_batch_more_for_a_wrapper_that_takes_one_ahead(tmp_path: Path) -> None:
    """They are not still before that one is made, too."""
    data = Stuck()
    with UserLoader(unwrap(Ahead(DataLoader(data, batch_size=1, num_workers=1))), tmp_path) as loader:
        next(loader.batches())
        assert data.begun.wait(30)
        assert not loader.still(1)
        data.through.set()


@pytest.mark.parametrize(
    ("timeout", "late", "kind", "says"),
    [
        (0, False, BadValue, "no batch came within 10.0 ms"),
        (0, True, LoaderprobeError, "no batch came within 10.0 ms"),
        (0.01, True, LoaderprobeError, "raised RuntimeError: DataLoader timed out"),
    ],
)
def test_a_wait_that_is_too_long_is_not_the_loaders_own_error(
    tmp_path: Path, timeout: float, late: bool, kind: type[LoaderprobeError], says: str
) -> None:
    """Unless it has a timeout itself. Where it is too late for another batch, it is an error of that kind."""
    data, is_late = Stuck(), iter([False, late])

    def before_batch() -> None:
        if next(is_late):
            raise LoaderprobeError("it is too late")

    given = DataLoader(data, batch_size=1, sampler=[3], num_workers=1, timeout=timeout)
    with UserLoader(given, tmp_path, before_batch, patience_s=0.01) as loader:
        with pytest.raises(LoaderprobeError, match=says) as caught:
            next(loader.batches())
        data.through.set()
    assert type(caught.value) is kind


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files in two folders, of which the script runs in one."""
    for name in ("a/1.bin", "a/2.bin", "b/3.bin"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(b"12345")
    monkeypatch.chdir(tmp_path / "data" / "a")
    return tmp_path / "data"


def names(*given: Any, most: int = 100, **limits: Any) -> list[str] | None:
    """The last parts of the names that are found."""
    found = named_files(SimpleNamespace(names=given), most=most, **limits)
    return None if found is None else sorted(os.path.basename(each) for each in found)


def test_files_and_folders_that_are_named_are_found(folder: Path) -> None:
    """Once, also by a folder and a folder in it, with links and dots resolved."""
    (folder / "link").symlink_to(folder / "a" / "1.bin")
    assert names(str(folder), folder / "a", f"{folder}/a/../b/3.bin") == ["1.bin", "2.bin", "3.bin", "link"]
    assert names(folder / "link") == ["1.bin"]
    assert names("./1.bin", "../b") == ["1.bin", "3.bin"]
    assert named_files(SimpleNamespace(name=folder / "b"), most=9) == {str(folder.resolve() / "b" / "3.bin"): 5}


def test_a_text_that_is_not_meant_names_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary holds many: the root, what the kernel shows as files, folders at the top, dots. Nor does a home, as
    a whole, or what it is in."""
    texts = "// / /./ //.. /proc /proc/ /sys/ //dev/ /usr ./ ../ .// ../../"
    assert [text for text in texts.split() if names(text) != []] == []
    monkeypatch.setenv("HOME", str(folder / "a"))
    assert holds_more_than_data(str(folder.resolve())) and holds_more_than_data(str(folder.resolve() / "a"))
    assert names(f"{folder}/", f"{folder}/b/") == ["3.bin"]
    assert holds_more_than_data("/home/someone") and not holds_more_than_data("/home/someone/data")


@pytest.mark.parametrize(
    ("given", "limits", "found"),
    [
        (["."], {"most": 1}, 2),
        (["."], {"entries": 4}, None),
        (["."], {"entries": 5}, 3),
        (["."], {"now": iter([0.0, *[MOST_S] * 4, MOST_S + 1]).__next__}, None),
        (["x/this", "x/that", "x/these"], {"now": iter([0.0, MOST_S, MOST_S + 1]).__next__}, None),  # they do not exist
    ],
)
def test_a_walk_ends(folder: Path, given: Iterable[str], limits: dict[str, Any], found: int | None) -> None:
    """With the first file that is too many; and after so many entries, or when its time is over: then none is known."""
    files = names(*(folder / name if name == "." else name for name in given), **limits)
    assert (None if files is None else len(files)) == found


def test_a_file_that_fails_ends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out, as is everything where the current folder is gone."""
    usual = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("2.bin"):
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, **options)

    monkeypatch.setattr("loaderprobe.loaders.reads.os.stat", stat)
    assert names(folder) == ["1.bin", "3.bin"]
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert names("./1.bin", folder / "b") == ["3.bin"]


DATA = TensorDataset(torch.arange(64.0).reshape(16, 4))
FILES = BatchFiles(batch_size=1, paths=(("/a",), ("/b",)), file_bytes={"/a": 1, "/b": 1})


HIDDEN = UnknownFiles(code="none_seen")


def drawn_by(loader: DataLoader[Any], held: Any = (), files: BatchFiles | UnknownFiles = HIDDEN) -> Any:
    return rank_input(loader, example_config(), files, held, exchanges=files is FILES)


def test_files_are_known_by_their_names() -> None:
    """The same name has the same number in every process."""
    found, again = (drawn_by(DataLoader(DATA), files=FILES) for _ in range(2))
    assert found == again and len(set(found.files)) == 2 and found.exchanges


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({"shuffle": True}, True),
        ({"batch_size": None}, True),
        ({"sampler": DistributedSampler(DATA, num_replicas=2, rank=0)}, False),
        ({"batch_sampler": BatchSampler(SequentialSampler(DATA), 2, False)}, True),
        ({"batch_sampler": [[0], [1]]}, False),
    ],
)
def test_a_sampler_goes_through_the_whole_data_set_or_a_share(options: dict[str, Any], whole: bool) -> None:
    """Of batches that something else forms, it is not known. Those of the data set's own making have no one size."""
    found = drawn_by(DataLoader(DATA, **options))
    assert found.whole is whole and (found.batch_size == 0) == ("batch_size" in options)


def test_batches_of_the_same_content_are_the_same() -> None:
    """Tensors of any type; what holds none shows nothing, nor does made-up data, whose batches are all the same."""
    batch = {"x": torch.ones(2, 3, dtype=torch.bfloat16), "y": [torch.tensor([True]), torch.tensor(3)]}
    other = {**batch, "x": torch.zeros(2, 3, dtype=torch.bfloat16)}
    loader = DataLoader(DATA)
    first = drawn_by(loader, (batch,)).first
    assert first == drawn_by(loader, (dict(batch),)).first == drawn_by(loader, (batch, other)).first is not None
    assert first != drawn_by(loader, (other,)).first
    for nothing in ((["text"],), (), (batch, dict(batch))):
        assert drawn_by(loader, nothing).first is None


@pytest.mark.parametrize(("ends", "asked", "then"), [(None, 61, 62), (15, 100, 40), (40, 100, 80), (40, 30, 40)])
def test_the_pool_of_a_stream_grows_as_far_as_the_stream_goes(ends: int | None, asked: int, then: int) -> None:
    """It begins again where its shortest share ends; what was read once is not made shorter."""
    log: Any = SimpleNamespace(rows=[(), ()], pool=40, first_pass=ends, passes=0)
    StreamPool(log).extend(asked)
    assert log.pool == then

"""What a worker does in each mode and records, how it is switched, and what it evicts ahead of a sample."""

from __future__ import annotations

import errno
import itertools
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from multiprocessing.util import Finalize
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ReferenceType, finalize, ref

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from loaderprobe.analyze.verdict.rates import function_times
from loaderprobe.errors import NoSpace
from loaderprobe.loaders import switched, worker_probe
from loaderprobe.loaders.attached import WatchedLoader
from loaderprobe.loaders.fetch_log import PASSES, ROWS, FetchLog
from loaderprobe.loaders.reads import OPENED, pool_reads
from loaderprobe.loaders.switched import SwitchedLoader, dead_worker
from loaderprobe.loaders.worker_probe import EndlessFetch, EvictAhead, WorkerSignals, stacks_seen, watch_here
from loaderprobe.records.measurement import Mode
from loaderprobe.records.thresholds import LEAST_LOOKS
from loaderprobe.records.waits import CodePlace, StackSamples
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.stacks import stack_of
from tests.conftest import needs_cold_reads
from tests.examples.training import Costly


class Counting(Dataset[Any]):
    """Samples that know how often they were made, and hold the number of torch's threads."""

    def __init__(self) -> None:
        self.made = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Any:
        self.made += 1
        return torch.tensor([index, torch.get_num_threads()])


class Broken(Counting):
    """Opens a file and fails."""

    def __getitem__(self, index: int) -> Any:
        Path(__file__).read_bytes()
        raise ValueError("broken")


class Commands(Counting):
    """Runs a command for each sample, which uses a core for 50 ms."""

    def __getitem__(self, index: int) -> Any:
        code = "import time\nwhile time.process_time() < 0.05: pass"
        subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_commands_use_is_of_the_batch(tmp_path: Path, workers: int) -> None:
    """CPU time of processes that a sample is made by is no waiting."""
    with driven(tmp_path, Commands(), num_workers=workers) as loader:
        list(islice(loader.batches(), 2))
        records = loader.records()
    for cpu_ns, all_cpu_ns in zip(records.cpu_ns, records.process_cpu_ns, strict=True):
        assert all_cpu_ns - cpu_ns >= 4 * 50e6


def driven(folder: Path, data: Any, files_of: Any = lambda _: (), **options: Any) -> SwitchedLoader:
    return SwitchedLoader(DataLoader(data, batch_size=4, **options), folder, files_of=files_of, tied=False)


@pytest.mark.parametrize("own", [False, True])
def test_preprocessing_and_handing_over_can_be_left_out(tmp_path: Path, own: bool) -> None:
    """Cached samples are returned without making any; without transport they are made and only counted. What a
    `collate_fn` of the user's does is preprocessing: it runs without transport, and not with cached samples."""
    data, calls, found = Counting(), list[int](), list[Any]()

    def collated(samples: list[torch.Tensor]) -> torch.Tensor:
        calls.append(len(samples))
        return torch.stack(samples) * 2

    with driven(tmp_path, data, collate_fn=collated if own else None) as loader:
        batches = loader.batches()
        modes: tuple[Mode, ...] = ("baseline", "cached_samples", "no_transport", "baseline")
        for mode in modes:
            loader.switch(mode)
            found.append(next(batches))
        records = loader.records()
    first, again, count, last = found
    assert torch.equal(first, again) and first.data_ptr() != again.data_ptr()
    assert count == 4
    assert last[:, 0].tolist() == [number * (2 if own else 1) for number in (12, 13, 14, 15)]
    assert (data.made, len(calls)) == (12, 3 if own else 0)
    assert (records.batch, records.images) == ((0, 1, 2, 3), (4, 4, 4, 4))
    assert [bool(each) for each in records.collate_ns] == ([False] * 4 if own else [True, True, False, True])


@pytest.mark.parametrize("own", [False, True])
def test_the_last_batch_is_not_in_memory_while_the_next_is_made(tmp_path: Path, own: bool) -> None:
    """Batches of gigabytes fit into memory as often as training holds them, and no more."""
    made, alive = list[ReferenceType[Any]](), list[int]()

    def kept(tensor: torch.Tensor) -> torch.Tensor:
        made.append(ref(tensor))
        return tensor

    class Large(Counting):
        def __getitem__(self, index: int) -> Any:
            alive.append(sum(each() is not None for each in made) if index % 4 == 0 else 0)
            return kept(super().__getitem__(index))

    with driven(tmp_path, Large(), collate_fn=(lambda samples: kept(torch.stack(samples))) if own else None) as loader:
        for _ in range(3):
            next(loader.batches())
    assert len(alive) == 12 and not any(alive)


def test_a_batch_that_is_made_as_before_a_switch_was_begun_before_it(tmp_path: Path) -> None:
    """Even where modes are switched while the samples of the batch before are let go: it is not of the new mode."""
    log = FetchLog.create(tmp_path / "log", 1)
    switch, switched_ns = log.open("r+"), list[int]()

    def switch_now() -> None:
        switch.mode = "cached_samples"
        switched_ns.append(time.perf_counter_ns())

    class LetGo(Counting):
        def __getitem__(self, index: int) -> Any:
            finalize(sample := super().__getitem__(index), switch_now)
            return sample

    data = LetGo()
    iterator = iter(DataLoader(data, batch_size=1, collate_fn=len))
    watch = watch_here(log, iterator, lambda _: ())
    next(iterator)
    next(iterator)
    watch.close()
    assert data.made == 2 and switch.begun_before(1, 1, switched_ns[0])


def test_on_one_thread_batches_are_made_with_one_and_the_step_keeps_its_own(tmp_path: Path) -> None:
    """What was set before holds again once the batch is there, in the next mode, and after an error."""
    before, seen = torch.get_num_threads(), list[tuple[int, int]]()
    torch.set_num_threads(3)
    try:
        with driven(tmp_path, Counting()) as loader:
            batches = loader.batches()
            modes: tuple[Mode, ...] = ("baseline", "one_thread", "one_thread", "baseline")
            for mode in modes:
                loader.switch(mode)
                seen.append((int(next(batches)[0, 1]), torch.get_num_threads()))
        with pytest.raises(ValueError, match="broken"), driven(tmp_path, Broken()) as loader:
            loader.switch("one_thread")
            next(loader.batches())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert seen == [(3, 3), (1, 3), (1, 3), (3, 3)]


def test_nothing_is_listened_to_and_nothing_is_kept_after_an_error(tmp_path: Path) -> None:
    """Later files do not count, and the process has as many meters of threads open as before."""

    def meters() -> int:
        opened = [os.readlink(link.path) for link in os.scandir("/proc/self/fd") if os.path.lexists(link.path)]
        return sum(path.endswith("schedstat") for path in opened)

    before = meters()
    with pytest.raises(ValueError, match="broken"), driven(tmp_path, Broken(), files_of=None) as loader:
        next(loader.batches())
    Path(__file__).read_bytes()
    assert OPENED.stop() == [] and meters() == before


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([None, -signal.SIGBUS], "a loader worker (pid 7) ran out of shared memory"),
        ([-signal.SIGKILL], "a loader worker (pid 7) was killed by SIGKILL"),
        ([3], "a loader worker (pid 7) ended with code 3"),
        ([0, None], None),
    ],
)
def test_why_a_worker_ended(codes: list[int | None], message: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bus errors are shared memory that has run out; a worker that lives is no trouble."""
    monkeypatch.setattr(switched, "wait", lambda sentinels, timeout: sentinels)
    workers: Any = [SimpleNamespace(pid=7, exitcode=code, sentinel=0, join=lambda _: None) for code in codes]
    found = dead_worker(workers)
    assert (found and found.message) == message
    assert ("out-of-memory" in getattr(found, "hint", "")) == (codes == [-signal.SIGKILL])
    assert isinstance(found, NoSpace) == (-signal.SIGBUS in codes)


def dies_as_it_ends(pipe: Path, worker: int) -> None:
    """The second of two workers; the first ends after it."""
    if worker:
        os.open(pipe, os.O_RDWR)
        Finalize(None, os.kill, args=(os.getpid(), signal.SIGKILL), exitpriority=0)
        return
    held = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(held, True)
    Finalize(None, os.read, args=(held, 1), exitpriority=0)


def test_a_worker_that_dies_as_it_ends_costs_nothing(tmp_path: Path) -> None:
    """While another is waited for: a spawned one was aborted by a thread of torch's, and all rounds were lost."""
    os.mkfifo(tmp_path / "pipe")
    begin = partial(dies_as_it_ends, tmp_path / "pipe")
    with driven(tmp_path, Counting(), num_workers=2, worker_init_fn=begin) as loader:
        list(islice(loader.batches(), 2))
        _, worker = loader._processes
    worker.join()
    assert worker.exitcode == -signal.SIGKILL


def test_what_was_begun_before_a_switch_is_known(tmp_path: Path) -> None:
    """A batch counts from when its worker began it, whether it is ready or still being made; rows are used again
    after 8192 batches of a lane, and only the number shows whose a row is."""
    log = FetchLog.create(tmp_path / "log", 2).open("r+")
    for number, started_ns in itertools.product((6, -6), (100, 300)):
        log.rows[1, 2, :2] = (number, started_ns)
        found = [log.begun_before(first, first, 200) for first in (4, 6, 4 + 2 * ROWS)]
        assert found == [started_ns < 200, False, False]


@pytest.mark.parametrize(("keep", "left"), [(True, [0, 1, 2, 3, 8192, 8195]), (False, [1, 2, 8192, 8195])])
def test_what_was_read_is_kept_when_other_batches_take_its_place(tmp_path: Path, keep: bool, left: list[int]) -> None:
    """In a later call it is there again, if asked for; batches that were overwritten before are counted as lost."""
    log = FetchLog.create(tmp_path / "log", 1).open("r+")
    for number in range(4):
        log.rows[0, number, :2] = number + 1, number
    assert log.read(keep=keep).lost == 0
    for number in (8192, 8195):
        log.rows[0, number % ROWS, :2] = number + 1, number
    found = log.read()
    assert (list(found.batch), list(found.start_ns), found.lost) == (left, left, 8196 - len(left))


@pytest.mark.parametrize("late", [0, 1])
def test_workers_are_still_when_each_has_made_what_it_was_asked_for(tmp_path: Path, late: int) -> None:
    """Not when the last batch is there: a data set whose workers wait for each other at the beginning of a pass would
    wait for ever if one of them began again a batch earlier than the other."""
    loader = driven(tmp_path, Counting(), num_workers=2)
    log = FetchLog(tmp_path / "fetch.log", 2).open("r+")
    for number in (7, 8, 9, 10):
        log.rows[number % 2, number // 2, 0] = number + 1 if number % 2 != late else -(number + 1)
    assert not loader.still(7)
    log.rows[late, :] = abs(log.rows[late, :])
    assert loader.still(7)


def watched_batches(watched: WatchedLoader, loader: DataLoader[Any]) -> int:
    return len(list(watched.iterate(loader, DataLoader.__iter__)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_training_is_watched_over_all_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """Of epochs that are over, so many records stay. Without a place for the log training goes on, without records."""
    monkeypatch.setattr("loaderprobe.loaders.attached.ROWS", 5)
    loader: DataLoader[Any] = DataLoader(Costly(0.0, 20), 8, num_workers=workers)
    watched, begun = WatchedLoader(tmp_path), []
    for _ in range(3):
        begun.append(time.perf_counter_ns())
        assert watched_batches(watched, loader) == 3
    assert [sum(watched.records(since).images) for since in (*begun, 0)] == [52, 40, 20, 52]
    without = WatchedLoader(tmp_path / "removed" / "0")
    assert watched_batches(without, loader) == 3 and without.records(0).images == ()


def test_nothing_of_a_watched_batch_is_kept(tmp_path: Path) -> None:
    """Neither its samples nor what a function of the user's makes of them, whose work is no transport."""
    held: list[ref[Any]] = []

    def collate(samples: Any) -> torch.Tensor:
        batch = torch.stack([tensor for tensor, _ in samples])
        held.extend(map(ref, (samples[0][0], batch)))
        return batch

    watched = WatchedLoader(tmp_path)
    batches = watched.iterate(DataLoader(Costly(0.0, 20), 8, collate_fn=collate), DataLoader.__iter__)
    assert len(next(batches)) == 8
    assert [found() for found in held] == [None, None]
    assert watched.records(0).collate_ns == (0,)


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}], ids=str)
def test_each_of_several_iterators_is_watched_until_it_is_gone(tmp_path: Path, options: dict[str, Any]) -> None:
    """Two loops side by side, over loaders of one data set, and their next epochs; then its log goes."""
    loaders: list[DataLoader[Any]] = [DataLoader(Costly(0.0, 20), 8, **options) for _ in range(2)]
    watched = WatchedLoader(tmp_path)
    for _ in range(2):
        both = [watched.iterate(loader, DataLoader.__iter__) for loader in loaders]
        assert len(list(zip(*both, strict=True))) == 3
    assert sum(watched.records(0).images) == 80
    loaders.clear()
    both.clear()
    assert watched_batches(watched, DataLoader(Costly(0.0, 20), 8)) == 3
    assert len(list(tmp_path.iterdir())) == 1
    assert sum(watched.records(0).images) == 100


class Generating(DataLoader[Any]):
    """What it is iterated by shows no iterator of torch's."""

    def _get_iterator(self) -> Any:
        yield from super()._get_iterator()


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.parametrize("kind", [Generating, DataLoader])
def test_an_empty_log_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[DataLoader[Any]]) -> None:
    """A training has one for each epoch. A full disk ends no training: there are no records then."""
    if kind is DataLoader:
        monkeypatch.setattr("loaderprobe.loaders.fetch_log.os.posix_fallocate", full)
    watched = WatchedLoader(tmp_path)
    assert watched_batches(watched, kind(Costly(0.0, 20), 8)) == 3
    assert watched.records(0).images == () and not list(tmp_path.iterdir())


def test_a_worker_hears_a_bell_whatever_it_is_doing(tmp_path: Path) -> None:
    """As often as it is rung, from a thread of its own; a listener is optional."""
    context = multiprocessing.get_context("fork")
    signals = WorkerSignals.create(tmp_path, 2)
    assert signals is not None
    ready, heard = context.Semaphore(0), context.Semaphore(0)

    def work() -> None:
        signals.handle(0, heard.release)
        ready.release()
        threading.Event().wait()

    worker = context.Process(target=work, daemon=True)
    worker.start()
    try:
        assert ready.acquire(timeout=30)
        for _ in range(2):
            signals.send()
            assert heard.acquire(timeout=30)
    finally:
        worker.kill()
        worker.join()


def test_samples_are_counted_by_their_stacks_below_the_loader(tmp_path: Path) -> None:
    """Of batches as asked alone: not of the first, whose files are learned, nor without a resource. The samples look at
    the stack themselves, so that no clock decides what is seen."""

    class Looking(Counting):
        def __getitem__(self, index: int) -> int:
            return self.decoded(index)

        def decoded(self, index: int) -> int:
            if watch is not None:
                watch._stacks.count(stack_of(sys._getframe()))
            return index

    watch: Any = None
    iterator = iter(DataLoader(Looking(), batch_size=2))
    log = FetchLog.create(tmp_path / "log", 1)
    watch = watch_here(log, iterator, None)
    switch = log.open("r+")
    switch.pool = 1  # its files are learned with the first batch, which does not count
    modes: tuple[Mode, ...] = ("baseline", "baseline", "cached_samples", "warm")
    for mode in modes:
        switch.mode = mode
        next(iterator)
    watch.close()
    seen = stacks_seen(log)
    assert seen is not None
    assert [each.name.rpartition(".")[2] for each in seen.functions] == ["__getitem__", "decoded"]
    assert (seen.counts, seen.stacks) == ((4,), ((0, 1),))
    assert all(function.file == Path(__file__).name and not function.library for function in seen.functions)


def test_functions_are_ordered_by_all_that_they_take() -> None:
    """Own time is of the innermost function; one that calls itself counts once; too few looks say nothing."""
    slow, outer, quick = (CodePlace(name, "train.py", 1, "") for name in ("slow", "outer", "quick"))
    counts, stacks = (LEAST_LOOKS, LEAST_LOOKS // 2, LEAST_LOOKS // 2), ((0, 1), (0, 1, 1), (0, 2))
    seen = StackSamples(functions=(outer, slow, quick), stacks=stacks, counts=counts, cpu_ns=0)
    found = [(str(each.function), each.own, each.total) for each in function_times(seen)]
    assert found == [("slow (train.py:1)", 0.75, 0.75), ("quick (train.py:1)", 0.25, 0.25)]
    few = StackSamples(functions=(slow,), stacks=((0,),), counts=(LEAST_LOOKS - 1,), cpu_ns=0)
    assert function_times(few) == () == function_times(None)


SIZE = 1 << 20


def written(folder: Path) -> Path:
    """A file on the disk, of which nothing is in memory."""
    needs_cold_reads(folder)
    path = folder / "samples.bin"
    path.write_bytes(os.urandom(SIZE))
    LinuxPageCache().evict([path])
    return path


class Mapped:
    """Samples of one file that is mapped; remembers how much of it was in memory before each."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path.open("rb")
        self.pages = mmap.mmap(self.file.fileno(), 0, prot=mmap.PROT_READ)
        self.resident: list[float | None] = []

    def __getitem__(self, index: int) -> bytes:
        self.resident.append(LinuxPageCache().resident([self.path]))
        return bytes(self.pages)  # all of it, as a device that reads far ahead would


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Mapped]:
    found = Mapped(written(tmp_path))
    yield found
    found.pages.close()
    found.file.close()


class ByThread(Counting):
    """Reads a cold file in a thread of its own, as a library that prefetches does."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def __getitem__(self, index: int) -> Any:
        LinuxPageCache().evict([self.path])
        reader = threading.Thread(target=self.path.read_bytes)
        reader.start()
        reader.join()
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_thread_of_the_data_set_reads_is_read_for_its_batches(tmp_path: Path, workers: int) -> None:
    """A worker belongs to the loader, with all its threads, as the training process does: "0 % came from storage" was
    false."""
    path = written(tmp_path)
    with driven(tmp_path, ByThread(path), files_of=None, num_workers=workers) as loader:
        next(loader.batches())
        records = loader.records()
        (reads,) = pool_reads(FetchLog(tmp_path / "fetch.log", 1), 1)
    assert records.read_bytes[0] >= 4 * SIZE and reads.files[str(path)] == SIZE
    # In the training process other threads may be anything.
    assert (reads.called_bytes >= 4 * SIZE) == bool(workers)


@pytest.mark.parametrize(
    ("share", "most", "pool", "resident"),
    [
        (1e9, None, 0, [0.0, 0.0, 0.0]),
        # Where a worker has read little of the files since, the next sample is hardly met; others may be reading.
        (1e9, 3.0, 0, [0.0, 1.0, 1.0]),
        # Before the same samples come again they are evicted, though they are little of a large file.
        (1e9, 3.0, 4, [0.0, 1.0, 0.0]),
        # A quick loader would else be measured with it: after the first, it waits until that has been made up for.
        (0.0, None, 0, [0.0, None, 1.0]),
    ],
)
def test_each_sample_finds_the_mapped_file_cold(
    data: Mapped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, most: Any, pool: int, resident: Any
) -> None:
    """Although the one before has read all of it; without the request it is warm from the second on."""
    monkeypatch.setattr(worker_probe, "MOST_SHARE", share)
    monkeypatch.setattr(worker_probe, "MOST_CACHED", most or worker_probe.MOST_CACHED)
    loader, log = driven(tmp_path, Counting()), FetchLog(tmp_path / "fetch.log", 1)
    ahead = EvictAhead(log, log.open("r"))
    log.open("r+").pool = pool
    assert ahead.around(data) is data
    loader.evict_ahead([data.path])
    assert [len(ahead.around(data)[number]) for number in range(3)] == [SIZE] * 3
    seen = [expected if expected is None else found for found, expected in zip(data.resident, resident, strict=True)]
    assert seen == resident
    loader.evict_ahead([])
    assert ahead.around(data) is data
    assert len(data[0]) == SIZE and data.resident[-1] == 1.0
    assert ahead.spent_ns > 0
    loader.evict_ahead([data.path])
    of_batches = SimpleNamespace(__getitems__=lambda indices: indices)  # torch asks it for a whole batch
    assert ahead.around(of_batches).__getitems__([1, 2]) == [1, 2]
    assert not hasattr(ahead.around(data), "__getitems__")


def test_all_workers_restart_an_iterable_with_the_same_of_their_batches(tmp_path: Path) -> None:
    """In some libraries they wait for each other then. One has just restarted with the pool when it is asked to."""
    log = FetchLog.create(tmp_path / "fetch.log", 2)
    head = log.open("r+")
    head.pool = 4
    lanes = [EndlessFetch(head, lane, SimpleNamespace(images=1), lambda: None) for lane in range(2)]  # type: ignore[arg-type]

    def make(numbers: Iterable[int]) -> None:
        for number in numbers:
            fetcher = SimpleNamespace(dataset=[0], dataset_iter=iter([0]), auto_collation=True)
            lanes[number % 2].make_batch(fetcher, lambda _: None, None, number // 2)

    make(range(5))
    head.ask_release(5)
    make(range(5, 8))
    assert head.lane_heads[:, PASSES].tolist() == [2, 2]


def test_a_full_disk_is_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written for workers says so, as a log does."""
    loader = driven(tmp_path, Counting())
    FetchLog(tmp_path / "fetch.log", 1).beside("evict", 1).symlink_to("/dev/full")
    with pytest.raises(NoSpace, match="temporary files"):
        loader.evict_ahead([tmp_path])
    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(NoSpace, match="temporary files"):
        WorkerSignals.create(tmp_path, 1)

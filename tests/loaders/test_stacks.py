"""Where workers are in the code of a pipeline: looks at their stacks, counted while batches are made as asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from loaderprobe.analyze.verdict.rates import LEAST_LOOKS, function_times
from loaderprobe.loaders.onlooker import OnlookerProbe
from loaderprobe.loaders.worker_probe import FetchLog, WorkerProbe, stacks_seen, watch_here
from loaderprobe.records.measurement import Mode
from loaderprobe.records.waits import CodePlace, StackSamples
from loaderprobe.system.stacks import stack_of


class Numbers(Dataset[int]):
    """Its samples look at the stack themselves, so that no clock decides what is seen."""

    def __init__(self) -> None:
        self.heard: Any = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return self.decoded(index)

    def decoded(self, index: int) -> int:
        if self.heard is not None:
            self.heard(stack_of(sys._getframe()))
        return index


def seen_in(folder: Path, modes: list[Mode], probe: type[WorkerProbe] = WorkerProbe) -> StackSamples | None:
    """Two samples a batch, a batch in each mode."""
    numbers = Numbers()
    iterator = iter(DataLoader(numbers, batch_size=2))
    log = FetchLog.create(folder / "log", 1)
    watch = watch_here(log, iterator, None, probe)
    switch = log.open("r+")
    switch.pool = 1  # its files are learned with the first batch, which does not count
    numbers.heard = watch._seen.heard if watch._seen is not None else None
    for mode in modes:
        switch.mode = mode
        next(iterator)
    watch.close()
    return stacks_seen(log)


def test_samples_are_counted_by_their_stacks_below_the_loader(tmp_path: Path) -> None:
    """Of batches as asked alone: not of the first, whose files are learned, nor without a resource."""
    seen = seen_in(tmp_path, ["baseline", "baseline", "cached_samples", "warm"])
    assert seen is not None
    assert [each.name.rpartition(".")[2] for each in seen.functions] == ["__getitem__", "decoded"]
    assert seen.counts == (4,) and seen.stacks == ((0, 1),)
    assert all(each.file == Path(__file__).name and not each.library for each in seen.functions)


def test_a_training_that_is_only_watched_is_not_looked_at(tmp_path: Path) -> None:
    """Nothing of it changes."""
    assert seen_in(tmp_path, ["baseline", "baseline"], OnlookerProbe) is None


def test_functions_are_ordered_by_all_that_they_take() -> None:
    """Own time is of the innermost function; one that calls itself counts once; too few looks say nothing."""
    slow, outer, quick = (CodePlace(name, "train.py", 1, "") for name in ("slow", "outer", "quick"))
    counts = (LEAST_LOOKS, LEAST_LOOKS // 2, LEAST_LOOKS // 2)
    seen = StackSamples(
        functions=(outer, slow, quick), stacks=((0, 1), (0, 1, 1), (0, 2)), counts=counts, cpu_ns=0
    )  # fmt: skip
    found = [(str(each.function), each.own, each.total) for each in function_times(seen)]
    assert found == [("slow (train.py:1)", 0.75, 0.75), ("quick (train.py:1)", 0.25, 0.25)]
    few = StackSamples(functions=(slow,), stacks=((0,),), counts=(LEAST_LOOKS - 1,), cpu_ns=0)
    assert function_times(few) == () == function_times(None)

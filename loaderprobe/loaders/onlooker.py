"""The workers of a loader that is only watched: what each batch costs is recorded, and each is made as it would be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from loaderprobe.batches import samples_without_collation
from loaderprobe.loaders.fetch_log import FetchLog, OpenLog
from loaderprobe.loaders.worker_probe import WorkerProbe, WorkerSetup, watch_here
from loaderprobe.records.measurement import WorkerBatches

COLUMNS = tuple(name for name in WorkerBatches.__dataclass_fields__ if name != "lost")


def no_files(_: Any) -> Sequence[Path]:
    """Files are neither learned nor read."""
    return ()


class OnlookerProbe(WorkerProbe):
    """Lets an iterable end, and keeps no sample."""

    def _whole(self, fetcher: Any, original: Callable[[Any], Any], index: Any) -> Any:
        return original(index)

    def _hand_over(self, fetcher: Any, samples: Any) -> Any:
        self._images = len(samples) if fetcher.auto_collation else samples_without_collation(samples)
        begin = time.perf_counter_ns()
        batch = self._collate(samples)
        self._collate_ns = time.perf_counter_ns() - begin
        return batch


class WatchedLoader:
    """The logs of all iterators that a script makes of one loader. Batches are counted over all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: list[tuple[OpenLog, int]] = []
        """Each with the number of its first batch."""

    def iterate(self, loader: DataLoader[Any], original: Callable[[Any], Iterator[Any]], taken: int) -> Iterator[Any]:
        """The loader's own iterator, whose workers record; `taken` batches were taken so far."""
        settings = loader.__dict__
        if loader.num_workers and loader.persistent_workers and settings.get("_iterator") is not None:
            return original(loader)  # the same workers go on with the same log
        log = FetchLog.create(self._folder / f"{len(self._logs)}.log", max(loader.num_workers, 1))
        self._logs.append((log.open("r"), taken))
        if not loader.num_workers:
            real = original(loader)
            watch_here(log, real, no_files, OnlookerProbe)
            return real
        own = loader.worker_init_fn
        settings["worker_init_fn"] = WorkerSetup(log, no_files, own, probe=OnlookerProbe)
        try:
            return original(loader)
        finally:
            settings["worker_init_fn"] = own

    def records(self, first: int) -> WorkerBatches:
        """The cost of each batch from number `first` on."""
        columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        for log, offset in self._logs:
            read = log.read()
            places = [place for place, batch in enumerate(read.batch) if batch + offset >= first]
            for name in COLUMNS:
                values = getattr(read, name)
                shift = offset if name == "batch" else 0
                columns[name] += [values[place] + shift for place in places]
        found: dict[str, Any] = {name: tuple(values) for name, values in columns.items()}
        return WorkerBatches(**found)

"""The workers of a loader that is only watched: what each batch costs is recorded, and each is made as it would be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ref

from torch.utils.data import DataLoader

from loaderprobe.errors import NoSpace
from loaderprobe.loaders.fetch_log import ROWS, FetchLog, OpenLog
from loaderprobe.loaders.unwrap import torch_iterator
from loaderprobe.loaders.worker_probe import WorkerProbe, WorkerSetup, watch_here
from loaderprobe.records.measurement import BATCH_COLUMNS, WorkerBatches

START = BATCH_COLUMNS.index("start_ns")
Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LiveLog:
    """The log of one iterator."""

    path: Path
    log: OpenLog
    held: ref[Any]
    """To what lives as long as the iterator."""
    probe: WorkerProbe | None = None
    """Of a loader without workers."""


class WatchedLoader:
    """What the workers of a loader record, over all iterators that a script makes of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live: list[LiveLog] = []
        """A script may have several iterators at once."""
        self._made = 0
        self._kept: deque[Row] = deque(maxlen=ROWS)
        """The last rows of iterators that are over, as many as a log has of one worker."""

    def iterate(self, loader: DataLoader[Any], original: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """The loader's own iterator, whose workers record where their log can be written."""
        self._retire()
        self._made += 1
        path = self._folder / f"{self._made}.log"
        try:
            self._folder.mkdir(exist_ok=True)
            name = FetchLog.create(path, max(loader.num_workers, 1))
            log = name.open("r")
        except (OSError, NoSpace):  # training goes on without records
            with suppress(OSError):
                path.unlink()  # as much as there was space for
            return original(loader)
        if not loader.num_workers:
            made = original(loader)
            if (real := torch_iterator(made)) is None:
                path.unlink()  # nothing will write it
            else:
                self._live.append(LiveLog(path, log, ref(real), watch_here(name, real, passive=True)))
            return made
        settings, own = loader.__dict__, loader.worker_init_fn
        # torch's iterator holds it, whatever a sub-class has put around that iterator.
        setup = settings["worker_init_fn"] = WorkerSetup(name, init=own, passive=True)
        self._live.append(LiveLog(path, log, ref(setup)))
        try:
            return original(loader)
        finally:
            settings["worker_init_fn"] = own

    def records(self, since_ns: int) -> WorkerBatches:
        """The cost of each batch that was begun since then, numbered in the order in which they were begun."""
        kept = (row for row in self._kept if row[START] >= since_ns)
        live = (row for each in self._live for row in _rows(each.log, since_ns))
        rows = sorted((*kept, *live), key=lambda row: row[START])
        columns: dict[str, Any] = dict(zip(BATCH_COLUMNS, zip(*rows, strict=True), strict=False))
        return WorkerBatches(**columns | {"batch": tuple(range(len(rows)))})

    def _retire(self) -> None:
        """Keep the rows of iterators that are gone, and remove their logs: workers open them by name."""
        live, self._live = self._live, []
        for each in live:
            if each.held() is not None:
                self._live.append(each)
                continue
            self._kept += _rows(each.log)
            each.path.unlink(missing_ok=True)
            if each.probe is not None:
                each.probe.close()


def _rows(log: OpenLog, since_ns: int = 0) -> Iterator[Row]:
    read = log.read(since_ns)
    return zip(*(getattr(read, name) for name in BATCH_COLUMNS), strict=True)

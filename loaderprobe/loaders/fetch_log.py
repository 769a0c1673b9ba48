"""What each batch cost the worker that made it, without touching the data set.

`worker_init_fn` runs in the worker before it makes its fetcher, so wrapping the fetcher's `fetch` there
sees whole batches: wall, thread CPU, run-queue delay, bytes read. Blocked time is what remains of the wall;
against planted delays it was exact to 1 %, where timers around `decode` were not (Pillow reads lazily).
The rows go to a memory-mapped file, one lane a worker, which the parent reads at any time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data._utils import fetch as torch_fetch

from loaderprobe.records.measurement import WorkerBatches
from loaderprobe.system.process import die_with_parent
from loaderprobe.system.thread import ThreadMeter

ROWS = 8192
# batch number + 1 (written last: a row with 0 is not complete), start, wall, cpu, run delay, read bytes, images
COLUMNS = 7


@dataclass(frozen=True, slots=True)
class FetchLog:
    """The log of all lanes of one loader. Picklable, so that it reaches workers by any start method."""

    path: Path
    lanes: int

    @classmethod
    def create(cls, path: Path, lanes: int) -> FetchLog:
        """An empty log at `path`."""
        np.memmap(path, dtype=np.int64, mode="w+", shape=(lanes, ROWS, COLUMNS)).flush()
        return cls(path, lanes)

    def _rows(self, mode: Any) -> np.memmap[Any, np.dtype[np.int64]]:
        return np.memmap(self.path, dtype=np.int64, mode=mode, shape=(self.lanes, ROWS, COLUMNS))

    def wrap(self, fetch: Callable[..., Any], lane: int) -> Callable[..., Any]:
        """`fetch`, writing one row a batch; `fetch`'s last argument is the list of image numbers."""
        rows = self._rows("r+")[lane]
        meter = ThreadMeter()
        made = 0

        def measured(*arguments: Any) -> Any:
            nonlocal made
            cpu, delay, read = meter.read()
            start = time.perf_counter_ns()
            batch = fetch(*arguments)
            wall = time.perf_counter_ns() - start
            cpu_after, delay_after, read_after = meter.read()
            row = rows[made % ROWS]
            row[0] = 0
            row[1:] = (start, wall, cpu_after - cpu, delay_after - delay, read_after - read, len(arguments[-1]))
            row[0] = lane + made * self.lanes + 1
            made += 1
            return batch

        return measured

    def read(self) -> WorkerBatches:
        """All complete rows, by batch number."""
        rows = np.array(self._rows("r")).reshape(-1, COLUMNS)
        rows = rows[rows[:, 0] > 0]
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        batch = rows[:, 0] - 1
        newest = int(batch[-1]) + 1 if len(batch) else 0
        columns = [tuple(column.tolist()) for column in rows.T]
        return WorkerBatches(
            batch=tuple(batch.tolist()),
            worker=tuple((batch % self.lanes).tolist()),
            start_ns=columns[1],
            wall_ns=columns[2],
            cpu_ns=columns[3],
            run_delay_ns=columns[4],
            read_bytes=columns[5],
            images=columns[6],
            lost=max(0, newest - ROWS * self.lanes),
        )


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """The loader's `worker_init_fn`: ties the worker's life to its parent's and wraps its fetcher."""

    log: FetchLog
    parent: int

    def __call__(self, worker: int) -> None:
        """Run in the worker, before torch makes its fetcher."""
        die_with_parent(self.parent)
        # torch makes the fetcher after this call, and this process serves no other loader.
        torch_fetch._MapDatasetFetcher.fetch = self.log.wrap(torch_fetch._MapDatasetFetcher.fetch, worker)  # type: ignore[method-assign]  # the point of it


def worker_setup(log: FetchLog) -> WorkerSetup:
    """The `worker_init_fn` for workers of this process."""
    return WorkerSetup(log, os.getpid())

"""Evicting a data set's files ahead of samples, so that each reads as one of a set larger than memory does.

Behind a device that reads ahead by some MB, a few samples at random places of one file bring all of it into memory:
evicted once, it is warm before timing begins. Evicted whenever the workers together may have read a tenth of it, hardly
a sample is served by what was read for another. Not more often: one worker's eviction also takes what another has just
read (by two workers and ahead of each sample, 38 times the bytes of the samples were read where a set ten times as
large took 22).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loaderprobe.loaders.fetch_log import FetchLog, OpenLog
from loaderprobe.system.mapped import Evicted
from loaderprobe.system.thread import process_usage

# Of the time in which samples are made. Assumed. Where evicting would cost a quick loader more, it is done less often.
MOST_SHARE = 0.03
# Of the files, in memory at most, for all workers. Assumed.
MOST_CACHED = 0.1


def ask(log: FetchLog, number: int, paths: Sequence[Path]) -> None:
    """Let the workers evict these files from now on. `number` must be new."""
    _list_of(log, number).write_text(json.dumps([str(path) for path in paths]))


class EvictAhead:
    """In a worker: evicts the files that are asked for, ahead of samples of a map-style data set."""

    def __init__(self, log: FetchLog) -> None:
        self._log = log
        self._number = 0
        self._files: Evicted | None = None
        self._asked: OpenLog | None = None
        self._since_ns = self._lately_ns = self._most_bytes = 0
        self._evicted_at: int | None = None
        """Bytes that this process had read from storage at the last eviction."""
        self.spent_ns = self.spent_cpu_ns = 0
        """Of all evictions, wall and CPU time."""

    def around(self, dataset: Any, log: OpenLog) -> Any:
        """The data set, or one that evicts ahead of its samples."""
        if log.ahead != self._number:
            self._begin(log.ahead)
        if self._files is None:
            return dataset
        self._asked = log
        return (_Batched if getattr(dataset, "__getitems__", None) else _Single)(dataset, self._drop)

    def _begin(self, number: int) -> None:
        self.close()
        self._number, self._since_ns, self._lately_ns, self._evicted_at = number, time.perf_counter_ns(), 0, None
        if number:
            self._files = Evicted(json.loads(_list_of(self._log, number).read_text()))
            self._most_bytes = round(MOST_CACHED * self._files.size_bytes / self._log.lanes)

    def _drop(self) -> None:
        if self._asked is None or self._asked.ahead != self._number:
            return  # files are made warm meanwhile
        _, read = process_usage()
        begin_ns, begin_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        few = self._evicted_at is not None and read - self._evicted_at < self._most_bytes
        if self._files is None or few or self._lately_ns > MOST_SHARE * (begin_ns - self._since_ns):
            return
        self._files.drop()
        self._evicted_at = read
        took_ns = time.perf_counter_ns() - begin_ns
        self._lately_ns += took_ns
        self.spent_ns += took_ns
        self.spent_cpu_ns += time.thread_time_ns() - begin_cpu_ns

    def close(self) -> None:
        """Evict no more."""
        if self._files is not None:
            self._files.close()
        self._files = None


class _Single:
    def __init__(self, dataset: Any, drop: Any) -> None:
        self._dataset, self._drop = dataset, drop

    def __getattr__(self, name: str) -> Any:
        if name in ("_dataset", "__getitems__"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        self._drop()
        return self._dataset[index]


class _Batched(_Single):
    def __getitems__(self, indices: Any) -> Any:
        self._drop()
        return self._dataset.__getitems__(indices)


def _list_of(log: FetchLog, number: int) -> Path:
    return log.path.with_name(f"{log.path.name}.evict-{number}")

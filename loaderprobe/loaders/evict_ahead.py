"""Evicting a data set's files ahead of each sample, so that each reads as one of a set larger than memory does.

Behind a device that reads ahead by some MB, a few samples at random places of one file bring all of it into memory:
evicted once, it is warm before timing begins. Evicted ahead of each sample, no sample is served by what was read for
another.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loaderprobe.loaders.fetch_log import FetchLog, OpenLog
from loaderprobe.system.mapped import Evicted

# Of the time in which samples are made. A loader that is so quick that evicting would cost more is evicted less often.
MOST_SHARE = 0.03


def ask(log: FetchLog, number: int, paths: Sequence[Path]) -> None:
    """Let the workers evict these files from now on. `number` must be new."""
    _list_of(log, number).write_text(json.dumps([str(path) for path in paths]))


class EvictAhead:
    """In a worker: evicts the files that are asked for, ahead of each sample of a map-style data set."""

    def __init__(self, log: FetchLog) -> None:
        self._log = log
        self._number = 0
        self._files: Evicted | None = None
        self._since_ns = self._lately_ns = 0
        self.spent_ns = self.spent_cpu_ns = 0
        """Of all evictions, wall and CPU time."""

    def around(self, dataset: Any, log: OpenLog) -> Any:
        """The data set, or one that evicts ahead of each sample."""
        if log.ahead != self._number:
            self._begin(log.ahead)
        if self._files is None:
            return dataset
        return (_Batched if getattr(dataset, "__getitems__", None) else _Single)(dataset, self._drop)

    def _begin(self, number: int) -> None:
        self.close()
        self._number, self._since_ns, self._lately_ns = number, time.perf_counter_ns(), 0
        if number:
            self._files = Evicted(json.loads(_list_of(self._log, number).read_text()))

    def _drop(self) -> None:
        begin_ns, begin_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        if self._files is None or self._lately_ns > MOST_SHARE * (begin_ns - self._since_ns):
            return
        self._files.drop()
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

    def __getitem__(self, index: Any) -> Any:
        self._drop()
        return self._dataset[index]


class _Batched(_Single):
    def __getitems__(self, indices: Any) -> Any:
        self._drop()
        return self._dataset.__getitems__(indices)


def _list_of(log: FetchLog, number: int) -> Path:
    return log.path.with_name(f"{log.path.name}.evict-{number}")

"""The cost of each batch in its worker, and the switch that selects the mode of the next batches.

Both are in one memory-mapped file. It has one row per batch in one lane per worker, which the parent reads at any
time, and a head that the parent writes and the workers read before every batch. So a change of mode starts no
process, and all modes see the same machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from loaderprobe.records.measurement import BATCH_COLUMNS, Mode, WorkerBatches
from loaderprobe.system.scratch import written_in

ROWS = 8192
# A row has the batch number + 1, which is negative while the batch is being made, and written last; then what it cost.
COLUMNS = len(BATCH_COLUMNS) - 1
MODES: tuple[Mode, ...] = get_args(Mode)
# Of the head of a lane, which its worker writes.
RELEASED, PASSES, FIRST_PASS = 0, 1, 2
ALWAYS_NEW = -1


@dataclass(frozen=True, slots=True)
class FetchLog:
    """The log of all lanes of one loader. Picklable, so that it reaches workers by any start method."""

    path: Path
    lanes: int

    @classmethod
    def create(cls, path: Path, lanes: int) -> FetchLog:
        """An empty log at `path`, switched to the baseline. Raises NoSpace on a full file system."""
        cells = COLUMNS * (1 + lanes + lanes * ROWS)
        # Not sparse: where the file system is full, whoever wrote into its mapping would die of SIGBUS.
        with written_in(path.parent), path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, cells * np.dtype(np.int64).itemsize)
        return cls(path, lanes)

    def beside(self, kind: str, number: int) -> Path:
        """The file of that kind beside the log: of a lane, or of a request."""
        return self.path.with_name(f"{self.path.name}.{kind}-{number}")

    def open(self, mode: Any) -> OpenLog:
        """The log as mapped memory; `mode` as of numpy's memmap."""
        lanes = self.lanes
        cells = np.asarray(np.memmap(self.path, dtype=np.int64, mode=mode, shape=(1 + lanes + lanes * ROWS, COLUMNS)))
        return OpenLog(cells[0], cells[1 : 1 + lanes], cells[1 + lanes :].reshape(lanes, ROWS, COLUMNS))


Cells = np.ndarray[Any, np.dtype[np.int64]]


class HeadCell:
    """A number in the head of a log, which the parent writes and all workers read."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, log: OpenLog, _: type) -> int:
        return int(log.head[self._index])

    def __set__(self, log: OpenLog, number: int) -> None:
        log.head[self._index] = number


class OpenLog:
    """A mapped log: the head, a head and rows of each lane. Batch `k` is made by lane `k mod lanes`."""

    _mode = HeadCell(0)
    pool = HeadCell(1)
    """Batches before the same are made again; 0 while that is not known, ALWAYS_NEW if they never are."""
    release = HeadCell(2)
    """Number of requests to workers to unmap the pages of the data's files."""
    ahead = HeadCell(3)
    """Number of the list of files that workers evict ahead of each sample; 0 where they evict none."""
    begin = HeadCell(4)
    """Own batches that a worker has made when it is to restart an iterable."""

    def __init__(self, head: Cells, lane_heads: Cells, rows: Cells) -> None:
        self.head = head
        self.lane_heads = lane_heads
        self.rows = rows
        self._kept: Cells = rows.reshape(-1, COLUMNS)[:0]

    @property
    def mode(self) -> Mode:
        return MODES[self._mode]

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = MODES.index(mode)

    def ask_release(self, requested: int = 0) -> None:
        """Ask every worker to unmap them now, and to restart an iterable where so many batches were requested before.

        All restart with the same of their own batches: in some libraries they wait for each other.
        """
        self.begin = -(-requested // len(self.lane_heads))
        self.release += 1

    @property
    def all_released(self) -> bool:
        return bool((self.lane_heads[:, RELEASED] >= self.release).all())

    @property
    def passes(self) -> int:
        """Most restarts of any worker's iterable."""
        return int(self.lane_heads[:, PASSES].max())

    @property
    def first_pass(self) -> int | None:
        """Batches of a worker before its iterable began again, of the one with the fewest; None where none has."""
        return min((int(batches) for batches in self.lane_heads[:, FIRST_PASS] if batches), default=None)

    def made(self, number: int) -> bool:
        """True when this batch, or a later one in its place, has been made."""
        return int(self._row(number)[0]) > number

    def begun_before(self, first: int, count: int, time_ns: int) -> bool:
        """True when one of `count` batches from number `first` on was begun before `time_ns`."""
        rows = ((number, self._row(number)) for number in range(first, first + count))
        return any(abs(int(row[0])) == number + 1 and row[1] < time_ns for number, row in rows)

    def _row(self, number: int) -> Cells:
        """Of a batch, or of an earlier or later one in its place."""
        lanes = len(self.rows)
        row: Cells = self.rows[number % lanes, number // lanes % ROWS]
        return row

    def read(self, since_ns: int = 0, *, keep: bool = False) -> WorkerBatches:
        """All complete rows of batches begun since then, by batch number.

        Those of earlier calls with `keep` are among them, though the log may hold others in their place now.
        """
        lanes = len(self.rows)
        rows = np.concatenate([self._kept, self.rows.reshape(-1, COLUMNS)])
        numbers, first = np.unique(rows[:, 0], return_index=True)
        rows = rows[first[numbers > 0]]
        if keep:
            self._kept = rows
        batch = rows[:, 0] - 1
        made = sum(int(batch[batch % lanes == lane].max(initial=-1)) // lanes + 1 for lane in range(lanes))
        lost, rows = made - len(rows), rows[rows[:, 1] >= since_ns]
        batch = rows[:, 0] - 1
        columns = zip(BATCH_COLUMNS, (batch, batch % lanes, *rows.T[1:]), strict=True)
        return WorkerBatches(**{name: tuple(column.tolist()) for name, column in columns}, lost=lost)

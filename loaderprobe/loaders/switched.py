"""Any torch DataLoader under external control: its workers make each batch in the selected mode and record its cost."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.utils.data import DataLoader

from loaderprobe.errors import DeadWorker, LoaderprobeError, NoSpace
from loaderprobe.loaders.fetch_log import FetchLog
from loaderprobe.loaders.state import random_state_as_begun
from loaderprobe.loaders.unwrap import end_workers, torch_iterator
from loaderprobe.loaders.worker_probe import FilesOf, WorkerProbe, WorkerSetup, WorkerSignals, watch_here
from loaderprobe.records.measurement import Mode, WorkerBatches
from loaderprobe.system.mapped import let_go
from loaderprobe.system.process import DEATH_S, how_worker_ended
from loaderprobe.system.scratch import remove_batches, written_in

# Until all workers have made what they were asked for; a batch that takes longer is caught in the act.
MOST_STILL_S = 10.0
MOST_RELEASE_S = 2.0
POLL_S = 0.002
# Errors by which the training thread notices a dead worker.
WORKER_TROUBLE = (RuntimeError, OSError, EOFError)


def dead_worker(workers: Sequence[BaseProcess]) -> LoaderprobeError | None:
    """The error for a worker that has ended; None when all run.

    In the training thread a dead worker shows as different errors, a reset connection among them; only the
    worker's exit code gives the cause.
    """
    ended = wait([worker.sentinel for worker in workers], timeout=DEATH_S)
    for worker in workers:
        if worker.sentinel in ended:
            worker.join(DEATH_S)
        if worker.exitcode:
            reason, hint = how_worker_ended(worker.pid, worker.exitcode)
            return (NoSpace if worker.exitcode == -signal.SIGBUS else DeadWorker)(reason, hint=hint)
    return None


class SwitchedLoader:
    """Drives `loader`, which must serve batches without end. It is changed, so pass a copy.

    `files_of` names the files of a batch; without it the workers learn them. `tied` ends the workers with
    this process, for workers that are its children. `maps` where they may map files, whose names are known.
    Entering starts the workers, leaving stops them.
    """

    def __init__(
        self, loader: DataLoader[Any], scratch: Path, *, files_of: FilesOf | None, tied: bool, maps: bool = False
    ) -> None:
        self._loader = loader
        self._log_name = FetchLog.create(scratch / "fetch.log", max(loader.num_workers, 1))
        self._log = self._log_name.open("r+")
        # Files that are named need no learning, and their loader maps none.
        self._may_map = files_of is None or maps
        self._signals = WorkerSignals.create(scratch, loader.num_workers) if self._may_map else None
        self._evicted_ahead: tuple[Path, ...] = ()
        self._lists = 0
        """Lists of such files that were written for the workers."""
        self._iterator: Any = None
        """torch's own; sub-classes may wrap it, and what it yields."""
        self._batches: Any = None
        self._probe: WorkerProbe | None = None
        settings = loader.__dict__
        if loader.num_workers:
            init, here = loader.worker_init_fn, os.getpid()
            settings["worker_init_fn"] = WorkerSetup(
                self._log_name, files_of, init, here if tied else None, here, self._signals
            )
        make = loader._get_iterator

        def get_iterator() -> Any:
            begin_again = None if loader.num_workers else random_state_as_begun(loader)
            made = make()
            self._iterator = torch_iterator(made)
            if begin_again is not None and self._iterator is not None:
                self._probe = watch_here(self._log_name, self._iterator, files_of, begin_again=begin_again)
            return made

        settings["_get_iterator"] = get_iterator

    def __enter__(self) -> Self:
        self._batches = iter(self._loader)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if processes := self._processes:
                dead = self._dead_worker(error)
                end_workers(self._iterator)
                remove_batches([worker.pid for worker in processes])
                if dead:
                    raise dead from error
        finally:
            if self._probe is not None:
                self._probe.close()
            self._iterator = self._batches = self._probe = None
            # It holds this object. In a cycle a user's loader would stay until that is collected, and queues before
            # iterators: no worker would hear that it must end.
            vars(self._loader).pop("_get_iterator", None)

    def batches(self) -> Iterator[Any]:
        """The loader's batches; in mode no_transport only the number of samples of each batch."""
        batches: Iterator[Any] = self._batches
        return batches

    def workers(self) -> Sequence[int]:
        return [worker.pid for worker in self._processes]

    @property
    def _processes(self) -> Sequence[Any]:
        """The workers; empty before they have been started."""
        return self._iterator._workers if self._loader.num_workers and self._iterator is not None else ()

    def _dead_worker(self, error: BaseException | None) -> LoaderprobeError | None:
        """The error for a worker that has ended, where `error` may come of that."""
        return dead_worker(self._processes) if self._processes and isinstance(error, WORKER_TROUBLE) else None

    def records(self) -> WorkerBatches:
        return self._log.read(keep=True)

    def modes(self) -> frozenset[Mode]:
        return frozenset(
            {"baseline", "warm", "cached_samples", "no_transport"}
            if self._loader.num_workers
            else {"baseline", "warm", "cached_samples", "one_thread"}
        )

    def switch(self, mode: Mode) -> None:
        self._log.mode = mode

    def still(self, taken: int) -> bool:
        requested = taken + self._ahead
        return all(self._log.made(last) for last in range(requested - self._loader.num_workers, requested))

    def release(self, taken: int) -> None:
        """Make this process and all workers unmap the pages of mapped files, once no batch is being made.

        `taken` batches have been taken: workers stop when the ones ahead are made. Waits for that for a limited time.
        """
        if not self._may_map:
            return
        let_go()
        if not self._loader.num_workers:
            self._log.ask_release()
            return
        wait_for(lambda: self.still(taken), MOST_STILL_S)
        self._log.ask_release(taken + self._ahead)
        if self._signals is not None:
            self._signals.send()
        wait_for(lambda: self._log.all_released, MOST_RELEASE_S)

    def evict_ahead(self, paths: Sequence[Path]) -> None:
        if paths and tuple(paths) != self._evicted_ahead:
            request = self._log_name.beside("evict", self._lists + 1)
            with written_in(request.parent):
                request.write_text(json.dumps([str(path) for path in paths]))
            self._lists, self._evicted_ahead = self._lists + 1, tuple(paths)
        self._log.ahead = self._lists if paths else 0

    def begun_before(self, first_batch: int, time_ns: int) -> bool:
        return self._log.begun_before(first_batch, self._ahead, time_ns)

    @property
    def _ahead(self) -> int:
        """Batches that workers are asked for before they are taken."""
        return self._loader.num_workers * (self._loader.prefetch_factor or 0)


def wait_for(done: Callable[[], bool], most_s: float) -> bool:
    """Wait until it is done; False where that takes longer."""
    end_s = time.monotonic() + most_s
    while not (is_done := done()) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return is_done

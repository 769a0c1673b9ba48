"""torch's DataLoader: serial, or with N worker processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from itertools import count
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.utils.data import DataLoader, Sampler

from loaderprobe.errors import LoaderprobeError, NoSpace
from loaderprobe.loaders.fetch_log import FetchLog, worker_setup
from loaderprobe.loaders.images import SIDE, ImageFiles
from loaderprobe.records.config import FileSet, RunConfig
from loaderprobe.records.measurement import WorkerBatches
from loaderprobe.system.memory import free_shared_memory_bytes
from loaderprobe.system.process import signal_name
from loaderprobe.units import format_bytes

FLOAT32_BYTES = 4
DEATH_SECONDS = 1.0
# How the training thread meets a dead worker.
WORKER_TROUBLE = (RuntimeError, OSError, EOFError)
SHARED_MEMORY_HINT = (
    "give the container more /dev/shm (docker run --shm-size), or lower --batch-size, --workers or --prefetch-factor"
)


class InOrder(Sampler[int]):
    """0, 1, 2, ... without end: the file set's own order is already random."""

    def __iter__(self) -> Iterator[int]:
        return count()


def shared_memory_needed(config: RunConfig) -> int:
    """Bytes of shared memory that a configuration's batches in flight take at most."""
    batch = config.batch_size * 3 * SIDE * SIDE * FLOAT32_BYTES
    # Those ahead, the one in the training thread's hands, and one a worker is making.
    return batch * (config.batches_ahead + 1 + config.workers) if config.workers else 0


def dead_worker(workers: Sequence[BaseProcess]) -> LoaderprobeError | None:
    """What ended a worker, if one has ended.

    The training thread meets a dead worker in many guises, a reset connection among them; only the
    worker's exit code tells what happened.
    """
    # A dying process resets its connections a moment before its exit code is there.
    ended = wait([worker.sentinel for worker in workers], timeout=DEATH_SECONDS)
    for worker in workers:
        if worker.sentinel in ended:
            worker.join(DEATH_SECONDS)
        if not worker.exitcode:
            continue
        if -worker.exitcode == signal.SIGBUS:
            return NoSpace(f"a loader worker (pid {worker.pid}) ran out of shared memory", hint=SHARED_MEMORY_HINT)
        how = f"killed by {signal_name(-worker.exitcode)}" if worker.exitcode < 0 else f"ended ({worker.exitcode})"
        return LoaderprobeError(
            f"a loader worker (pid {worker.pid}) was {how}",
            hint="look for the out-of-memory killer in dmesg; fewer workers take less memory",
        )
    return None


class TorchLoader:
    """`torch.utils.data.DataLoader` over image files.

    Raises NoSpace before any worker starts when shared memory is too small for the batches in flight: a
    worker would die there of a bus error.
    """

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        self._config = config
        self._log = FetchLog.create(scratch / "fetch.log", max(config.workers, 1))
        self._loader = DataLoader(
            ImageFiles(files, config.pipeline, config.decoder),
            batch_size=config.batch_size,
            sampler=InOrder(),
            drop_last=True,
            num_workers=config.workers,
            prefetch_factor=config.prefetch_factor or None,
            pin_memory=config.compute.startswith("cuda"),
            worker_init_fn=worker_setup(self._log) if config.workers else None,
            generator=torch.Generator().manual_seed(config.seed),
        )
        self._iterator: Any = None

    def __enter__(self) -> Self:
        free = free_shared_memory_bytes()
        needed = shared_memory_needed(self._config)
        if free is not None and free < needed:
            raise NoSpace(
                f"shared memory has {format_bytes(free)} free, but the batches in flight take {format_bytes(needed)}",
                hint=SHARED_MEMORY_HINT,
            )
        self._iterator = iter(self._loader)
        if self._config.workers == 0:
            fetcher = self._iterator._dataset_fetcher
            fetcher.fetch = self._log.wrap(fetcher.fetch, 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._config.workers and self._iterator is not None:
            dead = dead_worker(self._iterator._workers) if isinstance(error, WORKER_TROUBLE) else None
            self._iterator._shutdown_workers()
            if dead:
                raise dead from error
        self._iterator = None

    def batches(self) -> Iterator[Any]:
        """(images, labels): float32 N x 3 x 224 x 224, and int64 N."""
        iterator: Iterator[Any] = self._iterator
        return iterator

    def workers(self) -> Sequence[int]:
        """The workers' process ids; empty for the serial loader."""
        return [worker.pid for worker in self._iterator._workers] if self._config.workers else []

    def records(self) -> WorkerBatches:
        """What every batch so far has cost."""
        return self._log.read()

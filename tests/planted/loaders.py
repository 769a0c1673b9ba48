"""Loaders with planted trouble, for `--loader tests.planted.loaders:NAME`."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import WorkerBatches


class Plain:
    """Batches of files as they are, read by the training thread; torch is not needed."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        self._paths, self._size, self._place = files.absolute(0, files.count), config.compute.batch_size, files.folder

    def batches(self) -> Iterator[Any]:
        paths = itertools.cycle(self._paths)
        while True:
            yield [path.read_bytes() for path in itertools.islice(paths, self._size)]

    def workers(self) -> Sequence[int]:
        return []

    def records(self) -> WorkerBatches:
        return WorkerBatches()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None: ...


class Hanging(Plain):
    """Opens the named pipe beside the data, which shows the test that it is running, and never answers."""

    def batches(self) -> Iterator[Any]:
        with (self._place.parent / "alive").open("w") as pipe:
            pipe.write("alive")
            pipe.flush()
            signal.pause()
        yield


def without_torch(folder: Path) -> Path:
    """A folder to search for modules first, so that nothing imports torch, which takes seconds."""
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('done without')\n")
    return folder

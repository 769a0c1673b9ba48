"""Loaders with planted trouble, for `--loader tests.planted.loaders:NAME`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import WorkerBatches


class Planted:
    """Around torch's own loader, which is imported where it is made: the sweep itself only looks at the class."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        from loaderprobe.loaders.torch import TorchLoader

        self._loader = TorchLoader(config, files, scratch)

    def batches(self) -> Iterator[Any]:
        """Those of torch's loader."""
        return self._loader.batches()

    def workers(self) -> Sequence[int]:
        """Those of torch's loader."""
        return self._loader.workers()

    def records(self) -> WorkerBatches:
        """Those of torch's loader."""
        return self._loader.records()

    def __enter__(self) -> Self:
        self._loader.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._loader.__exit__(*raised)


class KilledWorker(Planted):
    """One of its workers is killed after the first batch."""

    def batches(self) -> Iterator[Any]:
        """One batch, then trouble."""
        batches = super().batches()
        yield next(batches)
        os.kill(self.workers()[0], signal.SIGKILL)
        yield from batches


class Hanging(Planted):
    """Opens the named pipe beside the data, which shows the test that it is running, and never answers."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, scratch)
        self._pipe = Path(files.root).parent / "alive"

    def batches(self) -> Iterator[Any]:
        """Nothing, for ever; the pipe closes when this process ends."""
        with self._pipe.open("w") as pipe:
            pipe.write("alive")
            pipe.flush()
            signal.pause()
        yield

"""Loaders with planted trouble, for `--loader tests.planted.loaders:NAME`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaderprobe.loaders.torch import TorchLoader
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet


class KilledWorker(TorchLoader):
    """One of its workers is killed after the first batch."""

    def batches(self) -> Iterator[Any]:
        """One batch, then trouble."""
        batches = super().batches()
        yield next(batches)
        os.kill(self.workers()[0], signal.SIGKILL)
        yield from batches


class Hanging(TorchLoader):
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

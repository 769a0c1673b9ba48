"""A loader for `--loader tests.planted.killed_worker:KilledWorker`; with it comes torch."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from loaderprobe.loaders.torch import TorchLoader


class KilledWorker(TorchLoader):
    """Torch's own, of which one worker is killed after the first batch."""

    def batches(self) -> Iterator[Any]:
        batches = super().batches()
        yield next(batches)
        os.kill(self.workers()[0], signal.SIGKILL)
        yield from batches

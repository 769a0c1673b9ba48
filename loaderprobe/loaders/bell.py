"""A signal from the training process to its workers: a thread of each worker answers, whatever the worker is doing."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bells:
    """A named pipe for each worker. Picklable, so that it reaches workers by any start method."""

    folder: Path
    count: int

    @classmethod
    def create(cls, folder: Path, count: int) -> Bells | None:
        """The pipes, in a new folder under this one; None on a file system without named pipes."""
        made = cls(Path(tempfile.mkdtemp(prefix="bells-", dir=folder)), count)
        try:
            for worker in range(count):
                os.mkfifo(made.path(worker))
        except OSError:
            return None
        return made

    def path(self, worker: int) -> Path:
        """The pipe of one worker."""
        return self.folder / str(worker)

    def ring(self) -> None:
        """Signal every worker that still runs."""
        for worker in range(self.count):
            with suppress(OSError):  # no listener
                pipe = os.open(self.path(worker), os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(pipe, b"!")
                finally:
                    os.close(pipe)

    def answer(self, worker: int, action: Callable[[], None]) -> None:
        """In a worker: call `action` from a separate thread at every signal, as long as the process lives."""
        # Open for both, the pipe never ends when a ringer closes it.
        pipe = os.open(self.path(worker), os.O_RDWR | os.O_CLOEXEC)

        def listen() -> None:
            while os.read(pipe, 1):
                action()

        threading.Thread(target=listen, name="loaderprobe-bell", daemon=True).start()

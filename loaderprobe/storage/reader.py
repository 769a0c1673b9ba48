"""Threads that read pieces as fast as they can, each into one buffer of its own.

`open().read()` in a pool tops out where the storage does not: it makes a new bytes object a file. A buffer
made once and `preadv` are as fast as C up to some 3 GB/s.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from loaderprobe.storage.files import Piece


@dataclass(slots=True)
class Reading:
    """What one leg read."""

    seconds: float = 0.0
    delivered_bytes: int = 0
    latency_s: list[float] = field(default_factory=list)
    short: int = 0
    """Pieces that had vanished or shrunk when they were read."""
    cpu_s: float = 0.0
    laps: int = 0

    def add(self, lap: Reading) -> None:
        """Count another lap in; time between laps does not count."""
        self.seconds += lap.seconds
        self.delivered_bytes += lap.delivered_bytes
        self.latency_s += lap.latency_s
        self.short += lap.short
        self.cpu_s += lap.cpu_s
        self.laps += 1


def read_pieces(pieces: Sequence[Piece], *, readers: int, seconds: float) -> Reading:
    """Read pieces in order with `readers` threads, each piece at most once, for at most `seconds`."""
    buffer_bytes = max(piece.size_bytes for piece in pieces)
    result = Reading()
    lock = threading.Lock()
    position = 0

    def next_piece() -> Piece | None:
        nonlocal position
        with lock:
            if position >= len(pieces) or time.perf_counter() >= deadline:
                return None
            position += 1
            return pieces[position - 1]

    def run() -> None:
        buffer = mmap.mmap(-1, buffer_bytes)
        latency: list[float] = []
        delivered = short = 0
        start.wait()
        while (piece := next_piece()) is not None:
            begun = time.perf_counter()
            got = _read(piece, buffer)
            latency.append(time.perf_counter() - begun)
            delivered += got
            short += got < piece.size_bytes
        with lock:
            result.latency_s += latency
            result.delivered_bytes += delivered
            result.short += short
        buffer.close()

    start = threading.Barrier(readers + 1)
    deadline = float("inf")
    threads = [threading.Thread(target=run) for _ in range(readers)]
    for thread in threads:
        thread.start()
    cpu = time.process_time()
    begun = time.perf_counter()
    deadline = begun + seconds
    start.wait()
    for thread in threads:
        thread.join()
    result.seconds = time.perf_counter() - begun
    result.cpu_s = time.process_time() - cpu
    return result


def _read(piece: Piece, buffer: mmap.mmap) -> int:
    """Open, read to the end, close: (bytes read), 0 when the file has gone or may no longer be read."""
    try:
        fd = os.open(piece.path, os.O_RDONLY)
    except OSError:
        return 0
    try:
        done = 0
        while done < piece.size_bytes:
            got = os.preadv(fd, [memoryview(buffer)[done : piece.size_bytes]], piece.offset + done)
            if got == 0:
                break
            done += got
        return done
    except OSError:
        return 0
    finally:
        os.close(fd)

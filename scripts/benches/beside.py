"""What stands beside a row, as a process of its own: a neighbour, a server of objects, someone who holds a lock.

A neighbour takes a core, both, the same disk, or the memory's bandwidth for 0.2 to 5 s, rests for as long, and goes on
as the next, all drawn from a seed. The server, on 127.0.0.1, has the files of a folder; the first part of a path says
how it sends them: `/10ms/...` answers after 10 ms, `/6MB/...` sends 6 MB/s over all connections together, `/fast/...`
at once. A lock is held by someone else most of the time. Each ends with who started it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Lock, Thread
from typing import Any

import numpy as np

from loaderprobe.system.limits import cores_available
from scripts.benches.harness import Plant, child
from tests.planted.slow_reader import read_folder

SHORTEST_S, LONGEST_S = 0.2, 5.0
LIFE_S = 900
READERS = 2
HASHED_BYTES = 1 << 20
COPIED_BYTES = 1 << 26
"""More than caches hold."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def _spin(seconds: float, threads: int = 1) -> None:
    end_s, data = time.monotonic() + seconds, bytes(HASHED_BYTES)

    def run(_: int) -> None:
        # Hashing gives the interpreter's lock back.
        while time.monotonic() < end_s:
            hashlib.sha256(data)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(threads)))


def _copy(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    source, target = np.ones(COPIED_BYTES, np.uint8), np.empty(COPIED_BYTES, np.uint8)
    while time.monotonic() < end_s:
        np.copyto(target, source)


def _read(seconds: float, folder: Path) -> None:
    read_folder(folder, readers=READERS, seconds=seconds)


KINDS: dict[str, Callable[[float, Path], None]] = {
    "core": lambda seconds, _: _spin(seconds),
    "cores": lambda seconds, _: _spin(seconds, math.ceil(cores_available())),
    "disk": _read,
    "memory": lambda seconds, _: _copy(seconds),
}


@contextmanager
def neighbour(place: Plant, folder: Path, seed: str, kinds: Sequence[str]) -> Iterator[int]:
    """Its process id, while it comes and goes; it meets the limits of the place.

    Raises RuntimeError when it has ended before its time: what was measured had less of a neighbour than it says.
    """
    command = place.command(child("beside", "neighbour", os.getpid(), seed, folder, ",".join(kinds)))
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield process.pid
            if process.poll() is not None:
                raise RuntimeError(f"the neighbour {seed} has ended with code {process.returncode}")
        finally:
            process.kill()


def set_paused(pid: int, paused: bool) -> None:
    """All threads at once."""
    os.kill(pid, signal.SIGSTOP if paused else signal.SIGCONT)


def come_and_go(owner: int, seed: str, folder: Path, kinds: Sequence[str]) -> None:
    """Never returns."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != owner:
        sys.exit("whoever started this has ended already")
    signal.alarm(LIFE_S)
    random = Random(seed)
    while True:
        for run in (KINDS[random.choice(kinds)], None):
            # As many short ones as long ones.
            seconds = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** random.random()
            if run:
                run(seconds, folder)
            else:
                time.sleep(seconds)


PIECE_BYTES = 1 << 14
CREDIT_S = 0.1
SECONDS_UNTIL_UP = 30.0


class Bucket:
    """A rate shared by all connections; idle time is credit, up to CREDIT_S."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = time.monotonic()
        self._lock = Lock()

    def take(self, size_bytes: int) -> None:
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic() - CREDIT_S) + size_bytes / self._bytes_per_s
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))


class Objects(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    objects: dict[str, bytes]
    buckets: dict[str, Bucket]
    opened = Lock()

    def do_GET(self) -> None:  # http.server's name
        how, _, key = self.path.lstrip("/").partition("/")
        data = self.objects[key.rpartition("/")[2]]
        if how.endswith("ms"):
            time.sleep(float(how.removesuffix("ms")) / 1e3)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.md5(key.encode()).hexdigest()}"')
        self.end_headers()
        if not how.endswith("MB"):
            self.wfile.write(data)
            return
        with self.opened:
            bucket = self.buckets.setdefault(how, Bucket(float(how.removesuffix("MB")) * 1e6))
        for first in range(0, len(data), PIECE_BYTES):
            piece = data[first : first + PIECE_BYTES]
            bucket.take(len(piece))
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of these files, in a process of its own."""
    with subprocess.Popen(
        child("beside", "server", folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(SECONDS_UNTIL_UP)


def serve(folder: Path) -> None:
    """Until standard input ends."""
    Objects.objects = {file.name: file.read_bytes() for file in folder.rglob("*.JPEG")}
    Objects.buckets = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Objects)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


LOCK = ".lock"
"""Ends the name of a file beside the data that is locked, and no data."""
HELD_S = 0.15
FREE_S = 0.00015
"""Spun, since a sleep takes longer: enough for those who wait to wake up, too short for a second batch."""


class SharedFlock:
    """A shared flock of a file, opened in each process for itself."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None

    def __enter__(self) -> None:
        if self._file is None:
            self._file = Path(self._path).open("rb")  # stays open in the worker
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)


def _stay_free() -> None:
    end_s = time.perf_counter() + FREE_S
    while time.perf_counter() < end_s:
        pass


def _hold(lock: Any) -> None:
    owner = os.getppid()
    while os.getppid() == owner:
        with lock:
            time.sleep(HELD_S)
        _stay_free()


@contextmanager
def lock_of(kind: str, scratch: Path) -> Iterator[Any]:
    """A lock for the data set, which another process holds most of the time; None for none."""
    if not kind:
        yield None
    elif kind == "writer":
        context = multiprocessing.get_context("fork")
        lock = context.Lock()
        holder = context.Process(target=_hold, args=(lock,), daemon=True)
        holder.start()
        try:
            yield lock
        finally:
            holder.terminate()
            holder.join()
    else:
        path = scratch / f"{os.getpid()}{LOCK}"
        path.touch()
        command = child("beside", "lock", path)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stdout
            process.stdout.readline()
            yield SharedFlock(str(path))
            process.stdin.close()
        path.unlink()


def hold_file(path: Path) -> None:
    """Over and over, until standard input ends."""

    def run() -> None:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            print("held", flush=True)
            while True:
                time.sleep(HELD_S)
                fcntl.flock(file, fcntl.LOCK_UN)
                _stay_free()
                fcntl.flock(file, fcntl.LOCK_EX)

    Thread(target=run, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    _, what, *given = sys.argv
    if what == "neighbour":
        come_and_go(int(given[0]), given[1], Path(given[2]), given[3].split(","))
    elif what == "server":
        serve(Path(given[0]))
    else:
        hold_file(Path(given[0]))

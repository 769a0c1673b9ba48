"""What stands beside a row, as a process of its own: a neighbour, a server of objects, someone who holds a lock.

A neighbour takes a core for 0.2 to 5 s (or less), rests for as long, and goes on, all drawn from a seed. The server, on
127.0.0.1, has the files of a folder; the first part of a path says how it sends them: `/10ms/...` answers after 10 ms,
`/5MBps/...` sends 5 MB/s, `/fast/...` all at once. The path `/fast/every/2/from/1` is a stream of every second file
from the second on. A lock is held by someone else most of the time. Each ends with who started it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from loaderprobe.system.process import die_with_parent
from scripts.benches.harness import child

SHORTEST_S, LONGEST_S = 0.2, 5.0
LIFE_S = 900
HASHED_BYTES = 1 << 20


@contextmanager
def neighbour(seed: str, longest_s: float = LONGEST_S) -> Iterator[None]:
    """While it comes and goes.

    Raises RuntimeError when it has ended before its time: what was measured had less of a neighbour than it says.
    """
    with subprocess.Popen(child(come_and_go, os.getpid(), seed, longest_s), stdin=subprocess.DEVNULL) as process:
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"the neighbour {seed} has ended with code {process.returncode}")
        finally:
            process.kill()


def come_and_go(owner: int, seed: str, longest_s: float) -> None:
    """Never returns."""
    die_with_parent(owner)
    signal.alarm(LIFE_S)
    random, data = Random(seed), bytes(HASHED_BYTES)
    while True:
        # As many short ones as long ones.
        busy_s, free_s = (SHORTEST_S * (longest_s / SHORTEST_S) ** random.random() for _ in range(2))
        end_s = time.monotonic() + busy_s
        while time.monotonic() < end_s:
            hashlib.sha256(data)
        time.sleep(free_s)


SECONDS_UNTIL_UP = 30.0
BLOCK_BYTES = 1 << 14
LATE_S = 0.005
"""Of sleeping and of waiting for a core, which is made up for."""


class Objects(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    objects: dict[str, bytes]

    def do_GET(self) -> None:  # http.server's name
        how, _, key = self.path.lstrip("/").partition("/")
        if key.startswith("every/"):
            _, step, _, first = key.split("/")
            data = b"".join(self.objects[name] for name in sorted(self.objects)[int(first) :: int(step)])
        else:
            data = self.objects[key.rpartition("/")[2]]
        if how.endswith("ms"):
            time.sleep(float(how.removesuffix("ms")) / 1e3)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.md5(key.encode()).hexdigest()}"')
        self.end_headers()
        with suppress(ConnectionError):  # who reads a stream may leave
            if how.endswith("MBps"):
                self._send_slowly(data, float(how.removesuffix("MBps")) * 1e6)
            else:
                self.wfile.write(data)

    def _send_slowly(self, data: bytes, bytes_per_s: float) -> None:
        """A reader that is slower finds no more when it comes back than what buffers held."""
        due_s = time.monotonic()
        for at in range(0, len(data), BLOCK_BYTES):
            due_s = max(due_s + BLOCK_BYTES / bytes_per_s, time.monotonic() - LATE_S)
            time.sleep(max(0.0, due_s - time.monotonic()))
            self.wfile.write(data[at : at + BLOCK_BYTES])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of these files, in a process of its own."""
    with subprocess.Popen(child(serve, folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(SECONDS_UNTIL_UP)


def serve(folder: str) -> None:
    """Until standard input ends."""
    Objects.objects = {file.name: file.read_bytes() for file in Path(folder).rglob("*.JPEG")}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Objects)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


HELD_S = 0.15
FREE_S = 0.00015
"""Spun, since a sleep takes longer: enough for those who wait to wake up, too short for a second batch."""


def _hold(lock: Any) -> None:
    owner = os.getppid()
    while os.getppid() == owner:
        with lock:
            time.sleep(HELD_S)
        end_s = time.perf_counter() + FREE_S
        while time.perf_counter() < end_s:
            pass


@contextmanager
def held_lock() -> Iterator[Any]:
    """A lock for the data set, which another process holds most of the time."""
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    holder = context.Process(target=_hold, args=(lock,), daemon=True)
    holder.start()
    try:
        yield lock
    finally:
        holder.terminate()
        holder.join()

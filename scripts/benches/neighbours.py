"""Neighbours that come and go: another process takes a core, both, the same disk, or the memory's bandwidth.

Run as a program it is one of them for 0.2 to 5 s, rests for as long, and goes on as the next, all drawn from a seed.
It ends with the process that started it, whichever way that one ends, and in any case after LIFE_S.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

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
    command = place.command(child("neighbours", os.getpid(), seed, folder, ",".join(kinds)))
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


if __name__ == "__main__":
    _, own_parent, own_seed, own_folder, own_kinds = sys.argv
    come_and_go(int(own_parent), own_seed, Path(own_folder), own_kinds.split(","))

"""Reading threads in several processes, for storage that is faster than one interpreter.

Each child is this module run with `python -m`. It gets its share of the pieces and reports that it is ready; then
all start together.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.bandwidth import Engine
from loaderprobe.storage.files import Piece
from loaderprobe.storage.reader import Column, Reading, ReadRequest, ThreadEngine

Child = subprocess.Popen[bytes]


class ProcessEngine:
    """Implements `ReadEngine` with threads in `processes` processes."""

    name: Engine = "processes"
    least_s = 0.1

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def read(self, pieces: Sequence[Piece], order: ReadRequest) -> Reading:
        """Read with `order.readers` threads in total; each of n children takes every n-th piece."""
        count = min(self._processes, order.readers, len(pieces))
        children = [_start() for _ in range(count)]
        try:
            for number, child in enumerate(children):
                readers = order.readers // count + (number < order.readers % count)
                _send(child, pieces[number::count], order, readers)
            for child in children:
                _expect(child, b"ready\n")
            for child in children:
                _tell(child, b"go\n")
            parts = [_result(child) for child in children]
        finally:
            for child in children:
                child.kill()
                child.communicate()
        return _together(parts, count)


def _start() -> Child:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}
    command = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def _send(child: Child, pieces: Sequence[Piece], order: ReadRequest, readers: int) -> None:
    share = {
        "readers": readers,
        "seconds": order.seconds,
        "direct": order.direct,
        "pause_s_per_byte": order.pause_s_per_byte,
        "pieces": [(os.fsdecode(piece.path), piece.offset, piece.size_bytes) for piece in pieces],
    }
    _tell(child, json.dumps(share).encode() + b"\n")


def _tell(child: Child, line: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(line)
        child.stdin.flush()
    except BrokenPipeError as error:
        raise _dead() from error


def _expect(child: Child, line: bytes) -> None:
    assert child.stdout is not None
    if child.stdout.readline() != line:
        raise _dead()


def _dead() -> LoaderprobeError:
    return LoaderprobeError("a reading process of the probe died", hint="check dmesg for the out-of-memory killer")


def _result(child: Child) -> Reading:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise _dead()
    found = json.loads(line)
    columns = np.array(found["rows"], np.int64).reshape(-1, 4).T
    return Reading(
        seconds=found["seconds"],
        end_ns=columns[0],
        size_bytes=columns[1],
        read_ns=columns[2],
        piece_ns=columns[3],
        ios=found["ios"],
        delivered_bytes=found["delivered_bytes"],
        unread=found["unread"],
        cpu_s=found["cpu_s"],
        taken=found["taken"],
        full_ns=found["full_ns"],
    )


def _rows(reading: Reading) -> Column:
    return np.array([reading.end_ns, reading.size_bytes, reading.read_ns, reading.piece_ns]).T


def _together(parts: Sequence[Reading], count: int) -> Reading:
    rows = np.concatenate([_rows(part) for part in parts])
    columns = rows[np.argsort(rows[:, 0], kind="stable")].T
    return Reading(
        seconds=max(part.seconds for part in parts),
        end_ns=columns[0],
        size_bytes=columns[1],
        read_ns=columns[2],
        piece_ns=columns[3],
        ios=sum(part.ios for part in parts),
        delivered_bytes=sum(part.delivered_bytes for part in parts),
        unread={path: reason for part in parts for path, reason in part.unread.items()},
        cpu_s=sum(part.cpu_s for part in parts),
        taken=count * max(part.taken for part in parts),
        full_ns=min(part.full_ns for part in parts),
    )


def _child() -> None:
    # Ctrl-C reaches the whole group; the parent ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    share = json.loads(sys.stdin.readline())
    pieces = [Piece(path=Path(path), offset=offset, size_bytes=size) for path, offset, size in share["pieces"]]
    order = ReadRequest(**{name: share[name] for name in ("readers", "seconds", "direct", "pause_s_per_byte")})
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if sys.stdin.readline() != "go\n":
        sys.exit(1)  # the parent has gone
    found = ThreadEngine().read(pieces, order)
    said = {name: getattr(found, name) for name in ("seconds", "ios", "delivered_bytes", "cpu_s", "taken", "full_ns")}
    said |= {"rows": _rows(found).tolist(), "unread": found.unread}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def processes_for(cores_available: float) -> int:
    """One process per whole core."""
    return max(1, math.floor(cores_available))


if __name__ == "__main__":
    _child()

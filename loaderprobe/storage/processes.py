"""Reading threads in several processes, for storage that is faster than one interpreter.

Each child is this module run with `python -m`. It gets its share of the pieces and reports that it is ready; then
all start together.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.phases import Engine
from loaderprobe.storage.files import Piece, decoded_pieces, encoded_pieces
from loaderprobe.storage.reader import Reading, ReadOrder, ThreadEngine, decoded, encoded, together
from loaderprobe.system.process import child_environment, end_of

Child = subprocess.Popen[bytes]


class ProcessEngine:
    """Implements `ReadEngine` with threads in `processes` processes."""

    name: Engine = "processes"

    def __init__(self, processes: int) -> None:
        self._processes = processes

    def read(self, pieces: Sequence[Piece], order: ReadOrder) -> Reading:
        """Read with `order.readers` threads in total; each of n children takes every n-th piece."""
        count = min(self._processes, order.readers, len(pieces))
        children: list[Child] = []
        try:
            for _ in range(count):
                children.append(_start())
            for number, child in enumerate(children):
                readers = order.readers // count + (number < order.readers % count)
                _tell(child, encoded(replace(order, readers=readers)) + b"\n")
                _tell(child, encoded_pieces(pieces[number::count]) + b"\n")
            for child in children:
                _line(child)
            for child in children:
                _tell(child, b"go\n")
            parts = [decoded(_line(child), Reading) for child in children]
        finally:
            for child in children:
                child.kill()
                child.communicate()
        return together(parts)


def _start() -> Child:
    command = [sys.executable, "-P", "-m", __name__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment())


def _tell(child: Child, line: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(line)
        child.stdin.flush()
    except BrokenPipeError as error:
        raise _dead(child) from error


def _dead(child: Child) -> LoaderprobeError:
    how, hint = end_of(child)
    return LoaderprobeError(f"a reading process of the probe {how}", hint=hint)


def _line(child: Child) -> bytes:
    assert child.stdout is not None
    if line := child.stdout.readline():
        return line
    raise _dead(child)


def _child() -> None:
    # Ctrl-C reaches the whole group; the parent ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = sys.stdin.buffer
    order, pieces = decoded(lines.readline(), ReadOrder), decoded_pieces(lines.readline())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if lines.readline() != b"go\n":
        sys.exit(1)  # the parent has gone
    sys.stdout.buffer.write(encoded(ThreadEngine().read(pieces, order)) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _child()

"""The forkserver of a sweep: a process with the imports that children need, which forks for each of them.

Importing torch takes seconds, a fork milliseconds, and every configuration still has its own process. The
forkserver uses no device: a process that has used CUDA cannot fork.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import msgspec

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.child import Measure, live
from loaderprobe.system.process import child_environment, die_with_parent

MOST_BYTES = 65536
GONE = "the forkserver, which starts the measuring processes, has ended"


class Child(Protocol):
    """A running child, with the interface of `subprocess.Popen`."""

    pid: int
    returncode: int | None
    stdout: IO[bytes] | None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal. Raises subprocess.TimeoutExpired."""
        ...


Start = Callable[[Path, Path, Path], Child]
"""Starts a child from the paths of order, result and log; it leads a process group and writes events to stdout."""


class _Birth(msgspec.Struct):
    order: str
    result: str


class ForkServerChild:
    """A child of the forkserver, which alone can wait for it and reports its end."""

    def __init__(self, pid: int, stdout: IO[bytes], link: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = stdout
        self._link = link

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal that ended it."""
        if self.returncode is None:
            # A timeout of 0 would mean something else to a socket.
            self._link.settimeout(None if timeout is None else max(timeout, 1e-3))
            try:
                self.returncode = _receive_number(self._link)
            except EOFError:
                # The forkserver has ended, and its children with it.
                self.returncode = -signal.SIGKILL
            except TimeoutError as error:
                raise subprocess.TimeoutExpired("child", timeout or 0.0) from error
        return self.returncode


class ForkServer:
    """Starts children for one sweep; leaving it ends the forkserver.

    `command` runs the program of the forkserver, with two arguments appended: those of `serve`.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def __enter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=child_environment(),
                start_new_session=True,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()
        self._process.kill()
        self._process.wait()

    def start(self, order: Path, result: Path, log: Path) -> ForkServerChild:
        """A new child. If the forkserver has ended, a new one is started first."""
        if self._process.poll() is not None:
            self._link.close()
            self._begin()
        read_end, write_end = os.pipe()
        message = msgspec.json.encode(_Birth(order=str(order), result=str(result)))
        self._link.settimeout(None)
        with log.open("wb") as log_file:
            try:
                socket.send_fds(self._link, [message], [write_end, log_file.fileno()])
                pid = _receive_number(self._link)
            except (OSError, EOFError) as error:
                os.close(read_end)
                raise LoaderprobeError(GONE, hint="check dmesg for the out-of-memory killer") from error
            finally:
                os.close(write_end)
        return ForkServerChild(pid, os.fdopen(read_end, "rb", buffering=0), self._link)


def _receive_number(link: socket.socket) -> int:
    found = link.recv(8, socket.MSG_WAITALL)
    if len(found) < 8:
        raise EOFError(GONE)
    return int(struct.unpack("q", found)[0])


def serve(link_fd: int, parent: int, measure: Measure) -> None:
    """Fork a child for every message, send its process id, wait for it, and send its exit status.

    Returns when the sweep has ended, whose process is `parent`; `link_fd` is the socket to it.
    """
    die_with_parent(parent)
    link = socket.socket(fileno=link_fd)
    while True:
        message, fds, _, _ = socket.recv_fds(link, MOST_BYTES, 2)
        if not message:
            return
        birth = msgspec.json.decode(message, type=_Birth)
        pid = os.fork()
        if pid == 0:
            _begin_life(birth, fds, link, measure)
        # The child leads its process group before its id is sent, so that the group can be ended as a whole.
        os.setpgid(pid, pid)
        for fd in fds:
            os.close(fd)
        with suppress(BrokenPipeError):  # the sweep has ended; the next receive says so
            link.sendall(struct.pack("q", pid))
            _, status = os.waitpid(pid, 0)
            link.sendall(struct.pack("q", os.waitstatus_to_exitcode(status)))


def _begin_life(birth: _Birth, fds: list[int], link: socket.socket, measure: Measure) -> None:
    """Run the child: its own process group, events to its output, everything else to the log."""
    server = os.getppid()
    link.close()
    os.setpgid(0, 0)
    events, log = fds[0], fds[1]
    os.dup2(events, 1)
    os.dup2(log, 2)
    code = 1
    try:
        code = live(measure, Path(birth.order), Path(birth.result), server)
    except BaseException:  # noqa: BLE001  # the border of the process: the log gets the last word
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)

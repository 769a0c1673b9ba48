"""What threads wait for, in real children that are truly blocked."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loaderprobe.system.waits import ThreadGone, WatchedProcess, let_be_read_by

DEADLINE_S = 60.0


@pytest.fixture
def blocked() -> Iterator[Callable[..., int]]:
    """Starts a Python that runs `code`, and gives its number."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: object, **options: object) -> int:
        command = [sys.executable, "-I", "-c", code, *map(str, arguments)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, **options))  # type: ignore[call-overload]
        return children[-1].pid

    yield start
    for child in children:
        child.kill()
        child.communicate()


def _comes(pid: int, kind: str, subject: str | None = None) -> bool:
    """True as soon as the process is seen waiting so."""
    watched, end = WatchedProcess(pid), time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < end:
            seen = watched.look(pid)
            if seen.kind == kind and (subject is None or seen.subject == subject):
                return True
            os.sched_yield()
        return False
    finally:
        watched.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import sys; sys.stdin.buffer.read()", "pipe"),
        ("import select, sys; select.select([sys.stdin], [], [])", "pipe"),
        ("import time; time.sleep(1000)", "sleep"),
        ("import select; select.poll().poll(1000000)", "sleep"),
        ("import asyncio; asyncio.run(asyncio.sleep(1000))", "sleep"),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "lock"),
        ("import threading\ndef burn():\n  while True: pass\nt = threading.Thread(target=burn); t.start(); t.join()",
         "running"),
    ],
)  # fmt: skip
def test_a_real_process_is_seen_waiting(blocked: Callable[..., int], code: str, kind: str) -> None:
    """A process truly blocked shows what it waits for."""
    assert _comes(blocked(code), kind)


CONNECT = (
    "import select, socket, sys\n"
    "link = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    "loop = select.epoll(); loop.register(link, select.EPOLLIN)\n"
)


@pytest.mark.parametrize("wait", ["link.recv(1)", "link.settimeout(1e6); link.recv(1)", "loop.poll()"])
def test_a_real_socket_has_its_peer(blocked: Callable[..., int], wait: str) -> None:
    """Blocked on a connection without data, by recv, poll or epoll, a process waits for the network."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid = blocked(CONNECT + wait, port)
        with server.accept()[0]:
            assert _comes(pid, "network", f"127.0.0.1:{port}")


def test_a_real_file_lock_has_its_file(blocked: Callable[..., int], tmp_path: Path) -> None:
    """Blocked on a lock that another process holds, a process waits for a lock, with its path."""
    path = tmp_path / "lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)"
        assert _comes(blocked(code, path), "lock", str(path))


def test_a_real_process_that_ended_is_gone(blocked: Callable[..., int]) -> None:
    """A zombie is gone."""
    pid = blocked("pass")
    with pytest.raises(ThreadGone):
        _comes(pid, "storage without end")


def test_leave_to_be_read_is_harmless() -> None:
    """Giving and taking it back does nothing where no Yama asks for it."""
    let_be_read_by(os.getppid())
    let_be_read_by(0)

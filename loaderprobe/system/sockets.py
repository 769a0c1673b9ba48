"""The peers of a process's sockets."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

TABLES = ("net/tcp", "net/tcp6", "net/udp", "net/udp6")
LISTENING = b"0A"
# A table lists every connection of the machine, and reading it walks all buckets of the kernel's hash table
# (milliseconds on large machines); names of peers are worth no more than this share of a core.
TABLE_SHARE = 0.001
MOST_REMEMBERED = 4096


class Socket(NamedTuple):
    """A socket that may be waited on. local: between processes of this machine, without a network."""

    kind: Literal["network", "local", "listening"]
    peer: str | None


LOCAL = Socket("local", None)


class TableBudget:
    """Decides when the tables of connections may be read again; shared by all sampled processes."""

    def __init__(
        self, now_ns: Callable[[], int] = time.monotonic_ns, cpu_ns: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self._now_ns, self._cpu_ns = now_ns, cpu_ns
        self._next_ns = 0

    def spend(self, read: Callable[[], Socket | None]) -> Socket | None:
        """The result of `read`; None, without reading, while the budget is spent."""
        if self._now_ns() < self._next_ns:
            return None
        before = self._cpu_ns()
        found = read()
        self._next_ns = self._now_ns() + int((self._cpu_ns() - before) / TABLE_SHARE)
        return found


class Sockets:
    """The sockets of one process. Peers are remembered by the socket's inode."""

    def __init__(self, directory: str, budget: TableBudget) -> None:
        self._directory, self._budget = directory, budget
        self._known: dict[str, Socket] = {}

    def find(self, number: int, inode: str) -> Socket:
        """The socket behind descriptor `number`; a network socket has no peer where no table lists it."""
        known = self._known.get(inode)
        if known is not None:
            return known
        protocol = self._protocol(number)
        local = protocol.startswith(("UNIX", "NETLINK", "PACKET"))
        found = LOCAL if local else self._budget.spend(lambda: self._in_tables(inode.encode()))
        if found is None:
            return Socket("network", None)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[inode] = found
        return found

    def _protocol(self, number: int) -> str:
        """`TCP`, `UNIX-STREAM`; empty where the kernel gives no protocol."""
        try:
            return os.getxattr(f"{self._directory}/fd/{number}", "system.sockprotoname").decode()
        except OSError:
            return ""

    def _in_tables(self, inode: bytes) -> Socket | None:
        for name in TABLES:
            for line in _lines(f"{self._directory}/{name}"):
                fields = line.split()
                if len(fields) > 9 and fields[9] == inode:
                    return Socket("listening", None) if fields[3] == LISTENING else Socket("network", peer(fields[2]))
        unix = (line.split() for line in _lines(f"{self._directory}/net/unix"))
        if any(len(fields) > 6 and fields[6] == inode for fields in unix):
            return LOCAL
        return None


def peer(field: bytes) -> str | None:
    """`10.0.0.5:443` of the kernel's hexadecimal words, each in the machine's order; None where there is no peer."""
    address, _, port = field.partition(b":")
    number = int(port, 16)
    if not number:
        return None
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(packed) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, packed)}:{number}"
    text = socket.inet_ntop(socket.AF_INET6, packed)
    # IPv4 through an IPv6 socket.
    return f"{text[7:]}:{number}" if text.startswith("::ffff:") and "." in text else f"[{text}]:{number}"


def _lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # pathlib takes longer than the reading
            return file.read().splitlines()
    except OSError:
        return []

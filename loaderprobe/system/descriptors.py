"""The files and sockets behind another process's descriptors, and the descriptors that a thread polls."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from typing import Literal, NamedTuple

from loaderprobe.system.sockets import Sockets, TableBudget

DescriptorKind = Literal["file", "device", "pipe", "network", "local", "listening", "event", "timer", "unknown"]
# A process that polls more than these is a server; the first ones are enough.
MOST_POLLED = 32
_POLLED = struct.Struct("=ihh")


class Descriptor(NamedTuple):
    """The target of a descriptor. device: a node in /dev. event: from threads of the process itself."""

    kind: DescriptorKind
    subject: str | None = None
    """Path of a file, address of a peer."""


UNKNOWN = Descriptor("unknown")
_INSIDE: dict[str, Descriptor] = {
    "[eventfd]": Descriptor("event"),
    "[timerfd]": Descriptor("timer"),
}


class Descriptors:
    """The descriptors of one process. `directory` is its folder in /proc, open, and `path` that folder's name."""

    def __init__(self, directory: int, path: str, budget: TableBudget) -> None:
        self._directory = directory
        self._sockets = Sockets(path, budget)
        self._memory: int | None = None

    def close(self) -> None:
        """Close the descriptor of the process's memory."""
        if self._memory is not None:
            os.close(self._memory)
            self._memory = None

    def find(self, number: int) -> Descriptor:
        """The target of this descriptor; unknown where it is closed or access is denied."""
        try:
            link = os.readlink(f"fd/{number}", dir_fd=self._directory)
        except OSError:
            return UNKNOWN
        if link.startswith("/"):
            device = link.startswith("/dev/") and not link.startswith("/dev/shm/")
            if self._is_named_pipe(number):
                return Descriptor("pipe", link)
            return Descriptor("device" if device else "file", link)
        name, _, rest = link.partition(":")
        if name == "socket":
            found = self._sockets.find(number, rest.strip("[]"))
            return Descriptor(found.kind, found.peer)
        if name == "pipe":
            return Descriptor("pipe")
        return _INSIDE.get(rest, UNKNOWN)

    def _is_named_pipe(self, number: int) -> bool:
        try:
            return stat.S_ISFIFO(os.stat(f"fd/{number}", dir_fd=self._directory).st_mode)
        except OSError:
            return False

    def polled(self, address: int, count: int) -> Iterable[Descriptor] | None:
        """Those in an array of `struct pollfd`; None where the memory may not be read."""
        count = min(count, MOST_POLLED)
        data = self.memory(address, count * _POLLED.size)
        if data is None or len(data) < count * _POLLED.size:
            return None
        return [self.find(number) for number, _, _ in _POLLED.iter_unpack(data) if number >= 0]

    def selected(self, sets: Iterable[int], count: int) -> Iterable[Descriptor] | None:
        """Those below `count` that are in one of the `fd_set`s at these addresses, or None."""
        found: set[int] = set()
        for address in sets:
            data = self.memory(address, (count + 7) // 8) if address else b""
            if data is None:
                return None
            bits = int.from_bytes(data, "little") & (1 << count) - 1
            while bits and len(found) < MOST_POLLED:
                found.add(bits.bit_length() - 1)
                bits &= (1 << bits.bit_length() - 1) - 1
        return [self.find(number) for number in found]

    def watched_by_epoll(self, number: int) -> Iterable[Descriptor] | None:
        """Those that an epoll descriptor watches, as /proc/PID/fdinfo lists them, or None."""
        try:
            file = os.open(f"fdinfo/{number}", os.O_RDONLY, dir_fd=self._directory)
        except OSError:
            return None
        try:
            lines = os.read(file, 16384).splitlines()
        except OSError:
            return None
        finally:
            os.close(file)
        numbers = [line.split()[1] for line in lines if line.startswith(b"tfd:")]
        return [self.find(int(number)) for number in numbers[:MOST_POLLED] if number.isdigit()]

    def memory(self, address: int, size: int) -> bytes | None:
        """Bytes of the process's memory; None where they may not be read."""
        try:
            if self._memory is None:
                self._memory = os.open("mem", os.O_RDONLY, dir_fd=self._directory)
            return os.pread(self._memory, size, address)
        except (OSError, OverflowError):
            return None

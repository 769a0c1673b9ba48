"""The kind of a wait, from the system call in which a thread waits and its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from loaderprobe.records.waits import WaitKind
from loaderprobe.system.descriptors import UNKNOWN, Descriptor, Descriptors
from loaderprobe.system.syscalls import Call, Group
from loaderprobe.system.thread_files import ThreadFiles
from loaderprobe.system.wait_channels import kind_of_channel

F_SETLKW, F_OFD_SETLKW = 7, 38
LONGEST_PATH = 512
# The path is their second argument.
_AFTER_DIRECTORY = frozenset(
    ("openat", "openat2", "newfstatat", "statx", "faccessat", "faccessat2", "readlinkat", "mkdirat", "unlinkat")
)
_OF_DESCRIPTOR = frozenset(("fstat", "fstatfs", "getdents", "getdents64"))
LONGEST_TIMEOUT_MS = 1 << 31
OUTSIDE = "connections from outside"


class Wait(NamedTuple):
    """A sampled state of a thread. inside: it may wait for other threads of its own process."""

    kind: WaitKind
    subject: str | None = None
    inside: bool = False


RUNNING = Wait("running")
# A pair of sockets to itself is how threads wake an event loop; another process may hold one end as well.
WOKEN_FROM_INSIDE = Wait("pipe", "a socket of this machine", inside=True)


class CallWaits:
    """Finds what the system calls of one process wait for."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._read: dict[Group, Callable[[ThreadFiles, Call, list[int]], Wait]] = {
            "descriptor": lambda files, call, found: self._on_descriptor(files, call, found[0]),
            "second": lambda files, call, found: self._on_descriptor(files, call, found[1]),
            "path": self._on_path,
            # Threads that wait for nothing sleep here as well, and so do all that want Python's global lock.
            "futex": lambda files, call, found: Wait("lock", None, inside=True),
            "lock": lambda files, call, found: Wait("lock", self._descriptors.find(found[0]).subject),
            "fcntl": self._in_fcntl,
            "sleep": lambda files, call, found: Wait("sleep"),
            "poll": lambda files, call, found: _polling(call, self._descriptors.polled(found[0], found[1])),
            "select": lambda files, call, found: _polling(call, self._descriptors.selected(found[1:4], found[0])),
            "epoll": self._in_epoll,
            # Rings serve sockets too, which nothing here separates; data loaders use them for files.
            "ring": lambda files, call, found: _for_file(files, None),
            "child": lambda files, call, found: Wait("pipe", "a child process"),
        }

    def read(self, files: ThreadFiles, call: Call, arguments: list[int]) -> Wait:
        """What a thread waits for in this call; the first four arguments. Raises ThreadGone."""
        return self._read[call.group](files, call, arguments)

    def _on_descriptor(self, files: ThreadFiles, call: Call, number: int) -> Wait:
        found = self._descriptors.find(number)
        match found.kind:
            case "file":
                return _for_file(files, found.subject)
            case "network":
                return Wait("network", found.subject)
            case "pipe" | "local":
                return Wait("pipe")
            case "event":
                return Wait("lock", None, inside=True)
            case "timer":
                return Wait("sleep")
            case "listening":
                return Wait("other", OUTSIDE)
            case _:
                return by_channel(files.channel(), files.letter(), call.name if found is UNKNOWN else found.subject)

    def _on_path(self, files: ThreadFiles, call: Call, arguments: list[int]) -> Wait:
        kind = kind_of_channel(files.channel())
        if kind == "memory":
            return Wait("memory")
        if kind == "pipe":
            # One with a name: it opens when the other end does.
            return Wait("pipe", self._path(call, arguments))
        return Wait("metadata", self._path(call, arguments) or call.name)

    def _path(self, call: Call, arguments: list[int]) -> str | None:
        directory = arguments[0]
        if call.name in _OF_DESCRIPTOR:
            return self._descriptors.find(directory).subject
        data = self._descriptors.memory(arguments[call.name in _AFTER_DIRECTORY], LONGEST_PATH) or b""
        path = os.fsdecode(data.partition(b"\0")[0])
        # With an empty path, newfstatat and statx are about the descriptor itself.
        return path or self._descriptors.find(directory).subject

    def _in_fcntl(self, files: ThreadFiles, call: Call, arguments: list[int]) -> Wait:
        if arguments[1] in (F_SETLKW, F_OFD_SETLKW):
            return Wait("lock", self._descriptors.find(arguments[0]).subject)
        return self._on_descriptor(files, call, arguments[0])

    def _in_epoll(self, files: ThreadFiles, call: Call, arguments: list[int]) -> Wait:
        seen = _polling(call, self._descriptors.watched_by_epoll(arguments[0]))
        # An event loop that nothing but its own threads can wake waits for a timer, if it has a timeout.
        timed = call.name != "epoll_pwait2" and arguments[3] < LONGEST_TIMEOUT_MS
        return Wait("sleep", None, inside=True) if timed and seen == WOKEN_FROM_INSIDE else seen


def _polling(call: Call, found: Iterable[Descriptor] | None) -> Wait:
    """A wait for any of several descriptors; None: the descriptors are unknown."""
    if found is None:
        return Wait("other", call.name, inside=True)
    by_kind: dict[str, Descriptor] = {}
    for each in found:
        by_kind.setdefault(each.kind, each)
    if "listening" in by_kind:
        return Wait("other", OUTSIDE, inside=True)
    if "network" in by_kind:
        return Wait("network", by_kind["network"].subject)
    if "device" in by_kind:
        return Wait("other", by_kind["device"].subject, inside=True)
    if "pipe" in by_kind:
        return Wait("pipe", None, inside=True)
    if "local" in by_kind:
        return WOKEN_FROM_INSIDE
    return Wait("lock", None, inside=True) if by_kind.keys() - {"timer"} else Wait("sleep")


def _for_file(files: ThreadFiles, path: str | None) -> Wait:
    """A wait for the contents of a file, unless it waits for memory first or, in a named pipe, for another process."""
    kind = kind_of_channel(files.channel())
    return Wait(kind, path) if kind in ("memory", "pipe") else Wait("storage", path)


def outside_calls(files: ThreadFiles) -> Wait:
    """A wait outside system calls: for a page, or for the lock on the process's memory. Raises ThreadGone."""
    letter = files.letter()
    channel = files.channel()
    kind = kind_of_channel(channel)
    # A thread in R has got its page since the first reading.
    if letter not in "DR":
        return Wait(kind or "other", channel or None)
    return Wait(kind) if kind in ("memory", "lock") else Wait("storage")


def by_channel(channel: str, letter: str, subject: str | None) -> Wait:
    """The kind from the kernel function or, where its name gives no kind, from the letter of the state."""
    kind = kind_of_channel(channel)
    if kind is not None:
        return Wait(kind, subject)
    return Wait("uninterruptible" if letter == "D" else "other", subject or channel or None)

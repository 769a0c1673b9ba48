"""What a thread waits for now, read from /proc: no root, no eBPF, no patched library.

`/proc/PID/task/TID/syscall` is read first. One read shows whether the thread runs and, if not, in which call it
waits and with which arguments. Reading the letter of the state first would cost more, and a wait that ends between
the two reads would count as running: 10 us of each wait, a tenth of a read from NVMe.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WAIT_KINDS, WaitKind, WaitSamples
from loaderprobe.system.process import children_of, die_with_parent, read_proc, read_process

Group = Literal[
    "descriptor", "second", "path", "futex", "lock", "fcntl", "sleep", "poll", "select", "epoll", "ring", "child"
]
"""What a call waits for, by its arguments. descriptor: the first argument is a descriptor; second: the second is.
path: names, not contents. ring: requests submitted earlier (io_uring, libaio). child: another process."""

MACHINES = ("x86_64", "aarch64")
# System calls in which threads wait: the name, and its number on each of these machines ("-" where there is none).
# Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.12.
_CALLS: dict[Group, str] = {
    "descriptor": (
        "read 0 63, write 1 64, close 3 57, lseek 8 62, ioctl 16 29, pread64 17 67, pwrite64 18 68, "
        "readv 19 65, writev 20 66, preadv 295 69, pwritev 296 70, preadv2 327 286, pwritev2 328 287, "
        "connect 42 203, accept 43 202, accept4 288 242, sendto 44 206, recvfrom 45 207, sendmsg 46 211, "
        "recvmsg 47 212, sendmmsg 307 269, recvmmsg 299 243, fsync 74 82, fdatasync 75 83, ftruncate 77 46, "
        "fallocate 285 47, readahead 187 213, fadvise64 221 223, sync_file_range 277 84, splice 275 76, "
        "copy_file_range 326 285"
    ),
    "second": "sendfile 40 71",
    "path": (
        "open 2 -, openat 257 56, openat2 437 437, creat 85 -, stat 4 -, fstat 5 80, lstat 6 -, "
        "newfstatat 262 79, statx 332 291, statfs 137 43, fstatfs 138 44, access 21 -, faccessat 269 48, "
        "faccessat2 439 439, getdents 78 -, getdents64 217 61, readlink 89 -, readlinkat 267 78, "
        "getxattr 191 8, truncate 76 45, rename 82 -, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, "
        "unlinkat 263 35"
    ),
    "futex": "futex 202 98, futex_wait 455 455, futex_waitv 449 449",
    "lock": "flock 73 32",
    "fcntl": "fcntl 72 25",
    "sleep": "nanosleep 35 101, clock_nanosleep 230 115",
    "poll": "poll 7 -, ppoll 271 73",
    "select": "select 23 -, pselect6 270 72",
    "epoll": "epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441",
    "ring": "io_uring_enter 426 426, io_getevents 208 4, io_pgetevents 333 292",
    "child": "wait4 61 260, waitid 247 95, vfork 58 -, clone 56 220, clone3 435 435",
}


class Call(NamedTuple):
    """A system call, and how to find what it waits for."""

    name: str
    group: Group


def calls_of(machine: str) -> Mapping[int, Call] | None:
    """Calls by number for a machine named as by `platform.machine()`; None for an unknown machine."""
    if machine not in MACHINES:
        return None
    column = 1 + MACHINES.index(machine)
    rows = [(group, row.split()) for group, calls in _CALLS.items() for row in calls.split(", ")]
    return {int(row[column]): Call(row[0], group) for group, row in rows if row[column] != "-"}


MOST_BYTES = 1024


class ThreadGone(Exception):
    """The thread, or its whole process, has ended."""


class OpenFiles:
    """Files below a process's folder in /proc, which is open as `directory`; each is opened when first asked for.

    Open descriptors stay with their process or thread: when its number is reused, they report that it has ended.
    Opening costs three times as much as reading.
    """

    def __init__(self, directory: int) -> None:
        self.directory = directory
        self._open: dict[str, int] = {}

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def file(self, name: str) -> int:
        """Its descriptor. Raises OSError."""
        if name not in self._open:
            self._open[name] = os.open(name, os.O_RDONLY, dir_fd=self.directory)
        return self._open[name]


class ThreadFiles(OpenFiles):
    """`syscall`, `stat` and `wchan` of a thread. `directory` is its process's folder in /proc, open."""

    def __init__(self, directory: int, tid: int) -> None:
        super().__init__(directory)
        self._tid = tid

    def read(self, name: str) -> bytes:
        return os.pread(self.file(f"task/{self._tid}/{name}"), MOST_BYTES, 0)

    def letter(self) -> str:
        """The state's letter. Raises ThreadGone."""
        try:
            # The command's name, in brackets, may hold anything.
            letter = self.read("stat").rpartition(b")")[2][1:2].decode()
        except OSError as error:
            raise ThreadGone from error
        if letter in "ZXx":  # also where there is no letter
            raise ThreadGone
        return letter

    def channel(self) -> str:
        """The kernel function in which it sleeps; empty where the kernel hides that."""
        try:
            channel = self.read("wchan").decode()
        except OSError:
            return ""
        return "" if channel == "0" else channel


# The kernel function in which a thread sleeps (`/proc/PID/wchan`), as a kind of waiting.
#
# Names differ between kernels; the parts used here are the same on Linux 5.4 to 6.18.

# The first part that occurs in the name decides, so that memory reclaim inside a read is not storage.
_PARTS: tuple[tuple[WaitKind, tuple[str, ...]], ...] = (
    ("memory", ("shrink_", "balance_", "mem_cgroup_", "reclaim", "congestion", "compact")),
    ("lock", ("futex", "locks_lock", "flock_lock", "posix_lock", "rwsem_", "mutex_lock", "__down")),
    ("sleep", ("nanosleep", "nsleep")),
    ("pipe", ("pipe_", "wait_for_partner", "unix_stream", "unix_dgram", "do_wait")),
    ("network", ("sk_wait", "wait_woken", "inet_", "tcp_", "udp_", "skb_wait", "skb_recv")),
    (
        "storage",
        ("folio_", "page_bit", "lock_page", "io_schedule", "bit_wait_io", "wait_on_buffer", "submit_bio", "blk_",
         "blkdev", "dio", "iomap", "filemap", "xfs_buf", "io_cqring", "read_events",
         # Requests to the server of a file system: FUSE, NFS, SMB, 9p, Ceph, Lustre. The thread sleeps in S, not in D.
         "request_wait_answer", "fuse", "rpc", "nfs", "wait_for_response", "cifs", "smb", "p9_", "ceph", "cl_sync"),
    ),
)  # fmt: skip


def kind_of_channel(channel: str) -> WaitKind | None:
    """The kind of wait in this kernel function; None where the name gives no kind."""
    return next((kind for kind, parts in _PARTS if any(part in channel for part in parts)), None)


TABLES = ("net/tcp", "net/tcp6", "net/udp", "net/udp6")
LISTENING = b"0A"
# A table lists every connection of the machine, and reading it walks all buckets of the kernel's hash table
# (milliseconds on large machines); names of peers are worth no more than this share of a core.
TABLE_SHARE = 0.001
MOST_REMEMBERED = 4096


DescriptorKind = Literal["file", "device", "pipe", "network", "local", "listening", "event", "timer", "unknown"]


class Descriptor(NamedTuple):
    """The target of a descriptor. device: a node in /dev. event: from threads of the process itself.

    local: a socket between processes of this machine, without a network.
    """

    kind: DescriptorKind
    subject: str | None = None
    """Path of a file, address of a peer."""


LOCAL = Descriptor("local")


class TableBudget:
    """Decides when the tables of connections may be read again; shared by all sampled processes."""

    def __init__(
        self, now_ns: Callable[[], int] = time.monotonic_ns, cpu_ns: Callable[[], int] = time.thread_time_ns
    ) -> None:
        self._now_ns, self._cpu_ns = now_ns, cpu_ns
        self._next_ns = 0

    def spend(self, read: Callable[[], Descriptor | None]) -> Descriptor | None:
        """The result of `read`; None, without reading, while the budget is spent."""
        if self._now_ns() < self._next_ns:
            return None
        before = self._cpu_ns()
        descriptor = read()
        self._next_ns = self._now_ns() + int((self._cpu_ns() - before) / TABLE_SHARE)
        return descriptor


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


# A process that polls more than these is a server; the first ones are enough.
MOST_POLLED = 32
_POLLED = struct.Struct("=ihh")
UNKNOWN = Descriptor("unknown")
_INSIDE: dict[str, Descriptor] = {"[eventfd]": Descriptor("event"), "[timerfd]": Descriptor("timer")}


class Descriptors:
    """The descriptors of one process. `path` is its folder in /proc; sockets are remembered by their inode."""

    def __init__(self, process: OpenFiles, path: str, budget: TableBudget) -> None:
        self._process, self._path, self._budget = process, path, budget
        self._sockets: dict[str, Descriptor] = {}

    def find(self, number: int) -> Descriptor:
        """The target of this descriptor; unknown where it is closed or access is denied."""
        try:
            link = os.readlink(f"fd/{number}", dir_fd=self._process.directory)
        except OSError:
            return UNKNOWN
        if link.startswith("/"):
            with suppress(OSError):
                if stat.S_ISFIFO(os.stat(f"fd/{number}", dir_fd=self._process.directory).st_mode):
                    return Descriptor("pipe", link)
            device = link.startswith("/dev/") and not link.startswith("/dev/shm/")
            return Descriptor("device" if device else "file", link)
        name, _, rest = link.partition(":")
        if name == "socket":
            return self._socket(number, rest.strip("[]"))
        return Descriptor("pipe") if name == "pipe" else _INSIDE.get(rest, UNKNOWN)

    def _socket(self, number: int, inode: str) -> Descriptor:
        """A socket of the network has no peer where no table lists it."""
        if inode in self._sockets:
            return self._sockets[inode]
        protocol = b""
        with suppress(OSError):  # the kernel may give none
            protocol = os.getxattr(f"{self._path}/fd/{number}", "system.sockprotoname")
        local = protocol.startswith((b"UNIX", b"NETLINK", b"PACKET"))
        descriptor = LOCAL if local else self._budget.spend(lambda: self._in_tables(inode.encode()))
        if descriptor is None:
            return Descriptor("network")
        if len(self._sockets) >= MOST_REMEMBERED:
            self._sockets.clear()
        self._sockets[inode] = descriptor
        return descriptor

    def _in_tables(self, inode: bytes) -> Descriptor | None:
        for name in TABLES:
            for line in read_proc(f"{self._path}/{name}").splitlines():
                fields = line.split()
                if len(fields) > 9 and fields[9] == inode:
                    return Descriptor("listening") if fields[3] == LISTENING else Descriptor("network", peer(fields[2]))
        unix = (line.split() for line in read_proc(f"{self._path}/net/unix").splitlines())
        return LOCAL if any(len(fields) > 6 and fields[6] == inode for fields in unix) else None

    def polled(self, address: int, count: int) -> Iterable[Descriptor] | None:
        """Those in an array of `struct pollfd`; None where the memory may not be read."""
        count = min(count, MOST_POLLED)
        data = self.memory(address, count * _POLLED.size)
        if data is None or len(data) < count * _POLLED.size:
            return None
        return [self.find(number) for number, _, _ in _POLLED.iter_unpack(data) if number >= 0]

    def selected(self, sets: Iterable[int], count: int) -> Iterable[Descriptor] | None:
        """Those below `count` that are in one of the `fd_set`s at these addresses, or None."""
        numbers: set[int] = set()
        for address in sets:
            data = self.memory(address, (count + 7) // 8) if address else b""
            if data is None:
                return None
            bits = int.from_bytes(data, "little") & (1 << count) - 1
            while bits and len(numbers) < MOST_POLLED:
                numbers.add(bits.bit_length() - 1)
                bits &= (1 << bits.bit_length() - 1) - 1
        return [self.find(number) for number in numbers]

    def watched_by_epoll(self, number: int) -> Iterable[Descriptor] | None:
        """Those that an epoll descriptor watches, as /proc/PID/fdinfo lists them, or None."""
        try:
            file = os.open(f"fdinfo/{number}", os.O_RDONLY, dir_fd=self._process.directory)
            with os.fdopen(file, "rb", buffering=0) as info:
                lines = info.read(16384).splitlines()
        except OSError:
            return None
        numbers = [line.split()[1] for line in lines if line.startswith(b"tfd:")]
        return [self.find(int(number)) for number in numbers[:MOST_POLLED] if number.isdigit()]

    def memory(self, address: int, size: int) -> bytes | None:
        """Bytes of the process's memory; None where they may not be read."""
        try:
            return os.pread(self._process.file("mem"), size, address)
        except (OSError, OverflowError):
            return None


F_SETLKW, F_OFD_SETLKW = 7, 38
FUTEX_PRIVATE = 128
LONGEST_PATH = 512
# The path is their second argument.
_AFTER_DIRECTORY = frozenset(
    ("openat", "openat2", "newfstatat", "statx", "faccessat", "faccessat2", "readlinkat", "mkdirat", "unlinkat")
)
_OF_DESCRIPTOR = frozenset(("fstat", "fstatfs", "getdents", "getdents64"))
LONGEST_TIMEOUT_MS = 1 << 31
OUTSIDE = "connections from outside"


class Wait(NamedTuple):
    """A sampled state of a thread. inside: it may wait for other threads of its own process; shared: for threads of
    other processes as well."""

    kind: WaitKind
    subject: str | None = None
    inside: bool = False
    shared: bool = False


RUNNING = Wait("running")
# A pair of sockets to itself is how threads wake an event loop; another process may hold one end as well.
WOKEN_FROM_INSIDE = Wait("pipe", "a socket of this machine", inside=True)


def _polling(call: Call, descriptors: Iterable[Descriptor] | None) -> Wait:
    """A wait for any of several descriptors; None: the descriptors are unknown."""
    if descriptors is None:
        return Wait("other", call.name, inside=True)
    by_kind: dict[str, Descriptor] = {}
    for descriptor in descriptors:
        by_kind.setdefault(descriptor.kind, descriptor)
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


def _is_shared(call: Call, operation: int) -> bool:
    """Whether this futex may be one between processes, as of a lock of multiprocessing; the newer calls do not say."""
    return call.name == "futex" and not operation & FUTEX_PRIVATE


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


# Documentation/admin-guide/LSM/Yama.rst: "Yama" in ASCII.
PR_SET_PTRACER = 0x59616D61
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
# Each costs some 5 us; a process with more threads than these is seen in part.
MOST_THREADS = 64
# What threads do on behalf of one that waits for them. The first counts most: a pool of which one thread reads and
# another decodes is waited for because of the read. A socket counts little: libraries keep connections that are idle;
# a nap counts least.
_WORK: tuple[WaitKind, ...] = ("storage", "metadata", "memory", "uninterruptible", "running", "network", "sleep")
A_CHILD = "a child process"


def _precedence(wait: Wait) -> int:
    """In the order of `_WORK`; behind all of it where a thread waits."""
    return _WORK.index(wait.kind) if wait.kind in _WORK else len(_WORK)


def _states(looks: Iterable[Callable[[], Wait]]) -> Iterator[Wait]:
    """What each of these looks sees, up to the work that counts most. Those that have ended are left out."""
    for look in looks:
        with suppress(ThreadGone):
            wait = look()
            yield wait
            if not _precedence(wait):
                return


def let_be_read_by(pid: int) -> None:
    """Allow process `pid` and its descendants to see what this process waits for; 0 revokes that.

    Needed where Yama allows only ancestors (`kernel.yama.ptrace_scope` is 1, as on Ubuntu), ignored elsewhere.
    """
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


def yama_scope() -> int:
    """Yama's scope, who may trace a process: 0 the same user, 1 ancestors, 2 with a capability, 3 no process."""
    with suppress(OSError, ValueError):
        return int(YAMA.read_text())
    return 0


class WatchedProcess:
    """A process whose threads can be sampled. Raises ThreadGone when it has ended or its id was reused."""

    def __init__(
        self, pid: int, *, started: int | None = None, proc: Path = Path("/proc"), budget: TableBudget | None = None,
        machine: str | None = None,
    ) -> None:  # fmt: skip
        machine = machine or platform.machine()
        calls = calls_of(machine)
        self._calls: Mapping[int, Call] = calls or {}
        self._unknown = None if calls is not None else Remark(code="calls_unknown", facts={"machine": machine})
        self.letters_only: Remark | None = None
        """Why the last sample saw no system call; None while system calls are visible."""
        self._pid, self._proc, self._budget = pid, proc, budget or TableBudget()
        path = proc / str(pid)
        try:
            self._files = OpenFiles(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            raise ThreadGone from error
        self._threads: dict[int, ThreadFiles] = {}
        self._descriptors = Descriptors(self._files, str(path), self._budget)
        self._read: dict[Group, Callable[[ThreadFiles, Call, list[int]], Wait]] = {
            "descriptor": lambda files, call, args: self._on_descriptor(files, call, args[0]),
            "second": lambda files, call, args: self._on_descriptor(files, call, args[1]),
            "path": self._on_path,
            # Threads that wait for nothing sleep here as well, and so do all that want Python's global lock.
            "futex": lambda files, call, args: Wait("lock", None, inside=True, shared=_is_shared(call, args[1])),
            "lock": lambda files, call, args: Wait("lock", self._descriptors.find(args[0]).subject),
            "fcntl": self._in_fcntl,
            "sleep": lambda files, call, args: Wait("sleep"),
            "poll": lambda files, call, args: _polling(call, self._descriptors.polled(args[0], args[1])),
            "select": lambda files, call, args: _polling(call, self._descriptors.selected(args[1:4], args[0])),
            "epoll": self._in_epoll,
            # Rings serve sockets too, which nothing here separates; data loaders use them for files.
            "ring": lambda files, call, args: _for_file(files, None),
            "child": lambda files, call, args: Wait("pipe", A_CHILD),
        }
        """By the files of a thread, its call, and the first four arguments; raise ThreadGone."""
        # From here on the folder is that of the process it shows now, whatever becomes of the number.
        now = None if started is None else read_process(pid, proc)
        if started is not None and (now is None or now.start != started):
            self.close()
            raise ThreadGone

    def close(self) -> None:
        for files in (*self._threads.values(), self._files):
            files.close()
        os.close(self._files.directory)

    def look(self, tid: int) -> Wait:
        """What this thread does or, if it waits for threads or commands of its process, what they do; or ThreadGone."""
        first = self._look(tid)
        if not first.inside and first.kind != "pipe":
            return first
        others = self._others(tid)[:MOST_THREADS] if first.inside else []
        waits = [first, *_states(partial(self._look, thread) for thread in others)]
        # Who waits for a command waits in a pipe or for its end; an event loop to be woken is in neither.
        for_command = first.kind == "pipe" or any(wait.kind == "pipe" and wait != WOKEN_FROM_INSIDE for wait in waits)
        if for_command and min(map(_precedence, waits)) > _WORK.index("running"):
            # This process may be a child, too.
            children = (pid for pid in children_of(self._pid, self._proc) if pid != os.getpid())
            waits += _states(partial(self._look_at_child, pid) for pid in islice(children, MOST_THREADS))
        # A thread that naps holds a lock that others wait for; of a lock between processes anything may hold it.
        return min((wait for wait in waits if wait.kind != "sleep" or not first.shared), key=_precedence)

    def _look_at_child(self, pid: int) -> Wait:
        with closing(WatchedProcess(pid, proc=self._proc, budget=self._budget)) as child:
            return (wait := child.look(pid))._replace(subject=wait.subject or A_CHILD)

    def _others(self, tid: int) -> list[int]:
        try:
            listed = {int(name) for name in os.listdir(self._files.file("task"))}  # noqa: PTH208  # of a descriptor
        except OSError:
            return []
        for ended in self._threads.keys() - listed:
            self._threads.pop(ended).close()
        return sorted(listed - {tid})

    def _look(self, tid: int) -> Wait:
        if tid not in self._threads:
            self._threads[tid] = ThreadFiles(self._files.directory, tid)
        files = self._threads[tid]
        try:
            try:
                text = files.read("syscall")
            except OSError as error:
                return self._by_letter(files, error)
            self.letters_only = self._unknown
            return RUNNING if text.startswith(b"running") else self._in_call(files, text.split())
        except ThreadGone:
            self._threads.pop(tid).close()
            raise

    def _in_call(self, files: ThreadFiles, fields: list[bytes]) -> Wait:
        number = int(fields[0])
        if number < 0:
            return outside_calls(files)
        call = self._calls.get(number)
        if call is None:
            return by_channel(files.channel(), files.letter(), f"system call {number}")
        return self._read[call.group](files, call, [int(field, 16) for field in fields[1:5]])

    def _by_letter(self, files: ThreadFiles, error: OSError) -> Wait:
        """The wait without a system call: from the letter of the state and, where readable, the kernel function."""
        letter = files.letter()
        self.letters_only = _why_refused(error)
        if letter == "R":
            return RUNNING
        wait = by_channel(files.channel(), letter, None)
        # A lock, or an unknown wait, may be another thread of this process.
        return wait._replace(inside=wait.kind in ("lock", "other"))

    def _on_descriptor(self, files: ThreadFiles, call: Call, number: int) -> Wait:
        target = self._descriptors.find(number)
        match target.kind:
            case "file":
                return _for_file(files, target.subject)
            case "network":
                return Wait("network", target.subject)
            case "pipe" | "local":
                return Wait("pipe")
            case "event":
                return Wait("lock", None, inside=True)
            case "timer":
                return Wait("sleep")
            case "listening":
                return Wait("other", OUTSIDE)
            case _:
                return by_channel(files.channel(), files.letter(), call.name if target is UNKNOWN else target.subject)

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
        wait = _polling(call, self._descriptors.watched_by_epoll(arguments[0]))
        # An event loop that nothing but its own threads can wake waits for a timer, if it has a timeout.
        timed = call.name != "epoll_pwait2" and arguments[3] < LONGEST_TIMEOUT_MS
        return Wait("sleep", None, inside=True) if timed and wait == WOKEN_FROM_INSIDE else wait


def _why_refused(error: OSError) -> Remark:
    if isinstance(error, FileNotFoundError):
        return Remark(code="no_syscall_file")
    scope = yama_scope()
    return Remark(code="ptrace_scope", facts={"scope": scope}) if scope else Remark(code="trace_refused")


# The process that samples what workers wait for: `python -m loaderprobe.system.waits FOLDER PARENT HZ`.
#
# It is a separate process: a thread in the training process would compete with training for Python's global lock, and
# could sample a serial loader only when that releases the lock. It imports only the standard library and this
# package's records.
#
# It reads lines of `PID,TID,STARTED` from its input, one word per worker and `-` for a worker that has ended; each line
# replaces the one before. It writes one byte to its output before its first sample, and ends with its input or parent.

ROUNDS = "rounds"
"""A file of JSON, a line for each round: its samples, new subjects, [time, CPU time] of this process in ns now and
then, and why system calls are hidden. Each is one write, so a reader finds whole rounds at any time."""
# In orders to that process: a worker that has gone.
GONE = "-"
# A million images are a million paths; so many are enough to see which files they are.
MOST_SUBJECTS = 2000
_KINDS = {kind: number for number, kind in enumerate(WAIT_KINDS)}


class RoundWriter:
    """Appends to the file in a folder. Only the current round is buffered."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / ROUNDS, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._subjects: dict[str, int] = {}
        self._new: list[str] = []
        self._samples: list[tuple[int, int, int, int]] = []

    def add(self, time_ns: int, worker: int, wait: Wait) -> None:
        self._samples.append((time_ns, worker, _KINDS[wait.kind], self._number(wait.subject)))

    def end_round(self, time_ns: int, own_cpu_ns: int | None, letters_only: Remark | None) -> None:
        """Write the added samples, and this process's CPU time so far where it is requested."""
        clock = None if own_cpu_ns is None else (time_ns, own_cpu_ns)
        why = {"code": letters_only.code, "facts": letters_only.facts} if letters_only else None
        if self._samples or clock:
            os.write(self._file, json.dumps((self._samples, self._new, clock, why)).encode() + b"\n")
            self._samples, self._new = [], []

    def _number(self, subject: str | None) -> int:
        if subject is None:
            return -1
        if subject not in self._subjects and len(self._subjects) < MOST_SUBJECTS:
            self._subjects[subject] = len(self._subjects)
            # Names of files may be no text at all.
            self._new.append(subject.encode("utf-8", "backslashreplace").decode())
        return self._subjects.get(subject, -1)


def read_rounds(folder: Path) -> WaitSamples:
    """All complete rounds so far; also works while they are being written."""
    rounds = []
    for line in (folder / ROUNDS).read_bytes().split(b"\n")[:-1]:
        try:
            rounds.append(json.loads(line))
        except ValueError:
            break  # a full disk has cut it short, and with it names that later samples have by number
    samples = [sample for added, *_ in rounds for sample in added]
    clocks = [clock for *_, clock, _ in rounds if clock]
    hidden = rounds[-1][-1] if rounds else None
    time_ns, worker, kind, subject = zip(*samples, strict=True) if samples else ((), (), (), ())
    return WaitSamples(
        time_ns=time_ns,
        worker=worker,
        kind=kind,
        subject=subject,
        subjects=tuple(name for _, new, *_ in rounds for name in new),
        letters_only=Remark(**hidden) if hidden else None,
        cpu_ns=clocks[-1][1] - clocks[0][1] if clocks else 0,
        wall_ns=clocks[-1][0] - clocks[0][0] if clocks else 0,
    )


# Asking the scheduler costs a tenth of a round.
CPU_ROUNDS = 8


class ThreadWatcher:
    """Samples one thread of each worker and writes the samples."""

    def __init__(self, rounds: RoundWriter) -> None:
        self._rounds = rounds
        self._budget = TableBudget()
        self._round = 0
        self._words: list[str] = []
        self._lanes: list[tuple[WatchedProcess, int] | None] = []

    def follow(self, line: str) -> None:
        """Sample the threads in this line from now on. Threads that stay are not opened again."""
        before = dict(zip(self._words, self._lanes, strict=True))
        words = line.split()
        lanes = [before.pop(word) if word in before else self._open(word) for word in words]
        for left in before.values():
            if left is not None:
                left[0].close()
        self._words, self._lanes = words, lanes

    def _open(self, word: str) -> tuple[WatchedProcess, int] | None:
        if word == GONE:
            return None
        pid, tid, started = map(int, word.split(","))
        with suppress(ThreadGone):
            return WatchedProcess(pid, started=started, budget=self._budget), tid
        return None

    def look(self) -> None:
        letters_only = None
        for worker, lane in enumerate(self._lanes):
            if lane is None:
                continue
            process, tid = lane
            try:
                wait = process.look(tid)
            except ThreadGone:
                process.close()
                self._lanes[worker] = None
                continue
            self._rounds.add(time.perf_counter_ns(), worker, wait)
            letters_only = letters_only or process.letters_only
        own_cpu_ns = None if self._round % CPU_ROUNDS else time.process_time_ns()
        self._round += 1
        self._rounds.end_round(time.perf_counter_ns(), own_cpu_ns, letters_only)


def watch(watcher: ThreadWatcher, orders: int, period_ms: float) -> None:
    """Run a round at intervals of 0.5 to 1.5 periods, until the input ends.

    With a fixed period the samples would synchronise with batches of that duration.
    """
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    begun = b""
    while True:
        if not poll.poll(period_ms * (0.5 + os.urandom(1)[0] / 255)):
            watcher.look()
            continue
        data = os.read(orders, 1 << 16)
        if not data:
            return
        *lines, begun = (begun + data).split(b"\n")
        for line in lines:
            watcher.follow(line.decode())


def main(arguments: Sequence[str]) -> None:
    """Run the process; see the module."""
    folder, parent, rate_hz = arguments
    die_with_parent(int(parent))
    # Ctrl-C and SIGTERM may be for the whole process group: the parent still measures, and ends this process by itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Descriptors are kept open for every thread seen.
    with suppress(OSError, ValueError):
        maximum = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    rounds = RoundWriter(Path(folder))
    rounds.end_round(time.perf_counter_ns(), time.process_time_ns(), None)
    os.write(1, b"r")
    watch(ThreadWatcher(rounds), 0, 1e3 / float(rate_hz))


if __name__ == "__main__":
    main(sys.argv[1:])

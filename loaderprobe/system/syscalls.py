"""System calls in which threads wait, by their numbers on x86-64 and on 64-bit ARM.

Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Group = Literal[
    "descriptor", "second", "path", "futex", "lock", "fcntl", "sleep", "poll", "select", "epoll", "ring", "child"
]
"""What a call waits for, by its arguments. descriptor: the first argument is a descriptor; second: the second is.
path: names, not contents. ring: requests submitted earlier (io_uring, libaio). child: another process."""

_GROUPS: dict[Group, str] = {
    "descriptor": (
        "read write close lseek ioctl pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 connect accept "
        "accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg fsync fdatasync ftruncate fallocate readahead "
        "fadvise64 sync_file_range splice copy_file_range"
    ),
    "second": "sendfile",
    "path": (
        "open openat openat2 creat stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 "
        "getdents getdents64 readlink readlinkat getxattr truncate rename mkdir mkdirat "
        "rmdir unlink unlinkat"
    ),
    "futex": "futex futex_wait futex_waitv",
    "lock": "flock",
    "fcntl": "fcntl",
    "sleep": "nanosleep clock_nanosleep",
    "poll": "poll ppoll",
    "select": "select pselect6",
    "epoll": "epoll_wait epoll_pwait epoll_pwait2",
    "ring": "io_uring_enter io_getevents io_pgetevents",
    "child": "wait4 waitid",
}

# Since Linux 5.1 new calls have the same number everywhere.
_COMMON = "io_uring_enter 426 openat2 437 faccessat2 439 epoll_pwait2 441 futex_waitv 449 futex_wait 455 "
_NUMBERS = {
    "x86_64": _COMMON
    + (
        "read 0 write 1 open 2 close 3 stat 4 fstat 5 lstat 6 poll 7 lseek 8 ioctl 16 pread64 17 pwrite64 18 readv 19 "
        "writev 20 access 21 select 23 nanosleep 35 sendfile 40 connect 42 accept 43 sendto 44 recvfrom 45 sendmsg 46 "
        "recvmsg 47 wait4 61 fcntl 72 flock 73 fsync 74 fdatasync 75 truncate 76 ftruncate 77 getdents 78 "
        "rename 82 mkdir 83 rmdir 84 creat 85 unlink 87 readlink 89 statfs 137 fstatfs 138 readahead 187 getxattr 191 "
        "futex 202 io_getevents 208 getdents64 217 fadvise64 221 clock_nanosleep 230 epoll_wait 232 waitid 247 "
        "openat 257 mkdirat 258 newfstatat 262 unlinkat 263 readlinkat 267 faccessat 269 pselect6 270 "
        "ppoll 271 splice 275 sync_file_range 277 epoll_pwait 281 fallocate 285 accept4 288 preadv 295 pwritev 296 "
        "recvmmsg 299 sendmmsg 307 copy_file_range 326 preadv2 327 pwritev2 328 statx 332 "
        "io_pgetevents 333"
    ),
    "aarch64": _COMMON
    + (
        "io_getevents 4 getxattr 8 epoll_pwait 22 fcntl 25 ioctl 29 flock 32 mkdirat 34 unlinkat 35 "
        "statfs 43 fstatfs 44 truncate 45 ftruncate 46 fallocate 47 faccessat 48 openat 56 close 57 "
        "getdents64 61 lseek 62 read 63 write 64 readv 65 writev 66 pread64 67 pwrite64 68 preadv 69 pwritev 70 "
        "sendfile 71 pselect6 72 ppoll 73 splice 76 readlinkat 78 newfstatat 79 fstat 80 fsync 82 fdatasync 83 "
        "sync_file_range 84 waitid 95 futex 98 nanosleep 101 clock_nanosleep 115 accept 202 connect 203 sendto 206 "
        "recvfrom 207 sendmsg 211 recvmsg 212 readahead 213 fadvise64 223 accept4 242 recvmmsg 243 wait4 260 "
        "sendmmsg 269 copy_file_range 285 preadv2 286 pwritev2 287 statx 291 io_pgetevents 292"
    ),
}


class Call(NamedTuple):
    """A system call, and how to find what it waits for."""

    name: str
    group: Group


def calls_of(machine: str) -> Mapping[int, Call] | None:
    """Calls by number for a machine named as by `platform.machine()`; None for an unknown machine."""
    if machine not in _NUMBERS:
        return None
    groups = {name: group for group, names in _GROUPS.items() for name in names.split()}
    words = _NUMBERS[machine].split()
    return {int(number): Call(name, groups[name]) for name, number in zip(words[::2], words[1::2], strict=True)}

"""A folder served slowly over FUSE: `python -m tests.planted.slow_fuse SOURCE MOUNT '{"bytes_per_s": 20e6}' drop`.

It serves until its standard input ends, or SIGTERM comes, and then unmounts. Reading is slow, metadata is not.
It needs mfusepy, libfuse and a /dev/fuse that the user may open, and either root or fusermount.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

REQUEST_BYTES = 1 << 17
"""The longest read that libfuse 2 takes; the kernel cuts what it reads, and reads ahead, to requests of this."""
REQUESTS_AT_ONCE = 128
"""Reads of the page cache are background requests, of which the kernel sends only 12 at once unless set
otherwise: the thirteenth reader would wait for the first."""
FAILS, HANGS = ".fails", ".hangs"
"""While a file is there that has the name of the source and this ending, reads fail with EIO, or are not answered."""
NANOSECOND_TIMES = ("st_mtime", "st_atime", "st_ctime")
ATTRIBUTES = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_ino")


class Schedule:
    """When each read of a slow device is answered.

    `bytes_per_s` and `requests_per_s` are shared by all reads, in the order they come; None does not limit it. Time
    in which no process reads counts as credit up to `credit_s` seconds: 0 loses it all, as a disk does. Each read
    takes `latency_s`, any number of them at once. Threads may share it.
    """

    def __init__(
        self,
        *,
        bytes_per_s: float | None = None,
        requests_per_s: float | None = None,
        credit_s: float = 0.0,
        latency_s: float = 0.0,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._requests_per_s = requests_per_s
        self._credit_s = credit_s
        self._latency_s = latency_s
        self._free_s = float("-inf")
        self._lock = threading.Lock()

    def answer_s(self, arrival_s: float, size_bytes: int) -> float:
        """The time, in s, at which a read that came at `arrival_s` is answered; both on the caller's clock."""
        busy_s = size_bytes / self._bytes_per_s if self._bytes_per_s else 0.0
        busy_s += 1 / self._requests_per_s if self._requests_per_s else 0.0
        if not busy_s:
            return arrival_s + self._latency_s
        with self._lock:
            self._free_s = max(self._free_s, arrival_s - self._credit_s) + busy_s
            return max(self._free_s, arrival_s) + self._latency_s


class SlowFolder:
    """The operations of a read-only file system over `source`, under the names that mfusepy calls."""

    use_ns = True

    def __init__(self, source: Path, schedule: Schedule) -> None:
        self._source = os.path.realpath(source)
        self._schedule = schedule

    def init_with_config(self, connection: Any, _config: Any) -> None:
        """Let as many reads be under way as there may be readers."""
        connection.max_background = REQUESTS_AT_ONCE
        connection.congestion_threshold = REQUESTS_AT_ONCE
        # libfuse 3 refuses a mount option that this does not repeat.
        if hasattr(connection, "max_read"):
            connection.max_read = REQUEST_BYTES

    def getattr(self, path: str, _handle: int | None = None) -> dict[str, int]:
        """What stat says. Raises OSError, which mfusepy hands to the caller."""
        status = os.lstat(self._source + path)
        times = {name: int(getattr(status, f"{name}_ns")) for name in NANOSECOND_TIMES}
        return times | {name: int(getattr(status, name)) for name in ATTRIBUTES}

    def readdir(self, path: str, _handle: int) -> list[str]:
        return [".", "..", *os.listdir(self._source + path)]  # one path type throughout

    def readlink(self, path: str) -> str:
        return os.readlink(self._source + path)  # one path type throughout

    def open(self, path: str, _flags: int) -> int:
        """A handle. O_DIRECT, which the kernel passes on, is for the mount and not for the folder under it."""
        return os.open(self._source + path, os.O_RDONLY)

    def read(self, _path: str | None, size_bytes: int, offset: int, handle: int) -> bytes:
        """The bytes, no earlier than the schedule has them."""
        while os.path.exists(f"{self._source}{HANGS}"):
            time.sleep(0.05)
        if os.path.exists(f"{self._source}{FAILS}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        arrival_s = time.monotonic()
        data = os.pread(handle, size_bytes, offset)
        wait_s = self._schedule.answer_s(arrival_s, len(data)) - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        return data

    def release(self, _path: str | None, handle: int) -> int:
        os.close(handle)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        status = os.statvfs(self._source + path)
        return {name: getattr(status, name) for name in dir(status) if name.startswith("f_")}


def serve(source: Path, mount: Path, schedule: Schedule, *, keep_cache: bool = False) -> None:
    """Serve `source` at `mount` in this process until SIGTERM, on one thread per read.

    With `keep_cache` pages that were read stay in the page cache; without, each open() drops those of its file.
    Raises SystemExit with the reason when mfusepy or libfuse is not there, RuntimeError when the kernel refuses
    the mount (libfuse then has written why on standard error).
    """
    try:
        mfusepy = importlib.import_module("mfusepy")
    except ModuleNotFoundError:
        raise SystemExit("mfusepy is not installed (pip install mfusepy)") from None
    except OSError as error:
        raise SystemExit(f"libfuse is not installed ({error})") from None
    options: dict[str, Any] = {"max_read": REQUEST_BYTES, "attr_timeout": 3600, "entry_timeout": 3600}
    version = (mfusepy.fuse_version_major, mfusepy.fuse_version_minor)
    if version >= (3, 12):
        # From this version on there are ten threads unless more are asked for, and before it no such option.
        options["max_threads"] = REQUESTS_AT_ONCE
    mfusepy.FUSE(
        SlowFolder(source, schedule),
        str(mount),
        foreground=True,
        ro=True,
        fsname="loaderprobe-slow-disk",
        kernel_cache=keep_cache,
        **options,
    )


def _stop_at_end_of_input() -> None:
    # Not through sys.stdin: a thread that waits in there hinders the interpreter from ending.
    while os.read(0, 1):
        pass
    # To the main thread, which libfuse has waiting: elsewhere the signal would not wake it.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def main(source: str, mount: str, schedule: str, keep_cache: str) -> None:
    """The server's command line; `schedule` are the arguments of `Schedule`, as JSON."""
    threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    try:
        serve(Path(source), Path(mount), Schedule(**json.loads(schedule)), keep_cache=keep_cache == "keep")
    except RuntimeError as error:
        # libfuse 3 also calls it an error to be ended by a signal.
        raise SystemExit(f"libfuse ended with code {error}") from None


if __name__ == "__main__":
    main(*sys.argv[1:])

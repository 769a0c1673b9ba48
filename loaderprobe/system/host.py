"""What differs from machine to machine and from day to day: clocks, the moment, the host's name, the home, the cores.

Only this module asks Python for them, and ruff holds that (`banned-api` in pyproject.toml). What measures calls it and
stores the answer; what judges and shows is given the answer.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import UTC, datetime


class SystemClock:
    """CLOCK_MONOTONIC in ns, the same in every process of the machine."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def thread_cpu_ns(self) -> int:
        return time.thread_time_ns()

    def process_cpu_ns(self) -> int:
        return time.process_time_ns()


def utc_now() -> datetime:
    """The moment, in UTC."""
    return datetime.now(UTC)


def utc_timestamp() -> str:
    """The moment as results store it: ISO 8601 in UTC, to the second."""
    return utc_now().isoformat(timespec="seconds")


def local_now() -> datetime:
    """The moment in the local time zone, for the names of directories."""
    return datetime.now()


def host_name() -> str:
    """This machine's name in its network."""
    return socket.gethostname()


def home_folder() -> str:
    """The real path of the user's home; one that does not exist raises nothing."""
    return os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111


def cores_total() -> int:
    """Cores of this machine, whoever may use them, also where PYTHON_CPU_COUNT gives another number; at least 1."""
    return max(1, os.sysconf("SC_NPROCESSORS_ONLN"))


def cores_allowed(pid: int = 0) -> tuple[int, ...]:
    """The numbers of the cores that a process may run on, rising; 0 is this process. OSError where it is gone."""
    return tuple(sorted(os.sched_getaffinity(pid)))

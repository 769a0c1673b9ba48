"""What the threads of a loader were seen doing, at random moments. Raw samples; nothing here is derived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

WaitKind = Literal[
    "running", "storage", "metadata", "network", "lock", "sleep", "pipe", "memory", "uninterruptible", "other"
]
"""running: on a core or waiting for one. storage: for a read, or for a page of a mapped file. metadata: for open,
stat, or a listing. network: on a socket. lock: in futex or a file lock, while no thread of the process works. sleep.
pipe: between processes. memory: for the kernel to free memory. uninterruptible: in the kernel, where it does not say
for what (state letter D alone). other: anything else."""

WAIT_KINDS: tuple[WaitKind, ...] = get_args(WaitKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSamples:
    """Moments at which each worker was looked at: columns of equal length, in order of time.

    A worker whose own thread waits for other threads of its process counts as what those do.
    """

    time_ns: tuple[int, ...]
    """On the clock of the segments."""
    worker: tuple[int, ...]
    """Number of the worker, from 0; 0 for the serial loader."""
    kind: tuple[int, ...]
    """Index into `WAIT_KINDS`."""
    subject: tuple[int, ...]
    """Index into `subjects`; -1 where it is not known for what."""
    subjects: tuple[str, ...]
    """Paths of files, locked ones too, and peers (`10.0.0.5:443`); of other waiting the device, the system call or the
    function of the kernel. The first 2000."""
    letters_only: str | None
    """Why system calls could not be read, at the end: kinds rest on the state's letter and the function of the kernel,
    where that is told, else they are `uninterruptible` and `other`; no file or peer is known. None where they were."""
    cpu_ns: int
    """CPU time that the sampler took since it began to look."""
    wall_ns: int
    """Time over which it took that."""

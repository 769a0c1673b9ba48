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
    """Paths of files, peers (`10.0.0.5:443`), names of locks."""
    letters_only: str | None
    """Why only the state letter could be read, so that `storage` and others are `uninterruptible` and `other`."""
    cpu_ns: int
    """CPU time that the sampler took since it began to look."""
    wall_ns: int
    """Time over which it took that."""

"""What the threads of a loader were seen doing, at random moments. Raw samples; nothing here is derived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from loaderprobe.errors import BadValue
from loaderprobe.records import check_at_least, check_equal_lengths
from loaderprobe.records.remark import Remark

WaitKind = Literal[
    "running", "storage", "metadata", "network", "lock", "sleep", "pipe", "memory", "uninterruptible", "other"
]
"""running: on a core or waiting for one, also a command that is waited for. storage: for a read, or for a page of a
mapped file. metadata: for open, stat, or a listing. network: on a socket. lock: in futex or a file lock, while no
thread of the process works. sleep. pipe: between processes. memory: for the kernel to free memory. uninterruptible: in
the kernel, where it does not say for what (state letter D alone). other: anything else."""
WAIT_KINDS: tuple[WaitKind, ...] = get_args(WaitKind)


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A function."""

    name: str
    file: str
    line: int
    library: str
    """The module that it is of; empty for the user's own code."""

    def __str__(self) -> str:
        return f"{self.name} of {self.library}" if self.library else f"{self.name} ({self.file}:{self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSamples:
    """Where workers were in Python's code while they made batches as asked, at random moments.

    A look needs the lock of the interpreter: code that holds it is seen where it next releases it, in the same
    function as a rule.
    """

    functions: tuple[CodePlace, ...]
    stacks: tuple[tuple[int, ...], ...]
    """Indices into `functions`, the outermost first, from where torch asks the data set for samples."""
    counts: tuple[int, ...]
    cpu_ns: int
    """CPU time of looking, of all workers."""

    def __post_init__(self) -> None:
        check_equal_lengths("samples of stacks", self, ("stacks", "counts"))
        check_at_least("samples of stacks", self, {"counts": 1, "cpu_ns": 0})
        if any(not 0 <= index < len(self.functions) for stack in self.stacks for index in stack):
            raise BadValue("samples of stacks: one has a function that is not there")


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
    letters_only: Remark | None
    """Why system calls could not be read, at the end: kinds come from the state's letter and the kernel's function,
    where that is known, else they are `uninterruptible` and `other`; no file or peer is known. None where they were."""
    cpu_ns: int
    """CPU time that the sampler took since it began to look."""
    wall_ns: int
    """Time over which it took that."""

    def __post_init__(self) -> None:
        check_equal_lengths("samples of waits", self, ("time_ns", "worker", "kind", "subject"))
        least = {"time_ns": 0, "worker": 0, "kind": 0, "subject": -1, "cpu_ns": 0, "wall_ns": 0}
        check_at_least("samples of waits", self, least)
        last = max(self.kind, default=0), max(self.subject, default=-1)
        if last[0] >= len(WAIT_KINDS) or last[1] >= len(self.subjects):
            raise BadValue("samples of waits: one is of a kind or a subject that is not there")

"""Run one configuration, or a study of it, in a child process: its record, or a `RunFailure` with its reason."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol, Self

import msgspec

from loaderprobe.errors import LoaderprobeError, MissingPart, masked_text
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.config import RunConfig, Study
from loaderprobe.records.diagnosis import OwnLoader, OwnMeasured
from loaderprobe.records.files import FileSet, from_json
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.rank_processes import RankPlacement, ReadResult, ReadTogether
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.host import SystemClock, utc_timestamp
from loaderprobe.system.limits import free_shared_memory_bytes
from loaderprobe.system.process import (
    SHARED_MEMORY_HINT,
    ask_where,
    child_environment,
    end_of,
    how_ended,
    runs,
    signal_name,
)
from loaderprobe.system.scratch import remove_batches, scratch_directory, written_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The configuration that the child measures, and its budget."""

    config: RunConfig
    files: FileSet
    budget_s: float | None = None
    begin_ns: int = 0
    """When the budget begins, in ns on the clock that all processes of the machine share."""
    thorough: bool = False
    earlier: Measurement | None = None
    """What was measured of it before; the child adds to that."""
    study: Study | None = None
    """None for the configuration itself."""
    epochs: int = 0
    """Of the study of epochs."""
    placement: RankPlacement | None = None
    """Of the child among the ranks of its configuration; None for one that has no other."""
    own: OwnLoader | None = None
    """What makes the user's own loader, which is measured instead; `files` then holds its module."""
    read: ReadTogether | None = None
    """What is read by all ranks at once, and nothing else."""

    @property
    def result(self) -> str:
        """The kind of the record that it asks for."""
        others = {"own-loader": self.own, "read": self.read}
        return self.study or next((kind for kind, part in others.items() if part), "measurement")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the child's standard output: its stage, or the reason of its failure."""

    stage: str
    done: int = 0
    total: int = 0
    failure: str | None = None
    hint: str = ""


Result = Measurement | Prefilled | EpochsMeasured | OwnMeasured | ReadResult
RESULTS: Mapping[str, type[Result]] = {
    "measurement": Measurement,
    "prefilled": Prefilled,
    "epochs": EpochsMeasured,
    "own-loader": OwnMeasured,
    "read": ReadResult,
}
"""What a child returns, by what is asked for."""


class Processes(Protocol):
    """What does orders, each in processes of its own: a `ForkServer`, or a `Coordinator` with all ranks."""

    def run(self, order: Order, *, time_limit_s: float, on_stage: OnStage) -> Result | RunFailure:
        """The record that the order asks for."""
        ...


# The forkserver of a sweep: a process with the imports that children need, which forks for each of them.
#
# Importing torch takes seconds, a fork milliseconds, and every configuration still has its own process. The
# forkserver uses no device: a process that has used CUDA cannot fork.

MOST_BYTES = 65536
GONE = "the forkserver, which starts the measuring processes, has ended"


class ForkServerChild:
    """A child of the forkserver, which alone can wait for it and reports its end."""

    def __init__(self, pid: int, stdout: IO[bytes], link: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self.orphaned = False
        """True once the forkserver has ended, and the child with it."""
        self._link = link

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            # A timeout of 0 would mean something else to a socket.
            self._link.settimeout(None if timeout is None else max(timeout, 1e-3))
            try:
                self.returncode = _receive_number(self._link)
            except EOFError:
                self.returncode, self.orphaned = -signal.SIGKILL, True
            except TimeoutError as error:
                raise subprocess.TimeoutExpired("child", timeout or 0.0) from error
        return self.returncode


Child = ForkServerChild | subprocess.Popen[bytes]
Start = Callable[[Path, Path, Path], Child]
"""Starts a child from the paths of order, result and log; it leads a process group and writes events to stdout."""


class ForkServer:
    """Starts children for one sweep; entering it starts `loaderprobe.measure.child`, leaving it ends that."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """`variables` are those of its environment that this process does not set otherwise."""
        self._variables = variables or {}

    def __enter__(self) -> Self:
        self._begin()
        return self

    def _begin(self) -> None:
        self._last: ForkServerChild | None = None
        self._link, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "loaderprobe.measure.child", str(theirs.fileno()), str(os.getpid())],
                    pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    env={**self._variables, **child_environment()}, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                self._link.close()
                raise _no_process(error) from error

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self._process.kill()
        self._process.wait()

    def start(self, order: Path, result: Path, log: Path) -> ForkServerChild:
        """A new child. If the forkserver has ended, or ends before it has forked, a new one is started, once.

        So it is where the child before was not waited for: its exit status would be taken for the id of the next, and 1
        for a group to kill is every process of the machine.
        """
        if self._process.poll() is None and (self._last is None or self._last.returncode is not None):
            with suppress(LoaderprobeError):
                return self._fork(order, result, log)
        self.__exit__(None, None, None)
        self._begin()
        return self._fork(order, result, log)

    def _fork(self, order: Path, result: Path, log: Path) -> ForkServerChild:
        read_end, write_end = os.pipe()
        message = msgspec.json.encode((str(order), str(result)))
        self._link.settimeout(None)
        with log.open("wb") as log_file:
            try:
                socket.send_fds(self._link, [message], [write_end, log_file.fileno()])
                pid = _receive_number(self._link)
            except (OSError, EOFError) as error:
                os.close(read_end)
                raise LoaderprobeError(GONE, hint=end_of(self._process)[1]) from error
            finally:
                os.close(write_end)
        if pid < 0:
            os.close(read_end)
            raise _no_process(OSError(-pid, os.strerror(-pid)))
        self._last = ForkServerChild(pid, os.fdopen(read_end, "rb", buffering=0), self._link)
        return self._last

    def run(self, order: Order, *, time_limit_s: float, on_stage: OnStage) -> Result | RunFailure:
        clock = SystemClock()
        return run_order(order, clock=clock, time_limit_s=time_limit_s, on_stage=on_stage, start=self.start)


def _no_process(error: OSError) -> MissingPart:
    hint = "raise the limit of processes: ulimit -u, or that of the container (docker run --pids-limit)"
    return MissingPart(f"no process can be started: {error.strerror}", hint=hint)


def _receive_number(link: socket.socket) -> int:
    message = link.recv(8, socket.MSG_WAITALL)
    if len(message) < 8:
        raise EOFError(GONE)
    return int(struct.unpack("q", message)[0])


LOG_LINES = 40
STACKS_S = 0.5
"""For a child that hangs to write where it is."""
KILLED_S = 10.0
"""For a killed child to end: 1 GB of its memory took 0.3 s to free on a virtual machine. Ranks report it in ENDED_S."""
RAISE_TIME_LIMIT = "raise --time-limit, or check the log for a hang"
RAISE_BUDGET = "the budget left it no more time: raise --budget, or check the log for a hang"
TIMEOUT, ABORTED = "timeout", "it was ended, because another rank could not go on"
GRACE_S = 1.0
"""Seconds for a child to print its own last words, once another rank could not go on."""


def run_order(
    order: Order, *, clock: Clock, time_limit_s: float, on_stage: OnStage,
    start: Start, aborted: Callable[[], bool] = lambda: False, poll_s: float = 60.0,
) -> Result | RunFailure:  # fmt: skip
    """Do what an order asks for in a child that `start` starts, and end it and its workers in any case.

    It is ended, too, once it is `aborted`, which is asked after what the child says, and every `poll_s` seconds.
    """
    started_utc, started_ns = utc_timestamp(), clock.now_ns()
    with scratch_directory() as scratch:
        order_path, result_path, log_path = (scratch / name for name in ("order.json", "result.json", "log.txt"))
        with written_in(scratch):
            order_path.write_bytes(encode("order", order))
            child = start(order_path, result_path, log_path)
        # Open to its end: it may have more to say while its stacks are asked for.
        with child.stdout or nullcontext():
            try:
                deadline_ns = started_ns + round(time_limit_s * 1e9)
                last, why = _follow(child, clock, deadline_ns, on_stage, aborted, poll_s)
                timed_out = why == TIMEOUT
                # Workers may wait in it without an error; once they are killed, what they had there is free.
                full = timed_out and free_shared_memory_bytes() == 0
                if timed_out and ask_where(child.pid):
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(STACKS_S)
            finally:
                kill_group(child.pid, partial(child.wait, KILLED_S))
        if child.returncode == 0 and result_path.is_file():
            return _checked(order, result_path)
        log_lines = tuple(masked_text(log_path.read_text(errors="replace")).splitlines()[-LOG_LINES:])
    code = -signal.SIGKILL if child.returncode is None else child.returncode
    how, hint = how_ended(code)
    reason, by_signal = f"the measuring process {how}", signal_name(-code) if code < 0 else None
    if code >= 0:
        reason = f"{reason}: {next((line for line in reversed(log_lines) if line.strip()), 'no output')}"
    if isinstance(child, ForkServerChild) and child.orphaned:
        reason = GONE
    if last.failure:
        reason, hint, by_signal = last.failure, last.hint, None
    elif why == ABORTED:
        reason = ABORTED
    elif timed_out:
        reason, hint = f"timeout: not finished after {time_limit_s:.0f} s", RAISE_TIME_LIMIT
        if full:
            reason, hint = f"{reason}, and shared memory is full", SHARED_MEMORY_HINT
    if child.returncode is None:
        reason = f"{reason}; it cannot be ended: it waits in the kernel, as for storage that does not answer"
    return RunFailure(
        config=order.config,
        stage=last.stage,
        reason=reason,
        hint=hint,
        exit_code=code if code >= 0 else None,
        signal=by_signal,
        log=log_lines,
        started_utc=started_utc,
        wall_s=(clock.now_ns() - started_ns) / 1e9,
    )


def kill_group(leader: int, wait: Callable[[], object]) -> None:
    """End a child and every process it started, and wait for it, as long as `wait` does."""
    members = _members(leader)
    # The group outlives its leader as long as a worker does; it is gone when all have ended by themselves.
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        wait()
    remove_batches(members)


def _members(group: int) -> list[int]:
    members = []
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group:
                members.append(pid)
    return members


def _follow(
    child: Child, clock: Clock, deadline_ns: int, on_stage: OnStage, aborted: Callable[[], bool],
    poll_s: float,
) -> tuple[Event, str]:  # fmt: skip
    """Pass on the child's stages until it ends: (its last event, why it is ended where it does not end by itself)."""
    assert child.stdout is not None
    last, part, why, poll = Event(stage="start"), b"", "", select.poll()

    def left_s() -> float:
        return max(0.0, (deadline_ns - clock.now_ns()) / 1e9)

    with suppress(subprocess.TimeoutExpired):
        poll.register(child.stdout, select.POLLIN)
        ready = bool(poll.poll(1e3 * min(left_s(), poll_s)))
        # What the child had said before its end counts, also late; lines that come without end do not.
        while left_s() > 0 or (ready and not runs(child.pid)):
            data = os.read(child.stdout.fileno(), MOST_BYTES) if ready else b""
            if ready and not data:
                child.wait(timeout=left_s())
                return last, ""
            *lines, part = (part + data).split(b"\n")
            for line in lines:
                last = from_json(line, Event)
                if last.failure is None:
                    on_stage(last.stage, last.done, last.total)
            if not why and aborted():
                ask_where(child.pid)
                why, deadline_ns = ABORTED, min(deadline_ns, clock.now_ns() + round(GRACE_S * 1e9))
            ready = bool(poll.poll(1e3 * min(left_s(), poll_s)))
    # Of one that has died, workers may still hold the output.
    return last, (why if runs(child.pid) else "") if why else TIMEOUT


def _checked(order: Order, result_path: Path) -> Result:
    result = decode(order.result, result_path.read_bytes(), RESULTS[order.result], str(result_path))
    if result.config != order.config:
        raise LoaderprobeError("the measuring process returned another configuration", hint="please report this")
    return result

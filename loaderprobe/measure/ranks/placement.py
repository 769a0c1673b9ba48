"""Run one placement: a launcher, one process a rank, and what they measured or why they did not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.protocols import Clock
from loaderprobe.records.devices import DeviceSegment, PlacementFailure, PlacementResult
from loaderprobe.records.ranks import LauncherEnd, RankEnd, RankError, RankOrder, RankRecord
from loaderprobe.store.codec import decode, encode
from loaderprobe.store.marks import Marks
from loaderprobe.system.process import child_environment, signal_name

# In which rank an error began: the others that failed lost it, or waited for it.

LOG_LINES = 20


def failure_of(ends: Sequence[RankEnd], errors: Sequence[RankError], launcher_log: Path) -> PlacementFailure:
    """Of ranks that ended: one that was killed, else one that ended without a word, else the first that raised.

    Ranks that the launcher ended itself, by SIGTERM, are consequences.
    """
    killed = [end for end in ends if end.exit_code < 0 and -end.exit_code != signal.SIGTERM]
    silent = [end for end in ends if end.exit_code > 0 and all(each.rank != end.rank for each in errors)]
    if killed:
        name = signal_name(-killed[0].exit_code)
        return PlacementFailure(kind="killed", rank=killed[0].rank, signal=name, log=log_of(killed[0]))
    if silent:
        return PlacementFailure(
            kind="exited", rank=silent[0].rank, exit_code=silent[0].exit_code, log=log_of(silent[0])
        )
    if errors:
        first = min(errors, key=lambda each: each.at_ns)
        log = next((log_of(end) for end in ends if end.rank == first.rank), ())
        return PlacementFailure(
            kind="raised", rank=first.rank, reason=first.reason, hint=first.hint, exit_code=first.exit_code, log=log
        )
    return PlacementFailure(kind="launcher", log=last_lines(launcher_log))


def behind(counts: Sequence[int]) -> int | None:
    """The rank that is behind all others, for which they wait; None when no single one is."""
    least = min(counts)
    return counts.index(least) if counts.count(least) == 1 else None


def log_of(end: RankEnd) -> tuple[str, ...]:
    """The last lines that a rank printed."""
    return last_lines(Path(end.log)) if end.log else ()


def last_lines(path: Path) -> tuple[str, ...]:
    """Of a log; empty where there is none."""
    try:
        return tuple(path.read_text(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return ()


POLL_S = 0.1
TERM_S = 5.0
"""For the launcher to end its ranks; then the kernel ends both."""
STACKS_S = 0.5
"""For ranks to write where they are."""

OnSegments = Callable[[int, int], None]
"""Of (segments done, of how many)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The modules that are run: the launcher, and what it runs for each rank."""

    launcher: str
    rank: str


def run_placement(order: RankOrder, programs: Programs, *, clock: Clock, on_segments: OnSegments) -> PlacementResult:
    """Start the ranks of `order`, whose scratch directory is made here, and end them in any case.

    Raises BadValue or MissingPart for what is wrong on every placement, KeyboardInterrupt after ending all ranks.
    """
    with tempfile.TemporaryDirectory(prefix="loaderprobe-ranks-") as scratch:
        order = replace(order, scratch=scratch)
        order_path, log_path = Path(scratch) / "order.json", Path(scratch) / "launcher.log"
        order_path.write_bytes(encode("rank-order", order))
        command = [sys.executable, "-P", "-m", programs.launcher, str(order_path), str(os.getpid()), programs.rank]
        with log_path.open("wb") as log:
            launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(order),
                start_new_session=True,
            )  # fmt: skip
        try:
            hung = _follow(launcher, order, clock, on_segments)
        finally:
            end(launcher, [each.pid for each in _marks(order) if each.pid])
        failure = hung or _failure(launcher, order, log_path)
        return _failed(order, failure) if failure else _joined(order)


def end(launcher: subprocess.Popen[bytes], ranks: Sequence[int]) -> None:
    """Ask the launcher to end its ranks; if it does not, kill it, and with it the kernel kills them. None is left."""
    running = []
    for pid in ranks:
        with suppress(psutil.NoSuchProcess):
            running.append(psutil.Process(pid))
    if launcher.poll() is None:
        launcher.terminate()
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(TERM_S)
    launcher.kill()
    launcher.wait()
    for rank in psutil.wait_procs(running, TERM_S)[1]:
        with suppress(psutil.NoSuchProcess):
            rank.kill()


def _environment(order: RankOrder) -> dict[str, str]:
    """Ours, with as many threads as asked for, and nothing but the loopback device and files to meet by."""
    return {
        **child_environment(),
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(order.threads),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def _follow(
    launcher: subprocess.Popen[bytes], order: RankOrder, clock: Clock, on_segments: OnSegments
) -> PlacementFailure | None:
    """Until the launcher ends; the failure when no rank gets any further."""
    seen: list[Marks] = []
    since_ns = clock.now_ns()
    while launcher.poll() is None:
        marks = _marks(order)
        if marks != seen:
            seen, since_ns = marks, clock.now_ns()
            on_segments(min(each.done for each in marks), max(each.total for each in marks))
        elif clock.now_ns() - since_ns > order.timeout_s * 1e9:
            return _hung(order, seen, clock)
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(POLL_S)
    return None


def _marks(order: RankOrder) -> list[Marks]:
    return [Marks.read(order.marks(rank)) for rank in range(order.placement.ranks)]


def _hung(order: RankOrder, marks: Sequence[Marks], clock: Clock) -> PlacementFailure:
    """With the rank that is behind; its log ends with the line at which it is."""
    for each in marks:
        if each.pid:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGUSR1)
    clock.sleep(STACKS_S)
    rank = behind([each.count for each in marks])
    logs = sorted(order.logs.glob(f"*/attempt_0/{rank or 0}/stderr.log"))
    return PlacementFailure(
        kind="hung", rank=rank, waited_s=order.timeout_s, log=last_lines(logs[0])[-LOG_LINES:] if logs else ()
    )


def _failure(launcher: subprocess.Popen[bytes], order: RankOrder, log_path: Path) -> PlacementFailure | None:
    """Why the launcher did not end well; None when it did. Raises what is wrong on every placement."""
    if launcher.returncode == 0:
        return None
    paths = [order.error(rank) for rank in range(order.placement.ranks)]
    errors = [decode("rank-error", path.read_bytes(), RankError, str(path)) for path in paths if path.exists()]
    for each in errors:
        if each.everywhere:
            raise _ERRORS.get(each.exit_code, LoaderprobeError)(each.reason, hint=each.hint)
    ends = LauncherEnd(failed=())
    if order.ends.exists():
        ends = decode("launcher-end", order.ends.read_bytes(), LauncherEnd, str(order.ends))
    return failure_of(ends.failed, errors, log_path)


_ERRORS: dict[int, type[LoaderprobeError]] = {each.exit_code: each for each in (BadValue, MissingPart)}


def _failed(order: RankOrder, failure: PlacementFailure) -> PlacementResult:
    """With how far that rank was; without one, how far all were."""
    marks = _marks(order)
    done = min(each.done for each in marks) if failure.rank is None else marks[failure.rank].done
    failure = replace(failure, segment=done, segments=max(each.total for each in marks))
    return PlacementResult(placement=order.placement, threads=order.threads, failure=failure)


def _joined(order: RankOrder) -> PlacementResult:
    """The records of all ranks as one: the same segments, with the seconds of each."""
    paths = [order.result(rank) for rank in range(order.placement.ranks)]
    ranks = [decode("rank-record", path.read_bytes(), RankRecord, str(path)) for path in paths]
    segments = zip(*(each.segments for each in ranks), strict=True)
    return PlacementResult(
        placement=order.placement,
        device=ranks[0].device,
        backend=ranks[0].backend,
        threads=order.threads,
        gradient_bytes=ranks[0].gradient_bytes,
        segments=tuple(_together(each) for each in segments),
    )


def _together(segments: Sequence[DeviceSegment]) -> DeviceSegment:
    return replace(segments[0], seconds=tuple(each.seconds[0] for each in segments))

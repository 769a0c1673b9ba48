"""Run one configuration, or a study of it, in a child process: its record, or a `RunFailure` with its reason."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.forkserver import Child, Start
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.trouble import explain_death
from loaderprobe.protocols import Clock
from loaderprobe.records.config import RunConfig
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.codec import decode, encode

LOG_LINES = 40
RAISE_TIME_LIMIT = "raise --time-limit, or check the log for a hang"
RAISE_BUDGET = "the budget left it no more time: raise --budget, or check the log for a hang"
END_OF_OUTPUT = None


class OfConfiguration(Protocol):
    """A record that says which configuration it is of."""

    @property
    def config(self) -> RunConfig:
        """What was asked."""
        ...


R = TypeVar("R", bound=OfConfiguration)
S = TypeVar("S")


def run_configuration(
    order: Order,
    *,
    clock: Clock,
    time_limit_s: float,
    on_event: Callable[[Event], None],
    start: Start,
) -> Measurement | RunFailure:
    """Measure one configuration in a child that `start` starts, and end it and its workers in any case."""
    return run_order(order, Measurement, clock=clock, time_limit_s=time_limit_s, on_event=on_event, start=start)


def run_order(
    order: Order, type_: type[R], *, clock: Clock, time_limit_s: float, on_event: Callable[[Event], None], start: Start
) -> R | RunFailure:
    """The same for any order; `type_` is the record that it asks for."""
    started_utc, started_ns = datetime.now(UTC).isoformat(timespec="seconds"), clock.now_ns()
    with tempfile.TemporaryDirectory(prefix="loaderprobe-") as scratch:
        order_path, result_path, log_path = (Path(scratch) / name for name in ("order.json", "result.json", "log.txt"))
        order_path.write_bytes(encode("order", order))
        child = start(order_path, result_path, log_path)
        try:
            last, timed_out = _follow(child, clock, started_ns + round(time_limit_s * 1e9), on_event)
        finally:
            kill_group(child)
        if child.returncode == 0 and result_path.is_file():
            return _checked(order, type_, result_path)
        log_lines = tuple(log_path.read_text(errors="replace").splitlines()[-LOG_LINES:])
    code = child.wait()
    reason, hint, by_signal = explain_death(code, log_lines)
    if timed_out:
        reason, hint = (
            f"timeout: not finished after {time_limit_s:.0f} s",
            RAISE_TIME_LIMIT,
        )
    elif last.failure:
        reason, hint, by_signal = last.failure, last.hint, None
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


def named_limit(found: S, *, by_budget: bool) -> S | RunFailure:
    """A timeout names the budget where that, and not --time-limit, set it."""
    if by_budget and isinstance(found, RunFailure) and found.hint == RAISE_TIME_LIMIT:
        return replace(found, hint=RAISE_BUDGET)
    return found


def kill_group(child: Child) -> None:
    """End the child and every process it started, and wait for the child."""
    # The group outlives its leader as long as a worker does; it is gone when all have ended by themselves.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _follow(child: Child, clock: Clock, deadline_ns: int, on_event: Callable[[Event], None]) -> tuple[Event, bool]:
    """Pass on the child's events until it ends: (last event, whether it ran into the timeout)."""
    assert child.stdout is not None
    lines: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_read_lines, args=(child.stdout, lines), daemon=True).start()
    last = Event(stage="start")
    while True:
        try:
            line = lines.get(timeout=max(0.0, (deadline_ns - clock.now_ns()) / 1e9))
        except queue.Empty:
            return last, True
        if line is END_OF_OUTPUT:
            return last, not _ended(child, clock, deadline_ns)
        last = msgspec.json.decode(line, type=Event)
        on_event(last)


def _ended(child: Child, clock: Clock, deadline_ns: int) -> bool:
    try:
        child.wait(timeout=max(0.0, (deadline_ns - clock.now_ns()) / 1e9))
    except subprocess.TimeoutExpired:
        return False
    return True


def _read_lines(stream: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    # Who reads closes: were another thread to close it, its number could belong to another file at the next read.
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(END_OF_OUTPUT)


def _checked(order: Order, type_: type[R], result_path: Path) -> R:
    found = decode(order.result, result_path.read_bytes(), type_, str(result_path))
    if found.config != order.config:
        raise LoaderprobeError("the measuring process returned another configuration", hint="please report this")
    return found

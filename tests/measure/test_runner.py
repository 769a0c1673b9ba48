"""One configuration in a child process that goes wrong in every way, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import Child, Event, Order, Start, explain_death, explain_error, run_configuration
from loaderprobe.protocols import Clock
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.store.codec import encode
from loaderprobe.testing import FakeClock, Service, example_config, example_files
from tests.measure.conftest import Measure


def order() -> Order:
    files = example_files(16)
    return Order(config=example_config(data=files.fingerprint), files=files, budget_s=None, begin_ns=0)


def by_command(command: Callable[[Path, Path], list[str]]) -> Start:
    """Starts children that are programs of any kind: from the paths of order and result to a command line."""

    def start(order: Path, result: Path, log: Path) -> Child:
        with log.open("wb") as log_file:
            return subprocess.Popen(
                command(order, result), stdout=subprocess.PIPE, stderr=log_file, start_new_session=True, bufsize=0
            )

    return start


def run(script: str, events: list[Event] | None = None) -> Measurement | RunFailure:
    """Run a child that executes `script`, with RESULT as the path it should write."""

    def command(_: Path, result: Path) -> list[str]:
        return [sys.executable, "-c", f"import os, signal, sys; RESULT = {str(result)!r}\n{script}"]

    heard, start = events if events is not None else [], by_command(command)
    return run_configuration(order(), clock=SystemClock(), time_limit_s=60.0, on_event=heard.append, start=start)


SAYS_WHY = """print('{"stage": "round 1", "done": 1, "total": 9}')
print('{"stage": "round 1", "failure": "it broke", "hint": "repair it"}')
sys.stderr.write("last words\\n"); sys.exit(5)"""


def test_a_child_that_ends_without_a_result_becomes_a_failure() -> None:
    """With all that it says: reason, stage, hint, exit code, last words; or its signal. Exit code 0 is no result."""
    events: list[Event] = []
    failure = run(SAYS_WHY, events)
    assert isinstance(failure, RunFailure)
    assert (failure.stage, failure.reason, failure.hint, failure.exit_code) == ("round 1", "it broke", "repair it", 5)
    assert failure.log == ("last words",)
    assert events[0].done == 1
    killed = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert isinstance(killed, RunFailure) and (killed.signal, killed.exit_code) == ("SIGKILL", None)
    assert isinstance(run("pass"), RunFailure)


@pytest.mark.parametrize("script", ["", "os.fork(); signal.pause()"])
def test_a_hung_child_is_ended_with_all_its_processes(script: str) -> None:
    """At the time limit; what it said is closed by the thread that reads it, as is that of one that ends."""
    started: list[Child] = []

    def start(*paths: Path) -> Child:
        started.append(by_command(lambda *_: [sys.executable, "-c", f"import os, signal\n{script}"])(*paths))
        return started[0]

    clock: Clock = FakeClock() if script else SystemClock()
    limit_s = 0.0 if script else 60.0
    failure = run_configuration(order(), clock=clock, time_limit_s=limit_s, on_event=lambda _: None, start=start)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10)
    assert started[0].stdout is not None and started[0].stdout.closed
    assert isinstance(failure, RunFailure)
    assert ("not finished after 0 s" in failure.reason) == ("--time-limit" in failure.hint) == bool(script)


def test_an_answer_for_another_configuration_is_refused(measure_fake: Measure, tmp_path: Path) -> None:
    """The parent checks that what comes back is what it asked for."""
    other = tmp_path / "other.json"
    other.write_bytes(encode("measurement", measure_fake(Service(cpu_s=0.001), batch_size=8)))
    with pytest.raises(LoaderprobeError, match="another configuration"):
        run(f"import shutil; shutil.copy({str(other)!r}, RESULT)")


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (RuntimeError("unable to allocate shared memory(shm) for file"), "shared memory", "--shm-size"),
        (
            ValueError("Caught ValueError in DataLoader worker process 0.\nTraceback ...\nValueError: bad label\n"),
            "the data set raised in a worker: ValueError: bad label",
            "traceback",
        ),
        (
            RuntimeError("DataLoader worker (pid 77) is killed by signal: Killed. "),
            "a loader worker (pid 77) was killed by SIGKILL",
            "out-of-memory killer",
        ),
        (
            RuntimeError("DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that ..."),
            "a loader worker (pid 77) ran out of shared memory",
            "--shm-size",
        ),
        (BadValue("x.jpg cannot be decoded", hint="remove it"), "x.jpg cannot be decoded", "remove it"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero", ""),
    ],
)
def test_an_error_becomes_a_reason_and_a_hint(error: Exception, reason: str, hint: str) -> None:
    """The reason says what happened in one sentence, the hint what to do about it."""
    found = explain_error(error)
    assert reason in found[0]
    assert hint in found[1]
    assert "\n" not in found[0]


def test_a_silent_death_is_known_from_its_signal_or_last_line() -> None:
    """A child that could not speak is explained by how it ended."""
    assert explain_death(-9, [])[::2] == ("the measuring process was killed by SIGKILL", "SIGKILL")
    assert "last words" in explain_death(1, ["first", "last words", ""])[0]

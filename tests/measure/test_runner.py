"""One configuration in a child process that goes wrong in every way."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import Child, Event, Order, Start, run_configuration
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


def run(script: str, events: list[Event] | None = None, time_limit_s: float = 60.0) -> Measurement | RunFailure:
    """Run a child that executes `script`, with RESULT as the path it should write."""

    def command(_: Path, result: Path) -> list[str]:
        return [sys.executable, "-c", f"import os, signal, sys; RESULT = {str(result)!r}\n{script}"]

    heard = events if events is not None else []
    return run_configuration(
        order(), clock=SystemClock(), time_limit_s=time_limit_s, on_event=heard.append, start=by_command(command)
    )


def test_a_child_that_says_why_becomes_a_failure_with_that_reason() -> None:
    """Stage, reason, hint, exit code and last words are all kept."""
    events: list[Event] = []
    failure = run(
        """print('{"stage": "round 1", "done": 1, "total": 9}')
print('{"stage": "round 1", "failure": "it broke", "hint": "repair it"}')
sys.stderr.write("last words\\n"); sys.exit(5)""",
        events,
    )
    assert isinstance(failure, RunFailure)
    assert (failure.stage, failure.reason, failure.hint, failure.exit_code) == ("round 1", "it broke", "repair it", 5)
    assert failure.log == ("last words",)
    assert events[0].done == 1


def test_a_killed_child_becomes_a_failure_with_the_signal() -> None:
    """A child killed by the kernel or a person says nothing; the record does."""
    failure = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert isinstance(failure, RunFailure)
    assert (failure.signal, failure.exit_code) == ("SIGKILL", None)


def test_a_hung_child_is_ended_with_all_its_processes() -> None:
    """At the time limit the child and its workers are gone, and the failure says so."""
    clock = FakeClock()

    def command(_: Path, __: Path) -> list[str]:
        return [sys.executable, "-c", "import os, signal; os.fork(); signal.pause()"]

    failure = run_configuration(
        order(), clock=clock, time_limit_s=0.0, on_event=lambda _: None, start=by_command(command)
    )
    assert isinstance(failure, RunFailure)
    assert "not finished after 0 s" in failure.reason
    assert "--time-limit" in failure.hint


@pytest.mark.parametrize("script", ["", "signal.pause()"])
def test_what_a_child_said_is_closed_by_the_thread_that_reads_it(script: str) -> None:
    """Of one that ends, and of one that is ended at its time limit."""
    started: list[Child] = []

    def start(*paths: Path) -> Child:
        started.append(by_command(lambda *_: [sys.executable, "-c", f"import signal\n{script}"])(*paths))
        return started[0]

    limit_s = 0.0 if script else 60.0
    run_configuration(order(), clock=SystemClock(), time_limit_s=limit_s, on_event=lambda _: None, start=start)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(10)
    assert started[0].stdout is not None and started[0].stdout.closed


def test_a_child_that_ends_without_a_result_is_a_failure() -> None:
    """Exit code 0 alone is no measurement."""
    assert isinstance(run("pass"), RunFailure)


def test_an_answer_for_another_configuration_is_refused(measure_fake: Measure, tmp_path: Path) -> None:
    """The parent checks that what comes back is what it asked for."""
    other = tmp_path / "other.json"
    other.write_bytes(encode("measurement", measure_fake(Service(cpu_s=0.001), batch_size=8)))
    with pytest.raises(LoaderprobeError, match="another configuration"):
        run(f"import shutil; shutil.copy({str(other)!r}, RESULT)")

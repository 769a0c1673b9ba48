"""One configuration in a child process: bytes that agree, every way to go wrong, and a forkserver."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.analyze.verdict.rates import cold_fraction
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.child import explain_error, keep_together, next_order
from loaderprobe.measure.runner import Child, ForkServer, Order, run_order
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure, segments_of
from loaderprobe.store.codec import encode
from loaderprobe.system.device import locate_root
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import FakeClock, Service, example_config, example_files
from tests.conftest import MeasureReal
from tests.measure.scripted import by_command, measured_alone
from tests.planted.loaders import without_torch
from tests.said import said


def order() -> Order:
    files = example_files(16)
    return Order(config=example_config(data=files.fingerprint), files=files, budget_s=None, begin_ns=0)


def run(
    script: str, on_stage: OnStage = lambda *_: None, *, clock: Clock | None = None,
    limit_s: float = 60.0, on_start: Callable[[Child], None] = lambda _: None,
) -> Measurement | RunFailure:  # fmt: skip
    """Run a child that executes `script`, with RESULT as the path it should write."""

    def start(*paths: Path) -> Child:
        code = f"import os, signal, sys; RESULT = {str(paths[1])!r}\n{script}"
        child = by_command(lambda *_: [sys.executable, "-c", code])(*paths)
        on_start(child)
        return child

    asked: dict[str, Any] = {"clock": clock or SystemClock(), "time_limit_s": limit_s, "on_stage": on_stage}
    found = run_order(order(), start=start, **asked)
    assert isinstance(found, Measurement | RunFailure)
    return found


SAYS_WHY = """os.write(1, b'''{"stage": "round 1", "done": 1, "total": 9}
{"stage": "round 1", "failure": "it broke", "hint": "repair it"}
''')
sys.stderr.write("last words\\n"); sys.exit(5)"""


def test_a_child_that_ends_without_a_result_becomes_a_failure() -> None:
    """With all that it says: reason, stage, hint, exit code, last words; or its signal, or last line. Exit code 0 is no
    result."""
    stages: list[tuple[Any, ...]] = []
    failure = run(SAYS_WHY, lambda *stage: stages.append(stage))
    assert isinstance(failure, RunFailure)
    assert (failure.stage, failure.reason, failure.hint, failure.exit_code) == ("round 1", "it broke", "repair it", 5)
    assert failure.log == ("last words",)
    assert stages == [("round 1", 1, 9)]
    killed = run("os.kill(os.getpid(), signal.SIGKILL)")
    assert isinstance(killed, RunFailure) and (killed.signal, killed.exit_code) == ("SIGKILL", None)
    assert killed.reason == "the measuring process was killed by SIGKILL"
    said_last = run("sys.stderr.write('first\\nlast words\\n \\n')")
    assert isinstance(said_last, RunFailure) and said_last.reason.endswith("ended with code 0: last words")


@pytest.mark.parametrize("ends", [True, False])
def test_what_a_child_said_counts_where_its_time_is_over(ends: bool) -> None:
    """The sweep was stopped, and goes on after the time limit: the child has ended, or hangs, and said why."""
    clock, started = FakeClock(), list[Child]()

    def on_stage(*_: Any) -> None:
        clock.sleep(100.0)
        if ends:
            started[0].wait()

    says = SAYS_WHY if ends else SAYS_WHY.replace("sys.exit(5)", "signal.pause()")
    failure = run(says, on_stage, clock=clock, on_start=started.append)
    assert isinstance(failure, RunFailure) and (failure.reason, failure.hint) == ("it broke", "repair it")


@pytest.mark.parametrize("script", ["", "os.fork(); signal.pause()"])
def test_a_hung_child_is_ended_with_all_its_processes(script: str) -> None:
    """At the time limit; what it said is closed, as is that of one that ends."""
    started: list[Child] = []
    limited: dict[str, Any] = {"clock": FakeClock(), "limit_s": 0.0} if script else {}
    failure = run(script, on_start=started.append, **limited)
    assert started[0].stdout is not None and started[0].stdout.closed
    assert isinstance(failure, RunFailure)
    assert ("not finished after 0 s" in failure.reason) == ("--time-limit" in failure.hint) == bool(script)


def test_an_answer_for_another_configuration_is_refused(tmp_path: Path) -> None:
    """The parent checks that what comes back is what it asked for."""
    other = tmp_path / "other.json"
    other.write_bytes(encode("measurement", measured_alone(Service(cpu_s=0.001), batch_size=8)))
    with pytest.raises(LoaderprobeError, match="another configuration"):
        run(f"import shutil; shutil.copy({str(other)!r}, RESULT)")


CAUGHT = "Caught ValueError in DataLoader worker process 0.\nTraceback ...\nValueError: bad label\n"


def died(how: str) -> RuntimeError:
    return RuntimeError(f"DataLoader worker (pid 77) is killed by signal: {how}")


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (RuntimeError("unable to allocate shared memory(shm) for file"), "shared memory", "--shm-size"),
        (ValueError(CAUGHT), "the data set raised in a worker: ValueError: bad label", "traceback"),
        (died("Aborted. "), "a loader worker (pid 77) was killed by SIGABRT", None),
        (died("Bus error. It is possible that ..."), "a loader worker (pid 77) ran out of shared memory", "--shm-size"),
        (OSError(28, "No space left on device", "/tmp/x"), "No space left on device: '/tmp/x'", ""),
        (BadValue("x.jpg cannot be decoded", hint="remove it"), "x.jpg cannot be decoded", "remove it"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero", ""),
    ],
)
def test_an_error_becomes_a_reason_and_a_hint(error: Exception, reason: str, hint: str | None) -> None:
    """The reason says what happened in one sentence, the hint what to do about it, if that is known."""
    found = explain_error(error)
    assert reason in found[0]
    assert hint in found[1] if hint else found[1] == ""
    assert "\n" not in found[0]


def test_cold_reads_of_workers_agree_with_the_files_consumed(on_disk: FileSet, measure_real: MeasureReal) -> None:
    """Bytes that the workers read from storage are the sizes of the files, within 5 %; the device was sampled. Real
    steps on the CPU have a measured ceiling, and times for wait, copy and step."""
    few = on_disk.chosen(range(64))  # so few that no segment lasts
    found = measure_real(few, workers=2, compute="cpu", model="lenet5")
    assert isinstance(found, Measurement)
    share = cold_fraction(found, [s for s in found.segments if s.mode == "baseline"])
    assert share == pytest.approx(1.0, abs=0.05)
    sampled = {series.name for series in found.series if series.values}
    assert ("disk_read" in sampled) == bool(locate_root(on_disk.root).devices)
    assert "no GPU" in next(said(m.reason) for m in found.missing if m.name == "gpu_utilization")
    judged = verdict(found)
    assert found.compute.specified_images_per_s is None and judged.rates_images_per_s.compute is not None
    assert judged.step_time.step_s > judged.step_time.copy_s > 0
    assert segments_of(found, "resident", "training")


def test_warm_reads_come_from_memory(on_disk: FileSet, measure_real: MeasureReal) -> None:
    """Over a warm configuration under 2 % of the bytes come from storage."""
    measurement = measure_real(on_disk, cache="warm")
    assert isinstance(measurement, Measurement)
    share = cold_fraction(measurement, [s for s in measurement.segments if s.mode == "warm"])
    assert share is not None and share < 0.02


def test_a_data_set_that_raises_becomes_a_failure_naming_the_file(tmp_path: Path, measure_real: MeasureReal) -> None:
    """A file that went bad after it was checked is named, with the stage it was met in."""
    (tmp_path / "bad.JPEG").write_bytes(b"\xff\xd8 no image")
    failure = measure_real(replace(example_files(64, size_bytes=11), root=str(tmp_path), paths=("bad.JPEG",) * 64))
    assert isinstance(failure, RunFailure)
    assert "the data set raised in a worker" in failure.reason
    assert "bad.JPEG cannot be decoded" in failure.reason
    assert failure.stage == "first batch"
    assert any("Traceback" in line for line in failure.log)


Run = Callable[..., Measurement | RunFailure]
PLAIN: dict[str, Any] = {"loader": "tests.planted.loaders:Plain", "workers": 0}


@pytest.fixture(scope="module")
def server_without_torch(photographs: FileSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Started where an `html.py` lies, which shadows nothing. The photographs are made before: that takes torch."""
    folder = tmp_path_factory.mktemp("current")
    (folder / "html.py").write_text("raise ImportError('the wrong module')")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(without_torch(folder / "first"))
        with ForkServer() as started:
            yield started


@pytest.fixture
def run_forked(server_without_torch: ForkServer, photographs: FileSet) -> Run:
    """Measures a small configuration in a child of the forkserver; so few files that no segment lasts."""
    few = photographs.chosen(range(16))

    def run(
        files: FileSet = few, limit_s: float = 120.0, on_stage: OnStage = lambda *_: None, rate: float = 200.0
    ) -> Any:
        config = example_config(data=files.fingerprint, batch_size=4, rounds=1, compute=f"emulated:{rate:g}", **PLAIN)
        order = Order(config=config, files=files, budget_s=1.0, begin_ns=SystemClock().now_ns())
        return server_without_torch.run(order, time_limit_s=limit_s, on_stage=on_stage)

    return run


@pytest.fixture
def start(server_without_torch: ForkServer, tmp_path: Path) -> Callable[..., Any]:
    """Starts a child of the forkserver with what it is to read as its order."""

    def started(order: bytes = b"no order", log: Path = tmp_path / "log.txt") -> Any:
        (tmp_path / "order.json").write_bytes(order)
        return server_without_torch.start(tmp_path / "order.json", tmp_path / "result.json", log)

    return started


def test_each_configuration_has_a_process_of_its_own(run_forked: Run, start: Callable[..., Any]) -> None:
    """Files that are not there end that child alone, with the reason; the next is born all the same. One that was not
    waited for is not taken for it: its exit status stood where the id of the next child stands, 1, whose group is every
    process there is."""
    failure = run_forked(example_files(64))
    assert isinstance(failure, RunFailure) and failure.exit_code and "/nowhere" in failure.reason
    with start().stdout as said:
        said.read()
    following = start()
    assert following.pid != 1 and following.wait(60) == 1
    following.stdout.close()
    assert isinstance(run_forked(), Measurement)


def test_a_log_on_a_full_disk_hides_no_reason(start: Callable[..., Any]) -> None:
    """The reason is an event; what the log does not take is lost, and the child ends."""
    files = example_files(64)
    config = example_config(data=files.fingerprint, compute="emulated:200", **PLAIN)
    child = start(encode("order", Order(config=config, files=files, budget_s=1.0, begin_ns=0)), Path("/dev/full"))
    with child.stdout:
        assert b"/nowhere" in child.stdout.readlines()[-1]
    assert child.wait(60) > 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_ended_forkserver_costs_one_result(run_forked: Run, server_without_torch: ForkServer, number: int) -> None:
    """Its child has died with it and says so; the next child has a new forkserver. By an interrupt neither it nor its
    child ends: the sweep alone decides."""
    server, ends = server_without_torch._process, number != signal.SIGINT

    def send(*_: Any) -> None:
        children = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=False).stdout
        server.send_signal(number)
        for child in () if ends else map(int, children.split()):
            os.kill(child, number)
        if ends:
            server.wait()

    found = run_forked(on_stage=send)
    if ends:
        assert isinstance(found, RunFailure) and found.signal == "SIGKILL" and "the forkserver" in found.reason
    assert isinstance(run_forked() if ends else found, Measurement)


FORKED = """\
import sys, pathlib
from loaderprobe.measure.runner import ForkServer
folder = pathlib.Path(sys.argv[1])
with ForkServer() as server:
    child = server.start(folder / "order.json", folder / "result.json", folder / "log.txt")
    print(server._process.pid, child.pid, flush=True)
    input()
"""


def test_a_sweep_that_is_killed_leaves_no_child(tmp_path: Path) -> None:
    """The forkserver ends what it has started before it goes, and what workers had just named in shared memory."""
    os.mkfifo(tmp_path / "order.json")  # the child waits for what it is asked
    order = [sys.executable, "-c", FORKED, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(without_torch(tmp_path / "first"))}
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as sweep:
        assert sweep.stdout is not None
        server, child = map(int, sweep.stdout.readline().split())
        named = Path(f"/dev/shm/torch_{child}_1_1")
        named.touch()
        ended = os.pidfd_open(server)
        sweep.kill()
        assert select.select([ended], [], [], 60)[0]
        os.close(ended)
    assert not named.exists() and not Path(f"/proc/{child}").exists()


UNFORKED = """\
import errno, os, sys
from loaderprobe.measure import child
def refused(): raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = refused
child.serve(int(sys.argv[-2]), int(sys.argv[-1]))
"""


@pytest.mark.parametrize("starts", [True, False])
def test_a_process_that_cannot_start_is_a_limit(starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of the forkserver, or the forkserver itself: which limit to raise is said, and nothing of memory."""

    def popen(words: list[str], **given: Any) -> subprocess.Popen[bytes]:
        if not starts:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real([sys.executable, "-c", UNFORKED, *words[-2:]], **given)

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(MissingPart, match="Resource temporarily unavailable") as error, ForkServer() as server:
        server.start(tmp_path / "order.json", tmp_path / "result.json", tmp_path / "log.txt")
    assert "ulimit -u" in error.value.hint


def test_a_child_that_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in uninterruptible sleep: that is said, and the sweep goes on."""
    ended: list[Callable[[], int]] = []

    def on_start(child: Child) -> None:
        ended.append(child.wait)
        monkeypatch.setattr(child, "wait", waits)

    def waits(timeout: float | None = None) -> int:
        assert timeout is not None, "it would wait for ever"
        raise subprocess.TimeoutExpired("child", timeout)

    failure = run("signal.pause()", clock=FakeClock(), limit_s=0.0, on_start=on_start)
    assert isinstance(failure, RunFailure) and "it cannot be ended: it waits in the kernel" in failure.reason
    assert ended[0]() == -signal.SIGKILL


def test_a_forkserver_that_ends_while_it_is_asked_costs_nothing(
    run_forked: Run, server_without_torch: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known to have ended yet; a new one takes the order."""
    process = server_without_torch._process
    process.kill()
    process.wait()
    monkeypatch.setattr(process, "poll", lambda: None)
    assert isinstance(run_forked(), Measurement)


def test_temporary_files_of_a_child_go_with_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a directory with so long a name that no socket of multiprocessing fits into it."""
    monkeypatch.setattr("tempfile.tempdir", "usual")
    keep_together(tmp_path / ("long" * 20))
    assert tempfile.gettempdir() == "usual"
    keep_together(Path("/tmp/short"))
    assert tempfile.gettempdir() == "/tmp/short"


def test_waiting_is_limited(run_forked: Run, server_without_torch: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that takes longer than it may is reported as such, and ended."""
    freed: list[object] = []  # with the processes goes what they had in it
    monkeypatch.setattr("loaderprobe.measure.runner.remove_batches", freed.append)
    monkeypatch.setattr("loaderprobe.measure.runner.free_shared_memory_bytes", lambda: 4096 * len(freed))
    full = run_forked(limit_s=0.0, rate=0.1)
    assert isinstance(full, RunFailure) and "shared memory is full" in full.reason and "/dev/shm" in full.hint
    children = subprocess.run(["pgrep", "-P", str(server_without_torch._process.pid)], capture_output=True, check=False)
    assert children.stdout == b""


def test_a_sweep_that_ends_with_an_answer_unread_ends_its_forkserver() -> None:
    """The kernel resets the connection then; it is an end as any other."""
    link, sweeps = socket.socketpair()
    link.sendall(b"an answer")
    sweeps.close()
    with link:
        assert next_order(link) == (b"", [])

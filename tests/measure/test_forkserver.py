"""Children that are forked by a process which has imported what they need."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaderprobe.api.child import forkserver
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import Event, ForkServer, Order, run_configuration
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.testing import example_config, example_files
from tests.planted.loaders import without_torch


def order(files: FileSet) -> Order:
    """A small configuration in a child of this process."""
    loader = {"loader": "tests.planted.loaders:Plain", "workers": 0}
    config = example_config(data=files.fingerprint, batch_size=4, rounds=1, compute="emulated:200", **loader)
    return Order(config=config, files=files, budget_s=1.0, begin_ns=SystemClock().now_ns())


def run(fork_server: ForkServer, files: FileSet) -> Measurement | RunFailure:
    return run_configuration(
        order(files), clock=SystemClock(), time_limit_s=120.0, on_event=lambda _: None, start=fork_server.start
    )


@pytest.fixture(scope="module")
def server_without_torch(photographs: FileSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Started where an `html.py` lies. The photographs are made before: that takes torch."""
    folder = tmp_path_factory.mktemp("current")
    (folder / "html.py").write_text("raise ImportError('the wrong module')")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(without_torch(folder / "first"))
        with forkserver() as started:
            yield started


def test_each_configuration_has_a_process_of_its_own(server_without_torch: ForkServer, photographs: FileSet) -> None:
    """One after the other is measured. Files that are not there end that child alone, with the reason; the next is
    born all the same."""
    assert isinstance(run(server_without_torch, photographs), Measurement)
    failure = run(server_without_torch, example_files(64))
    assert isinstance(failure, RunFailure)
    assert failure.exit_code
    assert "/nowhere" in failure.reason
    assert isinstance(run(server_without_torch, photographs), Measurement)


def test_a_killed_child_is_told_by_its_signal(server_without_torch: ForkServer, tmp_path: Path) -> None:
    """The forkserver waits for its children and passes on how they ended."""
    (tmp_path / "order.json").write_bytes(b"no order")
    child = server_without_torch.start(tmp_path / "order.json", tmp_path / "result.json", tmp_path / "log.txt")
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60) in (-signal.SIGKILL, 1)
    assert child.stdout is not None
    child.stdout.close()


def test_files_of_the_current_directory_shadow_nothing(server_without_torch: ForkServer, photographs: FileSet) -> None:
    """A sweep started among other people's modules measures all the same."""
    assert isinstance(run(server_without_torch, photographs), Measurement)


def test_a_forkserver_that_was_killed_costs_one_configuration_and_not_the_sweep(
    server_without_torch: ForkServer, photographs: FileSet
) -> None:
    """Its child has died with it and says so; the next child has a new forkserver."""

    def kill(_: Event) -> None:
        server_without_torch._process.kill()

    failure = run_configuration(
        order(photographs), clock=SystemClock(), time_limit_s=120.0, on_event=kill, start=server_without_torch.start
    )
    assert isinstance(failure, RunFailure)
    assert failure.signal == "SIGKILL"
    assert isinstance(run(server_without_torch, photographs), Measurement)


def test_waiting_has_a_limit(server_without_torch: ForkServer, tmp_path: Path, photographs: FileSet) -> None:
    """A child that takes longer than it may is reported as such, and can still be ended."""
    hung = run_configuration(
        order(photographs),
        clock=SystemClock(),
        time_limit_s=0.0,
        on_event=lambda _: None,
        start=server_without_torch.start,
    )
    assert isinstance(hung, RunFailure)
    assert "not finished after 0 s" in hung.reason
    children = subprocess.run(["pgrep", "-P", str(server_without_torch._process.pid)], capture_output=True, check=False)
    assert children.stdout == b""

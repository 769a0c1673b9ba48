from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loaderprobe.system.process import ThreadMeter, child_environment, die_with_parent, read_process, signal_name


def _process(proc: Path, *, io: str | None, schedstat: str | None) -> None:
    (proc / "42" / "task" / "42").mkdir(parents=True)
    ticks = os.sysconf("SC_CLK_TCK")
    # The command may hold brackets and spaces; user and system time are fields 14 and 15.
    (proc / "42" / "stat").write_text(f"42 (a) b) S {' '.join(['0'] * 10)} {ticks} {ticks // 2} 0 0")
    for name, text in (("io", io), ("task/42/schedstat", schedstat)):
        if text is not None:
            (proc / "42" / name).write_text(text)


def test_counters_are_read(tmp_path: Path) -> None:
    """CPU and run delay come in seconds, bytes as counted."""
    _process(tmp_path, io="rchar: 900\nwchar: 1\nread_bytes: 512\n", schedstat="2500000000 500000000 7\n")
    counters = read_process(42, tmp_path)
    assert counters is not None
    assert (counters.cpu_s, counters.run_delay_s) == (1.5, 0.5)
    assert (counters.read_bytes, counters.delivered_bytes) == (512, 900)


def test_hidden_counters_are_none(tmp_path: Path) -> None:
    """What may not be read is None, while the rest is still given."""
    _process(tmp_path, io=None, schedstat=None)
    counters = read_process(42, tmp_path)
    assert counters is not None
    assert (
        counters.cpu_s == 1.5
        and counters.run_delay_s is None
        and counters.read_bytes is None
        and counters.delivered_bytes is None
    )


def test_a_process_that_has_gone_is_none(tmp_path: Path) -> None:
    """No process, no counters."""
    assert read_process(42, tmp_path) is None


def test_own_process_is_seen() -> None:
    """A process may read its own counters."""
    counters = read_process(os.getpid())
    assert counters is not None and counters.delivered_bytes is not None and counters.delivered_bytes > 0


def test_signal_names() -> None:
    """Numbers without a name stay numbers."""
    assert signal_name(9) == "SIGKILL"
    assert signal_name(250) == "signal 250"


def test_an_orphan_ends_at_once() -> None:
    """A child whose parent is not the one expected any more ends before it does anything."""
    script = "from loaderprobe.system.process import die_with_parent\ndie_with_parent(-1)\nprint('lives')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and done.stdout == ""


def test_a_child_dies_with_its_parent() -> None:
    """When the parent is killed, the kernel kills the child: the pipe that it holds open closes."""
    script = (
        "import os, signal, sys\n"
        "from loaderprobe.system.process import die_with_parent\n"
        "parent = os.getpid(); read, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    die_with_parent(parent); os.write(write, b'x'); signal.pause()\n"
        "os.read(read, 1); os.kill(parent, signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_a_child_of_the_right_parent_lives() -> None:
    """The tie does nothing while the parent lives."""
    child = os.fork()
    if child == 0:
        die_with_parent(os.getppid())
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_child_finds_the_modules_of_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The search path is handed down, each entry whole, so that the current directory means nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/opt/modules"])
    assert child_environment()["PYTHONPATH"] == f"{tmp_path}:/opt/modules"


def test_thread_meter_never_falls() -> None:
    """The counters of a thread only rise."""
    meter = ThreadMeter()
    first, second = meter.read(), meter.read()
    assert all(later >= earlier for earlier, later in zip(first, second, strict=True))


def test_thread_meter_without_schedstat(tmp_path: Path) -> None:
    """Where the kernel keeps no run delay it reads as 0, and the meter says that it is not known."""
    meter = ThreadMeter(tmp_path / "none")
    assert meter.read()[1] == 0 and not meter.run_delay_known


def test_thread_meter_reads_the_second_field(tmp_path: Path) -> None:
    """The run delay is the second figure of schedstat, in ns."""
    (tmp_path / "schedstat").write_text("11 22 33\n")
    meter = ThreadMeter(tmp_path / "schedstat")
    assert meter.read()[1] == 22 and meter.run_delay_known


def test_zeros_are_not_a_run_delay(tmp_path: Path) -> None:
    """A running thread has had a time slice, so three zeros mean that the kernel does not count."""
    (tmp_path / "schedstat").write_text("0 0 0\n")
    assert not ThreadMeter(tmp_path / "schedstat").run_delay_known


def test_cpu_of_all_threads_counts(tmp_path: Path) -> None:
    """The CPU time of a process is that of all its threads."""
    _process(tmp_path, io=None, schedstat="1000000000 0 1\n")
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "42/stat").write_text(f"42 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {3 * ticks} {ticks} 0 0 20 0 2 0 0")
    counters = read_process(42, tmp_path)
    assert counters is not None and counters.cpu_s == 4.0

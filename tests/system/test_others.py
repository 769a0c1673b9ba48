"""What other processes take: of a planted machine exactly, and of this one that own processes never count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loaderprobe.system.others import TICK_NS, OthersMeter

SHELL, INIT, NEIGHBOUR = 40, 1, 99
NO_TICKS = (0, 0, 0, 0)
# Takes 0.3 s of CPU, in a child of its own that it does not wait for, too; and ends.
BURN = """
import os, time
if os.fork() == 0:
    os.setsid()
    while time.process_time() < 0.3: pass
    os._exit(0)
while time.process_time() < 0.3: pass
{wait}
"""


class Machine:
    """A /proc that a test writes: processes with their ticks, and those of the whole machine."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.children: dict[int, list[int]] = {}
        self.stat(idle=1000)
        (proc / "thread-self").mkdir()
        (proc / "thread-self/schedstat").write_text("5 0 1\n")
        self.process(os.getpid(), SHELL)
        self.process(SHELL, INIT)

    def stat(self, busy: int = 100, steal: int = 0, idle: int = 0) -> None:
        """Since boot, of all cores together; interrupts count for none."""
        (self.proc / "stat").write_text(f"cpu  {busy - 20} 10 10 {idle} 7 50 60 {steal} 5 5\ncpu0 1 2 3 4\nintr 5\n")

    def process(self, pid: int, parent: int, ticks: tuple[int, int, int, int] = NO_TICKS, start: int = 7) -> None:
        """One that runs, with its user and system time, and those of children that it waited for."""
        task = self.proc / str(pid) / "task" / str(pid)
        task.mkdir(parents=True, exist_ok=True)
        filler = "0 " * 9
        (self.proc / str(pid) / "stat").write_text(
            f"{pid} (a) name) S {parent} {filler}{' '.join(map(str, ticks))} 20 0 1 0 {start} 0\n"
        )
        self.children.setdefault(pid, [])
        self.children.setdefault(parent, [])
        self.children[parent] = [*dict.fromkeys([*self.children[parent], pid])]
        for each, below in self.children.items():
            if (self.proc / str(each)).is_dir():
                (self.proc / str(each) / "task" / str(each) / "children").write_text(" ".join(map(str, below)))

    def ends(self, pid: int) -> None:
        """It is gone, and whoever was its child has another parent."""
        for path in sorted((self.proc / str(pid)).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.proc / str(pid)).rmdir()
        for parent in [each for each, below in self.children.items() if pid in below]:
            self.children[parent].remove(pid)
            (self.proc / str(parent) / "task" / str(parent) / "children").write_text(
                " ".join(map(str, self.children[parent]))
            )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Whose cores this process may all use."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(os.cpu_count() or 1)))
    return Machine(tmp_path)


def test_others_are_the_machine_less_own_processes(machine: Machine) -> None:
    """Of 100 ticks this one took 10, a worker 20 and its child 5, the shell 3: 62 are of others, who are not read."""
    machine.process(7001, os.getpid())
    machine.process(7002, 7001)
    machine.process(NEIGHBOUR, SHELL, (1, 1, 0, 0))
    meter = OthersMeter(proc=machine.proc)
    meter.begin()
    machine.process(os.getpid(), SHELL, (6, 4, 0, 0))
    machine.process(7001, os.getpid(), (15, 5, 0, 0))
    machine.process(7002, 7001, (5, 0, 0, 0))
    machine.process(SHELL, INIT, (3, 0, 500, 500))
    machine.process(NEIGHBOUR, SHELL, (60, 1, 0, 0))
    machine.stat(busy=200, steal=9)
    seen = meter.end()
    assert seen is not None
    assert (seen.cpu_ns // TICK_NS, seen.own_cpu_ns // TICK_NS, seen.steal_ns // TICK_NS) == (62, 38, 9)
    assert (seen.run_delay_ns, seen.cpu_pressure_us, meter.missing()) == (0, None, ())


def test_a_kernel_that_lists_no_children_shows_their_parents(machine: Machine) -> None:
    """CONFIG_PROC_CHILDREN may be left out."""
    machine.process(7001, os.getpid())
    machine.process(7002, 7001)
    for path in machine.proc.rglob("children"):
        path.unlink()
    meter = OthersMeter(proc=machine.proc)
    meter.begin()
    (machine.proc / "7002/stat").write_text(
        (machine.proc / "7002/stat").read_text().replace("0 0 0 0 20", "9 0 0 0 20")
    )
    machine.stat(busy=120)
    seen = meter.end()
    assert seen is not None and (seen.cpu_ns // TICK_NS, seen.own_cpu_ns // TICK_NS) == (11, 9)


def test_a_worker_that_ends_is_counted_once(machine: Machine) -> None:
    """Its 30 ticks pass to the parent that waits for it, of which 20 were used before."""
    machine.process(7001, os.getpid(), (20, 0, 0, 0))
    meter = OthersMeter(proc=machine.proc)
    meter.begin()
    machine.ends(7001)
    machine.process(os.getpid(), SHELL, (1, 0, 25, 5))
    machine.stat(busy=200)
    seen = meter.end()
    assert seen is not None and seen.own_cpu_ns // TICK_NS == 11


def test_reads_of_own_processes_are_counted_while_all_are_there(machine: Machine) -> None:
    """One that ended took its count along."""
    machine.process(7001, os.getpid())
    meter = OthersMeter(proc=machine.proc)
    found = []
    for read in (1000, 4000, 9000):
        for pid in (7001, os.getpid()):
            if (machine.proc / str(pid)).is_dir():
                (machine.proc / str(pid) / "io").write_text(f"rchar: 7\nread_bytes: {read}\nwrite_bytes: 3\n")
        seen = meter.end()
        found.append(seen and seen.own_read_bytes)
        meter.begin()
        if read == 4000:
            (machine.proc / "7001/io").unlink()
            machine.ends(7001)
    assert found == [None, 6000, None]


def test_a_worker_whose_parent_ended_is_still_own(machine: Machine) -> None:
    """It has another parent now; and one that ended without being waited for takes nothing from the sum."""
    machine.process(7001, os.getpid(), (50, 0, 0, 0))
    machine.process(7002, 7001, (5, 0, 0, 0))
    meter = OthersMeter(proc=machine.proc)
    meter.begin()
    machine.ends(7001)
    machine.process(7002, INIT, (12, 0, 0, 0))
    machine.stat(busy=200)
    seen = meter.end()
    assert seen is not None and seen.own_cpu_ns // TICK_NS == 7
    meter.begin()
    machine.process(7002, INIT, (99, 0, 0, 0), start=8)
    seen = meter.end()
    assert seen is not None and seen.own_cpu_ns == 0, "a number that was given again is another process"


def test_other_ranks_are_own(machine: Machine) -> None:
    """With all that they start."""
    machine.process(8001, SHELL)
    machine.process(8002, 8001)
    meter = OthersMeter((os.getpid(), 8001), machine.proc)
    meter.begin()
    machine.process(8001, SHELL, (10, 0, 0, 0))
    machine.process(8002, 8001, (10, 0, 0, 0))
    machine.stat(busy=120)
    seen = meter.end()
    assert seen is not None and (seen.cpu_ns, seen.own_cpu_ns // TICK_NS) == (0, 20)


def test_pressure_and_waiting_for_a_core_are_differences(machine: Machine) -> None:
    """Of the lines on some threads."""
    (machine.proc / "pressure").mkdir()
    meter = OthersMeter(proc=machine.proc)
    for total, delay in ((50, 400), (80, 1000)):
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=7\n"
        (machine.proc / "pressure/cpu").write_text(text)
        (machine.proc / "thread-self/schedstat").write_text(f"9 {delay} 2\n")
        if total == 50:
            meter.begin()
    seen = meter.end()
    assert seen is not None
    assert (seen.cpu_pressure_us, seen.io_pressure_us, seen.run_delay_ns) == (30, None, 600)


def test_only_cores_that_may_be_used_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under taskset, or in a container with a cpuset; a rank that is bound to one core has those of its launcher."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    allowed = {SHELL: {0, 2}, INIT: set(range(8))}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed.get(pid, {2}))
    meter = OthersMeter(proc=machine.proc)
    text = "cpu  9 9 9 9 9 9 9 {0}\ncpu0 {0} 0 0 0\ncpu1 {1} 0 0 0\ncpu2 {0} 0 0 0\n"
    (machine.proc / "stat").write_text(text.format(10, 10))
    meter.begin()
    (machine.proc / "stat").write_text(text.format(40, 500))
    seen = meter.end()
    assert seen is not None and (seen.cores, seen.cpu_ns // TICK_NS) == (2, 60)


def test_what_is_not_counted_has_a_reason(machine: Machine) -> None:
    """A sandbox that counts no CPU time, and a machine without /proc."""
    machine.stat(busy=0)
    (machine.proc / "stat").write_text("cpu  0 0 0 0 0 0 0 0\n")
    meter = OthersMeter(proc=machine.proc)
    meter.begin()
    assert meter.end() is None
    assert [(each.name, each.reason.code) for each in meter.missing()] == [("others", "machine_uncounted")]
    (machine.proc / "stat").unlink()
    assert [each.reason.code for each in meter.missing()] == ["no_proc"]


@pytest.mark.parametrize("wait", ["os.wait()", ""], ids=["waits for its child", "leaves it an orphan"])
def test_what_a_child_and_its_child_used_is_own(wait: str) -> None:
    """On this machine: both ended before they were looked at, or one was seen while it ran."""
    meter = OthersMeter()
    meter.begin()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", BURN.format(wait=wait)]) as child:
        assert child.wait() == 0
    seen = meter.end()
    assert seen is not None
    assert seen.own_cpu_ns >= (0.6 if wait else 0.3) * 1e9 - 4 * TICK_NS

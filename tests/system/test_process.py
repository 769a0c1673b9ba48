"""Counters of processes and threads, what other processes take, and the tie between a process and its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from loaderprobe.records.measurement import Others
from loaderprobe.system import process
from loaderprobe.system.environment import describe_environment
from loaderprobe.system.host import cores_total
from loaderprobe.system.limits import resident_bytes
from loaderprobe.system.others import TICK_NS, OthersMeter
from loaderprobe.system.pagecache import LinuxPageCache, acts_as_owner
from loaderprobe.system.process import ThreadMeter, ask_where, child_environment, die_with_parent, read_process
from tests.conftest import needs_cold_reads
from tests.system.fake_kernel import PID, Processes

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def test_counters_of_a_process(tmp_path: Path) -> None:
    """CPU of all threads in seconds, bytes from storage; what is hidden is None beside the rest."""
    processes = Processes(tmp_path)
    assert read_process(PID, processes.proc) is None
    processes.begin(ticks=(3 * TICKS_PER_S, TICKS_PER_S // 2, 9, 9))
    hidden = read_process(PID, processes.proc)
    processes.write("io", "rchar: 900\nwchar: 1\nread_bytes: 512\n")
    counted = read_process(PID, processes.proc)
    assert [found and (found.cpu_s, found.read_bytes) for found in (hidden, counted)] == [(3.5, None), (3.5, 512)]


def test_a_process_is_read_whatever_its_name() -> None:
    """The kernel keeps 15 bytes of a name, which may end within a character."""
    comm = Path("/proc/self/comm")
    before = comm.read_bytes()
    comm.write_bytes("тренировка".encode())
    try:
        own = read_process(os.getpid())
        assert own is not None and own.cpu_s and resident_bytes() and process.runs(os.getpid())
        acts_as_owner()
        assert not ask_where(os.getpid())
    finally:
        comm.write_bytes(before)


@pytest.mark.parametrize(("text", "delay", "known"), [("1 22 3\n", 22, True), ("0 0 0\n", 0, False), (None, 0, False)])
def test_a_thread_meter_reads_the_second_field(tmp_path: Path, text: str | None, delay: int, known: bool) -> None:
    """The run delay, in ns. A running thread has had a time slice, so three zeros mean that nothing is counted. A
    closed meter reads on, without it."""
    if text:
        (tmp_path / "schedstat").write_text(text)
    meter = ThreadMeter(tmp_path / "schedstat")
    assert (meter.read()[1], meter.run_delay_known) == (delay, known)
    meter.close()
    meter.close()
    assert meter.read()[1] == 0 and not meter.run_delay_known


def test_a_thread_has_the_bytes_that_it_read_from_storage(tmp_path: Path) -> None:
    """A cold file counts with its size, but for a little; a warm one does not, nor one that another thread reads."""
    needs_cold_reads(tmp_path)
    size, path, meter = 4_000_000, tmp_path / "file", ThreadMeter()
    path.write_bytes(os.urandom(size))
    LinuxPageCache().evict([path])
    readings = [meter.read()]
    for _ in ("cold", "warm"):
        path.read_bytes()
        readings.append(meter.read())
    LinuxPageCache().evict([path])
    other = threading.Thread(target=path.read_bytes)
    other.start()
    other.join()
    readings.append(meter.read())
    pairs = list(pairwise(readings))
    assert all(later >= earlier for before, after in pairs for earlier, later in zip(before, after, strict=True))
    cold, warm, foreign = (after[2] - before[2] for before, after in pairs)
    assert 0.95 * size < cold < 1.25 * size
    assert max(warm, foreign) < 0.05 * size


def test_signal_names() -> None:
    """Numbers without a name stay numbers."""
    assert [process.signal_name(number) for number in (9, 250)] == ["SIGKILL", "signal 250"]


def test_a_child_dies_with_its_parent() -> None:
    """When the parent is killed the kernel kills it: its pipe closes. With the wrong parent it does not begin."""
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
    for parent, code in ((os.getpid(), 7), (-1, 1)):
        child = os.fork()
        if child == 0:
            die_with_parent(parent)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code


def test_a_child_finds_the_modules_of_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The search path is handed down, each entry whole, so that the current directory means nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/opt/modules"])
    assert child_environment()["PYTHONPATH"] == f"{tmp_path}:/opt/modules"


def test_the_environment_is_described_without_importing_torch(tmp_path: Path) -> None:
    """That takes seconds. Either GPUs are listed or the reason why not; never neither, never both."""
    found = describe_environment([tmp_path])
    assert bool(found.gpus) == (found.gpu_reason is None)
    assert [place.path for place in found.storage] == [str(tmp_path)]
    assert 0 < found.cores_available <= found.cores_total
    script = (
        "import sys\nfrom loaderprobe.system.environment import describe_environment\n"
        "describe_environment([])\nsys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


SELF, SHELL, INIT, NEIGHBOUR, RANK = os.getpid(), 40, 1, 99, 8001
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


class Machine(Processes):
    """This process and its shell, on a machine whose cores they may all use."""

    def __init__(self, proc: Path) -> None:
        super().__init__(proc)
        self.stat(idle=1000)
        (proc / "thread-self").mkdir()
        (proc / "thread-self/schedstat").write_text("5 0 1\n")
        self.begin(SELF, SHELL)
        self.begin(SHELL, INIT)

    def stat(self, busy: int = 100, steal: int = 0, idle: int = 0) -> None:
        """Since boot, of all cores together; interrupts count for none."""
        (self.proc / "stat").write_text(f"cpu  {busy - 20} 10 10 {idle} 7 50 60 {steal} 5 5\ncpu0 1 2 3 4\nintr 5\n")

    def meter(self, *roots: int) -> OthersMeter:
        found = OthersMeter(roots, self.proc)
        found.begin()
        return found


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores_total())))
    return Machine(tmp_path)


def ended(meter: OthersMeter) -> Others:
    found = meter.end()
    assert found is not None
    return found


def ticks(found: Others) -> tuple[int, int, int]:
    """Of others, own ones, and those that were stolen."""
    return found.cpu_ns // TICK_NS, found.own_cpu_ns // TICK_NS, found.steal_ns // TICK_NS


Process = tuple[int, int, tuple[int, ...]] | tuple[int, int, tuple[int, ...], int]
WORKER_WITH_CHILD: list[Process] = [(7001, SELF, (50, 0, 0, 0)), (7002, 7001, (5, 0, 0, 0))]
OTHERS: dict[str, tuple[list[Process], list[Process | int], dict[str, int], tuple[int, int, int]]] = {
    # Processes before and after (a number alone: it has ended), the machine's ticks above 100, and whose they were.
    "this one took 10 of 100, a worker 20, its child 5, the shell 3; a neighbour is not read": (
        [(7001, SELF, (0, 0, 0, 0)), (7002, 7001, (0, 0, 0, 0)), (NEIGHBOUR, SHELL, (1, 1, 0, 0))],
        [
            (SELF, SHELL, (6, 4, 0, 0)), (7001, SELF, (15, 5, 0, 0)), (7002, 7001, (5, 0, 0, 0)),
            (SHELL, INIT, (3, 0, 500, 500)), (NEIGHBOUR, SHELL, (60, 1, 0, 0)),
        ],
        {"busy": 200, "steal": 9}, (62, 38, 9),
    ),
    "the 30 ticks of a worker that ends pass to the parent that waits for it; 20 were used before": (
        [(7001, SELF, (20, 0, 0, 0))], [7001, (SELF, SHELL, (1, 0, 25, 5))], {"busy": 200}, (89, 11, 0),
    ),
    "a worker whose parent ended is still own; one that was not waited for takes nothing from the sum": (
        WORKER_WITH_CHILD, [7001, (7002, INIT, (12, 0, 0, 0))], {"busy": 200}, (93, 7, 0),
    ),
    "a number that was given again is another process": (
        WORKER_WITH_CHILD, [7001, (7002, INIT, (99, 0, 0, 0), 8)], {"busy": 200}, (100, 0, 0),
    ),
    "other ranks are own, with all that they start": (
        [(RANK, SHELL, (0, 0, 0, 0)), (8002, RANK, (0, 0, 0, 0))],
        [(RANK, SHELL, (10, 0, 0, 0)), (8002, RANK, (10, 0, 0, 0))], {"busy": 120}, (0, 20, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_the_machine_less_own_processes(machine: Machine, name: str) -> None:
    """In ticks: of others, own ones, and those that were stolen."""
    before, after, total, expected = OTHERS[name]
    for begun in before:
        machine.begin(*begun)
    meter = machine.meter(SELF, RANK)
    for process_or_end in after:
        if isinstance(process_or_end, int):
            machine.end(process_or_end)
        else:
            machine.begin(*process_or_end)
    machine.stat(**total)
    found = ended(meter)
    assert ticks(found) == expected
    assert meter.missing() == ()


def test_a_kernel_that_lists_no_children_shows_their_parents(machine: Machine) -> None:
    """CONFIG_PROC_CHILDREN may be left out."""
    machine.begin(7001, SELF)
    machine.begin(7002, 7001)
    for path in machine.proc.rglob("children"):
        path.unlink()
    meter = machine.meter()
    stat = machine.proc / "7002/stat"
    stat.write_text(stat.read_text().replace("0 0 0 0 20", "9 0 0 0 20"))
    machine.stat(busy=120)
    assert ticks(ended(meter)) == (11, 9, 0)


def test_reads_of_own_processes_are_counted_while_all_are_there(machine: Machine) -> None:
    """One that ended took its count along."""
    machine.begin(7001, SELF)
    meter, found = OthersMeter(proc=machine.proc), []
    for read in (1000, 4000, 9000):
        for pid in (7001, SELF):
            if (machine.proc / str(pid)).is_dir():
                (machine.proc / str(pid) / "io").write_text(f"rchar: 7\nread_bytes: {read}\nwrite_bytes: 3\n")
        seen = meter.end()
        found.append(seen and seen.own_read_bytes)
        meter.begin()
        if read == 4000:
            machine.end(7001)
    assert found == [None, 6000, None]


def test_only_cores_that_may_be_used_are_counted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under taskset or with a cpuset; a rank on one core has those of its launcher, whatever PYTHON_CPU_COUNT."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sysconf", {"SC_NPROCESSORS_ONLN": 8}.__getitem__)
    allowed = {SHELL: {0, 2}, INIT: set(range(8))}
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed.get(pid, {2}))
    text = "cpu  9 9 9 9 9 9 9 {0}\ncpu0 {0} 0 0 0\ncpu1 {1} 0 0 0\ncpu2 {0} 0 0 0\n"
    (machine.proc / "stat").write_text(text.format(10, 10))
    meter = machine.meter()
    (machine.proc / "stat").write_text(text.format(40, 500))
    found = ended(meter)
    assert (found.cores, ticks(found)[0]) == (2, 60)


def test_what_is_not_counted_has_a_reason(machine: Machine) -> None:
    """A sandbox that counts no CPU time, and a machine without /proc."""
    (machine.proc / "stat").write_text("cpu  0 0 0 0 0 0 0 0\n")
    meter = machine.meter()
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
    assert ended(meter).own_cpu_ns >= (0.6 if wait else 0.3) * 1e9 - 4 * TICK_NS

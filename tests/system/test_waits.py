"""What threads wait for: in a /proc that is written out, in real children, and by the process that looks at them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import MagicMock, Mock

import pytest

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WAIT_KINDS, WaitKind, WaitSamples
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import CoresSampler, DiskSampler, SamplerThread
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.system import waits
from loaderprobe.system.process import read_process
from loaderprobe.system.waits import (
    MOST_SUBJECTS,
    ROUNDS,
    RoundWriter,
    TableBudget,
    ThreadFiles,
    ThreadGone,
    ThreadWatcher,
    Wait,
    WatchedProcess,
    peer,
    read_rounds,
    watch,
)
from loaderprobe.testing import FakeClock
from tests.said import all_said
from tests.system.fake_kernel import PID, Processes, pollfds

FILE, PIPE, PEER, LISTENING, EVENT, TIMER, DEVICE, LOCAL, EPOLL = range(3, 12)
BETWEEN_PROCESSES, BETWEEN_THREADS = 0, 128
AT_CWD, NONE = 0xFFFFFF9C, -1
IMAGE, REMOTE = "/data/a.jpg", "10.0.0.5:443"


@pytest.fixture
def threads(tmp_path: Path) -> Processes:
    """One process with a descriptor of every kind."""
    fake = Processes(tmp_path / "proc")
    fake.begin()
    fake.runs()
    links = [IMAGE, "pipe:[1]", "socket:[77]", "socket:[78]", "anon_inode:[eventfd]", "anon_inode:[timerfd]"]
    for number, link in enumerate([*links, "/dev/nvidia0", "socket:[79]"], start=FILE):
        fake.opens(number, link)
    row = "   0: 0100007F:0001 {} {} 0:0 00:0 0 1000 0 {} 1\n"
    fake.write("net/tcp", row.format("0500000A:01BB", "01", 77) + row.format("00000000:0000", "0A", 78))
    fake.write("net/unix", "0000: 00000003 00000000 00000000 0001 03 79\n")
    return fake


@pytest.fixture
def watched(threads: Processes) -> Iterator[WatchedProcess]:
    # Reading a table costs nothing here, so that it may be read for each socket.
    process = WatchedProcess(PID, proc=threads.proc, machine="x86_64", budget=TableBudget(cpu_ns=lambda: 0))
    yield process
    process.close()


def seen(watched: WatchedProcess) -> tuple[WaitKind, str | None]:
    return watched.look(PID)[:2]


class Call(NamedTuple):
    """A thread in a system call, what the process remembers, and what the thread waits for."""

    call: str | int | None
    """None: a page fault."""
    arguments: tuple[int, ...]
    kind: WaitKind
    subject: str | None = None
    letter: str = "S"
    channel: str = "0"
    memory: bytes | None = None


CHANNELS: dict[str, WaitKind] = {
    "rpc_wait_bit_killable": "storage", "futex_wait_queue": "lock", "locks_lock_inode_wait": "lock",
    "anon_pipe_read": "pipe", "wait_woken": "network", "shrink_lruvec": "memory", "do_poll": "other",
}  # fmt: skip
CALLS = [
    # What is behind a descriptor: files are storage with their path, sockets network with their peer.
    Call("read", (FILE,), "storage", IMAGE),
    Call("read", (PIPE,), "pipe"),
    Call("read", (PEER,), "network", REMOTE),
    Call("read", (LISTENING,), "other", "connections from outside"),
    Call("read", (EVENT,), "lock"),
    Call("read", (TIMER,), "sleep"),
    Call("read", (DEVICE,), "other", "/dev/nvidia0"),
    Call("read", (LOCAL,), "pipe"),
    Call("read", (99,), "other", "read"),
    # A file that is sent to a socket is read: sendfile waits for its second descriptor.
    Call("sendfile", (PEER, FILE), "storage", IMAGE, "D"),
    # Opening waits in D on disks, in S on FUSE; listing is about a descriptor; a named pipe is no file.
    Call("openat", (AT_CWD, 0), "metadata", "/data/b.jpg", "D", "io_schedule", b"/data/b.jpg\0rest"),
    Call("openat", (AT_CWD, 0), "metadata", "/data/b.jpg", "S", "request_wait_answer", b"/data/b.jpg\0rest"),
    Call("openat", (AT_CWD, 0), "pipe", "/data/b.jpg", "S", "wait_for_partner", b"/data/b.jpg\0rest"),
    Call("getdents64", (FILE,), "metadata", IMAGE, "D"),
    # Metadata stays metadata when the process's memory is closed to us.
    Call("openat", (AT_CWD, 0), "metadata", "openat", "D"),
    Call("nanosleep", (), "sleep"),
    Call("futex", (), "lock"),
    Call("flock", (FILE,), "lock", IMAGE),
    Call("fcntl", (FILE, 7), "lock", IMAGE),
    Call("fcntl", (FILE, 1), "storage", IMAGE),
    Call("io_uring_enter", (EPOLL,), "storage"),
    Call("wait4", (), "pipe", "a child process"),
    # An unknown call is known by its number; by the kernel function; or by the letter.
    Call(9999, (), "other", "system call 9999"),
    Call(9999, (), "storage", "system call 9999", "D", "folio_wait_bit_common"),
    Call(9999, (), "uninterruptible", "system call 9999", "D", "something_new"),
    # The network counts first; a server's connections do not; polling nothing is sleeping.
    Call("poll", (0, 0), "sleep", memory=b""),
    Call("poll", (0, 1), "sleep", memory=pollfds(NONE)),
    Call("poll", (0, 1), "pipe", memory=pollfds(PIPE)),
    Call("poll", (0, 2), "network", REMOTE, memory=pollfds(PIPE, PEER)),
    Call("poll", (0, 1), "lock", memory=pollfds(EVENT)),
    Call("poll", (0, 1), "sleep", memory=pollfds(TIMER)),
    Call("poll", (0, 2), "other", "connections from outside", memory=pollfds(LISTENING, PEER)),
    Call("poll", (0, 2), "other", "/dev/nvidia0", memory=pollfds(DEVICE, PIPE)),
    Call("poll", (0, 1), "other", "poll"),
    # The sets of select are bits; a set may be absent, and bits beyond the count mean nothing.
    Call("select", (PEER + 1, 8), "network", REMOTE, memory=bytes(8) + (1 << PEER).to_bytes(8, "little")),
    Call("select", (PEER, 8), "sleep", memory=bytes(8) + (1 << PEER).to_bytes(8, "little")),
    *(
        # A read or an open inside memory reclaim waits for memory.
        Call(call, (FILE,), "memory", subject, "D", channel)
        for call, subject in (("read", IMAGE), ("openat", None))
        for channel in ("shrink_node", "balance_dirty_pages", "mem_cgroup_handle_over_high")
    ),
    *(
        # Functions met on real kernels, of which some say nothing of what is waited for.
        Call(9999, (), kind, "system call 9999", channel=channel)
        for channel, kind in CHANNELS.items()
    ),
    # Outside system calls D is a page of a mapped file, or the lock on the process's memory; T is neither.
    Call(None, (), "storage", None, "D", "folio_wait_bit_common"),
    Call(None, (), "lock", None, "D", "rwsem_down_read_slowpath"),
    Call(None, (), "memory", None, "D", "shrink_node"),
    Call(None, (), "other", "do_signal_stop", "T", "do_signal_stop"),
    # The first reading decides, or short waits would count too little: a page came meanwhile.
    Call(None, (), "storage", None, "R", "0"),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.call}-{call.kind}")
def test_a_thread_waits_for(threads: Processes, watched: WatchedProcess, call: Call) -> None:
    """Known by the call, what its arguments are about, and the function of the kernel."""
    assert seen(watched) == ("running", None)
    if call.memory is not None:
        threads.write("mem", call.memory)
    if call.call is None:
        threads.faults(call.channel, call.letter)
    else:
        threads.waits(call.call, *call.arguments, letter=call.letter, channel=call.channel)
    assert seen(watched) == (call.kind, call.subject)


def test_epoll(threads: Processes, watched: WatchedProcess) -> None:
    """What an epoll watches is in fdinfo; one that only its own threads wake waits for its timer."""
    for number, timeout, expected in (
        (PEER, 0xFFFFFFFF, ("network", REMOTE)),
        (LOCAL, 500, ("sleep", None)),
        (LOCAL, 0xFFFFFFFFFFFFFFFF, ("pipe", "a socket of this machine")),
    ):
        threads.write(f"fdinfo/{EPOLL}", f"pos:\t0\nflags:\t02\ntfd: {number:8} events:       19 data: 5\n")
        threads.waits("epoll_wait", EPOLL, 0, 1, timeout)
        assert seen(watched) == expected


def test_who_waits_for_threads_does_what_they_do(threads: Processes, watched: WatchedProcess) -> None:
    """Storage before running, that before an idle connection, and a nap last, which holds no lock between processes;
    futex and threads that are gone count for nothing. What a child does counts where a thread waits for one."""
    threads.begin(50, parent=PID)
    threads.write("../50/task/50/syscall", "running")
    threads.waits("flock", FILE)
    assert seen(watched) == ("lock", IMAGE)
    threads.waits("futex", 0, BETWEEN_PROCESSES)
    threads.waits("futex", tid=43)
    assert seen(watched) == ("lock", None)
    threads.waits("nanosleep", tid=47)
    assert seen(watched) == ("lock", None)
    threads.waits("futex", 0, BETWEEN_THREADS)
    assert seen(watched) == ("sleep", None)
    threads.waits("read", PEER, tid=44)
    assert seen(watched) == ("network", REMOTE)
    threads.waits("wait4", tid=48)
    assert seen(watched) == ("running", "a child process")
    threads.end(50)
    assert seen(watched) == ("network", REMOTE)
    threads.runs(tid=45)
    assert seen(watched) == ("running", None)
    threads.faults(tid=46)
    assert seen(watched) == ("storage", None)
    threads.leaves(tid=46)
    assert seen(watched) == ("running", None)
    threads.waits("read", PIPE)
    assert seen(watched) == ("pipe", None)


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES])
def test_refused_system_calls_leave_the_letter(
    threads: Processes, watched: WatchedProcess, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Without the call there are the letter and the kernel function, and the reason why; once seen again, none."""
    read = ThreadFiles.read

    def refuse(self: ThreadFiles, name: str) -> bytes:
        if name == "syscall":
            raise OSError(error, "refused")
        return read(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(ThreadFiles, "read", refuse)
        patch.setattr(waits, "yama_scope", lambda: 2)
        for letter, channel, kind in (
            ("D", "0", "uninterruptible"),
            ("S", "hrtimer_nanosleep", "sleep"),
            ("R", "0", "running"),
        ):
            threads.hide(letter, channel)
            assert seen(watched)[0] == kind
        assert watched.letters_only == Remark(code="ptrace_scope", facts={"scope": 2})
    threads.hide("S")
    assert seen(watched)[0] == "other" and watched.letters_only == Remark(code="no_syscall_file")
    threads.waits("nanosleep")
    assert seen(watched)[0] == "sleep" and watched.letters_only is None


def test_other_machines_have_letters_and_functions(threads: Processes) -> None:
    """Numbers of system calls differ between machines: those of an unknown one are not guessed."""
    watched = WatchedProcess(PID, proc=threads.proc, machine="riscv64")
    threads.waits("read", FILE, letter="D")
    assert watched.look(PID).kind == "uninterruptible"
    assert watched.letters_only == Remark(code="calls_unknown", facts={"machine": "riscv64"})
    watched.close()


def test_a_thread_that_ended_is_gone(threads: Processes, watched: WatchedProcess) -> None:
    """Neither a thread that left nor a zombie is waiting for anything, nor a process that never was."""
    threads.faults(letter="Z")
    with pytest.raises(ThreadGone):
        watched.look(PID)
    threads.leaves()
    with pytest.raises(ThreadGone):
        watched.look(PID)
    with pytest.raises(ThreadGone):
        WatchedProcess(PID + 1, proc=threads.proc)


def test_a_number_used_again_is_not_the_process(threads: Processes, watched: WatchedProcess) -> None:
    """By its start time; and open descriptors stay with the process that was meant."""
    with pytest.raises(ThreadGone):
        WatchedProcess(PID, started=999, proc=threads.proc)
    WatchedProcess(PID, started=1000, proc=threads.proc).close()
    threads.waits("nanosleep")
    (threads.proc / str(PID)).rename(threads.proc / "old")
    threads.begin(start=2000)
    threads.runs()
    assert seen(watched)[0] == "sleep"


def test_both_machines_have_what_loaders_wait_in() -> None:
    """A call that is missing on one machine has a newer name there."""
    groups = {"descriptor", "second", "path", "futex", "lock", "fcntl", "sleep", "poll", "select", "epoll", "ring"}
    for machine in ("x86_64", "aarch64"):
        assert {call.group for call in (waits.calls_of(machine) or {}).values()} == groups | {"child"}


def test_peers_are_written_as_addresses() -> None:
    """IPv4, IPv6, and IPv4 through IPv6; no port, no peer."""
    assert peer(b"0100007F:1F90") == "127.0.0.1:8080"
    assert peer(b"00000000000000000000000001000000:0050") == "[::1]:80"
    assert peer(b"0000000000000000FFFF00000500000A:01BB") == REMOTE
    assert peer(b"00000000:0000") is None


def test_tables_of_connections_are_read_seldom() -> None:
    """A table that took 1 ms is not read again for 1 s."""
    now, cpu = [0], iter((0, 1_000_000, 1_000_000, 2_000_000))
    budget = TableBudget(now_ns=lambda: now[0], cpu_ns=lambda: next(cpu))
    found = waits.Descriptor("network", REMOTE)
    assert budget.spend(lambda: found) == found
    now[0] = 999_999_999
    assert budget.spend(lambda: found) is None
    now[0] = 1_000_000_000
    assert budget.spend(lambda: found) == found


DEADLINE_S = 60.0
CONNECT = (
    "import select, socket, sys\n"
    "link = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
    "loop = select.epoll(); loop.register(link, select.EPOLLIN)\n"
)
RUN = "import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {code!r}])"
COMMUNICATE = RUN.replace("{code!r}]", "{code!r}], capture_output=True")
POOLED = f"from concurrent.futures import ThreadPoolExecutor as P\ndef run():\n  {RUN}\nP().submit(run).result()"
BURN = "import threading\ndef burn():\n  while True: pass\nt = threading.Thread(target=burn); t.start(); t.join()"


@pytest.fixture
def blocked() -> Iterator[Callable[..., int]]:
    """Starts a Python that runs `code`, and gives its number."""
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str, *arguments: object) -> int:
        command = [sys.executable, "-I", "-c", code, *map(str, arguments)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0))
        return children[-1].pid

    yield start
    for child in children:
        os.killpg(child.pid, signal.SIGKILL)  # with the commands that it runs
        child.communicate()


def comes(pid: int, kind: str, subject: str | None = None) -> bool:
    """True as soon as the process is seen waiting so."""
    watched, end = WatchedProcess(pid), time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < end:
            found = watched.look(pid)
            if found.kind == kind and (subject is None or found.subject == subject):
                return True
            os.sched_yield()
        return False
    finally:
        watched.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import select, sys; select.select([sys.stdin], [], [])", "pipe"),
        ("import time; time.sleep(1000)", "sleep"),
        ("import asyncio; asyncio.run(asyncio.sleep(1000))", "sleep"),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "lock"),
        (BURN, "running"),
        # Who waits for a command that it runs does what that does.
        *((way.format(code="while True: pass"), "running") for way in (RUN, COMMUNICATE, POOLED)),
        (RUN.format(code="import time; time.sleep(1000)"), "sleep"),
        (RUN.format(code="import sys; sys.stdin.read()"), "pipe"),
    ],
)
def test_a_real_process_is_seen_waiting(blocked: Callable[..., int], code: str, kind: str) -> None:
    """A process truly blocked shows what it waits for."""
    assert comes(blocked(code), kind)


@pytest.mark.parametrize("wait", ["link.recv(1)", "link.settimeout(1e6); link.recv(1)", "loop.poll()"])
def test_a_real_socket_has_its_peer(blocked: Callable[..., int], wait: str) -> None:
    """Blocked on a connection without data, by recv, poll or epoll, a process waits for the network."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pid = blocked(CONNECT + wait, port)
        with server.accept()[0]:
            assert comes(pid, "network", f"127.0.0.1:{port}")


def test_a_real_file_lock_has_its_file(blocked: Callable[..., int], tmp_path: Path) -> None:
    """Held by another process; one that ended, a zombie, is gone. Leave to be read is harmless without Yama."""
    path = tmp_path / "lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)"
        assert comes(blocked(code, path), "lock", str(path))
    with pytest.raises(ThreadGone):
        comes(blocked("pass"), "storage without end")
    waits.let_be_read_by(os.getppid())
    waits.let_be_read_by(0)


FAST_HZ = 500.0


HIDDEN = Remark(code="ptrace_scope", facts={"scope": 2})


def _until(sampler: WaitsSampler, found: Callable[[WaitSamples], bool]) -> WaitSamples:
    """The samples as soon as they are as wanted."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        samples = sampler.samples()
        assert isinstance(samples, WaitSamples), samples
        if found(samples):
            return samples
        os.sched_yield()
    pytest.fail("not seen in time")


def _kinds(samples: WaitSamples) -> set[tuple[int, str]]:
    return {(worker, WAIT_KINDS[kind]) for worker, kind in zip(samples.worker, samples.kind, strict=True)}


def test_workers_are_seen_while_they_wait(tmp_path: Path, blocked: Callable[..., int]) -> None:
    """Those that come later, too; samples stay after the sampler, whose process is reaped."""
    before = time.perf_counter_ns()
    workers = [(os.getpid(), threading.get_native_id())]
    with WaitsSampler(lambda: workers, tmp_path, rate_hz=FAST_HZ) as sampler:
        process = sampler._process
        assert process is not None and process.poll() is None
        assert all(worker == 0 for worker, _ in _kinds(_until(sampler, lambda _: True)))
        sleeper = blocked("import time; time.sleep(1000)")
        workers.append((sleeper, sleeper))
        sampler.follow_threads()
        samples = _until(sampler, lambda seen: {(0, "running"), (1, "sleep")} <= _kinds(seen))
        os.kill(sleeper, signal.SIGKILL)
        count = len(_until(sampler, lambda _: True).worker)
        _until(sampler, lambda seen: len(seen.worker) > count + 10)
    assert process.returncode is not None
    after = sampler.samples()
    assert isinstance(after, WaitSamples) and after.time_ns[: len(samples.time_ns)] == samples.time_ns
    assert list(after.time_ns) == sorted(after.time_ns) and set(after.worker[-5:]) == {0}
    assert before < after.time_ns[0] and after.time_ns[-1] < time.perf_counter_ns()
    assert after.cpu_ns > 0 and after.wall_ns > 0 and after.letters_only is None


PYTHON = [sys.executable, "-I", "-c"]


@pytest.mark.parametrize(
    ("command", "code", "how"),
    [
        (["/no/such/program"], "waits_not_startable", None),
        ([*PYTHON, "raise ValueError('broken')"], "waits_ended", "ValueError: broken"),
        ([*PYTHON, "import os; os.kill(os.getpid(), 9)"], "waits_ended", "SIGKILL"),
        ([*PYTHON, "import sys; sys.exit(3)"], "waits_ended", "exit code 3"),
    ],
)
def test_a_process_that_fails_is_a_reason(tmp_path: Path, command: list[str], code: str, how: str | None) -> None:
    """It cannot start, or the reason holds the last line that it wrote, or how it ended; it stays."""
    with WaitsSampler(lambda: [], tmp_path, command=lambda folder, rate_hz: command) as sampler:
        found = sampler.samples()
    assert isinstance(found, Missing) and (found.name, found.reason.code) == ("waits", code)
    assert how is None or found.reason.facts == {"how": how}
    assert sampler.samples() == found


def test_it_ends_with_its_orders(tmp_path: Path) -> None:
    """A process whose parent closes its input has nothing left to do."""
    read, write = os.pipe()
    own = read_process(os.getpid())
    word = f"{os.getpid()},{os.getpid()},{own.start if own else 0}"
    os.write(write, f"{word}\n{word} -\n".encode())
    os.close(write)
    watch(ThreadWatcher(RoundWriter(tmp_path)), read, 1e6)
    os.close(read)


def test_the_process_imports_no_libraries() -> None:
    """It starts in a tenth of a second since it needs nothing but the standard library."""
    code = "import sys, loaderprobe.system.waits; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "msgspec", "psutil"} & set(done.stdout.split())


def test_processes_that_stay_are_not_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another order keeps the descriptors of workers that it names again, and gives back the others'."""
    closed: list[int] = []
    look = Mock(side_effect=ThreadGone)
    opened = Mock(side_effect=lambda pid, **_: SimpleNamespace(close=lambda: closed.append(pid), look=look))
    monkeypatch.setattr("loaderprobe.system.waits.WatchedProcess", opened)
    watcher = ThreadWatcher(RoundWriter(tmp_path))
    watcher.follow("1,1,5 2,2,5")
    watcher.follow("3,3,5 - 1,1,5")
    assert ([call.args[0] for call in opened.mock_calls], closed) == ([1, 2, 3], [2])
    watcher.look()
    watcher.look()
    assert closed == [2, 3, 1]


def test_rounds_come_back_as_written(tmp_path: Path) -> None:
    """Subjects are shared; names that are no text are escaped; own time begins with the first round."""
    rounds = RoundWriter(tmp_path)
    rounds.end_round(1000, 50, None)
    rounds.add(1100, 0, Wait("storage", "/data/\udcff.jpg"))
    rounds.add(1110, 1, Wait("network"))
    rounds.end_round(1120, 80, HIDDEN)
    rounds.add(1200, 0, Wait("storage", "/data/\udcff.jpg"))
    rounds.end_round(1220, 90, HIDDEN)
    assert read_rounds(tmp_path) == WaitSamples(
        time_ns=(1100, 1110, 1200), worker=(0, 1, 0),
        kind=tuple(WAIT_KINDS.index(kind) for kind in ("storage", "network", "storage")), subject=(0, -1, 0),
        subjects=("/data/\\udcff.jpg",), letters_only=HIDDEN, cpu_ns=40, wall_ns=220,
    )  # fmt: skip


def test_half_a_round_is_not_read(tmp_path: Path) -> None:
    """What is being written counts when it is whole; after one that a full disk cut short, names would be others.

    Leave that a worker gives after its first looks is enough.
    """
    rounds = RoundWriter(tmp_path)
    rounds.end_round(0, 0, HIDDEN)
    rounds.add(5, 0, Wait("sleep"))
    rounds.end_round(6, 0, None)
    with (tmp_path / ROUNDS).open("ab") as file:
        file.write(b"[[[7, 0, 0, -1]], []")
    samples = read_rounds(tmp_path)
    assert samples.time_ns == (5,) and samples.letters_only is None
    with (tmp_path / ROUNDS).open("ab") as file:
        file.write(b"\n")
    rounds.add(8, 0, Wait("sleep"))
    rounds.end_round(9, 0, None)
    assert read_rounds(tmp_path).time_ns == (5,)


def test_subjects_are_bounded(tmp_path: Path) -> None:
    """A million images must not be a million names."""
    rounds = RoundWriter(tmp_path)
    for number in range(MOST_SUBJECTS + 5):
        rounds.add(number, 0, Wait("storage", f"/data/{number}.jpg"))
    rounds.end_round(0, 0, None)
    samples = read_rounds(tmp_path)
    assert len(samples.subjects) == MOST_SUBJECTS and samples.subject[-5:] == (-1,) * 5


def test_a_process_that_ends_later_is_a_reason(tmp_path: Path) -> None:
    """Samples of a part of the measurement are none; nor are there any before it is entered."""
    sampler = WaitsSampler(lambda: [], tmp_path)
    assert isinstance(sampler.samples(), Missing)
    with sampler:
        process = sampler._process
        assert process is not None
        process.kill()
        process.wait()
        reason = sampler.samples()
        sampler.follow_threads()
    assert isinstance(reason, Missing) and reason.reason.facts == {"how": "SIGKILL"}


def test_disk_readings_are_stamped() -> None:
    """Each has the time of the clock at which it was taken; without a device there is a reason, and no series."""
    clock, counts = FakeClock(), iter((100, 700))
    sampler = DiskSampler(clock, ("vda",), lambda _: next(counts))
    sampler.sample()
    clock.sleep(0.5)
    sampler.sample()
    (series,) = sampler.series()
    assert isinstance(series, Series)
    assert (series.name, series.unit, series.source) == ("disk_read", "bytes", "/proc/diskstats")
    assert series.values == (100, 700) and series.time_ns[1] - series.time_ns[0] == 500_000_000
    without = DiskSampler(FakeClock(), (), lambda _: None)
    without.sample()
    (missing,) = without.series()
    assert isinstance(missing, Missing) and missing.name == "disk_read" and missing.reason


def test_a_share_is_between_readings() -> None:
    """Of what this process takes of two cores; the first has nothing to compare with."""
    clock = FakeClock()
    own = CoresSampler(clock, cores=2)
    for work_s, sleep_s in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)):
        clock.work(work_s)
        clock.sleep(sleep_s)
        own.sample()
    (series,) = own.series()
    assert isinstance(series, Series) and (series.name, series.values) == ("own_cpu", (0.5, 0.0))


def sampler(sample: Callable[[], None]) -> MagicMock:
    """A sampler that runs what it is given."""
    return MagicMock(sample=sample, series=lambda: ())


def test_a_sampler_that_raises_is_missing_and_the_others_go_on() -> None:
    """An exception in one sampler becomes a Missing with its text, and is not repeated."""
    broken, reading = Mock(side_effect=ValueError("broken counter")), Mock()
    thread = SamplerThread([sampler(broken), sampler(reading)])
    thread.sample_all()
    thread.sample_all()
    series, missing = thread.collected()
    assert series == [] and reading.call_count == 2
    assert all_said([item.reason for item in missing]) == ["MagicMock stopped: ValueError: broken counter"]


def test_the_thread_samples_at_least_once_and_ends() -> None:
    """However short the measurement, there is a reading; every quantity of the product is read or has a reason."""
    reading = Mock()
    with SamplerThread([sampler(reading)], period_s=3600):
        pass
    assert reading.called
    with SamplerThread([DiskSampler(FakeClock(), ()), NvmlSampler(FakeClock(), None)]) as thread:
        pass
    series, missing = thread.collected()
    names = {item.name for item in series} | {item.name for item in missing}
    assert {"disk_read", "gpu_utilization"} <= names

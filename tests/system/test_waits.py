"""What threads wait for, in a /proc that is written out."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WaitKind
from loaderprobe.system import waits
from loaderprobe.system.waits import TableBudget, ThreadFiles, ThreadGone, WatchedProcess, start_ticks
from tests.system.fake_threads import PID, FakeThreads, pollfds

FILE, PIPE, PEER, LISTENING, EVENT, TIMER, DEVICE, LOCAL = 3, 4, 5, 6, 7, 8, 9, 10


@pytest.fixture
def threads(tmp_path: Path) -> FakeThreads:
    """One process with a descriptor of every kind."""
    fake = FakeThreads(tmp_path / "proc")
    fake.begin()
    for number, link in (
        (FILE, "/data/a.jpg"), (PIPE, "pipe:[1]"), (PEER, "socket:[77]"), (LISTENING, "socket:[78]"),
        (EVENT, "anon_inode:[eventfd]"), (TIMER, "anon_inode:[timerfd]"), (DEVICE, "/dev/nvidia0"),
        (LOCAL, "socket:[79]"),
    ):  # fmt: skip
        fake.opens(number, link)
    fake.connects(77, "0500000A:01BB")
    fake.connects(78, "00000000:0000", state="0A")
    (fake.proc / str(PID) / "net/unix").write_text("0000: 00000003 00000000 00000000 0001 03 79\n")
    return fake


@pytest.fixture
def watched(threads: FakeThreads) -> Iterator[WatchedProcess]:
    # Reading a table costs nothing here, so that it may be read for each socket.
    process = WatchedProcess(PID, proc=threads.proc, machine="x86_64", budget=TableBudget(cpu_ns=lambda: 0))
    yield process
    process.close()


def _seen(watched: WatchedProcess) -> tuple[WaitKind, str | None]:
    return watched.look(PID)[:2]


def test_a_thread_that_runs_is_running(threads: FakeThreads, watched: WatchedProcess) -> None:
    """A thread on a core, or in the queue for one, is running."""
    assert _seen(watched) == ("running", None)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (FILE, ("storage", "/data/a.jpg")), (PIPE, ("pipe", None)), (PEER, ("network", "10.0.0.5:443")),
        (LISTENING, ("other", "connections from outside")), (EVENT, ("lock", None)), (TIMER, ("sleep", None)),
        (DEVICE, ("other", "/dev/nvidia0")), (LOCAL, ("pipe", None)), (99, ("other", "read")),
    ],
)  # fmt: skip
def test_a_read_waits_for_what_is_behind_its_descriptor(
    threads: FakeThreads, watched: WatchedProcess, number: int, expected: tuple[str, str | None]
) -> None:
    """Files are storage with their path, sockets network with their peer, pipes other processes."""
    threads.waits("read", number)
    assert _seen(watched) == expected


def test_a_file_sent_to_a_socket_is_read(threads: FakeThreads, watched: WatchedProcess) -> None:
    """sendfile waits for its second descriptor."""
    threads.waits("sendfile", PEER, FILE, letter="D")
    assert _seen(watched) == ("storage", "/data/a.jpg")


@pytest.mark.parametrize("channel", ["shrink_node", "balance_dirty_pages", "mem_cgroup_handle_over_high"])
def test_memory_comes_before_storage(threads: FakeThreads, watched: WatchedProcess, channel: str) -> None:
    """A read, an open or a page fault inside memory reclaim waits for memory."""
    threads.waits("read", FILE, letter="D", channel=channel)
    assert _seen(watched)[0] == "memory"
    threads.waits("openat", letter="D", channel=channel)
    assert _seen(watched)[0] == "memory"
    threads.faults(channel)
    assert _seen(watched)[0] == "memory"


def test_page_faults(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Outside system calls D is a page of a mapped file, or the lock on the process's memory; T is neither."""
    threads.faults()
    assert _seen(watched) == ("storage", None)
    threads.faults(channel="rwsem_down_read_slowpath")
    assert _seen(watched)[0] == "lock"
    threads.faults(letter="T", channel="do_signal_stop")
    assert _seen(watched) == ("other", "do_signal_stop")


def test_a_page_that_came_meanwhile_was_waited_for(threads: FakeThreads, watched: WatchedProcess) -> None:
    """The first reading decides, or short waits would count too little."""
    threads.faults(letter="R", channel="0")
    assert _seen(watched)[0] == "storage"


def test_metadata_has_its_path(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Opening waits in D on disks, in S on FUSE; listing is about a descriptor; a named pipe is no file."""
    threads.remembers(b"/data/b.jpg\0rest")
    threads.waits("openat", 0xFFFFFF9C, 0, letter="D", channel="io_schedule")
    assert _seen(watched) == ("metadata", "/data/b.jpg")
    threads.waits("openat", 0xFFFFFF9C, 0, channel="request_wait_answer")
    assert _seen(watched) == ("metadata", "/data/b.jpg")
    threads.waits("openat", 0xFFFFFF9C, 0, channel="wait_for_partner")
    assert _seen(watched) == ("pipe", "/data/b.jpg")
    threads.waits("getdents64", FILE, letter="D")
    assert _seen(watched) == ("metadata", "/data/a.jpg")


def test_an_unreadable_path_leaves_the_call(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Metadata stays metadata when the process's memory is closed to us."""
    threads.waits("openat", 0xFFFFFF9C, 0, letter="D")
    assert _seen(watched) == ("metadata", "openat")


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("nanosleep", (), ("sleep", None)), ("futex", (), ("lock", None)), ("flock", (FILE,), ("lock", "/data/a.jpg")),
        ("fcntl", (FILE, 7), ("lock", "/data/a.jpg")), ("fcntl", (FILE, 1), ("storage", "/data/a.jpg")),
        ("io_uring_enter", (11,), ("storage", None)), ("wait4", (), ("pipe", "a child process")),
        (9999, (), ("other", "system call 9999")),
    ],
)  # fmt: skip
def test_other_calls(
    threads: FakeThreads, watched: WatchedProcess, call: str | int, arguments: tuple[int, ...], expected: object
) -> None:
    """Sleeping, locks, rings and children are known by the call; an unknown call by its number."""
    threads.waits(call, *arguments)
    assert _seen(watched) == expected


def test_an_unknown_call_is_known_by_the_kernel_function(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Where the number means nothing, wchan may; where that does not, the letter."""
    threads.waits(9999, letter="D", channel="folio_wait_bit_common")
    assert _seen(watched)[0] == "storage"
    threads.waits(9999, letter="D", channel="something_new")
    assert _seen(watched)[0] == "uninterruptible"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((), ("sleep", None)), ((-1 & 0xFFFFFFFF,), ("sleep", None)), ((PIPE,), ("pipe", None)),
        ((PIPE, PEER), ("network", "10.0.0.5:443")), ((EVENT,), ("lock", None)), ((TIMER,), ("sleep", None)),
        ((LISTENING, PEER), ("other", "connections from outside")), ((DEVICE, PIPE), ("other", "/dev/nvidia0")),
    ],
)  # fmt: skip
def test_polling(
    threads: FakeThreads, watched: WatchedProcess, numbers: tuple[int, ...], expected: tuple[str, str | None]
) -> None:
    """The network counts first; a server's connections do not; polling nothing is sleeping."""
    threads.remembers(pollfds(*(number - (1 << 32) if number > 1 << 31 else number for number in numbers)))
    threads.waits("poll", 0, len(numbers))
    assert _seen(watched) == expected


def test_polling_unseen(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Without the process's memory it is not known what is polled."""
    threads.waits("poll", 0, 1)
    assert _seen(watched) == ("other", "poll")


def test_selecting(threads: FakeThreads, watched: WatchedProcess) -> None:
    """The sets of select are bits; a set may be absent, and bits beyond the count mean nothing."""
    threads.remembers(bytes(8) + (1 << PEER).to_bytes(8, "little"))
    threads.waits("select", PEER + 1, 8)
    assert _seen(watched) == ("network", "10.0.0.5:443")
    threads.waits("select", PEER, 8)
    assert _seen(watched)[0] == "sleep"


def test_epoll(threads: FakeThreads, watched: WatchedProcess) -> None:
    """What an epoll watches is in fdinfo; one that only its own threads wake waits for its timer."""
    info = threads.proc / str(PID) / "fdinfo" / "11"
    info.write_text(f"pos:\t0\nflags:\t02\ntfd: {PEER:8} events:       19 data: 5\n")
    threads.waits("epoll_wait", 11, 0, 1, 0xFFFFFFFF)
    assert _seen(watched) == ("network", "10.0.0.5:443")
    info.write_text(f"tfd: {LOCAL:8} events:       19 data: 5\n")
    threads.waits("epoll_wait", 11, 0, 1, 500)
    assert _seen(watched)[0] == "sleep"
    threads.waits("epoll_wait", 11, 0, 1, 0xFFFFFFFFFFFFFFFF)
    assert _seen(watched)[0] == "pipe"


def test_who_waits_for_threads_does_what_they_do(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Storage counts before running, and that before an idle connection; threads in futex count for nothing."""
    threads.waits("futex")
    threads.waits("futex", tid=43)
    assert _seen(watched) == ("lock", None)
    threads.waits("read", PEER, tid=44)
    assert _seen(watched) == ("network", "10.0.0.5:443")
    threads.runs(tid=45)
    assert _seen(watched) == ("running", None)
    threads.faults(tid=46)
    assert _seen(watched) == ("storage", None)


def test_threads_that_ended_count_no_more(threads: FakeThreads, watched: WatchedProcess) -> None:
    """A thread that has gone is forgotten."""
    threads.waits("futex")
    threads.faults(tid=46)
    assert _seen(watched)[0] == "storage"
    threads.ends(tid=46)
    assert _seen(watched)[0] == "lock"


def test_who_waits_for_no_thread_is_not_mixed_up_with_them(threads: FakeThreads, watched: WatchedProcess) -> None:
    """A worker that reads waits for its read, whatever its other threads do."""
    threads.waits("read", PEER)
    threads.faults(tid=46)
    assert _seen(watched)[0] == "network"


@pytest.mark.parametrize("error", [errno.EPERM, errno.EACCES])
def test_refused_system_calls_leave_the_letter(
    threads: FakeThreads, watched: WatchedProcess, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """Without the call there are the letter and the kernel function, and the reason why; once seen again, none."""
    threads.hide("D")
    read = ThreadFiles.read

    def refuse(self: ThreadFiles, name: str) -> bytes:
        if name == "syscall":
            raise OSError(error, "refused")
        return read(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(ThreadFiles, "read", refuse)
        patch.setattr(waits, "yama_scope", lambda: 2)
        assert _seen(watched) == ("uninterruptible", None)
        threads.hide("S", channel="hrtimer_nanosleep")
        assert _seen(watched)[0] == "sleep"
        threads.hide("R")
        assert _seen(watched)[0] == "running"
        assert watched.letters_only == Remark(code="ptrace_scope", facts={"scope": 2})
    threads.waits("nanosleep")
    assert _seen(watched)[0] == "sleep" and watched.letters_only is None


def test_a_kernel_without_system_calls_in_proc(threads: FakeThreads, watched: WatchedProcess) -> None:
    """A thread that is there without that file shows its letter."""
    threads.hide("S")
    assert _seen(watched)[0] == "other" and watched.letters_only == Remark(code="no_syscall_file")


def test_other_machines_have_letters_and_functions(threads: FakeThreads) -> None:
    """Numbers of system calls differ between machines: those of an unknown one are not guessed."""
    watched = WatchedProcess(PID, proc=threads.proc, machine="riscv64")
    threads.waits("read", FILE, letter="D")
    assert watched.look(PID).kind == "uninterruptible"
    assert watched.letters_only == Remark(code="calls_unknown", facts={"machine": "riscv64"})
    watched.close()


def test_a_thread_that_ended_is_gone(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Neither a thread that left nor a zombie is waiting for anything."""
    threads.faults(letter="Z")
    with pytest.raises(ThreadGone):
        watched.look(PID)
    threads.ends()
    with pytest.raises(ThreadGone):
        watched.look(PID)


def test_a_number_used_again_is_not_the_process(threads: FakeThreads) -> None:
    """With its start time a process is not mistaken for a later one of the same number."""
    assert start_ticks(PID, threads.proc) == 1000
    with pytest.raises(ThreadGone):
        WatchedProcess(PID, started=999, proc=threads.proc)
    WatchedProcess(PID, started=1000, proc=threads.proc).close()


def test_a_number_used_again_later_is_not_seen(threads: FakeThreads, watched: WatchedProcess) -> None:
    """Open descriptors stay with the process that was meant."""
    threads.waits("nanosleep")
    (threads.proc / str(PID)).rename(threads.proc / "old")
    threads.begin(started=2000)
    assert _seen(watched)[0] == "sleep"


def test_no_process_at_all(tmp_path: Path) -> None:
    """A process that never was is gone."""
    with pytest.raises(ThreadGone):
        WatchedProcess(PID, proc=tmp_path)

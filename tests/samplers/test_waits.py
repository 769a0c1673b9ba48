"""The process that looks at what workers wait for, and what its parent reads of it; counters of disk and cores."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pytest

from loaderprobe.records.measurement import Missing, Series
from loaderprobe.records.remark import Remark
from loaderprobe.records.waits import WAIT_KINDS, WaitSamples
from loaderprobe.samplers import sampling
from loaderprobe.samplers.host import CoresSampler, DiskSampler
from loaderprobe.samplers.recorded import SamplerThread
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.system.waits import ThreadGone, Wait, WatchedProcess, start_ticks
from loaderprobe.system.waits_process import MOST_SUBJECTS, ROW, ROWS, RowWriter, ThreadWatcher, read_rows, watch
from loaderprobe.testing import FakeClock
from tests.said import all_said

DEADLINE_S = 60.0
FAST_HZ = 500.0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps until it is killed."""
    with subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(1000)"]) as child:
        yield child
        child.kill()


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


def test_workers_are_seen_while_they_wait(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """Those that come later, too; samples stay after the sampler, whose process is reaped."""
    before = time.perf_counter_ns()
    workers = [(os.getpid(), threading.get_native_id())]
    with WaitsSampler(lambda: workers, tmp_path, rate_hz=FAST_HZ) as sampler:
        process = sampler._process
        assert process is not None and process.poll() is None
        assert all(worker == 0 for worker, _ in _kinds(_until(sampler, lambda _: True)))
        workers.append((sleeper.pid, sleeper.pid))
        sampler.follow_threads()
        samples = _until(sampler, lambda seen: {(0, "running"), (1, "sleep")} <= _kinds(seen))
        sleeper.kill()
        sleeper.wait()
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
def test_a_process_that_does_not_go_on_is_a_reason(
    tmp_path: Path, command: list[str], code: str, how: str | None
) -> None:
    """It cannot start, or the reason holds the last line that it wrote, or how it ended; it stays."""
    with WaitsSampler(lambda: [], tmp_path, command=lambda folder, rate_hz: command) as sampler:
        found = sampler.samples()
    assert isinstance(found, Missing) and (found.name, found.reason.code) == ("waits", code)
    assert how is None or found.reason.facts == {"how": how}
    assert sampler.samples() == found


def test_it_ends_with_its_orders(tmp_path: Path) -> None:
    """A process whose parent closes its input has nothing left to do."""
    read, write = os.pipe()
    word = f"{os.getpid()},{os.getpid()},{start_ticks(os.getpid())}"
    os.write(write, f"{word}\n{word} -\n".encode())
    os.close(write)
    watch(ThreadWatcher(RowWriter(tmp_path)), read, 1e6)
    os.close(read)


def test_the_process_imports_no_libraries() -> None:
    """It starts in a tenth of a second since it needs nothing but the standard library."""
    code = "import sys, loaderprobe.system.waits_process; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "msgspec", "psutil"} & set(done.stdout.split())


def test_processes_that_stay_are_not_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another order keeps the descriptors of workers that it names again, and gives back the others'."""
    opened: list[int] = []
    closed: list[int] = []

    class Opened(WatchedProcess):
        def __init__(self, pid: int, **options: object) -> None:
            opened.append(pid)
            self.pid = pid

        def close(self) -> None:
            closed.append(self.pid)

        def look(self, tid: int) -> Wait:
            raise ThreadGone

    monkeypatch.setattr("loaderprobe.system.waits_process.WatchedProcess", Opened)
    watcher = ThreadWatcher(RowWriter(tmp_path))
    watcher.follow("1,1,5 2,2,5")
    watcher.follow("3,3,5 - 1,1,5")
    assert (opened, closed) == ([1, 2, 3], [2])
    watcher.look()
    watcher.look()
    assert closed == [2, 3, 1]


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    """Subjects are shared; names that are no text are escaped; own time begins with the first row."""
    rows = RowWriter(tmp_path)
    rows.end_round(1000, 50, None)
    rows.add(1100, 0, Wait("storage", "/data/\udcff.jpg"))
    rows.add(1110, 1, Wait("network"))
    rows.end_round(1120, 80, HIDDEN)
    rows.add(1200, 0, Wait("storage", "/data/\udcff.jpg"))
    rows.end_round(1220, 90, HIDDEN)
    assert read_rows(tmp_path) == WaitSamples(
        time_ns=(1100, 1110, 1200), worker=(0, 1, 0),
        kind=tuple(WAIT_KINDS.index(kind) for kind in ("storage", "network", "storage")), subject=(0, -1, 0),
        subjects=("/data/\\udcff.jpg",), letters_only=HIDDEN, cpu_ns=40, wall_ns=220,
    )  # fmt: skip


def test_half_a_row_is_not_read(tmp_path: Path) -> None:
    """What is being written counts when it is whole. Leave that a worker gives after its first looks is enough."""
    rows = RowWriter(tmp_path)
    rows.end_round(0, 0, HIDDEN)
    rows.add(5, 0, Wait("sleep"))
    rows.end_round(6, 0, None)
    with (tmp_path / ROWS).open("ab") as file:
        file.write(ROW.pack(7, -1, 0, 0)[:-1])
    samples = read_rows(tmp_path)
    assert samples.time_ns == (5,) and samples.letters_only is None


def test_subjects_are_bounded(tmp_path: Path) -> None:
    """A million images must not be a million names."""
    rows = RowWriter(tmp_path)
    for number in range(MOST_SUBJECTS + 5):
        rows.add(number, 0, Wait("storage", f"/data/{number}.jpg"))
    rows.end_round(0, 0, None)
    samples = read_rows(tmp_path)
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


class Scripted:
    """A sampler that runs what it is given."""

    def __init__(self, sample: Callable[[], None]) -> None:
        self.sample = sample

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def series(self) -> Sequence[Series | Missing]:
        return ()


def test_a_sampler_that_raises_is_missing_and_the_others_go_on() -> None:
    """An exception in one sampler becomes a Missing with its text, and is not repeated."""

    def broken() -> None:
        raise ValueError("broken counter")

    readings: list[int] = []
    thread = SamplerThread([Scripted(broken), Scripted(lambda: readings.append(1))])
    thread.sample_all()
    thread.sample_all()
    series, missing = thread.collected()
    assert series == [] and len(readings) == 2
    assert all_said([item.reason for item in missing]) == ["Scripted stopped: ValueError: broken counter"]


def test_the_thread_samples_at_least_once_and_ends() -> None:
    """However short the measurement, there is a reading; every quantity of the product is read or has a reason."""
    readings: list[int] = []
    with SamplerThread([Scripted(lambda: readings.append(1))], period_s=3600):
        pass
    assert readings
    with sampling(FakeClock(), (), None) as thread:
        pass
    series, missing = thread.collected()
    names = {item.name for item in series} | {item.name for item in missing}
    assert {"disk_read", "gpu_utilization"} <= names

"""Family `waits`: `diagnose`, and `run` around a loop, on loaders as people write them; the truth by plain loops.

Really throttled disks are planted, each once, and servers run on 127.0.0.1. Nothing of loaderprobe measures the truth:
a DataLoader is iterated, its batches are stepped on, and a clock is read. Each variant has a fresh loader with workers
of its own; files are evicted before each cold one, when no process has them mapped, and read whole before the warm
one. How much of them then lies in memory is asked of the kernel, and where the disk is the row's own, its counter says
how many bytes come from storage for those delivered.

**Cold** is the rate over a set larger than memory: what is read ahead for one sample serves no other. Beside it stands
the warm rate, that of later epochs.

- A file a sample: read-ahead ends with the file. The loop is timed once what was prefetched is used up.
- Shards as a stream: read-ahead is what the next samples need. The first pass after eviction is timed, without its
  first batch, as that is when the workers start; with it, where that waits for a whole chunk.
- Anywhere in one file: the loop runs on a copy ten times as large, whose samples are drawn at random, each at least
  twice the read-ahead from any other. (To evict before each batch takes what another worker's read-ahead has just
  brought, and a mapping must be undone in each worker first.)

Who says that files were cold, at a rate that takes over 15 % more bytes a second than the disk gives, contradicts the
storage, whatever the word. So does `run` where its rate is over 10 % off that of `diagnose`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import groupby
from multiprocessing import active_children
from pathlib import Path
from typing import Any, Literal

import loaderprobe
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.stats import median
from loaderprobe.store.codec import encode
from loaderprobe.system.limits import cores_available
from scripts.benches.beside import neighbour, served
from scripts.benches.harness import (
    LATENCY_S,
    Progress,
    alternated,
    child,
    device_number,
    device_reads,
    own_disk,
    photographs,
    planted,
    ran,
    wanted,
)
from scripts.benches.loaders import (
    DISKS,
    LARGE_SAMPLES,
    PHOTOGRAPHS,
    READERS,
    ROWS,
    Row,
    Source,
    copy_folders,
    make_loader,
    make_step,
    source_of,
    write_format,
)
from scripts.benches.score import Row as Judged
from scripts.benches.score import Said
from tests.planted.slow_disk import SlowDisk
from tests.planted.slow_reader import evict, files_in
from tests.planted.small_memory import PAGE_BYTES, pages_bytes

RIGHT_AT_LEAST = 0.9
RESOLUTION = "500x375"
DISK_BYTES = 8_000_000_000
"""Of a file with holes."""
CHILD_LIMIT_S = 500
DIAGNOSIS_LIMIT_S = 120.0
ROUNDS = 3
BUSY = 0.8
"""Of all cores, in the plain loop, from which on they are full."""
COLD_RESIDENT, WARM_RESIDENT, COLD_READ = 0.05, 0.95, 0.8
ABOVE_STORAGE = 1.15
MOST_APART = 0.10
DRIVERS = ("diagnose", "run")
BURSTS_S = 1.25
"""The longest of a neighbour; half a second in the middle."""

BASE = "base"
FEWEST_BATCHES = 12
FEWEST_SERIAL = 6
FLUSH_S = 0.5
"""At least, so that the credit of a token bucket is used up."""
ENOUGH_S = 1.0
AT_MOST_S = 3.0
FIRST_PASS_S = 10.0
"""At most, of a first pass."""
CACHESTAT = 451
"""The system call that counts the cached pages of a file, by its number on all 64-bit Linux from 6.5 on."""
WARM = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
if sys.argv[1]:
    with open(sys.argv[1], "w") as members:
        members.write(str(os.getpid()))
def read(path):
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 22):
            pass
with ThreadPoolExecutor(32) as pool:
    list(pool.map(read, sys.stdin.read().split("\\n")))
"""

Timed = Literal["after flush", "after first group", "first pass", "whole pass"]


def files_of(row: Row, source: Source) -> list[Path]:
    """Those of its own set, and of the large copy."""
    return [*files_in(source.folder), *(files_in(source.large) if source.large else [])] if row.on_files else []


def sample_bytes(row: Row, source: Source) -> float:
    """In pages, of which files are read; 0 for what is no file."""
    return pages_bytes(files_in(source.folder)) / row.samples if row.on_files else 0.0


def read_ahead_kb(folder: Path) -> int | None:
    """Of files that are opened there; None where the kernel does not say."""
    setting = Path(f"/sys/class/bdi/{device_number(folder)}/read_ahead_kb")
    return int(setting.read_text()) if setting.exists() else None


def counted(row: Row, folder: Path) -> Path | None:
    """A folder, where the row's own disk counts what is read from it; None where others read too, or nothing counts."""
    is_own = row.disk.startswith("bucket") and Path(f"/sys/dev/block/{device_number(folder)}/stat").exists()
    return folder if is_own else None


def warm(files: Sequence[Path], unlimited: str) -> None:
    """Into the page cache, read by a process that joins the members of `unlimited` first, unless that is empty."""
    names = "\n".join(str(file) for file in files)
    subprocess.run([sys.executable, "-c", WARM, unlimited], input=names, text=True, check=True)


def resident(files: Sequence[Path]) -> float | None:
    """The share of these files that lies in memory; None where the kernel cannot tell."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    pages = 0
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        page_range, page_counts = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
        failed = call(CACHESTAT, fd, page_range, page_counts, 0)
        os.close(fd)
        if failed:
            return None
        pages += page_counts[0]
    return pages * PAGE_BYTES / pages_bytes(files) if files else None


def measure_round(
    row: Row, source: Source, step: Callable[[Any], Any] | None, unlimited: str, number: int
) -> dict[str, Any]:
    """One round: each variant once; every other round in the opposite order."""
    files, small_files = files_of(row, source), files_in(source.folder) if row.on_files else []
    size, disk = sample_bytes(row, source), counted(row, source.folder)
    access = READERS[row.reader].access
    ahead = 1024 * (read_ahead_kb(source.folder) or 0)
    distance = math.ceil(2 * ahead / size) + 1 if source.large else 0
    passes: dict[str, Timed] = {"stream": "first pass", "chunks": "whole pass"}
    cold = passes.get(access, "after first group" if distance else "after flush")

    def measured(variant: str) -> dict[str, Any]:
        if variant == "storage":
            warm(small_files, unlimited)
            in_memory = resident(small_files)
            figures = train(make_loader(row, source, variant), step, "after flush", disk, size)
        else:
            evict(files)
            in_memory = resident(files)
            loader = make_loader(row, source, variant, distance)
            figures = train(loader, None if variant == "compute" else step, cold, disk, size)
        return {**figures, "resident": in_memory}

    return alternated({variant: partial(measured, variant) for variant in (BASE, *row.resources)}, number)


class _Loop:
    """A plain training loop, some batches at a time; StopIteration ends it, as it does the epoch."""

    def __init__(self, loader: Any, step: Callable[[Any], Any] | None, disk: Path | None) -> None:
        # WebLoader has it inside.
        self.inner = loader.pipeline[0] if hasattr(loader, "pipeline") else loader
        self._step = step
        self._disk = disk
        self._batches = iter(loader)
        self.samples = self.steps = 0
        self.spent: tuple[float, float] | None = None
        """CPU s of this process and of the workers, and when that was asked, while all of them were there."""

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.samples += _step_once(self._batches, self._step)
            self.steps += 1
        cpu_s = _cpu_s([os.getpid(), *(worker.pid or 0 for worker in active_children())])
        self.spent = self.spent if cpu_s is None else (cpu_s, time.perf_counter())

    def now(self) -> tuple[int, float, int | None]:
        """Samples, seconds, and bytes from storage, None where they are not counted."""
        read = device_reads(self._disk)[1] if self._disk else None
        return self.samples, time.perf_counter(), read


def train(
    loader: Any, step: Callable[[Any], Any] | None, timed: Timed, disk: Path | None, size_bytes: float
) -> dict[str, float | None]:
    """Rate and cores in use of a plain training loop, once it is to be timed; bytes from storage over those of samples.

    Of the samples timed; in a first pass of all samples, as a stream is read ahead at first.
    """
    loop = _Loop(loader, step, disk)
    inner, start = loop.inner, loop.now()
    group = max(1, inner.num_workers)
    fewest = FEWEST_BATCHES if inner.num_workers else FEWEST_SERIAL
    whole = timed in ("first pass", "whole pass")
    at_most_s = {"first pass": FIRST_PASS_S, "whole pass": math.inf}.get(timed, AT_MOST_S)
    _flush(loop, inner, group, timed)
    begun, before, steps = loop.now(), loop.spent, loop.steps
    now = begun
    while loop.steps == steps or (
        now[1] - begun[1] < at_most_s and (whole or loop.steps - steps < fewest or now[1] - begun[1] < ENOUGH_S)
    ):
        try:
            loop.run(group)
        except StopIteration:
            now = loop.now()
            break
        now = loop.now()
    after = loop.spent
    # Its workers end.
    del loop
    gc.collect()
    first = start if whole else begun
    read_bytes = None if now[2] is None or not size_bytes else now[2] - (first[2] or 0)
    return {
        "images_per_s": (now[0] - begun[0]) / (now[1] - begun[1]),
        "cores": (after[0] - before[0]) / (after[1] - before[1]) if after and before and after[1] > before[1] else None,
        "read_amplification": None if read_bytes is None else read_bytes / ((now[0] - first[0]) * size_bytes),
    }


def _flush(loop: _Loop, inner: Any, group: int, timed: Timed) -> None:
    """What is not timed at the begin."""
    begin_s = time.perf_counter()
    if timed in ("first pass", "whole pass"):
        loop.run(int(timed == "first pass"))
        return
    flush = group * ((inner.prefetch_factor or 0) + 1) + 1 if timed == "after flush" else group
    # A quick loader must not use up its samples.
    half = len(inner) // 2 if hasattr(inner.dataset, "__len__") else math.inf
    while loop.steps < flush or (time.perf_counter() - begin_s < FLUSH_S and loop.steps < half):
        loop.run(1 if timed == "after flush" else group)


def _step_once(batches: Any, step: Callable[[Any], Any] | None) -> int:
    batch = next(batches)
    if step:
        step(batch)
    return len(batch if hasattr(batch, "shape") else batch[0])


def _cpu_s(pids: Sequence[int]) -> float | None:
    """CPU s of these processes; None once a worker has ended, as they do with the epoch."""
    cpu_s = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        cpu_s += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return cpu_s


def disk_of(undo: ExitStack, disk: str, folders: Sequence[str], source: Path, scratch: Path) -> SlowDisk | None:
    """These folders on such a disk; None where none can be planted."""
    kind, limit, ahead_kb = DISKS[disk].kind, DISKS[disk].bytes_per_s or LATENCY_S, DISKS[disk].read_ahead_kb
    if kind == "own":
        return own_disk(source)
    options = {"keep_cache": True, "size_bytes": DISK_BYTES, "read_ahead_bytes": ahead_kb and ahead_kb << 10}
    return planted(undo, disk, kind, limit, fill=partial(copy_folders, folders, source), scratch=scratch, **options)


def folders_of(rows: Sequence[Row]) -> list[str]:
    return sorted({row.folder for row in rows} | {row.large_folder for row in rows if row.large_folder})


def build(rows: Sequence[Row], source: Path, scratch: Path) -> None:
    files = sorted(photographs(scratch / "photographs", RESOLUTION, PHOTOGRAPHS).rglob("*.JPEG"))
    formats = {(row.format, row.samples) for row in rows}
    formats |= {(row.format, LARGE_SAMPLES) for row in rows if row.large_folder}
    for kind, samples in sorted(formats):
        write_format(kind, samples, files, source)
    os.sync()


def chosen_rows(chosen: argparse.Namespace) -> list[Row]:
    """Those that are asked for, on disks with this read-ahead, and whose library is installed."""
    ahead = chosen.read_ahead
    disks = [f"bucket20ra{int(kb)}" for kb in ahead.split(",")] if ahead else list(DISKS)
    rows = [row for row in ROWS if row.name in wanted(names(), chosen.only) and row.disk in disks]
    for row in rows:
        if library := READERS[row.reader].missing():
            print(f"{row.name}: skipped: {library} is not installed")
    return [row for row in rows if not READERS[row.reader].missing()]


def names() -> list[str]:
    return [row.name for row in ROWS]


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Plant each disk in turn, and measure its rows there; True when none failed."""
    rows, complete = chosen_rows(chosen), True
    given = {"out": str(out), "rounds": chosen.rounds or ROUNDS, "budget_s": chosen.budget, "beside": chosen.beside}
    progress = Progress(len(rows))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-waits-") as name:
        scratch, source = Path(name), Path(name, "source")
        source.mkdir()
        build(rows, source, scratch)
        with served(scratch / "photographs") as url:
            for disk, group in groupby(sorted(rows, key=lambda row: row.disk), key=lambda row: row.disk):
                disk_rows = list(group)
                with ExitStack() as undo:
                    slow_disk = disk_of(undo, disk, folders_of(disk_rows), source, scratch)
                    if slow_disk is None:
                        complete = False
                        continue
                    members = slow_disk.members
                    unlimited = str(members.parent.parent / members.name) if members else ""
                    for row in disk_rows:
                        where = {"disk": str(slow_disk.folder), "url": url, "unlimited": unlimited}
                        command = child(measure_row, {**given, **where, "row": row.name})
                        complete &= ran(slow_disk.command(command), row.name, CHILD_LIMIT_S)
                        progress.done(row.name)
    return complete


def row_of(given: dict[str, Any]) -> Row:
    """That of a process of its own."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more workers than cores are meant
    return next(row for row in ROWS if row.name == given["row"])


def measure_row(given: dict[str, Any]) -> None:
    """All rounds of the truth but one, what each driver says, and the last round; one or more files."""
    row = row_of(given)
    disk, out, budget_s = Path(given["disk"]), Path(given["out"]), given["budget_s"] or row.budget_s
    before = max(1, given["rounds"] - 1)
    rounds = truths(row, given, range(before))
    with source_of(row, disk, given["url"]) as source:
        files, size = files_of(row, source), sample_bytes(row, source)
        ahead = read_ahead_kb(source.folder)
    said = []
    # Where there are two, whose rates are compared, each is asked twice, in turn.
    for driver in row.drivers * len(row.drivers):
        evict(files)
        with neighbour(row.name, BURSTS_S) if given["beside"] else nullcontext():
            said.append({"driver": driver, **diagnosed({**given, "driver": driver, "budget_s": budget_s})})
    rounds += truths(row, given, range(before, given["rounds"]))
    stored = {
        "name": row.name, "cores": cores_available(), "read_ahead_kb": ahead,
        "disk_bytes_per_s": DISKS[row.disk].bytes_per_s or None, "sample_bytes": size or None,
        "truth": rounds, "said": said,
    }  # fmt: skip
    (out / f"{row.name}.row.json").write_text(json.dumps(stored, indent=1))


def truths(row: Row, given: dict[str, Any], rounds: range) -> list[dict[str, Any]]:
    """What the plain loops of the row deliver, in each of these rounds."""
    step = make_step(row) if rounds else None
    with source_of(row, Path(given["disk"]), given["url"]) as source:
        return [measure_round(row, source, step, given["unlimited"], number) for number in rounds]


def diagnosed(given: dict[str, Any]) -> dict[str, Any]:
    """What a driver said, in a process of its own, so that nothing of it meets the plain loops."""
    kept = Path(given["out"], f"{given['row']}.said.json")
    kept.unlink(missing_ok=True)
    nothing = {"diagnosis": None, "error": ""}
    try:
        subprocess.run(child(diagnose_row, given), check=False, timeout=DIAGNOSIS_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {**nothing, "error": f"took more than {DIAGNOSIS_LIMIT_S:g} s"}
    if not kept.exists():
        return {**nothing, "error": "its process died"}
    said: dict[str, Any] = json.loads(kept.read_text())
    kept.unlink()
    return {**nothing, **said}


def diagnose_row(given: dict[str, Any]) -> None:
    """As a new user would: a loader, a step, one call; or an unchanged loop."""
    row, out, budget_s = row_of(given), Path(given["out"]), given["budget_s"]
    with source_of(row, Path(given["disk"]), given["url"]) as source:
        loader, step = make_loader(row, source), make_step(row)
        said: dict[str, Any] = {}
        try:
            if given["driver"] == "run":
                assert step
                with loaderprobe.attached(budget_s=budget_s) as block:
                    while True:
                        for batch in loader:
                            step(batch)
                if block.diagnosis is None:
                    raise RuntimeError(block.reason)
                diagnosis = block.diagnosis
            else:
                diagnosis = loaderprobe.diagnose(loader, step, budget_s=budget_s)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this row's result
            traceback.print_exc()
            said["error"] = f"{type(error).__name__}: {error}"
        else:
            said["diagnosis"] = _kept(diagnosis)
            measurement = f"{row.name}{'-run' * (given['driver'] == 'run')}.measurement.json"
            (out / measurement).write_bytes(encode("measurement", diagnosis.measurement))
    (out / f"{row.name}.said.json").write_text(json.dumps(said))


def _kept(diagnosis: Diagnosis) -> dict[str, Any]:
    plain = diagnosis.to_dict()["configuration"]
    bound = {name: plain["bound"][name] for name in ("side", "cause", "candidates", "sentence")}
    return {**bound, **{name: plain[name] for name in ("cache", "files_were", "images_per_s")}}


def load(folder: Path, chosen: argparse.Namespace) -> list[Judged]:
    kept = {path.name.removesuffix(".row.json"): path for path in sorted(folder.glob("*.row.json"))}
    return [judged(json.loads(kept[name].read_text())) for name in wanted(list(kept), chosen.only)]


def judged(stored: dict[str, Any]) -> Judged:
    rounds: list[dict[str, Any]] = stored["truth"]
    base = [figures[BASE] for figures in rounds]
    answers = stored["said"]
    by_driver = {name: [answer["diagnosis"] for answer in answers if answer["driver"] == name] for name in DRIVERS}
    diagnoses = {
        f"{name} {number}" if number > 1 else name: diagnosis
        for name, several in by_driver.items()
        for number, diagnosis in enumerate(several, 1)
    }
    cores = [figures["cores"] for figures in base if figures["cores"] is not None]
    busy = bool(cores) and median(cores) >= BUSY * stored["cores"]
    over = {name: over_storage(stored, said) for name, said in diagnoses.items()}
    faults = [
        f"{name} CONTRADICTS THE STORAGE: {over[name]:.2f} times what the disk gives, from cold files"
        for name, said in diagnoses.items()
        if said and said["files_were"] == "cold" and (over[name] or 0.0) > ABOVE_STORAGE
    ]
    rates = [[said["images_per_s"]["value"] for said in by_driver[name] if said] for name in DRIVERS]
    if all(rates):
        ratio = median(rates[1]) / median(rates[0])
        faults += [f"run finds {ratio:.2f} times the rate of diagnose"] * (abs(ratio - 1) > MOST_APART)
    errors = [f"{answer['driver']} failed: {answer['error']}" for answer in answers if answer["error"]]
    logs = {
        name: [math.log(figures[name]["images_per_s"] / figures[BASE]["images_per_s"]) for figures in rounds]
        for name in rounds[0]
        if name != BASE
    }
    return Judged(
        name=stored["name"], logs=logs, cpu="right" if busy else "unclear",
        images_per_s=median([figures["images_per_s"] for figures in base]),
        said={name: _said(said) for name, said in diagnoses.items()},
        details=(*errors, *_read(stored, rounds, over), *["cores busy"] * busy),
        trouble=_trouble(rounds), faults=tuple(faults),
    )  # fmt: skip


def _said(said: dict[str, Any] | None) -> Said | None:
    """A rate that is called warm is none of cold files."""
    if said is None:
        return None
    rate = None if said["cache"] == "warm" else said["images_per_s"]["value"]
    return Said(
        cause=said["cause"], candidates=tuple(said["candidates"]), side=said["side"], sentence=said["sentence"],
        images_per_s=rate,
    )  # fmt: skip


def over_storage(stored: dict[str, Any], said: dict[str, Any] | None) -> float | None:
    """Bytes of the samples that are said to be delivered over what the disk gives; None where it has no limit."""
    limit, size = stored.get("disk_bytes_per_s"), stored.get("sample_bytes")
    return float(said["images_per_s"]["value"]) * size / limit if said and limit and size else None


def _read(stored: dict[str, Any], rounds: Sequence[dict[str, Any]], over: dict[str, float | None]) -> Iterator[str]:
    read = [times for figures in rounds if (times := figures[BASE].get("read_amplification")) is not None]
    if not read:
        return
    yield f"{median(read):.2f} bytes read for one of a sample, {stored.get('read_ahead_kb')} kB ahead"
    yield from (f"{name}: {value:.2f} times what the disk gives" for name, value in over.items() if value is not None)


def _trouble(rounds: Sequence[dict[str, Any]]) -> str:
    troubles = []
    for name in rounds[0]:
        shares = [figures[name]["resident"] for figures in rounds if figures[name]["resident"] is not None]
        if shares and (min(shares) < WARM_RESIDENT if name == "storage" else max(shares) > COLD_RESIDENT):
            troubles.append(f"{name}: {max(shares):.0%} of the files in memory at its begin")
        read = [times for figures in rounds if (times := figures[name].get("read_amplification")) is not None]
        if name == BASE and read and min(read) < COLD_READ:
            troubles.append(f"{name}: {min(read):.0%} of the bytes came from storage")
        if name == "storage" and read and max(read) > 1 - WARM_RESIDENT:
            troubles.append(f"warm files: {max(read):.0%} of the bytes came from storage")
    return ", ".join(troubles)

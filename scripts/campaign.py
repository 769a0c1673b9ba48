"""Faults at random moments of a small sweep: what is lost, what is said to the user, and what is left behind.

A try is known by its fault and its seed: `--only FAULT --seed SEED --tries 1` does it again. Exit codes: 0 all as it
must be, 3 a permission is missing, 4 a try was not as it must be.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loaderprobe.records.measurement import Measurement
from loaderprobe.store.run_directory import RunDirectory

MISSING, FAILED = 3, 4
ROOT = Path(__file__).parents[1]
MARK = "LOADERPROBE_CAMPAIGN"
"""Variable by which all processes of a try are found, wherever they went."""
LIMIT_S, LEAVE_S, FIND_S = 60.0, 3.0, 8.0
"""Of a command; for its processes to end after it; for a process to appear that a fault needs."""
NOT_OURS = re.compile("filler|torchinductor_.*")
"""In temporary folders: that of this campaign, and the cache that torch keeps for later processes."""
OF_A_SCRIPT = re.compile(f"{NOT_OURS.pattern}|pymp-.*")
"""A script that is interrupted leaves the sockets of its workers without loaderprobe, too: 4 of 4 did."""
IMAGES = 64
SIZES_MIB = {"disk": 8, "shm": 128, "tmp": 16}
"""Of the file systems of a try: of the run, of what its processes have as /dev/shm, and of temporary files."""
PROGRAM = [sys.executable, "-m", "loaderprobe"]
SMALL = [
    *("--no-serial", "--workers", "1,2", "--cache", "warm", "--compute", "emulated:400", "--batch-size", "8"),
    *("--rounds", "1", "--quiet"),
]
SCRIPT = """\
import torch
from pathlib import Path
from tests.examples.training import Costly, Training
training = Training(Path("."))
for batch in torch.utils.data.DataLoader(Costly(samples=40_000), 8, num_workers=1):
    training.step(batch)
"""


@dataclass(slots=True)
class Try:
    """One sweep, or one attached script, in a folder of its own, and how it went."""

    fault: str
    seed: int
    folder: Path
    images: Path
    random: random.Random
    process: subprocess.Popen[str] | None = None
    before: set[str] = field(default_factory=set)
    """Keys of the measurements that were there when the fault came."""
    came: bool = False
    code: int | str = ""
    said: str = ""
    lost: int = 0
    resumed: int | str = ""
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        return self.folder / "disk" / "run"

    def start(self, words: Sequence[str], before: str = "") -> subprocess.Popen[str]:
        """Start a command in a mount namespace with its own /dev/shm; a shell does `before` first, or exits with 99."""
        inside = f'mount --bind {self.folder}/shm /dev/shm && {before or ":"} || exit 99; exec "$@"'
        environment = {
            **os.environ, MARK: str(self.folder), "TMPDIR": str(self.folder / "tmp"), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        return subprocess.Popen(
            ["unshare", "-m", "sh", "-c", inside, "sh", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", cwd=self.folder, env=environment,
            start_new_session=True,
        )  # fmt: skip

    def sweep(self, *options: str) -> list[str]:
        images = self.folder / "served" if FAULTS[self.fault].served else self.images
        return [*PROGRAM, "sweep", str(images), *SMALL, *options, "--out", str(self.run)]

    def processes(self) -> list[psutil.Process]:
        """All that run, by the mark in their environment."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == str(self.folder)
        return False

    def targets(self, role: str) -> list[psutil.Process]:
        """Those of a role: parent, forkserver, child (also of each rank), worker, or script."""
        assert self.process is not None
        with suppress(psutil.Error):
            parent = psutil.Process(self.process.pid)
            servers = [process for process in parent.children() if "loaderprobe.measure.child" in process.cmdline()]
            children = [child for server in servers for child in server.children()]
            workers = [worker for child in children for worker in child.children()]
            roles = {"parent": [parent], "forkserver": servers, "child": children, "worker": workers}
            return {**roles, "script": parent.children()}[role]
        return []

    def wait_for(self, role: str) -> psutil.Process | None:
        """One of a role; waits for it while the command runs."""
        assert self.process is not None
        end = time.monotonic() + FIND_S
        while time.monotonic() < end and self.process.poll() is None:
            if targets := self.targets(role):
                return self.random.choice(targets)
            time.sleep(0.02)
        return None

    def measured(self) -> set[str]:
        """Keys of the measurements that load."""
        keys = [path.stem for path in (self.run / "measurements").glob("*.json") if not path.name.startswith(".")]
        if not keys:
            return set()
        run = RunDirectory.open(self.run)
        return {key for key in keys if isinstance(run.result(key), Measurement)}


Undo = Callable[[], object]
Inject = Callable[[Try], Undo | None]
"""Does a fault; returns what takes it back before the run is resumed, None where the fault could not come."""


def nothing() -> None:
    """There is nothing to take back."""


def send(number: signal.Signals, role: str) -> Inject:
    def inject(this: Try) -> Undo | None:
        if target := this.wait_for(role):
            this.before = this.measured()
            with suppress(psutil.Error):
                target.send_signal(number)
                return nothing
        return None

    return inject


def stop(role: str) -> Inject:
    """As a machine that suspends: for seconds nothing of it runs."""

    def inject(this: Try) -> Undo | None:
        if target := this.wait_for(role):
            with suppress(psutil.Error):
                target.suspend()
                time.sleep(this.random.uniform(2, 6))
                target.resume()
                return nothing
        return None

    return inject


def fill(name: str) -> Inject:
    def inject(this: Try) -> Undo:
        file = this.folder / name / "filler"
        with suppress(OSError), file.open("wb", buffering=0) as stream:
            while stream.write(bytes(4096)):
                pass
        return file.unlink

    return inject


def vanish(what: Callable[[Try], Path]) -> Inject:
    def inject(this: Try) -> Undo | None:
        path = what(this)
        away = path.with_name("away")
        if not path.exists():
            return None
        path.rename(away)

        def back() -> None:
            if path.exists():
                this.left.append(f"{path.name}, which had vanished, was made again")
                shutil.rmtree(path)
            away.rename(path)

        return back

    return inject


def second(this: Try) -> Undo | None:
    """Another sweep on the same directory must be refused, and harm nothing."""
    if not (this.run / "run.json").exists():
        return None
    process = this.start([*PROGRAM, "sweep", "--resume", str(this.run), "--budget", "6", "--quiet"])
    said, _ = process.communicate(timeout=LIMIT_S)
    if process.returncode not in (0, 5) or (process.returncode == 5 and "another loaderprobe is writing" not in said):
        this.wrong.append(f"the second ended with {process.returncode}: {said[-300:]}")
    return nothing


def from_start(this: Try) -> Undo:
    """It came before the command (`Fault.before`)."""
    return nothing


def answered(ending: str) -> Inject:
    """The file system under the images answers otherwise, until the command has ended."""

    def inject(this: Try) -> Undo:
        flag = this.images.with_name(f"images{ending}")
        flag.touch()
        return flag.unlink

    return inject


def step_clock(this: Try) -> Undo:
    """The wall clock jumps by an hour, as where a machine wakes or its time is set; the monotonic one does not."""
    with (this.folder / "clock").open("r+b", buffering=0) as file:
        file.write(struct.pack("q", this.random.choice([3600, -3600])))
    return nothing


def little_memory(this: Try) -> Undo:
    def back() -> None:
        for group in MEMORY.glob("loaderprobe-campaign-*"):
            group.rmdir()

    return back


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens, to what, and what may be said to the user."""

    inject: Inject
    codes: tuple[int, ...]
    says: str = ""
    """Matches what is said with a code that is not 0."""
    options: tuple[str, ...] = ("--budget", "10")
    command: Callable[[Try], list[str]] | None = None
    before: str = ""
    """What a shell does before the command."""
    latest_s: float = 7.0
    """Of the random moments."""
    served: bool = False
    """Whether the images lie on a file system of this campaign's own, over FUSE."""
    needs: Path = ROOT
    """Without this directory, or where it cannot be written, the fault is left out."""


def attached(this: Try) -> list[str]:
    script = this.folder / "train.py"
    script.write_text(SCRIPT)
    return [*PROGRAM, "run", "--budget", "6", "--out", str(this.run), "--", sys.executable, str(script)]


def incapable(this: Try) -> list[str]:
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *this.sweep("--budget", "10")]


def generating(this: Try) -> list[str]:
    where = ["--data-dir", str(this.folder / "disk" / "data"), "--resolutions", "500x375", "--images", "24"]
    return [*PROGRAM, "sweep", *where, *SMALL, "--budget", "10", "--out", str(this.run)]


MEMORY = Path("/sys/fs/cgroup/memory")
LITTLE_MEMORY = (
    f"g={MEMORY}/loaderprobe-campaign-$$ && mkdir $g && "
    "echo 400M > $g/memory.limit_in_bytes && echo $$ > $g/cgroup.procs"
)
OWN_CLOCK = (
    f"cc -shared -fPIC -o clock.so {ROOT}/tests/planted/clock.c && head -c 8 /dev/zero > clock && "
    "export STEPPED_CLOCK=$PWD/clock LD_PRELOAD=$PWD/clock.so"
)
READ_ONLY = "mount -o remount,ro,bind disk"
RESUMED_S = "24"
"""Enough for all that may be missing, on two busy cores: what is not tried again keeps its failure."""
RANKS = ("--budget", "22", "--ranks", "2")
INTERRUPTED, NO_SPACE = "interrupted", "[Nn]o space left| free, and "


INJECTED = {
    "stop-child": Fault(stop("child"), codes=(0,)),
    "stop-parent": Fault(stop("parent"), codes=(0,)),
    "clock-steps": Fault(step_clock, codes=(0,), before=OWN_CLOCK),
    "full-disk": Fault(fill("disk"), codes=(5,), says=NO_SPACE),
    "full-temporary": Fault(fill("tmp"), codes=(0, 4, 5), says=NO_SPACE),
    "full-shm": Fault(fill("shm"), codes=(0, 4), says="shared memory"),
    "full-data": Fault(fill("disk"), codes=(5,), says=NO_SPACE, command=generating, latest_s=3),
    "read-only-run": Fault(from_start, codes=(3,), says="cannot be written", before=READ_ONLY, latest_s=0),
    "vanished-run": Fault(vanish(lambda this: this.run), codes=(3,), says="its directory is not there"),
    "vanished-data": Fault(vanish(lambda this: this.images), codes=(0, 2, 4), says="No such file|missing"),
    "two-sweeps": Fault(second, codes=(0,)),
    "64-descriptors": Fault(from_start, codes=(0, 4), says="open files", before="ulimit -n 64", latest_s=0),
    "little-memory": Fault(
        little_memory, codes=(-9, 0, 1, 4), says="memory|SIGKILL", before=LITTLE_MEMORY, latest_s=0, needs=MEMORY
    ),
    "no-capabilities": Fault(from_start, codes=(0,), command=incapable, latest_s=0),
    "failing-reads": Fault(answered(".fails"), codes=(0, 3, 4), says="Input/output error", served=True),
    "hanging-reads": Fault(answered(".hangs"), codes=(0, 4), says="answer|hang|seconds", latest_s=3, served=True),
    "no-proc": Fault(from_start, codes=(0, 3), says="/proc", before="mount -t tmpfs none /proc", latest_s=0),
}


def signalled() -> Iterator[tuple[str, Fault]]:
    """Each signal, to each process. `died` is what is said of a configuration whose process had it."""
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        name, kills = number.name.lower()[3:], number == signal.SIGKILL
        died = f"{number.name}|KeyboardInterrupt"
        # One that comes before Python's own handling of signals ends it at once. Where it meets text that `exec` runs,
        # as the import of a dataclass does, Python ends by SIGINT at last.
        ended, parent, child = (-9,) if kills else (-number, -2, 0, 130), send(number, "parent"), send(number, "child")
        yield f"{name}-parent", Fault(parent, codes=ended, says=INTERRUPTED)
        yield f"{name}-parent-of-ranks", Fault(parent, codes=ended, says=INTERRUPTED, options=RANKS, latest_s=10)
        yield f"{name}-forkserver", Fault(send(number, "forkserver"), codes=(0, 4), says="the forkserver")
        yield f"{name}-child", Fault(child, codes=(0, 4), says=died)
        yield f"{name}-worker", Fault(send(number, "worker"), codes=(0, 4), says=died)
        yield f"{name}-rank", Fault(child, codes=(0, 4), says=died, options=RANKS, latest_s=10)
        code = 128 + number
        yield f"{name}-script", Fault(send(number, "script"), codes=(0, 1, code), command=attached)
        yield f"{name}-run", Fault(parent, codes=(*ended, code), command=attached)


@contextmanager
def served(source: Path, mount: Path) -> Iterator[None]:
    """`source` at `mount`, over FUSE, without a cache of what was read."""
    mount.mkdir()
    words = [sys.executable, "-m", "tests.planted.slow_fuse", str(source), str(mount), "{}", "drop"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        while not mount.is_mount() and server.poll() is None:
            time.sleep(0.02)
        yield
    finally:
        server.communicate()


@contextmanager
def mounted(mount: Path, mib: int) -> Iterator[None]:
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(mount)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def finish(this: Try, process: subprocess.Popen[str]) -> tuple[int | str, str]:
    """(exit code, or that it hung; what was said)."""
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        for survivor in this.processes():
            survivor.kill()
        return "hung", process.communicate()[0]
    return process.returncode, said


def look_behind(this: Try) -> Iterator[str]:
    """Processes, temporary files and shared memory that outlive the command."""
    end = time.monotonic() + LEAVE_S
    while (remaining := this.processes()) and time.monotonic() < end:
        time.sleep(0.05)
    for process in remaining:
        with suppress(psutil.Error):
            yield f"process {' '.join(process.cmdline())[-60:]}"
            process.kill()
    known = OF_A_SCRIPT if FAULTS[this.fault].command is attached else NOT_OURS
    for folder in (this.folder / "tmp", this.folder / "shm"):
        yield from (f"{folder.name}/{path.name}" for path in folder.iterdir() if not known.fullmatch(path.name))


def check_said(this: Try, fault: Fault) -> None:
    if this.code not in fault.codes:
        this.wrong.append(f"exit code {this.code}")
    if this.code not in (0, -9, -15, -2) and not re.search(fault.says, " ".join(this.said.split())):
        this.wrong.append("says nothing of it")
    by_script = fault.command is attached and "in loaderprobe:" not in this.said
    if "Traceback" in this.said and not by_script:
        this.wrong.append("a traceback")
    if this.code in (2, 3, 5) and "try:" not in this.said:
        this.wrong.append("no next step")


def attempt(this: Try, fault: Fault) -> None:
    """The command, the fault at a random moment, what is left, and the command that completes the run."""
    command = fault.command(this) if fault.command else this.sweep(*fault.options)
    this.process = this.start(command, fault.before)
    moment_s = this.random.uniform(0.3, fault.latest_s) if fault.latest_s else 0.0
    if fault.command is None and fault.latest_s and this.random.random() < 0.7:
        # Where nothing is measured yet, nothing can be lost.
        moment_s *= 0.4
        while not this.measured() and this.process.poll() is None:
            time.sleep(0.1)
    with suppress(subprocess.TimeoutExpired):
        this.process.wait(moment_s)
    running = this.process.poll() is None
    this.before = this.measured()
    undo = fault.inject(this) if running else None
    this.came = undo is not None
    began = time.monotonic()
    try:
        this.code, this.said = finish(this, this.process)
    finally:
        if undo:
            undo()
    if this.came and this.code == 0 and fault.says == INTERRUPTED and time.monotonic() - began > LEAVE_S:
        this.wrong.append("goes on after the signal")
    # What was killed removes nothing, and workers of a script may outlive it for a moment: the next command does so.
    killed = this.code == -signal.SIGKILL or fault.command is attached
    this.left += [remnant for remnant in look_behind(this) if not (killed and remnant.startswith("tmp/"))]
    if this.came:
        check_said(this, fault)
    this.lost = len(this.before - this.measured())
    if fault.command is attached:
        shutil.rmtree(this.run, ignore_errors=True)
    elif (this.run / "run.json").exists():
        command = [*PROGRAM, "sweep", "--resume", str(this.run), "--budget", RESUMED_S, "--quiet"]
    this.resumed, said = finish(this, this.start(command))
    this.left += [f"{remnant} (after the end)" for remnant in look_behind(this)]
    if this.resumed != 0:
        this.wrong.append(f"does not complete ({this.resumed})")
        this.said += f"\n--- resumed\n{said}"


def run_try(fault: str, seed: int, images: Path, logs: Path) -> Try:
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    this = Try(fault=fault, seed=seed, folder=folder, images=folder / "images", random=random.Random(f"{fault} {seed}"))
    shutil.copytree(images, this.images)
    try:
        with ExitStack() as mounts:
            for name, mib in SIZES_MIB.items():
                mounts.enter_context(mounted(folder / name, mib))
            if FAULTS[fault].served:
                mounts.enter_context(served(this.images, folder / "served"))
            attempt(this, FAULTS[fault])
    finally:
        for process in this.processes():
            process.kill()
        shutil.rmtree(folder)
    if this.lost or this.wrong or this.left:
        (logs / f"{fault}-{seed}.txt").write_text(f"{this.wrong} {this.left} lost {this.lost}\n{this.said}")
    return this


def row_of(fault: str, tries: Sequence[Try]) -> list[str]:
    came = [this for this in tries if this.came]
    codes = Counter(str(this.code) for this in came)
    return [
        fault,
        str(len(came)),
        str(sum(len(this.before) for this in came)),
        str(sum(this.lost for this in tries)),
        " ".join(f"{code}:{count}" for code, count in sorted(codes.items())),
        f"{sum(this.resumed == 0 for this in tries)}/{len(tries)}",
        "; ".join(sorted({text for this in tries for text in this.wrong})) or "true",
        "; ".join(sorted({re.sub(r"[-_]\w{8}\b|\d{3,}", "*", text) for this in tries for text in this.left}))
        or "nothing",
    ]


def possible(names: Iterable[str]) -> Iterator[str]:
    """Those of these faults that can be tried here; says which are left out."""
    for name in names:
        if os.access(FAULTS[name].needs, os.W_OK):
            yield name
        else:
            print(f"{name}: left out, for {FAULTS[name].needs} is not there or cannot be written", flush=True)


HEADS = ["fault", "came", "measured", "lost", "exit codes", "completed", "what was said", "left behind"]
FAULTS = {**dict(signalled()), **INJECTED}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/campaign", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of a fault's first try; each further one has one more")
    parser.add_argument("--tries", type=int, default=3, help="of each fault")
    only = f"may be repeated: {', '.join(FAULTS)}"
    parser.add_argument("--only", action="append", choices=FAULTS, metavar="FAULT", help=only)
    parser.add_argument("--logs", type=Path, default=Path("campaign-logs"), help="what was said where a try went wrong")
    chosen = parser.parse_args()
    if os.geteuid() != 0:
        print("scripts/campaign mounts small file systems: run it as root", file=sys.stderr)
        return MISSING
    # What is mounted is unmounted, as after Ctrl-C, which a shell lets its background ignore: sweeps would, too.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    chosen.logs.mkdir(parents=True, exist_ok=True)
    rows, good = [HEADS], True
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="campaign-data-") as data:
        made = ["generate", data, "--resolutions", "64x64", "--count", str(IMAGES)]
        subprocess.run([*PROGRAM, *made], check=True, capture_output=True, cwd=ROOT)
        for fault in possible(chosen.only or FAULTS):
            tries: list[Try] = []
            for seed in range(chosen.seed, chosen.seed + chosen.tries):
                this = run_try(fault, seed, Path(data) / "64x64", chosen.logs)
                tries.append(this)
                wrong = [*this.wrong, *this.left, *([f"{this.lost} lost"] if this.lost else [])]
                good = good and not wrong
                when = "" if this.came else " (over before the fault)"
                print(f"{fault} seed {seed}: {this.code}{when}, {'; '.join(wrong) or 'good'}", flush=True)
            rows.append(row_of(fault, tries))
    print("\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows))
    return 0 if good else FAILED


if __name__ == "__main__":
    sys.exit(main())

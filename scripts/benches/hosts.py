"""Do ranks on two hosts measure what is true of them, and is a host named that fails? As root, some 8 minutes.

The hosts are namespaces of this machine, joined by a switch: each with a name, a network and processes of its own, and
each takes its own name for 127.0.1.1. torchrun starts two processes on each, as the guide says. `same`: two ranks on
one host, two on two and four on two reach the rate of their accelerators. `unseen`: data that one host does not see is
refused, and the host is named. `killed`, `cut_off`: all processes of a host are killed in the middle, or its packets
are lost; rank 0 ends in time, with a row that names rank and host. `ddp`, `wire`: 58 MB of gradients limit training
over a link of 300 Mb/s, and not without that limit.

Prints a row for each. Ends with code 1 when one is not so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.api.load import load
from loaderprobe.records.report import ConfigurationRow
from scripts.benches.harness import Progress, parser, photographs
from tests.planted.hosts import CannotPlant, Host, hosts

PORT = 29500
IMAGES = 1200
RATE = 20.0
"""Images/s of an emulated accelerator."""
OFF_AT_MOST = 0.02
LATER_S = 8.0
"""After the run has begun, a host is lost."""
TIME_LIMIT_S = 120.0
"""Of a configuration: the others then wait a minute for a rank at each meeting, and some more for its word."""
NOTICED_S = 200.0
LIMIT_S = 400.0
LOADER = ("--batch-size", "4", "--workers", "1", "--no-serial")
EMULATED = ("--compute", f"emulated:{RATE:g}", *LOADER, "--rounds", "1")
LOST = ("--ranks", "2x1", "--compute", f"emulated:{RATE:g}", *LOADER, "--thorough", "--time-limit", f"{TIME_LIMIT_S:g}")
DDP = ("--ranks", "2x1", "--compute", "cpu", "--model", "scripts.benches.ranks_plants:wide", *LOADER,
       "--rounds", "1", "--thorough")  # fmt: skip
WIRE = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "300mbit", "burst", "256kb", "latency", "50ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run on both hosts."""

    name: str
    data: Path
    out: Path
    options: Sequence[str]
    happens: Callable[[Sequence[Host]], object] | None = None
    """Once the run has begun."""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default=",".join(CHECKS), help="with commas (%(default)s)")
    chosen = options.parse_args().only.split(",")
    progress, wrong = Progress(len(chosen)), 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-hosts-") as scratch:
        data = photographs(Path(scratch, "own"), "500x375", IMAGES)
        for name in chosen:
            try:
                with hosts("left", "right", files=Path(scratch), resolve=False) as made:
                    found = CHECKS[name](made, data, Path(scratch, name))
            except CannotPlant as error:
                print(f"{name}: left out: {error}")
                continue
            wrong += found.startswith("WRONG")
            print(f"{name:8} {found}", flush=True)
            progress.done(name)
    print(f"{wrong} wrong")
    return int(wrong > 0)


def same(made: Sequence[Host], data: Path, out: Path) -> str:
    """Rates are those of the accelerators, on one host and on two."""
    ran(made, Trial(name="same", data=data, out=out, options=("--ranks", "2,2x1,2x2", *EMULATED)))
    rows = rows_of(out)
    told = [f"{row.config.nodes}x{row.config.ranks // row.config.nodes} {_rate(row):.1f}" for row in rows]
    off = any(abs(_rate(row) / (RATE * row.config.ranks) - 1) > OFF_AT_MOST for row in rows)
    return f"{'WRONG ' if off or len(rows) != 3 else ''}images/s of {RATE:g} a rank: {', '.join(told)}"


def unseen(made: Sequence[Host], data: Path, out: Path) -> str:
    """A folder that only the first host has."""
    made[0].run("mount", "-t", "tmpfs", "tmpfs", "/mnt")
    made[0].run("cp", "-r", str(data), "/mnt/own")
    said, _ = ran(made, Trial(name="unseen", data=Path("/mnt/own"), out=out, options=("--ranks", "2x2", *EMULATED)))
    line = next((each for each in said.splitlines() if "does not see" in each), "")
    return line if "right does not see" in line else f"WRONG {said[-400:]}"


def killed(made: Sequence[Host], data: Path, out: Path) -> str:
    """All processes of the second host, but the first, which keeps the host."""
    script = "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -9 $p; done; true"
    return _lost(made, Trial(name="killed", data=data, out=out, options=LOST, happens=lambda all_: subprocess.run(
        all_[1].command(["sh", "-c", script]), check=False, stderr=subprocess.DEVNULL)))  # fmt: skip


def cut_off(made: Sequence[Host], data: Path, out: Path) -> str:
    """Its packets are lost."""
    trial = Trial(name="cut_off", data=data, out=out, options=LOST, happens=lambda all_: all_[1].cut_off())
    return _lost(made, trial)


def ddp(made: Sequence[Host], data: Path, out: Path) -> str:
    """Gradients over a fast link."""
    ran(made, Trial(name="ddp", data=data, out=out, options=DDP))
    return _cause(out, gradients=False)


def wire(made: Sequence[Host], data: Path, out: Path) -> str:
    """The same over a slow one."""
    for host in made:
        host.run(*WIRE)
    ran(made, Trial(name="wire", data=data, out=out, options=DDP))
    return _cause(out, gradients=True)


CHECKS = {each.__name__: each for each in (same, unseen, killed, cut_off, ddp, wire)}


def _lost(made: Sequence[Host], trial: Trial) -> str:
    said, seconds = ran(made, trial)
    (row,) = rows_of(trial.out)
    facts = {} if row.reason is None else row.reason.facts
    named = (facts.get("rank"), facts.get("host")) == ("1", "right")
    right = named and "exitcode  : 4" in said and seconds < NOTICED_S
    return f"{'' if right else 'WRONG '}after {seconds:.0f} s: {facts.get('error')} (at: {facts.get('stage')})"


def _cause(out: Path, *, gradients: bool) -> str:
    (row,) = rows_of(out)
    if row.verdict is None:
        return f"WRONG {row.status}"
    found, speedup = row.verdict.bound.cause, row.verdict.speedups.gradients
    wrong = (found == "gradients") != gradients
    gain = "not known" if speedup is None else f"{speedup.value:.2f}"
    return f"{'WRONG ' * wrong}{found}, {_rate(row):.1f} images/s, without gradients x {gain}"


def _rate(row: ConfigurationRow) -> float:
    return 0.0 if row.images_per_s is None else row.images_per_s.value


def rows_of(out: Path) -> Sequence[ConfigurationRow]:
    """Of a run."""
    return load(out).report().summary.configurations


def ran(made: Sequence[Host], trial: Trial) -> tuple[str, float]:
    """(What was said on the first host, seconds until it ended there after what happened). All have ended then."""
    launcher = ["--nnodes", str(len(made)), "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-id", "7"]
    launcher += ["--rdzv-endpoint", f"{made[0].name}:{PORT}"]
    sweep = ["sweep", str(trial.data), "--out", str(trial.out), "--quiet", "--json", *trial.options]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "loaderprobe", *sweep]
    logs = [trial.out.with_name(f"{trial.name}-{host.name}.txt") for host in made]
    running = [_started(host, command, log) for host, log in zip(made, logs, strict=True)]
    try:
        if trial.happens:
            _wait_for(trial.out / "run.json", running[0])
            time.sleep(LATER_S)
            trial.happens(made)
        begin_s = time.monotonic()
        running[0].wait(LIMIT_S)
        seconds = time.monotonic() - begin_s
    finally:
        for each in running:
            if trial.happens:  # the launcher of a host that is cut off waits for a quarter of an hour
                each.kill()
            each.wait(LIMIT_S)
    return logs[0].read_text(errors="replace"), seconds


def _started(host: Host, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(host.command(command), stdout=file, stderr=file)


def _wait_for(path: Path, running: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not path.exists() and running.poll() is None and time.monotonic() < until_s:
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())

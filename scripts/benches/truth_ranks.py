"""Family `ranks`: `sweep --ranks` and `bandwidth --ranks` with planted causes, on one host and on two; as root.

Some 25 minutes. Two ranks with a worker each train on a disk of 20 MB/s that they share (with four ranks, too), with
heavy decoding, with slow accelerators, with a worker that is late on one rank, with 58 MB of gradients, and with those
over a loopback of 3 Gb/s (a network namespace of its own). In `host`, both workers of one of two hosts are late (each
host is a launcher with a host name of its own). `bandwidth` reads the limited disk with one, two and four ranks,
`slow-path` with one of four behind a path of its own of 4 MB/s.

In rows that begin with `hosts`, two hosts are namespaces of this machine, joined by a switch: each with a name, a
network and processes of its own, and each takes its own name for 127.0.1.1. torchrun starts two processes on each, as
the guide says. `same`: two ranks on one host, two on two and four on two reach the rate of their accelerators.
`unseen`: data that one host does not see is refused, and the host is named. `killed`, `cut_off`: all processes of a
host are killed in the middle, or its packets are lost; rank 0 ends in time, with a row that names rank and host. `ddp`,
`wire`: 58 MB of gradients limit training over a link of 300 Mb/s, and not without that limit.

Beside causes it is a fault when a late rank or host is not named, rates are 2 % off the accelerators', four ranks
together are over 3 % off the disk's limit, or the sum of all ranks and R x the slowest are not within 6 % of what was
planted on the slow path.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loaderprobe.api.load import load as load_run
from loaderprobe.records.report import ConfigurationRow
from scripts.benches.harness import Progress, photographs, ran, wanted
from scripts.benches.plants import LATE_HOST
from scripts.benches.score import Marks, Row, Said
from tests.planted import hosts as planted_hosts
from tests.planted.hosts import Host, hosts
from tests.planted.slow_disk import CannotPlant, SlowDisk, slow_disk

MARKS = Marks(right_at_least=1.0)
SMALL, LARGE = "500x375", "1024x768"
IMAGES = {SMALL: 2400, LARGE: 800}
LIMIT, SLOW_PATH = 20e6, 4e6
"""Bytes/s of the disk, and of the path of one rank."""
FAST, SLOW, RATE = "emulated:100000", "emulated:60", 20.0
"""Accelerators; that of two hosts, in images/s."""
PLANTS = "scripts.benches.plants"
ROUNDS = 3
LIMIT_S, NOTICED_S = 400.0, 200.0
TIME_LIMIT_S = 120.0
"""Of a configuration: the others then wait a minute for a rank at each meeting, and some more for its word."""
LATER_S = 8.0
"""After the run has begun, a host is lost."""
WIRE = 'ip link set lo up && tc qdisc add dev lo root tbf rate 3gbit burst 1mb latency 20ms && exec "$@"'
SLOW_LINK = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "300mbit", "burst", "256kb", "latency", "50ms")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
            "--rdzv-backend", "c10d", "--rdzv-id", "hosts", "--rdzv-endpoint")  # fmt: skip
TWO_NAMES = f"""
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
unshare --uts sh -c 'hostname {LATE_HOST}; exec "$@"' sh "$@" >/dev/null 2>&1 & "$@"; code=$?; wait; exit $code"""
OFF_AT_MOST, SLOW_OFF_AT_MOST, RATE_OFF_AT_MOST = 0.03, 0.06, 0.02
RANKS = 4
KILL = "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -9 $p; done; true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is planted, and the causes that are right; none where a case is not about a cause."""

    name: str
    right: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--compute", FAST, "--batch-size", "8")
    data: str = SMALL
    ranks: str = "2"
    limited: bool = False
    around: Callable[[Sequence[str]], list[str]] = list
    """Wraps the command."""
    late: tuple[int | None, str] | None = None
    """Rank and host that must be named."""


def _over_the_wire(command: Sequence[str]) -> list[str]:
    return ["unshare", "--net", "sh", "-c", WIRE, "sh", *command]


def _under_two_names(command: Sequence[str]) -> list[str]:
    started = [*TORCHRUN, "127.0.0.1:29544", "--local-addr", "127.0.0.1", *command[1:]]
    return ["sh", "-c", TWO_NAMES, "sh", *started]


LATE = ("--compute", FAST, "--batch-size", "8", "--loader", f"{PLANTS}:LateLoader")
DDP = ("--compute", "cpu", "--batch-size", "4", "--model", f"{PLANTS}:wide")
CASES = (
    Case(name="storage", right=("storage",), ranks="2,4", limited=True),
    Case(name="decode", right=("preprocessing", "cpu"), data=LARGE),
    Case(name="compute", right=("compute",), options=("--compute", SLOW, "--batch-size", "8")),
    Case(name="imbalance", right=("imbalance",), options=LATE, late=(1, "")),
    Case(name="host", right=("imbalance",), ranks="2x2", options=LATE, around=_under_two_names, late=(None, LATE_HOST)),
    Case(name="ddp", right=("compute",), options=DDP),
    Case(name="wire", right=("gradients",), options=DDP, around=_over_the_wire),
)
ON_HOSTS = ("--batch-size", "4", "--workers", "1", "--no-serial")
EMULATED = ("--compute", f"emulated:{RATE:g}", *ON_HOSTS, "--rounds", "1")
LOST = ("--ranks", "2x1", "--compute", f"emulated:{RATE:g}", *ON_HOSTS, "--thorough",
        "--time-limit", f"{TIME_LIMIT_S:g}")  # fmt: skip
WIDE = ("--ranks", "2x1", "--compute", "cpu", "--model", f"{PLANTS}:wide", *ON_HOSTS, "--rounds", "1", "--thorough")
HOSTS = {
    "hosts-same": Case(name="hosts-same", options=("--ranks", "2,2x1,2x2", *EMULATED)),
    "hosts-unseen": Case(name="hosts-unseen", options=("--ranks", "2x2", *EMULATED)),
    "hosts-killed": Case(name="hosts-killed", options=LOST),
    "hosts-cut_off": Case(name="hosts-cut_off", options=LOST),
    "hosts-ddp": Case(name="hosts-ddp", options=WIDE),
    "hosts-wire": Case(name="hosts-wire", right=("gradients",), options=WIDE),
}


def names() -> list[str]:
    return [*(case.name for case in CASES), "bandwidth", "slow-path", *HOSTS]


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Each case into a run of `out`, or a file with what it printed; True when all were measured."""
    only = wanted(names(), chosen.only)
    progress, complete = Progress(len(only)), True
    cases = [case for case in CASES if case.name in only]
    with tempfile.TemporaryDirectory(prefix="loaderprobe-ranks-") as temporary:
        scratch = Path(temporary)
        for size in {case.data for case in cases} | {SMALL}:
            photographs(scratch / "own", size, IMAGES[size])
        for case in cases:
            complete &= _swept(case, scratch, out, chosen.rounds or ROUNDS)
            progress.done(case.name)
        for name, probed in {"bandwidth": _ladder, "slow-path": _slow_path}.items():
            if name in only:
                found = probed(scratch)
                complete &= found is not None
                (out / f"{name}.json").write_text(json.dumps(found))
                progress.done(name)
        for case in (HOSTS[name] for name in HOSTS if name in only):
            try:
                with hosts("left", "right", files=scratch, resolve=False) as made:
                    _on_hosts(case, made, scratch, out)
            except planted_hosts.CannotPlant as error:
                print(f"{case.name}: left out: {error}")
                complete = False
            progress.done(case.name)
    return complete


@contextmanager
def limited(scratch: Path) -> Iterator[SlowDisk | None]:
    """The small photographs on the disk of 20 MB/s; None where none can be planted, and the reason is printed."""
    fill = partial(shutil.copytree, scratch / "own" / SMALL, dirs_exist_ok=True)
    with ExitStack() as undo:
        try:
            ways: Any = ("blkio", "io.max")
            yield undo.enter_context(
                slow_disk(kind="token_bucket", fill=fill, scratch=scratch, bytes_per_s=LIMIT, ways=ways)
            )
        except CannotPlant as error:
            print(f"left out: {error}")
            yield None


def _swept(case: Case, scratch: Path, out: Path, rounds: int) -> bool:
    with ExitStack() as undo:
        data, around = scratch / "own" / case.data, case.around
        if case.limited:
            disk = undo.enter_context(limited(scratch))
            if disk is None:
                return False
            data, around = disk.folder, disk.command
        command = [
            sys.executable, "-m", "loaderprobe", "sweep", str(data), "--ranks", case.ranks, "--workers", "1",
            "--no-serial", "--rounds", str(rounds), "--thorough", "--out", str(out / case.name), "--quiet", "--json",
            *case.options,
        ]  # fmt: skip
        return ran(["sh", "-c", 'exec "$@" >/dev/null', "sh", *around(command)], case.name, LIMIT_S)


def _probe(disk: SlowDisk) -> list[str]:
    return [sys.executable, "-m", "loaderprobe", "bandwidth", str(disk.folder), "--readers", "2", "--json", "--quiet"]


def _ladder(scratch: Path) -> Any:
    """`bandwidth` with one, two and four ranks on the limited disk."""
    with limited(scratch) as disk:
        return disk and _answer(disk.command([*_probe(disk), "--ranks", f"1,2,{RANKS}"]))


def _slow_path(scratch: Path) -> Any:
    """One of four ranks in a cgroup of its own: 20 + 4 MB/s together, and four times 4 in step."""
    with limited(scratch) as disk:
        if disk is None or disk.members is None or not disk.how.startswith("cgroup v1"):
            print("slow-path: left out: only cgroup v1 limits one group and not those within it")
            return None
        group = disk.members.parent.with_name(f"{disk.members.parent.name}-slow-path")
        group.mkdir()
        try:
            device = disk.folder.stat().st_dev
            rule = f"{os.major(device)}:{os.minor(device)} {SLOW_PATH:.0f}"
            group.joinpath("blkio.throttle.read_bps_device").write_text(rule)
            # In a file, since torchrun has a meaning of its own for $$ in arguments.
            join = scratch / "join.sh"
            join.write_text(f'test "$RANK" = {RANKS - 1} && echo $$ > {group}/cgroup.procs\nexec "$@"\n')
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
            argv = [*launcher, "--no-python", "sh", str(join), *_probe(disk), "--ranks", str(RANKS)]
            return _answer(disk.command(argv))
        finally:
            group.rmdir()


def _answer(command: Sequence[str]) -> Any:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"bandwidth ended with code {done.returncode}")
    return json.loads(done.stdout)


def _on_hosts(case: Case, made: Sequence[Host], scratch: Path, out: Path) -> None:
    """One run on both hosts; what was said on the first, and the seconds until it ended there after what happened."""
    data = scratch / "own" / SMALL
    happens: Callable[[], object] | None = None
    if case.name == "hosts-unseen":
        made[0].run("mount", "-t", "tmpfs", "tmpfs", "/mnt")
        made[0].run("cp", "-r", str(data), "/mnt/own")
        data = Path("/mnt/own")
    elif case.name == "hosts-killed":
        # All processes of the second host, but the first, which keeps the host.
        kill = made[1].command(["sh", "-c", KILL])
        happens = partial(subprocess.run, kill, check=False, stderr=subprocess.DEVNULL)
    elif case.name == "hosts-cut_off":
        happens = made[1].cut_off
    elif case.name == "hosts-wire":
        for host in made:
            host.run(*SLOW_LINK)
    sweep = ["sweep", str(data), "--out", str(out / case.name), "--quiet", "--json", *case.options]
    command = [*TORCHRUN, f"{made[0].name}:29500", "-m", "loaderprobe", *sweep]
    logs = [scratch / f"{case.name}-{host.name}.txt" for host in made]
    running = [_started(host, command, log) for host, log in zip(made, logs, strict=True)]
    try:
        if happens:
            _wait_for(out / case.name / "run.json", running[0])
            time.sleep(LATER_S)
            happens()
        begin_s = time.monotonic()
        running[0].wait(LIMIT_S)
        seconds = time.monotonic() - begin_s
    finally:
        for each in running:
            if happens:  # the launcher of a host that is cut off waits for a quarter of an hour
                each.kill()
            each.wait(LIMIT_S)
    said = {"seconds": seconds, "said": logs[0].read_text(errors="replace")}
    (out / f"{case.name}.json").write_text(json.dumps(said))


def _started(host: Host, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(host.command(command), stdout=file, stderr=file)


def _wait_for(path: Path, running: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not path.exists() and running.poll() is None and time.monotonic() < until_s:
        time.sleep(0.2)


def load(folder: Path, chosen: argparse.Namespace) -> list[Row]:
    """All rows that were kept there."""
    only = wanted(names(), chosen.only)
    rows: list[Row] = []
    for case in (each for each in (*CASES, *HOSTS.values()) if each.name in only):
        kept = folder / f"{case.name}.json"
        said = json.loads(kept.read_text()) if kept.exists() else {}
        if (folder / case.name / "run.json").exists():
            rows += [_judged(case, row, said) for row in load_run(folder / case.name).report().summary.configurations]
        elif said:
            rows.append(_refused(case, said["said"]))
    for name in ("bandwidth", "slow-path"):
        if name in only and (folder / f"{name}.json").exists():
            found = json.loads((folder / f"{name}.json").read_text())
            rows += [_probed(name, phase, found["limit"]) for phase in found["phases"]] if found else []
    return rows


def _judged(case: Case, row: ConfigurationRow, kept: dict[str, Any]) -> Row:
    verdict, config = row.verdict, row.config
    name = f"{case.name} {config.nodes}x{config.ranks // config.nodes}"
    if case.options is LOST:
        return _lost(name, row, kept)
    if verdict is None:
        return Row(name=name, planted=case.right, said={"sweep": None}, faults=(f"not measured: {row.status}",))
    bound, rates, rate = verdict.bound, verdict.rates_images_per_s, verdict.images_per_s.value
    faults = []
    if case.late and (bound.rank, bound.host if bound.rank is None else "") != case.late:
        faults.append(f"named rank {bound.rank}, host {bound.host} instead of {case.late}")
    if case.name == "hosts-same" and abs(rate / (RATE * config.ranks) - 1) > RATE_OFF_AT_MOST:
        faults.append(f"{rate:.1f} images/s instead of {RATE * config.ranks:g}")
    if case.name == "hosts-ddp" and bound.cause == "gradients":
        faults.append("gradients over a fast link")
    gains = ((field, getattr(verdict.speedups, field)) for field in SHOWN)
    return Row(
        name=name,
        planted=case.right,
        said={"sweep": Said(cause=bound.cause, candidates=tuple(bound.candidates), side=bound.side)},
        details=(
            f"{rate:.1f} images/s, loader {rates.loader or 0:.0f}, compute {rates.compute or 0:.0f}; "
            + "  ".join(f"{field} {each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for field, each in gains if each),
        ),
        faults=tuple(faults),
    )


SHOWN = ("storage", "preprocessing", "transport", "compute", "imbalance", "straggler", "gradients")


def _lost(name: str, row: ConfigurationRow, kept: dict[str, Any]) -> Row:
    """A host that was lost is named in time."""
    facts = {} if row.reason is None else row.reason.facts
    named = (facts.get("rank"), facts.get("host")) == ("1", "right")
    told = f"after {kept['seconds']:.0f} s: {facts.get('error')} (at: {facts.get('stage')})"
    right = named and "exitcode  : 4" in kept["said"] and kept["seconds"] < NOTICED_S
    return Row(name=name, details=(told,), faults=() if right else (told,))


def _refused(case: Case, said: str) -> Row:
    """A folder that only the first host has."""
    line = next((each for each in said.splitlines() if "does not see" in each), said[-400:])
    return Row(name=case.name, details=(line,), faults=() if "right does not see" in line else (line,))


def _probed(name: str, phase: dict[str, Any], limit: dict[str, Any]) -> Row:
    """What ranks read together, and the slowest of them."""
    ranks, together = phase["ranks"], phase["bw_bytes"]
    slowest = min(phase["by_rank"], key=lambda each: each["bw_bytes"])
    fastest = max(each["bw_bytes"] for each in phase["by_rank"])
    in_step = ranks * slowest["bw_bytes"]
    told = (
        f"{together / 1e6:.2f} MB/s together, {phase['last_done_bw_bytes'] / 1e6:.2f} to the last, R x slowest "
        f"{in_step / 1e6:.2f}, fairness {slowest['bw_bytes'] / fastest:.2f}; {limit['sentence']}"
    )
    if name == "bandwidth":
        wrong = ranks == RANKS and abs(together / LIMIT - 1) > OFF_AT_MOST
    else:
        expected = ((together, LIMIT + SLOW_PATH), (in_step, RANKS * SLOW_PATH))
        wrong = any(abs(seen / planted - 1) > SLOW_OFF_AT_MOST for seen, planted in expected)
        wrong |= limit["code"] != "slow_rank" or slowest["rank"] != RANKS - 1
    return Row(name=f"{name} {ranks} ranks", details=(told,), faults=(told,) * wrong)

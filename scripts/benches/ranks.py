"""Is the verdict right for two ranks, and the bandwidth of four? Planted disks, a slow rank, a slow wire; as root.

Some 15 minutes. In each case `sweep --ranks 2` trains two ranks with a worker each: on a disk of 20 MB/s that they
share (with four ranks, too), with heavy decoding, with slow accelerators, with a worker that is late on one rank, with
58 MB of gradients, and with those over a loopback of 3 Gb/s (a network namespace of its own). With `--ranks 2x2`, both
workers of one of two hosts are late (each host is a launcher with a host name of its own). Then `bandwidth --ranks`
reads the limited disk with one, two and four ranks, and with one of four behind a path of its own of 4 MB/s.

Prints a row for each. Ends with code 1 when a verdict names another cause than was planted, or `imbalance` for equal
ranks; when four ranks together are over 3 % off the disk's limit; or when the slow path is not found, with the sum of
all ranks and R x the slowest within 6 % of what was planted.
"""

from __future__ import annotations

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

from loaderprobe.api.load import load
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Speedups
from scripts.benches.harness import Progress, parser, photographs, ran
from scripts.benches.ranks_plants import LATE_HOST
from tests.planted.slow_disk import CannotPlant, SlowDisk, slow_disk

SMALL, LARGE = "500x375", "1024x768"
IMAGES = {SMALL: 2400, LARGE: 800}
LIMIT, SLOW_PATH = 20e6, 4e6
"""Bytes/s of the disk, and of the path of one rank."""
FAST, SLOW = "emulated:100000", "emulated:60"
PLANTS = "scripts.benches.ranks_plants"
CASE_LIMIT_S = 400.0
WIRE = 'ip link set lo up && tc qdisc add dev lo root tbf rate 3gbit burst 1mb latency 20ms && exec "$@"'
TORCHRUN = (
    "-m torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29544 "
    "--rdzv-id hosts --local-addr 127.0.0.1"
)
TWO_HOSTS = f"""
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
unshare --uts sh -c 'hostname {LATE_HOST}; exec "$@"' sh "$@" >/dev/null 2>&1 & "$@"; code=$?; wait; exit $code"""
OFF_AT_MOST, SLOW_OFF_AT_MOST = 0.03, 0.06
RANKS = 4
SHOWN = ("storage", "preprocessing", "transport", "compute", "imbalance", "straggler", "gradients")

Wrap = Callable[[Sequence[str]], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is planted, and the causes that are right."""

    name: str
    right: frozenset[str]
    options: tuple[str, ...] = ("--compute", FAST, "--batch-size", "8")
    data: str = SMALL
    ranks: str = "2"
    limited: bool = False
    wire: bool = False
    hosts: bool = False


DDP = ("--compute", "cpu", "--batch-size", "4", "--model", f"{PLANTS}:wide")
CASES = (
    Case(name="storage", right=frozenset({"storage"}), ranks="2,4", limited=True),
    Case(name="decode", right=frozenset({"preprocessing", "cpu"}), data=LARGE),
    Case(name="compute", right=frozenset({"compute"}), options=("--compute", SLOW, "--batch-size", "8")),
    Case(
        name="imbalance", right=frozenset({"imbalance"}),
        options=("--compute", FAST, "--batch-size", "8", "--loader", f"{PLANTS}:LateLoader"),
    ),
    Case(
        name="host", right=frozenset({"imbalance"}), ranks="2x2", hosts=True,
        options=("--compute", FAST, "--batch-size", "8", "--loader", f"{PLANTS}:LateLoader"),
    ),
    Case(name="ddp", right=frozenset({"compute"}), options=DDP),
    Case(name="wire", right=frozenset({"gradients"}), options=DDP, wire=True),
)  # fmt: skip


def main() -> int:
    options = parser(__doc__)
    names = [*(case.name for case in CASES), "bandwidth"]
    options.add_argument("--only", default=",".join(names), help="with commas (%(default)s)")
    options.add_argument("--rounds", type=int, default=3, help="of each sweep (%(default)s)")
    options.add_argument("--keep", type=Path, help="keep the runs in this folder")
    chosen = options.parse_args()
    only = chosen.only.split(",")
    cases = [case for case in CASES if case.name in only]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-ranks-") as scratch:
        own, out = Path(scratch, "own"), chosen.keep or Path(scratch, "runs")
        for size in {case.data for case in cases} | {SMALL}:
            photographs(own, size, IMAGES[size])
        progress = Progress(len(cases) + 2 * ("bandwidth" in only))
        for case in cases:
            wrong += _measured(case, own, out, Path(scratch), chosen.rounds)
            progress.done(case.name)
        if "bandwidth" in only:
            wrong += _bandwidth(own, Path(scratch), progress)
    print(f"{wrong} wrong")
    return int(wrong > 0)


@contextmanager
def limited(own: Path, scratch: Path) -> Iterator[SlowDisk | None]:
    """The small photographs on the disk of 20 MB/s; None where none can be planted, and the reason is printed."""
    fill = partial(shutil.copytree, own / SMALL, dirs_exist_ok=True)
    with ExitStack() as undo:
        try:
            ways: Any = ("blkio", "io.max")
            yield undo.enter_context(
                slow_disk(kind="token_bucket", fill=fill, scratch=scratch, bytes_per_s=LIMIT, ways=ways)
            )
        except CannotPlant as error:
            print(f"left out: {error}")
            yield None


def _measured(case: Case, own: Path, out: Path, scratch: Path, rounds: int) -> int:
    """Sweep one case; how many of its rows are wrong."""
    place = out / case.name
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", "DATA", "--ranks", case.ranks, "--workers", "1", "--no-serial",
        "--rounds", str(rounds), "--thorough", "--out", str(place), "--quiet", "--json", *case.options,
    ]  # fmt: skip
    if not case.limited:
        wrap: Wrap = _over_the_wire if case.wire else _on_two_hosts if case.hosts else list
        return _swept(case, command, own / case.data, wrap)
    with limited(own, scratch) as disk:
        return 0 if disk is None else _swept(case, command, disk.folder, disk.command)


def _over_the_wire(command: Sequence[str]) -> list[str]:
    return ["unshare", "--net", "sh", "-c", WIRE, "sh", *command]


def _on_two_hosts(command: Sequence[str]) -> list[str]:
    python, _, _, *rest = command
    options = "--nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29544 --local-addr 127.0.0.1"
    started = [
        python,
        "-m",
        "torch.distributed.run",
        *options.split(),
        "--rdzv-id",
        "hosts",
        "-m",
        "loaderprobe",
        *rest,
    ]
    return ["sh", "-c", TWO_HOSTS, "sh", *started]


def _swept(case: Case, command: list[str], data: Path, wrap: Wrap) -> int:
    place = Path(command[command.index("--out") + 1])
    begun = time.monotonic()
    command = [str(data) if each == "DATA" else each for each in command]
    if not ran(["sh", "-c", 'exec "$@" >/dev/null', "sh", *wrap(command)], case.name, CASE_LIMIT_S):
        return 1
    took = time.monotonic() - begun
    rows = load(place).report().summary.configurations
    return sum(_judged(case, row, took / len(rows)) for row in rows)


def _judged(case: Case, row: ConfigurationRow, seconds: float) -> bool:
    """Print a row; True when it is wrong."""
    verdict = row.verdict
    if verdict is None:
        print(f"{case.name:10} {row.config.ranks} ranks: not measured: {row.status}")
        return True
    bound, rates = verdict.bound, verdict.rates_images_per_s
    wrong = bound.cause not in case.right
    said = (
        f"{bound.cause}{f' ({bound.host})' if bound.host else ''}{'' if bound.rank is None else f' rank {bound.rank}'}"
    )
    if case.name in ("imbalance", "host"):
        wrong |= (bound.rank, bound.host if bound.rank is None else "") != (
            (None, LATE_HOST) if case.hosts else (1, "")
        )
    print(
        f"{case.name:10} {row.config.ranks} ranks: {'WRONG ' if wrong else ''}{said}; "
        f"{verdict.images_per_s.value:.0f} images/s, loader {rates.loader or 0:.0f}, compute {rates.compute or 0:.0f}; "
        f"{seconds:.0f} s\n    {_speedups(verdict.speedups)}",
        flush=True,
    )
    return wrong


def _speedups(found: Speedups) -> str:
    shown = [(name, getattr(found, name)) for name in SHOWN]
    return "  ".join(f"{name} {each.value:.2f} [{each.low:.2f}, {each.high:.2f}]" for name, each in shown if each)


def _bandwidth(own: Path, scratch: Path, progress: Progress) -> int:
    """The ladder of ranks on the limited disk, then with a slow path for the last rank; how many are wrong."""
    with limited(own, scratch) as disk:
        if disk is None or disk.members is None:
            return 0
        probe = [sys.executable, "-m", "loaderprobe", "bandwidth", str(disk.folder)]
        probe += ["--readers", "2", "--json", "--quiet"]
        phases = _probed(disk.command([*probe, "--ranks", f"1,2,{RANKS}"]))["phases"]
        wrong = sum(_off(phase) for phase in phases)
        progress.done("bandwidth")
        wrong += _slow_path(disk, disk.members, probe, scratch)
        progress.done("slow path")
    return wrong


def _off(phase: dict[str, Any]) -> bool:
    off = phase["bw_bytes"] / LIMIT - 1
    wrong = bool(phase["ranks"] == RANKS and abs(off) > OFF_AT_MOST)
    print(f"bandwidth  {phase['ranks']} ranks x {phase['readers']}: {'WRONG ' * wrong}{_figures(phase)}, {off:+.1%}")
    return wrong


def _figures(phase: dict[str, Any]) -> str:
    slowest = min(each["bw_bytes"] for each in phase["by_rank"])
    fastest = max(each["bw_bytes"] for each in phase["by_rank"])
    return (
        f"{phase['bw_bytes'] / 1e6:.2f} MB/s together, {phase['last_done_bw_bytes'] / 1e6:.2f} to the last, "
        f"R x slowest {phase['ranks'] * slowest / 1e6:.2f}, fairness {slowest / fastest:.2f}"
    )


def _slow_path(disk: SlowDisk, members: Path, probe: Sequence[str], scratch: Path) -> int:
    """One of four ranks in a cgroup of its own: 20 + 4 MB/s together, and four times 4 in step."""
    if not disk.how.startswith("cgroup v1"):
        print(f"slow path: left out: {disk.how} limits a group and all within it")
        return 0
    group = members.parent.with_name(f"{members.parent.name}-slow-path")
    group.mkdir()
    try:
        device = disk.folder.stat().st_dev
        rule = f"{os.major(device)}:{os.minor(device)} {SLOW_PATH:.0f}"
        group.joinpath("blkio.throttle.read_bps_device").write_text(rule)
        # In a file, since torchrun has a meaning of its own for $$ in arguments.
        join = scratch / "join.sh"
        join.write_text(f'test "$RANK" = {RANKS - 1} && echo $$ > {group}/cgroup.procs\nexec "$@"\n')
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        argv = [*launcher, "--no-python", "sh", str(join), *probe, "--ranks", str(RANKS)]
        found = _probed(disk.command(argv))
    finally:
        group.rmdir()
    (phase,) = found["phases"]
    slowest = min(phase["by_rank"], key=lambda each: each["bw_bytes"])
    expected = ((phase["bw_bytes"], LIMIT + SLOW_PATH), (RANKS * slowest["bw_bytes"], RANKS * SLOW_PATH))
    wrong = any(abs(seen / planted - 1) > SLOW_OFF_AT_MOST for seen, planted in expected)
    wrong |= found["limit"]["code"] != "slow_rank" or slowest["rank"] != RANKS - 1
    print(f"slow path  {RANKS} ranks: {'WRONG ' * wrong}{_figures(phase)}; {found['limit']['sentence']}")
    return int(wrong)


def _probed(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"bandwidth ended with code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())

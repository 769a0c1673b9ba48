"""Family `ranks`: `sweep --ranks` and `bandwidth --ranks` with planted causes, on one host and on two; as root.

Some 25 minutes. Two ranks with a worker each train on a disk of 20 MB/s that they share (with four ranks, too), with
heavy decoding, with slow accelerators, with a worker that is late on one rank, with 58 MB of gradients, and with those
over a loopback of 3 Gb/s (a network namespace of its own). In `host`, both workers of one of two hosts are late (each
host is a launcher with a host name of its own). `bandwidth` reads the limited disk with one, two and four ranks.

Beside causes it is a fault when a late rank or host is not named, or four ranks together are over 3 % off the disk's
limit.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from loaderprobe.api.load import load as load_run
from loaderprobe.loaders.torch import ImageFiles, TorchLoader
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.report import ConfigurationRow
from scripts.benches.harness import Progress, answer, photographs, planted, program, ran, wanted
from scripts.benches.score import Row, Said
from tests.planted.slow_disk import SlowDisk

RIGHT_AT_LEAST = 1.0
SMALL, LARGE = "500x375", "1024x768"
IMAGES = {SMALL: 2400, LARGE: 800}
LIMIT = 20e6
"""Bytes/s of the disk."""
LIMIT_S = 400.0
OFF_AT_MOST = 0.03
FAST, SLOW = "emulated:100000", "emulated:60"
"""Accelerators."""
PLANTS = "scripts.benches.truth_ranks"
LATE_RANK, LATE_HOST, LATE_S = 1, "late", 0.015
"""Seconds of an image; the rank is of two."""
ROUNDS = 3
WIRE = 'ip link set lo up && tc qdisc add dev lo root tbf rate 3gbit burst 1mb latency 20ms && exec "$@"'
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
            "--rdzv-backend", "c10d", "--rdzv-id", "hosts", "--rdzv-endpoint")  # fmt: skip
TWO_NAMES = f"""
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
unshare --uts sh -c 'hostname {LATE_HOST}; exec "$@"' sh "$@" >/dev/null 2>&1 & "$@"; code=$?; wait; exit $code"""
RANKS = 4


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


def _by_torchrun(command: Sequence[str]) -> list[str]:
    """It sets RANK, by which the plant knows the late rank."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command[1:]]


def _under_two_names(command: Sequence[str]) -> list[str]:
    started = [*TORCHRUN, "127.0.0.1:29544", "--local-addr", "127.0.0.1", *command[1:]]
    return ["sh", "-c", TWO_NAMES, "sh", *started]


LATE = ("--compute", FAST, "--batch-size", "8", "--loader", f"{PLANTS}:LateLoader")
DDP = ("--compute", "cpu", "--batch-size", "4", "--model", f"{PLANTS}:wide")
CASES = (
    Case(name="storage", right=("storage",), ranks="2,4", limited=True),
    Case(name="decode", right=("preprocessing", "cpu"), data=LARGE),
    Case(name="compute", right=("compute",), options=("--compute", SLOW, "--batch-size", "8")),
    Case(name="imbalance", right=("imbalance",), options=LATE, around=_by_torchrun, late=(1, "")),
    Case(name="host", right=("imbalance",), ranks="2x2", options=LATE, around=_under_two_names, late=(None, LATE_HOST)),
    Case(name="ddp", right=("compute",), options=DDP),
    Case(name="wire", right=("gradients",), options=DDP, around=_over_the_wire),
)


class LateFiles(ImageFiles):
    """Images, each of which takes longer on one rank, or host; torchrun says which rank a process is."""

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        of_two = os.environ.get("WORLD_SIZE") == "2"
        if (of_two and os.environ.get("RANK") == str(LATE_RANK)) or socket.gethostname() == LATE_HOST:
            time.sleep(LATE_S)
        return super().__getitem__(k)


class LateLoader(TorchLoader):
    """The DataLoader of a sweep, over those."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, scratch)
        # Made by the sweep's own code, so that nothing else differs; workers start later.
        self._loader.dataset.__class__ = LateFiles


def wide(num_classes: int) -> nn.Module:
    """For 1,000 classes 14.5 million parameters, 58 MB of gradients, for little work."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(16), nn.Flatten(), nn.Linear(3 * 16 * 16, 8192), nn.ReLU(), nn.Linear(8192, num_classes)
    )


def names() -> list[str]:
    return [*(case.name for case in CASES), "bandwidth"]


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
        if "bandwidth" in only:
            bandwidth = _ladder(scratch)
            complete &= bandwidth is not None
            (out / "bandwidth.json").write_text(json.dumps(bandwidth))
            progress.done("bandwidth")
    return complete


def limited(undo: ExitStack, name: str, scratch: Path) -> SlowDisk | None:
    """The small photographs on the disk of 20 MB/s; None where none can be planted, and the reason is printed."""
    photos = scratch / "own" / SMALL
    return planted(undo, name, "token_bucket", LIMIT, fill=photos, scratch=scratch, ways=("blkio", "io.max"))


def _swept(case: Case, scratch: Path, out: Path, rounds: int) -> bool:
    with ExitStack() as undo:
        data, around = scratch / "own" / case.data, case.around
        if case.limited:
            disk = limited(undo, case.name, scratch)
            if disk is None:
                return False
            data, around = disk.folder, disk.command
        command = program(
            "sweep", data, "--ranks", case.ranks, "--workers", 1, "--no-serial", "--rounds", rounds, "--thorough",
            "--out", out / case.name, "--quiet", *case.options,
        )  # fmt: skip
        return ran(around(command), case.name, LIMIT_S, quiet=True)


def _ladder(scratch: Path) -> Any:
    """`bandwidth` with one, two and four ranks on the limited disk."""
    with ExitStack() as undo:
        disk = limited(undo, "bandwidth", scratch)
        probe = program("bandwidth", "--readers", 2, "--ranks", f"1,2,{RANKS}", "--json", "--quiet")
        return disk and answer(disk.command([*probe, str(disk.folder)]))


def load(folder: Path, chosen: argparse.Namespace) -> list[Row]:
    only = wanted(names(), chosen.only)
    rows: list[Row] = []
    for case in (case for case in CASES if case.name in only and (folder / case.name / "run.json").exists()):
        rows += [_judged(case, row) for row in load_run(folder / case.name).report().configurations]
    if "bandwidth" in only and (folder / "bandwidth.json").exists():
        bandwidth = json.loads((folder / "bandwidth.json").read_text())
        rows += [_probed(phase, bandwidth["limit"]) for phase in bandwidth["phases"]] if bandwidth else []
    return rows


def _judged(case: Case, row: ConfigurationRow) -> Row:
    verdict, config = row.verdict, row.config
    name = f"{case.name} {config.nodes}x{config.ranks // config.nodes}"
    if verdict is None:
        return Row(name=name, planted=case.right, said={"sweep": None}, faults=(f"not measured: {row.status}",))
    bound, rates, rate = verdict.bound, verdict.rates_images_per_s, verdict.images_per_s.value
    faults = []
    if case.late and (bound.rank, bound.host if bound.rank is None else "") != case.late:
        faults.append(f"named rank {bound.rank}, host {bound.host} instead of {case.late}")
    gains = ((name, gain) for name, gain in verdict.speedups.items() if name in SHOWN)
    return Row(
        name=name,
        planted=case.right,
        said={"sweep": Said(cause=bound.cause, candidates=tuple(bound.candidates), side=bound.side)},
        details=(
            f"{rate:.1f} images/s, loader {rates.loader or 0:.0f}, compute {rates.compute or 0:.0f}; "
            + "  ".join(f"{field} {gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]" for field, gain in gains if gain),
        ),
        faults=tuple(faults),
    )


SHOWN = ("storage", "preprocessing", "transport", "compute", "imbalance", "straggler", "gradients")


def _probed(phase: dict[str, Any], limit: dict[str, Any]) -> Row:
    """What ranks read together, and the slowest of them."""
    ranks, together = phase["ranks"], phase["bw_bytes"]
    slowest = min(phase["by_rank"], key=lambda rank: rank["bw_bytes"])
    fastest = max(rank["bw_bytes"] for rank in phase["by_rank"])
    detail = (
        f"{together / 1e6:.2f} MB/s together, R x slowest "
        f"{ranks * slowest['bw_bytes'] / 1e6:.2f}, fairness {slowest['bw_bytes'] / fastest:.2f}; {limit['sentence']}"
    )
    wrong = ranks == RANKS and abs(together / LIMIT - 1) > OFF_AT_MOST
    return Row(name=f"bandwidth {ranks} ranks", details=(detail,), faults=(detail,) * wrong)

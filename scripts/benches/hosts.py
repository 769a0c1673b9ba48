"""Do ranks on several hosts measure what they measure on one, and is a host named that fails? As root, some 15 minutes.

The hosts are namespaces of this machine, joined by a switch: each with a name, a network and processes of its own. On
two of them torchrun starts two processes each, as the guide says. `same`: the verdicts are those of four ranks on one
host. `names`: they are, too, where a host takes its own name for 127.0.1.1. `unseen`: data that one host does not see
is refused, and the host is named. `killed` and `cut_off`: all processes of a host are killed in the middle, or its
packets are lost; the run ends in time with the rank and the host. `wire`: over a link of 300 Mb/s, 58 MB of gradients
are what limits, and not without that limit.

Prints a row for each. Ends with code 1 when one is not so.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaderprobe.api.load import load
from scripts.benches.harness import Progress, parser, photographs
from tests.planted.hosts import CannotPlant, Host, hosts

NAMES = ("left", "right")
PORT = 29500
LOCAL = 2
"""Processes of each host."""
IMAGES = 1200
RATES = ("--compute", "emulated:60", "--batch-size", "8", "--workers", "1", "--no-serial", "--rounds", "1")
DDP = ("--compute", "cpu", "--batch-size", "4", "--model", "scripts.benches.ranks_plants:wide", "--workers", "1",
       "--no-serial", "--rounds", "1", "--thorough")  # fmt: skip
LAYOUTS = "2,2x1,2x2"
WIRE = ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "300mbit", "burst", "256kb", "latency", "50ms")
OFF_AT_MOST = 0.05
TIME_LIMIT_S = 120.0
"""Of a configuration, where a host is lost: the others then wait a minute for it."""
NOTICED_S = 180.0
"""For all to end then."""
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the processes of the hosts ended."""

    codes: list[int]
    said: list[str]
    seconds: float


def torchrun(rdzv: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """It, with loaderprobe in place of a script."""
    launcher = [sys.executable, "-m", "torch.distributed.run", *rdzv, "--nproc-per-node", str(LOCAL)]
    return [*launcher, "-m", "loaderprobe", *arguments]


def begun(made: Sequence[Host], arguments: Sequence[str]) -> list[subprocess.Popen[str]]:
    """The same command on each host."""
    rdzv = ["--nnodes", str(len(made)), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NAMES[0]}:{PORT}"]
    command = torchrun([*rdzv, "--rdzv-id", "7"], arguments)
    return [
        subprocess.Popen(host.command(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for host in made
    ]


def ended(running: Sequence[subprocess.Popen[str]], limit_s: float = LIMIT_S) -> Ended:
    """Wait for all; -9 for one that does not end in time."""
    begin_s, said = time.monotonic(), []
    for each in running:
        try:
            said.append(each.communicate(timeout=max(1.0, begin_s + limit_s - time.monotonic()))[0])
        except subprocess.TimeoutExpired:
            each.kill()
            said.append(each.communicate()[0])
    return Ended(codes=[each.returncode for each in running], said=said, seconds=time.monotonic() - begin_s)


def swept(data: Path, out: Path, options: Sequence[str]) -> list[str]:
    """The arguments of a sweep."""
    return ["sweep", str(data), "--out", str(out), "--quiet", *options]

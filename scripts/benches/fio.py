"""The bandwidth probe against fio: the same files, number of readers and block size, in turn.

On a disk throttled to 20 and to 200 MB/s, and on the machine's own. Two patterns: whole files of a folder through
the page cache, cold, and blocks of 128 KiB of one file past it. Every round measures both engines, the first of
the two by turns; printed is the median of the rounds' ratios, probe over fio, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from loaderprobe.records.bandwidth import PhaseName
from loaderprobe.stats import median
from loaderprobe.storage.files import sample_files
from loaderprobe.storage.fio import FioEngine, fio_version
from loaderprobe.storage.phase import PhaseSettings, run_phase
from loaderprobe.storage.reader import ColdPieces, ReadEngine, ThreadEngine
from loaderprobe.system.device import locate
from loaderprobe.system.limits import cores_available
from loaderprobe.system.pagecache import LinuxPageCache
from scripts.benches.harness import Plant, alternated, answer, child, parser, planted, spread
from tests.planted.files import random_files

READERS = 4
FILES = 2000
BLOCKS_FILE_BYTES = 300_000_000
DISK_BYTES = 900_000_000
PATTERNS: dict[str, tuple[str, PhaseName, bool]] = {
    "whole files, cold": ("files", "files", False),
    "128 KiB blocks, direct": ("blocks", "direct", True),
}


def fill(folder: Path) -> None:
    """Files like photographs, and one large file."""
    (folder / "files").mkdir()
    random_files(folder / "files", count=FILES)
    with (folder / "blocks").open("wb") as file:
        for _ in range(BLOCKS_FILE_BYTES // 10**6):
            file.write(os.urandom(10**6))
        os.fsync(file.fileno())


def compare(folder: Path, rounds: int, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """(probe, fio) in bytes/s of every round, by pattern. Run inside the limit."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, (part, phase, direct) in PATTERNS.items():
        settings = PhaseSettings(
            name=phase, engine=ThreadEngine(),
            supply=ColdPieces(sample_files(folder / part, limit_bytes=4 * 10**9, seed=0), LinuxPageCache(), seed=0),
            location=locate(folder), cores_available=cores_available(),
            readers=READERS, seconds=seconds, longest_s=3 * seconds, direct=direct,
        )  # fmt: skip
        found[name] = [in_turn(settings, number) for number in range(rounds)]
    return found


def in_turn(settings: PhaseSettings, number: int) -> tuple[float, float]:
    """(probe, fio) in bytes/s of one round."""
    engines: dict[str, type[ReadEngine]] = {"fio": FioEngine, "probe": ThreadEngine}
    runs = {name: partial(run_phase, replace(settings, engine=engine())) for name, engine in engines.items()}
    rates = {name: phase.bw_bytes for name, phase in alternated(runs, number).items()}
    return rates["probe"], rates["fio"]


def show(disk: str, found: dict[str, list[tuple[float, float]]]) -> None:
    for pattern, pairs in found.items():
        ratios = [probe / fio for probe, fio in pairs]
        probe, fio = (median([pair[side] for pair in pairs]) / 1e6 for side in (0, 1))
        print(f"{disk:12} {pattern:24} {probe:9.1f} {fio:9.1f}  {spread(ratios)}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--seconds", type=float, default=4.0, help="of the shortest phase")
    options.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        print(json.dumps(compare(chosen.child, chosen.rounds, chosen.seconds)))
        return
    print(f"{READERS} readers, {chosen.rounds} rounds, {fio_version()}; MB/s are medians, MB is 10^6 bytes")
    print(f"{'disk':12} {'pattern':24} {'probe':>9} {'fio':>9}  probe / fio")
    for limit in (20e6, 200e6, None):
        name = f"{limit / 1e6:.0f} MB/s" if limit else "this machine"
        with tempfile.TemporaryDirectory(prefix="loaderprobe-fio-") as scratch, ExitStack() as undo:
            if limit:
                place = planted(
                    undo, name, "token_bucket", limit, fill=fill, scratch=Path(scratch), size_bytes=DISK_BYTES
                )
            else:
                fill(Path(scratch))
                place = Plant(folder=Path(scratch))
            if place:
                asked = ("--rounds", chosen.rounds, "--seconds", chosen.seconds, "--child", place.folder)
                show(name, answer(place.command(child("fio", *asked))))


if __name__ == "__main__":
    main()

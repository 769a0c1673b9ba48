"""The probe against fio: the same files, number of readers and block size, in turn.

On a disk throttled to 20 and to 200 MB/s, and on the machine's own. Two patterns: whole files of a folder through
the page cache, cold, and blocks of 128 KiB of one file past it. Every round measures both engines, the first of
the two by turns; printed is the median of the rounds' ratios, probe over fio, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from loaderprobe.records.bandwidth import LegName
from loaderprobe.stats import median
from loaderprobe.storage.files import sample_files
from loaderprobe.storage.fio import FioEngine, fio_version
from loaderprobe.storage.phase import Course, run_phase
from loaderprobe.storage.reader import ReadEngine, ThreadEngine
from loaderprobe.storage.supply import Supply
from loaderprobe.system.cpu import cores_available
from loaderprobe.system.device import locate
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.testing.slow_disk import CannotPlant, slow_disk
from tests.slow_disks import random_files

READERS = 4
FILES = 2000
BLOCKS_FILE_BYTES = 300_000_000
DISK_BYTES = 900_000_000
PATTERNS: dict[str, tuple[str, LegName, bool]] = {
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
        supply = Supply(sample_files(folder / part, limit_bytes=4 * 10**9, seed=0), LinuxPageCache(), seed=0)
        found[name] = []
        for number in range(rounds):
            rates: dict[str, float] = {}
            engines: list[ReadEngine] = [ThreadEngine(), FioEngine()]
            for engine in engines[:: 1 if number % 2 else -1]:
                course = Course(
                    name=phase, engine=engine, supply=supply, location=locate(folder),
                    cores_available=cores_available(),
                    readers=READERS, seconds=seconds, longest_s=3 * seconds, direct=direct,
                )  # fmt: skip
                rates[engine.name] = run_phase(course).bw_bytes
            found[name].append((rates["threads"], rates["fio"]))
    return found


def show(disk: str, found: dict[str, list[tuple[float, float]]]) -> None:
    for pattern, pairs in found.items():
        ratios = [probe / fio for probe, fio in pairs]
        probe, fio = (median([pair[side] for pair in pairs]) / 1e6 for side in (0, 1))
        print(
            f"{disk:12} {pattern:24} {probe:9.1f} {fio:9.1f} {median(ratios):7.3f}  "
            f"{min(ratios):.3f} to {max(ratios):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0, help="of the shortest phase")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(compare(options.measure, options.rounds, options.seconds)))
        return
    print(f"{READERS} readers, {options.rounds} rounds, {fio_version()}; MB/s are medians, MB is 10^6 bytes")
    print(f"{'disk':12} {'pattern':24} {'probe':>9} {'fio':>9} {'ratio':>7}  range")
    here = [sys.executable, __file__, "--rounds", str(options.rounds), "--seconds", str(options.seconds), "--measure"]
    for limit in (20e6, 200e6, None):
        with tempfile.TemporaryDirectory(prefix="loaderprobe-fio-") as scratch, ExitStack() as stack:
            if limit is None:
                fill(Path(scratch))
                command = [*here, scratch]
            else:
                try:
                    disk = stack.enter_context(
                        slow_disk(
                            kind="banked", bytes_per_s=limit, fill=fill, scratch=Path(scratch), size_bytes=DISK_BYTES
                        )
                    )
                except CannotPlant as error:
                    print(f"{limit / 1e6:.0f} MB/s: left out: {error}")
                    continue
                command = disk.command([*here, str(disk.folder)])
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            show("this machine" if limit is None else f"{limit / 1e6:.0f} MB/s", json.loads(done.stdout))


if __name__ == "__main__":
    main()

"""Are the three kinds of device told apart? `loaderprobe bandwidth` on planted disks, again and again.

Three disks are planted (banked and serial at 20 MB/s, latency at 10 ms a request) and probed in turn with a
folder on the machine's own disk, which is throttled in none of these ways. Printed is what each was called, and
the range of the two figures that decide.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from loaderprobe.testing.slow_disk import CannotPlant, slow_disk
from tests.slow_disks import files_of_one_request, random_files

FILES = 1500
RATE = 20e6
LATENCY_S = 0.010


def probed(command: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the probe failed: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", default="1")
    options = parser.parse_args()
    probe = [sys.executable, "-m", "loaderprobe.cli", "bandwidth", "--json", "--readers", "1,4,16"]
    many = partial(random_files, count=FILES)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-kinds-") as scratch, ExitStack() as disks:
        own = Path(scratch, "own")
        own.mkdir()
        random_files(own, count=FILES)
        commands = {"unknown": [*probe, "--seconds", options.seconds, str(own)]}
        plants: dict[str, dict[str, Any]] = {
            "banked": {"bytes_per_s": RATE, "fill": many},
            "serial": {"bytes_per_s": RATE, "fill": many},
            "latency": {"latency_s": LATENCY_S, "fill": files_of_one_request},
        }
        for kind, plant in plants.items():
            place = Path(scratch, kind)
            place.mkdir()
            try:
                disk = disks.enter_context(slow_disk(kind=kind, scratch=place, **plant))  # type: ignore[arg-type]
            except CannotPlant as error:
                print(f"{kind}: left out: {error}")
                continue
            print(f"{kind}: {disk.how}")
            commands[kind] = disk.command([*probe, "--seconds", options.seconds, str(disk.folder)])
        report(commands, options.rounds)


def report(commands: dict[str, list[str]], rounds: int) -> None:
    called: dict[str, Counter[str]] = defaultdict(Counter)
    figures: dict[str, list[list[float]]] = defaultdict(list)
    limits: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(rounds):
        for planted, command in commands.items():
            found = probed(command)
            called[planted][found["kind"]["kind"]] += 1
            limits[planted][found["limit"]["by"]] += 1
            figures[planted].append([each["value"] for each in found["kind"]["evidence"]])
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    print(f"{'planted':10} {'called':34} {'16 readers over 1':>20} {'paced over unpaced':>20}  limit")
    for planted in commands:
        words = ", ".join(f"{kind} {count} of {rounds}" for kind, count in called[planted].most_common())
        columns = [f"{min(column):.2f} to {max(column):.2f}" for column in zip(*figures[planted], strict=True)]
        print(f"{planted:10} {words:34} {columns[0]:>20} {columns[1]:>20}  {dict(limits[planted])}")
    if any(set(called[planted]) != {planted} for planted in commands):
        sys.exit(1)


if __name__ == "__main__":
    main()

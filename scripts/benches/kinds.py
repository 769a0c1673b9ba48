"""Does `loaderprobe bandwidth` recognise the three kinds of device? Repeated probes of planted disks.

Three disks are planted (token bucket and single server at 20 MB/s, latency at 10 ms a request). They are probed in
turn with a folder on the machine's own disk, which is throttled in none of these ways. It prints the kind that each
was given, and the range of the two figures that decide.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from scripts.benches.harness import LATENCY_S, answer, parser, planted
from tests.planted.files import files_of_one_request, random_files

FILES = 1500
RATE = 20e6


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--seconds", default="1")
    chosen = options.parse_args()
    probe = [sys.executable, "-m", "loaderprobe", "bandwidth", "--json", "--readers", "1,4,16"]
    probe += ["--seconds", chosen.seconds]
    many = partial(random_files, count=FILES)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-kinds-") as scratch, ExitStack() as undo:
        own = Path(scratch, "own")
        own.mkdir()
        random_files(own, count=FILES)
        commands = {"unknown": [*probe, str(own)]}
        limits: dict[str, tuple[float, Callable[[Path], None]]] = {
            "token_bucket": (RATE, many),
            "single_server": (RATE, many),
            "latency": (LATENCY_S, files_of_one_request),
        }
        for kind, (limit, fill) in limits.items():
            place = Path(scratch, kind)
            place.mkdir()
            if disk := planted(undo, kind, kind, limit, fill=fill, scratch=place):
                commands[kind] = disk.command([*probe, str(disk.folder)])
        report(commands, chosen.rounds)


def report(commands: dict[str, list[str]], rounds: int) -> None:
    called: dict[str, Counter[str]] = defaultdict(Counter)
    figures: dict[str, list[list[float]]] = defaultdict(list)
    limits: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(rounds):
        for kind, command in commands.items():
            found = answer(command, quiet=True)
            called[kind][found["kind"]["kind"]] += 1
            limits[kind][found["limit"]["by"]] += 1
            figures[kind].append([each["value"] for each in found["kind"]["evidence"]])
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    print(f"{'planted':10} {'called':34} {'16 readers over 1':>20} {'paced over unpaced':>20}  limit")
    for kind in commands:
        words = ", ".join(f"{word} {count} of {rounds}" for word, count in called[kind].most_common())
        columns = [f"{min(column):.2f} to {max(column):.2f}" for column in zip(*figures[kind], strict=True)]
        print(f"{kind:10} {words:34} {columns[0]:>20} {columns[1]:>20}  {dict(limits[kind])}")
    if any(set(called[kind]) != {kind} for kind in commands):
        sys.exit(1)


if __name__ == "__main__":
    main()

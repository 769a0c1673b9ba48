"""The kinds of device that the bandwidth probe reports, against disks of known kinds.

Three disks are planted (token bucket and single server at 20 MB/s, latency at 10 ms a request), and probed in turn with
a folder on the machine's own disk, which is throttled in none of these ways. It prints the kind that each was given,
and the range of the two figures that decide; another kind than was planted is wrong, and so is another limit than that
of this kind.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts.benches.harness import LATENCY_S, answer, parser, planted, program
from tests.planted.files import files_of_one_request, random_files

RATE = 20e6
"""Bytes/s."""
many = partial(random_files, count=1500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What is planted, filled by what, and the limit that the probe must name."""

    rate: float
    """Bytes/s, or s a request."""
    fill: Callable[[Path], None]
    limit: str


DISKS = {
    "token_bucket": Disk(rate=RATE, fill=many, limit="bandwidth"),
    "single_server": Disk(rate=RATE, fill=many, limit="bandwidth"),
    "latency": Disk(rate=LATENCY_S, fill=files_of_one_request, limit="latency"),
}


def report(commands: Mapping[str, Sequence[str]], rounds: int) -> bool:
    """Probe the disks in turn, and print a line for each; True where all were called what they are."""
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
    print(f"{'planted':14} {'called':34} {'16 readers over 1':>20} {'paced over unpaced':>20}  limit")
    for kind in commands:
        words = ", ".join(f"{word} {count} of {rounds}" for word, count in called[kind].most_common())
        columns = [f"{min(column):.2f} to {max(column):.2f}" for column in zip(*figures[kind], strict=True)]
        print(f"{kind:14} {words:34} {columns[0]:>20} {columns[1]:>20}  {dict(limits[kind])}")
    return all(
        {*called[kind]} == {kind} and (kind not in DISKS or {*limits[kind]} == {DISKS[kind].limit}) for kind in commands
    )


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--seconds", type=float, default=1.0, help="of the shortest phase (%(default)s)")
    chosen = options.parse_args()
    probe = program("bandwidth", "--json", "--readers", "1,4,16", "--seconds", chosen.seconds)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-kinds-") as scratch, ExitStack() as undo:
        places = {kind: Path(scratch, kind) for kind in ("unknown", *DISKS)}
        for place in places.values():
            place.mkdir()
        many(places["unknown"])
        commands = {"unknown": [*probe, str(places["unknown"])]}
        for kind, disk in DISKS.items():
            if plant := planted(undo, kind, kind, disk.rate, fill=disk.fill, scratch=places[kind]):
                commands[kind] = plant.command([*probe, str(plant.folder)])
        return 0 if report(commands, chosen.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())

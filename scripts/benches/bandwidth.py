"""The kinds of device that the bandwidth probe reports, against disks of known kinds; with `--fio`, its rates.

Three disks are planted (token bucket and single server at 20 MB/s, latency at 10 ms a request), and probed in turn with
a folder on the machine's own disk, which is throttled in none of these ways. It prints the kind that each was given,
and the range of the two figures that decide; another kind than was planted is wrong, and so is another limit than that
of this kind.

`--fio`: probe and fio read the same files in the same order with 4 readers, in turn, on a disk throttled to 20 and to
200 MB/s, and on the machine's own: whole files of a folder through the page cache, cold, and blocks of 128 KiB of one
file past it. Printed is the median of the rounds' ratios, probe over fio, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loaderprobe.errors import MissingPart
from loaderprobe.records.phases import PhaseName
from loaderprobe.stats import median
from loaderprobe.storage.files import Piece, sample_files
from loaderprobe.storage.phase import PhaseSettings, run_phase
from loaderprobe.storage.reader import ReadOrder, Supply, ThreadEngine
from loaderprobe.system.device import locate
from loaderprobe.system.limits import cores_available
from loaderprobe.system.pagecache import LinuxPageCache
from scripts.benches.harness import LATENCY_S, alternated, answer, child, own_disk, parser, planted, program, spread
from tests.planted.slow_disk import SlowDisk, files_of_one_request, random_files

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
            bandwidth = answer(command, quiet=True)
            called[kind][bandwidth["kind"]["kind"]] += 1
            limits[kind][bandwidth["limit"]["by"]] += 1
            figures[kind].append([evidence["value"] for evidence in bandwidth["kind"]["evidence"]])
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    print(f"{'planted':14} {'called':34} {'16 readers over 1':>20} {'paced over unpaced':>20}  limit")
    for kind in commands:
        words = ", ".join(f"{word} {count} of {rounds}" for word, count in called[kind].most_common())
        columns = [f"{min(column):.2f} to {max(column):.2f}" for column in zip(*figures[kind], strict=True)]
        print(f"{kind:14} {words:34} {columns[0]:>20} {columns[1]:>20}  {dict(limits[kind])}")
    return all(
        {*called[kind]} == {kind} and (kind not in DISKS or {*limits[kind]} == {DISKS[kind].limit}) for kind in commands
    )


READERS = 4
DIRECT_BYTES = 4096
"""Past the page cache fio treats a short read at the end of a file as an error, so the remainder is left out."""
PASSES, MOST_READS = 20, 400_000
"""How often fio's list is repeated: it drops a file from the page cache whenever it opens it."""
PATTERNS: dict[str, tuple[PhaseName, str]] = {
    "whole files, cold": ("files", "files"),
    "128 KiB blocks, direct": ("direct", "blocks"),
}


def fill(folder: Path) -> None:
    """Files like photographs, and one large file."""
    (folder / "files").mkdir()
    random_files(folder / "files", count=2000)
    with (folder / "blocks").open("wb") as file:
        for _ in range(300):
            file.write(os.urandom(10**6))
        os.fsync(file.fileno())


def fio_rate(settings: PhaseSettings) -> float:
    """Bytes/s that fio's psync engine gets from the pieces of a phase, evicted before; it keeps no time below 1 s.

    It replays a list of reads for each reader (`read_iolog`), the only way to make it read whole files of different
    sizes in a given order.
    """
    settings.supply.spoil()
    pieces, direct = settings.supply.ahead(1), settings.order.direct
    job = f"[global]\nioengine=psync\nthread=1\nreplay_no_stall=1\nfadvise_hint=0\ninvalidate=1\ndirect={int(direct)}\n"
    job += f"runtime={round(1000 * settings.order.seconds)}ms\n"
    with tempfile.TemporaryDirectory(prefix="loaderprobe-fio-") as scratch:
        for reader in range(settings.order.readers):
            log = Path(scratch, f"reads-{reader}")
            log.write_text(
                "\n".join(_reads(pieces[reader :: settings.order.readers], direct, f"{scratch}/{reader}-")) + "\n"
            )
            job += f"[reader-{reader}]\nread_iolog={log}\n"
        command = ["fio", "--readonly", "--allow_file_create=0", "--output-format=json", "--group_reporting", "-"]
        done = subprocess.run(command, input=job, stdout=subprocess.PIPE, text=True, check=True)
    settings.supply.spoil()
    # A warning may come before the JSON.
    (group,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return float(group["read"]["io_bytes"] / (group["read"]["runtime"] / 1000))


def _reads(pieces: Sequence[Piece], direct: bool, links: str) -> list[str]:
    """The list of one reader, by links to the files: the names in it are short, without spaces."""
    names: dict[Path, str] = {}
    for piece in pieces:
        if piece.path not in names:
            names[piece.path] = f"{links}{len(names)}"
            Path(names[piece.path]).symlink_to(piece.path.absolute())
    lines = ["fio version 2 iolog", *(f"{name} add" for name in names.values())]
    for piece in [*pieces] * max(1, min(PASSES, MOST_READS // len(pieces) // READERS)):
        size, name = piece.size_bytes, names[piece.path]
        size = size // DIRECT_BYTES * DIRECT_BYTES if direct else size
        lines += [f"{name} open", f"{name} read {piece.offset} {size}", f"{name} close"] if size else []
    return lines


def rates(folder: str, rounds: int, seconds: float) -> dict[str, list[dict[str, float]]]:
    """Bytes/s of fio and of the probe in every round, by pattern. Run inside the limit."""
    by_pattern = {}
    for name, (phase, part) in PATTERNS.items():
        settings = PhaseSettings(
            name=phase, engine=ThreadEngine(),
            supply=Supply(sample_files(Path(folder, part), seed=0), LinuxPageCache(), seed=0),
            location=locate(Path(folder)), cores_available=cores_available(),
            order=ReadOrder(readers=READERS, seconds=seconds, direct=phase == "direct"), longest_s=3 * seconds,
        )  # fmt: skip
        runs = {"fio": partial(fio_rate, settings), "probe": partial(_probe_rate, settings)}
        by_pattern[name] = [alternated(runs, number) for number in range(rounds)]
    return by_pattern


def _probe_rate(settings: PhaseSettings) -> float:
    return run_phase(settings).bw_bytes


def compare_with_fio(chosen: argparse.Namespace) -> int:
    """Raises MissingPart where fio is not installed."""
    if shutil.which("fio") is None:
        raise MissingPart("fio is not installed", hint="apt-get install fio")
    rounds, seconds = chosen.rounds or 6, max(4.0, chosen.seconds)
    print(f"{READERS} readers, {rounds} rounds; MB/s are medians, MB is 10^6 bytes")
    print(f"{'disk':12} {'pattern':24} {'probe':>9} {'fio':>9}  probe / fio")
    for name, limit in (("20 MB/s", 20e6), ("200 MB/s", 200e6), ("this machine", None)):
        with tempfile.TemporaryDirectory(prefix="loaderprobe-fio-") as scratch, ExitStack() as undo:
            plant: SlowDisk | None = own_disk(Path(scratch))
            if limit:
                size = 900_000_000
                plant = planted(undo, name, "token_bucket", limit, fill=fill, scratch=Path(scratch), size_bytes=size)
            else:
                fill(Path(scratch))
            if plant is None:
                continue
            for pattern, pairs in answer(plant.command(child(rates, plant.folder, rounds, seconds))).items():
                probe, fio = (median([pair[side] for pair in pairs]) / 1e6 for side in ("probe", "fio"))
                ratios = spread([pair["probe"] / pair["fio"] for pair in pairs])
                print(f"{name:12} {pattern:24} {probe:9.1f} {fio:9.1f}  {ratios}")
    return 0


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--fio", action="store_true", help="compare rates with fio")
    options.add_argument("--rounds", type=int, help="20; with --fio 6")
    options.add_argument("--seconds", type=float, default=1.0, help="of the shortest phase; with --fio at least 4")
    chosen = options.parse_args()
    if chosen.fio:
        return compare_with_fio(chosen)
    probe = program("bandwidth", "--json", "--readers", "1,4,16", "--seconds", chosen.seconds)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-kinds-") as scratch, ExitStack() as undo:
        folder = Path(scratch, "own")
        folder.mkdir()
        many(folder)
        commands = {"unknown": [*probe, str(folder)]}
        for kind, disk in DISKS.items():
            if plant := planted(undo, kind, kind, disk.rate, fill=disk.fill, scratch=Path(scratch)):
                commands[kind] = plant.command([*probe, str(plant.folder)])
        return 0 if report(commands, chosen.rounds or 20) else 1


if __name__ == "__main__":
    sys.exit(main())

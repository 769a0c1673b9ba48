"""The bandwidth probe against fio, and the kinds of device that it reports against disks of known kinds.

`fio`: the same files, number of readers and block size, in turn, on a disk throttled to 20 and to 200 MB/s, and on the
machine's own. Two patterns: whole files of a folder through the page cache, cold, and blocks of 128 KiB of one file
past it. Every round measures both engines, the first of the two by turns; printed is the median of the rounds' ratios,
probe over fio, with their range.

`kinds`: three disks are planted (token bucket and single server at 20 MB/s, latency at 10 ms a request), and probed in
turn with a folder on the machine's own disk, which is throttled in none of these ways. It prints the kind that each
was given, and the range of the two figures that decide; another kind than was planted is wrong, and so is another limit
than that of this kind.
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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from loaderprobe.errors import LoaderprobeError, MissingPart
from loaderprobe.records.phases import PhaseName
from loaderprobe.stats import median
from loaderprobe.storage.files import Piece, sample_files
from loaderprobe.storage.phase import PhaseSettings, run_phase
from loaderprobe.storage.reader import ReadOrder, Supply, ThreadEngine
from loaderprobe.system.device import locate
from loaderprobe.system.limits import cores_available
from loaderprobe.system.pagecache import LinuxPageCache
from scripts.benches.harness import LATENCY_S, Plant, alternated, answer, child, parser, planted, spread
from tests.planted.files import files_of_one_request, random_files

# What fio gets from the same pieces in the same order: it replays a list of reads for each reader (`read_iolog`), the
# only way to make it read whole files of different sizes in a given order.

SAFE = ("--readonly", "--allow_file_create=0")
DIRECT_BYTES = 4096
"""Past the page cache fio treats a short read at the end of a file as an error, so the remainder is left out."""
PASSES = 20
"""How often the list is repeated: fio drops a file from the page cache whenever it opens it."""
MOST_READS = 400_000
LONGEST_NAME = 200
"""fio's lists hold names of up to 256 characters."""


def fio_version() -> str:
    """Such as `fio-3.33`. Raises MissingPart when it is not installed."""
    if shutil.which("fio") is None:
        raise MissingPart("fio is not installed", hint="apt-get install fio; or --only kinds")
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def fio_rate(pieces: Sequence[Piece], order: ReadOrder) -> float:
    """Bytes/s of one run by fio's psync engine, one thread a reader; fio keeps no time below 1 s.

    Raises LoaderprobeError when fio fails.
    """
    with tempfile.TemporaryDirectory(prefix="loaderprobe-fio-") as scratch:
        job = write_job(Path(scratch), pieces, order)
        command = ["fio", *SAFE, "--output-format=json", "--group_reporting", str(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoaderprobeError(f"fio ended with exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
    # A warning may come before the JSON.
    (found,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    return float(found["read"]["io_bytes"] / (found["read"]["runtime"] / 1000))


def write_job(scratch: Path, pieces: Sequence[Piece], order: ReadOrder) -> Path:
    """The job file of a run in a folder, with a list of reads beside it for each reader."""
    if order.direct:
        pieces = [piece for piece in pieces if piece.size_bytes >= DIRECT_BYTES]
    names: dict[Path, str] = {}
    passes = max(1, min(PASSES, MOST_READS // len(pieces)))
    sections = []
    for reader in range(min(order.readers, len(pieces))):
        mine = pieces[reader :: order.readers]
        known = dict.fromkeys(_name(piece.path, names, scratch) for piece in mine)
        lines = ["fio version 2 iolog", *(f"{name} add" for name in known)]
        for piece in [*mine] * passes:
            size = piece.size_bytes // DIRECT_BYTES * DIRECT_BYTES if order.direct else piece.size_bytes
            name = names[piece.path]
            lines += [f"{name} open", f"{name} read {piece.offset} {size}", f"{name} close"]
        log = scratch / f"reads-{reader}"
        log.write_text("\n".join(lines) + "\n")
        sections.append(f"[reader-{reader}]\nread_iolog={log}\n")
    job = scratch / "job.fio"
    job.write_text(
        "[global]\nioengine=psync\nthread=1\nreplay_no_stall=1\nfadvise_hint=0\ninvalidate=1\n"
        f"direct={int(order.direct)}\nruntime={round(1000 * order.seconds)}ms\n" + "".join(sections)
    )
    return job


def _name(path: Path, names: dict[Path, str], scratch: Path) -> str:
    """The name that fio gets: a link where its lists cannot hold the real name."""
    if path not in names:
        text = str(path.absolute())
        if len(text) > LONGEST_NAME or not text.isascii() or any(character.isspace() for character in text):
            link = scratch / f"file-{len(names)}"
            link.symlink_to(text)
            text = str(link)
        names[path] = text
    return names[path]


READERS = 4

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
            supply=Supply(sample_files(folder / part, limit_bytes=4 * 10**9, seed=0), LinuxPageCache(), seed=0),
            location=locate(folder), cores_available=cores_available(),
            readers=READERS, seconds=seconds, longest_s=3 * seconds, direct=direct,
        )  # fmt: skip
        found[name] = [in_turn(settings, number) for number in range(rounds)]
    return found


def in_turn(settings: PhaseSettings, number: int) -> tuple[float, float]:
    """(probe, fio) in bytes/s of one round."""
    rates = alternated({"fio": lambda: by_fio(settings), "probe": lambda: run_phase(settings).bw_bytes}, number)
    return rates["probe"], rates["fio"]


def by_fio(settings: PhaseSettings) -> float:
    """Bytes/s that fio gets from the same pieces, evicted before."""
    supply = settings.supply
    supply.spoil()
    order = ReadOrder(readers=settings.readers, seconds=settings.seconds, direct=settings.direct)
    rate = fio_rate(supply.ahead(1), order)
    supply.spoil()
    return rate


def show(disk: str, found: dict[str, list[tuple[float, float]]]) -> None:
    for pattern, pairs in found.items():
        ratios = [probe / fio for probe, fio in pairs]
        probe, fio = (median([pair[side] for pair in pairs]) / 1e6 for side in (0, 1))
        print(f"{disk:12} {pattern:24} {probe:9.1f} {fio:9.1f}  {spread(ratios)}")


def report(commands: dict[str, list[str]], rounds: int) -> bool:
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
    return all(
        set(called[kind]) == {kind} and set(limits[kind]) <= {LIMITS.get(kind, *limits[kind])} for kind in commands
    )


FILES, PROBED_FILES, RATE = 2000, 1500, 20e6
LIMITS = {"token_bucket": "bandwidth", "single_server": "bandwidth", "latency": "latency"}


def compare_with_fio(chosen: argparse.Namespace) -> bool:
    rounds, seconds = chosen.rounds or 6, chosen.seconds or 4.0
    print(f"{READERS} readers, {rounds} rounds, {fio_version()}; MB/s are medians, MB is 10^6 bytes")
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
                asked = ("--rounds", rounds, "--seconds", seconds, "--child", place.folder)
                show(name, answer(place.command(child("bandwidth", *asked))))
    return True


def name_kinds(chosen: argparse.Namespace) -> bool:
    probe = [sys.executable, "-m", "loaderprobe", "bandwidth", "--json", "--readers", "1,4,16"]
    probe += ["--seconds", str(chosen.seconds or 1.0)]
    many = partial(random_files, count=PROBED_FILES)
    with tempfile.TemporaryDirectory(prefix="loaderprobe-kinds-") as scratch, ExitStack() as undo:
        own = Path(scratch, "own")
        own.mkdir()
        many(own)
        commands = {"unknown": [*probe, str(own)]}
        limits: dict[str, tuple[float, Callable[[Path], None]]] = {
            "token_bucket": (RATE, many),
            "single_server": (RATE, many),
            "latency": (LATENCY_S, files_of_one_request),
        }
        for kind, (limit, write) in limits.items():
            place = Path(scratch, kind)
            place.mkdir()
            if disk := planted(undo, kind, kind, limit, fill=write, scratch=place):
                commands[kind] = disk.command([*probe, str(disk.folder)])
        return report(commands, chosen.rounds or 20)


PARTS = {"fio": compare_with_fio, "kinds": name_kinds}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--only", default=",".join(PARTS), help="with commas (%(default)s)")
    options.add_argument("--rounds", type=int, help="6 of fio, 20 of kinds")
    options.add_argument("--seconds", type=float, help="of the shortest phase: 4 of fio, 1 of kinds")
    options.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.child:
        print(json.dumps(compare(chosen.child, chosen.rounds, chosen.seconds)))
        return 0
    good = [PARTS[name](chosen) for name in chosen.only.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

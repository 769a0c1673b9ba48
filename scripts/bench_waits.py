"""Is `loaderprobe.diagnose` right on loaders as people write them? Held against plain loops, one resource less each.

The rows are in `waits_rows`; what the plain loops do is in `waits_truth`, what counts as right in `waits_score`.
Really throttled disks are planted, each once, and servers run on 127.0.0.1. With --keep all results stay, and --from
judges those again without measuring. Ends with code 1 when a firm word was wrong, under 90 % of the clear rows got
the right firm word, or a row could not be measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from loaderprobe.datasets.generate.generate import generate
from loaderprobe.datasets.generate.request import SetRequest
from loaderprobe.system.cpu import cores_available
from loaderprobe.testing.slow_disk import CannotPlant, slow_disk
from loaderprobe.units import parse_resolution
from scripts.waits_child import diagnose_row, measure_row, row_of
from scripts.waits_formats import copy_formats, write_format
from scripts.waits_loaders import PHOTOGRAPHS
from scripts.waits_remote import served
from scripts.waits_rows import DISKS, ROWS, Row
from scripts.waits_score import Judged, load, show

RESOLUTION = "500x375"
LATENCY_S = 0.010
DISK_BYTES = 2_500_000_000
CHILD_LIMIT_S = 400
RIGHT_AT_LEAST = 0.9

Wrap = Callable[[Sequence[str]], list[str]]


@contextmanager
def planted(disk: str, formats: Sequence[str], source: Path, scratch: Path) -> Iterator[tuple[Path, Wrap, str]]:
    """A folder with these formats on such a disk, what wraps a command so that it meets the disk's limit, and the
    file of the group of processes that do not."""
    if disk == "fast":
        yield source, list, ""
        return
    limit = {"bytes_per_s": DISKS[disk]} if DISKS[disk] else {"latency_s": LATENCY_S}
    kind = "banked" if DISKS[disk] else "latency"
    with slow_disk(
        kind=kind,  # type: ignore[arg-type]
        fill=copy_formats(formats, source),
        scratch=scratch,
        keep_cache=True,
        size_bytes=DISK_BYTES,
        **limit,  # type: ignore[arg-type]
    ) as slow:
        print(f"{disk}: {slow.how}", flush=True)
        unlimited = slow.members.parent.parent / slow.members.name if slow.members else ""
        yield slow.folder, slow.command, str(unlimited)


def build(rows: Sequence[Row], source: Path, scratch: Path) -> None:
    """All formats that the rows need, and nothing of them waiting to be written."""
    photographs = scratch / "photographs"
    request = SetRequest(resolution=parse_resolution(RESOLUTION), classes=4)
    generate(photographs, request, count=PHOTOGRAPHS, processes=2, progress=lambda *_: None)
    files = sorted(photographs.rglob("*.JPEG"))
    for kind in sorted({row.format for row in rows}):
        write_format(kind, files, source)
    os.sync()


def measure(rows: Sequence[Row], out: Path, budget_s: float) -> bool:
    """Plant each disk in turn, and measure its rows there; True when none failed."""
    complete, begin_s, done = True, time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-waits-") as name:
        scratch, source = Path(name), Path(name, "source")
        source.mkdir()
        build(rows, source, scratch)
        print(f"data built after {time.monotonic() - begin_s:.0f} s", file=sys.stderr, flush=True)
        with served(scratch / "photographs") as url:
            for disk, group in groupby(rows, key=lambda row: row.disk):
                own = list(group)
                try:
                    with planted(disk, sorted({row.format for row in own}), source, scratch) as (folder, wrap, free):
                        for row in own:
                            place = [str(folder / row.format), url, str(out), free]
                            child = [sys.executable, __file__, "--budget", str(budget_s), "--child", row.name, *place]
                            complete &= run(wrap(child), row.name)
                            done += 1
                            minutes = (time.monotonic() - begin_s) / 60
                            progress = f"{done} of {len(rows)}: {row.name}, {minutes:.1f} min in all"
                            print(progress, file=sys.stderr, flush=True)
                except CannotPlant as error:
                    complete = False
                    print(f"{disk}: left out: {error}")
    return complete


def run(command: Sequence[str], name: str) -> bool:
    """One row in a process group of its own, which does not outlive its limit; True when it came to its end."""
    with subprocess.Popen(command, start_new_session=True) as process:
        code = None
        try:
            code = process.wait(CHILD_LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"{name}: left out: it took more than {CHILD_LIMIT_S} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code:
        print(f"{name}: left out: its process failed with code {code}")
    return code == 0


def report(rows: Sequence[Judged], everything: bool) -> bool:
    """Print it all; True when the diagnosis is as good as it has to be."""
    for row in rows:
        good = row.outcome == "right" and row.rate_right and not row.side_wrong and not row.trouble
        print(show(row) if everything or not good else show(row).partition("\n")[0])
    clear = [row for row in rows if row.clear]
    counts, of_clear = Counter(row.outcome for row in rows), Counter(row.outcome for row in clear)
    stated = [row for row in rows if row.said]
    within = sum(row.rate_right for row in stated)
    print(f"\n{'':12}{'rows':>6}" + "".join(f"{name:>14}" for name in OUTCOMES))
    for title, found, total in (("clear", of_clear, len(clear)), ("all", counts, len(rows))):
        print(f"{title:12}{total:>6}" + "".join(f"{found[name] or '.':>14}" for name in OUTCOMES))
    right = of_clear["right"] / len(clear) if clear else 0.0
    print(
        f"\n{right:.0%} of clear rows firm-right, {counts['wrong']} firm-wrong, "
        f"{sum(row.side_wrong for row in rows)} firm sides wrong; "
        f"{within} of {len(stated)} rates within 15 % of the plain loop; "
        f"{sum(bool(row.trouble) for row in rows)} rows whose truth has trouble"
    )
    return right >= RIGHT_AT_LEAST and not counts["wrong"] and not any(row.side_wrong for row in rows)


OUTCOMES = ("right", "wrong", "near", "either", "inconclusive", "failed")


def chosen_rows(only: str) -> list[Row]:
    """Those whose name contains the text and whose library is installed."""
    found = []
    for row in ROWS:
        if any(part in row.name for part in only.split(",")):
            library = row.missing()
            if library:
                print(f"{row.name}: skipped: {library} is not installed")
            else:
                found.append(row)
    return found


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this, or one of these: lmdb,banked16-tar")
    parser.add_argument(
        "--budget", type=float, default=15.0, help="seconds for a diagnosis; 0 measures the truth alone, once"
    )
    parser.add_argument("--keep", type=Path, help="keep truths, diagnoses and measurements in this folder")
    parser.add_argument("--from", dest="source", type=Path, help="judge what was kept there, and measure nothing")
    parser.add_argument("--all", action="store_true", help="show all of every row")
    parser.add_argument("--list", action="store_true", help="print the names of the rows, and measure nothing")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--diagnose", nargs=5, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child or chosen.diagnose:
        name, folder, url, out, unlimited = chosen.child or chosen.diagnose
        place = (row_of(name), Path(folder), url, Path(out))
        if chosen.child:
            measure_row(*place, unlimited, chosen.budget)
        else:
            diagnose_row(*place, chosen.budget)
        return 0
    if chosen.list:
        print("\n".join(row.name for row in ROWS))
        return 0
    # As Ctrl-C does: unwinding takes away disks and folders.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-waits-raw-") as scratch:
        source, complete = chosen.source or chosen.keep or Path(scratch), True
        if not chosen.source:
            source.mkdir(parents=True, exist_ok=True)
            begin_s = time.monotonic()
            complete = measure(chosen_rows(chosen.only), source.resolve(), chosen.budget)
            print(f"{cores_available():g} cores, {(time.monotonic() - begin_s) / 60:.1f} minutes")
        rows = load(source, chosen.only)
        if not rows:
            print("nothing was measured")
        return 0 if rows and report(rows, chosen.all) and complete else 1


if __name__ == "__main__":
    sys.exit(main())

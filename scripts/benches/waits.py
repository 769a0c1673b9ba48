"""Is `loaderprobe.diagnose` right on loaders as people write them? Against plain loops; as root.

The rows are in `waits_rows`; what the plain loops do is in `waits_truth`, what counts as right in `waits_score`.
Really throttled disks are planted, each once, and servers run on 127.0.0.1. With --keep all results stay, and --from
judges those again without measuring. Ends with code 1 when a firm word was wrong, cold files are said to be quicker
than their disk, under 90 % of the clear rows got the right firm word, or a row could not be measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

from scripts.benches.harness import (
    LATENCY_S,
    Plant,
    Progress,
    child,
    parser_of_kept,
    photographs,
    planted,
    ran,
    raw_results,
)
from scripts.benches.waits_child import diagnose_row, measure_row, row_of
from scripts.benches.waits_formats import copy_folders, write_format
from scripts.benches.waits_readers import READERS
from scripts.benches.waits_remote import served
from scripts.benches.waits_rows import DISKS, LARGE_SAMPLES, READ_AHEAD_KB, ROWS, Row
from scripts.benches.waits_samples import PHOTOGRAPHS
from scripts.benches.waits_score import Judged, load, show, table

RESOLUTION = "500x375"
DISK_BYTES = 8_000_000_000
"""Of a file with holes."""
CHILD_LIMIT_S = 500
RIGHT_AT_LEAST = 0.9


def disk_of(undo: ExitStack, disk: str, folders: Sequence[str], source: Path, scratch: Path) -> Plant | None:
    """These folders on such a disk; None where none can be planted."""
    if disk == "fast":
        return Plant(folder=source)
    limit, ahead_kb = DISKS[disk].bytes_per_s, DISKS[disk].read_ahead_kb
    kind, limit = ("token_bucket", limit) if limit else ("latency", LATENCY_S)
    options = {"keep_cache": True, "size_bytes": DISK_BYTES, "read_ahead_bytes": ahead_kb and ahead_kb << 10}
    return planted(undo, disk, kind, limit, fill=copy_folders(folders, source), scratch=scratch, **options)


def folders_of(rows: Sequence[Row]) -> list[str]:
    return sorted({row.folder for row in rows} | {row.large_folder for row in rows if row.large_folder})


def build(rows: Sequence[Row], source: Path, scratch: Path) -> None:
    """All formats that the rows need, and nothing of them waiting to be written."""
    files = sorted(photographs(scratch / "photographs", RESOLUTION, PHOTOGRAPHS).rglob("*.JPEG"))
    wanted = {(row.format, row.samples) for row in rows}
    wanted |= {(row.format, LARGE_SAMPLES) for row in rows if row.large_folder}
    for kind, samples in sorted(wanted):
        write_format(kind, samples, files, source)
    os.sync()


def measure(rows: Sequence[Row], out: Path, budget_s: float, truth: Path | None) -> bool:
    """Plant each disk in turn, and measure its rows there; True when none failed."""
    again = ("--truth", truth.resolve()) if truth else ()
    complete, progress = True, Progress(len(rows))
    with tempfile.TemporaryDirectory(prefix="loaderprobe-waits-") as name:
        scratch, source = Path(name), Path(name, "source")
        source.mkdir()
        build(rows, source, scratch)
        with served(scratch / "photographs") as url:
            for disk, group in groupby(rows, key=lambda row: row.disk):
                own = list(group)
                with ExitStack() as undo:
                    place = disk_of(undo, disk, folders_of(own), source, scratch)
                    if place is None:
                        complete = False
                        continue
                    for row in own:
                        where = (place.folder, url, out, place.unlimited)
                        command = child("waits", "--budget", budget_s, *again, "--child", row.name, *where)
                        complete &= ran(place.command(command), row.name, CHILD_LIMIT_S)
                        progress.done(row.name)
    return complete


def report(rows: Sequence[Judged], everything: bool) -> bool:
    """Print it all; True when the diagnosis is as good as it has to be."""
    for row in rows:
        good = row.outcome == "right" and row.rate_right and not row.side_wrong and not row.trouble
        good = good and not row.contradicts_storage
        print(show(row) if everything or not good else show(row).partition("\n")[0])
    print("\n" + table(rows))
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
        f"{sum(row.contradicts_storage for row in rows)} contradict the storage; "
        f"{sum(bool(row.trouble) for row in rows)} rows whose truth has trouble"
    )
    wrong = counts["wrong"] or any(row.side_wrong or row.contradicts_storage for row in rows)
    return right >= RIGHT_AT_LEAST and not wrong


OUTCOMES = ("right", "wrong", "near", "either", "inconclusive", "failed")


def chosen_rows(only: str, read_ahead: str) -> list[Row]:
    """Those whose name contains the text, on disks with this read-ahead, and whose library is installed."""
    disks = [f"bucket20ra{int(kb)}" for kb in read_ahead.split(",")] if read_ahead else list(DISKS)
    found = []
    for row in ROWS:
        if row.disk in disks and any(part in row.name for part in only.split(",")):
            if library := READERS[row.reader].missing():
                print(f"{row.name}: skipped: {library} is not installed")
            else:
                found.append(row)
    return found


def options() -> argparse.Namespace:
    found = parser_of_kept(__doc__)
    found.add_argument("--only", default="", help="rows whose name contains this, or one of these: lmdb,bucket16-tar")
    found.add_argument(
        "--read-ahead", default="", help=f"only disks that read so many kB ahead: {','.join(map(str, READ_AHEAD_KB))}"
    )
    found.add_argument(
        "--budget", type=float, default=30.0, help="seconds for a diagnosis; 0 measures the truth alone, once"
    )
    found.add_argument("--truth", type=Path, help="do not run the plain loops again that were kept in this folder")
    found.add_argument("--list", action="store_true", help="print the names of the rows, and measure nothing")
    found.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    found.add_argument("--diagnose", nargs=5, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child or chosen.diagnose:
        name, folder, url, out, unlimited = chosen.child or chosen.diagnose
        place = (row_of(name), Path(folder), url, Path(out))
        if chosen.child:
            measure_row(*place, unlimited, chosen.budget, chosen.truth)
        else:
            diagnose_row(*place, chosen.budget)
        return 0
    if chosen.list:
        print("\n".join(row.name for row in ROWS))
        return 0

    def measured(out: Path) -> bool:
        return measure(chosen_rows(chosen.only, chosen.read_ahead), out, chosen.budget, chosen.truth)

    with raw_results(chosen, measured) as (source, complete):
        rows = load(source, chosen.only)
        if not rows:
            print("nothing was measured")
        return 0 if rows and report(rows, chosen.all) and complete else 1


if __name__ == "__main__":
    sys.exit(main())

"""How long does a report on a thousand ranks take, and how large is what is kept of each?

Some seconds. The ranks are made up, one of them is slow. Ends with code 1 where reading the run and rendering it for
terminal and browser takes more CPU time than it may, where a rank is larger than it may be, or where the report does
not name the slow one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import loaderprobe
from loaderprobe.records.config import SweepSpec
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment
from scripts.benches.harness import parser
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import FILES, Cost, alike

SLOW, MIDDLE = 37.0, 114.0
"""Images/s of a rank by itself."""
MOST_BYTES = 4096
MOST_CPU_S = 5.0


def main() -> None:
    """Measure nothing: make, keep, read and render."""
    options = parser(__doc__)
    options.add_argument("--ranks", type=int, default=1024)
    ranks = options.parse_args().ranks
    slowest = ranks // 2
    with tempfile.TemporaryDirectory(prefix="loaderprobe-ranks-") as scratch:
        path = Path(scratch, "run")
        each_bytes = keep(path, ranks, slowest)
        begun_s = time.process_time()
        run = loaderprobe.load(path)
        text, html = run.text(), run.html()
        cpu_s = time.process_time() - begun_s
    named = f"slowest rank {slowest} " in text and f"{slowest} (slowest)" in html
    print(f"{ranks} ranks: {each_bytes:.0f} bytes each, {cpu_s:.2f} s of CPU, HTML of {len(html) / 1e3:.0f} kB")
    print(f"slow rank named: {'yes' if named else 'no'}")
    if each_bytes > MOST_BYTES or cpu_s > MOST_CPU_S or not named:
        sys.exit(1)


def keep(path: Path, ranks: int, slowest: int) -> float:
    """Bytes that are kept of a rank, that of the whole configuration shared among them."""
    rates: dict[str, Any] = {name: rate * ranks / 2 for name, rate in SLEEPING.items()}
    alone = [SLOW if rank == slowest else MIDDLE + rank % 7 for rank in range(ranks)]
    measured = rank_run(
        alike(**rates), Cost(), ranks=ranks, compute=1e5 * ranks, alone=alone, workers=2,
        without={slowest: 229.0 * ranks / 2, 0: 72.0 * ranks / 2}, no_exchange=1e5 * ranks, exchange=2e5 * ranks,
    )  # fmt: skip
    record = RunRecord(
        created_utc="2026-11-21T07:00:00+00:00",
        spec=SweepSpec(configs=(measured.config,), command=("loaderprobe", "sweep")),
        environment=example_environment(),
    )
    RunDirectory.create(path, record, [FILES]).save(measured)
    kept = [each.stat().st_size for each in (path / "measurements").rglob("*.json")]
    return sum(kept) / ranks


SLEEPING = {"training": 88.0, "baseline": 86.0, "warm": 90.0, "cached_samples": 868.0, "no_transport": 88.0}
"""Images/s of two ranks, of which one sleeps while it preprocesses."""


if __name__ == "__main__":
    main()

"""A sweep of 21 configurations, quick and thorough: how long it takes, and whether both say the same.

3 resolutions x the serial loader and 1, 2, 3, 4, 6, 8 workers on an emulated H100. The quick sweep measures the
costly experiments only where its verdict is open; each of its verdicts must be that of the thorough sweep, or a
weaker word (`either`, `balanced`, `inconclusive`, or the same cause without the cores as its reason).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.benches.harness import answer, parser

LIMIT_S = 300.0
WEAK = {"either", "balanced", "inconclusive"}
# Preprocessing that the cores limit is still preprocessing.
SAME = {"cpu": "preprocessing"}


def swept(place: Path, name: str, *options: str) -> tuple[list[dict[str, Any]], float]:
    """(configurations of the summary, seconds) of one sweep in a fresh process."""
    begin = time.monotonic()
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", "--workers", "1,2,3,4,6,8", "--json",
        "--compute", "emulated:mlperf-h100", "--data-dir", str(place / "data"), "--out", str(place / name),
    ]  # fmt: skip
    return answer([*command, *options])["configurations"], time.monotonic() - begin


def word(row: dict[str, Any]) -> str:
    if row["bound"] is None:
        return str(row["status"])
    cause = SAME.get(row["bound"]["cause"], row["bound"]["cause"])
    return f"either {' or '.join(row['bound']['candidates'])}" if cause == "either" else str(cause)


def agrees(quick: dict[str, Any], thorough: dict[str, Any]) -> str:
    if word(quick) == word(thorough):
        return "same"
    if quick["bound"] and quick["bound"]["cause"] in WEAK:
        return "weaker"
    return "stronger" if thorough["bound"] and thorough["bound"]["cause"] in WEAK else "DIFFERENT"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--place", type=Path, help="where data and runs are kept; else they are removed")
    options.add_argument("--budget", default=str(LIMIT_S - 10), help="seconds of the quick sweep")
    options.add_argument("--thorough-budget", default="1200", help="seconds of the thorough sweep")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = asked.place or Path(temporary)
        # The data are generated before the clock runs.
        swept(place, "first", "--rounds", "1", "--budget", "1")
        quick, quick_s = swept(place, "quick", "--budget", asked.budget)
        thorough, thorough_s = swept(place, "thorough", "--thorough", "--budget", asked.thorough_budget)
    print(f"{'data':10} {'workers':>7} {'quick':24} {'thorough':24}")
    counts: dict[str, int] = {}
    for one, other in zip(quick, thorough, strict=True):
        how = agrees(one, other)
        counts[how] = counts.get(how, 0) + 1
        print(f"{one['resolution']:10} {one['workers']:>7} {word(one):24} {word(other):24} {how}")
    print(f"{len(quick)} configurations: quick {quick_s:.0f} s, thorough {thorough_s:.0f} s; {counts}")
    good = quick_s < LIMIT_S and not counts.keys() & {"DIFFERENT", "stronger"}
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

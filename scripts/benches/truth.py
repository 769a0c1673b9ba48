"""Is the named cause true? Pipelines with planted limits, what drivers say of them, and one score.

waits   `diagnose`, and `run` around a loop, on loaders as people write them; the truth by plain loops
ranks   `sweep --ranks` and `bandwidth --ranks` with planted causes, on one host and on two; as root
sweeps  verdicts from training alone, as `run --watch` judges, against those of the experiment

Where a plain loop with one resource after the other removed is the truth, `score` says what counts as right. With
--keep all results stay, and --from judges those again without measuring, so that a change of a rule shows in seconds.
Measurements that are kept become goldens (`scripts/golden`). Ends with code 1
when a firm word or side was wrong, too few of the clear rows got the right firm word, a row could not be measured, or
there is another fault.
"""

from __future__ import annotations

import importlib
import sys

from scripts.benches.harness import parser_of_kept, run_part
from scripts.benches.score import report

FAMILIES = ("waits", "ranks", "sweeps")


def main() -> int:
    options = parser_of_kept(__doc__)
    options.add_argument("family", choices=FAMILIES)
    options.add_argument("--only", default="", help="rows of this name, or whose name contains it: lmdb,bucket16-tar")
    options.add_argument("--list", action="store_true", help="print the names of the rows, and measure nothing")
    options.add_argument("--rounds", type=int, help="of the truth; 3")
    options.add_argument("--budget", type=float, help="seconds of a driver")
    options.add_argument("--read-ahead", default="", help="of waits: disks that read so many kB ahead: 128,2560,8192")
    options.add_argument("--beside", action="store_true", help="of waits: drivers beside bursts of half a second")
    chosen = options.parse_args()
    family = importlib.import_module(f"scripts.benches.truth_{chosen.family}")
    if chosen.list:
        print("\n".join(family.names()))
        return 0
    return run_part(chosen, family, lambda rows: report(rows, family.RIGHT_AT_LEAST, chosen.all))


if __name__ == "__main__":
    sys.exit(main())

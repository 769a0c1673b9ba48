"""How far is what is predicted from what is then measured? One kind at a time, one table.

disks    more and fewer workers, other accelerators, faster disks, on planted disks; some half an hour, as root
caches   hits of the page cache in shuffled epochs in little memory; some 4 minutes, as root
plan     what a plan says of accelerators that then train at once on a slow disk; some 5 minutes, as root
shards   what tar shards gain over files, on planted disks; some 7 minutes, as root

With --keep the raw results stay, and what is there already of `disks` is not measured again; --from judges what was
kept, and measures nothing. Ends with code 1 where errors are larger than the kind allows, too few ranges hold, a rule
of the kind is broken, or something could not be measured.
"""

from __future__ import annotations

import importlib
import sys

from scripts.benches.compared import report
from scripts.benches.harness import parser_of_kept, run_part

KINDS = ("disks", "caches", "plan", "shards")


def main() -> int:
    options = parser_of_kept(__doc__)
    options.add_argument("kind", choices=KINDS)
    options.add_argument("--only", default="", help="rows whose name contains this, or one of these: cpu,lock")
    options.add_argument("--rounds", type=int, help="of each row; visits of disks; 3, 2")
    options.add_argument("--images", type=int, help="in the set of caches (4000)")
    chosen = options.parse_args()
    kind = importlib.import_module(f"scripts.benches.forecast_{chosen.kind}")
    return run_part(chosen, kind, lambda rows: report(rows, kind.LIMITS, chosen.all))


if __name__ == "__main__":
    sys.exit(main())

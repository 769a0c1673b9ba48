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

import argparse
import importlib
import json
import sys

from scripts.benches.compared import Kind, report
from scripts.benches.harness import parser_of_kept, raw_results

MODULES = {
    "disks": "forecast_disks",
    "caches": "forecast_memory",
    "plan": "forecast_plan",
    "shards": "forecast_shards",
}


def kind_of(name: str) -> Kind:
    """Imported when it is asked for."""
    found: Kind = importlib.import_module(f"scripts.benches.{MODULES[name]}").KINDS[name]
    return found


def options() -> argparse.Namespace:
    found = parser_of_kept(__doc__)
    found.add_argument("kind", choices=MODULES)
    found.add_argument("--only", default="", help="rows whose name contains this, or one of these: cpu,lock")
    found.add_argument("--rounds", type=int, help="of each row; visits of disks; 3, 2")
    found.add_argument("--images", type=int, help="in the set of caches (4000)")
    found.add_argument("--child", help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    kind = kind_of(chosen.kind)
    if chosen.child:
        assert kind.child
        kind.child(json.loads(chosen.child))
        return 0
    with raw_results(chosen, lambda out: kind.measure(chosen, out)) as (source, complete):
        rows = kind.load(source, chosen)
        if not rows:
            print("nothing was measured")
        return 0 if rows and report(rows, kind.limits, chosen.all) and complete else 1


if __name__ == "__main__":
    sys.exit(main())

"""Is the named cause true? Pipelines with planted limits, what drivers say of them, and one score.

{families}

Where a plain loop with one resource after the other removed is the truth, `score` says what counts as right. With
--keep all results stay, and --from judges those again without measuring, so that a change of a rule shows in seconds;
--said lists the words that it changes. Measurements that are kept become goldens (`scripts/golden`). Ends with code 1
when a firm word or side was wrong, too few of the clear rows got the right firm word, the mean regret is too large, a
row could not be measured, or there is another fault.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any, Protocol, cast

from scripts.benches.harness import parser_of_kept, raw_results
from scripts.benches.score import Marks, Row, changed, report

FAMILIES = ("verdict", "waits", "ranks", "sweeps")
HERE = Path(__file__).parent


class Family(Protocol):
    """A module `truth_NAME`."""

    MARKS: Marks

    def names(self) -> list[str]: ...
    def measure(self, chosen: argparse.Namespace, out: Path) -> bool: ...
    def load(self, folder: Path, chosen: argparse.Namespace) -> list[Row]: ...
    def run_child(self, given: dict[str, Any]) -> None: ...


def family_of(name: str) -> Family:
    """Imported when it is asked for: each takes libraries of its own."""
    return cast(Family, importlib.import_module(f"scripts.benches.truth_{name}"))


def _described(doc: str) -> str:
    """With the first line of each family's docstring."""
    trees = [ast.parse((HERE / f"truth_{name}.py").read_text()) for name in FAMILIES]
    lines = [(ast.get_docstring(tree) or "").splitlines()[0] for tree in trees]
    return doc.format(families="\n".join(lines))


def options() -> argparse.Namespace:
    found = parser_of_kept(_described(__doc__ or "") if {"-h", "--help"} & {*sys.argv} else __doc__)
    found.add_argument("family", choices=FAMILIES)
    found.add_argument("--only", default="", help="rows of this name, or whose name contains it: lmdb,bucket16-tar")
    found.add_argument("--list", action="store_true", help="print the names of the rows, and measure nothing")
    found.add_argument("--said", type=Path, help="keep the words in this file, or list what differs from those in it")
    found.add_argument("--truth", type=Path, help="do not run the plain loops again that were kept in this folder")
    found.add_argument("--rounds", type=int, help="of the truth; 3")
    found.add_argument("--repeats", type=int, help="of each row; with --noise 3, else 1")
    found.add_argument("--budget", type=float, help="seconds of a driver; 0 measures the truth of `waits` alone, once")
    found.add_argument("--noise", action="store_true", help="beside neighbours that come and go (verdict)")
    found.add_argument("--neighbours", help="which of core,cores,disk,memory; all of them")
    found.add_argument("--read-ahead", default="", help="only disks that read so many kB ahead: 128,2560,8192 (waits)")
    found.add_argument("--child", help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    family = family_of(chosen.family)
    if chosen.child:
        family.run_child(json.loads(chosen.child))
        return 0
    if chosen.list:
        print("\n".join(family.names()))
        return 0
    with raw_results(chosen, lambda out: family.measure(chosen, out)) as (source, complete):
        rows = family.load(source, chosen)
        if not rows:
            print("nothing was measured")
            return 1
        marks: Marks = getattr(family, "MARKS_BESIDE_NOISE", family.MARKS) if chosen.noise else family.MARKS
        good = report(rows, marks, chosen.all)
        if chosen.said:
            changed(rows, chosen.said)
        return 0 if good and complete else 1


if __name__ == "__main__":
    sys.exit(main())

"""Public training scripts, unchanged, under `loaderprobe run`: the verdict, `--watch`, checkpoints; and what is true.

The scripts are not part of this project: put them into the folder of --scripts, under these names:

{sources}

Each gets generated photographs, and small models without training where it would ask a hub. By hand, with one change
to its loop, it is measured as it is, with files in memory, with samples made before, with one batch over and over, with
one more worker, and its loader alone: the largest gain is the truth. Then come `loaderprobe run`; its losses and CPU
time with and without --watch, in turn; and checkpoints that were there. Ends with code 1 when a firm word is wrong, a
script does not end cleanly, a loss differs or a checkpoint has changed. Rows that cannot run say why.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts.benches.harness import Progress, parser_of_kept, planted, raw_results
from scripts.benches.scripts_data import Data
from scripts.benches.scripts_parts import Place, by_hand, measured, saved, watched
from scripts.benches.scripts_rows import ROWS, Row, sources
from scripts.benches.scripts_score import details, table, wrong_of
from scripts.benches.scripts_truth import WAYS

PARTS = ("truth", "run", "watch", "saves")


def copied(folder: Path, to: Path) -> None:
    """Onto another disk."""
    shutil.copytree(folder, to)


def measure(row: Row, chosen: argparse.Namespace, data: Data, undo: ExitStack) -> dict[str, Any]:
    """All parts that are asked for."""
    if why := row.missing(chosen.scripts):
        return {"missing": why}
    found: dict[str, Any] = {"version": row.version(), "unseen": row.unseen, "light": row.light is not None}

    def place() -> Place:
        folder = Path(tempfile.mkdtemp(dir=data.root, prefix=f"{row.name}-")) / "run"
        folder.mkdir()
        return Place(scripts=chosen.scripts, data=on, folder=folder, around=around)

    on: Data = data
    around: Callable[[Sequence[str]], list[str]] = list
    parts = chosen.parts.split(",")
    if row.slow:
        held = row.folder(data).parent
        disk = planted(
            undo, row.name, "token_bucket", row.slow, scratch=data.root,
            fill=lambda fill: copied(held, fill / held.name),
        )  # fmt: skip
        if disk is None:
            return {"missing": "no slow disk can be planted here"}
        on, around = Data(disk.folder), disk.command
    if "truth" in parts:
        ways = [way for way in chosen.ways.split(",") if way in row.ways]
        found["truth"] = by_hand(row, place(), ways, chosen.seconds, chosen.repeats)
    if "run" in parts:
        found["run"] = measured(row, place(), chosen.budget)
    if "watch" in parts:
        found["watch"] = watched(row, place(), chosen.pairs)
    if "saves" in parts:
        found["saves"] = saved(row, place())
    return found


def options() -> argparse.Namespace:
    found = parser_of_kept((__doc__ or "").format(sources=sources()))
    found.add_argument("--scripts", type=Path, help="the folder with the scripts")
    found.add_argument("--data", type=Path, help="keep photographs and models in this folder, for the next time")
    found.add_argument("--only", default="", help="rows of this name, or whose name contains it: timm,fastai")
    found.add_argument("--parts", default=",".join(PARTS), help="some of these; with --keep, others stay as they are")
    found.add_argument("--ways", default=",".join(WAYS), help="of the truth; without some of them it is not clear")
    found.add_argument("--seconds", type=float, default=8.0, help="of each rate by hand")
    found.add_argument("--repeats", type=int, default=2, help="of all rates by hand")
    found.add_argument("--budget", type=float, default=40.0, help="seconds of loaderprobe run")
    found.add_argument("--pairs", type=int, default=4, help="of runs without and with --watch")
    chosen = found.parse_args()
    if chosen.source is None and chosen.scripts is None:
        found.error("--scripts is needed")
    for name, known in (("parts", PARTS), ("ways", WAYS)):
        if unknown := set(getattr(chosen, name).split(",")) - set(known):
            found.error(f"--{name}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def measured_rows(chosen: argparse.Namespace, out: Path) -> bool:
    """Each row into a file of `out`."""
    names, parts = {row.name for row in ROWS}, chosen.only.split(",")
    rows = [row for row in ROWS if row.name in parts or any(part in row.name for part in {*parts} - names)]
    progress = Progress(len(rows))
    chosen.scripts = chosen.scripts.resolve()
    with tempfile.TemporaryDirectory(prefix="loaderprobe-scripts-") as scratch:
        data = Data((chosen.data or Path(scratch)).resolve())
        data.root.mkdir(parents=True, exist_ok=True)
        for row in rows:
            file = out / f"{row.name}.json"
            before = json.loads(file.read_text()) if file.exists() else {}
            before.pop("missing", None)
            with ExitStack() as undo:
                file.write_text(json.dumps({**before, **measure(row, chosen, data, undo)}))
            progress.done(row.name)
    return bool(rows)


def main() -> int:
    chosen = options()
    with raw_results(chosen, lambda out: measured_rows(chosen, out)) as (source, complete):
        kept = {row.name: source / f"{row.name}.json" for row in ROWS}
        rows = {name: json.loads(file.read_text()) for name, file in kept.items() if file.exists()}
    for name, found in rows.items():
        print("\n".join(details(name, found)))
    print("\n".join(table(rows)))
    wrong = {name: wrong_of(found) for name, found in rows.items() if "missing" not in found}
    for name, words in wrong.items():
        for text in words:
            print(f"WRONG {name}: {text}")
    print(f"{sum(not words for words in wrong.values())} of {len(rows)} scripts: nothing wrong")
    return 0 if complete and not any(wrong.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

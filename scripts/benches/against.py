"""Does measuring in turn (`sweep --against`) see a loss that two sweeps apart miss? Real sweeps of one configuration.

Each set measures, in this order: a sweep as it is, the same in turn with itself, a sweep whose loader makes one image
in nine twice (a loss of 10 %), and the two in turn. Of all sets it counts the gates of 5 % that fail, in turn and
apart: of two sweeps as they are, which none should, and with the loss, which all should. Sets are kept in a folder, and
a later call goes on with them: run it while the machine is idle, or while it does what it usually does.

Ends with code 1 when in turn more than one in ten null pairs fail, or fewer than nine in ten losses are found.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import loaderprobe
from loaderprobe.api.against_request import PAIRS
from loaderprobe.api.compare import Comparison
from loaderprobe.loaders.images import ImageFiles
from loaderprobe.loaders.torch import TorchLoader
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.stats import quantile
from scripts.benches.harness import parser

GATE = "5%"
TWICE = 9
"""One image in so many is made twice."""
SLOWER = f"{__name__}:Slower" if __name__ != "__main__" else "scripts.benches.against:Slower"
NULL_AT_MOST, FOUND_AT_LEAST = 0.1, 0.9


class TwiceMade(ImageFiles):
    """Some images are made twice."""

    def __getitem__(self, k: int) -> Any:
        if k % TWICE == 0:
            super().__getitem__(k)
        return super().__getitem__(k)


class Slower(TorchLoader):
    """torch's loader with a tenth less speed, where its workers limit."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        super().__init__(config, files, scratch)
        self._loader.dataset.__class__ = TwiceMade


def measure_set(place: Path, data: Path, workers: int, rounds: int) -> None:
    """What is missing of a set, in its folder."""
    usual: dict[str, Any] = {
        "resolutions": "256x256", "data_dir": data, "workers": workers or (), "serial": not workers,
        "compute": "emulated:mlperf-h100",
    }  # fmt: skip
    run = place / "apart-a"
    parts: dict[str, Callable[[Path], Any]] = {
        "apart-a": lambda out: loaderprobe.sweep(**usual, out=out),
        "null": lambda out: loaderprobe.sweep_against(run, rounds=rounds, out=out),
        "apart-b": lambda out: loaderprobe.sweep(**usual, loader=SLOWER, out=out),
        "loss": lambda out: loaderprobe.sweep_against(run, rounds=rounds, loader=SLOWER, out=out),
    }
    for name, measure in parts.items():
        if not (place / name / "report.html").exists():
            shutil.rmtree(place / name, ignore_errors=True)
            measure(place / name)
            print(f"{place.name} {name} measured", file=sys.stderr, flush=True)


def show(name: str, found: Sequence[Comparison]) -> int:
    """A line with the gates that fail, the changes and what was visible; returns how many fail."""
    failed = sum(not each.passed for each in found)
    ratios = [row.ratio.value for each in found for row in each.rows if row.ratio]
    visible = [row.visible for each in found for row in each.rows if row.visible is not None]
    changes = ", ".join(f"{100 * (quantile(ratios, share) - 1):+.1f}" for share in (0.1, 0.5, 0.9))
    seen = f"{100 * quantile(visible, 0.5):.1f} %" if visible else "-"
    print(f"{name:24}{f'{failed} of {len(found)}':>10}{changes:>22}{seen:>10}", flush=True)
    return failed


def complete(folder: Path) -> list[Path]:
    """The sets that are measured to their end."""
    return sorted(place for place in folder.glob("set-*") if (place / "loss" / "report.html").exists())


def judge(folder: Path) -> bool:
    """What all sets of a folder show; True where the claims hold."""
    places = complete(folder)
    options: dict[str, Any] = {"fail_if_slower": GATE, "differ": "options"}

    def compared(a: Path, b: Path) -> Comparison:
        return loaderprobe.compare(a, b, **options)

    print(f"{'':24}{'fail':>10}{'change 10,50,90 %':>22}{'visible':>10}")
    null = [compared(each / "null" / "a", each / "null" / "b") for each in places]
    loss = [compared(each / "loss" / "a", each / "loss" / "b") for each in places]
    failed, found = show("in turn, as it is", null), show("in turn, a loss of 10 %", loss)
    if len(places) > 1:
        show("apart, as it is", [compared(a / "apart-a", b / "apart-a") for a, b in pairwise(places)])
    show("apart, a loss of 10 %", [compared(each / "apart-a", each / "apart-b") for each in places])
    return failed <= max(1, NULL_AT_MOST * len(null)) and found >= FOUND_AT_LEAST * len(loss)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--sets", type=int, default=10, help="sets to measure now; 0 judges those in the folder")
    options.add_argument("--keep", type=Path, help="folder of the sets; those that are in it count, too")
    options.add_argument("--workers", type=int, default=2, help="0 is the serial loader")
    options.add_argument("--rounds", type=int, default=PAIRS, help="pairs of rounds in turn")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (asked.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        begun = [place for place in sorted(folder.glob("set-*")) if place not in complete(folder)]
        for _ in range(asked.sets):
            place = begun.pop(0) if begun else folder / f"set-{len(complete(folder)):03}"
            measure_set(place, folder / "data", asked.workers, asked.rounds)
        return 0 if judge(folder) else 1


if __name__ == "__main__":
    sys.exit(main())

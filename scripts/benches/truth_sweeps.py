"""Family `sweeps`: cheaper verdicts against those of the experiment: the quick sweep, and training alone (`--watch`).

`quick`: 3 resolutions x the serial loader and 1, 2, 3, 4, 6, 8 workers on an emulated H100, once quick and once
thorough. The quick sweep measures the costly experiments only where its verdict is open; each of its verdicts must be
that of the thorough sweep, or a weaker word, in under 5 minutes. `watch`: each configuration of a sweep is judged again
without its segments of the loader alone and of compute alone, as `run --watch` judges. A firm side that contradicts the
experiment's is wrong. --from takes any run of `sweep`, or a folder of runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import loaderprobe
from loaderprobe.analyze.judge import verdict
from loaderprobe.errors import BadValue
from loaderprobe.records.measurement import Measurement, base_mode
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Verdict
from loaderprobe.stats import median
from scripts.benches.harness import answer, wanted
from scripts.benches.score import Marks, Row, Said

MARKS = Marks()
LIMIT_S, THOROUGH_S = 300.0, 1200.0
WEAK = ("either", "balanced", "inconclusive")
FIRM = ("compute", "input")


def names() -> list[str]:
    return ["quick", "watch"]


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """Both sweeps into `out`, and what they took."""
    # The data are generated before the clock runs.
    _swept(out, "first", "--rounds", "1", "--budget", "1")
    quick_s = _swept(out, "quick", "--budget", str(chosen.budget or LIMIT_S - 10))
    thorough_s = _swept(out, "thorough", "--thorough", "--budget", str(THOROUGH_S))
    (out / "seconds.json").write_text(json.dumps({"quick": quick_s, "thorough": thorough_s}))
    return True


def _swept(place: Path, name: str, *options: str) -> float:
    """Seconds of one sweep in a fresh process."""
    begin = time.monotonic()
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", "--workers", "1,2,3,4,6,8", "--json",
        "--compute", "emulated:mlperf-h100", "--data-dir", str(place / "data"), "--out", str(place / name),
    ]  # fmt: skip
    answer([*command, *options])
    return time.monotonic() - begin


def load(folder: Path, chosen: argparse.Namespace) -> list[Row]:
    """All rows of the runs that are kept there."""
    only, rows = wanted(names(), chosen.only), list[Row]()
    if "quick" in only and (folder / "seconds.json").exists():
        rows += _quick(folder)
    runs = [path.parent for path in sorted([*folder.glob("run.json"), *folder.glob("*/run.json")])]
    if "watch" in only:
        rows += _watched([run for run in runs if run.name not in ("first", "quick")])
    return rows


def _quick(folder: Path) -> Iterator[Row]:
    took = json.loads((folder / "seconds.json").read_text())
    quick, thorough = (
        loaderprobe.load(folder / name).report().summary.configurations for name in ("quick", "thorough")
    )
    slow = took["quick"] >= LIMIT_S
    yield Row(
        name="quick sweep",
        details=(f"{len(quick)} configurations: quick {took['quick']:.0f} s, thorough {took['thorough']:.0f} s",),
        faults=(f"{took['quick']:.0f} s",) * slow,
    )
    for one, other in zip(quick, thorough, strict=True):
        own, whole = _said(one), _said(other)
        firm = (
            ()
            if whole.cause in WEAK
            else ("preprocessing", "cpu")
            if "preprocessing" in whole.named
            else (whole.cause,)
        )
        stronger = not firm and own.cause not in WEAK and one.verdict and other.verdict
        # A weaker word is none.
        own = own if own.cause not in WEAK else replace(own, cause="inconclusive")
        faults = (f"quick says {own}, thorough {whole}",) * bool(stronger)
        yield Row(name=one.config.title(), planted=firm, said={"quick": own}, faults=faults)


def _said(row: ConfigurationRow) -> Said:
    if row.verdict is None:
        return Said(cause=str(row.status))
    bound = row.verdict.bound
    return Said(cause=bound.cause, candidates=tuple(bound.candidates))


def _watched(runs: list[Path]) -> Iterator[Row]:
    ratios: dict[tuple[int, str], list[float]] = defaultdict(list)
    for run in runs:
        for measured in _measurements(run):
            try:
                experiment, estimated = verdict(measured), verdict(as_watched(measured))
            except BadValue as error:
                print(f"{run.name}: left out: {error.message}")
                continue
            side, said = experiment.bound.side, estimated.bound.side
            for name in ("loader", "compute"):
                if ratio := _over(estimated, experiment, name):
                    ratios[measured.config.loader.workers, name].append(ratio)
            yield Row(
                name=f"{run.name} {measured.config.title()}",
                planted=(side,) if side in FIRM else (),
                said={"watch": Said(cause=said if said in FIRM else "inconclusive")},
            )
    print("estimated over measured: least, median, most")
    for (workers, name), found in sorted(ratios.items()):
        print(f"{workers} workers: {name} {min(found):.2f} {median(found):.2f} {max(found):.2f}")


def _measurements(run: Path) -> Iterator[Measurement]:
    """Those of a run that trained."""
    directory = loaderprobe.load(run).directory
    for config in directory.record.spec.configs:
        found = directory.result(config.key) if directory.has_measurement(config.key) else None
        if isinstance(found, Measurement) and as_watched(found).segments:
            yield found


def as_watched(measured: Measurement) -> Measurement:
    """Only its segments of training on the loader as asked."""
    base = base_mode(measured)
    trained = tuple(s for s in measured.segments if s.activity == "training" and s.mode == base)
    return replace(measured, segments=trained)


def _over(estimated: Verdict, experiment: Verdict, name: str) -> float | None:
    """The estimated rate over the measured one."""
    rates = [getattr(each.rates_images_per_s, name) for each in (estimated, experiment)]
    return rates[0] / rates[1] if all(rates) else None

"""Family `sweeps`: verdicts from training alone, as `run --watch` judges, against those of the experiment.

Each configuration of a thorough sweep is judged again without its segments of the loader alone and of compute alone. A
firm side that contradicts the experiment's is wrong. --from takes any run of `sweep`, or a folder of runs.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import loaderprobe
from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.errors import BadValue
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import Verdict
from loaderprobe.stats import median
from scripts.benches.harness import measurements
from scripts.benches.score import Row, Said

RIGHT_AT_LEAST = 0.0
BUDGET_S = 1200.0
FIRM = ("compute", "input")


def names() -> list[str]:
    return ["watch"]


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    """A sweep of 3 resolutions, serial and with up to 8 workers, into `out`."""
    loaderprobe.sweep(
        workers=(1, 2, 3, 4, 6, 8), compute="emulated:mlperf-h100", data_dir=out / "data", out=out / "thorough",
        thorough=True, budget_s=chosen.budget or BUDGET_S,
    )  # fmt: skip
    return True


def load(folder: Path, _: argparse.Namespace) -> list[Row]:
    return list(_watched([path.parent for path in sorted([*folder.glob("run.json"), *folder.glob("*/run.json")])]))


def _watched(runs: list[Path]) -> Iterator[Row]:
    ratios: dict[tuple[int, str], list[float]] = defaultdict(list)
    for run in runs:
        for measured in measurements(run):
            if not as_watched(measured).segments:
                continue
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
    for (workers, name), of_name in sorted(ratios.items()):
        print(f"{workers} workers: {name} {min(of_name):.2f} {median(of_name):.2f} {max(of_name):.2f}")


def as_watched(measured: Measurement) -> Measurement:
    """Only its segments of training on the loader as asked."""
    base = measured.config.mode
    trained = tuple(s for s in measured.segments if s.activity == "training" and s.mode == base)
    return replace(measured, segments=trained)


def _over(estimated: Verdict, experiment: Verdict, name: str) -> float | None:
    rates = [getattr(judged.rates_images_per_s, name) for judged in (estimated, experiment)]
    return rates[0] / rates[1] if all(rates) else None

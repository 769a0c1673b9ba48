"""Verdicts from training alone, as of `run --watch`, with those of the experiment, on stored runs of `sweep`.

Each configuration is judged again without its segments of the loader alone and of compute alone. A firm side that
contradicts the experiment's is wrong, and the bench fails; no side where the experiment has one is weaker.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import loaderprobe
from loaderprobe.analyze.judge import verdict
from loaderprobe.records.measurement import NO_STEP, Measurement, base_mode
from loaderprobe.records.verdict import Side, Verdict
from loaderprobe.stats import median
from scripts.benches.harness import parser

FIRM: tuple[Side, ...] = ("compute", "input")


def measurements(run: Path) -> Iterator[Measurement]:
    """Those of a run that trained."""
    directory = loaderprobe.load(run).directory
    for config in directory.record.spec.configs:
        found = directory.result(config.key) if directory.has_measurement(config.key) else None
        if isinstance(found, Measurement) and found.compute.name != NO_STEP:
            yield found


def as_watched(measured: Measurement) -> Measurement:
    """Only its segments of training on the loader as asked."""
    base = base_mode(measured)
    trained = tuple(s for s in measured.segments if s.activity == "training" and s.mode == base)
    return replace(measured, segments=trained)


def agrees(experiment: Side, estimated: Side) -> str:
    if experiment == estimated:
        return "same"
    if experiment in FIRM:
        return "WRONG" if estimated in FIRM else "weaker"
    return "stronger"


def over(estimated: Verdict, experiment: Verdict, name: str) -> float | None:
    """The estimated rate over the measured one."""
    rates = [getattr(each.rates_images_per_s, name) for each in (estimated, experiment)]
    return rates[0] / rates[1] if all(rates) else None


def shown(ratios: list[float]) -> str:
    return f"{min(ratios):.2f} {median(ratios):.2f} {max(ratios):.2f}" if ratios else ""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("runs", nargs="+", type=Path, help="directories of sweeps")
    counts: Counter[tuple[str, str]] = Counter()
    ratios: dict[tuple[int, str], list[float]] = defaultdict(list)
    for run in options.parse_args().runs:
        for measured in measurements(run):
            experiment, estimated = verdict(measured), verdict(as_watched(measured))
            side = experiment.bound.side
            how = agrees(side, estimated.bound.side)
            counts[side, how] += 1
            if how == "WRONG":
                print(f"{run}: {measured.config.title()}: {side}, but {estimated.bound.side}")
            for name in ("loader", "compute"):
                if ratio := over(estimated, experiment, name):
                    ratios[measured.config.loader.workers, name].append(ratio)
    for (judged, how), count in sorted(counts.items()):
        print(f"{judged:14} {how:10} {count}")
    print("estimated over measured: least, median, most")
    for workers in sorted({number for number, _ in ratios}):
        print(
            f"{workers} workers: loader {shown(ratios[workers, 'loader'])}, compute {shown(ratios[workers, 'compute'])}"
        )
    return 1 if any(how == "WRONG" for _, how in counts) else 0


if __name__ == "__main__":
    sys.exit(main())

"""How far are forecasts from what was then measured? Judged on stored runs.

Each RUN is a directory that a sweep wrote; runs of the same configurations repeat each other, and say how well a
measurement repeats at all. From each run, the configurations with `--fit` workers are fitted, and those with
more workers and those on other accelerators (of the same data, with the same workers) are forecast. An outcome
is what any of the runs measured there. Printed are the errors beside the repeat error, and how often the
printed range held the outcome.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from loaderprobe.analyze.fit import Fit, Point, fit, point_of
from loaderprobe.analyze.forecast import accelerator
from loaderprobe.analyze.gains import run_experiments
from loaderprobe.analyze.knee import worker_forecasts
from loaderprobe.analyze.rates import rates_by_round
from loaderprobe.analyze.service import Storage
from loaderprobe.analyze.validity import base_mode
from loaderprobe.records.config import RunConfig
from loaderprobe.records.forecast import Forecast
from loaderprobe.records.measurement import Measurement
from loaderprobe.stats import median, quantile
from loaderprobe.store.run_directory import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A forecast beside what was measured."""

    what: str
    config: RunConfig
    forecast: Forecast
    measured: float

    @property
    def error(self) -> float:
        assert self.forecast.images_per_s
        return abs(self.forecast.images_per_s.value / self.measured - 1)

    @property
    def held(self) -> bool:
        assert self.forecast.images_per_s
        return self.forecast.images_per_s.low <= self.measured <= self.forecast.images_per_s.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One stored run: what was measured, and what is known of the storage."""

    measured: dict[str, Measurement]
    storage: dict[str, Storage]

    @classmethod
    def load(cls, path: Path) -> Run:
        run = RunDirectory.open(path)
        found = [run.result(config.key) for config in run.record.spec.configs]
        return cls(
            measured={each.config.key: each for each in found if isinstance(each, Measurement)},
            storage={data: Storage(ceiling=run.ceiling(data)) for data in {c.data for c in run.record.spec.configs}},
        )


def rate(measurement: Measurement) -> float:
    return median(list(rates_by_round(measurement, base_mode(measurement), "train").values()))


def groups(run: Run) -> Iterator[list[Measurement]]:
    """The measurements that differ in workers only."""
    found: dict[RunConfig, list[Measurement]] = defaultdict(list)
    for each in run.measured.values():
        found[replace(each.config, workers=0, prefetch_factor=0)].append(each)
    yield from found.values()


def points(run: Run, group: list[Measurement], fitted: tuple[int, ...]) -> tuple[Point, ...]:
    made = [
        point_of(each, run_experiments(each, run.storage[each.config.data].ceiling))
        for each in group
        if each.config.workers in fitted
    ]
    return tuple(point for point in made if isinstance(point, Point))


def unmeasured_workers(run: Run, others: list[Run], fitted: tuple[int, ...]) -> Iterator[Outcome]:
    for group in groups(run):
        known = points(run, group, fitted)
        made = worker_forecasts(known, run.storage[group[0].config.data]) if known else {}
        for each in group:
            if each.config.workers in made and each.config.workers > max(fitted):
                for other in [run, *others]:
                    if each.config.key in other.measured:
                        yield Outcome(
                            what="workers",
                            config=each.config,
                            forecast=made[each.config.workers],
                            measured=rate(other.measured[each.config.key]),
                        )


def unmeasured_accelerators(run: Run, others: list[Run]) -> Iterator[Outcome]:
    """From each device to every other with a given rate, at the same workers."""
    for each in run.measured.values():
        point = points(run, [each], (each.config.workers,))
        found = fit(point, point[0], run.storage[each.config.data]) if point else "no point"
        for other in [run, *others]:
            for target in other.measured.values():
                given = target.compute.given_images_per_s
                same = replace(target.config, compute=each.config.compute) == each.config
                if isinstance(found, Fit) and given and same and target.config.compute != each.config.compute:
                    made = accelerator(found, given, target.config.compute)
                    yield Outcome(what="accelerator", config=target.config, forecast=made, measured=rate(target))


def repeat_errors(runs: list[Run], keys: set[str]) -> list[float]:
    """Between every two runs of one configuration, of those that were forecast."""
    return [
        abs(rate(one.measured[key]) / rate(other.measured[key]) - 1)
        for place, one in enumerate(runs)
        for other in runs[place + 1 :]
        for key in keys & one.measured.keys() & other.measured.keys()
    ]


def show(what: str, outcomes: list[Outcome], runs: list[Run]) -> bool:
    """Print one line; False where the errors are larger than may be."""
    made = [each for each in outcomes if each.forecast.images_per_s]
    if not made:
        print(f"{what:12} nothing forecast of {len(outcomes)}")
        return not outcomes
    errors = [each.error for each in made]
    repeats = repeat_errors(runs, {each.config.key for each in made})
    held = sum(each.held for each in made) / len(made)
    beside = (
        f"repeat median {median(repeats):6.1%}, p95 {quantile(repeats, 0.95):6.1%}" if repeats else "no repeated run"
    )
    print(
        f"{what:12} {len(made):4} of {len(outcomes)} made, median {median(errors):6.1%}, "
        f"p95 {quantile(errors, 0.95):6.1%}; {beside}; range held {held:.0%}"
    )
    return held >= 0.9 and (not repeats or median(errors) <= 1.2 * median(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--fit", default="1,2", help="worker counts that are fitted; more are forecast")
    parser.add_argument("--all", action="store_true", help="print every forecast")
    options = parser.parse_args()
    fitted = tuple(int(number) for number in options.fit.split(","))
    runs = [Run.load(path) for path in options.runs]
    outcomes: dict[str, list[Outcome]] = {"workers": [], "accelerator": []}
    for place, run in enumerate(runs):
        others = [*runs[:place], *runs[place + 1 :]]
        outcomes["workers"] += unmeasured_workers(run, others, fitted)
        outcomes["accelerator"] += unmeasured_accelerators(run, others)
    if options.all:
        for each in (each for made in outcomes.values() for each in made):
            found = each.forecast.images_per_s
            words = f"{found.value:8.1f} ({found.low:.1f} to {found.high:.1f})" if found else f"{each.forecast.refused}"
            print(f"{each.what:12} {each.config.title():50} measured {each.measured:8.1f}, forecast {words}")
    good = [show(what, made, runs) for what, made in outcomes.items()]
    if not all(good):
        sys.exit(1)


if __name__ == "__main__":
    main()

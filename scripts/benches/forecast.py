"""How far are forecasts from what is then measured on planted disks? Some 11 minutes, as root.

`forecast_disks` says what is measured. From each visit to the disks is forecast: more workers, from one and two; fewer,
from four; each other accelerator; and the faster disk of the same kind, from the slower, as much faster as `loaderprobe
bandwidth` found. Each forecast is compared with what *other* visits measured there, so that its error holds what the
machine changes meanwhile, as does the error beside it: that of one visit's rate taken for another's (repeat). Rows
where the accelerator's own rate is all there is to it, by forecast as by measurement, are counted apart: that rate is
given, so they would only make both errors small. A measurement during which other processes had the cores is left out
on both sides, and named: its workers waited for cores that they did not use, on warm files as well.

With --keep the raw measurements stay, and what is there already is not measured again; --from judges what was kept,
and measures nothing. Ends with code 1 when, for one kind of forecast, the median error is over 1.5 times that of
repeats, or the ranges hold less than 90 % of the outcomes. (It was 1.2 times before, for the 95th percentile too: of
some fifteen rows that is the worst.) The lines of one kind of disk each have few rows, and are not judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loaderprobe.analyze.forecast.changes import accelerator, disk, refused, worker_forecasts
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Forecast
from loaderprobe.render.remarks import remark_words
from loaderprobe.stats import median, quantile
from loaderprobe.units import join_words
from scripts.benches.forecast_disks import ACCELERATORS, DISKS, WORKERS, measure, measure_visit
from scripts.benches.forecast_kept import Kept, Place
from scripts.benches.harness import parser_of_kept, raw_results

FITTED = ((1, 2), (4,))
TIMES_REPEAT = 1.5
HELD_AT_LEAST = 0.9
# Nearer than this to the accelerator's own rate, the accelerator was the limit.
GIVEN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A forecast beside what was measured at another time, and what was measured there when it was made."""

    place: Place
    source: str
    forecast: Forecast
    measured: float
    before: float | None

    @property
    def error(self) -> float:
        assert self.forecast.images_per_s
        return abs(self.forecast.images_per_s.value / self.measured - 1)

    @property
    def held(self) -> bool:
        assert self.forecast.images_per_s
        return self.forecast.images_per_s.low <= self.measured <= self.forecast.images_per_s.high

    @property
    def width(self) -> float:
        """Half of the range, relative."""
        found = self.forecast.images_per_s
        assert found
        return (found.high - found.low) / 2 / found.value

    @property
    def open(self) -> bool:
        """False where the accelerator is the limit, by forecast as by measurement: its rate was given."""
        assert self.forecast.images_per_s
        rates = (self.measured, self.forecast.images_per_s.value, self.before or 0.0)
        return any(abs(rate / float(self.place.accelerator) - 1) > GIVEN for rate in rates)

    @property
    def repeat(self) -> float | None:
        return None if self.before is None else abs(self.before / self.measured - 1)


def outcomes(kept: Kept, place: Place, visit: int, source: str, forecast: Forecast) -> Iterator[Outcome]:
    """Against every other visit."""
    for other in kept.visits:
        rate = kept.rate(place, other)
        if other != visit and rate is not None:
            before = kept.rate(place, visit)
            yield Outcome(place=place, source=f"{source} v{visit}", forecast=forecast, measured=rate, before=before)


def unmeasured_workers(kept: Kept) -> Iterator[Outcome]:
    for visit in kept.visits:
        for name in {(place.disk, place.accelerator) for place in kept.measured(visit)}:
            for fitted in FITTED:
                known = kept.points(*name, visit, fitted)
                made = worker_forecasts(known, kept.storage[name[0]]) if known else {}
                for workers in WORKERS:
                    place = Place(disk=name[0], workers=workers, accelerator=name[1])
                    if workers not in fitted and place in kept.measured(visit):
                        forecast = made.get(workers) or refused("workers", str(workers), Remark(code="no_model_fits"))
                        yield from outcomes(kept, place, visit, f"{join_words([*map(str, fitted)])} workers", forecast)


def unmeasured_accelerators(kept: Kept) -> Iterator[Outcome]:
    for visit in kept.visits:
        for place in kept.measured(visit):
            found = kept.fit(place, visit)
            for name in ACCELERATORS:
                if name != place.accelerator:
                    target = Place(disk=place.disk, workers=place.workers, accelerator=name)
                    forecast = (
                        refused("accelerator", name, found)
                        if isinstance(found, Remark)
                        else accelerator(found, float(name))
                    )
                    yield from outcomes(kept, target, visit, f"a{place.accelerator}", forecast)


def unmeasured_disks(kept: Kept) -> Iterator[Outcome]:
    pairs = [(a, b) for a in DISKS for b in DISKS if a.kind == b.kind and a.mb_per_s < b.mb_per_s]
    for slow, fast in pairs:
        slow_rate, fast_rate = (kept.storage[each.name].bytes_per_s or 1.0 for each in (slow, fast))
        for visit in kept.visits:
            for place in kept.measured(visit):
                if place.disk == slow.name:
                    found = kept.fit(place, visit)
                    target = Place(disk=fast.name, workers=place.workers, accelerator=place.accelerator)
                    forecast = (
                        refused("disk_speed", fast.name, found)
                        if isinstance(found, Remark)
                        else disk(found, fast_rate / slow_rate)
                    )
                    yield from outcomes(kept, target, visit, slow.name, forecast)


def show(what: str, outcomes: list[Outcome]) -> bool:
    """Print one line for all of them and one for each kind of disk; False where the errors are larger than may be."""
    forecast = [each for each in outcomes if each.forecast.images_per_s]
    made = [each for each in forecast if each.open]
    if not made:
        print(f"{what:14} none made of {len(outcomes)}")
        return False
    good = _line(what, made)
    for kind in dict.fromkeys(each.kind for each in DISKS):
        some = [each for each in made if each.place.disk.startswith(kind)]
        if some:
            _line(f"  {kind}", some, judged=False)
    print(
        f"  beside these, {len(forecast) - len(made)} where the accelerator's given rate was all, "
        f"{len(outcomes) - len(forecast)} refused"
    )
    return good


def _line(what: str, made: list[Outcome], *, judged: bool = True) -> bool:
    errors = [each.error for each in made]
    repeats = [each.repeat for each in made if each.repeat is not None]
    held = sum(each.held for each in made) / len(made)
    good = median(errors) <= TIMES_REPEAT * median(repeats) and held >= HELD_AT_LEAST
    print(
        f"{what:15}{len(made):4} {median(errors):14.1%} {quantile(errors, 0.9):6.1%} {median(repeats):16.1%} "
        f"{quantile(repeats, 0.9):5.1%} {held:5.0%} {'±' + format(median([e.width for e in made]), '.0%'):>14}"
        f"{('  good' if good else '  NOT SHOWN') if judged else ''}"
    )
    return good


def show_each(what: str, each: Outcome) -> None:
    found = each.forecast.images_per_s
    words = remark_words(each.forecast.refused) if each.forecast.refused else ""
    if found:
        words = f"{found.value:7.1f} ({found.low:.1f} to {found.high:.1f})"
    off = f"error {each.error:6.1%}{'' if each.held else ' NOT HELD'}" if found else ""
    repeat = f"{each.repeat:6.1%}" if each.repeat is not None else "-"
    print(
        f"{what:12} {each.place!s:22} from {each.source:16} measured {each.measured:7.1f}, forecast {words:28} "
        f"repeat {repeat} {off}"
    )


def report(kept: Kept, everything: bool) -> bool:
    for disk_name, storage in kept.storage.items():
        if storage.ceiling and storage.ceiling.kind:
            print(f"{disk_name}: {storage.ceiling.kind.kind} by the probe, {(storage.bytes_per_s or 0) / 1e6:.1f} MB/s")
    if kept.disturbed:
        print(f"left out, since other processes had the cores: {', '.join(sorted(kept.disturbed))}")
    found = {
        "workers": list(unmeasured_workers(kept)),
        "disk speeds": list(unmeasured_disks(kept)),
        "accelerators": list(unmeasured_accelerators(kept)),
    }
    if everything:
        for what, outcomes in found.items():
            for each in outcomes:
                show_each(what, each)
    print(f"{'forecast':14} rows  error: median    p90  repeats: median   p90  held  range: median")
    good = [show(what, outcomes) for what, outcomes in found.items()]
    return all(good)


def options() -> argparse.Namespace:
    found = parser_of_kept(__doc__)
    found.add_argument("--visits", default="1,2", help="which visits to make; at least two are needed to judge")
    found.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    return found.parse_args()


def main() -> int:
    chosen = options()
    if chosen.child:
        name, visit, folder, out = chosen.child
        measure_visit(name, int(visit), Path(folder), Path(out))
        return 0
    visits = [int(number) for number in chosen.visits.split(",")]
    with raw_results(chosen, lambda out: measure(out, visits)) as (source, _):
        kept = Kept(source)
        if len(kept.visits) < 2:
            print("fewer than two visits were measured, so there is nothing to judge")
            return 1
        return 0 if report(kept, chosen.all) else 1


if __name__ == "__main__":
    sys.exit(main())

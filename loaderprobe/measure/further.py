"""Further rounds: what their segments take, what of them a budget has time for, and how they join earlier ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, NamedTuple

from loaderprobe.measure.segments import OVERHEAD, pace_for
from loaderprobe.records.measurement import (
    MOST_SERVICES,
    Activity,
    Measurement,
    Mode,
    RankSeen,
    Segment,
    Series,
    WorkerBatches,
)
from loaderprobe.records.remark import Remark, each_once
from loaderprobe.records.waits import WaitSamples
from loaderprobe.stats import mean

NO_TIME = Remark(code="no_time")
CUT_SHORT = Remark(code="cut_short")
TOO_SHORT = (NO_TIME.code, CUT_SHORT.code)
# A budget that is said is a multiple of this.
BUDGET_STEP_S = 5


class Part(NamedTuple):
    """A segment of a round."""

    mode: Mode
    activity: Activity
    without: int | None = None
    """The rank that takes no input; None where all do."""

    @property
    def among_ranks(self) -> bool:
        """True for what only several ranks measure, which no other rate rests on."""
        return self.activity == "alone" or self.without is not None or self.mode in ("no_exchange", "exchange")


COMPUTE_ALONE = Part("resident", "training")


@dataclass(slots=True)
class Durations:
    """Wall seconds of segments so far, with their flush and eviction, by mode and activity."""

    usual_s: float
    """Of one that was not measured yet: cold ones may take many times as long as others."""
    _took_s: dict[Part, list[float]] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, measurement: Measurement) -> Durations:
        """From a measurement; what it took beside its timed segments is divided evenly over them."""
        loader, rounds = measurement.config.loader, measurement.config.rounds
        pace = pace_for(workers=loader.workers, rounds=rounds, budget_s=measurement.wall_s)
        timed_s = [_timed_s(segment) for segment in measurement.segments]
        beside_s = max(0.0, measurement.wall_s - sum(timed_s)) / len(timed_s)
        found = cls(usual_s=OVERHEAD * pace.max_s)
        for each, seconds in zip(measurement.segments, timed_s, strict=True):
            found.add(Part(each.mode, each.activity, each.without), seconds + beside_s)
        return found

    def add(self, part: Part, seconds: float) -> None:
        """Keep what one segment took."""
        self._took_s.setdefault(part, []).append(seconds)

    def of_round(self, plan: Sequence[Part]) -> float:
        """Seconds that these segments are expected to take."""
        return sum(mean(self._took_s.get(each, [self.usual_s])) for each in plan)

    def of_least(self, plan: Iterable[tuple[Mode, Activity]]) -> float:
        """The same of as little of a round as can still be compared."""
        return min(map(self.of_round, self._smaller([Part(*each) for each in plan])))

    def fitting(
        self, plan: Sequence[Part], left_s: float, *, shorter: Sequence[Part] = (), times: int = 1
    ) -> list[Part]:
        """As much of a round as fits into `left_s` seconds and can still be compared; empty when nothing does.

        What is on one thread is left out first, then what only ranks have, then compute alone, which hardly changes
        from round to round. Then training is, where the round also has the loader without a resource, which is
        compared with the loader as it is.
        `shorter` is the part of the round that decides. Where all of it fits fewer than `times` times, but less of it
        does, that is measured so often: a single round shows no noise.
        """
        whole, least = self._smaller(plan), self._smaller(shorter) if shorter else iter(())
        smaller = [*whole, *least]
        trains = any(each.activity == "training" and each != COMPUTE_ALONE for each in shorter or plan)
        for each in smaller if times > 1 else ():
            untrained = trains and not any(part.activity == "training" and part != COMPUTE_ALONE for part in each)
            if not untrained and times * self.of_round(each) <= left_s:
                return each
        return next((each for each in smaller if self.of_round(each) <= left_s), [])

    def _smaller(self, plan: Sequence[Part]) -> Iterator[list[Part]]:
        rest = list(plan)
        yield rest
        if any(each.mode == "one_thread" for each in rest):
            # It is for advice: the verdict needs the others.
            rest = [each for each in rest if each.mode != "one_thread"]
            yield rest
        if any(each.among_ranks for each in rest):
            rest = [each for each in rest if not each.among_ranks]
            yield rest
        if COMPUTE_ALONE in rest and COMPUTE_ALONE in self._took_s:
            rest = [each for each in rest if each != COMPUTE_ALONE]
            yield rest
        trained = [each for each in rest if each.activity == "training"]
        compared = sum(each.activity == "loader_only" for each in rest) > 1
        if compared and len(trained) == 1 and trained[0] in self._took_s:
            yield [each for each in rest if each not in trained]


def enough_said(notes: Sequence[Remark], budget_s: float, rounds: int) -> tuple[Remark, ...]:
    """The same notes; the last one that time was too short says that such a budget would allow so many rounds."""
    whole_s = float(math.ceil(budget_s / BUDGET_STEP_S) * BUDGET_STEP_S)
    last = max((place for place, note in enumerate(notes) if note.code in TOO_SHORT), default=-1)
    said = (replace(note, facts={"budget_s": whole_s, "rounds": float(rounds)}) for note in notes[last : last + 1])
    return (*notes[:last], *said, *notes[last + 1 :]) if last >= 0 else tuple(notes)


def _timed_s(segment: Segment) -> float:
    return (segment.closed_ns - segment.begin_ns[0]) / 1e9


def joined(earlier: Measurement, later: Measurement) -> Measurement:
    """One measurement of the rounds of both; those of the later one, and its batches, are numbered on.

    Parts of a round are compared with each other only, so rounds of another process count like those before.
    """
    rounds = 1 + max(segment.round for segment in earlier.segments)
    ends = (segment.first_batch + segment.steps for segment in earlier.segments)
    batches = max((*ends, *(number + 1 for number in earlier.worker_batches.batch)))
    missing = {each.name: each for each in chain(earlier.missing, later.missing)}
    has = {"gpu_timeline": earlier.timeline or later.timeline, "waits": earlier.waits or later.waits}
    series = {each.name: each for each in earlier.series}
    return replace(
        earlier,
        segments=(*earlier.segments, *(_numbered_on(segment, rounds, batches) for segment in later.segments)),
        worker_batches=_both_batches(earlier.worker_batches, later.worker_batches, batches),
        series=(
            *(_both_series(series.pop(each.name, None), each) for each in later.series),
            *series.values(),
        ),
        missing=tuple(each for name, each in missing.items() if not has.get(name)),
        waits=_both_waits(earlier.waits, later.waits),
        by_rank=tuple(map(_both_seen, earlier.by_rank, later.by_rank)),
        timeline=earlier.timeline or later.timeline,
        notes=each_once((*(n for n in earlier.notes if n.code not in TOO_SHORT), *later.notes)),
        wall_s=earlier.wall_s + later.wall_s,
    )


def _numbered_on(segment: Segment, rounds: int, batches: int) -> Segment:
    first = segment.first_batch if segment.first_batch < 0 else segment.first_batch + batches
    return replace(segment, round=segment.round + rounds, first_batch=first)


def _both_batches(earlier: WorkerBatches, later: WorkerBatches, batches: int) -> WorkerBatches:
    columns: dict[str, Any] = {}
    for name in (each.name for each in fields(WorkerBatches) if each.name not in ("batch", "lost")):
        both = getattr(earlier, name), getattr(later, name)
        # A column that one of them did not record is not recorded.
        columns[name] = tuple(chain(*both)) if all(map(len, both)) else ()
    return WorkerBatches(
        batch=(*earlier.batch, *(number + batches for number in later.batch)),
        lost=earlier.lost + later.lost,
        **columns,
    )


def _both_series(earlier: Series | None, later: Series) -> Series:
    if earlier is None:
        return later
    return replace(later, time_ns=(*earlier.time_ns, *later.time_ns), values=(*earlier.values, *later.values))


def _both_seen(earlier: RankSeen, later: RankSeen) -> RankSeen:
    columns = {
        each.name: getattr(earlier, each.name) + getattr(later, each.name)
        for each in fields(RankSeen)
        if isinstance(getattr(later, each.name), tuple)
    }
    return replace(later, **{**columns, "service_ns": columns["service_ns"][:MOST_SERVICES]})


def _both_waits(earlier: WaitSamples | None, later: WaitSamples | None) -> WaitSamples | None:
    if earlier is None or later is None:
        return earlier or later
    offset = len(earlier.subjects)
    return WaitSamples(
        time_ns=(*earlier.time_ns, *later.time_ns),
        worker=(*earlier.worker, *later.worker),
        kind=(*earlier.kind, *later.kind),
        subject=(*earlier.subject, *(each + offset if each >= 0 else each for each in later.subject)),
        subjects=(*earlier.subjects, *later.subjects),
        letters_only=later.letters_only or earlier.letters_only,
        cpu_ns=earlier.cpu_ns + later.cpu_ns,
        wall_ns=earlier.wall_ns + later.wall_ns,
    )

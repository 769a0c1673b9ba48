"""How long a segment takes: when it may end, and how much of a round fits into the time that is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from loaderprobe.records.measurement import Activity, Measurement, Mode
from loaderprobe.stats import mean

# Rate times CPU per image settles to 1 to 3 % within 1 to 2 s; three rounds of 0.7 s reach it.
MIN_SECONDS = 0.7
MIN_BATCHES = 12
# Of a cold segment, where the data set has no more files that were not read yet.
MIN_COLD_BATCHES = 3
# Token-bucket devices grant reads in slices: where workers mostly wait for storage, look for longer.
MIN_SECONDS_BLOCKED = 2.0
BLOCKED_SHARE = 0.3
# A slow device gets fewer than 12 steps; over at least this long they still average its noise.
MAX_SECONDS = 3.0
MIN_STEPS_OF_SLOW_DEVICE = 3
# Most steps of a segment: more add no information.
MOST_BATCHES = 10_000
# In times of the longest usual segment, when there is an end to waiting; twice that within a period of the workers.
LONGEST = 4.0
# Assumed, not measured: wall time of a segment over its timed part: flush, eviction, warming.
OVERHEAD = 1.6
# The loader alone, training on it, and as much again for the modes that decide an open verdict.
SEGMENTS_A_ROUND = 4


Enough = Callable[[int, float], bool]
"""True when a segment of so many steps over so many seconds may end: `Pace.enough`, or what ranks agree on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When a segment may end: a whole multiple of the worker count, enough seconds, enough batches."""

    min_s: float = MIN_SECONDS
    min_batches: int = MIN_BATCHES
    max_s: float = MAX_SECONDS
    multiple: int = 1
    max_batches: int | None = None
    """Set where each file may be read only once, to stay cold."""

    def enough(self, steps: int, seconds: float) -> bool:
        """True when a segment of `steps` steps over `seconds` may end."""
        if steps >= (MOST_BATCHES if self.max_batches is None else self.max_batches):
            return True
        latest_s = LONGEST * self.max_s
        if seconds >= 2 * latest_s and steps:
            # So slow that the rest of a period of the workers cannot be waited for.
            return True
        if steps % self.multiple:
            # Batches come in groups: two workers make three in the time of four.
            return False
        if seconds >= latest_s and steps:
            return True
        if seconds >= self.min_s and steps >= self.min_batches:
            return True
        return seconds >= self.max_s and steps >= MIN_STEPS_OF_SLOW_DEVICE

    def expected(self, steps: int, seconds: float) -> int:
        """The steps at which a segment may end that has taken `steps` in `seconds`, if further ones take as long."""
        if not seconds or not steps:
            return steps + 1
        most_steps = MOST_BATCHES if self.max_batches is None else self.max_batches
        usual = self._whole(max(self.min_batches, self.min_s * steps / seconds))
        slow = self._whole(max(MIN_STEPS_OF_SLOW_DEVICE, self.max_s * steps / seconds))
        latest = LONGEST * self.max_s * steps / seconds
        return max(steps + 1, min(most_steps, usual, slow, self._whole(latest), math.ceil(2 * latest)))

    @property
    def fewest_cold(self) -> int:
        """Steps of the shortest cold segment: less than a whole period of the workers is no rate."""
        return self._whole(MIN_COLD_BATCHES)

    def _whole(self, steps: float) -> int:
        return math.ceil(steps / self.multiple) * self.multiple

    def for_blocked_workers(self) -> Pace:
        """The pace for workers that spend much of their time waiting for storage."""
        return replace(self, min_s=max(self.min_s, min(MIN_SECONDS_BLOCKED, self.max_s)))

    def holding(self, batches: int, seconds: float) -> Pace:
        """The pace of segments of at least so many batches, unless they take longer than these seconds."""
        return replace(self, min_batches=max(batches, self.min_batches), max_s=max(seconds, self.max_s))


def pace_for(*, workers: int, rounds: int, budget_s: float | None) -> Pace:
    """The pace that fits a configuration into `budget_s` seconds, but not below the minimum."""
    max_s = MAX_SECONDS
    if budget_s is not None:
        timed_s = budget_s / OVERHEAD
        max_s = min(MAX_SECONDS, max(MIN_SECONDS, timed_s / (rounds * SEGMENTS_A_ROUND)))
    return Pace(max_s=max_s, multiple=max(workers, 1))


class Part(NamedTuple):
    """A segment of a round."""

    mode: Mode
    activity: Activity
    without: int | None = None
    """The rank that takes no input; None where all do."""

    @property
    def loads(self) -> bool:
        """False for steps without the loader."""
        return self.mode not in ("resident", "no_exchange", "exchange")

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
    _beside_s: list[float] = field(init=False, default_factory=list)
    """Of those with the loader, what they took beside their timed part."""

    @classmethod
    def of(cls, measurement: Measurement) -> Durations:
        """From a measurement; what it took beside its timed segments, once begun, is divided evenly over them."""
        loader, rounds = measurement.config.loader, measurement.config.rounds
        pace = pace_for(workers=loader.workers, rounds=rounds, budget_s=measurement.wall_s)
        timed_s = [segment.seconds for segment in measurement.segments]
        beside_s = max(0.0, measurement.wall_s - measurement.first_batch_s - sum(timed_s)) / len(timed_s)
        durations = cls(usual_s=OVERHEAD * pace.max_s)
        for segment, seconds in zip(measurement.segments, timed_s, strict=True):
            durations.add(Part(segment.mode, segment.activity, segment.without), seconds, beside_s)
        return durations

    def add(self, part: Part, timed_s: float, beside_s: float) -> None:
        self._took_s.setdefault(part, []).append(timed_s + beside_s)
        if part.loads:
            self._beside_s.append(beside_s)

    def of_round(self, plan: Sequence[Part]) -> float:
        """Seconds that these segments are expected to take: a new one with the loader flushes as others do."""
        flushes_s = max(self.usual_s, self.usual_s / OVERHEAD + mean(self._beside_s or [0.0]))
        return sum(mean(self._took_s.get(part, [flushes_s if part.loads else self.usual_s])) for part in plan)

    def of_least(self, plan: Iterable[tuple[Mode, Activity]]) -> float:
        """The same of as little of a round as can still be compared."""
        return min(map(self.of_round, self._smaller([Part(*pair) for pair in plan])))

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
        trains = any(part.activity == "training" and part != COMPUTE_ALONE for part in shorter or plan)
        for parts in smaller if times > 1 else ():
            untrained = trains and not any(part.activity == "training" and part != COMPUTE_ALONE for part in parts)
            if not untrained and times * self.of_round(parts) <= left_s:
                return parts
        return next((parts for parts in smaller if self.of_round(parts) <= left_s), [])

    def _smaller(self, plan: Sequence[Part]) -> Iterator[list[Part]]:
        rest = list(plan)
        yield rest
        # One thread is for advice: the verdict needs the others.
        rest = [part for part in rest if part.mode != "one_thread"]
        yield rest
        rest = [part for part in rest if not part.among_ranks]
        yield rest
        if COMPUTE_ALONE in self._took_s:
            rest = [part for part in rest if part != COMPUTE_ALONE]
            yield rest
        trained = [part for part in rest if part.activity == "training"]
        compared = sum(part.activity == "loader_only" for part in rest) > 1
        if compared and len(trained) == 1 and trained[0] in self._took_s:
            yield [part for part in rest if part not in trained]

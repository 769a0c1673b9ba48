"""The duration of a segment."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

# Rate times CPU per image settles to 1 to 3 % within 1 to 2 s; three rounds of 0.7 s reach it.
MIN_SECONDS = 0.7
MIN_BATCHES = 12
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
        most = MOST_BATCHES if self.max_batches is None else self.max_batches
        usual = self._whole(max(self.min_batches, self.min_s * steps / seconds))
        slow = self._whole(max(MIN_STEPS_OF_SLOW_DEVICE, self.max_s * steps / seconds))
        latest = LONGEST * self.max_s * steps / seconds
        return max(steps + 1, min(most, usual, slow, self._whole(latest), math.ceil(2 * latest)))

    def _whole(self, steps: float) -> int:
        return math.ceil(steps / self.multiple) * self.multiple

    def for_blocked_workers(self) -> Pace:
        """The pace for workers that spend much of their time waiting for storage."""
        return replace(self, min_s=max(self.min_s, min(MIN_SECONDS_BLOCKED, self.max_s)))


def pace_for(*, workers: int, rounds: int, budget_s: float | None) -> Pace:
    """The pace that fits a configuration into `budget_s` seconds, but not below the minimum."""
    max_s = MAX_SECONDS
    if budget_s is not None:
        timed_s = budget_s / OVERHEAD
        max_s = min(MAX_SECONDS, max(MIN_SECONDS, timed_s / (rounds * SEGMENTS_A_ROUND)))
    return Pace(max_s=max_s, multiple=max(workers, 1))

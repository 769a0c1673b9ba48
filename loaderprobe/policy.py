"""What to measure next: a policy asks, and one runner measures until the policy stops, or Ctrl-C does.

A policy keeps nothing between calls: all it knows are the results so far and the seconds they took. Its test is a list
of results in, and what it asks out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from loaderprobe.protocols import Clock

Q = TypeVar("Q")
"""What is asked."""
R = TypeVar("R")
"""What comes of it."""
S = TypeVar("S", covariant=True)
"""Why nothing more is."""
Q_co = TypeVar("Q_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Generic[Q_co]):
    """What to measure next, and how far everything is: in seconds, or in numbers where no time is known."""

    what: Q_co
    done: float = 0.0
    """Before it."""
    takes: float = 1.0
    total: float = 0.0
    budget_s: float | None = None
    """That it is given; None for as long as it needs."""


Ended = Literal["complete", "no_time"]
"""The reason of policies whose end has no more to say: all is measured, or there is no time for the rest."""


class Policy(Protocol[Q, R_contra, S]):
    """Decides what to measure next."""

    def next(self, done: Sequence[tuple[Q, R_contra]], spent_s: float) -> Ask[Q] | S:
        """What follows from these results, or why nothing more does; the same again for the same results.

        `done` are all asks so far, and what came of each; `spent_s` is the time since the first, with all that was done
        between them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(Generic[Q]):
    """The policy that asks each of these once; with a limit of seconds, none that takes longer than is left."""

    asks: Sequence[Q]
    """No two alike."""
    takes: Callable[[Q], float] = lambda ask: 1.0
    """Seconds that one is expected to take; 1 where no time is known."""
    left_s: float | None = None

    def next(self, done: Sequence[tuple[Q, R]], spent_s: float) -> Ask[Q] | Ended:
        """The next that there is time for."""
        begun = self.asks.index(done[-1][0]) + 1 if done else 0
        for ask in self.asks[begun:]:
            if self.left_s is None or spent_s + self.takes(ask) <= self.left_s:
                took = sum(self.takes(what) for what, _ in done)
                return Ask(what=ask, done=took, takes=self.takes(ask), total=sum(map(self.takes, self.asks)))
        return "complete" if len(done) == len(self.asks) else "no_time"


def follow(
    policy: Policy[Q, R, S], measure: Callable[[Ask[Q]], R], *, clock: Clock,
    enough: Callable[[Sequence[R]], bool] = lambda results: False,
) -> tuple[list[R], S | None]:  # fmt: skip
    """Measure what the policy asks, one after the other, until it stops: what came of all, and its reason.

    `measure` stores what is to be kept before it returns. Ctrl-C ends it: then the reason is None where the results so
    far are `enough`, else KeyboardInterrupt is passed on, as is each error.
    """
    done: list[tuple[Q, R]] = []
    results: list[R] = []
    begin_ns = clock.now_ns()
    try:
        while isinstance(decision := policy.next(done, (clock.now_ns() - begin_ns) / 1e9), Ask):
            results.append(measure(decision))
            done.append((decision.what, results[-1]))
    except KeyboardInterrupt:
        if not enough(results):
            raise
        return results, None
    return results, decision

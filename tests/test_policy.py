"""The runner: asks until the policy stops, and hands on what came of each ask and the time."""

from __future__ import annotations

from loaderprobe.policy import Ask, Fixed, Result, Results, Stop, follow
from loaderprobe.testing import FakeClock


class Doubling:
    """Asks for twice the last result, until the time is up."""

    def next(self, results: Results[int, int]) -> Ask[int] | Stop[str]:
        if results.spent_s >= 9.0:
            return Stop(reason="late")
        return Ask(what=2 * (results.found or [1])[-1])


def test_a_policy_hears_of_all_results_and_of_the_time() -> None:
    """Each with its ask; the reason is the policy's."""
    clock = FakeClock()

    def measure(ask: Ask[int]) -> int:
        clock.sleep(ask.what)
        return ask.what

    results, reason = follow(Doubling(), measure, clock=clock)
    assert (results.found, reason, results.spent_s) == ([2, 4, 8], "late", 14.0)
    assert results.done[1] == Result(what=4, found=4)


def test_an_ask_says_how_far_everything_is() -> None:
    """Before it, and within it; in order each counts one."""
    asked = Fixed(asks=("a", "b", "c", "d")).next(Results(done=[Result(what="a", found=None)]))
    assert asked == Ask(what="b", done=1, takes=1, total=4)
    assert isinstance(asked, Ask) and (asked.left(), asked.left(0.5)) == (3.0, 2.5)

"""How far everything is; what a policy hears of, and how it ends, are seen in the searches that follow one."""

from __future__ import annotations

from loaderprobe.policy import Ask, Fixed, Results


def test_an_ask_says_how_far_everything_is() -> None:
    """Before it, and within it; in order each counts one."""
    asked = Fixed(asks=("a", "b", "c", "d")).next(Results(done=[("a", None)]))
    assert asked == Ask(what="b", done=1, takes=1, total=4)
    assert isinstance(asked, Ask) and (asked.left(), asked.left(0.5)) == (3.0, 2.5)

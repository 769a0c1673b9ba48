"""Something to say about a result: a note, a reason, a refusal, a missing figure. One record for all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

Facts = dict[str, float | str]
"""What a sentence quotes: times s, sizes bytes, rates images/s or bytes/s by name, shares 0 to 1."""
TOO_SHORT = ("no_time", "cut_short")
"""Codes of notes that more rounds were asked for than there was time for."""
READ_AGAIN = ("read_again", "objects_read_again")
"""Codes of notes that fewer files, or objects, were there than a cache may hold."""
NEEDED = "needed"
"""A fact that may differ between remarks that say the same; a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded:
    """A code and its facts, before they are put into words. Their words are found by the code."""

    code: str
    facts: Facts = field(default_factory=dict)
    """Where a remark follows from another, the facts of that one, and its code under `because`."""

    @property
    def because(self) -> Facts:
        """Its facts, and its code under `because`: facts of something else that follows from it."""
        return {**self.facts, "because": self.code}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark(Coded):
    """One that stands by itself, with its words in `render/messages.py`."""

    sentence: str = field(default="", compare=False)
    """The remark in words; `render` adds it where the result leaves the program."""


def reported(reason: str) -> Remark:
    """What another program, or an error, said itself."""
    return Remark(code="reported", facts={"reason": reason})


def each_once(remarks: Iterable[Remark]) -> tuple[Remark, ...]:
    """They in their order, without repetitions; of those that differ in what is needed, the one with the most."""
    kept: dict[Hashable, Remark] = {}
    for remark in remarks:
        same = subject_of(remark)
        if same not in kept or float(remark.facts.get(NEEDED, 0)) > float(kept[same].facts.get(NEEDED, 0)):
            kept[same] = remark
    return tuple(kept.values())


def subject_of(remark: Remark) -> Hashable:
    """The same for remarks that say one thing: the code and the facts, without what is needed."""
    return remark.code, tuple(sorted((name, value) for name, value in remark.facts.items() if name != NEEDED))

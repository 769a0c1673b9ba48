"""What objects hold, found without running any code of theirs."""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaderprobe.loaders.state import held


class Holding:
    """Holds what it is given, by attribute."""

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


class Slotted:
    """Holds one thing in a slot, and leaves another empty."""

    __slots__ = ("empty", "thing")

    def __init__(self, thing: Any) -> None:
        self.thing = thing


class Armed(list[Any]):
    """Runs code wherever Python would let it."""

    def _no(self, *_: Any) -> Any:
        pytest.fail("code of the user's was called")

    __iter__ = __len__ = __getitem__ = __bool__ = __eq__ = __hash__ = _no  # type: ignore[assignment]  # the point
    trap = property(_no)

    def __getattr__(self, name: str) -> Any:
        return self._no()

    @property  # type: ignore[misc]  # as Accelerate does
    def __class__(self) -> Any:
        return self._no()


def test_everything_that_python_stores_is_found() -> None:
    """Attributes, slots, containers and their sub-classes, functions with what they close over, arrays of objects."""
    closed = "closure"

    def function(default: str = "default") -> str:
        return closed + default

    roots = [
        Holding(one="attribute"),
        Slotted("slot"),
        [("list", 1)],
        {"key": {"set"}},
        deque(["deque"]),
        OrderedDict(a=frozenset({"frozen"})),
        functools.partial(print, "argument", sep="keyword"),
        function,
        Holding(one="bound").__init__,  # type: ignore[misc]  # a bound method
        np.array(["array", Path("path")], dtype=object),
    ]
    found = list(held(roots))
    texts = {value for value in found if isinstance(value, str)}
    assert texts >= {"attribute", "slot", "list", "key", "set", "deque", "frozen", "argument", "keyword", "array"}
    assert texts >= {"closure", "default", "bound"}
    assert [value for value in found if isinstance(value, Path)] == [Path("path")]


def test_no_code_of_the_users_is_called() -> None:
    """Not even to ask for its class, its length or its items."""
    armed = Armed()
    list.append(armed, "item")
    vars(armed)["own"] = "attribute"
    found = list(held([armed]))
    assert found[0] is armed
    assert {value for value in found if type(value) is str} == {"item", "attribute"}


def test_circles_end_and_each_object_is_found_once() -> None:
    """Two that hold each other, and one that two hold."""
    one, shared = Holding(), Holding()
    other = Holding(one=one, shared=shared)
    one.other, one.shared = other, shared  # type: ignore[attr-defined]  # made above
    found = list(held([one]))
    assert [found.count(each) for each in (one, other, shared)] == [1, 1, 1]


def test_it_goes_no_deeper_and_finds_no_more_than_asked() -> None:
    """Each object opened is one deeper; numbers are not counted."""
    deep = Holding(inner=Holding(inner=Holding(text="deep")))
    assert "deep" in list(held([deep]))
    assert "deep" not in list(held([deep], depth=2))
    assert len(list(held([[str(number) for number in range(50)], list(range(50))], most=10))) == 10


def test_a_long_list_hides_nothing() -> None:
    """What else there is comes first, and two long lists take turns."""
    data = Holding(
        samples=[(f"a{number}", number) for number in range(5000)],
        more=[f"b{number}" for number in range(5000)],
        later=Holding(root="root"),
    )
    found = [value for value in held([data], most=3000) if type(value) is str]
    assert "root" in found
    assert len([text for text in found if text[0] == "a"]) >= 1000
    assert len([text for text in found if text[0] == "b"]) >= 1000


def test_closed_types_are_found_but_not_opened() -> None:
    """As asked for."""
    assert [type(value) for value in held([Holding(text="hidden")], closed=(Holding,))] == [Holding]

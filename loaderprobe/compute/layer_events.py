"""From a profiler's events to the time of each layer: whose operators ran forward, and whose backward.

A layer's forward time is that of the operators that it runs itself, not those of the layers inside it; what Python
does between operators belongs to none. Autograd gives a backward
function the number of the operator that made it, so its time belongs to the layer in which that operator ran. The
gradient that is added to a weight has no such operator; it follows the function that made it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from loaderprobe.records.layers import LAST_CALL

LAYER = "loaderprobe layer "
STEP = "loaderprobe step"
EVALUATE = "autograd::engine::evaluate_function: "

Call = tuple[str, int]
"""(path of the module, 0 for its first call in a step; later calls than the last that has a row share its row)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a profiler recorded on the host, with what it called."""

    name: str
    begin_us: float
    us: float
    """Of the host; on a GPU, of the kernels that it and what it called launched."""
    sequence: int = -1
    """Autograd's number of a forward operator, and of the backward function that it made; else negative."""
    children: tuple[Event, ...] = ()


@dataclass(slots=True)
class CallTime:
    """Microseconds of one call of a layer in one step."""

    forward_us: float = 0.0
    backward_us: float = 0.0
    operators: dict[tuple[str, bool], tuple[int, float]] = field(default_factory=dict)
    """(count, microseconds) by (name, whether it is of the backward pass)."""

    def add(self, name: str, us: float, *, backward: bool, calls: int = 1) -> None:
        """One more call of an operator; without `calls`, more of the last."""
        count, total = self.operators.get((name, backward), (0, 0.0))
        self.operators[name, backward] = (count + calls, total + us)


@dataclass(slots=True)
class Owners:
    """Which layer made a backward function: autograd's numbers go up while layers take turns."""

    _begins: list[int] = field(default_factory=list)
    _calls: list[Call | None] = field(default_factory=list)

    def turn(self, number: int, call: Call | None) -> None:
        """Functions from this number on are of that call of a layer, or of none."""
        if self._begins and self._begins[-1] == number:
            self._calls[-1] = call
        elif not self._calls or self._calls[-1] != call:
            self._begins.append(number)
            self._calls.append(call)

    def of(self, number: int) -> Call | None:
        """None for a function that no layer made."""
        place = bisect_right(self._begins, number) - 1
        return self._calls[place] if place >= 0 else None


def numbered(name: str, number: int) -> Call:
    """The call of a layer that has so many before it in the step."""
    return name, min(number, LAST_CALL)


def step_times(roots: Iterable[Event]) -> list[dict[Call, CallTime]]:
    """For each step, in order, the time of each call of a layer, in the order in which they began."""
    events = sorted(roots, key=lambda each: each.begin_us)
    steps = [each for each in events if each.name == STEP]
    found = []
    for number, step in enumerate(steps):
        end = steps[number + 1].begin_us if number + 1 < len(steps) else float("inf")
        # The backward pass on a GPU runs in a thread of its own, beside the step's own events.
        beside = [each for each in events if each.name != STEP and step.begin_us <= each.begin_us < end]
        found.append(_step((step, *beside)))
    return found


def _step(roots: Sequence[Event]) -> dict[Call, CallTime]:
    times: dict[Call, CallTime] = {}
    owners: dict[int, Call] = {}
    calls: Counter[str] = Counter()
    for root in roots:
        _forward(root, None, times, owners, calls)
    owner: Call | None = None
    for each in sorted(_outermost(roots, EVALUATE), key=lambda event: event.begin_us):
        owner = owners.get(each.sequence, owner if each.name.endswith("AccumulateGrad") else None)
        if owner is not None:
            times[owner].backward_us += each.us
            times[owner].add(each.name.removeprefix(EVALUATE), each.us, backward=True)
    return times


def _forward(
    event: Event, owner: Call | None, times: dict[Call, CallTime], owners: dict[int, Call], calls: Counter[str]
) -> None:
    """Walk the events of the forward pass; `owner` is the innermost layer around this one."""
    if event.name.startswith(EVALUATE):
        return
    if event.name.startswith(LAYER):
        name = event.name.removeprefix(LAYER)
        call = numbered(name, calls[name])
        calls[name] += 1
        times.setdefault(call, CallTime())
        for child in event.children:
            _forward(child, call, times, owners, calls)
            if not child.name.startswith(LAYER):
                own_us = child.us - sum(each.us for each in _outermost(child.children, LAYER))
                times[call].forward_us += own_us
                times[call].add(child.name, own_us, backward=False)
        return
    if owner is not None and event.sequence >= 0:
        # An operator without gradient bears the number of the next one with: the last of a number made the function.
        owners[event.sequence] = owner
    for child in event.children:
        _forward(child, owner, times, owners, calls)


def _outermost(events: Iterable[Event], prefix: str) -> Iterator[Event]:
    """Those of such names among events and what they called, without what they called themselves."""
    for each in events:
        if each.name.startswith(prefix):
            yield each
        else:
            yield from _outermost(each.children, prefix)

"""A process that a launcher started. It measures nothing: for each configuration it takes part in, it has a child.

All know each other by a store. Rank 0 says there what is next; each says how its part ended. A child that fails is
reported, and the others end theirs, so that it costs one configuration.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from loaderprobe.errors import BadValue, LostRank
from loaderprobe.measure.forkserver import Child, Start
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.runner import OfConfiguration, run_order
from loaderprobe.measure.seat_trouble import is_consequence
from loaderprobe.measure.seating import nodes_of, place_of
from loaderprobe.protocols import Clock, SharedStore
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.own_loader import OwnMeasured
from loaderprobe.records.place import Place
from loaderprobe.records.seats import Launched, Node, SeatEnd, SeatSeen, Turn

JOIN_S = 300.0
"""For all processes to come: a launcher starts those of one job together."""
POLL_S = 0.2
POLLS_PER_S = 1000
"""Of all waiting processes together, of the one store."""
GRACE_S = 1.0
"""For a child to say its own last words, once another rank could not go on."""
LATER_S = 30.0
"""After rank 0's timeout of a configuration, by which the others' children end too."""
PATIENT_FOR = 4
"""Of the time limit of a configuration, the part that ranks wait for one of them: 150 s unless asked otherwise."""
PART = 2**20
"""Characters of one value in the store, which takes at most 8 MiB."""
T = TypeVar("T")
M = TypeVar("M", bound=OfConfiguration)


def put(store: SharedStore, key: str, value: object) -> None:
    """Leave a record there, in as many parts as it takes."""
    text = msgspec.json.encode(value).decode()
    parts = [text[begin : begin + PART] for begin in range(0, len(text), PART)]
    for number, part in enumerate(parts):
        store.set(f"{key}/{number}", part)
    store.set(key, str(len(parts)))


def take(store: SharedStore, key: str, type_: type[T]) -> T:
    """The record that is there."""
    parts = [store.get(f"{key}/{number}") for number in range(int(store.get(key)))]
    return msgspec.json.decode(b"".join(parts), type=type_)


class Seat:
    """This process among those that were started.

    `watching` is another client of the same store, for the thread that watches the child: a client serves one thread.
    """

    def __init__(
        self, here: Launched, seen: SeatSeen, store: SharedStore, watching: SharedStore, clock: Clock, prefix: str
    ) -> None:
        self.here, self.store, self.clock, self.prefix = here, store, clock, prefix
        self.poll_s = max(POLL_S, here.size / POLLS_PER_S)
        self.nodes: tuple[Node, ...] = ()
        self._seen, self._watching = seen, watching

    def come(self) -> None:
        """Wait until all are there. Raises LostRank where some do not come, BadValue for different versions."""
        put(self.store, f"seat/{self.here.rank}", self._seen)
        if self.here.rank == 0:
            seats = [self._one(rank) for rank in range(self.here.size)]
            put(self.store, "seats", seats)
        self.wait_for("seats", JOIN_S + LATER_S, "not all processes have come")
        seats = take(self.store, "seats", list[SeatSeen])
        other = next((each for each in seats if each.version != self._seen.version), None)
        if other:
            raise BadValue(
                f"{other.host} has loaderprobe {other.version}, and {self._seen.host} has {self._seen.version}",
                hint="install the same version on all nodes",
            )
        self.nodes = nodes_of(seats)

    def _one(self, rank: int) -> SeatSeen:
        key = f"seat/{rank}"
        self.wait_for(key, JOIN_S, f"rank {rank} of {self.here.size} has not come")
        return take(self.store, key, SeatSeen)

    def wait_for(self, key: str, limit_s: float | None, why: str) -> None:
        """Until a key is there. Raises LostRank after `limit_s` seconds."""
        until_ns = None if limit_s is None else self.clock.now_ns() + round(limit_s * 1e9)
        while not self.store.check([key]):
            if until_ns is not None and self.clock.now_ns() > until_ns:
                raise LostRank(f"{why} after {limit_s:.0f} s", hint="check that the launcher started it on all nodes")
            self.clock.sleep(self.poll_s)

    def place(self, turn: Turn, number: int) -> Place | None:
        """Of this process in a turn; None where it has none."""
        prefix = f"{self.prefix}/turn/{number}/ranks"
        place = place_of(self.here, turn.ranks, turn.nodes, self.nodes, prefix)
        # A cold first batch, or compiling, may take one rank long.
        return place and replace(place, timeout_s=max(place.timeout_s, turn.time_limit_s / PATIENT_FOR))

    def follow(self, start: Start) -> int:
        """Take part in each turn until rank 0 ends them; returns the exit code. Raises LostRank when rank 0 is lost."""
        number = 0
        try:
            while True:
                self.wait_for(f"turn/{number}", None, "")
                turn = take(self.store, f"turn/{number}", Turn)
                if turn.kind == "end":
                    return turn.exit_code
                place = self.place(turn, number)
                if place is not None and turn.kind == "files":
                    self.finish(number, look_for(take(self.store, "files", FileSet), self._end(place)))
                elif place is not None:
                    order = replace(take(self.store, "order", Order), begin_ns=self.clock.now_ns())
                    type_: type[OwnMeasured | Measurement] = OwnMeasured if order.own else Measurement
                    self.sit(order, type_, place, number, start, turn.time_limit_s + LATER_S, lambda _: None)
                number += 1
        finally:
            with suppress(LostRank):
                self.store.set(f"left/{self.here.rank}", "1")

    def sit(
        self, order: Order, type_: type[M], place: Place, number: int, start: Start, limit_s: float,
        on_event: Callable[[Event], None],
    ) -> tuple[SeatEnd, M | RunFailure]:  # fmt: skip
        """Measure in a child, at this place among the ranks; (how that ended, what the child returned: a `type_`)."""
        heard = _Events(on_event)
        watch = Watch(self._watching, abort_key(number), self.poll_s)
        try:
            with watch:
                found = run_order(
                    replace(order, place=place), type_, clock=self.clock, time_limit_s=limit_s, on_event=heard.hear,
                    start=watch.of(start),
                )  # fmt: skip
        except BaseException:
            # Ctrl-C here must not leave the others waiting for this rank.
            with suppress(LostRank):
                self.finish(number, replace(self._end(place), kind="failed", reason="it was interrupted"))
            raise
        end = self._end(place)
        if isinstance(found, RunFailure):
            end = _failed(end, found, heard, ended=watch.ended)
        return self.finish(number, end), found

    def _end(self, place: Place) -> SeatEnd:
        return SeatEnd(rank=place.rank, host=self._seen.host, kind="done")

    def finish(self, number: int, end: SeatEnd) -> SeatEnd:
        """Leave word of how this rank's part ended; where it failed, the others hear of it."""
        if end.kind != "done":
            first = self.store.compare_set(abort_key(number), "", str(end.rank))
            end = replace(end, first=first.decode() == str(end.rank))
        put(self.store, end_key(number, end.rank), end)
        return end


def abort_key(number: int) -> str:
    """The key that ends all children of a turn: the first rank that could not go on."""
    return f"turn/{number}/abort"


def end_key(number: int, rank: int) -> str:
    """The key of how the part of one rank in a turn ended."""
    return f"turn/{number}/end/{rank}"


def _failed(end: SeatEnd, found: RunFailure, heard: _Events, *, ended: bool) -> SeatEnd:
    consequence = heard.lost or is_consequence(found.reason, found.log if found.signal == "SIGABRT" else ())
    return replace(
        end,
        kind="timeout" if found.reason.startswith("timeout") else "ended" if ended else "failed",
        stage=found.stage,
        events=heard.count,
        consequence=consequence,
        reason=found.reason,
        hint=found.hint,
        exit_code=found.exit_code,
        signal=found.signal,
        log=found.log,
    )


@dataclass(slots=True)
class _Events:
    """How far a child came, by what it reported."""

    on_event: Callable[[Event], None]
    count: int = field(init=False, default=0)
    lost: bool = field(init=False, default=False)

    def hear(self, event: Event) -> None:
        self.count += event.failure is None
        self.lost = event.lost
        self.on_event(event)


class Watch:
    """Ends a child when another rank could not go on, or when the store has gone, in a thread of its own."""

    def __init__(self, store: SharedStore, key: str, poll_s: float) -> None:
        self._store, self._key, self._poll_s = store, key, poll_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.ended = False
        """True where the child said nothing by itself, and was ended."""

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def of(self, start: Start) -> Start:
        """Starts the same child, and watches it."""

        def started(order: Path, result: Path, log: Path) -> Child:
            child = start(order, result, log)
            self._thread = threading.Thread(target=self._watch, args=(child.pid,), daemon=True)
            self._thread.start()
            return child

        return started

    def _watch(self, pid: int) -> None:
        while not self._over.wait(self._poll_s):
            if self._aborted():
                if not self._over.wait(GRACE_S):
                    self.ended = True
                    with suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                return

    def _aborted(self) -> bool:
        try:
            return self._store.check([self._key])
        except LostRank:
            return True


def look_for(files: FileSet, end: SeatEnd) -> SeatEnd:
    """How looking for the files of a data set on this node ended: all are there, with their sizes, or one is not."""
    for name, size in zip(files.paths, files.size_bytes, strict=True):
        path = files.folder / name
        try:
            found = path.stat().st_size
        except OSError as error:
            return replace(end, kind="failed", reason=f"{path} cannot be read there: {error.strerror}")
        if found != size:
            return replace(end, kind="failed", reason=f"{path} has {found} bytes there, and {size} at rank 0")
    return end

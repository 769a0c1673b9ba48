"""Rank 0 of the processes of a launcher: it says what is next, and makes one record of how all ranks ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from loaderprobe.errors import BadValue, LostRank
from loaderprobe.measure.forkserver import Start
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.runner import OfConfiguration
from loaderprobe.measure.seat import Seat, abort_key, end_key, put, take
from loaderprobe.measure.seat_trouble import failure_of
from loaderprobe.measure.seating import check_room, taking_part
from loaderprobe.protocols import Clock
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.seats import Node, SeatEnd, Turn

ENDS_S = 30.0
"""For the other ranks' children to end, once that of rank 0 has."""
ENDED_S = 15.0
"""For their processes to end them then, and to say so."""
LEAVE_S = 10.0
"""For the other processes to hear that all is over, where this one holds the store."""
FILES_S = 600.0
"""To look for the files of a data set on all nodes."""
M = TypeVar("M", bound=OfConfiguration)


class Lead:
    """What rank 0 does for all."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._number = 0
        self._lost: SeatEnd | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Where the processes are, that of this one first."""
        return self._seat.nodes

    def measure(
        self, order: Order, *, clock: Clock, time_limit_s: float, on_event: Callable[[Event], None], start: Start
    ) -> Measurement | RunFailure:
        """Measure a configuration of several ranks in a child of each. Raises LostRank when a process has gone."""
        return self.run(order, Measurement, clock=clock, time_limit_s=time_limit_s, on_event=on_event, start=start)

    def run(
        self, order: Order, type_: type[M], *, clock: Clock, time_limit_s: float, on_event: Callable[[Event], None],
        start: Start,
    ) -> M | RunFailure:  # fmt: skip
        """The same for any order; `type_` is the record that it asks for."""
        self._refuse_lost()
        started_utc, begin_ns = datetime.now(UTC).isoformat(timespec="seconds"), clock.now_ns()
        put(self._seat.store, "order", order)
        turn = Turn(
            kind="measure", ranks=order.config.ranks, nodes=order.config.nodes, time_limit_s=time_limit_s
        )  # fmt: skip
        number = self._begin(turn)
        place = self._seat.place(turn, number)
        assert place is not None, "rank 0 takes part in each configuration"
        own, found = self._seat.sit(order, type_, place, number, start, time_limit_s, on_event)
        ends = [own, *self._ends(turn, number, ENDS_S)]
        if not isinstance(found, RunFailure):
            return found
        return failure_of(order, ends, started_utc=started_utc, wall_s=(clock.now_ns() - begin_ns) / 1e9)

    def admit(self, configs: Sequence[RunConfig], sets: Iterable[FileSet], what: str = "data set") -> None:
        """Raises what is wrong with configurations that these processes are going to measure, before they do.

        `what` is the word for a set of files.
        """
        check_room(configs, self.nodes)
        for files in sets:
            most = max((config.nodes for config in configs if config.data == files.fingerprint), default=1)
            if most > 1:
                self._check_files(files, most, what)

    def _check_files(self, files: FileSet, nodes: int, what: str) -> None:
        """Raises BadValue where one of the nodes does not see the same files, LostRank where one does not answer."""
        put(self._seat.store, "files", files)
        turn = Turn(kind="files", ranks=nodes, nodes=nodes)
        number = self._begin(turn)
        bad = next((each for each in self._ends(turn, number, FILES_S) if each.kind != "done"), None)
        self._refuse_lost()
        if bad:
            raise BadValue(
                f"{bad.host} does not see the {what} {files.label}: {bad.reason}",
                hint="put it on storage that all nodes mount at the same path",
            )

    def end(self, exit_code: int) -> None:
        """Let all others go, and wait a little until they have heard it: this process may hold the store."""
        with suppress(LostRank):
            self._begin(Turn(kind="end", exit_code=exit_code))
            for rank in range(1, self._seat.here.size):
                self._seat.wait_for(f"left/{rank}", LEAVE_S, f"rank {rank} has not left")

    def _begin(self, turn: Turn) -> int:
        number, self._number = self._number, self._number + 1
        put(self._seat.store, f"turn/{number}", turn)
        return number

    def _ends(self, turn: Turn, number: int, limit_s: float) -> list[SeatEnd]:
        """Of the ranks but 0. Those that take too long are ended; one that gives no word then is lost."""
        store, others = self._seat.store, list(enumerate(taking_part(turn.ranks, turn.nodes, self.nodes)))[1:]
        late = self._wait(number, len(others), limit_s)
        if late:
            store.compare_set(abort_key(number), "", "0")
            late = self._wait(number, len(others), ENDED_S)
        ends = []
        for rank, (seat, host) in others:
            if rank in late:
                self._lost = SeatEnd(rank=seat, host=host, kind="lost")
                ends.append(SeatEnd(rank=rank, host=host, kind="lost"))
            else:
                ends.append(take(store, end_key(number, rank), SeatEnd))
        return ends

    def _wait(self, number: int, others: int, limit_s: float) -> list[int]:
        """The ranks that have given no word after so many seconds."""
        until_ns = self._seat.clock.now_ns() + round(limit_s * 1e9)
        while True:
            late = [rank for rank in range(1, others + 1) if not self._seat.store.check([end_key(number, rank)])]
            if not late or self._seat.clock.now_ns() >= until_ns:
                return late
            self._seat.clock.sleep(self._seat.poll_s)

    def _refuse_lost(self) -> None:
        """Raises LostRank where a process did not answer, or has left."""
        gone = [
            SeatEnd(rank=seat, host=node.host, kind="lost")
            for node in self.nodes
            for seat in node.seats
            if self._seat.store.check([f"left/{seat}"])
        ]
        lost = self._lost or next(iter(gone), None)
        if lost:
            raise LostRank(
                f"the process of rank {lost.rank} on {lost.host} has gone, or does not answer",
                hint="start it again on all nodes, with --resume RUN: what is measured is kept",
            )

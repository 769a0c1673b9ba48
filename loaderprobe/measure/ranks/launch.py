"""The processes of several ranks: who they are, what is next, how each ended, and how they are started.

A process that a launcher started measures nothing: for each configuration it takes part in, it has a child. All know
each other by a store. Rank 0 says there what is next; each says how its part ended. A child that fails is reported, and
the others end theirs, so that it costs one configuration. Without a launcher, threads of one process do the same.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec

from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue, LoaderprobeError, LostRank, MissingPart, Refused
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.runner import Child, Event, ForkServer, OfConfiguration, Order, Start, run_order
from loaderprobe.protocols import Clock, SharedStore
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.diagnosis import OwnMeasured
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.ranks import (
    Launched,
    Layout,
    Node,
    Place,
    ReadResult,
    SeatEnd,
    SeatSeen,
    Turn,
)
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.host import host_name, utc_timestamp
from loaderprobe.system.launcher import address_towards, interface_of, launched
from loaderprobe.system.limits import allow_open_files, connections_of, cores_available
from loaderprobe.system.process import ask_where, die_with_parent, runs
from loaderprobe.units import join_words

# In which of several ranks an error began, and its record: the others lost that rank, or waited for it.

LOST = (
    "another rank has gone",
    "failed to pass monitoredBarrier",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "Timed out waiting",
    "Socket closed",
    "remote process exited",
    "communicator was aborted",
)
"""In the words of gloo, NCCL and ourselves: a rank that fails so has lost another."""
OF_NCCL = ("Watchdog caught collective operation timeout", "ncclRemoteError")
"""Its watchdog ends the process of a rank that waits too long, by SIGABRT."""
OF_DATA = ("the data set raised", "OSError", "ConnectionResetError", "BrokenPipeError", "TimeoutError")
"""What a storage on a network says in the same words."""
_MISSING = re.compile(
    r"[Rr]anks? (\d[\d, and]*) failed to pass monitoredBarrier|does not answer: ranks? (\d[\d, and]*) \("
)


def is_consequence(reason: str, log: Sequence[str] = ()) -> bool:
    """True where an error, or the last lines of a process that NCCL ended, say only that another rank was lost."""
    if any(words in line for line in log for words in OF_NCCL):
        return True
    return not reason.startswith(OF_DATA) and any(words in reason for words in LOST)


def failure_of(order: Order, ends: Sequence[SeatEnd], *, started_utc: str, wall_s: float) -> RunFailure:
    """One record of how all ranks ended, of which one at least did not end well."""
    origin = origin_of(ends)
    first = next((end for end in ends if end.first), ends[0])
    shown = origin or first
    reason, hint = _reason(shown, first, ends, known=origin is not None)
    by_itself = shown.kind in ("failed", "timeout")
    return RunFailure(
        config=order.config,
        stage=shown.stage or first.stage,
        reason=reason,
        hint=hint,
        exit_code=shown.exit_code if by_itself else None,
        signal=shown.signal if by_itself else None,
        log=shown.log or first.log,
        started_utc=started_utc,
        wall_s=wall_s,
        rank=None if origin is None else origin.rank,
        host="" if origin is None else origin.host,
    )


KINDS: tuple[type[LoaderprobeError], ...] = (BadValue, MissingPart, Refused)
"""What a rank ended with keeps its exit code."""


def error_of(failure: RunFailure) -> LoaderprobeError:
    """Where there is nothing to go on with: that of the rank in which it began, by its own exit code."""
    kind = next((each for each in KINDS if each.exit_code == failure.exit_code), LoaderprobeError)
    who = "" if failure.rank is None else f"rank {failure.rank} ({failure.host}): "
    last = next((line for line in reversed(failure.log) if line.strip()), "")
    late = failure.reason.startswith("timeout")
    hint = "look for a hang in it" if late else failure.hint or (f"its last line: {last}" if last else "")
    return kind(f"{who}{failure.reason} ({failure.stage})", hint=hint)


def origin_of(ends: Sequence[SeatEnd]) -> SeatEnd | None:
    """The rank in which it began; None where nothing shows it.

    In this order: a rank that others name as missing, one that died or raised by itself, one whose process gave no
    word, and the only one that was ended without a word, or that was behind all others.
    """
    open_ = [end for end in ends if end.kind != "done"]
    missing = _missing(ends)
    named = [each for each in open_ if each.rank in missing]
    own = [each for each in open_ if each.kind == "failed" and not each.consequence]
    gone = [each for each in open_ if each.kind == "lost"]
    if len(named) == 1:
        return next((each for each in own if each in named), named[0])
    if own:
        return next((each for each in own if each.first), own[0])
    if len(gone) == 1:
        return gone[0]
    silent = [each for each in open_ if each.kind == "ended"]
    if len(silent) == 1 and not any(end.kind == "timeout" for end in ends):
        return silent[0]
    return _behind(silent, ends)


def _behind(silent: Sequence[SeatEnd], ends: Sequence[SeatEnd]) -> SeatEnd | None:
    """The rank that reported least; None when no single one is behind the others."""
    least = min(end.events for end in ends if end.kind != "lost")
    found = [each for each in silent if each.events == least]
    return found[0] if len(found) == 1 and sum(end.events == least for end in ends) == 1 else None


def _missing(ends: Sequence[SeatEnd]) -> set[int]:
    """Ranks that did not come to a meeting, by the words of those that waited there."""
    texts = [text for end in ends for text in (end.reason, *end.log)]
    found = [match[1] or match[2] for text in texts for match in _MISSING.finditer(text)]
    return {int(rank) for ranks in found for rank in re.findall(r"\d+", ranks)}


def _reason(shown: SeatEnd, first: SeatEnd, ends: Sequence[SeatEnd], *, known: bool) -> tuple[str, str]:
    """(reason, hint). A signal that we sent is no reason."""
    if shown.kind == "lost":
        return "its process, or its node, does not answer", "see the log of the launcher on that node"
    if shown.kind == "ended" and first.kind == "timeout":
        return f"{first.reason}; it was behind the other ranks", first.hint
    if known and shown.consequence:
        return f"did not come in time: {first.reason}", first.hint
    if shown.kind == "ended":
        went = f"rank {first.rank} could not go on"
        where = f", which was at: {first.stage}" if first.stage not in ("", shown.stage) else ""
        return f"did not answer, ended because {went}{where}", "look for a hang on that host: storage, memory, GPU"
    silent = [str(end.rank) for end in ends if end.kind in ("ended", "lost")]
    if not known and silent and shown.kind == "failed":
        ranks = f"rank{'s' if len(silent) > 1 else ''} {join_words(silent)}"
        return f"{shown.reason}; {ranks} did not answer", shown.hint
    return shown.reason, shown.hint


def order_without_files(name: str, compute: ComputeSpec, ranks: int, nodes: int = 1) -> Order:
    """Of what is measured without a data set of its own; what it is, is to be added."""
    files = FileSet(
        label=name, root=name, generated=False, paths=(".",), classes=(0,), size_bytes=(0,), images_found=0
    )  # fmt: skip
    config = RunConfig(
        data=files.fingerprint, resolution=name, loader=LoaderSpec(name="own", workers=0, prefetch_factor=0),
        compute=compute, ranks=ranks, nodes=nodes,
    )  # fmt: skip
    return Order(config=config, files=files, budget_s=None, begin_ns=0)


# Which of the processes that were started take part in a configuration, and in which place.

MOST_A_CORE = 8
"""Ranks that loaderprobe starts itself: so many of an emulated accelerator still share one core, if they must."""
FORMS = "--ranks takes numbers with commas; 4x8 is 8 ranks on each of 4 nodes: --ranks 1,8,4x8"


def parse_layout(text: str) -> Layout:
    """Of `8`, or `4x2`. Raises BadValue."""
    match = re.fullmatch(r"(?:(\d{1,5})x)?(\d{1,6})", text.strip())
    nodes, ranks = (int(part) if part else 1 for part in match.groups()) if match else (0, 0)
    if not match or nodes < 1 or ranks < 1:
        raise BadValue(f"'{text}' is no number of ranks", hint=FORMS)
    return Layout(ranks=nodes * ranks, nodes=nodes if match[1] else None)


def nodes_of(seats: Sequence[SeatSeen]) -> tuple[Node, ...]:
    """The nodes, that of rank 0 first; on each its processes in their order."""
    names = dict.fromkeys(each.node for each in sorted(seats, key=lambda seat: seat.rank))
    there = [[each for each in seats if each.node == name] for name in names]
    return tuple(
        Node(
            host=group[0].host,
            seats=tuple(sorted(each.rank for each in group)),
            gpus=len({gpu for each in group for gpu in each.gpus}),
            address=next((each.address for each in group if each.address), ""),
        )
        for group in there
    )


def spread(layout: Layout, nodes: Sequence[Node] | None) -> tuple[int, int]:
    """(ranks, nodes) of a layout on these nodes; without a launcher (None), all on this one.

    Raises BadValue for more than there are, or for ranks that cannot be spread evenly.
    """
    if nodes is None:
        if (layout.nodes or 1) > 1:
            raise BadValue(
                f"{layout.nodes} nodes are asked for, and loaderprobe starts processes on this one only",
                hint="start it on all nodes, as training is: loaderprobe explain ranks",
            )
        return layout.ranks, 1
    over = layout.nodes or fewest_nodes(layout.ranks, nodes)
    check_seats(layout.ranks, over, nodes)
    return layout.ranks, over


def check_one_node(configs: Iterable[RunConfig]) -> None:
    """Raises BadValue for configurations of several nodes, where no launcher started processes there."""
    for config in configs:
        spread(Layout(ranks=config.ranks, nodes=config.nodes), None)


def fewest_nodes(ranks: int, nodes: Sequence[Node]) -> int:
    """That have as many processes, and over which the ranks spread evenly; all, where none does."""
    for count in range(1, len(nodes) + 1):
        if ranks % count == 0 and ranks // count <= min(len(node.seats) for node in nodes[:count]):
            return count
    return len(nodes)


def check_seats(ranks: int, over: int, nodes: Sequence[Node]) -> None:
    """Raises BadValue where the launcher started too few processes for so many ranks over so many nodes."""
    there = sum(len(node.seats) for node in nodes)
    if ranks > there:
        raise BadValue(
            f"{ranks} ranks are asked for, and the launcher started {there} processes",
            hint="start more, or ask for fewer",
        )
    if over > len(nodes):
        raise BadValue(
            f"{over} nodes are asked for, and the launcher started processes on {len(nodes)}",
            hint="start it on more, or ask for fewer",
        )
    if ranks % over:
        raise BadValue(f"{ranks} ranks cannot be spread evenly over {over} nodes", hint=FORMS)
    for node in nodes[:over]:
        if len(node.seats) < ranks // over:
            raise BadValue(
                f"{ranks // over} ranks on each node are asked for, and {node.host} has {len(node.seats)} processes",
                hint="start as many on each node",
            )


def check_crowd(ranks: int, cores: float) -> None:
    """Raises BadValue for far more ranks than this machine has cores: what they wait for would be a core."""
    most = max(MOST_A_CORE, int(MOST_A_CORE * cores))
    if ranks > most:
        raise BadValue(
            f"{ranks} ranks on this machine would share {cores:g} core{'' if cores == 1 else 's'}, and show what that "
            "costs, not what training on as many machines does",
            hint=f"ask for {most} at most here, or start on several nodes",
        )


def check_room(configs: Iterable[RunConfig], nodes: Sequence[Node]) -> None:
    """Raises BadValue where a configuration needs more processes than there are, MissingPart for more GPUs."""
    for config in configs:
        check_seats(config.ranks, config.nodes, nodes)
        check_gpus(config.compute, config.ranks, config.nodes, nodes)


def check_gpus(compute: ComputeSpec, ranks: int, over: int, nodes: Sequence[Node]) -> None:
    """Raises MissingPart for more ranks on a node than it has GPUs, where they are needed and can be listed."""
    wanted = ranks // over
    for node in nodes[:over] if compute.kind == "cuda" and ranks > 1 else ():
        if 0 < node.gpus < wanted:
            raise MissingPart(
                f"{wanted} ranks on cuda need a GPU each, and {node.host} has {node.gpus}",
                hint="ask for fewer ranks, or use --compute emulated:NAME",
            )


def place_of(here: Launched, ranks: int, over: int, nodes: Sequence[Node], prefix: str) -> Place | None:
    """The place of this process in a configuration; None where it has none."""
    local = ranks // over
    for number, node in enumerate(nodes[:over]):
        if here.rank in node.seats[:local]:
            at = node.seats.index(here.rank)
            return Place(
                rank=number * local + at,
                size=ranks,
                node=number,
                local_rank=at,
                local_size=local,
                address=here.address,
                port=here.port,
                prefix=prefix,
            )
    return None


def taking_part(ranks: int, over: int, nodes: Sequence[Node]) -> list[tuple[int, str]]:
    """(rank of the process, host) of each rank of a configuration, in their order."""
    return [(seat, node.host) for node in nodes[:over] for seat in node.seats[: ranks // over]]


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
RECORDS: Mapping[str, type[OwnMeasured | ReadResult | Measurement]] = {
    "own-loader": OwnMeasured,
    "read": ReadResult,
    "measurement": Measurement,
}
"""What children of ranks return, by what is asked for."""
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
        other = next((seat for seat in seats if seat.version != self._seen.version), None)
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
                    self.sit(
                        order, RECORDS[order.result], place, number, start, turn.time_limit_s + LATER_S, lambda _: None
                    )
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
        watch = RankWatch(self._watching, abort_key(number), self.poll_s)
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


class RankWatch:
    """Ends a child when another rank could not go on, or when the store has gone, in a thread of its own."""

    def __init__(self, store: SharedStore, key: str, poll_s: float) -> None:
        self._store, self._key, self._poll_s = store, key, poll_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.ended = False
        """True where the child said nothing by itself, and was ended."""

    def __enter__(self) -> RankWatch:
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
                ask_where(pid)
                if not self._over.wait(GRACE_S):
                    # Of one that has died, workers may still hold the output.
                    self.ended = runs(pid)
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


# Rank 0 of the processes of a launcher: it says what is next, and makes one record of how all ranks ended.

ENDS_S = 30.0
"""For the other ranks' children to end, once that of rank 0 has."""
ENDED_S = 15.0
"""For their processes to end them then, and to say so."""
LEAVE_S = 10.0
"""For the other processes to hear that all is over, where this one holds the store."""
FILES_S = 600.0
"""To look for the files of a data set on all nodes."""


class Lead:
    """What rank 0 does for all."""

    def __init__(self, seat: Seat, start: Start) -> None:
        """`start` starts the children of this process."""
        self._seat, self.start = seat, start
        self._number = 0
        self._lost: SeatEnd | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Where the processes are, that of this one first."""
        return self._seat.nodes

    def run(
        self, order: Order, type_: type[M], *, clock: Clock, time_limit_s: float, on_event: Callable[[Event], None]
    ) -> M | RunFailure:
        """Do what an order asks for in a child of each rank; `type_` is the record that it asks for.

        Raises LostRank when a process has gone. A configuration of one rank needs no other: it has a child here.
        """
        if order.config.ranks == 1 and order.read is None:
            return run_order(
                order, type_, clock=clock, time_limit_s=time_limit_s, on_event=on_event, start=self.start
            )  # fmt: skip
        self._refuse_lost()
        started_utc, begin_ns = utc_timestamp(), clock.now_ns()
        put(self._seat.store, "order", order)
        turn = Turn(kind="measure", ranks=order.config.ranks, nodes=order.config.nodes, time_limit_s=time_limit_s)
        number = self._begin(turn)
        place = self._seat.place(turn, number)
        assert place is not None, "rank 0 takes part in each configuration"
        own, found = self._seat.sit(order, type_, place, number, self.start, time_limit_s, on_event)
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
        bad = next((end for end in self._ends(turn, number, FILES_S) if end.kind != "done"), None)
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


# How they are started: by a launcher, or on this machine without one.

PREFIX = "loaderprobe"
LOOPBACK = "127.0.0.1"


def comes(here: Launched) -> Seat:
    """This process among the others, once all are there. Raises LostRank, BadValue, and MissingPart for too many."""
    from loaderprobe.loaders.ranks import clients

    if here.agent_store:
        # torchrun's agent may be killed, and with it goes the store.
        die_with_parent(os.getppid())
    _allow_connections(here)
    host = host_name()
    seen = SeatSeen(
        rank=here.rank,
        host=host,
        node=here.node or host,
        gpus=_gpus(),
        version=version("loaderprobe"),
        address=address_towards(here.address, here.port),
    )
    prefix = f"{PREFIX}/{here.attempt}"
    store, watching = clients(here, prefix)
    seat = Seat(here, seen, store, watching, SystemClock(), prefix)
    seat.come()
    own = next(node for node in seat.nodes if here.rank in node.seats)
    # As many threads a rank for every configuration, whatever its ranks: torchrun sets one, other launchers none.
    os.environ.setdefault("OMP_NUM_THREADS", str(_threads(len(own.seats))))
    if interface := _interface(own, seat.nodes, here.port):
        # Else gloo takes the address of the host's own name, which on many hosts is 127.0.1.1.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    return seat


def _gpus() -> tuple[str, ...]:
    return tuple(gpu.uuid or gpu.name for gpu in list_gpus()[0])


def _threads(ranks: int) -> int:
    return max(1, int(cores_available()) // ranks)


def _allow_connections(here: Launched) -> None:
    """For this process and those that it starts; that which holds the store has connections to all.

    Raises MissingPart, on rank 0, where it may not have as many: it would fail amid the first configuration.
    """
    needed = connections_of(here.size)
    allowed = allow_open_files(needed)
    if here.rank:
        return
    if here.agent_store:
        allowed = allow_open_files(needed, os.getppid())
    if allowed is not None and allowed < needed:
        holder = "torchrun on the node of rank 0" if here.agent_store else "rank 0"
        raise MissingPart(
            f"{here.size} processes all connect to {holder}, which needs {needed} open files for that, and its hard "
            f"limit is {allowed}",
            hint=f"raise it before they are started, as root: ulimit -Hn {needed}, or nofile in "
            "/etc/security/limits.conf; or start fewer",
        )


def _interface(own: Node, nodes: Sequence[Node], port: int) -> str:
    """That joins a node to the others; empty where there are none, or where it is not known."""
    other = next((node.address for node in nodes if node is not own and node.address), "")
    # The node that holds the store reaches it by itself; the others say where they are.
    return interface_of(address_towards(other, port) if other else own.address)


def leads(here: Launched, measure: Callable[[Lead], int]) -> int:
    """Rank 0's part: the others take part in what it measures, and end with the same exit code."""
    seat = comes(here)
    with ForkServer() as server:
        lead = Lead(seat, server.start)
        code = LoaderprobeError.exit_code
        try:
            code = measure(lead)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            raise
        except LoaderprobeError as error:
            code = error.exit_code
            raise
        finally:
            ends_by_itself()
            lead.end(code)
    return code


def follows(here: Launched) -> int:
    """The part of any other rank; returns the exit code. Raises LostRank when rank 0 has gone."""
    seat = comes(here)
    with ForkServer() as server:
        code = seat.follow(server.start)
    ends_by_itself()
    return code


def ends_by_itself() -> None:
    """A launcher ends all processes once one has failed; this one is done, and has an exit code of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def most_ranks(configs: Sequence[RunConfig]) -> int:
    """Of any configuration."""
    return max((config.ranks for config in configs), default=1)


def this_node(ranks: int) -> tuple[Node, ...]:
    """This machine, with as many processes as are going to be started."""
    return (Node(host=host_name(), seats=tuple(range(ranks)), gpus=len(list_gpus()[0])),)


@contextmanager
def on_this_machine(ranks: int) -> Iterator[Lead]:
    """So many ranks, without a launcher: what its processes do, threads of this one do, each with a child at a time.

    Raises BadValue for far more than there are cores, and in one of several programs that a launcher started.
    """
    from loaderprobe.loaders.ranks import TorchStore, clients

    if launched(os.environ):
        raise BadValue(
            "this program is one of several that a launcher started, and each would start all ranks",
            hint="start the command instead of the program: torchrun ... -m loaderprobe sweep --ranks 1,2",
        )
    check_crowd(ranks, cores_available())
    host, gpus = host_name(), _gpus()
    first = Launched(rank=0, size=ranks, node=host, address=LOOPBACK, port=0, agent_store=False)
    _allow_connections(first)
    # As many threads for each rank, whatever its configuration, and the loopback device to meet by.
    variables = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(_threads(ranks))}
    with ExitStack() as stack:
        # They import what children need meanwhile.
        starts = [stack.enter_context(ForkServer(variables)).start for _ in range(ranks)]
        holder = TorchStore(LOOPBACK, 0, PREFIX, holds=True)
        seats = []
        for rank in range(ranks):
            here = replace(first, rank=rank, port=holder.port, agent_store=True)
            seen = SeatSeen(rank=rank, host=host, node=host, gpus=gpus, version=version("loaderprobe"))
            seats.append(Seat(here, seen, *clients(here, PREFIX), SystemClock(), PREFIX))
        followers = [
            threading.Thread(target=_follow, args=(seat, start), daemon=True)
            for seat, start in zip(seats[1:], starts[1:], strict=True)
        ]
        for follower in followers:
            follower.start()
        seats[0].come()
        lead = Lead(seats[0], starts[0])
        try:
            yield lead
        finally:
            lead.end(EXIT_DONE)
            for follower in followers:
                follower.join()


def _follow(seat: Seat, start: Start) -> None:
    with suppress(LostRank):  # rank 0 has lost the store, too, and says so
        seat.come()
        seat.follow(start)

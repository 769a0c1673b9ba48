"""The processes of several ranks: how they start and join, what rank 0 has them do, and how each one ended.

A process that a launcher started measures nothing: for each configuration it takes part in, it has a child. All share a
store. Rank 0 stores there what is next; each stores how its part ended. A child that fails is reported, and the others
end theirs, so that it costs one configuration. Without a launcher, threads of one process do the same.
"""

from __future__ import annotations

import math
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue, LoaderprobeError, LostRank, MissingPart, Refused
from loaderprobe.measure.runner import ABORTED, ForkServer, Order, Result, Start, run_order
from loaderprobe.protocols import Clock, OnStage, SharedStore
from loaderprobe.records import by_key, values
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet, from_json, to_json
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.rank_processes import (
    Launched,
    Node,
    OutcomeKind,
    ProcessInfo,
    RankCommand,
    RankOutcome,
    RankPlacement,
    shares,
)
from loaderprobe.system.environment import list_gpus, own_version
from loaderprobe.system.host import SystemClock, host_name, utc_timestamp
from loaderprobe.system.launcher import address_towards, interface_of, launched
from loaderprobe.system.limits import allow_open_files, connections_of, core_limits, cores_available
from loaderprobe.system.process import die_with_parent
from loaderprobe.units import join_words

LOST = (
    "another rank has gone",
    "no store answers",
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
"""NCCL's watchdog ends the process of a rank that waits too long, by SIGABRT."""
OF_DATA = ("the data set raised", "OSError", "ConnectionResetError", "BrokenPipeError", "TimeoutError")
"""The errors of a storage on a network, which have the same words."""
_MISSING = re.compile(
    r"[Rr]anks? (\d[\d, and]*) failed to pass monitoredBarrier|does not answer: ranks? (\d[\d, and]*) \("
)


def is_consequence(reason: str, log: Sequence[str]) -> bool:
    """True where an error, or the last lines of a process that NCCL ended, say only that another rank was lost."""
    if any(words in line for line in log for words in OF_NCCL):
        return True
    return not reason.startswith(OF_DATA) and any(words in reason for words in LOST)


def failure_of(order: Order, outcomes: Sequence[RankOutcome], *, started_utc: str, wall_s: float) -> RunFailure:
    """One record of how all ranks ended, of which one at least did not end well."""
    origin = origin_of(outcomes)
    first = next((outcome for outcome in outcomes if outcome.first), outcomes[0])
    shown = origin or first
    reason, hint = _reason(shown, first, outcomes, known=origin is not None)
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
"""Errors of a rank that keep their exit code."""


def error_of(failure: RunFailure) -> LoaderprobeError:
    """The error to raise where no other configuration follows: the kind is found by the failed rank's exit code."""
    error = next((kind for kind in KINDS if kind.exit_code == failure.exit_code), LoaderprobeError)
    who = "" if failure.rank is None else f"rank {failure.rank} ({failure.host}): "
    last = next((line for line in reversed(failure.log) if line.strip()), "")
    late = failure.reason.startswith("timeout")
    hint = "look for a hang in it" if late else failure.hint or (f"its last line: {last}" if last else "")
    return error(f"{who}{failure.reason} ({failure.stage})", hint=hint)


def origin_of(outcomes: Sequence[RankOutcome]) -> RankOutcome | None:
    """The rank in which it began; None where nothing shows it.

    In this order: a rank that others name as missing, one that died or raised by itself, one whose process reported
    nothing, and the only one that was ended without an error of its own, or that was behind all others.
    """
    failed = [outcome for outcome in outcomes if outcome.kind != "done"]
    missing = _missing(outcomes)
    named = [outcome for outcome in failed if outcome.rank in missing]
    by_itself = [outcome for outcome in failed if outcome.kind == "failed" and not outcome.consequence]
    gone = [outcome for outcome in failed if outcome.kind == "lost"]
    if len(named) == 1:
        return next((outcome for outcome in by_itself if outcome in named), named[0])
    if by_itself:
        return next((outcome for outcome in by_itself if outcome.first), by_itself[0])
    if len(gone) == 1:
        return gone[0]
    silent = [outcome for outcome in failed if outcome.kind == "ended"]
    if len(silent) == 1 and not any(outcome.kind == "timeout" for outcome in outcomes):
        return silent[0]
    return _behind(silent, outcomes)


def _behind(silent: Sequence[RankOutcome], outcomes: Sequence[RankOutcome]) -> RankOutcome | None:
    """The rank that reported least; None when no single one is behind the others."""
    least = min(outcome.events for outcome in outcomes if outcome.kind != "lost")
    behind = [outcome for outcome in silent if outcome.events == least]
    return behind[0] if len(behind) == 1 and sum(outcome.events == least for outcome in outcomes) == 1 else None


def _missing(outcomes: Sequence[RankOutcome]) -> set[int]:
    """Ranks that did not arrive at a barrier, by the errors of those that waited there."""
    texts = [text for outcome in outcomes for text in (outcome.reason, *outcome.log)]
    lists = [match[1] or match[2] for text in texts for match in _MISSING.finditer(text)]
    return {int(rank) for ranks in lists for rank in re.findall(r"\d+", ranks)}


def _reason(shown: RankOutcome, first: RankOutcome, outcomes: Sequence[RankOutcome], *, known: bool) -> tuple[str, str]:
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
    silent = [str(outcome.rank) for outcome in outcomes if outcome.kind in ("ended", "lost")]
    if not known and silent and shown.kind == "failed":
        ranks = f"rank{'s' if len(silent) > 1 else ''} {join_words(silent)}"
        return f"{shown.reason}; {ranks} did not answer", shown.hint
    return shown.reason, shown.hint


def order_of_own(files: FileSet, ranks: int, nodes: int, cache: CacheState = "cold") -> Order:
    """The order of ranks that have no loader of ours. The caller adds what is measured."""
    config = RunConfig(
        data=files.fingerprint, resolution=files.label, loader=LoaderSpec(name="own", workers=0, prefetch_factor=0),
        compute=ComputeSpec(name="own", batch_size=1), cache=cache, ranks=ranks, nodes=nodes,
    )  # fmt: skip
    return Order(config=config, files=files)


MOST_A_CORE = 8
"""So many ranks that loaderprobe starts itself may share one core: those of an emulated accelerator still can."""
FORMS = "--ranks takes numbers with commas; 4x8 is 8 ranks on each of 4 nodes: --ranks 1,8,4x8"


def nodes_of(processes: Sequence[ProcessInfo]) -> tuple[Node, ...]:
    """The nodes, that of rank 0 first; on each its processes in their order."""
    ordered = sorted(processes, key=lambda process: process.rank)
    return tuple(
        Node(
            host=on_node[0].host,
            processes=tuple(process.rank for process in on_node),
            gpus=len({gpu for process in on_node for gpu in process.gpus}),
            address=next((process.address for process in on_node if process.address), ""),
            cores=tuple(shares([process.core_limits for process in on_node])),
        )
        for on_node in by_key(ordered, lambda process: process.node).values()
    )


def spread(text: str, nodes: Sequence[Node] | None) -> tuple[int, int]:
    """(ranks, nodes) that `8`, or `4x2` for four nodes, is on these nodes; without a launcher (None), all on this one.

    Raises BadValue for any other text, for more than there are, or for ranks that cannot be spread evenly.
    """
    match = re.fullmatch(r"(?:(\d{1,5})x)?(\d{1,6})", text.strip())
    node_count, a_node = (int(part) if part else 1 for part in match.groups()) if match else (0, 0)
    if not match or node_count < 1 or a_node < 1:
        raise BadValue(f"'{text}' is no number of ranks", hint=FORMS)
    ranks = node_count * a_node
    if nodes is None:
        check_one_node(node_count)
        return ranks, 1
    # Without a number, the fewest with as many processes over which they spread evenly; all nodes, where none do.
    fewest = [min(len(node.processes) for node in nodes[:count]) for count in range(1, len(nodes) + 1)]
    even = (n for n, processes in enumerate(fewest, 1) if ranks % n == 0 and ranks // n <= processes)
    over = node_count if match[1] else next(even, len(nodes))
    check_processes(ranks, over, nodes)
    return ranks, over


def check_one_node(nodes: int) -> None:
    """Raises BadValue for several nodes, where no launcher started processes there."""
    if nodes > 1:
        raise BadValue(
            f"{nodes} nodes are asked for, and loaderprobe starts processes on this one only",
            hint="start it on all nodes, as training is: loaderprobe explain ranks",
        )


def check_processes(ranks: int, over: int, nodes: Sequence[Node]) -> None:
    """Raises BadValue where the launcher started too few processes for so many ranks over so many nodes."""
    there = sum(len(node.processes) for node in nodes)
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
    local = ranks // over
    for node in nodes[:over]:
        if len(node.processes) < local:
            raise BadValue(
                f"{local} ranks on each node are asked for, and {node.host} has {len(node.processes)} processes",
                hint="start as many on each node",
            )


def check_crowd(ranks: int) -> None:
    """Raises BadValue for far more ranks than this machine has cores: what they wait for would be a core."""
    cores = cores_available()
    most = max(MOST_A_CORE, int(MOST_A_CORE * cores))
    if ranks > most:
        raise BadValue(
            f"{ranks} ranks on this machine would share {cores:g} core{'' if cores == 1 else 's'}, and show what that "
            "costs, not what training on as many machines does",
            hint=f"ask for {most} at most here, or start on several nodes",
        )


def check_gpus(config: RunConfig, nodes: Sequence[Node]) -> None:
    """Raises MissingPart for more ranks on a node than it has GPUs, where they are needed and can be listed."""
    wanted = config.ranks // config.nodes
    for node in nodes[: config.nodes] if config.compute.kind == "cuda" and config.ranks > 1 else ():
        if 0 < node.gpus < wanted:
            raise MissingPart(
                f"{wanted} ranks on cuda need a GPU each, and {node.host} has {node.gpus}",
                hint="ask for fewer ranks, or use --compute emulated:NAME",
            )


def ranks_of(ranks: int, over: int, nodes: Sequence[Node]) -> list[tuple[int, str]]:
    """(rank of its process, host) of each rank of a configuration."""
    return [(process, node.host) for node in nodes[:over] for process in node.processes[: ranks // over]]


JOIN_S = 300.0
"""Seconds for all processes to join: a launcher starts those of one job together."""
POLL_S = 0.2
POLLS_PER_S = 1000
"""How often all waiting processes together ask the one store."""
LATER_S = 30.0
"""Seconds after rank 0's timeout of a configuration, by which the others' children end too."""
PATIENT_FOR = 4
"""Of the time limit of a configuration, the part that ranks wait for one of them: 150 s unless asked otherwise."""
PART = 2**20
"""Characters of one value in the store, which takes at most 8 MiB."""
T = TypeVar("T")


def put(store: SharedStore, key: str, value: object) -> None:
    """Store a record at a key, in as many parts as it takes."""
    text = to_json(value).decode()
    parts = [text[begin : begin + PART] for begin in range(0, len(text), PART)]
    for number, part in enumerate(parts):
        store.set(f"{key}/{number}", part)
    store.set(key, str(len(parts)))


def take(store: SharedStore, key: str, type_: type[T]) -> T:
    """The record that `put` stored at a key."""
    parts = [store.get(f"{key}/{number}") for number in range(int(store.get(key)))]
    record: T = from_json(b"".join(parts), type_)
    return record


KEY_OF_ONE, KEY_OF_ALL = "seat", "seats"
"""Keys of what processes store about themselves. Every version has the same, so that a different one is reported."""
NOT_STARTED = "check that the launcher started it on all nodes"


class RankProcess:
    """This process among those that were started."""

    def __init__(self, here: Launched, info: ProcessInfo, store: SharedStore, clock: Clock, prefix: str) -> None:
        self.here, self.store, self.clock, self.prefix = here, store, clock, prefix
        self.poll_s = max(POLL_S, here.size / POLLS_PER_S)
        self.nodes: tuple[Node, ...] = ()
        self._info = info

    def join(self) -> None:
        """Wait until all processes have joined. Raises LostRank where one does not, BadValue for different versions."""
        put(self.store, f"{KEY_OF_ONE}/{self.here.rank}", self._info)
        if self.here.rank == 0:
            ranks = {f"{KEY_OF_ONE}/{rank}": rank for rank in range(self.here.size)}
            if late := self.missing(ranks, JOIN_S):
                why = f"rank {ranks[late[0]]} of {self.here.size} has not come after {JOIN_S:.0f} s"
                raise LostRank(why, hint=NOT_STARTED)
            put(self.store, KEY_OF_ALL, [take(self.store, key, ProcessInfo) for key in ranks])
        if self.missing([KEY_OF_ALL], JOIN_S + LATER_S):
            raise LostRank(f"not all processes have come after {JOIN_S + LATER_S:.0f} s", hint=NOT_STARTED)
        processes = take(self.store, KEY_OF_ALL, list[ProcessInfo])
        unlike = next((process for process in processes if process.version != self._info.version), None)
        if unlike:
            raise BadValue(
                f"{unlike.host} has loaderprobe {unlike.version}, and {self._info.host} has {self._info.version}",
                hint="install the same version on all nodes",
            )
        self.nodes = nodes_of(processes)

    def missing(self, keys: Iterable[str], limit_s: float | None) -> list[str]:
        """Those of the keys that the store does not have after so many seconds."""
        until_ns = math.inf if limit_s is None else self.clock.now_ns() + round(limit_s * 1e9)
        while True:
            keys = [key for key in keys if not self.store.check([key])]
            if not keys or self.clock.now_ns() >= until_ns:
                return keys
            self.clock.sleep(self.poll_s)

    def placement(self, command: RankCommand, number: int) -> RankPlacement | None:
        """Where this process stands among the ranks of a command; None where it takes no part."""
        processes = [process for process, _ in ranks_of(command.ranks, command.nodes, self.nodes)]
        if self.here.rank not in processes:
            return None
        rank, local_size = processes.index(self.here.rank), command.ranks // command.nodes
        placement = RankPlacement(
            rank=rank,
            size=command.ranks,
            node=rank // local_size,
            local_rank=rank % local_size,
            local_size=local_size,
            address=self.here.address,
            port=self.here.port,
            prefix=f"{self.prefix}/command/{number}/ranks",
        )
        # A cold first batch, or compiling, may take one rank long.
        return replace(placement, timeout_s=max(placement.timeout_s, command.time_limit_s / PATIENT_FOR))

    def run_commands(self, start: Start) -> int:
        """Carry out the commands of rank 0 until the last; returns the exit code. Raises LostRank without rank 0."""
        number = 0
        try:
            while True:
                self.missing([f"command/{number}"], None)
                command = take(self.store, f"command/{number}", RankCommand)
                if command.kind == "end":
                    return command.exit_code
                placement = self.placement(command, number)
                if placement is not None and command.kind == "files":
                    self.report(number, check_files_here(take(self.store, "files", FileSet), self._done(placement)))
                elif placement is not None:
                    order = replace(take(self.store, "order", Order), begin_ns=self.clock.now_ns())
                    limit_s = command.time_limit_s + LATER_S
                    with suppress(Refused):  # for lack of space: it is reported, and the next may find some
                        self.run_child(order, placement, number, start, limit_s, lambda *_: None)
                number += 1
        finally:
            with suppress(LostRank):
                self.store.set(f"left/{self.here.rank}", "1")

    def run_child(
        self, order: Order, placement: RankPlacement, number: int, start: Start, limit_s: float,
        on_stage: OnStage,
    ) -> tuple[RankOutcome, Result | RunFailure]:  # fmt: skip
        """Measure in a child as one of the ranks; (how that ended, what the child returned)."""
        stages = 0

        def count_stage(stage: str, done: int, total: int) -> None:
            nonlocal stages
            stages += 1
            on_stage(stage, done, total)

        def aborted() -> bool:
            try:
                return self.store.check([abort_key(number)])
            except LostRank:
                return True

        try:
            result = run_order(
                replace(order, placement=placement), clock=self.clock, time_limit_s=limit_s, on_stage=count_stage,
                start=start, aborted=aborted, poll_s=self.poll_s,
            )  # fmt: skip
        except BaseException as error:
            # Neither Ctrl-C nor a full disk here must leave the others waiting for this rank.
            interrupted = isinstance(error, KeyboardInterrupt)
            reason, hint = "it was interrupted" if interrupted else f"{type(error).__name__}: {error}", ""
            if isinstance(error, LoaderprobeError):
                reason, hint = error.message, error.hint
            with suppress(LostRank):
                self.report(number, replace(self._done(placement), kind="failed", reason=reason, hint=hint))
            raise
        outcome = self._done(placement)
        if isinstance(result, RunFailure):
            outcome = _failed(outcome, result, stages)
        return self.report(number, outcome), result

    def _done(self, placement: RankPlacement) -> RankOutcome:
        return RankOutcome(rank=placement.rank, host=self._info.host, kind="done")

    def report(self, number: int, outcome: RankOutcome) -> RankOutcome:
        """Store how this rank's part ended; where it failed, the others end theirs."""
        if outcome.kind != "done":
            first = self.store.compare_set(abort_key(number), "", str(outcome.rank))
            outcome = replace(outcome, first=first.decode() == str(outcome.rank))
        put(self.store, outcome_key(number, outcome.rank), outcome)
        return outcome


def abort_key(number: int) -> str:
    """The key that ends all children of a command: the first rank that could not go on."""
    return f"command/{number}/abort"


def outcome_key(number: int, rank: int) -> str:
    """The key of how the part of one rank in a command ended."""
    return f"command/{number}/end/{rank}"


def _failed(outcome: RankOutcome, failure: RunFailure, stages: int) -> RankOutcome:
    kind: OutcomeKind = "ended" if failure.reason.startswith(ABORTED) else "failed"
    return replace(
        outcome,
        kind="timeout" if failure.reason.startswith("timeout") else kind,
        events=stages,
        consequence=is_consequence(failure.reason, failure.log if failure.signal == "SIGABRT" else ()),
        **values(failure, "stage", "reason", "hint", "exit_code", "signal", "log"),
    )


def check_files_here(files: FileSet, outcome: RankOutcome) -> RankOutcome:
    """The outcome of looking for the files on this node: `failed` where one is missing, or has another size."""
    for name, size in () if files.remote else files.file_bytes.items():
        path = files.folder / name
        try:
            there = path.stat().st_size
        except OSError as error:
            return replace(outcome, kind="failed", reason=f"{path} cannot be read there: {error.strerror}")
        if there != size:
            return replace(outcome, kind="failed", reason=f"{path} has {there} bytes there, and {size} at rank 0")
    return outcome


ENDS_S = 30.0
"""Seconds for the other ranks' children to end, once that of rank 0 has."""
ENDED_S = 15.0
"""Seconds for their processes to end them then, and to report it."""
LEAVE_S = 10.0
"""Seconds for the other processes to read that all is over, where this one holds the store."""
FILES_S = 600.0
"""Seconds to look for the files of a data set on all nodes."""


class Coordinator:
    """What rank 0 does for all ranks, as the coordinator of `jax.distributed` does."""

    def __init__(self, process: RankProcess, start: Start) -> None:
        self._process, self.start = process, start
        self.nodes = process.nodes
        """The nodes of all processes, that of this one first."""
        self._number = 0
        self._lost: tuple[int, str] | None = None
        """The rank and host of a process that did not answer."""

    def run(self, order: Order, *, time_limit_s: float, on_stage: OnStage) -> Result | RunFailure:
        """Do what an order asks for in a child of each rank.

        Raises LostRank when a process has gone. A configuration of one rank needs no other: it has a child here.
        """
        config, clock = order.config, self._process.clock
        if config.ranks == 1 and order.read is None:
            return run_order(order, clock=clock, time_limit_s=time_limit_s, on_stage=on_stage, start=self.start)
        self._refuse_lost()
        started_utc, begin_ns = utc_timestamp(), clock.now_ns()
        put(self._process.store, "order", order)
        command = RankCommand(kind="measure", ranks=config.ranks, nodes=config.nodes, time_limit_s=time_limit_s)
        number = self._send(command)
        placement = self._process.placement(command, number)
        assert placement is not None, "rank 0 takes part in each configuration"
        outcome, result = self._process.run_child(order, placement, number, self.start, time_limit_s, on_stage)
        outcomes = [outcome, *self._outcomes(command, number, ENDS_S)]
        if not isinstance(result, RunFailure):
            return result
        return failure_of(order, outcomes, started_utc=started_utc, wall_s=(clock.now_ns() - begin_ns) / 1e9)

    def admit(self, configs: Sequence[RunConfig], sets: Iterable[FileSet], what: str = "data set") -> None:
        """Raises BadValue, MissingPart or LostRank for what these processes cannot measure; `what` names a set."""
        for config in configs:
            check_processes(config.ranks, config.nodes, self.nodes)
            check_gpus(config, self.nodes)
        for files in sets:
            most_nodes = max((config.nodes for config in configs if config.data == files.fingerprint), default=1)
            if most_nodes == 1:
                continue
            put(self._process.store, "files", files)
            command = RankCommand(kind="files", ranks=most_nodes, nodes=most_nodes)
            number = self._send(command)
            bad = next((answer for answer in self._outcomes(command, number, FILES_S) if answer.kind != "done"), None)
            self._refuse_lost()
            if bad:
                raise BadValue(
                    f"{bad.host} does not see the {what} {files.label}: {bad.reason}",
                    hint="put it on storage that all nodes mount at the same path",
                )

    def end(self, exit_code: int) -> None:
        """End all other processes, and wait a little until they have left: this process may hold the store."""
        with suppress(LostRank):
            self._send(RankCommand(kind="end", exit_code=exit_code))
            self._process.missing([f"left/{rank}" for rank in range(1, self._process.here.size)], LEAVE_S)

    def _send(self, command: RankCommand) -> int:
        number, self._number = self._number, self._number + 1
        put(self._process.store, f"command/{number}", command)
        return number

    def _outcomes(self, command: RankCommand, number: int, limit_s: float) -> list[RankOutcome]:
        """The outcomes of the ranks but 0. One that is late, or all on Ctrl-C, are ended; still late is lost."""
        store, others = self._process.store, list(enumerate(ranks_of(command.ranks, command.nodes, self.nodes)))[1:]
        late = [outcome_key(number, rank) for rank, _ in others]
        try:
            late = self._process.missing(late, limit_s)
        finally:
            if late:
                store.compare_set(abort_key(number), "", "0")
        late = self._process.missing(late, ENDED_S)
        outcomes = []
        for rank, (process, host) in others:
            key = outcome_key(number, rank)
            if key in late:
                self._lost = process, host
                outcomes.append(RankOutcome(rank=rank, host=host, kind="lost"))
            else:
                outcomes.append(take(store, key, RankOutcome))
        return outcomes

    def _refuse_lost(self) -> None:
        """Raises LostRank where a process did not answer, or has left."""
        processes = ((process, node.host) for node in self.nodes for process in node.processes)
        left = ((rank, host) for rank, host in processes if self._process.store.check([f"left/{rank}"]))
        lost = self._lost or next(left, None)
        if lost:
            raise LostRank(
                f"the process of rank {lost[0]} on {lost[1]} has gone, or does not answer",
                hint="start it again on all nodes, with --resume RUN: what is measured is kept",
            )


PREFIX = "loaderprobe"
LOOPBACK = "127.0.0.1"


def join_processes(here: Launched) -> RankProcess:
    """Join the processes that a launcher started. Raises LostRank, BadValue, and MissingPart for too many."""
    from loaderprobe.loaders.ranks import TorchStore

    if here.agent_store:
        # torchrun's agent may be killed, and with it goes the store.
        die_with_parent(os.getppid())
    _allow_connections(here)
    host = host_name()
    info = ProcessInfo(
        rank=here.rank,
        host=host,
        node=here.node or host,
        gpus=_gpus(),
        version=own_version(),
        address=address_towards(here.address, here.port),
        core_limits=core_limits(),
    )
    prefix = f"{PREFIX}/{here.attempt}"
    # Where the launcher has no store, rank 0 makes it.
    store = TorchStore(here.address, here.port, prefix, is_master=here.rank == 0 and not here.agent_store)
    process = RankProcess(here, info, store, SystemClock(), prefix)
    process.join()
    node = next(node for node in process.nodes if here.rank in node.processes)
    # As many threads a rank for every configuration, whatever its ranks: torchrun sets one, other launchers none.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(node.cores[node.processes.index(here.rank)]))))
    if interface := _interface(node, process.nodes, here.port):
        # Else gloo takes the address of the host's own name, which on many hosts is 127.0.1.1.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    return process


def _gpus() -> tuple[str, ...]:
    return tuple(gpu.uuid or gpu.name for gpu in list_gpus()[0])


def _allow_connections(here: Launched) -> None:
    """Raise the limit of open files of this process: the one that holds the store has connections to all.

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


def _interface(this: Node, nodes: Sequence[Node], port: int) -> str:
    """The network interface that joins a node to the others; empty without others, or where it is not known."""
    address = next((node.address for node in nodes if node is not this and node.address), "")
    # The node that holds the store reaches it by itself; the others say where they are.
    return interface_of(address_towards(address, port) if address else this.address)


def run_as_coordinator(here: Launched, measure: Callable[[Coordinator], int]) -> int:
    """Rank 0's part: the others take part in what it measures, and end with the same exit code."""
    process = join_processes(here)
    with ForkServer() as server:
        coordinator = Coordinator(process, server.start)
        code = LoaderprobeError.exit_code
        try:
            code = measure(coordinator)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            raise
        except LoaderprobeError as error:
            code = error.exit_code
            raise
        finally:
            ends_by_itself()
            coordinator.end(code)
    return code


def run_as_worker(here: Launched) -> int:
    """The part of any other rank; returns the exit code. Raises LostRank when rank 0 has gone."""
    process = join_processes(here)
    with ForkServer() as server:
        code = process.run_commands(server.start)
    ends_by_itself()
    return code


def ends_by_itself() -> None:
    """Ignore SIGTERM, by which a launcher ends all once one has failed: this process exits with its own code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def this_node(ranks: int) -> tuple[Node, ...]:
    """This machine as the only node, with as many processes as are going to be started."""
    return (Node(host=host_name(), processes=tuple(range(ranks)), gpus=len(list_gpus()[0])),)


@contextmanager
def on_this_machine(ranks: int) -> Iterator[Coordinator]:
    """Run ranks without a launcher: threads of this process stand for its processes, each with a child at a time.

    Raises BadValue for far more than there are cores, and in one of several programs that a launcher started.
    """
    from loaderprobe.loaders.ranks import TorchStore

    if launched(os.environ):
        raise BadValue(
            "this program is one of several that a launcher started, and each would start all ranks",
            hint="start the command instead of the program: torchrun ... -m loaderprobe sweep --ranks 1,2",
        )
    check_crowd(ranks)

    def take_part(process: RankProcess, start: Start) -> None:
        with suppress(LoaderprobeError):  # rank 0 has heard of it, or has lost the store, too, and says so
            process.join()
            process.run_commands(start)

    host, gpus = host_name(), _gpus()
    first = Launched(rank=0, size=ranks, node=host, address=LOOPBACK, port=0, agent_store=False)
    _allow_connections(first)
    # As many threads for each rank, whatever its configuration, and the loopback device to meet by.
    threads = str(max(1, int(cores_available()) // ranks))
    variables = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": threads}
    with ExitStack() as stack:
        # They import what children need meanwhile.
        starts = [stack.enter_context(ForkServer(variables)).start for _ in range(ranks)]
        holder = TorchStore(LOOPBACK, 0, PREFIX, is_master=True)
        processes = []
        for rank in range(ranks):
            here = replace(first, rank=rank, port=holder.port, agent_store=True)
            info = ProcessInfo(rank=rank, host=host, node=host, gpus=gpus, version=own_version())
            store = TorchStore(LOOPBACK, holder.port, PREFIX)
            processes.append(RankProcess(here, info, store, SystemClock(), PREFIX))
        workers = [
            threading.Thread(target=take_part, args=(process, start), daemon=True)
            for process, start in zip(processes[1:], starts[1:], strict=True)
        ]
        for worker in workers:
            worker.start()
        processes[0].join()
        coordinator = Coordinator(processes[0], starts[0])
        try:
            yield coordinator
        finally:
            coordinator.end(EXIT_DONE)
            for worker in workers:
                worker.join()

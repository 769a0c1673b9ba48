"""Ranks in the processes of a launcher: each has a child, and a rank or node that fails is named.

The processes are threads with a store in memory; their children are shell scripts.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock, call

import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, LostRank, MissingPart, NoSpace
from loaderprobe.measure import runner
from loaderprobe.measure.ranks import launch
from loaderprobe.measure.ranks.launch import Coordinator, RankProcess, put, take
from loaderprobe.measure.runner import Order, Start
from loaderprobe.protocols import OnStage
from loaderprobe.records.diagnosis import DataFound, OwnLoader, OwnMeasured
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.rank_processes import Launched, ProcessInfo, RankCommand, RankPlacement
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.host import SystemClock
from loaderprobe.testing import FakeClock, example_config, example_files
from tests.analyze.scripted import Truth, measured
from tests.fakes import FakeStore
from tests.measure.scripted import by_command

pytestmark = pytest.mark.starts  # in the threads that stand for processes of a launcher

AT_ROUND = """echo '{"stage": "round 1"}'; """
DONE = AT_ROUND + "cp $MEASURED $RESULT"
KILLED = AT_ROUND + "kill -9 $$"
KILLED_WITH_WORKER = AT_ROUND + "sleep 1000 & kill -9 $$"
"""Its worker holds its output, as those of a DataLoader do for some seconds."""
HUNG = """echo '{"stage": "joining"}'; exec sleep 1000"""
RAISED = AT_ROUND + """echo '{"stage": "round 1", "failure": "ValueError: no"}'; exit 1"""
LOST = AT_ROUND + """echo '{"stage": "round 1", "failure": "another rank has gone"}'; exit 1"""
WAITS = AT_ROUND + "exec sleep 1000"
FILES = example_files(16)


def order(ranks: int = 2, nodes: int = 1) -> Order:
    config = example_config(data=FILES.fingerprint, ranks=ranks, nodes=nodes)
    return Order(config=config, files=FILES, budget_s=None, begin_ns=7)


def launched(rank: int, size: int, *, agent_store: bool = True) -> Launched:
    return Launched(rank=rank, size=size, node="", address="head", port=1, agent_store=agent_store)


def process(store: FakeStore, clock: Any, rank: int, size: int, node: int = 0, version: str = "1") -> RankProcess:
    info = ProcessInfo(rank=rank, host=f"host{node}", node=str(node), gpus=(), version=version)
    return RankProcess(launched(rank, size), info, store, clock, "p/0")


class Group:
    """Nodes with as many processes each as asked; `scripts` are those of the children, by rank."""

    def __init__(self, folder: Path, nodes: int = 1, local: int = 2, ranks: int = 2) -> None:
        self.store = FakeStore()
        self.scripts: dict[int, list[str | BaseException]] = {}
        self.placements: list[RankPlacement | None] = []
        self.codes: list[int] = []
        self.raised: list[BaseException] = []
        self.measured = folder / "measured.json"
        self.given = replace(measured(Truth(compute=1000.0), 2), config=order(ranks, nodes).config)
        self.measured.write_bytes(encode("measurement", self.given))
        self.processes = [
            process(self.store, SystemClock(), rank, nodes * local, rank // local) for rank in range(nodes * local)
        ]
        self.threads = [threading.Thread(target=self._follow, args=(own,), daemon=True) for own in self.processes[1:]]

    def coordinator(self, **scripts: list[str | BaseException]) -> Coordinator:
        """All have come; `scripts` by the name of the rank, as `r0`; an error instead of one is why none starts."""
        self.scripts = {int(name[1:]): given for name, given in scripts.items()}
        for thread in self.threads:
            thread.start()
        self.processes[0].join()
        return Coordinator(self.processes[0], self.start(0))

    @property
    def placed(self) -> list[RankPlacement]:
        return [placement for placement in self.placements if placement]

    def ended(self) -> None:
        """All other processes have returned."""
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()

    def _follow(self, own: RankProcess) -> None:
        try:
            own.join()
            self.codes.append(own.run_commands(self.start(own.here.rank)))
        except BaseException as error:  # noqa: BLE001  # the test looks for it
            self.raised.append(error)

    def start(self, rank: int) -> Start:
        """Each child of a rank runs its next script."""

        def command(order: Path, result: Path) -> list[str]:
            self.placements.append(decode("order", order.read_bytes(), Order, "order").placement)
            script = self.scripts[rank].pop(0)
            if isinstance(script, BaseException):
                raise script
            paths = f"MEASURED={shlex.quote(str(self.measured))}; RESULT={shlex.quote(str(result))}; "
            return ["/bin/sh", "-c", paths + script]

        return by_command(command)


Groups = Callable[..., Group]


def run(coordinator: Coordinator, asked: Order, on_stage: OnStage = lambda *_: None) -> Any:
    return coordinator.run(asked, time_limit_s=60.0, on_stage=on_stage)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Groups]:
    """Makes groups, whose processes wait for milliseconds; lets all their threads go."""
    monkeypatch.setattr(launch, "POLL_S", 0.005)
    monkeypatch.setattr(runner, "GRACE_S", 0.05)
    made: list[Group] = []

    def make(**size: int) -> Group:
        made.append(Group(tmp_path, **size))
        return made[-1]

    yield make
    for started in made:
        started.ended()


def test_a_configuration_of_one_rank_has_a_child_here_alone(group: Groups) -> None:
    """It has no placement among ranks, and the others get no command."""
    here = group(ranks=1)
    coordinator = here.coordinator(r0=[DONE])
    assert run(coordinator, order(ranks=1)) == here.given
    assert here.placements == [None] and not here.store.check(["command/0"])
    coordinator.end(0)


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (NoSpace("no space left to write /tmp/x", hint="free some"), "no space left to write /tmp/x", "free some"),
        (KeyboardInterrupt(), "it was interrupted", ""),
        (RuntimeError("no threads"), "RuntimeError: no threads", ""),
    ],
)
def test_what_ends_a_rank_before_its_child_is_said(group: Groups, error: BaseException, reason: str, hint: str) -> None:
    """By its own words and next step: rank 0 has no other way to know. A full disk costs one configuration."""
    here = group()
    coordinator = here.coordinator(r0=[HUNG, DONE], r1=[error, DONE])
    found = run(coordinator, order())
    assert isinstance(found, RunFailure)
    assert (found.reason, found.hint, found.rank) == (reason, hint, 1)
    if isinstance(error, NoSpace):
        assert run(coordinator, order()) == here.given
        coordinator.end(0)


def test_all_ranks_have_a_child_and_rank_0_s_record_counts(group: Groups) -> None:
    """Each child has its rank; the other processes wait for the next command, know its record, and end as rank 0."""
    here, stages = group(), list[str]()
    coordinator = here.coordinator(r0=[DONE, DONE], r1=[DONE, DONE])
    assert run(coordinator, order(), on_stage=lambda *stage: stages.append(stage[0])) == here.given
    data = DataFound(hidden=None, size_bytes=None, root="")
    record = OwnMeasured(config=here.given.config, measurement=here.given, data=data)
    here.measured.write_bytes(encode("own-loader", record))
    own = OwnLoader(name="a:b", folder="/", module="a", function="b")
    assert run(coordinator, replace(order(), own=own)) == record
    coordinator.end(4)
    here.ended()
    assert (here.codes, here.raised) == ([4], [])
    assert stages == ["round 1"]
    placements = sorted((each.prefix, each.rank, each.size, each.local_size) for each in here.placed)
    assert placements == [(f"p/0/command/{command}/ranks", rank, 2, 2) for command in (0, 1) for rank in (0, 1)]


def test_a_layout_leaves_the_other_processes_waiting(group: Groups) -> None:
    """Two ranks on each of two nodes with three processes: the first ones, in order of nodes."""
    here = group(nodes=2, local=3, ranks=4)
    coordinator = here.coordinator(r0=[DONE], r1=[DONE], r3=[DONE], r4=[DONE])
    assert run(coordinator, order(4, 2)) == here.given
    coordinator.end(0)
    placements = sorted((each.rank, each.node, each.local_rank, each.size) for each in here.placed)
    assert placements == [(0, 0, 0, 4), (1, 0, 1, 4), (2, 1, 0, 4), (3, 1, 1, 4)]


@pytest.mark.parametrize(
    ("first", "second", "rank", "said"),
    [
        (WAITS, KILLED, 1, "killed by SIGKILL"),
        (LOST, KILLED_WITH_WORKER, 1, "killed by SIGKILL"),
        (LOST, HUNG, 1, "did not answer, ended because rank 0 could not go on"),
        (WAITS, RAISED, 1, "ValueError: no"),
        (RAISED, LOST, 0, "ValueError: no"),
        (KILLED, WAITS, 0, "killed by SIGKILL"),
        (DONE, WAITS, None, ""),
    ],
)
def test_a_rank_that_fails_costs_one_configuration(
    group: Groups, monkeypatch: pytest.MonkeyPatch, first: str, second: str, rank: int | None, said: str
) -> None:
    """It is named, all children are ended, and the next is measured. What rank 0 gathered before counts."""
    monkeypatch.setattr(launch, "ENDS_S", 0.05 if rank is None else launch.ENDS_S)
    here = group()
    coordinator = here.coordinator(r0=[first, DONE], r1=[second, DONE])
    found = run(coordinator, order())
    if rank is None:
        assert found == here.given
    else:
        assert isinstance(found, RunFailure) and said in found.reason
        assert (found.rank, found.host) == (rank, "host0")
        assert found.stage == ("joining" if second == HUNG else "round 1")
    assert run(coordinator, order()) == here.given
    coordinator.end(0)
    assert here.raised == []


@pytest.mark.parametrize("own", [WAITS, DONE])
def test_ctrl_c_at_one_process_ends_the_children_of_all(group: Groups, own: str) -> None:
    """Also where its own has ended and rank 0 waits for one that hangs. The others wait for what is next."""
    here = group()
    coordinator = here.coordinator(r0=[own], r1=[WAITS])

    def interrupt(*_: Any) -> None:
        if own == WAITS:
            raise KeyboardInterrupt

    if own == DONE:
        clock = Mock(wraps=SystemClock())
        clock.sleep.side_effect = chain([KeyboardInterrupt], repeat(DEFAULT))  # during the first sleep on it
        here.processes[0].clock = clock
    with pytest.raises(KeyboardInterrupt):
        run(coordinator, order(), on_stage=interrupt)
    coordinator.end(0)
    here.ended()
    assert here.raised == []


def test_a_process_that_has_gone_ends_the_sweep_but_no_result(group: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration has a record with its host; then what is left waits for a resume."""
    monkeypatch.setattr(launch, "ENDS_S", 0.02)
    monkeypatch.setattr(launch, "ENDED_S", 0.02)
    here = group(nodes=2, local=1)
    here.threads = []
    put(here.store, "seat/1", here.processes[1]._info)
    coordinator = here.coordinator(r0=[LOST])
    failure = run(coordinator, order(2, 2))
    assert isinstance(failure, RunFailure) and (failure.rank, failure.host) == (1, "host1")
    with pytest.raises(LostRank, match="rank 1 on host1 has gone") as caught:
        run(coordinator, order(2, 2))
    assert "--resume" in caught.value.hint


def test_a_store_that_has_gone_ends_the_others(group: Groups) -> None:
    """Their children too: rank 0's process held it."""
    here = group()
    coordinator = here.coordinator(r1=[WAITS])
    put(here.store, "order", order())
    coordinator._send(RankCommand(kind="measure", ranks=2, nodes=1, time_limit_s=60.0))
    while not here.placements:
        SystemClock().sleep(0.005)
    here.store.gone = True
    here.ended()
    assert [type(each) for each in here.raised] == [LostRank]


@pytest.mark.parametrize(
    ("content", "ranks", "said"),
    [
        (b"12345", 2, None),
        (None, 2, r"host1 does not see the data set 500x375: .*a\.jpg cannot be read there"),
        (b"123", 2, r"host1 does not see the data set 500x375: .*a\.jpg has 3 bytes there, and 5 at rank 0"),
        (b"12345", 4, "4 ranks are asked for, and the launcher started 2"),
    ],
    ids=["all is there", "a file is missing", "a file is shorter", "more ranks than processes"],
)
def test_what_a_node_lacks(group: Groups, tmp_path: Path, content: bytes | None, ranks: int, said: str | None) -> None:
    """With its name."""
    files = replace(example_files(1), root=str(tmp_path), paths=("a.jpg",), classes=(0,), size_bytes=(5,))
    if content is not None:
        (tmp_path / "a.jpg").write_bytes(content)
    coordinator = group(nodes=2, local=1).coordinator()
    configs = [replace(order(ranks, 2).config, data=files.fingerprint)]
    if said is None:
        coordinator.admit(configs, [files])
    else:
        with pytest.raises(BadValue, match=said):
            coordinator.admit(configs, [files])
    coordinator.end(0)


LATE, OTHER = "rank 1 of 2 has not come after 300 s", "host1 has loaderprobe 2, and host0 has 1"


@pytest.mark.parametrize(("second", "kind", "said"), [(None, LostRank, LATE), ("2", BadValue, OTHER)])
def test_processes_that_do_not_meet_are_named(second: str | None, kind: type[LoaderprobeError], said: str) -> None:
    """One that does not come within some minutes, and one of another version, whose records would not be alike."""
    store, clock = FakeStore(), FakeClock()
    if second:
        put(store, "seat/1", process(store, clock, 1, 2, node=1, version=second)._info)
    with pytest.raises(kind, match=said):
        process(store, clock, 0, 2).join()


def test_the_store_serves_many_processes_and_long_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many ask it less often; it takes no value above 8 MiB, so a record is kept in parts."""
    store = FakeStore()
    assert process(store, FakeClock(), 0, 1024).poll_s == pytest.approx(1.024)
    monkeypatch.setattr(launch, "PART", 7)
    put(store, "long", ["ä" * 9, "b"])
    assert max(map(len, store.values.values())) == 7
    assert take(store, "long", list[str]) == ["ä" * 9, "b"]


@pytest.mark.parametrize(("agent_store", "holder"), [(True, "torchrun on the node of rank 0"), (False, "to rank 0")])
def test_too_many_processes_are_refused(agent_store: bool, holder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the one that holds it, or is started by it, with how to raise the limit; others raise their own."""
    allowed = Mock(return_value=1024)
    monkeypatch.setattr(launch, "allow_open_files", allowed)
    monkeypatch.setattr(launch, "die_with_parent", lambda _: None)
    needs = rf"1000 processes .*{holder}, which needs 6100 open .* limit is 1024"
    with pytest.raises(MissingPart, match=needs) as raised:
        launch.join_processes(launched(0, 1000, agent_store=agent_store))
    assert "ulimit -Hn 6100" in raised.value.hint
    assert allowed.call_args == (call(6100, os.getppid()) if agent_store else call(6100))
    launch._allow_connections(launched(1, 1000, agent_store=False))
    launch._allow_connections(launched(0, 8, agent_store=True))


def test_ranks_of_this_machine_are_threads_with_a_child_each(group: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over torch's own store. Each gets its share of the cores; one that dies is named; no thread is left."""
    monkeypatch.setattr(launch, "cores_available", lambda: 8.0)
    monkeypatch.delenv("RANK", raising=False)
    here, before = group(local=0), threading.active_count()
    here.scripts = {0: [DONE, WAITS, DONE], 1: [DONE, KILLED, DONE]}
    variables: list[Mapping[str, str]] = []

    @contextmanager
    def forkserver(given: Mapping[str, str]) -> Iterator[Any]:
        variables.append(given)
        yield type("Server", (), {"start": staticmethod(here.start(len(variables) - 1))})

    monkeypatch.setattr(launch, "ForkServer", forkserver)
    with launch.on_this_machine(2) as coordinator:
        first, failure, last = (run(coordinator, order()) for _ in range(3))
    assert threading.active_count() == before
    assert first == last == here.given
    assert isinstance(failure, RunFailure) and failure.rank == 1 and "killed by SIGKILL" in failure.reason
    assert [each["OMP_NUM_THREADS"] for each in variables] == ["4", "4"]
    assert {(placement.address, placement.local_size) for placement in here.placed} == {("127.0.0.1", 2)}

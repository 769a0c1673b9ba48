"""Several ranks: what is asked for and refused, what two measure in step, and how they are judged as one process."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
import torch.distributed as dist

import loaderprobe
from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.analyze.verdict.ranks import as_one, cores
from loaderprobe.analyze.verdict.rates import host_names, input_at_most, slow_host
from loaderprobe.analyze.verdict.validity import is_disturbed
from loaderprobe.api import sweep, sweep_spec
from loaderprobe.api.diagnose import diagnose, diagnosis
from loaderprobe.api.sweep_spec import check_images, check_spec, images_needed, spec_of
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure import session
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.ranks import launch
from loaderprobe.measure.runner import Order
from loaderprobe.measure.studies import too_few
from loaderprobe.measure.user import loader
from loaderprobe.measure.user.function import agreed, measure_own, named
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.diagnosis import DataFound, OwnMeasured
from loaderprobe.records.measurement import Measurement, Others, RunFailure
from loaderprobe.records.rank_processes import Node, RankInput, RankMeasurement, RankPlacement
from loaderprobe.records.remark import Remark
from loaderprobe.render.pages import document_markdown
from loaderprobe.store.codec import decode, encode
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import example_config, example_files
from tests.analyze.runs import alike, rank_run, with_steps, with_training
from tests.analyze.scripted import Truth, measured
from tests.examples.ranks import STEPS, train
from tests.fakes import FakeGroup
from tests.stored import empty_run, failure
from tests.warm import in_two_ranks

NODES = (Node(host="a", processes=(0, 1), gpus=2), Node(host="b", processes=(2, 3), gpus=1))
DATA = DataFound(hidden=None, size_bytes=1e9, root="/data/photos", samples=10_000)


ONE = RankInput(batch_size=8, workers=2, prefetch_factor=2, files=tuple(range(100)), first=1, whole=False)
HIDDEN, LABELS = replace(ONE, files=()), 9999


def reading(first: int, *, whole: bool = False) -> RankInput:
    """A rank that read 100 files from this number on; `whole` where its sampler goes through all of its data set."""
    return replace(ONE, files=tuple(range(first, first + 100)), whole=whole)


def with_labels(first: int) -> RankInput:
    return replace(ONE, files=(LABELS, *range(first, first + 50)), whole=True)


AGREED: dict[str, tuple[list[RankInput], tuple[str, dict[str, float]] | str | None]] = {
    "shares of one data set": ([reading(0), reading(100)], None),
    "a few samples are repeated": ([reading(0), reading(95), reading(190)], None),
    "the same files": ([ONE] * 2, ("same_samples", {"ranks": 2, "again": 100, "files": 200})),
    "eight times the same": ([ONE] * 8, ("same_samples", {"ranks": 8, "again": 700, "files": 800})),
    "a large data set overlaps by chance": (
        [reading(0, whole=True), reading(96, whole=True)], ("same_samples", {"ranks": 2, "again": 4, "files": 200}),
    ),
    "only one goes through all of it": ([reading(0, whole=True), reading(96)], None),
    "a data set of each rank's own": ([reading(0, whole=True), reading(100, whole=True)], None),
    "and all open a file of labels": ([with_labels(0), with_labels(50)], None),
    "the same first batch": ([HIDDEN] * 2, ("same_batches", {"ranks": 2})),
    "another first batch": ([HIDDEN, replace(HIDDEN, first=2)], None),
    "one that could not be hashed": ([replace(HIDDEN, first=None)] * 2, None),
    "another batch size": ([ONE, ONE, replace(ONE, batch_size=16)], "rank 2 has another batch size"),
    "other workers": ([ONE, replace(ONE, workers=3), ONE], "rank 1 has another workers"),
    "another exchange": ([ONE, replace(ONE, exchanges=True)], "rank 1 has another exchanges"),
}  # fmt: skip
"""What each rank has seen of its loader, and the note of rank 0, or the error of all."""


@pytest.mark.parametrize("name", AGREED)
def test_ranks_agree_before_they_are_measured(name: str) -> None:
    """Rank 0 says once that all read the same, by their files, or without them by their first batches; all but one
    rank read them again. Where one has another loader, all end with the same reason."""
    ranks, expected = AGREED[name]

    def on_one(group: FakeGroup) -> Any:
        try:
            return [(note.code, note.facts) for note in agreed(group, ranks[group.rank])]
        except BadValue as error:
            return error.message

    with ThreadPoolExecutor(len(ranks)) as threads:
        first, *others = threads.map(on_one, FakeGroup.of(len(ranks)))
    if isinstance(expected, str):
        assert {first, *others} == {f"the loader of {expected} than that of rank 0"}
    else:
        assert (first, *others) == ([expected] if expected else [], *[[]] * (len(ranks) - 1))


def test_ranks_that_share_nothing_out_are_warned_first() -> None:
    """Of the child of rank 0, as it comes back: a warning before the verdict, the first advice, and no note."""
    given = rank_run(alike(warm=186.0, resident=18000.0), cache="warm", workers=2, ranks=2)
    note = Remark(code="same_samples", facts={"ranks": 2.0, "again": 108.0, "files": 800.0})
    record = OwnMeasured(config=given.config, measurement=replace(given, notes=(note,)), data=DATA)
    back = decode("own-loader", encode("own-loader", record), OwnMeasured, "child")
    found = diagnosis(back, "loaderprobe diagnose a:b --ranks 2")
    assert found.row.config.ranks == 2 and found.row.config.compute.batch_size == given.config.compute.batch_size
    (together,) = [note for note in found.detail.notes if note.code == "ranks_in_step"]
    measured_apart = "no_exchange" in {segment.mode for segment in given.segments}
    assert together.facts["exchange"] == ("" if measured_apart else "compute")
    assert found.row.advice[0].action.code == "own_shares"
    for shown in (str(found), found._repr_html_(), document_markdown(found.document())):
        assert " ".join(shown.split()).count("goes through the whole data set") == 1
    assert str(found).split("\n\n")[1].startswith("Warning: each of the 2 ranks goes through the whole data set")


def test_one_number_of_ranks_is_measured() -> None:
    """As asked for, or all that there are, on all nodes. One rank needs no launcher: the user's code would wait."""
    asked: list[tuple[int, int]] = []

    def ran(order: Order, *_: object, **__: object) -> RunFailure:
        asked.append((order.config.ranks, order.config.nodes))
        return failure(order.config, "stopped", exit_code=2)

    coordinator: Any = SimpleNamespace(nodes=NODES, admit=lambda *_, **__: None, run=ran)
    for ranks in (None, "2", "2x1"):
        with pytest.raises(BadValue, match="stopped"):
            diagnose("tests.examples.ranks:make_loader", ranks=ranks, coordinator=coordinator)
    assert asked == [(4, 2), (2, 1), (2, 2)]
    one: Any = SimpleNamespace(nodes=(Node(host="a", processes=(0, 1), gpus=0),))
    refused: tuple[tuple[Any, str | int, Any, str], ...] = (
        ("a.module:make", "1,2", coordinator, "names several numbers"),
        ("a.module:make", "1,2", None, "names several numbers"),
        ("a.module:make", 8, coordinator, "started 4 processes"),
        ("a.module:make", "2x2", None, "this one only"),
        ("a.module:make", 1, one, "no launcher started"),
        ([], 2, None, "each rank makes its own loader"),
    )
    for loader_, count, started, says in refused:
        with pytest.raises(BadValue, match=says):
            diagnose(loader_, ranks=count, coordinator=started)


@pytest.mark.usefixtures("same_machine")
def test_one_of_several_programs_measures_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take another number of steps, or start all of them; the next step is the command."""
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadValue, match="out of step") as caught:
        diagnose([])
    assert "loaderprobe diagnose" in caught.value.hint
    with pytest.raises(BadValue, match="one of several that a launcher started"):
        loaderprobe.resume(run_of(tmp_path / "run", 2).path)


@pytest.mark.usefixtures("same_machine")
def test_a_resumed_sweep_has_as_many_threads_a_rank_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is measured by the processes of the most ranks of all; where nothing is, none are started."""
    measured = rank_run(alike(baseline=100.0), ranks=4)
    started: list[int] = []

    @contextmanager
    def on_this_machine(ranks: int) -> Iterator[Any]:
        started.append(ranks)
        yield SimpleNamespace(admit=lambda *_: None)

    monkeypatch.setattr(sweep, "on_this_machine", on_this_machine)
    monkeypatch.setattr(sweep, "ForkServer", nullcontext)
    monkeypatch.setattr(sweep, "run_sweep", lambda *_, **__: None)
    for ranks in ((4,), (4, 1)):
        run = run_of(tmp_path / str(len(ranks)), *ranks)
        run.save(replace(measured, config=run.record.spec.configs[0]))
        loaderprobe.resume(run.path)
    assert started == [4]


def asked(**changes: Any) -> SweepSpec:
    usual: dict[str, Any] = {"workers": "1", "serial": False, "compute": "emulated:100", "batch_size": 64}
    return spec_of(**{**usual, **changes})


def run_of(path: Path, *ranks: int) -> RunDirectory:
    """A run that has not begun, with a configuration of each number of ranks."""
    files = example_files(4096)
    configs = (example_config(data=files.fingerprint, ranks=each) for each in ranks)
    return empty_run(path, *configs, files=files)


def test_each_rank_reads_files_of_its_own() -> None:
    """So more ranks need more; ranks take what is loaded ahead in step before they are timed."""
    assert images_needed(asked()) == (14 + 6) * 64
    assert images_needed(asked(ranks=4)) == 4 * (14 + 6 + 2) * 64
    assert images_needed(asked(ranks=4, workers="16", batch_size=512)) == 4 * 20_000


@pytest.mark.parametrize(("cache", "least"), [("cold", 2 * (14 + 12 + 4) * 16), ("warm", 2 * 16)])
def test_a_set_too_small_for_its_ranks_is_refused_with_the_number_needed(cache: str, least: int) -> None:
    """For a cold segment of each rank, or at least a batch."""
    for count in (least, least - 1):
        files = example_files(count)
        configs = [example_config(ranks=2, workers=2, batch_size=16, cache=cache, data=files.fingerprint)]
        if count == least:
            check_images([files], configs)
            continue
        with pytest.raises(BadValue, match=rf"has {count} images, and .* needs {least}: each rank reads {least // 2}"):
            check_images([files], configs)
    alone = example_files(3)
    config = example_config(data=alone.fingerprint, workers=2, batch_size=16, cache=cache)
    check_images([alone], [config])
    # Of one rank it is said before it is measured: files come again, from memory.
    found = [note.facts for note in too_few([alone], [config])]
    assert found == ([{"data": alone.label, "samples": 3, "needed": 240, "images": 240}] if cache == "cold" else [])
    enough = replace(config, data=example_files(240).fingerprint)
    assert list(too_few([example_files(240)], [enough])) == []


@pytest.mark.parametrize(("cores", "most"), [(1.0, 8), (2.0, 16), (0.5, 8), (8.0, 64)])
def test_far_more_ranks_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch, cores: float, most: int) -> None:
    """And before any process is started; eight may share a core. Those of a launcher are its own matter."""
    for module in (sweep_spec, launch):
        monkeypatch.setattr(module, "cores_available", lambda: cores)
    check_spec(asked(ranks=most))
    with pytest.raises(BadValue, match=f"{most + 1} ranks on this machine would share {cores:g} core") as raised:
        check_spec(asked(ranks=most + 1))
    assert f"ask for {most} at most" in raised.value.hint
    nodes = [Node(host=str(n), processes=(n,), gpus=0) for n in range(most + 1)]
    check_spec(asked(ranks=f"{most + 1}x1", nodes=nodes), ())
    monkeypatch.setattr(launch, "ForkServer", lambda _: pytest.fail("a process was started"))
    with pytest.raises(BadValue, match=f"{most + 1} ranks"), launch.on_this_machine(most + 1):
        pass


def test_nodes_meet_by_the_way_from_one_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of the store, which finds it at its own loopback, looks for the way to another node."""
    head = Node(host="a", processes=(0,), gpus=0)
    other = Node(host="b", processes=(1,), gpus=0, address="10.0.0.2")
    monkeypatch.setattr(launch, "address_towards", lambda host, port: {"10.0.0.2": "10.0.0.1"}[host])
    monkeypatch.setattr(launch, "interface_of", {"10.0.0.1": "eth1", "10.0.0.2": "eth2", "": ""}.__getitem__)
    assert launch._interface(head, (head, other), 7) == "eth1"
    assert launch._interface(other, (head, other), 7) == "eth2"
    assert launch._interface(head, (head,), 7) == ""


def measures(rank: int, port: int, scratch: Path) -> None:
    torch.set_num_threads(1)
    changed: Any = {"pace_for": lambda **_: Pace(min_s=0.03, min_batches=4, max_s=0.1)}
    vars(session).update(changed, ALONE_S=0.1)
    vars(loader).update(DISCOVERY_AT_LEAST_S=0.05)
    placement = RankPlacement(
        rank=rank, size=2, node=0, local_rank=rank, local_size=2, address="127.0.0.1", port=port, prefix="p",
        timeout_s=20.0,
    )  # fmt: skip
    order = Order(
        config=example_config(ranks=2), files=example_files(1), budget_s=0.5, begin_ns=0,
        own=named("tests.examples.ranks:make_loader"), placement=placement,
    )  # fmt: skip
    found = measure_own(order, lambda *_: None)
    (scratch / f"rank-{rank}.json").write_bytes(encode("own-loader", found))


def test_two_ranks_are_measured_in_step_by_the_users_function(tmp_path: Path) -> None:
    """By the user's own sampler and model: rank 0 returns what both measured, the other its own. What only ranks lose
    is measured: alone, without the input of one, and the exchange of gradients. It becomes a diagnosis of both."""
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        "127.0.0.1", 0, None, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20)
    )
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=measures, args=(rank, store.port, tmp_path)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60.0)
        assert rank.exitcode == 0
    files = [tmp_path / f"rank-{rank}.json" for rank in range(2)]
    found = [decode("own-loader", file.read_bytes(), OwnMeasured, file.name) for file in files]
    together, other = (each.measurement for each in found)
    assert (together.ranks, other.ranks) == (2, 1) and [each.rank for each in together.by_rank] == [0, 1]
    assert {each.batch_size for each in together.segments} == {16}
    assert {each.batch_size for each in other.segments} == {8}
    kinds = {(each.mode, each.activity, each.without is None) for each in together.segments}
    assert {("baseline", "alone", True), ("baseline", "loader_only", False)} <= kinds
    assert {("no_exchange", "training", True), ("exchange", "training", True)} <= kinds
    both = diagnosis(found[0], "loaderprobe diagnose")
    assert (both.row.config.ranks, both.row.config.compute.batch_size) == (2, 8)
    assert both.verdict.speedups["gradients"] is not None
    assert {"same_samples", "same_batches"}.isdisjoint(each.code for each in both.detail.notes)
    assert "| rank 1 (" in both.markdown().partition("## Ranks")[2], "each rank has a row"


WAYS = {
    "refuses": "begun before",
    "batch_sizes": "the loader of rank 1 has another batch size than that of rank 0",
    "short": "ended before a round was measured",
    # The last, since that rank measures nothing, and so does not count along.
    "no_loader": "rank 1 took no batches from a torch DataLoader",
}
"""To the reason that rank 0 gives."""
Told = dict[str, tuple[str, int]]
"""By way, the reason of a rank and after how many steps it ended by itself."""


def trains(rank: int, scratch: Path) -> None:
    import loaderprobe

    torch.set_num_threads(1)
    store = dist.FileStore(str(scratch / "store"), 2)  # type: ignore[attr-defined]  # torch does not list it
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    told: Told = {}
    for way in WAYS:
        with loaderprobe.attached(budget_s=0.5) as found:
            steps = train(way)
        told[way] = found.reason, steps
    (scratch / f"rank-{rank}.json").write_bytes(msgspec.json.encode(told))
    dist.destroy_process_group()


def test_where_one_rank_cannot_be_measured_all_go_on(tmp_path: Path, python: str) -> None:
    """To their own ends, in step; rank 0 has the reason."""
    in_two_ranks(python, trains, tmp_path)
    first, second = (msgspec.json.decode((tmp_path / f"rank-{rank}.json").read_bytes(), type=Told) for rank in range(2))
    for way, why in WAYS.items():
        assert why in first[way][0] and first[way][1] == second[way][1] == STEPS, way
        assert way == "no_loader" or "trains with rank 0" in second[way][0], way


@pytest.fixture(scope="module")
def alone() -> Measurement:
    """What one process measures with 2 workers that wait for storage; its host's disk moves more than it reads."""
    made = measured(Truth(model="latency", cpu_s=0.001, latency_s=0.004), 2)
    return replace(made, segments=tuple(replace(each, disk_bytes=10**9) for each in made.segments))


def rank(number: int, measurement: Measurement, **where: Any) -> RankMeasurement:
    """Of a host of four cores, unless said otherwise."""
    usual: dict[str, Any] = {"host": "one", "cores": 4.0, "affinity": (0, 1, 2, 3)}
    return RankMeasurement(rank=number, measurement=measurement, **(usual | where))


def renumbered(measurement: Measurement, by: int) -> Measurement:
    """The same, with batches that are numbered otherwise, as after other flushes."""
    records = measurement.worker_batches
    segments = tuple(replace(each, first_batch=each.first_batch + by) for each in measurement.segments)
    records = replace(records, batch=tuple(number + by for number in records.batch))
    return replace(measurement, segments=segments, worker_batches=records)


def test_two_alike_have_the_same_verdict_at_twice_the_rate(alone: Measurement) -> None:
    """With the same shares and speed-ups; and cores that both use count once. A single rank is itself."""
    assert as_one([rank(0, alone)]) is alone
    before, both = verdict(alone), verdict(as_one([rank(0, alone), rank(1, renumbered(alone, 5))]))
    assert both.bound.cause == before.bound.cause
    assert both.images_per_s.value == pytest.approx(2 * before.images_per_s.value)
    assert both.speedups["storage"] and before.speedups["storage"]
    assert both.speedups["storage"].value == pytest.approx(before.speedups["storage"].value)
    assert both.cold_fraction == pytest.approx(before.cold_fraction)
    limit = (before.rates_images_per_s.cpu_limit or 0) * 4.0 / alone.cores_available
    assert both.rates_images_per_s.cpu_limit == pytest.approx(limit)


ALL, LOWER, UPPER = (0, 1, 2, 3), (0, 1), (2, 3)
FIRST, SECOND, POD = {"first": 1.5}, {"second": 1.5}, {"pod": 2.0}
SHARED: dict[str, tuple[list[tuple[int, ...]], float, list[dict[str, float]], float]] = {
    "shared": ([ALL, ALL], 4.0, [{}, {}], 4),
    "apart": ([LOWER, UPPER], 2.0, [{}, {}], 4),
    "some shared": ([(0, 1, 2), (1, 2, 3)], 3.0, [{}, {}], 4),
    "less than they may run on": ([LOWER, (1, 2)], 0.5, [{}, {}], 1),
    "a quota of all": ([LOWER, UPPER], 2.0, [FIRST, FIRST], 1.5),
    "each its own": ([LOWER, UPPER], 2.0, [FIRST, SECOND], 3),
    "each its own of the same cores": ([ALL, ALL], 4.0, [FIRST, SECOND], 3),
    "and one of all": ([ALL, ALL], 4.0, [FIRST | POD, SECOND | POD], 2),
}
"""The cores that each rank may run on, how many it has, its quotas, and how many all have."""


@pytest.mark.parametrize("name", SHARED)
def test_cores_and_quotas_that_ranks_share_count_once(alone: Measurement, name: str) -> None:
    """Where each has its own, they add up."""
    sets, each, quotas, expected = SHARED[name]
    ranks = [
        rank(number, alone, affinity=own, cores=each, core_limits={str(own): each, **quota} if quota else {})
        for number, (own, quota) in enumerate(zip(sets, quotas, strict=True))
    ]
    assert cores(ranks) == expected


@pytest.mark.parametrize(("host", "node"), [("large", 0), ("one", 1)], ids=["two hosts", "two nodes of one name"])
def test_cores_are_those_of_the_host_of_the_slowest_rank(alone: Measurement, host: str, node: int) -> None:
    """Ranks there share them; another host may have more."""
    fast, slow = in_a_sweep(alone, alone_steps=9), in_a_sweep(alone, alone_steps=4)
    elsewhere = rank(0, fast, host=host, cores=32.0, affinity=tuple(range(32)), node=node)
    assert as_one([elsewhere, rank(1, slow), rank(2, slow)]).cores_available == 2


@pytest.mark.parametrize("asked", [{}, {"ranks": 2, "nodes": 2}], ids=["a script", "a sweep"])
def test_what_others_take_of_a_host_is_compared_with_the_cores_there(alone: Measurement, asked: dict[str, Any]) -> None:
    """On each of two hosts others fill the 48 of 64 cores that may not be used."""
    others = Others(span_ns=10**9, cores=64, cpu_ns=46 * 10**9, own_cpu_ns=16 * 10**9, steal_ns=0)
    segments = tuple(replace(each, others=others) for each in alone.segments)
    given = replace(alone, config=replace(alone.config, **asked), segments=segments)
    where: dict[str, Any] = {"cores": 16.0, "affinity": tuple(range(64))}
    both = as_one([rank(0, given, **where), rank(1, given, **where, host="two")])
    assert not is_disturbed(both, both.segments[0])


@pytest.mark.parametrize(("host", "nodes"), [("one", 1), ("two", 2)])
def test_a_script_may_gain_from_input_as_much_as_a_sweep(alone: Measurement, host: str, nodes: int) -> None:
    """All workers of its host may hold its steps up, and none of another."""
    stepping = with_training(alone, lambda each: with_steps(each, outside=0.1))

    def most(**asked: Any) -> float:
        given = replace(stepping, config=replace(alone.config, **asked))
        return input_at_most(as_one([rank(0, given), rank(1, given, host=host)]))

    assert math.isfinite(most()) and most() == most(ranks=2, nodes=nodes)


def test_ranks_did_the_same_in_step(alone: Measurement) -> None:
    """Half of the bytes come from memory where the files of one were warm. A mode that one lacks is not measured on
    the others, and unlike numbers of steps are an error."""
    records = alone.worker_batches
    warm = replace(alone, worker_batches=replace(records, read_bytes=(0,) * len(records.batch)))
    assert verdict(as_one([rank(0, alone), rank(1, warm)])).files_were == "partly warm"
    assert as_one([rank(0, alone), rank(1, replace(alone, modes=("baseline",)))]).modes == ("baseline",)
    with pytest.raises(LoaderprobeError, match="the same steps"):
        as_one([rank(0, alone), rank(1, replace(alone, segments=alone.segments[:-1]))])


def in_a_sweep(measurement: Measurement, *, alone_steps: int, absent: bool = False) -> Measurement:
    """The same as one of two ranks, with a segment alone and one without the input of rank 1."""
    first = measurement.segments[0]
    columns = ("begin_ns", "ready_ns", "copied_ns", "end_ns", "finished_ns", "device_begin_ns")
    shorter: dict[str, Any] = {name: getattr(first, name)[:alone_steps] for name in columns}
    bytes_: dict[str, Any] = {"first_batch": -1, "delivered_bytes": None} if absent else {}
    without = replace(first, without=1, **bytes_)
    segments = (*measurement.segments, replace(first, activity="alone", **shorter), without)
    return replace(measurement, config=replace(measurement.config, ranks=2), segments=segments)


def test_ranks_of_a_sweep_keep_what_was_asked_and_what_each_saw(alone: Measurement) -> None:
    """Steps alone may differ: the slowest alone gives the times. One without input has no bytes to add."""
    fast, slow = in_a_sweep(alone, alone_steps=9), in_a_sweep(alone, alone_steps=4, absent=True)
    found = as_one([rank(0, fast), rank(1, slow)])
    assert found.config == fast.config and found.ranks == 2
    assert [each.steps[-2] for each in found.by_rank] == [9, 4]
    assert found.segments[-2].steps == 4 and found.segments[-2].batch_size == 2 * alone.config.compute.batch_size
    assert found.segments[-1].delivered_bytes == fast.segments[-1].delivered_bytes
    assert found.by_rank[0].read_bytes[0] == fast.segments[0].delivered_bytes


def test_nodes_of_one_name_are_kept_apart() -> None:
    """As containers may have. One whose ranks read nothing is no slow one."""
    assert slow_host([("a", 110.0)] * 2 + [("b", 0.0)] * 2) is None
    assert host_names([(0, "a"), (0, "a"), (1, "b")]) == ["a", "a", "b"]
    assert host_names([(0, "a"), (1, "a"), (2, "b")]) == ["a (node 0)", "a (node 1)", "b"]

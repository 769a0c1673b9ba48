"""Several ranks: what is asked for and refused, what two measure in step, and what becomes of it."""

from __future__ import annotations

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
from loaderprobe.api import sweep, sweep_spec
from loaderprobe.api.diagnose import diagnose, diagnosis
from loaderprobe.api.sweep_spec import check_images, check_spec, images_needed, spec_of
from loaderprobe.errors import BadValue
from loaderprobe.measure import session
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.ranks import launch
from loaderprobe.measure.runner import Order
from loaderprobe.measure.user import loader
from loaderprobe.measure.user.function import agreed, measure_own, named
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.diagnosis import DataFound, OwnMeasured
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.rank_processes import Node, RankInput, RankPlacement
from loaderprobe.records.remark import Remark
from loaderprobe.render.pages import document_markdown
from loaderprobe.store.codec import decode, encode
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import example_config, example_files
from tests.analyze.runs import alike, rank_run
from tests.examples.ranks import STEPS, train
from tests.fakes import FakeGroup
from tests.stored import empty_run, failure
from tests.warm import in_two_ranks

NODES = (Node(host="a", processes=(0, 1), gpus=2), Node(host="b", processes=(2, 3), gpus=1))
DRAWN = RankInput(batch_size=8, workers=2, prefetch_factor=2, files=(1, 2, 3), first=None, whole=True)
DATA = DataFound(hidden=None, size_bytes=1e9, root="/data/photos", samples=10_000)


def on_all(ranks: list[RankInput]) -> list[Any]:
    """What `agreed` returns or raises on each."""

    def on_one(group: FakeGroup) -> Any:
        try:
            return agreed(group, ranks[group.rank])
        except BadValue as error:
            return error.message

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(on_one, FakeGroup.of(len(ranks))))


def test_ranks_agree_before_they_are_measured() -> None:
    """Rank 0 says once that all read the same; where one has another loader, all end with the same reason."""
    first, second = on_all([DRAWN, DRAWN])
    assert [each.code for each in first] == ["same_samples"] and second == ()
    assert on_all([DRAWN, replace(DRAWN, files=(4, 5))]) == [(), ()]
    said = on_all([DRAWN, DRAWN, replace(DRAWN, batch_size=16)])
    assert said == ["the loader of rank 2 has another batch size than that of rank 0"] * 3


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
    """As asked for; unless asked, all that there are, on all nodes. One rank needs no launcher, whose variables would
    have the user's code wait for the others."""
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
    for given, count, started, says in refused:
        with pytest.raises(BadValue, match=says):
            diagnose(given, ranks=count, coordinator=started)


@pytest.mark.usefixtures("same_machine")
def test_one_of_several_programs_measures_no_live_loader_and_starts_no_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# What a sweep of several ranks is asked for.


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
    check_images([alone], [example_config(data=alone.fingerprint)])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"epochs": 2}, "whole epochs are trained by one rank"),
        ({"gpu_decode": True, "compute": "cuda"}, "one rank alone decodes"),
        ({"compute": "tests.planted.loaders:Other"}, "does not train in step"),
        ({"ranks": "2x2"}, "on this one only"),
    ],
)
def test_what_one_rank_alone_measures_is_refused(changes: dict[str, Any], why: str) -> None:
    """With several ranks; with one, each is taken."""
    with pytest.raises(BadValue, match=why):
        asked(**{"ranks": "1,2", **changes})
    if "ranks" not in changes:
        assert [(config.ranks, config.nodes) for config in asked(**changes).configs] == [(1, 1)]


@pytest.mark.parametrize(("cores", "most"), [(1.0, 8), (2.0, 16), (0.5, 8), (8.0, 64)])
def test_far_more_ranks_than_cores_are_refused_before_any_data_is_generated(
    monkeypatch: pytest.MonkeyPatch, cores: float, most: int
) -> None:
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
    monkeypatch.setattr(
        launch, "interface_of", lambda address: {"10.0.0.1": "eth1", "10.0.0.2": "eth2", "": ""}[address]
    )
    assert launch._interface(head, (head, other), 7) == "eth1"
    assert launch._interface(other, (head, other), 7) == "eth2"
    assert launch._interface(head, (head,), 7) == ""


# Two gloo ranks that each make a loader by the user's function.

SHORT = Pace(min_s=0.03, min_batches=4, max_s=0.1)


def measures(rank: int, port: int, scratch: Path) -> None:
    torch.set_num_threads(1)
    changed: Any = {"pace_for": lambda **_: SHORT}
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
    assert both.verdict.speedups.gradients is not None
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


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, python: str) -> list[Told]:
    scratch = tmp_path_factory.mktemp("ranks")
    in_two_ranks(python, trains, scratch)
    return [msgspec.json.decode((scratch / f"rank-{rank}.json").read_bytes(), type=Told) for rank in range(2)]


@pytest.mark.parametrize("way", WAYS)
def test_where_one_rank_cannot_be_measured_all_go_on(way: str, told: list[Told]) -> None:
    """To their own ends, in step; rank 0 has the reason."""
    first, second = (each[way] for each in told)
    assert WAYS[way] in first[0]
    assert first[1] == second[1] == STEPS
    assert way == "no_loader" or "trains with rank 0" in second[0]

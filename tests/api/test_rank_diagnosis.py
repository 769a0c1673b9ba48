"""`diagnose` by ranks: what all measured as one diagnosis, and what keeps ranks from being measured."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from loaderprobe.api.diagnose import OwnAsked, concluded, diagnose, diagnose_ranks, one_layout, ranks_here
from loaderprobe.api.policy import JUDGING
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.own.function import agreed, named
from loaderprobe.measure.ranks.launch import error_of
from loaderprobe.records.diagnosis import DataFound, Drawn, OwnMeasured
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.ranks import Node
from loaderprobe.records.remark import Remark
from loaderprobe.render.writers import document_markdown
from loaderprobe.store.codec import decode, encode
from loaderprobe.testing import FakeGroup, example_config
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import alike

DRAWN = Drawn(batch_size=8, workers=2, prefetch_factor=2, files=(1, 2, 3), first=None, whole=True)
DATA = DataFound(hidden=None, size_bytes=1e9, root="/data/photos", samples=10_000)


def on_all(ranks: list[Drawn]) -> list[Any]:
    """What `agreed` returns or raises on each."""

    def on_one(group: FakeGroup) -> Any:
        try:
            return agreed(group, ranks[group.rank], JUDGING)
        except BadValue as error:
            return error.message

    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(on_one, FakeGroup.of(len(ranks))))


def test_rank_0_says_that_all_read_the_same() -> None:
    """Once, for all of them."""
    first, second = on_all([DRAWN, DRAWN])
    assert [each.code for each in first] == ["same_samples"] and second == ()
    assert on_all([DRAWN, replace(DRAWN, files=(4, 5))]) == [(), ()]


def test_no_rank_is_measured_where_one_has_another_loader() -> None:
    """All end with the same reason, so that none waits for another."""
    said = on_all([DRAWN, DRAWN, replace(DRAWN, batch_size=16)])
    assert said == ["the loader of rank 2 has another batch size than that of rank 0"] * 3


def test_all_ranks_become_one_diagnosis() -> None:
    """Of the child of rank 0, as it comes back: rates of all, the settings of one, and what the exchange counts as."""
    given = rank_run(alike(warm=186.0, resident=18000.0), cache="warm", workers=2, ranks=2)
    record = OwnMeasured(config=given.config, measurement=given, data=DATA, with_step=True)
    back = decode("own-loader", encode("own-loader", record), OwnMeasured, "child")
    found = concluded(back, "loaderprobe diagnose a:b --ranks 2")
    assert (found.ranks, found.batch_size) == (2, given.config.compute.batch_size)
    assert found.dataset_samples == 10_000
    assert found.notes[0].code == "ranks_in_step"
    measured_apart = "no_exchange" in {each.mode for each in given.segments}
    assert found.notes[0].facts["exchange"] == ("" if measured_apart else "compute")


def test_ranks_that_share_nothing_out_are_warned_first() -> None:
    """It costs more than any rate: before the verdict's sentence, in plain words, and as the first advice; no note."""
    given = rank_run(alike(warm=186.0, resident=18000.0), cache="warm", workers=2, ranks=2)
    note = Remark(code="same_samples", facts={"ranks": 2.0, "again": 108.0, "files": 800.0})
    record = OwnMeasured(config=given.config, measurement=replace(given, notes=(note,)), data=DATA, with_step=True)
    found = concluded(record, "loaderprobe diagnose a:b --ranks 2")
    assert found.advice[0].action.code == "own_shares"
    for shown in (str(found), found._repr_html_(), document_markdown(found.document())):
        flat = " ".join(shown.split())
        assert flat.count("goes through the whole data set") == 1
        assert flat.index("108 of 800 files") < flat.index("add DistributedSampler(dataset)")
    assert str(found).split("\n\n")[1].startswith("Warning: each of the 2 ranks goes through the whole data set")


def _fields(data: DataFound) -> dict[str, Any]:
    return {name: getattr(data, name) for name in ("hidden", "size_bytes", "root", "samples")}


@pytest.mark.parametrize(
    ("change", "kind", "said", "hint"),
    [
        ({"exit_code": 2}, BadValue, "rank 1 (node7): no images (calling a:b)", "look there"),
        ({"exit_code": None, "hint": ""}, LoaderprobeError, "rank 1 (node7): no images", "its last line: why"),
        ({"rank": None, "exit_code": 1}, LoaderprobeError, "no images (calling a:b)", "look there"),
        ({"reason": "timeout: not finished after 600 s"}, LoaderprobeError, "not finished", "a hang"),
    ],
)
def test_a_rank_that_fails_is_named(change: dict[str, Any], kind: type[Exception], said: str, hint: str) -> None:
    """With its host, what it was doing, and its own exit code."""
    failure = RunFailure(
        config=example_config(), stage="calling a:b", reason="no images", hint="look there", exit_code=1, signal=None,
        log=("first", "why", ""), started_utc="", wall_s=1.0, rank=1, host="node7",
    )  # fmt: skip
    error = error_of(replace(failure, **change))
    assert type(error) is kind and said in error.message and hint in error.hint


def test_one_number_of_ranks_is_measured() -> None:
    """As asked for; unless asked, all that there are, on all nodes."""
    lead: Any = SimpleNamespace(nodes=(Node(host="a", seats=(0, 1), gpus=0), Node(host="b", seats=(2, 3), gpus=0)))
    assert one_layout(None, lead) == (4, 2)
    assert one_layout("2", lead) == (2, 1)
    assert one_layout("2x1", lead) == (2, 2)
    assert ranks_here("2") == 2
    for asks in (lambda: one_layout("1,2", lead), lambda: ranks_here("1,2")):
        with pytest.raises(BadValue, match="names several numbers"):
            asks()
    with pytest.raises(BadValue, match="started 4 processes"):
        one_layout("8", lead)
    with pytest.raises(BadValue, match="this one only"):
        ranks_here("2x2")


def test_one_rank_needs_no_launcher() -> None:
    """Its variables would have the user's code wait for the others."""
    lead: Any = SimpleNamespace(nodes=(Node(host="a", seats=(0, 1), gpus=0),))
    with pytest.raises(BadValue, match="no launcher started"):
        diagnose_ranks(lead, OwnAsked(own=named("a.module:make")), "1", lambda *_: None)


def test_a_live_loader_is_refused_in_one_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would take another number of steps; the next step is the command."""
    given = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadValue, match="out of step") as caught:
        diagnose([])
    assert "loaderprobe diagnose" in caught.value.hint

"""Two gloo ranks that each make a loader by the user's function, measured in step."""

from __future__ import annotations

import multiprocessing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from loaderprobe.api.diagnose import concluded
from loaderprobe.api.policy import JUDGING
from loaderprobe.measure import session
from loaderprobe.measure.own import loader
from loaderprobe.measure.own.function import measure_own, named
from loaderprobe.measure.runner import Order
from loaderprobe.measure.segments import Pace
from loaderprobe.records.diagnosis import OwnMeasured
from loaderprobe.records.ranks import Place
from loaderprobe.store.codec import decode, encode
from loaderprobe.testing import example_config, example_files

LONGEST_S = 60.0
SHORT = Pace(min_s=0.03, min_batches=4, max_s=0.1)


def measures(rank: int, port: int, scratch: Path) -> None:
    """One rank, for which the test has started the process."""
    torch.set_num_threads(1)
    changed: Any = {"pace_for": lambda **_: SHORT}
    vars(session).update(changed, ALONE_S=0.1)
    vars(loader).update(LEARN_AT_LEAST_S=0.05)
    place = Place(
        rank=rank, size=2, node=0, local_rank=rank, local_size=2, address="127.0.0.1", port=port, prefix="p",
        timeout_s=20.0,
    )  # fmt: skip
    order = Order(
        config=example_config(ranks=2), files=example_files(1), budget_s=0.5, begin_ns=0,
        own=named("tests.examples.own_ranks:make_loader"), place=place,
    )  # fmt: skip
    found = measure_own(order, lambda *_: None, JUDGING)
    (scratch / f"rank-{rank}.json").write_bytes(encode("own-loader", found))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[OwnMeasured]:
    """Of both ranks."""
    scratch = tmp_path_factory.mktemp("own")
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        "127.0.0.1", 0, None, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20)
    )
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=measures, args=(rank, store.port, scratch)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LONGEST_S)
        assert rank.exitcode == 0
    files = [scratch / f"rank-{rank}.json" for rank in range(2)]
    return [decode("own-loader", file.read_bytes(), OwnMeasured, file.name) for file in files]


def test_rank_0_returns_what_both_measured(found: list[OwnMeasured]) -> None:
    """In step, by the user's own sampler and model; the other returns its own."""
    together, other = (each.measurement for each in found)
    assert (together.ranks, other.ranks) == (2, 1)
    assert [each.rank for each in together.by_rank] == [0, 1]
    assert {each.batch_size for each in together.segments} == {16}
    assert {each.batch_size for each in other.segments} == {8}


def test_what_only_ranks_lose_is_measured(found: list[OwnMeasured]) -> None:
    """Alone, without the input of one, and the exchange of gradients of the user's DistributedDataParallel."""
    kinds = {(each.mode, each.activity, each.without is None) for each in found[0].measurement.segments}
    assert {("baseline", "alone", True), ("baseline", "loader_only", False)} <= kinds
    assert {("no_exchange", "training", True), ("exchange", "training", True)} <= kinds


def test_it_becomes_a_diagnosis(found: list[OwnMeasured]) -> None:
    """Of both ranks, each with its own samples."""
    diagnosis = concluded(found[0], "loaderprobe diagnose")
    assert (diagnosis.ranks, diagnosis.batch_size, diagnosis.with_step) == (2, 8, True)
    assert diagnosis.speedups.gradients is not None
    assert {"same_samples", "same_batches"}.isdisjoint(each.code for each in diagnosis.notes)
    assert "2 ranks, each serial, 8 a batch" in diagnosis.text()
    assert "| 1 (" in diagnosis.markdown().partition("## Ranks")[2], "each rank has a row"

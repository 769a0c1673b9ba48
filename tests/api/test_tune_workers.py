"""`tune_workers` on real loaders: the answer, what is left as it was, and clear errors."""

from __future__ import annotations

import gc
import json
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import loaderprobe
from loaderprobe.api.load import load_any
from loaderprobe.errors import BadValue, DeadWorker, LoaderprobeError, NoSpace
from loaderprobe.measure.own.loader import PATIENCE_S
from loaderprobe.records.tune_workers import WorkersSetting
from tests.api import samples
from tests.api.samples import Numbers, RawImages, Shared

BUDGET_S = 4.0
SERIAL = WorkersSetting(workers=0, prefetch_factor=0)


def _step(batch: Any) -> None:
    batch[0].float().sum()


def _flat(found: loaderprobe.WorkersTuning) -> str:
    return " ".join(found.text().split())


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    """Found once, shown by several tests."""
    return {}


@pytest.fixture
def found(kept: dict[str, Any], paths: list[str]) -> loaderprobe.WorkersTuning:
    """A small loader of two options of its own."""
    if not kept:
        loader = DataLoader(RawImages(paths), batch_size=4, num_workers=1, shuffle=True, drop_last=True)
        kept["found"] = loaderprobe.tune_workers(loader, _step, budget_s=BUDGET_S, most=2)
    tuning: loaderprobe.WorkersTuning = kept["found"]
    return tuning


def test_a_small_loader_gets_its_setting(found: loaderprobe.WorkersTuning) -> None:
    """Its own setting is measured, each setting has a row, and the line keeps the other options."""
    assert found.own == WorkersSetting(workers=1, prefetch_factor=2)
    assert {row.setting.workers for row in found.rows} == {0, 1, 2}
    assert [row.setting for row in found.rows if row.state == "chosen"] == [found.chosen]
    assert found.chosen == found.own or found.speedup is not None
    assert found.line.startswith("DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True, num_workers=")
    assert len(found.visits) <= found.grid_visits / 2
    assert (found.sample, found.batch_size, found.data) == ("image", 4, "RawImages")


def test_it_is_shown_and_kept(found: loaderprobe.WorkersTuning, tmp_path: Path) -> None:
    """The answer first; read again it is the same."""
    out = tmp_path / "out"
    page = found.save(out)
    again = load_any(out)
    assert isinstance(again, loaderprobe.WorkersTuning) and again.json() == found.json()
    assert again.text() == found.text() and "<svg" in page.read_text()
    plain = json.loads(found.json())
    assert (plain["schema"], plain["line"]) == ("loaderprobe/tune-workers", found.line)
    assert all(len(line) <= 80 for line in found.text().splitlines())
    assert list(found.to_frame()["workers"]) == [row.setting.workers for row in found.rows]


def test_the_loader_is_left_as_it_was(paths: list[str]) -> None:
    """Options, samplers, generators, data set."""
    generator = torch.Generator().manual_seed(3)
    data = samples.Dreaming()
    loader = DataLoader(data, batch_size=4, num_workers=1, prefetch_factor=3, shuffle=True, generator=generator)
    before = dict(vars(loader)), dict(vars(data)), generator.get_state(), random.getstate(), torch.get_rng_state()
    drawn = data.python_state.getstate()
    loaderprobe.tune_workers(loader, budget_s=1.0, most=1)
    assert before[:2] == (dict(vars(loader)), dict(vars(data))) and data.python_state.getstate() == drawn
    assert torch.equal(generator.get_state(), before[2]) and torch.equal(torch.get_rng_state(), before[4])
    assert random.getstate() == before[3] and loader.dataset is data


def test_an_iterable_must_share_its_samples(paths: list[str]) -> None:
    """That is said; where it has data for one worker only, no more are measured."""
    found = loaderprobe.tune_workers(DataLoader(Shared(paths), batch_size=4, num_workers=1), budget_s=1.0, most=2)
    assert found.iterable and "get_worker_info" in _flat(found)
    alone = DataLoader(Shared(paths, shares=False), batch_size=4, num_workers=2)
    found = loaderprobe.tune_workers(alone, budget_s=1.5, most=2)
    assert found.visits[0].fed_workers == 1
    assert "measured with 1 worker" in _flat(found)


class Locked(Numbers):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_a_data_set_that_cannot_be_copied_has_no_serial_loader() -> None:
    """It would work on the data set itself; where the loader is serial, it does so anyway."""
    found = loaderprobe.tune_workers(DataLoader(Locked(), batch_size=4, num_workers=1), budget_s=2.0, most=1)
    assert [row.setting.workers for row in found.rows] == [1]
    found = loaderprobe.tune_workers(DataLoader(Locked(), batch_size=4), budget_s=2.0, most=1)
    assert found.visits[0].setting == SERIAL


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch raises from a signal handler
def test_workers_that_die_leave_the_serial_loader() -> None:
    """Each number that failed is shown with its reason."""
    found = loaderprobe.tune_workers(DataLoader(samples.Deadly(), batch_size=4, num_workers=1), budget_s=6.0, most=1)
    assert found.chosen == SERIAL and found.line.endswith("num_workers=0)")
    (failed,) = [row for row in found.rows if row.state == "failed"]
    assert failed.setting.workers == 1 and "was killed by SIGKILL" in failed.failure
    assert "failed: a loader worker" in _flat(found)
    gc.collect()


def _failing(at: int, error: LoaderprobeError) -> Callable[..., Any]:
    from loaderprobe.measure.own.loader import measure_loader

    def measure(given: Any, *others: Any) -> Any:
        if given.loader.num_workers >= at:
            raise error
        return measure_loader(given, *others)

    return measure


OF_TORCH = LoaderprobeError("the loader's collate_fn raised RuntimeError: unable to allocate shared memory(shm)")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoSpace("a loader worker (pid 1) ran out of shared memory"), "a loader worker (pid 1) ran out"),
        (DeadWorker("a worker ended"), "a worker ended"),
        (OF_TORCH, "shared memory is too small for its batches"),
    ],
)
def test_too_little_shared_memory_ends_only_its_setting(
    error: LoaderprobeError, said: str, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is that of the loader itself; where nothing can be measured, it is the error."""
    monkeypatch.setattr("loaderprobe.api.tune_workers.measure_loader", _failing(2, error))
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=2)
    found = loaderprobe.tune_workers(loader, budget_s=2.0, most=2)
    assert found.chosen.workers < 2 and found.speedup is None
    (failed,) = [row.failure for row in found.rows if row.state == "failed"]
    assert failed.startswith(said)
    monkeypatch.setattr("loaderprobe.api.tune_workers.measure_loader", _failing(0, error))
    with pytest.raises(LoaderprobeError, match=said.partition(" (")[0]):
        loaderprobe.tune_workers(loader, budget_s=2.0, most=2)


def _interrupted(after: int) -> Callable[..., Any]:
    """Measures so many settings; then Ctrl-C comes."""
    from loaderprobe.measure.own.loader import measure_loader

    left = [None] * after

    def measure(*given: Any) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return measure_loader(*given)

    return measure


def test_ctrl_c_keeps_what_was_measured(paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best so far, and what was not reached; without any, the interrupt goes on."""
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=0)
    monkeypatch.setattr("loaderprobe.api.tune_workers.measure_loader", _interrupted(1))
    found = loaderprobe.tune_workers(loader, _step, budget_s=20.0, most=2)
    assert (found.stop, len(found.visits), found.chosen) == ("interrupted", 1, SERIAL)
    assert "this is the best so far" in _flat(found) and "time was up" not in _flat(found)
    found.save(tmp_path / "out")
    assert loaderprobe.WorkersTuning.load(tmp_path / "out").json() == found.json()
    monkeypatch.setattr("loaderprobe.api.tune_workers.measure_loader", _interrupted(0))
    with pytest.raises(KeyboardInterrupt):
        loaderprobe.tune_workers(loader, _step, budget_s=20.0, most=2)


def test_one_core_is_enough_to_search(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The serial loader and a few workers are considered."""
    monkeypatch.setattr("loaderprobe.api.tune_workers.cores_available", lambda: 1.0)
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=1)
    found = loaderprobe.tune_workers(loader, budget_s=1.0)
    assert found.cores_available == 1 and {0, 1, 2} <= {row.setting.workers for row in found.rows}


def _raising(_: Any) -> None:
    raise ValueError("no gradient")


def test_trouble_of_the_loader_or_the_step_is_the_error(paths: list[str]) -> None:
    """It would meet every setting."""
    loader = DataLoader(RawImages(paths), batch_size=4, num_workers=1)
    with pytest.raises(LoaderprobeError, match="your step raised ValueError: no gradient"):
        loaderprobe.tune_workers(loader, _raising, budget_s=2.0)
    with pytest.raises(LoaderprobeError, match="the data set raised FileNotFoundError: sample 40 is gone"):
        loaderprobe.tune_workers(DataLoader(samples.Broken(), batch_size=4, num_workers=1), budget_s=2.0)


def test_a_slow_visit_may_take_most_of_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine one round may take many times what was planned, and one is better than none."""
    seen: list[float] = []

    def measured(_: Any, __: Any, asked: Any, ___: Any) -> Any:
        deadline = asked.deadline(asked.budget_s)
        seen.append(deadline.patience_s - PATIENCE_S)
        raise BadValue("enough")

    monkeypatch.setattr("loaderprobe.api.tune_workers.measure_loader", measured)
    loader = DataLoader(Plain(), batch_size=4, num_workers=1)
    with pytest.raises(BadValue, match="enough"):
        loaderprobe.tune_workers(loader, budget_s=90.0)
    assert seen == [pytest.approx(0.8 * 90, abs=2)]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"loader": [1, 2]}, "not a torch.utils.data.DataLoader"),
        ({"step": 3}, "the step is a int"),
        ({"budget_s": 0}, "the budget is 0 s"),
        ({"cache": "hot"}, "'hot' is not a state of the cache"),
        ({"most": 0}, "0 workers at most"),
    ],
)
def test_values_that_cannot_be(changes: dict[str, Any], says: str, paths: list[str]) -> None:
    """Refused before anything is measured."""
    given: dict[str, Any] = {"loader": DataLoader(RawImages(paths)), **changes}
    with pytest.raises(BadValue, match=says):
        loaderprobe.tune_workers(given.pop("loader"), **given)


class Plain(Dataset[Any]):
    """No file."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def _collate(batch: list[int]) -> list[int]:
    return batch


def test_the_line_keeps_what_can_be_written(found: loaderprobe.WorkersTuning) -> None:
    """Samplers, functions and contexts by name; without workers, nothing that torch refuses."""
    from loaderprobe.loaders.unwrap import written_options

    sampler = samples.Backwards(8)
    loader = DataLoader(
        Plain(), batch_size=2, sampler=sampler, collate_fn=_collate, num_workers=1, timeout=5,
        multiprocessing_context="spawn", pin_memory=True,
    )  # fmt: skip
    options = written_options(loader)
    assert options == {
        "batch_size": "2", "sampler": "sampler", "collate_fn": "_collate", "pin_memory": "True", "timeout": "5",
        "multiprocessing_context": "'spawn'",
    }  # fmt: skip
    assert written_options(DataLoader(Plain(), batch_sampler=samples.Pairs(8, 2))) == {"batch_sampler": "batch_sampler"}
    serial = replace(found, chosen=SERIAL, options=options)
    assert serial.line == (
        "DataLoader(dataset, batch_size=2, sampler=sampler, collate_fn=_collate, pin_memory=True, num_workers=0)"
    )

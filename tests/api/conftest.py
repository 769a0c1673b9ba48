"""Short segments, and what a loader must look like afterwards."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.api.diagnose import Diagnosis, diagnosis
from loaderprobe.measure.pace import Pace
from loaderprobe.measure.user.loader import LoaderRequest, compute_of, measure_loader
from loaderprobe.records.measurement import Activity, Measurement, Mode
from loaderprobe.samplers.waits import WaitsSampler
from tests.api.samples import photo_files, raw_files

Judge = Callable[..., Diagnosis]
Plan = tuple[tuple[Mode, Activity], ...]


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is a few batches, however fast they come; learning and the ceiling of storage are as short."""
    monkeypatch.setattr("loaderprobe.measure.user.loader.DISCOVERY_AT_LEAST_S", 0.05)
    monkeypatch.setattr("loaderprobe.measure.ceilings.CEILING_S", 0.02)
    monkeypatch.setattr(
        "loaderprobe.measure.session.pace_for",
        lambda *, workers, rounds, budget_s: Pace(min_s=0.0, min_batches=4, max_s=0.01, multiple=max(workers, 1)),
    )


@pytest.fixture
def real_waits() -> None:
    """What workers wait for is really sampled."""


@pytest.fixture(autouse=True)
def _scripted_waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere the process that samples is a script, which starts in no time and sees nothing."""

    def script(folder: Path, rate_hz: float) -> list[str]:
        return ["/bin/sh", "-c", 'cd "$0" && touch rounds; printf .; exec cat >/dev/null', str(folder)]

    if "real_waits" not in request.fixturenames:
        monkeypatch.setattr("loaderprobe.measure.user.loader.WaitsSampler", partial(WaitsSampler, command=script))


@pytest.fixture(autouse=True)
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process that a diagnosis started, and no file that it made, outlives it."""
    # Made once a process, and outside scratch, whose path may be too long: the path of a socket has at most 107
    # characters, and torch, whose workers bind theirs there, loses the batch of a longer one and waits for it.
    multiprocessing.util.get_temp_dir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    before = set(multiprocessing.active_children())
    yield
    left = set(multiprocessing.active_children()) - before
    if left or os.listdir(scratch):
        # The tests' own loaders may hold workers until they are collected; those of a diagnosis have no owner any more.
        gc.collect()
        left = set(multiprocessing.active_children()) - before
    assert not [path for path in os.listdir(scratch) if path.startswith("loaderprobe-")]
    for process in left:
        process.join(5)  # torch 2.6 ends workers that are late, and does not wait for them
    assert not [process for process in left if process.is_alive()]


@pytest.fixture(scope="session")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """64 raw images."""
    return raw_files(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """24 small photographs."""
    return photo_files(tmp_path_factory.mktemp("photos"))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Diagnoses in short rounds of the given segments."""

    def run(
        loader: Any, step: Any = None, *, modes: tuple[Mode, ...] = (), cache: Any = "cold", rounds: int = 1,
        **asked: Any,
    ) -> Diagnosis:  # fmt: skip
        base: Mode = "warm" if cache == "warm" else "baseline"
        plan: list[tuple[Mode, Activity]] = [(base, "loader_only"), (base, "training")]
        plan += [(mode, "loader_only") for mode in modes]
        if step is not None:
            plan.append(("resident", "training"))

        def next_round(measurement: Measurement, *, thorough: bool) -> Plan:
            begun = len({segment.round for segment in measurement.segments})
            possible = {*measurement.modes, "resident"}
            return tuple(each for each in plan if each[0] in possible) if begun < rounds else ()

        monkeypatch.setattr("loaderprobe.measure.collectives.next_round", asked.pop("decide", next_round))
        request = LoaderRequest(cache=cache, rounds=rounds, **{"budget_s": 60.0, **asked})
        measured = measure_loader(loader, compute_of(step), request, lambda *_: None)
        return diagnosis(measured, "loaderprobe.diagnose(...)")

    return run

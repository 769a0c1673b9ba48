"""`loaderprobe.sweep` and `resume`: what is asked reaches the run, and no callback is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api import sweep as verb
from loaderprobe.api.sweep_request import compute_names, loader_specs, prefetch_factors, request_of, worker_counts
from loaderprobe.api.values import listed
from loaderprobe.errors import BadValue
from loaderprobe.records.files import FileSet
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.units import parse_count
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.stored import FAILED, PENDING, plain_run


def measure_nothing(run: RunDirectory, on_progress: Callable[..., None]) -> None:
    """A sweep that leaves everything for later."""


@pytest.fixture
def photos(tmp_path: Path, photographs: FileSet) -> Path:
    """Twelve images."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for index, path in enumerate(photographs.absolute(0, 12)):
        (tmp_path / "photos" / "a" / f"{index}.jpg").write_bytes(path.read_bytes())
    return tmp_path / "photos"


def test_a_sweep_returns_its_run(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked is in it, with the call that made it, and summary and page are written."""
    monkeypatch.setattr(verb, "measure", measure_nothing)
    run = loaderprobe.sweep(
        photos, workers=[1, 2], compute=["emulated:100", "emulated:mlperf-h100"], cache=("cold", "warm"),
        precision="auto", batch_size=2, decoder="torchvision", rounds=2, out=tmp_path / "run",
    )  # fmt: skip
    configs = RunDirectory.open(run.path).record.spec.configs
    assert len(configs) == 3 * 2 * 2 == len(run.report().summary.configurations)
    assert json.loads((run.path / "summary.json").read_text())["run"]["pending"] == 12
    assert "<html" in (run.path / "report.html").read_text()
    call = run.report().summary.run.command
    assert call.startswith(f"loaderprobe.sweep({str(photos)!r}, workers=[1, 2], ")
    assert "compute=['emulated:100', 'emulated:mlperf-h100']" in call and f"out={str(run.path)!r})" in call
    assert "precision" not in call, "it was left as it is"


def test_prefetch_factors_are_an_axis_of_loaders_with_workers() -> None:
    """The serial loader is there once, and 0 is refused."""
    made = loader_specs((0, 1, 2), prefetch_factor=prefetch_factors("4,1"))
    assert [(each.workers, each.prefetch_factor) for each in made] == [(0, 0), (1, 4), (2, 4), (1, 1), (2, 1)]
    with pytest.raises(BadValue, match="1 or more"):
        prefetch_factors("0,2")


def test_a_full_buffer_needs_a_larger_set(tmp_path: Path) -> None:
    """Of several prefetch factors the largest counts; what is asked for is taken as it is."""

    def needed(**changes: Any) -> int:
        usual: dict[str, Any] = {
            "data": None, "data_dir": tmp_path, "out": None, "resolutions": "64x48", "workers": "8", "serial": False,
            "loader": "torch", "compute": "emulated:100", "cache": "cold", "batch_size": 4, "prefetch_factor": "8",
        }  # fmt: skip
        return request_of(**{**usual, **changes}).images_needed

    assert needed() == (14 + 2 * 72) * 4
    assert needed(prefetch_factor="1,8") == needed(thorough=True) == (72 + 64 + 3 * 64) * 4
    assert needed(prefetch_factor="1,8", images=77) == 77
    with pytest.raises(BadValue, match="the first of whole epochs is cold"):
        needed(epochs=2, cache="warm")


def test_resume_measures_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed and what was never tried; the run is judged again."""
    asked: list[int] = []

    def complete(run: RunDirectory, on_progress: Callable[..., None]) -> None:
        for config in (FAILED, PENDING):
            asked.append(verb.plan(run).configurations)
            run.save(measured(Truth(compute=1000.0), config.loader.workers))

    monkeypatch.setattr(verb, "measure", complete)
    run = loaderprobe.resume(plain_run(tmp_path / "run").path)
    assert asked == [2, 1]
    assert {row.status for row in run.report().summary.configurations} == {"measured"}


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt reaches the program, with a note; summary and page are there."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "measure", interrupted)
    path = plain_run(tmp_path / "run").path
    with pytest.raises(KeyboardInterrupt) as caught:
        loaderprobe.resume(path)
    assert f"loaderprobe.resume({str(path)!r})" in caught.value.__notes__[0]
    assert (path / "summary.json").is_file() and (path / "report.html").is_file()


def test_lists_are_given_in_any_form() -> None:
    """As text with commas, as a sequence, as one value; each item once."""
    assert listed("1, 2,2", parse_count) == listed([1, 2, 2], parse_count) == listed((1, 2), parse_count) == (1, 2)
    assert listed(4, parse_count) == (4,)
    assert worker_counts([2, 0, 1], serial=True) == (0, 2, 1)
    assert worker_counts("0,2", serial=False) == (2,)


def test_auto_is_cuda_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the CPU; a device that is named twice counts once."""
    monkeypatch.setattr("loaderprobe.api.sweep_request.list_gpus", lambda: ((), "none"))
    assert compute_names("auto,cpu,emulated:9") == ("cpu", "emulated:9")
    monkeypatch.setattr("loaderprobe.api.sweep_request.list_gpus", lambda: (("a GPU",), None))
    assert compute_names(["auto"]) == ("cuda",)

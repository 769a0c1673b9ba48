"""Sweeps: what is asked for, which workers are added, and real ones that end, resume, fail or are interrupted."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import loaderprobe
from loaderprobe.api import sweep as verb
from loaderprobe.api.load import judge_run
from loaderprobe.api.sweep import more_of, plan
from loaderprobe.api.sweep_spec import check_layouts, compute_names, images_needed, possible, spec_of
from loaderprobe.cli import border
from loaderprobe.errors import BadValue, LostRank, NoSpace
from loaderprobe.measure.runner import Order
from loaderprobe.measure.sweep import Orders, SweepResult, pending
from loaderprobe.measure.sweep import sweep as sweep_by
from loaderprobe.records.config import Auto, RunConfig, SweepSpec
from loaderprobe.records.environment import Gpu
from loaderprobe.records.files import FileSet
from loaderprobe.records.remark import Coded
from loaderprobe.store.run_directory import RunDirectory, lock_directory
from loaderprobe.system import environment
from loaderprobe.system.launcher import VISIBLE
from loaderprobe.testing import FakeClock
from tests.analyze.scripted import Truth, measured
from tests.cli.invoke import invoke
from tests.fakes import example_environment
from tests.planted.loaders import without_torch
from tests.stored import FAILED, PENDING, empty_run, plain_run


def measure_nothing(*_: Any) -> None:
    """A sweep that leaves everything for later."""


def interrupted(*_: Any) -> None:
    """The same by Ctrl-C."""
    raise KeyboardInterrupt


@pytest.fixture
def photos(tmp_path: Path, photographs: FileSet) -> Path:
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for index, path in enumerate(photographs.absolute(0, 12)):
        (tmp_path / "photos" / "a" / f"{index}.jpg").write_bytes(path.read_bytes())
    return tmp_path / "photos"


def test_a_sweep_returns_its_run(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked is in it, with the call that made it, and summary and page are written. Damaged and foreign files
    in the folder are counted and named."""
    monkeypatch.setattr(verb, "measure", measure_nothing)
    (photos / "a" / "damaged.jpg").write_bytes((photos / "a" / "0.jpg").read_bytes()[:5000])
    (photos / "a" / "notes.txt").write_text("not an image")
    run = loaderprobe.sweep(
        photos, workers=[1, 0, 2, 2], compute=["emulated:100", "emulated:mlperf-h100"], cache=("cold", "warm"),
        precision="auto", batch_size=2, decoder="torchvision", rounds=2, out=tmp_path / "run",
    )  # fmt: skip
    configs = RunDirectory.open(run.path).record.spec.configs
    assert len(configs) == 3 * 2 * 2 == len(run.report().configurations)
    summary = json.loads((run.path / "summary.json").read_text())["run"]
    (data,) = summary["data"]
    assert (data["images_used"], data["skipped_count"], data["generated"]) == (12, 2, False)
    assert all(text in "".join(data["skipped"]) for text in ("damaged.jpg: damaged", "notes.txt: not an image"))
    assert summary["pending"] == 12 and "<html" in (run.path / "report.html").read_text()
    call = run.report().run.command
    assert call.startswith(f"loaderprobe.sweep({str(photos)!r}, workers=[1, 0, 2, 2], ")
    assert "compute=['emulated:100', 'emulated:mlperf-h100']" in call and f"out={str(run.path)!r})" in call
    assert "precision" not in call, "it was left as it is"


def test_prefetch_factors_are_an_axis_of_loaders_with_workers() -> None:
    """The serial loader is there once."""
    made = [config.loader for config in spec_of(workers="1,2", prefetch_factor="4,1", compute="cpu").configs]
    assert [(each.workers, each.prefetch_factor) for each in made] == [(0, 0), (1, 4), (2, 4), (1, 1), (2, 1)]


def test_a_full_buffer_needs_a_larger_set() -> None:
    """Of several prefetch factors the largest counts."""

    def needed(**changes: Any) -> int:
        usual: dict[str, Any] = {
            "workers": "8", "serial": False, "compute": "emulated:100", "batch_size": 4, "prefetch_factor": "8"
        }  # fmt: skip
        return images_needed(spec_of(**{**usual, **changes}))

    assert needed() == (14 + 2 * 72) * 4
    assert needed(prefetch_factor="1,8") == needed(thorough=True) == (72 + 64 + 3 * 64) * 4


@pytest.mark.parametrize(
    ("layouts", "asked", "refused", "way_out"),
    [
        ("files", {"epochs": 2, "loader": "spdl"}, "", ""),
        ("files,tar", {"loader": "grain"}, "", ""),
        ("tar", {"loader": "torch,webdataset"}, "", ""),
        ("files,tar", {"epochs": 2}, "whole epochs are trained over files: --epochs and tar shards", "leave the"),
        ("parquet", {"loader": "torch,spdl"}, "the loader spdl does not read Parquet files", "leave the layout"),
        ("tar", {"loader": "own.mod:Loader"}, "the loader own.mod:Loader does not read tar shards", "layout tar"),
        ("files", {"loader": "webdataset"}, "the loader webdataset does not read files of one image", "--layout tar"),
        ("tar", {"loader": "datasets"}, "the loader datasets does not read tar shards", "use --layout parquet"),
    ],
)
def test_what_does_not_read_a_layout_is_refused(layouts: str, asked: Any, refused: str, way_out: str) -> None:
    """With the way out, and what goes is let through."""
    spec = spec_of(compute="emulated:100", **asked)
    with pytest.raises(BadValue, match=f"^{refused}$") if refused else nullcontext() as error:
        check_layouts(spec, layouts.split(","))
    assert error is None or way_out in error.value.hint


@pytest.mark.parametrize(
    ("changes", "here"),
    [
        ({"cpu_model": "Xeon"}, "Xeon, 2 cores, no GPU"),
        ({"cores_available": 8.0}, "AMD EPYC 7B13, 8 cores, no GPU"),
        ({"gpus": (Gpu(name="H100", uuid=None, memory_bytes=None, driver=None),) * 2}, "2 cores, 2 H100"),
        ({"kernel": "7.0"}, None),
    ],
)
def test_another_machine_measures_nothing_into_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], here: str | None
) -> None:
    """Both are named, and nothing is changed. Another kernel is no other machine, and a whole run is shown anywhere.
    More rounds need the same torch, too."""
    monkeypatch.setattr(verb, "describe_environment", lambda _: replace(example_environment(), **changes))
    monkeypatch.setattr(verb, "measure", measure_nothing)
    run = plain_run(tmp_path / "run")
    said = rf"run was begun on AMD EPYC 7B13, 2 cores, no GPU, and this is .*{here}$"
    with nullcontext() if here is None else pytest.raises(BadValue, match=said):
        loaderprobe.resume(run.path, budget_s=7.0)
    assert (RunDirectory.open(run.path).record.spec.budget_s == 7.0) == (here is None)
    for config in (FAILED, PENDING):
        run.save(measured(Truth(compute=1000.0), config.loader.workers))
    monkeypatch.setattr(verb, "measure", measure_nothing if here is None else lambda *_: pytest.fail("it measures"))
    assert loaderprobe.resume(run.path).path == run.path
    monkeypatch.setattr(verb, "may_go_on", lambda *_: {PENDING: SweepResult()})
    monkeypatch.setattr(verb, "describe_environment", lambda _: replace(example_environment(), torch="1.0"))
    with pytest.raises(BadValue, match=r"run was begun with torch 2.*, and this is torch 1\.0, loaderprobe"):
        loaderprobe.resume(run.path, budget_s=7.0)


@pytest.mark.usefixtures("same_machine")
def test_an_interrupt_reaches_the_program_with_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a note."""
    monkeypatch.setattr(verb, "measure", interrupted)
    path = plain_run(tmp_path / "run").path
    with pytest.raises(KeyboardInterrupt) as caught:
        loaderprobe.resume(path)
    assert f"loaderprobe.resume({str(path)!r})" in caught.value.__notes__[0]


PENDING_SAID = ("not measured yet", "Resume with: loaderprobe sweep --resume")
FULL = ("standard output is full", "what was measured is kept. Resume with: loaderprobe sweep --resume")
GONE = ("rank 1 has gone", "start it again")
KEPT = "what was measured is kept"


@pytest.mark.usefixtures("same_machine")
@pytest.mark.parametrize(
    ("error", "full", "vanished", "code", "says", "page"),
    [
        (None, False, False, 4, PENDING_SAID, True), (KeyboardInterrupt(), False, False, 130, PENDING_SAID[1:], True),
        (None, True, False, 5, FULL, True), (KeyboardInterrupt(), True, False, 5, FULL, True),
        (NoSpace(GONE[0], hint=GONE[1]), False, False, 5, (*GONE, KEPT), False),
        (NoSpace(GONE[0], hint=GONE[1]), False, True, 5, GONE, False),
        (LostRank(GONE[0], hint=GONE[1]), False, False, LostRank.exit_code, GONE, True),
    ],
    ids=["pending", "Ctrl-C", "full output", "Ctrl-C and full output", "full disk", "run vanished", "lost rank"],
)  # fmt: skip
def test_a_sweep_that_does_not_end_says_how_to_go_on(
    error: BaseException | None, full: bool, vanished: bool, code: int, says: tuple[str, ...], page: bool,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """On standard error, with the exit code of its error; summary and page are there, and what was measured is shown.
    Of a run that has vanished nothing is kept, and of a full disk nothing shown."""
    path = plain_run(tmp_path / "run").path

    def measure(*_: Any) -> None:
        if vanished:
            path.rename(tmp_path / "away")
        if error is not None:
            raise error

    def no_space(_: str) -> None:
        raise NoSpace("standard output is full")

    monkeypatch.setattr(verb, "measure", measure)
    if full:
        monkeypatch.setattr(border, "show", no_space)
    done = invoke("sweep", "--resume", path)
    said = " ".join(done.stderr.split())
    assert done.exit_code == code and all(each in said for each in says), said
    assert (KEPT in said) == any(KEPT in each for each in says)
    assert (path / "summary.json").is_file() == (path / "report.html").is_file() == page
    assert ("Report:" in done.stdout) == page


@pytest.mark.parametrize(
    ("gpus", "library", "visible", "asked", "devices"),
    [
        ((), None, None, "auto,cpu,emulated:9", ("cpu", "emulated:9")), (("a GPU",), None, None, ["auto"], ("cuda",)),
        (("a GPU",), None, "", ["auto"], ("cpu",)), ((), "libtorch_hip.so", None, "auto", ("cuda",)),
        ((), "libtorch_cuda.so", None, "auto", ("cpu",)),
    ],
    ids=["none", "one", "hidden", "AMD", "AMD, but torch is for NVIDIA"],
)  # fmt: skip
def test_auto_is_cuda_where_there_is_a_gpu(
    gpus: tuple[str, ...], library: str | None, visible: str | None, asked: Any, devices: tuple[str, ...],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Else the CPU; a device that is named twice counts once. NVML does not list a GPU of AMD, and the driver alone
    says little, since many processors have it: torch must be built for it."""
    monkeypatch.delenv(VISIBLE, raising=False) if visible is None else monkeypatch.setenv(VISIBLE, visible)
    monkeypatch.setattr("loaderprobe.api.sweep_spec.list_gpus", lambda: (gpus, None if gpus else "none"))
    if library is not None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / library).touch()
        torch = ModuleSpec("torch", None, origin=f"{tmp_path}/__init__.py")
        monkeypatch.setattr(environment, "ROCM", tmp_path)
        monkeypatch.setattr(environment, "find_spec", lambda name: torch)
    assert compute_names(asked) == devices


LATENCY = Truth(model="latency", latency_s=0.02, cpu_s=0.0005, compute=1100.0)
"""Twice as many workers are twice as fast, until compute limits: 24 are enough."""


def made_run(
    path: Path, truth: Truth, *, counts: tuple[int, ...] = (0, 1), workers: bool = True, prefetch_factor: bool = False,
    **options: Any,
) -> RunDirectory:  # fmt: skip
    """A run that begins with these numbers of workers."""
    auto = Auto(workers=workers, prefetch_factor=prefetch_factor, most_workers=32)
    return empty_run(path, *(measured(truth, count).config for count in counts), auto=auto, **options)


class Runner:
    """Measures what the truth says, 10 s each; Ctrl-C comes in the order of a number."""

    def __init__(self, truth: Truth, *, stops_at: int = 0) -> None:
        self.truth, self.stops_at, self.clock = truth, stops_at, FakeClock()
        self.orders: list[Order] = []

    def run(self, order: Order, **_: Any) -> Any:
        self.orders.append(order)
        if len(self.orders) == self.stops_at:
            raise KeyboardInterrupt
        self.clock.sleep(10.0)
        loader = order.config.loader
        faster = {2: 1.0, 4: 1.2, 8: 1.21}.get(loader.prefetch_factor, 1.0)
        truth = replace(self.truth, latency_s=self.truth.latency_s / faster, cpu_s=self.truth.cpu_s / faster)
        return replace(measured(truth, loader.workers), config=order.config)


def swept(run: RunDirectory, runner: Runner) -> list[tuple[int, int]]:
    """(workers, prefetch factor) of all that is measured, in its order; one order each, of files that are not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loaderprobe.measure.sweep.measure_ceiling", lambda *_: None)
        patch.setattr("loaderprobe.measure.sweep.further_round", lambda found, *, thorough: ())
        orders = Orders(run=run, processes=runner, clock=runner.clock, on_stage=lambda *_: None)
        sweep_by(orders, partial(more_of, run))
    return [settings(order.config) for order in runner.orders]


def settings(config: RunConfig) -> tuple[int, int]:
    return config.loader.workers, config.loader.prefetch_factor


def best_of(run: RunDirectory) -> Iterator[tuple[int, int]]:
    """Of each data set, what the page names as enough."""
    report = judge_run(run)
    rows = {row.key: row for row in report.configurations}
    yield from (settings(rows[key].config) for key in report.best)


def test_workers_are_added_until_the_fewest_that_are_enough_are_measured(tmp_path: Path) -> None:
    """The page names them with a measured rate and its range, and so does the knee. Where it was interrupted, what it
    had asked for is pending, and the search goes on from all results."""
    run = made_run(tmp_path / "whole", LATENCY)
    runner = Runner(LATENCY)
    asked = swept(run, runner)
    assert asked[:2] == [(0, 0), (1, 2)] and len(asked) == len(set(asked)) <= 8
    assert runner.orders[0].budget_s == 17.0, "its usual time, whatever follows"
    assert [settings(config) for config in RunDirectory.open(run.path).record.spec.configs] == asked
    report = judge_run(run)
    (knee,) = report.knees
    assert list(best_of(run)) == [(knee.workers, 2)] and knee.how == "measured"
    assert knee.images_per_s and knee.images_per_s.value >= 0.98 * LATENCY.training(32)
    assert (knee.workers, more_of(run)) == (24, [])
    assert plan(run) == (Coded(code="all_measured"),) and swept(run, Runner(LATENCY)) == []
    run = made_run(tmp_path / "run", LATENCY)
    with pytest.raises(KeyboardInterrupt):
        swept(run, Runner(LATENCY, stops_at=4))
    again = RunDirectory.open(run.path)
    assert [settings(config) for config in pending(again)] == [asked[3]]
    assert swept(again, Runner(LATENCY)) == asked[3:]


def test_prefetch_factors_are_added_for_the_workers_that_are_enough(tmp_path: Path) -> None:
    """While they gain more than 2 %; the smallest of those is named, and no full buffer is measured."""
    truth = replace(LATENCY, compute=1e5)
    run = made_run(tmp_path / "run", truth, prefetch_factor=True)
    asked = swept(run, Runner(truth))
    assert asked[-2:] == [(32, 4), (32, 8)] and list(best_of(run)) == [(32, 4)]
    given = made_run(tmp_path / "given", truth, counts=(1, 2), workers=False, prefetch_factor=True)
    assert swept(given, Runner(truth)) == [(1, 2), (2, 2), (2, 4), (2, 8)]
    assert plan(given) == (Coded(code="all_measured"),)


def test_a_budget_leaves_what_was_asked_for_last(tmp_path: Path) -> None:
    """It is divided over what is likely to follow, and --resume measures the rest."""
    run = made_run(tmp_path / "run", LATENCY, budget_s=30.0)
    runner = Runner(LATENCY)
    assert len(swept(run, runner)) == 3 and len(pending(run)) == 1
    assert runner.orders[0].budget_s == pytest.approx(0.95 * 30.0 / 8)


def test_what_auto_asks_for() -> None:
    """The serial loader and one worker first, beside what is named; a set has images for the most that may follow."""

    def asked(**options: Any) -> SweepSpec:
        return spec_of(**{"compute": "emulated:100", "batch_size": 4, **options})

    made = asked(workers="auto", prefetch_factor="auto")
    assert [settings(config) for config in made.configs] == [(0, 0), (1, 2)]
    assert made.auto and made.auto.workers and made.auto.prefetch_factor and made.auto.most_workers >= 8
    assert settings(possible(made)[-1]) == (made.auto.most_workers, 8)
    assert images_needed(made) > images_needed(asked(workers="1"))
    named = asked(workers=["auto", 0, 3], serial=False)
    assert [settings(config) for config in named.configs] == [(3, 2)]
    assert named.auto and not named.auto.prefetch_factor
    assert asked(workers="1,2").auto is None
    assert asked(workers="auto", prefetch_factor="auto,1,4").auto


SMALL = ("--rounds", 1, "--batch-size", 4, "--budget", 16)


@pytest.mark.usefixtures("short_sweeps", "impatient")
def test_a_sweep_chooses_its_workers_and_is_complete(tmp_path: Path) -> None:
    """A real one over generated data; that more may follow is said before, and its summary has what was added. Resuming
    it measures nothing: the measurements stay as they are, to the byte, and what `--json` prints is the summary and
    nothing else. While another process holds the run it is refused, and changes nothing of what was asked."""
    out = tmp_path / "run"
    asked = ("--workers", "auto", "--resolutions", "64x48", "--compute", "emulated:100", *SMALL)
    done = invoke("sweep", *asked, "--data-dir", tmp_path / "data", "--out", out)
    said = " ".join(done.stderr.split())
    assert done.exit_code == 0 and said.startswith("Data: about ") and "not known beforehand" in said, said
    summary = json.loads((out / "summary.json").read_text())
    rows = summary["configurations"]
    jsonschema.validate(summary, json.loads(invoke("report", "--schema").stdout))
    assert [row["workers"] for row in rows][:2] == [0, 1] and len(rows) < 7
    assert {row["status"] for row in rows} == {"measured"} and all(row["emulated"] for row in rows)
    run = loaderprobe.load(out)
    assert len(run.steps()) and {-1, 0} & set(run.batches()["worker"])
    before = {path: path.read_bytes() for path in (out / "measurements").iterdir()}
    done = invoke("sweep", "--resume", out, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout) == summary
    assert "everything is already measured" in invoke("sweep", "--resume", out).stderr
    spec = (out / "run.json").read_bytes()
    with lock_directory(out):
        done = invoke("sweep", "--resume", out, "--budget", 60)
    assert done.exit_code == 5 and "another loaderprobe" in done.stderr
    assert (out / "run.json").read_bytes() == spec
    assert {path: path.read_bytes() for path in (out / "measurements").iterdir()} == before


@pytest.mark.usefixtures("short_sweeps")
def test_a_failing_configuration_is_reported_and_the_others_go_on(tmp_path: Path, photographs: FileSet) -> None:
    """With a loader whose worker is killed, the serial row fails too or not, but each has a row; the code is 4."""
    done = invoke(
        "sweep", photographs.root, "--workers", 1, "--no-serial", "--compute", "emulated:100,emulated:200", *SMALL,
        "--budget", 24, "--loader", "tests.planted.killed_worker:KilledWorker", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.exit_code == 4
    rows = json.loads(done.stdout)["configurations"]
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert all("killed by SIGKILL" in row["reason"]["sentence"] for row in rows)


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, photos: Path) -> None:
    """Exit code 130, the child that hangs and its workers are gone, the summary is there. Before anything is measured
    there is no page to show."""
    os.mkfifo(tmp_path / "alive")
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", str(photos), "--workers", "1", "--compute", "emulated:100",
        "--loader", "tests.planted.loaders:Hanging", "--out", str(tmp_path / "run"), *map(str, SMALL),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(without_torch(tmp_path / "first"))},
    )  # fmt: skip
    pipe = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([pipe], [], [], 60)[0], "the child did not come up"
    assert os.read(pipe, 5) == b"alive"
    os.set_blocking(pipe, True)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert os.read(pipe, 1) == b"", "it closes when the child ends"
    os.close(pipe)
    assert process.returncode == 130
    assert "nothing was measured yet. Resume with: loaderprobe sweep --resume" in stderr and stdout == ""
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["run"]["pending"] == 2

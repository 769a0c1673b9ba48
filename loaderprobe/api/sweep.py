"""`sweep`: measures every configuration in a process of its own, and judges each."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

from loaderprobe.analyze.knee import next_configs
from loaderprobe.api.load import Run, judge_run, save_report
from loaderprobe.api.sweep_request import check_request, check_seconds, request_of, start_sweep
from loaderprobe.api.values import PathLike, unheard
from loaderprobe.measure.ceilings import Ceilings
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.launch import Lead, check_one_node, most_ranks, on_this_machine
from loaderprobe.measure.runner import Processes, forkserver
from loaderprobe.measure.studies import plan_studies, study_all
from loaderprobe.measure.sweep import pending, plan_sweep
from loaderprobe.measure.sweep import sweep as run_sweep
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import Decoder, MemoryFormat, Pipeline, Precision, RunConfig, SweepPlan, TensorType
from loaderprobe.records.options import RESOLUTIONS
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.system.limits import cores_available


def sweep(
    data: PathLike | None = None,
    *,
    resolutions: str | Iterable[str] = RESOLUTIONS,
    data_dir: PathLike = "loaderprobe-data",
    images: int | None = None,
    seed: int = 0,
    workers: str | int | Iterable[int | str] = (1, 2, 4, 8),
    serial: bool = True,
    loader: str = "torch",
    prefetch_factor: str | int | Iterable[int | str] = (2,),
    pipeline: Pipeline = "imagenet",
    decoder: Decoder = "pillow",
    tensor: TensorType = "float32",
    compute: str | Iterable[str] = "auto",
    batch_size: int | None = None,
    model: str | Iterable[str] = "resnet50",
    precision: Precision = "auto",
    memory_format: MemoryFormat = "channels_last",
    compile: bool = False,
    pin_memory: bool = True,
    side_stream: bool = False,
    gpu_decode: bool = False,
    cache: Literal["cold", "warm"] | str | Iterable[str] = "cold",
    ranks: str | int | Iterable[int | str] | None = None,
    rounds: int = 3,
    thorough: bool = False,
    epochs: int = 0,
    budget_s: float | None = None,
    time_limit_s: float = 600.0,
    out: PathLike | None = None,
    progress: OnStage | None = None,
) -> Run:
    """Measure every combination of data set, workers, device, model and cache state, and say what limits each.

    `data` is a folder of images; without it, data sets of `resolutions` are generated under `data_dir`. The options
    are those of `loaderprobe sweep`, which `--help` explains: `serial=False` is `--no-serial`, `pin_memory=False` is
    `--no-pin-memory`, and what is a list there may be a list here. The run is kept in `out`, with `summary.json` and
    `report.html`; without `out`, in a directory named by the time. `progress(stage, done, total)` hears what is done.

    A configuration that fails is a row with its reason, and the sweep goes on. KeyboardInterrupt keeps what is
    done, for `resume`. Several `ranks` train in step in processes of their own, on this machine.

    Raises BadValue for values that cannot be, MissingPart for a device or plug-in that is not there, Refused and its
    kin when `out` or `data_dir` hold something else.
    """
    options = {name: value for name, value in locals().items() if name != "progress"}
    request = request_of(**options, command=(written(options),))
    check_request(request)
    heard = progress or unheard
    return _measured(start_sweep(request, processes=max(1, round(cores_available())), on_data=heard), heard)


def resume(run: PathLike, *, budget_s: float | None = None, progress: OnStage | None = None) -> Run:
    """Complete a run with its own settings: measure what has no measurement yet, what failed among it.

    `budget_s` is a new budget for that. Raises BadValue for what is no time.
    """
    check_seconds("budget", budget_s)
    directory = RunDirectory.open(Path(run))
    if budget_s is not None:
        directory.set_budget(budget_s)
    return _measured(directory, progress or unheard)


def written(given: Mapping[str, Any]) -> str:
    """The call of `sweep` with these arguments as it would be typed, without those left as they are."""
    usual = inspect.signature(sweep).parameters
    changed = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
        if repr(value) != repr(usual[name].default)
    }
    words = [repr(value) if name == "data" else f"{name}={value!r}" for name, value in changed.items()]
    return f"loaderprobe.sweep({', '.join(words)})"


def _measured(directory: RunDirectory, heard: OnStage) -> Run:
    try:
        measure(directory, heard)
    except KeyboardInterrupt as interrupt:
        save_report(directory, judge_run(directory))
        interrupt.add_note(f"what was measured is kept; go on with loaderprobe.resume({str(directory.path)!r})")
        raise
    run = Run(directory)
    save_report(directory, run.report())
    return run


def plan(run: RunDirectory) -> SweepPlan:
    """What a sweep of the run would measure now, and how long that takes."""
    return plan_sweep(run.record.spec, pending(run) or more_of(run), plan_studies(run))


def more_of(run: RunDirectory) -> list[RunConfig]:
    """What a sweep that chooses by itself measures next; nothing once it knows what is enough."""
    auto = run.record.spec.auto
    return next_configs(judge_run(run), auto) if auto else []


def measure(run: RunDirectory, on_stage: OnStage, lead: Lead | None = None) -> None:
    """Measure what is pending in the run; KeyboardInterrupt keeps what is done. Raises Locked.

    `lead` has the other processes that a launcher started: they take part where a configuration has several ranks.
    Without a launcher those are of this machine. Raises BadValue where they would be of several nodes.
    """
    clock, budget_s = SystemClock(), run.record.spec.budget_s
    configs = pending(run) or more_of(run)
    begin_ns = clock.now_ns()

    def left_s() -> float | None:
        return None if budget_s is None else budget_s - (clock.now_ns() - begin_ns) / 1e9

    with run.lock(), nullcontext(lead) if lead else _processes(configs) as processes:
        run_sweep(run, processes, clock=clock, on_stage=on_stage, more=partial(more_of, run))
        Ceilings(run=run).name_kinds(left_s())
        study_all(run, processes, clock=clock, on_stage=on_stage, left_s=left_s())


@contextmanager
def _processes(configs: Sequence[RunConfig]) -> Iterator[Processes]:
    """Those of this machine that these configurations take."""
    ranks = most_ranks(configs)
    if ranks == 1:
        with forkserver() as server:
            yield server
        return
    check_one_node(configs)
    with on_this_machine(ranks) as lead:
        lead.admit(configs, ())
        yield lead

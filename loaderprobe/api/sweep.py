"""`sweep`: measures every configuration in a process of its own, and judges each."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from loaderprobe.analyze.next_configs import next_configs
from loaderprobe.api.load import Run, beside_results, judge_run, open_run
from loaderprobe.api.shown import usual_out
from loaderprobe.api.sweep_spec import bytes_to_make, check_layouts, check_spec, images_needed, spec_of, with_data
from loaderprobe.api.values import PathLike, data_path, listed, no_progress
from loaderprobe.datasets.folder import check_folder, generated_set
from loaderprobe.datasets.generate.generate import set_asked_for
from loaderprobe.datasets.layouts import FILES, check_layout
from loaderprobe.errors import BadValue, LostRank, MissingPart, NoSpace
from loaderprobe.measure.ceilings import name_kinds
from loaderprobe.measure.image_data import converted, image_sets, with_copies
from loaderprobe.measure.ranks.launch import Coordinator, check_one_node, on_this_machine
from loaderprobe.measure.runner import ForkServer, Processes
from loaderprobe.measure.studies import pending_studies, plan_studies, study_all, too_few
from loaderprobe.measure.sweep import Orders, SweepResult, may_go_on, pending, plan_sweep
from loaderprobe.measure.sweep import sweep as run_sweep
from loaderprobe.plugins import foreign_module
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import (
    Decoder,
    MemoryFormat,
    Pipeline,
    Precision,
    RunConfig,
    SweepSpec,
    TensorType,
    check_seconds,
)
from loaderprobe.records.options import RESOLUTIONS
from loaderprobe.records.remark import Coded
from loaderprobe.store.results import REPORT, write_result
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.system.environment import describe_environment
from loaderprobe.system.host import SystemClock, utc_timestamp
from loaderprobe.units import parse_resolution

NO_OPTIONS = ("progress", "command", "coordinator", "listener")
"""Arguments of `sweep` that choose nothing that is measured."""


class Listener:
    """Hears of a sweep as it goes on; that of a program of its progress alone."""

    progress: OnStage
    """Hears of data that are being made, in images, then of what is measured, in seconds."""

    def __init__(self, progress: OnStage | None = None) -> None:
        self.progress = progress or no_progress

    def checked(self, spec: SweepSpec, made_bytes: float) -> None:
        """What is asked for can be measured; so many bytes of data, about, are going to be generated."""

    def planned(self, plan: Sequence[Coded], foreign: Sequence[str]) -> None:
        """Measuring begins. `foreign` are modules outside loaderprobe that a stored run, not the caller, names."""

    def judged(self, run: Run) -> None:
        """What was measured, before it is saved: a full disk must not hide it."""

    def saved(self, page: Path) -> None:
        """The report is written."""


def sweep(
    data: PathLike | None = None,
    *,
    resolutions: str | Iterable[str] = RESOLUTIONS,
    layout: str | Iterable[str] | None = None,
    data_dir: PathLike = "loaderprobe-data",
    convert_to: PathLike | None = None,
    stage: PathLike | None = None,
    images: int | None = None,
    seed: int = 0,
    workers: str | int | Iterable[int | str] = (1, 2, 4, 8),
    serial: bool = True,
    loader: str | Iterable[str] = "torch",
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
    command: str = "",
    coordinator: Coordinator | None = None,
    listener: Listener | None = None,
) -> Run:
    """Measure every combination of data set, workers, device, model and cache state, and say what limits each.

    `data` is a folder of images, or of files that hold many in a layout, or the URL of images (s3://, gs://, az://,
    https://); without it, data sets of `resolutions` are generated under `data_dir`, in each `layout`. With
    `convert_to`, the images of a folder are written again there in layouts that it lacks. With `stage`, a copy that is
    made there is measured as well, and what epochs take from it. The options are those of `loaderprobe sweep`, which
    `--help` explains: `serial=False` is `--no-serial`, `pin_memory=False` is `--no-pin-memory`, and what is a list
    there may be a list here. The run is kept in `out`, with `summary.json` and `report.html`; without `out`, in a
    directory named by the time. `progress(stage, done, total)` hears what is done: images while data are made, then
    seconds.

    A configuration that fails is a row with its reason, and the sweep goes on. KeyboardInterrupt keeps what is
    done, for `resume`. Several `ranks` train in step in processes of their own: on this machine, or those that
    `coordinator` has from a launcher. `command` is how the report says that it was called.

    Raises BadValue for values that cannot be, MissingPart for a device or plug-in that is not there, Refused and its
    kin when `out` or `data_dir` hold something else.
    """
    data = None if data is None else data_path(data)
    options = {name: value for name, value in locals().items() if name not in NO_OPTIONS}
    nodes = coordinator.nodes if coordinator else None
    spec = spec_of(**options, command=(command or written(options),), nodes=nodes)
    layouts = None if layout is None else listed(layout, check_layout)
    specs = [
        set_asked_for(resolution, seed=seed, layout=layout_name)
        for resolution in listed(resolutions, parse_resolution)
        for layout_name in layouts or (FILES,)
    ]
    if convert_to is not None and (layouts is None or not isinstance(data, Path)):
        raise BadValue("--convert-to needs a folder as DATA, and --layout", hint="without DATA, layouts are generated")
    folder, run_folder = Path(data_dir), usual_out() if out is None else Path(out)
    count = images or images_needed(spec)
    if isinstance(data, Path):
        check_folder(data)
    RunDirectory.check_new(run_folder)
    check_spec(spec, nodes)
    check_layouts(spec, layouts or (() if data is not None else (FILES,)))
    listener = listener or Listener(progress)
    listener.checked(spec, bytes_to_make(specs, folder, count) if data is None else 0.0)
    if data is None:
        from loaderprobe.api.generate import make_sets

        made = make_sets(folder, specs, count=count, progress=listener.progress)
        files = [generated_set(path, sample=count, seed=seed) for path in made]
    else:
        only = layouts if convert_to is None else None
        files = image_sets(data, sample=count, seed=seed, progress=listener.progress, layouts=only)
    if convert_to is not None:
        files = converted(files, layouts or (), Path(convert_to), listener.progress)
    if stage is not None:
        files = with_copies(files, Path(stage), listener.progress)
    spec = with_data(spec, files)
    if coordinator:
        coordinator.admit(spec.configs, files)
    environment = describe_environment([file_set.root for file_set in files])
    record = RunRecord(created_utc=utc_timestamp(), spec=spec, environment=environment)
    return _completed(RunDirectory.create(run_folder, record, files), listener, coordinator)


def resume(
    run: PathLike,
    *,
    budget_s: float | None = None,
    progress: OnStage | None = None,
    coordinator: Coordinator | None = None,
    listener: Listener | None = None,
) -> Run:
    """Complete a run with its own settings: measure what has no measurement yet, what failed among it.

    `budget_s` is a new budget for that, and for further rounds of what is open; the others are as of `sweep`. Raises
    BadValue for what is no time, and on another machine: a run has the rates of one. Further rounds are refused with
    another version of torch or loaderprobe, too.
    """
    check_seconds("budget", budget_s)
    directory = open_run(Path(run))
    before, here = directory.record.environment, describe_environment(())
    listener = listener or Listener(progress)
    further: Mapping[RunConfig, SweepResult] = {}
    spec, to_measure = directory.record.spec, bool(pending(directory) or more_of(directory))
    divided = spec.budget_s is not None or (to_measure and not spec.thorough)
    if budget_s is not None or (divided and _is_left(directory)):
        rows = judge_run(directory).configurations
        further = may_go_on(directory, [row.config for row in rows if row.status == "measured"])
    if before.machine != here.machine:
        if further or _is_left(directory):
            raise BadValue(
                f"{run} was begun on {before.machine}, and this is {here.machine}",
                hint="resume it on such a machine, or measure again into a new directory",
            )
        return _shown_and_kept(directory, listener)
    if further and before.software != here.software:
        raise BadValue(
            f"{run} was begun with {before.software}, and this is {here.software}",
            hint="install those, resume without --budget, or measure again into a new directory",
        )
    if coordinator:
        configs = directory.record.spec.configs
        coordinator.admit(configs, beside_results(directory, {config.data for config in configs})[0])
    if budget_s is not None:
        with directory.lock():
            directory.ask(replace(directory.record.spec, budget_s=budget_s))
    return _completed(directory, listener, coordinator, further)


def foreign_modules(run: RunDirectory, further: Iterable[RunConfig] = ()) -> tuple[str, ...]:
    """Modules outside loaderprobe that measuring the rest of a run imports: the run names them, not the command line.

    Imports nothing of them. Raises BadValue for a loader or a compute that is not known.
    """
    modules: list[str | None] = []
    spec = run.record.spec
    configs = spec.configs if spec.auto else pending(run)
    for config in (*configs, *further, *(config for _, config, _ in pending_studies(run))):
        modules += (
            foreign_module("loader", config.loader.name),
            foreign_module("compute", config.compute.kind),
            foreign_module("model", config.compute.model),
        )
    return tuple(dict.fromkeys(filter(None, modules)))


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


def _completed(
    directory: RunDirectory, listener: Listener, coordinator: Coordinator | None,
    further: Mapping[RunConfig, SweepResult] | None = None,
) -> Run:  # fmt: skip
    """The run once what is pending is measured, and `further` has more rounds; None of a run that only begins.

    Where that is interrupted, what is done is shown and kept, too.
    """
    listener.planned(plan(directory, further or {}), () if further is None else foreign_modules(directory, further))
    try:
        measure(directory, listener.progress, coordinator, further or {})
    except (KeyboardInterrupt, LostRank) as error:
        _shown_and_kept(directory, listener)
        error.add_note(f"what was measured is kept; go on with loaderprobe.resume({str(directory.path)!r})")
        raise
    except (NoSpace, MissingPart) as error:
        if (directory.path / "run.json").exists():
            words = shlex.join(["loaderprobe", "sweep", "--resume", str(directory.path)])
            error.hint += f"; what was measured is kept, and {words} goes on"
        raise
    return _shown_and_kept(directory, listener)


def _shown_and_kept(directory: RunDirectory, listener: Listener) -> Run:
    run = Run(directory)
    try:
        listener.judged(run)
    finally:
        listener.saved(write_result(directory.path, {"summary.json": run.json(), REPORT: run.html()}))
    return run


def plan(run: RunDirectory, further: Mapping[RunConfig, SweepResult] = {}) -> tuple[Coded, ...]:
    """What a sweep of the run would measure now, and how long that takes."""
    todo = pending(run) or more_of(run)
    files = beside_results(run, dict.fromkeys(config.data for config in todo))[0]
    return (*plan_sweep(run.record.spec, todo, plan_studies(run), further), *too_few(files, todo))


def more_of(run: RunDirectory) -> list[RunConfig]:
    """What a sweep that chooses by itself measures next; nothing once it knows what is enough."""
    auto = run.record.spec.auto
    return next_configs(judge_run(run), auto) if auto else []


def measure(
    run: RunDirectory, on_stage: OnStage, coordinator: Coordinator | None = None,
    further: Mapping[RunConfig, SweepResult] = {},
) -> None:  # fmt: skip
    """Measure what is pending in the run, and more of `further`; KeyboardInterrupt keeps what is done. Raises Locked.

    `coordinator` has the other processes that a launcher started: they take part where a configuration has
    several ranks. Without a launcher those are of this machine. Raises BadValue where they would be of several nodes.
    """
    # Measured ones, too: each has as many threads a rank as those with the most ranks.
    configs = run.record.spec.configs if further or _is_left(run) else ()
    with run.lock(), nullcontext(coordinator) if coordinator else _processes(configs) as processes:
        orders = Orders(run=run, processes=processes, clock=SystemClock(), on_stage=on_stage)
        run_sweep(orders, partial(more_of, run), further)
        name_kinds(run, orders.left_s)
        study_all(orders)
    on_stage("measured", 1, 1)


def _is_left(run: RunDirectory) -> bool:
    """True where something is still to be measured."""
    return bool(pending(run) or more_of(run)) or any(pending_studies(run))


@contextmanager
def _processes(configs: Sequence[RunConfig]) -> Iterator[Processes]:
    """Those of this machine that these configurations take."""
    ranks = max((config.ranks for config in configs), default=1)
    if ranks == 1:
        with ForkServer() as server:
            yield server
        return
    check_one_node(max(config.nodes for config in configs))
    with on_this_machine(ranks) as coordinator:
        coordinator.admit(configs, ())
        yield coordinator

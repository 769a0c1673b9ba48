"""`tune workers`: the smallest number of workers, and prefetch factor, within 2 % of the best."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loaderprobe.analyze.tune.workers import (
    Planned,
    WorkersFound,
    WorkersPolicy,
    first_round,
    later_round,
    limit_of,
    over,
    rate_of,
    rows_of,
    visit_of,
)
from loaderprobe.analyze.verdict.validity import as_found, files_were
from loaderprobe.api.diagnose import check_asked
from loaderprobe.api.policy import JUDGING
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.sweep_request import compute_names, compute_specs, parse_cache
from loaderprobe.api.values import unheard
from loaderprobe.errors import BadValue, DeadWorker, LoaderprobeError, NoSpace
from loaderprobe.measure.assembly import check_parts, make_compute
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.image_data import image_files, loader_of_images
from loaderprobe.measure.own.loader import OVERRUN_S, OVERRUN_TIMES, Deadline, LoaderRequest, compute_of, measure_loader
from loaderprobe.measure.session import OnStage
from loaderprobe.policy import Ask, follow
from loaderprobe.protocols import Clock, Compute, ComputeArguments, MakeCompute
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.measurement import NO_STEP, Measurement
from loaderprobe.records.remark import each_once
from loaderprobe.records.tune_workers import WorkersReport, WorkersSetting
from loaderprobe.render.json import result_json
from loaderprobe.render.tune_workers import tuning_columns, tuning_document, tuning_exhibits, tuning_line, words_of
from loaderprobe.system.limits import cores_available

USUAL_BUDGET_S = 90.0
# A visit starts workers, learns the files and measures; a budget has about so many.
VISITS = 15
SHORTEST_S, LONGEST_S = 3.0, 12.0
# A visit is broken off once it has taken this share of the time that was left.
MOST_OF_REST = 0.8
# Images of a folder: a segment of the most workers reads each once.
SAMPLE_BATCHES = 160
MOST_IMAGES = 20_000
OF_A_VISIT: tuple[str, ...] = ("no_time", "cut_short", "all_batches_made")
"""Notes that say nothing of the loader."""
# What torch says where memory, shared memory or descriptors are used up: fewer workers need less.
USED_UP = ("shared memory", "Cannot allocate memory", "No space left on device", "Too many open files", "shm")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WorkersTuning(Documented, WorkersReport):
    """The setting to use, with all that was measured for it. Shows itself."""

    table_name = "workers.csv"
    document = tuning_document
    columns = tuning_columns
    exhibits = tuning_exhibits

    @property
    def line(self) -> str:
        """The `DataLoader(...)` to paste."""
        return tuning_line(self)

    def json(self) -> str:
        """With the line to paste."""
        return result_json(self, line=self.line)


def tune_workers(
    loader: Any, step: Callable[[Any], Any] | None = None, *, budget_s: float = USUAL_BUDGET_S,
    cache: CacheState = "cold", most: int | None = None, progress: OnStage | None = None,
    command: str = "loaderprobe.tune_workers(...)",
) -> WorkersTuning:  # fmt: skip
    """Find the smallest number of workers and prefetch factor within 2 % of the best for a `DataLoader`.

    `step(batch)` trains on one batch, and is really called, over and over; without it the loader alone is measured.
    Copies of the loader are driven, as by `diagnose`: the loader is left as it was. `budget_s` is wall seconds for
    everything. `cache` is the state of the files: `cold` or `warm`. `most` is the largest number of workers to
    consider; without it, twice the cores that this process may use, or more where workers wait for storage. Ctrl-C
    ends the search with what was measured so far.

    Raises BadValue for what is no DataLoader; LoaderprobeError, with its cause, when the data set or the step raises.
    """
    check_asked(step, budget_s, cache)
    if most is not None and most < 1:
        raise BadValue(f"{most} workers at most leave nothing to choose", hint="give 1 or more")
    from loaderprobe.loaders.unwrap import unwrap

    given = unwrap(loader)
    inner = given.loader
    own = WorkersSetting(workers=inner.num_workers, prefetch_factor=inner.prefetch_factor or 0)
    policy = WorkersPolicy(own=own, cores=cores_available(), most=most, budget_s=budget_s)
    visits = _Visits(given=given, compute=compute_of(step), cache=cache, progress=progress or unheard)
    return _tuning(policy, visits, command, data=type(inner.dataset).__name__, clock=SystemClock())


def tuned_images(
    data: Path, *, compute: str = "auto", model: str = "resnet50", batch_size: int | None = None,
    budget_s: float = USUAL_BUDGET_S, cache: str = "cold", most: int | None = None, progress: OnStage = unheard,
    command: str = "",
) -> WorkersTuning:  # fmt: skip
    """The same for a folder of images or a generated set, loaded by torchvision's usual transforms.

    `compute` is a device that trains the model, or `emulated:NAME`. Raises BadValue, MissingPart.
    """
    check_asked(None, budget_s, parse_cache(cache))
    names = compute_names(compute)
    if len(names) != 1:
        raise BadValue(f"{compute} names {len(names)} devices", hint="use one")
    (spec,) = compute_specs(names, (model,), batch_size=batch_size)
    check_parts(LoaderSpec(workers=0, prefetch_factor=0), spec)
    sample = min(MOST_IMAGES, SAMPLE_BATCHES * spec.batch_size)
    files = image_files(data, sample=sample, progress=lambda stage, *_: progress(stage, 0, round(budget_s)))
    from loaderprobe.loaders.unwrap import unwrap

    given = unwrap(loader_of_images(files, batch_size=spec.batch_size, workers=0, device=spec.kind))
    options = {"batch_size": str(spec.batch_size), "shuffle": "True", "drop_last": "True"}
    if spec.kind == "cuda":
        options["pin_memory"] = "True"
    policy = WorkersPolicy(own=None, cores=cores_available(), most=most, budget_s=budget_s)
    visits = _Visits(given=given, compute=_once(spec), cache=parse_cache(cache), progress=progress)
    found = _tuning(policy, visits, command, data=files.label, clock=SystemClock(), paths=(data,))
    return replace(found, options=options)


def _once(spec: ComputeSpec) -> MakeCompute:
    """One device for all visits: a model is made, and a GPU warmed up, once."""
    made: list[Compute] = []

    def make(arguments: ComputeArguments) -> Compute:
        if not made:
            config = RunConfig(data="", resolution="", loader=arguments.loader, compute=spec)
            made.append(make_compute(config, SystemClock()))
        return made[0]

    return make


def measure_setting(
    given: Any, planned: Planned, compute: MakeCompute, *, cache: CacheState, budget_s: float, left_s: float = 0.0
) -> Measurement | None:
    """One visit to a setting of an unwrapped loader; None where the serial loader cannot be measured.

    It is planned for `budget_s`. On a busy machine its one round may take most of `left_s`, which is better than none.
    """
    from loaderprobe.loaders.unwrap import resized

    copy = resized(given, planned.setting.workers, planned.setting.prefetch_factor)
    if copy is None:
        return None
    asked = LoaderRequest(
        judging=JUDGING, cache=cache, budget_s=min(LONGEST_S, max(SHORTEST_S, budget_s)), rounds=1, seed=planned.turn,
        next_round=later_round if planned.turn else first_round, ceiling=False,
        deadline=lambda visit_s: Deadline(max(visit_s or 0.0, (MOST_OF_REST * left_s - OVERRUN_S) / OVERRUN_TIMES)),
    )  # fmt: skip
    with warnings.catch_warnings():
        # More workers than cores are what is tried here.
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        return measure_loader(copy, compute, asked, unheard).measurement


@dataclass(slots=True, kw_only=True)
class _Visits:
    """Visits settings of a loader."""

    given: Any
    compute: MakeCompute
    cache: CacheState
    progress: OnStage
    measured: dict[WorkersSetting, Measurement] = field(default_factory=dict)
    """The first of each setting."""

    def visit(self, ask: Ask[Planned]) -> WorkersFound:
        """One visit. Raises an error that would meet every setting."""
        planned, setting, done = ask.what, ask.what.setting, round(ask.done)
        text = f"{words_of(setting)}{f', turn {planned.turn}' if planned.turn else ''}"
        self.progress(text, done, max(done, round(ask.total)))
        try:
            measurement = measure_setting(
                self.given, planned, self.compute, cache=self.cache, budget_s=ask.total / VISITS, left_s=ask.left()
            )
        except LoaderprobeError as error:
            if not (self.measured or _may_be_their_number(error)):
                raise
            return _named(error)
        if measurement is None:
            return None
        self.measured.setdefault(setting, measurement)
        return visit_of(measurement, setting, planned.turn)


def _may_be_their_number(error: LoaderprobeError) -> bool:
    """True for trouble that other numbers of workers need not have."""
    return isinstance(error, DeadWorker | NoSpace) or any(words in error.message for words in USED_UP)


def _tuning(
    policy: WorkersPolicy, visits: _Visits, command: str, *, data: str, clock: Clock, paths: Sequence[Path] = ()
) -> WorkersTuning:
    """Measure until the search has its answer, the time is up, or Ctrl-C comes; and conclude."""
    from loaderprobe.loaders.unwrap import is_iterable, written_options

    results, reason = follow(
        policy, visits.visit, clock=clock, enough=lambda results: bool(policy.search(results).rates)
    )
    search, stop, own, loader = policy.search(results), reason or "interrupted", policy.own, visits.given.loader
    chosen, first = search.choice, visits.measured[search.choice]
    return WorkersTuning(
        origin=origin_now(command, *paths),
        data=data,
        device="" if first.compute.name == NO_STEP else first.compute.device,
        sample="image" if first.images else "sample",
        batch_size=first.config.compute.batch_size,
        cores_available=policy.cores,
        files_were=None if as_found(first) else files_were(first),
        iterable=is_iterable(loader),
        own=own,
        chosen=chosen,
        images_per_s=rate_of(list(search.rates[chosen].values())),
        speedup=over(search.rates, chosen, own) if own in search.rates and own is not None and own != chosen else None,
        limit=limit_of(search),
        stop=stop,
        rows=rows_of(search, stop=stop),
        visits=tuple(search.visits),
        grid_visits=search.grid_visits,
        loader_class=type(loader).__name__,
        options=written_options(loader),
        notes=each_once(n for each in visits.measured.values() for n in each.notes if n.code not in OF_A_VISIT),
        wall_s=results.spent_s,
    )


def _named(error: LoaderprobeError) -> LoaderprobeError:
    """The error, or what it means where torch says that a batch does not fit into shared memory."""
    from loaderprobe.loaders.switched import SHARED_MEMORY_HINT

    if isinstance(error, NoSpace) or "shared memory" not in error.message:
        return error
    named = NoSpace("shared memory is too small for its batches", hint=SHARED_MEMORY_HINT)
    named.__cause__ = error
    return named

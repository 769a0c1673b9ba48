"""`tune workers`: the smallest number of workers, and prefetch factor, within 2 % of the best."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loaderprobe.analyze.tune.workers import (
    Planned,
    WorkersAsked,
    WorkersSearch,
    first_round,
    later_round,
    limit_of,
    next_visit,
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
from loaderprobe.protocols import Compute, ComputeArguments, MakeCompute
from loaderprobe.records.config import CacheState, ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.measurement import NO_STEP, Measurement
from loaderprobe.records.remark import each_once
from loaderprobe.records.tune_workers import StopCode, WorkersReport, WorkersSetting, WorkersVisit
from loaderprobe.render.json import result_json
from loaderprobe.render.tune_workers import tuning_columns, tuning_document, tuning_exhibits, tuning_line, words_of
from loaderprobe.system.limits import cores_available

USUAL_BUDGET_S = 90.0
# A visit starts workers, learns the files and measures; a budget has about so many.
VISITS = 15
# Of the budget, for looking at settings once: the rest is for comparing them in turns.
LOOKING = 0.5
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
    made = _Tuner(
        given=given, own=own, compute=compute_of(step), most=most, budget_s=budget_s, cache=cache,
        progress=progress or unheard,
    )  # fmt: skip
    return made.tuning(command, data=type(inner.dataset).__name__, own=own)


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
    (spec,) = compute_specs(names, batch_size=batch_size, model=model)
    check_parts(LoaderSpec(workers=0, prefetch_factor=0), spec)
    sample = min(MOST_IMAGES, SAMPLE_BATCHES * spec.batch_size)
    files = image_files(data, sample=sample, progress=lambda stage, *_: progress(stage, 0, round(budget_s)))
    from loaderprobe.loaders.unwrap import unwrap

    given = unwrap(loader_of_images(files, batch_size=spec.batch_size, workers=0, device=spec.kind))
    options = {"batch_size": str(spec.batch_size), "shuffle": "True", "drop_last": "True"}
    if spec.kind == "cuda":
        options["pin_memory"] = "True"
    made = _Tuner(
        given=given, own=None, compute=_once(spec), most=most, budget_s=budget_s, cache=parse_cache(cache),
        progress=progress,
    )  # fmt: skip
    found = made.tuning(command, data=files.label, own=None, paths=(data,))
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
class _Tuner:
    """Visits settings until the search has its answer or the time is up."""

    given: Any
    own: WorkersSetting | None
    compute: MakeCompute
    most: int | None
    budget_s: float
    cache: CacheState
    progress: OnStage
    visits: list[WorkersVisit] = field(default_factory=list)
    failures: dict[WorkersSetting, LoaderprobeError] = field(default_factory=dict)
    measured: dict[WorkersSetting, Measurement] = field(default_factory=dict)
    """The first of each setting."""
    stop: StopCode = "budget"
    serial: bool = True
    cores: float = field(default_factory=lambda: cores_available())
    begun_s: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Visit after visit; Ctrl-C ends them. Raises the first error where no setting could be measured."""
        try:
            while isinstance(planned := self._next(), Planned):
                if self.visits and not self._time_for_another():
                    return
                self._visit(planned)
            self.stop = planned
        except KeyboardInterrupt:
            if not {visit.setting for visit in self.visits} - self.failures.keys():
                raise
            self.stop = "interrupted"

    def _next(self) -> Planned | StopCode:
        try:
            late = self._spent_s() > LOOKING * self.budget_s
            return next_visit(self.asked, self.visits, self.failures, late=late)
        except ValueError:
            raise next(iter(self.failures.values())) from None

    @property
    def asked(self) -> WorkersAsked:
        """What limits the search."""
        return WorkersAsked(own=self.own, cores=self.cores, most=self.most, serial=self.serial)

    def _spent_s(self) -> float:
        return time.monotonic() - self.begun_s

    def _time_for_another(self) -> bool:
        return self._spent_s() * (1 + 1 / len(self.visits)) <= self.budget_s

    def _visit(self, planned: Planned) -> None:
        setting = planned.setting
        done = round(self._spent_s())
        text = f"{words_of(setting)}{f', turn {planned.turn}' if planned.turn else ''}"
        self.progress(text, done, max(done, round(self.budget_s)))
        try:
            measurement = measure_setting(
                self.given, planned, self.compute, cache=self.cache, budget_s=self.budget_s / VISITS,
                left_s=self.budget_s - self._spent_s(),
            )  # fmt: skip
        except LoaderprobeError as error:
            if not self._may_be_their_number(error):
                raise
            self.failures[setting] = _named(error)
            return
        if measurement is None:
            self.serial = False
            return
        self.measured.setdefault(setting, measurement)
        self.visits.append(visit_of(measurement, setting, planned.turn))

    def _may_be_their_number(self, error: LoaderprobeError) -> bool:
        """True for trouble that other numbers of workers need not have."""
        if self.visits or isinstance(error, DeadWorker | NoSpace):
            return True
        return any(words in error.message for words in USED_UP)

    def tuning(
        self, command: str, *, data: str, own: WorkersSetting | None, paths: Sequence[Path] = ()
    ) -> WorkersTuning:
        """Measure, and conclude."""
        from loaderprobe.loaders.unwrap import is_iterable, written_options

        self.run()
        search = WorkersSearch(asked=self.asked, visits=self.visits, failed=self.failures)
        chosen, first = search.choice, self.measured[search.choice]
        known = own is not None and own in search.rates
        return WorkersTuning(
            origin=origin_now(command, *paths),
            data=data,
            device="" if first.compute.name == NO_STEP else first.compute.device,
            sample="image" if first.images else "sample",
            batch_size=first.config.compute.batch_size,
            cores_available=self.cores,
            files_were=None if as_found(first) else files_were(first),
            iterable=is_iterable(self.given.loader),
            own=own,
            chosen=chosen,
            images_per_s=rate_of(list(search.rates[chosen].values())),
            speedup=over(search.rates, chosen, own) if known and own is not None and own != chosen else None,
            limit=limit_of(search),
            stop=self.stop,
            rows=rows_of(search, self.failures, stop=self.stop),
            visits=tuple(self.visits),
            grid_visits=search.grid_visits,
            loader_class=type(self.given.loader).__name__,
            options=written_options(self.given.loader),
            notes=each_once(n for each in self.measured.values() for n in each.notes if n.code not in OF_A_VISIT),
            wall_s=self._spent_s(),
        )


def _named(error: LoaderprobeError) -> LoaderprobeError:
    """The error, or what it means where torch says that a batch does not fit into shared memory."""
    from loaderprobe.loaders.switched import SHARED_MEMORY_HINT

    if isinstance(error, NoSpace) or "shared memory" not in error.message:
        return error
    named = NoSpace("shared memory is too small for its batches", hint=SHARED_MEMORY_HINT)
    named.__cause__ = error
    return named

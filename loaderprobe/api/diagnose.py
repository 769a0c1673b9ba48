"""`diagnose`: what limits a loader of the user's own, and its step; in this process, or in ranks that train in step."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast

from loaderprobe.analyze.diagnosis import report_of
from loaderprobe.analyze.verdict.judge import Judged
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.values import no_progress, spreads_of
from loaderprobe.errors import BadValue
from loaderprobe.measure.ranks.launch import Coordinator, on_this_machine
from loaderprobe.measure.user.loader import LoaderRequest, compute_of, measure_loader
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import CacheState, check_seconds
from loaderprobe.records.diagnosis import DIAGNOSIS_SCHEMA, DIAGNOSIS_VERSION, DataFound, OwnMeasured
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.options import DIAGNOSE, check
from loaderprobe.records.phases import StorageCeiling
from loaderprobe.records.report import ConfigurationRow, Detail, Report
from loaderprobe.records.verdict import Bound, Verdict
from loaderprobe.render.diagnosis import diagnosis_document
from loaderprobe.render.document import Document
from loaderprobe.render.json import diagnosis_json
from loaderprobe.render.sweep import report_columns
from loaderprobe.render.words import sentence
from loaderprobe.system.launcher import launched

BUDGET_S, RANKS_BUDGET_S = 30.0, 60.0
"""Unless asked for: of one process, and of ranks, which measure more."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Diagnosis(Documented):
    """What limits a loader, why, and what would change it. Prints itself in terminals and notebooks.

    Stored is what was measured; `row` and `detail` follow from it, as those of a sweep's configurations do.
    """

    schema: str = DIAGNOSIS_SCHEMA
    schema_version: int = DIAGNOSIS_VERSION
    origin: Origin
    measurement: Measurement
    """The raw times and counters that everything else follows from."""
    ceiling: StorageCeiling | None = None
    """What the storage under the files delivers; None where that was not needed, and in results of older versions."""
    data: DataFound

    @cached_property
    def _report(self) -> Report:
        judged = Judged(measurement=self.measurement, ceiling=self.ceiling)
        return report_of(judged, self.data, self.origin)

    def report(self) -> Report:
        """The same as of a run with one configuration."""
        return self._report

    @property
    def row(self) -> ConfigurationRow:
        """The loader as a configuration: its options, its verdict, the advice and forecasts."""
        return self._report.configurations[0]

    @property
    def detail(self) -> Detail:
        """Notes, ranks, and the functions that workers were in."""
        assert self.row.detail is not None, "one that cannot be judged is none"
        return self.row.detail

    @property
    def verdict(self) -> Verdict:
        """Rates, speed-ups, advice, and why figures are missing."""
        assert self.row.verdict is not None, "one that cannot be judged is none"
        return self.row.verdict

    @property
    def bound(self) -> Bound:
        """What limits it, and the reason."""
        return self.verdict.bound

    def to_dict(self) -> dict[str, Any]:
        """What follows from the measurement, as plain dicts, lists, strings and numbers."""
        plain: dict[str, Any] = json.loads(self.json())
        del plain["measurement"], plain["ceiling"]
        return plain

    def document(self) -> Document:
        """The verdict first, then the rates that it follows from."""
        return diagnosis_document(self._report)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row, with the columns of a sweep."""
        return report_columns(self._report)

    def json(self) -> str:
        """What was measured and, as in the summary of a sweep, what follows from it."""
        return diagnosis_json(self, self._report)

    @property
    def interrupted(self) -> bool:
        """True when Ctrl-C ended it: it is on the rounds until then."""
        return any(note.code == "script_interrupted" for note in self.measurement.notes)

    def headline(self) -> str:
        """The verdict in a sentence."""
        return sentence(self.bound, sample=self.detail.sample)


def diagnose(
    loader: Any,
    step: Callable[[Any], Any] | None = None,
    *,
    budget_s: float | None = None,
    cache: Literal["cold", "warm"] | str = "cold",
    ranks: str | int | Iterable[int] | None = None,
    command: str = "loaderprobe.diagnose(...)",
    progress: OnStage | None = None,
    coordinator: Coordinator | None = None,
) -> Diagnosis:
    """Find out what limits training with this `torch.utils.data.DataLoader`, by removing each resource.

    `step(batch)` trains on one batch, and is really called, over and over; without it the loader alone is
    judged. A copy of the loader is driven, with workers of its own: the loader, its sampler and all random
    generators are left as they were. With `num_workers=0` the data set itself runs in this process, as in training.
    Any other iterable of batches, or a function that makes one, is iterated itself.

    In place of the loader, `"train.py:make_loader"` names a function that returns it, or it and the step. By such a
    function, so many `ranks` are measured in step, each of which calls it: of this machine, or those that
    `coordinator` has from a launcher.

    `budget_s` is wall seconds: without it 30, as much again while the verdict is open, and 60 for ranks. One round is
    measured in any case, if it does not take much longer. `cache` is the state of the files that is judged: `cold`, as
    in an epoch over more data than memory holds, or `warm`. `progress(stage, done, total)` hears what is being done.

    Raises BadValue for what gives no batches, for a loader without batches, for a budget that is too small and in one
    of several processes that train together; LoaderprobeError, with its cause, when the data set or the step raises,
    or a worker dies, and named with its rank and host what a rank ended with.
    """
    from loaderprobe.measure.user.function import made, measure_in_ranks, named

    check(DIAGNOSE, {"cache": cache})
    state = cast(CacheState, cache)
    check_seconds("budget", budget_s)
    if step is not None and not callable(step):
        raise BadValue(f"the step is a {type(step).__name__}", hint="give a function that trains on one batch")
    (count, over), *others = spreads_of(ranks, coordinator.nodes if coordinator else None)
    if others:
        raise BadValue(f"--ranks {ranks} names several numbers, and diagnose measures one", hint="give one number")
    if coordinator is not None or count > 1:
        if not isinstance(loader, str) or step is not None:
            raise BadValue("each rank makes its own loader and step", hint="name a function: train.py:make_loader")
        function, (budget_s, _) = named(loader), budget_of(budget_s, in_ranks=True)
        with nullcontext(coordinator) if coordinator else on_this_machine(count) as processes:
            if count == 1:
                why = "one rank is measured by a process that no launcher started"
                raise BadValue(why, hint="start it without one")
            measured = measure_in_ranks(
                function, processes, count, over, cache=state, budget_s=budget_s,
                on_stage=_over(budget_s, 0.0, progress or no_progress),
            )  # fmt: skip
        return diagnosis(measured, command)
    maker = named(loader) if isinstance(loader, str) else None
    _check_alone()
    budget_s, beyond_s = budget_of(budget_s)
    if maker is not None:
        loader, own_step = made(maker)
        step = step or own_step
    request = LoaderRequest(cache=state, budget_s=budget_s, beyond_s=beyond_s)
    measured = measure_loader(loader, compute_of(step), request, _over(budget_s, beyond_s, progress or no_progress))
    return diagnosis(measured, command)


def diagnosis(measured: OwnMeasured, command: str) -> Diagnosis:
    """The verdict on what was measured, in one process or in all ranks; `command` is for the report.

    Raises BadValue without a complete round.
    """
    diagnosed = Diagnosis(
        origin=origin_now(command), measurement=measured.measurement, ceiling=measured.ceiling, data=measured.data
    )
    diagnosed.report()
    return diagnosed


def _check_alone() -> None:
    """Raises BadValue in a process that trains together with others: each would take another number of steps."""
    from loaderprobe.loaders.attached import ranks_in_use

    if launched(os.environ) or ranks_in_use() > 1:
        raise BadValue(
            "this program is one of several that train together, and each would measure its loader out of step",
            hint="torchrun ... -m loaderprobe diagnose train.py:make_loader, or loaderprobe run -- torchrun ...",
        )


def budget_of(asked_s: float | None, *, in_ranks: bool = False) -> tuple[float, float]:
    """(seconds to measure, further ones while the verdict is open)."""
    usual_s = RANKS_BUDGET_S if in_ranks else BUDGET_S
    return asked_s or usual_s, 0.0 if asked_s or in_ranks else BUDGET_S


def _over(budget_s: float, beyond_s: float, progress: OnStage) -> OnStage:
    """Progress in seconds of all that there may be, of stages as they begin."""
    begun_s = time.monotonic()

    def on_stage(stage: str, *_: int) -> None:
        done = round(time.monotonic() - begun_s)
        progress(stage, done, max(done, round(budget_s + beyond_s)))

    return on_stage


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """What user code prints meanwhile is no result, nor what its processes print, who know files by their numbers."""
    with ExitStack() as undo:
        undo.enter_context(redirect_stdout(sys.stderr))
        with suppress(OSError):  # standard output is closed
            before = undo.enter_context(os.fdopen(os.dup(1), "wb"))
            undo.callback(os.dup2, before.fileno(), 1)
            undo.callback(_flush_stdout)
            # Where standard error is closed, another file may have its number.
            os.dup2(2 if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), 1)
        yield


def _flush_stdout() -> None:
    """What Python and C still hold of it goes where it leads now."""
    if sys.__stdout__ is not None:
        with suppress(OSError, ValueError):  # a full disk, a closed file
            sys.__stdout__.flush()
    ctypes.CDLL(None).fflush(None)

"""`loaderprobe.diagnose`: what binds a user's own loader, and a user's own step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from loaderprobe.analyze.verdict import verdict
from loaderprobe.api.own import Asked, measure_loader
from loaderprobe.errors import BadValue, LoaderprobeError
from loaderprobe.measure.session import OnStage
from loaderprobe.measure.trouble import explain_error
from loaderprobe.protocols import Clock, Compute
from loaderprobe.records.config import BatchFiles, CacheState
from loaderprobe.records.diagnosis import Findings
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import Verdict
from loaderprobe.render.diagnosis import notebook, terminal
from loaderprobe.system.memory import memory_bytes
from loaderprobe.units import format_bytes, significant

# Of memory, what a data set may take and still stay there beside training.
MEMORY_SHARE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Findings):
    """What binds a loader, why, and what would change it. Prints itself in terminals and notebooks."""

    measurement: Measurement
    """The raw times and counters that everything else follows from."""

    def to_dict(self) -> dict[str, Any]:
        """The findings, without the measurement, as plain dicts, lists, strings and numbers."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "measurement"}
        plain: dict[str, Any] = msgspec.to_builtins(found)
        return plain

    def __str__(self) -> str:
        return terminal(self)

    def __rich__(self) -> str:
        # Brackets are text here, not rich's markup.
        return terminal(self).rstrip("\n").replace("[", r"\[")

    def _repr_html_(self) -> str:
        return notebook(self)


def diagnose(
    loader: Any,
    step: Callable[[Any], Any] | None = None,
    *,
    budget_s: float = 30.0,
    cache: CacheState = "cold",
    progress: OnStage | None = None,
) -> Diagnosis:
    """Find out what binds training with this `torch.utils.data.DataLoader`, by taking each resource away.

    `step(batch)` trains on one batch, and is really called, over and over; without it the loader alone is
    judged. A copy of the loader is driven, with workers of its own: the loader, its sampler and all random
    generators are left as they were. With `num_workers=0` the data set itself runs in this process, as in training.

    `budget_s` is wall seconds. `cache` is the state of the files that is judged: `cold`, as in an epoch over
    more data than memory holds, or `warm`. `progress(stage, done, total)` hears what is being done.

    Raises BadValue for what is no DataLoader, for a loader without batches and for a budget that is not
    positive; LoaderprobeError when the data set or the step raises, or a worker dies.
    """
    if not budget_s > 0:
        raise BadValue(f"the budget is {budget_s} s", hint="give at least some ten seconds")
    if cache not in ("cold", "warm"):
        raise BadValue(f"'{cache}' is not a state of the cache", hint="use cold or warm")
    asked = Asked(cache=cache, budget_s=budget_s)
    on_stage = progress or (lambda stage, done, total: None)
    try:
        measured, files = measure_loader(loader, _compute(step), asked, on_stage)
    except LoaderprobeError:
        raise
    except Exception as error:
        reason, hint = explain_error(error)
        raise LoaderprobeError(
            reason if reason.startswith(("the data set", "a loader worker")) else f"the loader raised {reason}",
            hint=hint or "iterate over the loader yourself; it is as it was",
        ) from error
    return _diagnosis(loader, measured, files, verdict(measured), step is not None)


def _compute(step: Callable[[Any], Any] | None) -> Callable[[Clock], Compute]:

    def make(clock: Clock) -> Compute:
        from loaderprobe.compute.step import NoCompute, StepCompute

        return NoCompute(clock) if step is None else StepCompute(step, clock)

    return make


def _diagnosis(
    loader: Any, measured: Measurement, files: BatchFiles | str, judged: Verdict, with_step: bool
) -> Diagnosis:
    sample = "images" if measured.images else "samples"
    return Diagnosis(
        side=judged.bound.side,
        cause=judged.bound.cause,
        candidates=judged.bound.candidates,
        sentence=judged.bound.sentence.replace("images/s", f"{sample}/s"),
        sample=sample,
        workers=measured.config.workers,
        batch_size=measured.config.batch_size,
        with_step=with_step,
        images_per_s=judged.images_per_s,
        ceilings=judged.rates,
        gains=judged.gains,
        # Without a step nobody asked what to train on.
        advice=tuple(each for each in judged.advice if with_step or (each.gain > 1 and each.binds != "compute")),
        evidence=judged.bound.evidence,
        notes=(*measured.notes, *_about_files(loader, files, judged)),
        unavailable=judged.unavailable,
        instrument_cpu_fraction=judged.instrument_cpu_fraction,
        wall_s=measured.wall_s,
        measurement=measured,
    )


def _about_files(loader: Any, files: BatchFiles | str, judged: Verdict) -> list[str]:
    """Where the files are hidden, what that means; where all of them fit in memory, what later epochs find."""
    if isinstance(files, str):
        return [f"{files}, so they were read as found, and gains are estimated from what workers wait for"]
    per_sample = sum(files.size_bytes) / files.count
    memory = memory_bytes()
    warm = judged.rates.loader_without_storage
    try:
        total = per_sample * len(loader.dataset)
    except TypeError:
        return []  # an iterable need not know its length
    if memory is None or warm is None or total > MEMORY_SHARE * memory:
        return []
    return [
        f"all files together are about {format_bytes(total)} and may stay in memory after the first epoch: the loader "
        f"alone then delivers {significant(warm)} a second"
    ]

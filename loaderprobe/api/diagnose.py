"""`loaderprobe.diagnose`: what limits a user's own loader and step."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loaderprobe.analyze.forecast.advice import DataPlace, Surroundings, recommend
from loaderprobe.analyze.forecast.fit import Storage
from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.report import ranks_view
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.analyze.verdict.ranks import own_shares
from loaderprobe.analyze.verdict.rates import function_times, rate_interval
from loaderprobe.analyze.verdict.rounds import one_thread_notes
from loaderprobe.analyze.verdict.validity import (
    EpochRates,
    ceiling_phase,
    counted,
    disturbance_notes,
    epochs,
)
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.values import unheard
from loaderprobe.errors import BadValue
from loaderprobe.measure.own.loader import LoaderRequest, measure_with_step
from loaderprobe.measure.ranks.launch import Lead, parse_layout, spread
from loaderprobe.measure.session import OnStage
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.config import CacheState
from loaderprobe.records.diagnosis import DataFound, Findings, OwnLoader, OwnMeasured
from loaderprobe.records.measurement import Measurement, base_mode, judged_activity, segments_of
from loaderprobe.records.remark import Remark
from loaderprobe.records.thresholds import AMPLIFIED, MEMORY_SHARE
from loaderprobe.records.verdict import Advice, Interval, Verdict
from loaderprobe.render.diagnosis import diagnosis_document, rate_columns
from loaderprobe.render.document import Document
from loaderprobe.render.words import action_words, sentence
from loaderprobe.system.launcher import launched
from loaderprobe.system.limits import memory_bytes

# What speaks of a device that trains, where there is no step.
OF_TRAINING = ("speedups.compute", "accelerator_utilization", "input_wait_fraction")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Documented, Findings):
    """What limits a loader, why, and what would change it. Prints itself in terminals and notebooks."""

    measurement: Measurement
    """The raw times and counters that everything else follows from."""
    ceiling: StorageCeiling | None = None
    """What the storage under the files delivers; None where that was not needed, and in results of older versions."""
    dataset_samples: int | None = None
    """In the whole data set; None where it has no length, and in results of older versions."""

    def to_dict(self) -> dict[str, Any]:
        """The findings, without what was measured, as plain dicts, lists, strings and numbers."""
        plain: dict[str, Any] = json.loads(self.json())
        del plain["measurement"], plain["ceiling"]
        return plain

    def document(self) -> Document:
        """The verdict first, then the rates that it follows from."""
        measured = self.measurement
        seen = ranks_view(measured, verdict(measured, self.ceiling)) if measured.by_rank else None
        return diagnosis_document(self, seen)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        return rate_columns(self)

    def headline(self) -> str:
        """The verdict in a sentence."""
        return self.sentence


def diagnose(
    loader: Any,
    step: Callable[[Any], Any] | None = None,
    *,
    budget_s: float = 30.0,
    cache: CacheState = "cold",
    progress: OnStage | None = None,
) -> Diagnosis:
    """Find out what limits training with this `torch.utils.data.DataLoader`, by removing each resource.

    `step(batch)` trains on one batch, and is really called, over and over; without it the loader alone is
    judged. A copy of the loader is driven, with workers of its own: the loader, its sampler and all random
    generators are left as they were. With `num_workers=0` the data set itself runs in this process, as in training.

    `budget_s` is wall seconds; one round is measured in any case, if it does not take much longer. `cache` is the
    state of the files that is judged: `cold`, as in an epoch over more data than memory holds, or `warm`.
    `progress(stage, done, total)` hears what is being done.

    Raises BadValue for what is no DataLoader, for a loader without batches, for a budget that is too small and in one
    of several processes that train together; LoaderprobeError, with its cause, when the data set or the step raises,
    or a worker dies.
    """
    check_asked(step, budget_s, cache)
    _check_alone()
    return judge_loader(loader, step, LoaderRequest(cache=cache, budget_s=budget_s), progress)


def check_asked(step: Any, budget_s: float, cache: str) -> None:
    """Raises BadValue for what is no step, no budget or no state of the cache."""
    if not budget_s > 0:
        raise BadValue(f"the budget is {budget_s} s", hint="give at least some ten seconds")
    if cache not in ("cold", "warm"):
        raise BadValue(f"'{cache}' is not a state of the cache", hint="use cold or warm")
    if step is not None and not callable(step):
        raise BadValue(f"the step is a {type(step).__name__}", hint="give a function that trains on one batch")


def _check_alone() -> None:
    """Raises BadValue in a process that trains together with others: each would take another number of steps."""
    from loaderprobe.loaders.attached import ranks_in_use

    if launched(os.environ) or ranks_in_use() > 1:
        raise BadValue(
            "this program is one of several that train together, and each would measure its loader out of step",
            hint="torchrun ... -m loaderprobe diagnose train.py:make_loader, or loaderprobe run -- torchrun ...",
        )


def judge_loader(
    loader: Any,
    step: Callable[[Any], Any] | None,
    asked: LoaderRequest,
    progress: OnStage | None = None,
    command: str = "loaderprobe.diagnose(...)",
) -> Diagnosis:
    """The same, measured as `asked`; `command` is for the report."""
    return diagnosis_of(measure_with_step(loader, step, asked, progress or unheard), command)


def diagnosis_of(found: OwnMeasured, command: str) -> Diagnosis:
    """The verdict on a measurement, with the ceiling of its storage where there is one."""
    judged = verdict(found.measurement, found.ceiling)
    return conclude(found.measurement, judged, found.data, found.with_step, command, found.ceiling)


def _fits(data: DataFound) -> bool:
    """True when all files can stay in memory beside training."""
    return data.size_bytes is not None and data.size_bytes <= MEMORY_SHARE * memory_bytes()


def _place(data: DataFound) -> DataPlace | None:
    """For advice: nothing is to be read into memory from a folder that may hold anything."""
    if data.size_bytes is None or (_fits(data) and not data.root):
        return None
    return DataPlace(root=data.root, size_bytes=data.size_bytes, memory_bytes=memory_bytes())


def conclude(
    measured: Measurement, judged: Verdict, data: DataFound, with_step: bool, command: str = "",
    ceiling: StorageCeiling | None = None,
) -> Diagnosis:  # fmt: skip
    """The verdict, in words that fit a loader of one's own."""
    sample = "image" if measured.images else "sample"
    rounds = len(segments_of(measured, base_mode(measured), judged_activity(measured)))
    gone = {} if with_step else dict.fromkeys(("speedups.compute", "ceilings.compute"), Remark(code="no_step"))
    unavailable = {name.replace("rates_images_per_s.", "ceilings."): why for name, why in judged.unavailable.items()}
    kept = epochs(measured)
    now = judged.images_per_s if with_step else _alone(measured)
    return Diagnosis(
        origin=origin_now(command),
        side=judged.bound.side,
        cause=judged.bound.cause,
        candidates=judged.bound.candidates,
        reason=judged.bound.reason,
        sentence=sentence(judged.bound, sample=sample),
        sample=f"{sample}s",
        ranks=measured.ranks,
        workers=measured.config.loader.workers,
        batch_size=measured.config.compute.batch_size * measured.config.ranks // measured.ranks,
        prefetch_factor=measured.config.loader.prefetch_factor,
        cache=measured.config.cache,
        files_were=judged.files_were,
        first_epoch_images_per_s=kept.first if kept else None,
        later_epochs_images_per_s=kept.later if kept else None,
        rounds=rounds,
        with_step=with_step,
        images_per_s=now,
        ceilings=judged.rates_images_per_s if with_step else replace(judged.rates_images_per_s, compute=None),
        speedups=judged.speedups if with_step else replace(judged.speedups, compute=None),
        advice=tuple(
            replace(each, sentence=action_words(each.action, sample=sample))
            for each in (*own_shares(measured.notes, now), *_advice(measured, ceiling, data, with_step))
        ),
        evidence=tuple(each for each in judged.bound.evidence if with_step or each.metric not in OF_TRAINING),
        notes=(
            *measured.notes,
            *disturbance_notes([measured]),
            *_notes(judged, data, rounds, kept, f"{sample}s/s"),
            *_read_ahead(measured, judged, ceiling, data, f"{sample}s/s"),
            *one_thread_notes(measured),
            *_storage_alone(judged, ceiling, measured.config.readers),
        ),
        unavailable={name: why for name, why in unavailable.items() if name.startswith(("speedups.", "ceilings."))}
        | gone,
        functions=function_times(measured.stacks),
        looks=sum(measured.stacks.counts) if measured.stacks else 0,
        looks_cpu_s=measured.stacks.cpu_ns / 1e9 if measured.stacks else 0.0,
        instrument_cpu_fraction=judged.instrument_cpu_fraction,
        wall_s=measured.wall_s,
        measurement=measured,
        ceiling=ceiling,
        dataset_samples=data.samples,
    )


def _alone(measured: Measurement) -> Interval:
    """The loader without a step, over the rounds that count."""
    measured = counted(measured)
    return rate_interval(measured, segments_of(measured, base_mode(measured), "loader_only"))


def _advice(
    measured: Measurement, ceiling: StorageCeiling | None, data: DataFound, with_step: bool
) -> tuple[Advice, ...]:
    """Without a step, no advice about accelerators."""
    around = Surroundings(place=_place(data), storage=Storage(ceiling=ceiling))
    found = recommend(measured, run_experiments(measured, ceiling), around).advice
    return (
        found if with_step else tuple(each for each in found if each.speedup > 1 and each.action.code != "accelerator")
    )


def _storage_alone(judged: Verdict, ceiling: StorageCeiling | None, readers: int) -> tuple[Remark, ...]:
    """What the storage delivers to as many readers that do nothing else, beside what is read from it here."""
    phase, read = ceiling.at(readers) if ceiling else None, judged.disk_read_bytes_per_s
    if phase is None or phase.cache != "cold" or not read:
        return ()
    facts: dict[str, float | str] = {
        "alone_bytes_per_s": phase.moved_bytes_per_s, "readers": readers, "read_bytes_per_s": read,
        "share": read / phase.moved_bytes_per_s, "at_least": "yes" if phase.at_least else "no",
    }  # fmt: skip
    return (Remark(code="storage_alone", facts=facts),)


def _read_ahead(
    measured: Measurement, judged: Verdict, ceiling: StorageCeiling | None, data: DataFound, unit: str
) -> list[Remark]:
    """What is read in vain around each sample; what the epochs of a set find that it brings into memory at once."""
    size, times = measured.sample_bytes, judged.read_amplification
    if size is None or times is None or times < AMPLIFIED:
        return []
    alone = _alone(measured)
    facts: dict[str, float | str] = {
        "sample_bytes": size, "read_bytes": size * times, "amplification": times, "low_per_s": alone.low,
        "high_per_s": alone.high, "unit": unit,
    }  # fmt: skip
    found = [Remark(code="read_ahead", facts=facts)]
    phase, _ = ceiling_phase(measured, ceiling, measured.config.readers)
    later, total = judged.rates_images_per_s.loader_without_storage, size * (data.samples or 0)
    if phase is None or later is None or not data.samples or total > MEMORY_SHARE * memory_bytes():
        return found
    storage_s, rest_s = total / phase.bw_bytes, data.samples / later
    facts = {
        "size_bytes": total, "within_s": storage_s, "low_per_s": data.samples / (storage_s + rest_s),
        "high_per_s": data.samples / max(storage_s, rest_s), "memory_per_s": later, "unit": unit,
        "how": "estimated" if judged.speedups.storage is None else judged.speedups.storage.how,
    }  # fmt: skip
    return [*found, Remark(code="small_set", facts=facts)]


def _notes(judged: Verdict, data: DataFound, rounds: int, kept: EpochRates | None, unit: str) -> list[Remark]:
    """What hidden files mean; what later epochs find where samples are kept, or all files fit in memory."""
    found = []
    if rounds == 1:
        found.append(Remark(code="one_round"))
    if data.hidden and data.hidden.code == "none_read":
        found.append(Remark(code="reads_no_files"))
    elif data.hidden:
        found.append(Remark(code="files_hidden", facts={"because": data.hidden.code}))
    if kept is not None:
        facts: dict[str, float | str] = {"first_per_s": kept.first, "unit": unit, "judged": kept.judged}
        later: dict[str, float | str] = {"later_per_s": kept.later} if kept.later else {}
        found.append(Remark(code="samples_kept", facts=facts | later))
    warm, speedup = judged.rates_images_per_s.loader_without_storage, judged.speedups.storage
    if _fits(data) and data.size_bytes and warm is not None and speedup is not None:
        facts = {"size_bytes": data.size_bytes, "warm_per_s": warm, "unit": unit}
        found.append(Remark(code="fits_in_memory", facts=facts))
    return found


# `diagnose` by ranks: the user's own loader, made by a function of the user's in each of them, measured in step.

BUDGET_S, RANKS_BUDGET_S = 30.0, 60.0
"""Unless asked for: of one process, and of ranks, which measure more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAsked:
    """Whose loader is measured, and how."""

    own: OwnLoader
    cache: CacheState = "cold"
    budget_s: float | None = None
    """None for the usual one."""
    command: str = ""


def diagnose_own(asked: OwnAsked, progress: OnStage) -> Diagnosis:
    """Measure the loader in this process, by itself. Raises what `diagnose` raises, and what its function does."""
    from loaderprobe.measure.own.function import made

    budget_s = BUDGET_S if asked.budget_s is None else asked.budget_s
    check_asked(None, budget_s, asked.cache)
    loader, step = made(asked.own)
    how = LoaderRequest(cache=asked.cache, budget_s=budget_s)
    return judge_loader(loader, step, how, _over(budget_s, progress), asked.command)


def diagnose_ranks(lead: Lead | None, asked: OwnAsked, ranks: str | None, progress: OnStage) -> Diagnosis:
    """Measure it in as many ranks as are asked for, or as a launcher started processes, each in a child of one of them.

    Without a launcher (None) those are of this machine.

    Raises what the rank ended with in which it began, named with its host; BadValue for what the processes cannot do.
    """
    from loaderprobe.measure.child import forkserver
    from loaderprobe.measure.own.function import measure_in_ranks
    from loaderprobe.measure.ranks.launch import on_this_machine

    if lead is None:
        assert ranks is not None
        with on_this_machine(ranks_here(ranks), forkserver) as lead:
            return diagnose_ranks(lead, asked, ranks, progress)
    budget_s = RANKS_BUDGET_S if asked.budget_s is None else asked.budget_s
    check_asked(None, budget_s, asked.cache)
    count, over = one_layout(ranks, lead)
    if count == 1:
        raise BadValue("one rank is measured by a process that no launcher started", hint="start it without one")
    found = measure_in_ranks(
        asked.own, lead, count, over, cache=asked.cache, budget_s=budget_s, on_stage=_over(budget_s, progress)
    )
    return concluded(found, asked.command)


def one_layout(ranks: str | None, lead: Lead) -> tuple[int, int]:
    """(ranks, nodes) that are asked for, or all that there are. Raises BadValue for several, or too many."""
    from loaderprobe.api.sweep_request import layouts_of

    (layout, *others) = layouts_of(ranks, lead.nodes)
    if others:
        raise BadValue(f"--ranks {ranks} names several numbers, and diagnose measures one", hint="give one number")
    return spread(layout, lead.nodes)


def ranks_here(ranks: str) -> int:
    """That `--ranks` asks for on this machine. Raises BadValue, also for several numbers or nodes."""
    if "," in ranks:
        raise BadValue(f"--ranks {ranks} names several numbers, and diagnose measures one", hint="give one number")
    return spread(parse_layout(ranks), None)[0]


def concluded(found: OwnMeasured, command: str) -> Diagnosis:
    """The verdict on what all ranks measured."""
    measured = found.measurement
    exchange = (
        "compute" if found.with_step and "no_exchange" not in {segment.mode for segment in measured.segments} else ""
    )
    facts: dict[str, float | str] = {
        "ranks": measured.ranks, "hosts": len({rank.host for rank in measured.by_rank}), "exchange": exchange,
    }  # fmt: skip
    measured = replace(measured, notes=(Remark(code="ranks_in_step", facts=facts), *measured.notes))
    return diagnosis_of(replace(found, measurement=measured), command)


def _over(budget_s: float, progress: OnStage) -> Callable[[str, int, int], None]:
    """Progress in seconds of the budget, of stages as they begin."""
    begun_s = time.monotonic()

    def heard(stage: str, *_: int) -> None:
        done = round(time.monotonic() - begun_s)
        progress(stage, done, max(done, round(budget_s)))

    return heard

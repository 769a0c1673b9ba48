"""Advice: what to change, what to type, and the images/s before and after. Only from forecasts that were made.

Pinned memory is not among them: nothing here measures what it gains.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from loaderprobe.analyze.caches import page_cache_hits
from loaderprobe.analyze.forecast.accelerators import Option, accelerators, enough, one_accelerator
from loaderprobe.analyze.forecast.changes import (
    alternative,
    cached,
    disk,
    examples,
    pinned,
    prefetch,
    refused,
)  # fmt: skip
from loaderprobe.analyze.forecast.fit import Fit, fit
from loaderprobe.analyze.forecast.knee import WITHIN, worker_forecasts
from loaderprobe.analyze.forecast.point import Point, point_of
from loaderprobe.analyze.forecast.rank_remedies import rank_remedies
from loaderprobe.analyze.forecast.remedies import remedies
from loaderprobe.analyze.forecast.schedule import batch_seconds
from loaderprobe.analyze.forecast.service import Storage
from loaderprobe.analyze.verdict.counted import counted
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.one_thread import compared
from loaderprobe.analyze.verdict.rates import rate_interval, segments_of
from loaderprobe.analyze.verdict.rule import cores_are_busy
from loaderprobe.analyze.verdict.speedups import judged_activity
from loaderprobe.records.forecast import Forecast, Refusal
from loaderprobe.records.measurement import Alternative, Measurement
from loaderprobe.records.verdict import WORTH, Action, ActionCode, Advice, Interval
from loaderprobe.stats import median

# Data of up to this share of memory can be kept there; the rest is for training.
MEMORY_SHARE = 0.7
PREFETCH_FACTORS = (2, 4, 8)
FAR_BELOW = 0.1
"""Storage of which less is read than this share of what it gave to as many readers that did nothing else is no limit:
faster storage would gain at most a tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the data are, and whether they would fit in memory."""

    root: str
    size_bytes: float
    memory_bytes: float

    @property
    def fits(self) -> bool:
        """True when the whole data set can stay in memory."""
        return self.size_bytes <= MEMORY_SHARE * self.memory_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside one measurement."""

    storage: Storage = field(default_factory=Storage)
    neighbours: tuple[Point, ...] = ()
    """Of the same data, pipeline and compute, with other numbers of workers."""
    workers: Mapping[int, Forecast] = field(default_factory=dict)
    """By number of workers, where they were made for all neighbours together."""
    place: Place | None = None
    accelerators: Mapping[str, float] = field(default_factory=dict)
    """Images/s by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """All changes that were looked at, the refused with their reason among them; and those worth making."""

    forecasts: tuple[Forecast, ...]
    advice: tuple[Advice, ...]


def advise(measurement: Measurement, found: Experiments, around: Surroundings | None = None) -> tuple[Advice, ...]:
    """Changes that gain enough, largest speed-up first; then, with speed-up 1, what would be wasted."""
    return recommend(measurement, found, around or Surroundings()).advice


def recommend(measurement: Measurement, found: Experiments, around: Surroundings) -> Recommendation:
    """Forecasts and advice for one measured configuration; waiting that no law knows has advice of its own.

    First what costs a few characters: where the threads of a serial loader spin, and one thread was measured to gain.
    All from the segments that count, as the verdict.
    """
    measurement = counted(measurement)
    by_laws = _by_laws(measurement, found, around)
    own = (*_one_thread(measurement, found), *rank_remedies(measurement, found), *remedies(measurement, found))
    if not own:
        return by_laws
    # That nothing on the input side helps is not true then.
    named = {each.action.code for each in own}
    rest = [each for each in by_laws.advice if each.speedup > 1 and each.action.code not in named]
    return replace(by_laws, advice=(*own, *rest))


def _one_thread(measurement: Measurement, found: Experiments) -> tuple[Advice, ...]:
    """As tried: the rate of all rounds, and what it gained in those that had both."""
    tried = compared(measurement)
    if tried is None or not tried.gains or not found.end_to_end:
        return ()
    segments = segments_of(measurement, found.base, judged_activity(measurement))
    before = rate_interval(measurement, segments)
    ratio = median(list(tried.ratios.values()))
    # A gain is beyond the spread, so that even the low end is one.
    low = min(each / (1 + tried.spread.get(n, 0.0)) for n, each in tried.ratios.items())
    high = max(each * (1 + tried.spread.get(n, 0.0)) for n, each in tried.ratios.items())
    now = before.value
    return (
        Advice(
            action=Action(code="one_thread", facts={}),
            command=_ON_ONE_THREAD,
            speedup=ratio,
            before=before,
            after=Interval(value=now * ratio, low=now * low, high=now * high),
            how="measured",
        ),
    )


# As it was measured: the step keeps its threads.
_ON_ONE_THREAD = (
    "n = torch.get_num_threads(); torch.set_num_threads(1); batch = next(batches); torch.set_num_threads(n)"
)


def _by_laws(measurement: Measurement, found: Experiments, around: Surroundings) -> Recommendation:
    point = point_of(measurement, found)
    if isinstance(point, Refusal):
        return Recommendation(forecasts=(refused("workers", "any other", point),), advice=())
    others = [each for each in around.neighbours if each.workers != point.workers]
    fitted = fit((point, *others), point, around.storage)
    if isinstance(fitted, Refusal):
        return Recommendation(forecasts=(refused("workers", "any other", fitted),), advice=())
    by_workers = around.workers or worker_forecasts((point, *others), around.storage)
    config = measurement.config
    taken = cores_are_busy(found, workers=config.loader.workers, cores_available=measurement.cores_available)
    made = (
        *_workers(point, by_workers, taken=taken),
        *_prefetch(fitted, measurement, found),
        *_storage(fitted, around.place),
        *(_alternative(fitted, each) for each in measurement.alternatives),
        *accelerators(fitted, around.accelerators, found),
    )
    also = examples(fitted, config.compute.batch_size, measurement.compute.specified_images_per_s)
    before = _measured(point)
    considered = one_accelerator(made)
    worth = [
        advice
        for option in considered
        if (advice := _as_tried(_advice(option, before), found))
        and _is_worth(advice)
        and not _denied(option, found)
        and not (option.forecast.changed == "disk_speed" and _has_reserve(measurement, point, around.storage))
    ]
    return Recommendation(
        forecasts=(*(option.forecast for option in made), *also),
        advice=(*sorted(worth, key=lambda each: -each.speedup), *_wasted(point, made, worth, before)),
    )


def _workers(point: Point, by_workers: Mapping[int, Forecast], *, taken: bool) -> list[Option]:
    """The smallest number of workers that is within 2 % of the best; not more of them where the cores are taken."""
    rates = {
        number: each.images_per_s.value
        for number, each in by_workers.items()
        if each.images_per_s and (number <= point.workers or not taken)
    }
    best = max(rates.values(), default=0.0)
    chosen = next((number for number in sorted(rates) if rates[number] >= WITHIN * best), None)
    if chosen is None or chosen == point.workers:
        return [Option(forecast=each) for each in by_workers.values() if each.refused][:1]
    action = Action(code="workers", facts={"workers": chosen})
    return [Option(forecast=by_workers[chosen], action=action, command=f"num_workers={chosen}")]


def _prefetch(fitted: Fit, measurement: Measurement, found: Experiments) -> list[Option]:
    """The smallest prefetch factor that is within 2 % of the best."""
    before = measurement.config.loader.prefetch_factor
    rounds = batch_seconds(measurement, found.base)
    made = {n: prefetch(fitted, n, before, rounds) for n in PREFETCH_FACTORS if n > before}
    rates = {number: each.images_per_s.value for number, each in made.items() if each.images_per_s}
    best = max(rates.values(), default=0.0)
    chosen = next((number for number in sorted(rates) if rates[number] >= WITHIN * best), None)
    if chosen is None:
        return [Option(forecast=each) for each in made.values()][:1]
    action = Action(code="prefetch", facts={"batches": chosen})
    return [Option(forecast=made[chosen], action=action, command=f"prefetch_factor={chosen}")]


def _storage(fitted: Fit, place: Place | None) -> list[Option]:
    return [*_in_memory(fitted, place), _faster_storage(fitted)] if fitted.anchor.from_storage else []


def _in_memory(fitted: Fit, place: Place | None) -> list[Option]:
    """All files in the page cache; of a larger set a part, pinned or in the page cache. No place: size not known."""
    if place is None:
        return [Option(forecast=cached(fitted, 1.0))]
    if place.fits:
        command = f"find {shlex.quote(place.root)} -type f -exec cat {{}} + >/dev/null" if place.root else ""
        action = Action(code="files_in_memory", facts={"share": 1.0, "bytes": place.size_bytes})
        return [Option(forecast=cached(fitted, 1.0), action=action, command=command)]
    share = MEMORY_SHARE * place.memory_bytes / place.size_bytes
    hits = page_cache_hits(share)
    part: dict[str, float | str] = {"share": share, "bytes": share * place.size_bytes}
    page = Action(code="files_in_memory", facts={**part, "hits_low": hits.low, "hits_high": hits.high})
    pin = Action(code="files_pinned", facts=part)
    return [Option(forecast=pinned(fitted, share), action=pin), Option(forecast=cached(fitted, share), action=page)]


def _faster_storage(fitted: Fit) -> Option:
    factor = enough(lambda factor: disk(fitted, factor))
    forecast = disk(fitted, factor)
    if forecast.images_per_s is None:
        return Option(forecast=forecast)
    needs = forecast.images_per_s.value * fitted.anchor.bytes_per_image
    facts: dict[str, float | str] = {"factor": factor}
    if needs:
        facts["bytes_per_s"] = needs
    return Option(forecast=forecast, action=Action(code="faster_storage", facts=facts))


def _alternative(fitted: Fit, measured: Alternative) -> Option:
    forecast = alternative(fitted, measured)
    code: ActionCode = "tensor" if measured.name == "uint8" else "decoder"
    action = Action(code=code, facts={code: measured.name})
    return Option(forecast=forecast, action=action, command=f"--{code} {measured.name}")


def _measured(point: Point) -> Interval:
    margin = point.training_spread
    return Interval(value=point.training, low=point.training * (1 - margin), high=point.training * (1 + margin))


def _advice(option: Option, before: Interval) -> Advice | None:
    """None where the forecast was refused, or nothing can be done to bring it about."""
    forecast = option.forecast
    if forecast.images_per_s is None or option.action is None:
        return None
    return Advice(
        action=option.action,
        command=option.command,
        speedup=forecast.images_per_s.value / before.value,
        before=before,
        after=forecast.images_per_s,
        how=forecast.how,
        bottleneck=forecast.bottleneck,
    )


def _as_tried(advice: Advice | None, found: Experiments) -> Advice | None:
    """Free storage was tried: all files in memory gain what that gained, and faster storage no more.

    Where the loader alone was, training is predicted from it: the range is at least that of the forecast.
    """
    free = found.speedups.get("storage")
    if advice is None or free is None or free.how != "measured":
        return advice
    now = advice.before.value
    if advice.action.code == "files_in_memory" and advice.action.facts["share"] == 1:
        after = Interval(value=now * free.value, low=now * free.low, high=now * free.high)
        if advice.how != "measured":
            law, value = advice.after, after.value
            low, high = min(after.low, value * law.low / law.value), max(after.high, value * law.high / law.value)
            after = Interval(value=value, low=low, high=high)
        return replace(advice, speedup=free.value, after=after)
    if advice.action.code == "faster_storage" and advice.speedup > free.value:
        most = now * free.value
        return replace(
            advice, speedup=free.value, after=replace(advice.after, value=most, low=min(most, advice.after.low))
        )
    return advice


def _has_reserve(measurement: Measurement, point: Point, storage: Storage) -> bool:
    """True where the storage gave far more to as many readers that did nothing else."""
    phase = storage.ceiling.at(measurement.config.readers) if storage.ceiling else None
    read = point.training * point.bytes_per_image
    return phase is not None and phase.cache == "cold" and read < FAR_BELOW * phase.bw_bytes


def _denied(option: Option, found: Experiments) -> bool:
    """True where a law promises from storage what the experiment, or the workers' waiting, does not."""
    speedup = found.speedups.get("storage")
    of_storage = option.forecast.changed in ("disk_speed", "page_cache_share", "pinned_share")
    return of_storage and (speedup is None or speedup.value < WORTH)


def _is_worth(advice: Advice) -> bool:
    """Speedups enough, and more than the measured rate itself varied."""
    return advice.speedup >= WORTH and advice.after.value > advice.before.high


def _wasted(point: Point, made: Sequence[Option], worth: Sequence[Advice], before: Interval) -> list[Advice]:
    """Changes that would gain nothing, with the figure that shows it."""
    faster = [option for option in made if option.forecast.changed == "accelerator" and option.forecast.images_per_s]
    helping = {advice.action.code for advice in worth}
    useless: list[Action] = []
    if faster and "accelerator" not in helping:
        useless.append(Action(code="accelerator_gains_nothing", facts={"until_images_per_s": point.compute}))
    # Training on a loader without end runs at what compute alone reaches.
    if point.compute < WORTH * point.training and not helping - {"accelerator"}:
        share = min(1.0, point.training / point.compute)
        useless.append(Action(code="input_gains_nothing", facts={"share": share}))
    return [Advice(action=each, speedup=1.0, before=before, after=before, how="measured") for each in useless]

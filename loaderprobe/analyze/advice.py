"""Advice: what to change, what to type, and the images/s before and after. Only from forecasts that were made.

Pinned memory is not among them: nothing here measures what it gains.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from loaderprobe.analyze.effects import fewest, ranked
from loaderprobe.analyze.forecast import (
    Fit,
    Point,
    Surroundings,
    accelerator,
    alternative,
    cached,
    disk,
    examples,
    find_knee,
    fit,
    measured,
    page_cache_hits,
    pinned,
    point_of,
    refused,
    shards,
    worker_forecasts,
)
from loaderprobe.analyze.verdict.experiments import Experiments
from loaderprobe.analyze.verdict.judge import contenders, cores_are_busy, ranks_wait_for, speedups_among
from loaderprobe.analyze.verdict.one_thread import cores_used, gain_on_one_thread
from loaderprobe.analyze.verdict.rates import SlowHost
from loaderprobe.analyze.verdict.validity import never_warm
from loaderprobe.records import by_key, thresholds
from loaderprobe.records.config import ANY_LAYOUT, PUBLISHED_MODEL, RECIPES, ComputeSpec, alike_but_for
from loaderprobe.records.measurement import OWN_STEP, Alternative, segments_of
from loaderprobe.records.phases import FROM_STORAGE, StorageCeiling
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.resources import INPUTS, REMEDIES, SingleCause
from loaderprobe.records.verdict import Action, ActionCode, Advice, Changed, Forecast, Interval, Knee
from loaderprobe.stats import median


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceOption:
    """A forecast, and how to bring it about."""

    forecast: Forecast
    action: Action | None = None
    """None where nothing can be done to bring it about."""
    command: str = ""


def _alike(known: Mapping[str, float], compute: ComputeSpec) -> Mapping[str, float]:
    """The known ones whose rates are of the same kind, benchmark or training, and of the model that trains."""
    if compute.model != PUBLISHED_MODEL:
        return {}
    paced = compute.argument in RECIPES
    return {name: rate for name, rate in known.items() if (name in RECIPES) == paced}


def accelerators(fitted: Fit, known: Mapping[str, float], trials: Experiments) -> list[AdviceOption]:
    """The known ones that are faster, the slowest first, and one just fast enough for the loader; one for each rank.

    None where ranks exchange gradients for a time that counts: a faster device waits for them all the same.
    """
    gradients = trials.speedups.get("gradients")
    if gradients is not None and gradients.value >= thresholds.WORTH:
        return [AdviceOption(forecast=refused("accelerator", "a faster one", Remark(code="exchange_of_gradients")))]
    alone, ranks = fitted.anchor.compute, fitted.anchor.ranks
    per_rank: Facts = {"ranks": ranks} if ranks > 1 else {}
    faster = [(name, rate) for name, rate in sorted(known.items(), key=lambda pair: pair[1]) if rate * ranks > alone]
    least = alone * enough(lambda factor: accelerator(fitted, alone * factor, ranged=False)) / ranks
    options = []
    for name, rate in (*faster, ("", least)):
        facts: Facts = {"images_per_s": rate, **({"name": name} if name else {}), **per_rank}
        if trials.measurement.compute.name == OWN_STEP:  # more may be in it than an accelerator does
            batch = fitted.anchor.batch_size
            facts |= {"step_s": batch / (rate * ranks), "now_s": batch / alone}
            if (share := _waiting(trials)) >= thresholds.WAITING_STEP:
                facts |= {"waits_s": share * batch / alone}
        forecast = accelerator(fitted, rate * ranks, name)
        options.append(AdviceOption(forecast=forecast, action=Action(code="accelerator", facts=facts)))
    return options


def _waiting(trials: Experiments) -> float:
    """Of the time of a step that is seen to use no GPU: in which neither it nor others use a core."""
    steps = segments_of(trials.measurement, "resident", "training")
    used = cores_used(steps)
    if trials.measurement.compute.device != "CPU" or used is None:
        return 0.0
    taken = [step.others.cpu_ns / step.others.span_ns for step in steps if step.others]
    return max(0.0, 1 - used - (median(taken) if taken else 0.0))


def enough(made: Callable[[float], Forecast]) -> float:
    """The smallest factor that gains all but 2 % of what any factor gains; the largest where that is refused."""
    best = made(thresholds.MOST_FACTOR).images_per_s
    if best is None:
        return thresholds.MOST_FACTOR
    low, high = 1.0, thresholds.MOST_FACTOR
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        rate = made(middle).images_per_s
        low, high = (low, middle) if rate and rate.value >= (1 - thresholds.ALIKE) * best.value else (middle, high)
    return high


def remedies(trials: Experiments) -> tuple[Advice, ...]:
    """For each resource with a remedy that gains enough, the largest first.

    Waits have a speed-up only where workers were looked at.
    """
    made = [
        _advised(trials, _action(trials, name), max(1.0, _best_per_s(trials, name) / _now(trials)))
        for name in INPUTS
        if name in REMEDIES
        and name in trials.speedups
        and trials.speedups[name].value >= thresholds.WORTH
        and trials.end_to_end
    ]
    worth = (advice for advice in made if advice.speedup >= thresholds.WORTH)
    return tuple(sorted(worth, key=lambda advice: -advice.speedup))


def _action(trials: Experiments, name: SingleCause) -> Action:
    subject = trials.cost.waiting.subjects.get(name, "") if trials.cost and trials.cost.waiting else ""
    facts: Facts = {"subject": subject} if subject else {}
    if name == "network":
        facts["workers"] = max(1, trials.config.loader.workers) * thresholds.MORE_WORKERS
    return Action(code=REMEDIES[name], facts=facts)


def _best_per_s(trials: Experiments, name: SingleCause) -> float:
    """Images/s of training at best: without the wait, or with so many more workers that wait at the same time."""
    now = _now(trials)
    without = now * trials.speedups[name].value
    if name != "network" or trials.cost is None:
        return without
    cpu_s = trials.cost.all_cpu_s / trials.cost.images
    of_cores = trials.loop.cores / cpu_s if cpu_s else without
    return min(now * thresholds.MORE_WORKERS, of_cores, now * max(1.0, trials.free_input_speedup))


def _now(trials: Experiments) -> float:
    return median(trials.end_to_end.values()) if trials.end_to_end else 0.0


def _advised(trials: Experiments, action: Action, factor: float, command: str = "") -> Advice:
    """Estimated to gain this factor at most.

    The range begins at the rate of today: a server, or the holder of a lock, may have no more to give, and the whole of
    what ranks lose is seldom won.
    """
    now = _now(trials)
    return Advice(
        action=action, command=command, speedup=factor, before=Interval(value=now, low=now, high=now),
        after=Interval(value=now * factor, low=now, high=now * factor), how="estimated",
    )  # fmt: skip


def rank_remedies(trials: Experiments) -> tuple[Advice, ...]:
    """The remedy of what leads, and of what is lost beside it; none for one rank."""
    leading = contenders(trials)
    if trials.measurement.ranks < 2 or not leading or not trials.end_to_end:
        return ()
    if "gradients" in leading:
        return (_advised(trials, Action(code=REMEDIES["gradients"]), trials.speedups["gradients"].value),)
    if not any(name in INPUTS for name in leading):
        return ()
    waited_for, slowest, speedups = ranks_wait_for(trials), trials.among.slowest, speedups_among(trials)
    if waited_for == "rank" and slowest:
        slow_rank = Action(code=REMEDIES["imbalance"], facts={"rank": slowest.rank, "host": slowest.host})
        return (_advised(trials, slow_rank, speedups["imbalance"].value),)
    if isinstance(waited_for, SlowHost):
        slow_host = Action(code="slow_host", facts={"slow_host": waited_for.host, "slow_ranks": waited_for.slow})
        return (_advised(trials, slow_host, speedups["imbalance"].value),)
    loader, deep = trials.config.loader, thresholds.DEEP
    if waited_for == "batches" and loader.workers and loader.prefetch_factor < deep:
        # Of what they lose by waiting for each other, at most all.
        prefetch = Action(code="prefetch", facts={"batches": deep})
        return (_advised(trials, prefetch, speedups["straggler"].value, f"prefetch_factor={deep}"),)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """All changes that were looked at, the refused with their reason among them; and those worth making."""

    forecasts: tuple[Forecast, ...]
    advice: tuple[Advice, ...]


def recommend(trials: Experiments, around: Surroundings) -> Recommendation:
    """Forecasts and advice for one measured configuration; waiting that no model knows has advice of its own.

    First what costs a few characters: where the threads of a serial loader spin, and one thread was measured to gain.
    Then changes that gain enough, largest speed-up first; last, with speed-up 1, what would be wasted.
    """
    by_fit = _by_fit(trials, around)
    waits = [wait for remedy in remedies(trials) for wait in _as_known(remedy, trials, around.storage, by_fit.advice)]
    direct = (*_one_thread(trials), *rank_remedies(trials), *waits)
    if not direct:
        return by_fit
    # That nothing on the input side helps is not true then.
    named = {advice.action.code for advice in direct}
    rest = [advice for advice in by_fit.advice if advice.speedup > 1 and advice.action.code not in named]
    return replace(by_fit, advice=(*direct, *rest))


def _as_known(
    remedy: Advice, trials: Experiments, storage: StorageCeiling, by_fit: Sequence[Advice]
) -> tuple[Advice, ...]:
    """More requests where nothing shows what they get; a faster network where many readers get no more."""
    if remedy.action.code != "requests_in_flight":
        return (remedy,)
    point = point_of(trials)
    if storage.device_kind != "unknown" or any(advice.action.code == "faster_network" for advice in by_fit):
        return ()
    if isinstance(point, Remark) or not storage.at_limit(point.read_bytes_per_s):
        return (remedy,)
    free, now = trials.speedups["network"], _now(trials)
    facts: Facts = {"factor": free.value, "bytes_per_s": free.value * point.read_bytes_per_s}
    made = _advised(trials, Action(code="faster_network", facts=facts), free.value)
    return (replace(made, after=free.times(now)),)


def _one_thread(trials: Experiments) -> tuple[Advice, ...]:
    """As tried: the rate of all rounds, and what it gained in those that had both."""
    gain, before = gain_on_one_thread(trials.measurement), trials.rate
    if gain is None or before is None:
        return ()
    return (
        Advice(
            action=Action(code="one_thread"), command=_ON_ONE_THREAD, speedup=gain.value, before=before,
            after=gain.times(before.value), how="measured",
        ),
    )  # fmt: skip


# As it was measured: the step keeps its threads.
_ON_ONE_THREAD = (
    "n = torch.get_num_threads(); torch.set_num_threads(1); batch = next(batches); torch.set_num_threads(n)"
)


def _by_fit(trials: Experiments, around: Surroundings) -> Recommendation:
    measurement, point = trials.measurement, point_of(trials)
    if isinstance(point, Remark):
        return Recommendation(forecasts=(refused("workers", "any other", point),), advice=())
    others = [neighbour for neighbour in around.neighbours if neighbour.workers != point.workers]
    fitted = fit((point, *others), point, around.storage)
    if isinstance(fitted, Remark):
        return Recommendation(forecasts=(refused("workers", "any other", fitted),), advice=())
    sets_workers = not measurement.own_threads
    by_workers = (around.workers or worker_forecasts((point, *others), around.storage)) if sets_workers else {}
    remote, before, lock = measurement.is_remote, point.rate, trials.speedups.get("lock")
    # More workers would only wait longer: for a core, or for the lock.
    taken = bool(cores_are_busy(trials)) or (lock is not None and lock.value >= thresholds.WORTH)
    stored = _storage(fitted, around, trials.config.loader.name, remote=remote)
    made = (
        *_workers(point, by_workers, taken=taken, is_own=trials.config.loader.name == "own"),
        *(_as_tried(option, before, trials) for option in stored),
        *(_alternative(fitted, way) for way in measurement.alternatives if way.name != "decoded"),
    )
    faster = [_as_tried(option, before, trials) for option in accelerators(fitted, around.accelerators, trials)]
    rates = {number: rate.value for number, option in enumerate(faster) if (rate := option.forecast.images_per_s)}
    # Of several accelerators that all gain as much, the first is enough.
    first = fewest(rates)
    worth = [
        advice
        for option in (*made, *(option for number, option in enumerate(faster) if number == first))
        if (advice := _advice(option, before))
        # Enough, and more than the measured rate itself varied.
        and advice.speedup >= thresholds.WORTH
        and advice.after.value > advice.before.high
        and not _denied(option, trials)
        and not (option.forecast.changed == "disk_speed" and _has_reserve(trials, point, around.storage))
    ]
    return Recommendation(
        forecasts=(*(option.forecast for option in (*made, *faster)), *(() if remote else examples(fitted))),
        advice=(*sorted(worth, key=lambda advice: -advice.speedup), *_wasted(trials, point, rates.values(), worth)),
    )


def _workers(point: Point, by_workers: Mapping[int, Forecast], *, taken: bool, is_own: bool) -> list[AdviceOption]:
    """The smallest number of workers within 2 % of the best, for a sweep or one's own code; no more on taken cores."""
    rates = {
        number: forecast.images_per_s
        for number, forecast in by_workers.items()
        if forecast.images_per_s and (number <= point.workers or not taken)
    }
    chosen = fewest(ranked(rates))
    if chosen is None or chosen == point.workers:
        return [AdviceOption(forecast=by_worker) for by_worker in by_workers.values() if by_worker.refused][:1]
    action = Action(code="workers", facts={"workers": chosen})
    command = f"num_workers={chosen}" if is_own else f"--workers {chosen}"
    return [AdviceOption(forecast=by_workers[chosen], action=action, command=command)]


def _storage(fitted: Fit, around: Surroundings, loader: str, *, remote: bool) -> list[AdviceOption]:
    """A faster network only where it is known to be at its limit: no rate makes up for what each request waits."""
    if remote:
        limited = around.storage.at_limit(fitted.anchor.read_bytes_per_s)
        return [_faster_storage(fitted, "faster_network")] if limited else []
    if not fitted.anchor.from_storage:
        return []
    made = [*_in_memory(fitted, around), _faster_storage(fitted)]
    if around.image_bytes and around.read_ahead_bytes:
        large, action = shards(fitted, around), Action(code="shards", facts={})
        command = "--layout tar" if around.generated else "--layout files,tar --convert-to DIR"
        made.append(AdviceOption(forecast=large, action=action, command=command if loader in ANY_LAYOUT else ""))
    return made


def _in_memory(fitted: Fit, around: Surroundings) -> list[AdviceOption]:
    """All files in the page cache; of a larger set a part, pinned or in the page cache."""
    size, room_bytes = around.size_bytes, thresholds.MEMORY_SHARE * around.memory_bytes
    if size is None:
        return [AdviceOption(forecast=cached(fitted, 1.0))]
    if size <= room_bytes:
        command = f"find {shlex.quote(around.root)} -type f -exec cat {{}} + >/dev/null"
        action = Action(code="files_in_memory", facts={"share": 1.0, "bytes": size, "most": room_bytes})
        return [AdviceOption(forecast=cached(fitted, 1.0), action=action, command=command)]
    share = room_bytes / size
    hits = page_cache_hits(share)
    part: Facts = {"share": share, "bytes": share * size}
    page = Action(code="files_in_memory", facts={**part, "hits_low": hits.low, "hits_high": hits.high})
    pin = Action(code="files_pinned", facts=part)
    return [
        AdviceOption(forecast=pinned(fitted, share), action=pin),
        AdviceOption(forecast=cached(fitted, share), action=page),
    ]


def _faster_storage(fitted: Fit, code: ActionCode = "faster_storage") -> AdviceOption:
    factor = enough(lambda factor: disk(fitted, factor, ranged=False))
    forecast = disk(fitted, factor)
    if forecast.images_per_s is None:
        return AdviceOption(forecast=forecast)
    needs = forecast.images_per_s.value * fitted.anchor.bytes_per_image
    facts: Facts = {"factor": factor, **({"bytes_per_s": needs} if needs else {})}
    return AdviceOption(forecast=forecast, action=Action(code=code, facts=facts))


def _alternative(fitted: Fit, measured: Alternative) -> AdviceOption:
    code: ActionCode = "tensor" if measured.name == "uint8" else "decoder"
    action = Action(code=code, facts={code: measured.name})
    return AdviceOption(forecast=alternative(fitted, measured), action=action, command=f"--{code} {measured.name}")


def _advice(option: AdviceOption, before: Interval) -> Advice | None:
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


def _as_tried(option: AdviceOption, before: Interval, trials: Experiments) -> AdviceOption:
    """What was tried free: all files in memory gain what that gained, faster storage and accelerators no more.

    Where the loader alone was, training is predicted from it: the range is at least that of the forecast.
    """
    action, after = option.action, option.forecast.images_per_s
    free = trials.speedups.get("compute" if option.forecast.changed == "accelerator" else "storage")
    if free is None or free.how != "measured" or after is None or action is None:
        return option
    tried = free.times(before.value)
    ratio = tried.value / after.value
    if action.code == "files_in_memory" and action.facts["share"] == 1:
        if option.forecast.how != "measured":
            tried = replace(tried, low=min(tried.low, ratio * after.low), high=max(tried.high, ratio * after.high))
        return replace(option, forecast=replace(option.forecast, images_per_s=tried))
    if action.code == "faster_storage" and after.value > tried.value:
        cut = replace(option.forecast, images_per_s=replace(after, value=tried.value, low=min(tried.value, after.low)))
        facts = {name: float(value) * ratio if name == "bytes_per_s" else value for name, value in action.facts.items()}
        return replace(option, forecast=cut, action=replace(action, facts=facts))
    if action.code == "accelerator" and after.value > tried.value:
        return replace(option, forecast=replace(option.forecast, images_per_s=after.times(ratio)))
    return option


def _has_reserve(trials: Experiments, point: Point, storage: StorageCeiling) -> bool:
    """True where the storage gave far more to as many readers that did nothing else."""
    phase = storage.at(trials.config.readers)
    if phase is None or phase.cache not in FROM_STORAGE:
        return False
    return point.read_bytes_per_s < thresholds.FAR_BELOW_CEILING * phase.bw_bytes


def _denied(option: AdviceOption, trials: Experiments) -> bool:
    """True where a model promises from storage what the experiment, or the workers' waiting, does not."""
    waited_for: SingleCause = "network" if option.action and option.action.code == "faster_network" else "storage"
    speedup = trials.speedups.get(waited_for)
    of_storage = option.forecast.changed in ("disk_speed", "page_cache_share", "pinned_share", "layout")
    never = option.forecast.changed == "page_cache_share" and never_warm(trials.measurement)
    return of_storage and (speedup is None or speedup.value < thresholds.WORTH or (never and speedup.how != "measured"))


def _wasted(trials: Experiments, point: Point, faster: Collection[float], worth: Sequence[Advice]) -> list[Advice]:
    """Changes that would gain nothing, with the figure that shows it; `faster` are images/s with other accelerators."""
    helping, before = {advice.action.code for advice in worth}, point.rate
    useless: list[Action] = []
    free = trials.speedups.get("compute")  # what surely gains by the experiment is not nothing, whatever the forecast
    surely = free is not None and free.low > 1 and free.value >= thresholds.WORTH
    if faster and max(faster) < thresholds.WORTH * point.training and not surely:
        useless.append(Action(code="accelerator_gains_nothing", facts={"until_images_per_s": point.compute}))
    # Training on a loader without end runs at what compute alone reaches.
    if point.compute < thresholds.WORTH * point.training and not helping - {"accelerator"}:
        useless.append(Action(code="input_gains_nothing", facts={"utilization": point.training / point.compute}))
    return [Advice(action=action, speedup=1.0, before=before, after=before, how="measured") for action in useless]


def recommend_groups(
    judged: Sequence[Experiments], around: Mapping[str, Surroundings], accelerators: Mapping[str, float]
) -> tuple[dict[str, Recommendation], tuple[Knee, ...]]:
    """(forecasts and advice by key of the configuration, a knee for each group).

    `around` has the storage and the place of the data, by their fingerprint; `accelerators` gives images/s by name.
    """
    recommendations: dict[str, Recommendation] = {}
    knees: list[Knee] = []
    for group in _groups(judged):
        made, knee = _recommend_group(group, around.get(group[0].config.data, Surroundings()), accelerators)
        for key, recommendation in made.items():
            recommendations.setdefault(key, recommendation)
        knees += [knee] if knee else []
    return recommendations, tuple(knees)


def _groups(judged: Sequence[Experiments]) -> list[list[Experiments]]:
    """The serial loader has no prefetch factor, and so belongs to the groups of all."""
    alike = by_key(judged, lambda trials: alike_but_for(trials.config, "workers", "prefetch_factor", "rounds", "seed"))
    groups = []
    for members in alike.values():
        loaders = [member.config.loader for member in members]
        factors = dict.fromkeys(loader.prefetch_factor for loader in loaders if loader.workers) or {0: None}
        groups += [
            [member for member in members if member.config.loader.prefetch_factor in (0, factor)] for factor in factors
        ]
    return groups


def _recommend_group(
    group: Sequence[Experiments], around: Surroundings, accelerators: Mapping[str, float]
) -> tuple[dict[str, Recommendation], Knee | None]:
    points = {trials.config.key: point_of(trials) for trials in group}
    good = {key: point for key, point in points.items() if isinstance(point, Point)}
    busy = [trials.config.loader.workers for trials in group if cores_are_busy(trials)]
    taken = min(busy, default=None)
    by_workers = {
        number: forecast
        for number, forecast in (worker_forecasts(tuple(good.values()), around.storage) if good else {}).items()
        if taken is None or number <= taken or forecast.how == "measured"
    }
    # What carries no forecast was measured all the same, and may be the best.
    rates = {trials.config.loader.workers: trials.rate for trials in group if trials.rate} if good else {}
    unseen = {
        n: measured(n, rate) for n, rate in rates.items() if n not in by_workers or by_workers[n].how == "estimated"
    }
    by_workers = dict(sorted({**by_workers, **unseen}.items()))
    # The rates of accelerators are published for one model.
    alike = _alike(accelerators, group[0].config.compute)
    around = replace(around, neighbours=tuple(good.values()), workers=by_workers, accelerators=alike)
    recommendations = {trials.config.key: recommend(trials, around) for trials in group}
    sets_workers = not group[0].measurement.own_threads
    return recommendations, find_knee(
        [trials.config.key for trials in group if trials.rate], by_workers, taken
    ) if good and sets_workers else None


FORECAST_OF: Mapping[ActionCode, Changed] = {
    "files_in_memory": "page_cache_share", "files_pinned": "pinned_share", "faster_storage": "disk_speed",
    "faster_network": "disk_speed", "shards": "layout",
}  # fmt: skip
"""What is changed by an action that is not named for it."""


def no_forecast(forecasts: Sequence[Forecast], action: Action) -> bool:
    """True where no gain is known: each forecast of this change was refused, or each of all.

    Of other numbers of workers there is the first that is refused, also where the rest gain nothing.
    """
    changed = FORECAST_OF.get(action.code, action.code)
    of_change = [forecast for forecast in forecasts if forecast.changed == changed != "workers"] or forecasts
    return bool(of_change) and all(forecast.refused for forecast in of_change)

"""How right a verdict is: the measured truth of one configuration, and what different rules say of it.

**Truth.** In segments of its own, the accelerator trains on the loader as it is, without storage (warm files),
without preprocessing (bytes read, cached samples), and without transport; and the loader runs without the
accelerator. The true speed-up of a resource is the rate without it over the rate with it, round by round (the
geometric mean, as CPU speed drifts between rounds but hardly within one). A row is clear when the best speed-up is at
least 1.10 and leads the second, or 1 where there is none, by over 15 % and over 2 standard errors; or when all are
under 1.03, which is the truth `balanced`. All else is ambiguous: there no word is wrong, and costs a few
per cent at most.

**Words.** A firm word is one resource, or `balanced`; `cpu` is the word `preprocess` with the addition that more
workers will not help. On clear rows a firm word is right or wrong. `either` that names the truth is neither, and so
is `inconclusive`; `either` that does not name it is wrong.

**Regret** is what follows from acting on a word: the best true speed-up over that of the resource named, minus 1.
A user who reads `either` picks one of them at random and gets their mean. One who reads `balanced` or
`inconclusive` changes nothing and gains nothing: so a rule that is never wrong because it says nothing has regret.
It counts on clear rows. On ambiguous ones the best speed-up is not known: the largest of four noisy ones is too large
on average, whatever was said; their regret is in the mean of all rows, beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.rates import cold_fraction, worker_cost
from loaderprobe.records.measurement import (
    COLD_AT_LEAST,
    WARM_AT_MOST,
    Measurement,
    Mode,
    Segment,
    segment_seconds,
    segments_of,
)
from loaderprobe.records.verdict import Verdict
from loaderprobe.stats import mean, median, standard_error

WORTH = 1.10
LEAD = 1.15
NOTHING = 1.03
RESOURCES = ("storage", "preprocessing", "transport", "compute")
WITHOUT: dict[str, Mode] = {"storage": "warm", "preprocessing": "cached_samples", "transport": "no_transport"}
WAIT_THRESHOLD = 0.2
# Warm files are waited for less than this share of the time that cold ones are.
WAITED_LESS = 0.33


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """True speed-ups of one configuration, and the word that follows; `clear` is False when it is ambiguous."""

    speedups: dict[str, float]
    errors: dict[str, float]
    """Standard errors of the logarithms of the speed-ups."""
    images_per_s: float
    word: str
    clear: bool
    trouble: str
    """Why what was measured is not what it was to be; empty when it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One configuration: what is true of it, and what was said."""

    name: str
    truth: Truth
    verdict: Verdict
    seconds: float
    """That the verdict's own segments took, without flushing and preparing caches."""
    rounds: int
    said: dict[str, tuple[str, ...]]
    """By rule: the resources named, all whose speed-ups do not differ; `balanced`; none when inconclusive."""


def images_per_s(segment: Segment, workers: int) -> float:
    """Whole iterations; for a training segment the device's timeline, where that is slower.

    Each flatters in one case: iterations when the host runs ahead of its device; the timeline, which begins with
    the end of a step, when N workers deliver N batches at once. So it counts whole multiples of N steps.
    """
    whole = segment.batch_size * segment.steps / segment_seconds(segment)
    ends = segment.finished_ns
    first = (len(ends) - 1) % max(workers, 1)
    if len(ends) - first < 2 or ends[-1] <= ends[first]:
        return whole
    return min(whole, segment.batch_size * (len(ends) - 1 - first) * 1e9 / (ends[-1] - ends[first]))


def truth_of(measured: Measurement) -> Truth:
    """What the training segments of the truth say."""
    base: Mode = "warm" if measured.config.cache == "warm" else "baseline"
    workers = measured.config.loader.workers
    training = [segment for segment in measured.segments if segment.activity == "training"]
    rounds = sorted({segment.round for segment in training})
    logs: dict[str, list[float]] = {name: [] for name in RESOURCES}
    rates = []
    for number in rounds:
        rate = {s.mode: images_per_s(s, workers) for s in training if s.round == number}
        loader_only = (s for s in segments_of(measured, base, "loader_only") if s.round == number)
        alone = images_per_s(next(loader_only), workers)
        rates.append(rate[base])
        for resource, mode in WITHOUT.items():
            logs[resource].append(math.log(rate.get(mode, rate[base]) / rate[base]))
        # Where there is no accelerator, none can be faster.
        none = measured.compute.name == "none"
        logs["compute"].append(0.0 if none else math.log(alone / rate[base]))
    speedups = {name: math.exp(mean(found)) for name, found in logs.items()}
    word, clear = _word(speedups, logs)
    return Truth(
        speedups=speedups,
        errors={name: standard_error(found) for name, found in logs.items()},
        images_per_s=median(rates),
        word=word,
        clear=clear,
        trouble=_trouble(measured, training, base),
    )


def _word(speedups: Mapping[str, float], logs: Mapping[str, Sequence[float]]) -> tuple[str, bool]:
    best, *others = sorted(RESOURCES, key=lambda name: -speedups[name])
    if speedups[best] < NOTHING:
        return "balanced", True
    second = others[0]
    lead = math.log(speedups[best] / max(1.0, speedups[second]))
    against = logs[second] if speedups[second] > 1 else [0.0] * len(logs[best])
    error = standard_error([a - b for a, b in zip(logs[best], against, strict=True)])
    return best, speedups[best] >= WORTH and lead > max(math.log(LEAD), 2 * error)


def _trouble(measured: Measurement, training: Sequence[Segment], base: Mode) -> str:
    """By bytes where they are counted, else by how long workers waited for an image."""
    of = {
        mode: [s for s in training if s.mode == mode] for mode in ("baseline", "warm", "cached_samples", "no_transport")
    }
    share = {mode: cold_fraction(measured, segments) for mode, segments in of.items() if segments}
    found = [
        f"{value:.0%} of the bytes of {mode} came from storage"
        for mode, value in share.items()
        if value is not None and (value > WARM_AT_MOST if "warm" in (mode, base) else value < COLD_AT_LEAST)
    ]
    costs = {mode: worker_cost(measured.worker_batches, segments) for mode, segments in of.items()}
    cold, warm = costs["baseline"], costs["warm"]
    if base == "baseline" and share["baseline"] is None and cold and warm:
        cold_s, warm_s = (each.blocked_s / each.images for each in (cold, warm))
        if warm_s > WAITED_LESS * cold_s:
            found.append(f"workers waited {cold_s * 1e3:.1f} ms an image cold and {warm_s * 1e3:.1f} ms warm")
    return ", ".join(found)


def judged(name: str, own: Measurement, truth: Measurement) -> Row:
    """One row, from the two measurements of a configuration."""
    found = verdict(own)
    said = {"verdict": _named(found)}
    for rule, judge in RIVALS.items():
        said[rule] = judge(own, truth, found)
    return Row(
        name=name,
        truth=truth_of(truth),
        verdict=found,
        seconds=sum(segment_seconds(segment) for segment in own.segments),
        rounds=len({segment.round for segment in own.segments}),
        said=said,
    )


def _named(found: Verdict) -> tuple[str, ...]:
    cause = found.bound.cause
    if cause == "inconclusive":
        return ()
    if cause == "either":
        return tuple("preprocessing" if name == "cpu" else name for name in found.bound.candidates)
    return ("preprocessing",) if cause == "cpu" else (cause,)


def outcome(truth: Truth, said: Sequence[str]) -> str:
    """right, wrong, either, inconclusive; or ambiguous, when there is no right and wrong."""
    if not truth.clear:
        return "ambiguous"
    if not said:
        return "inconclusive"
    if len(said) > 1:
        return "either" if truth.word in said else "wrong"
    return "right" if said[0] == truth.word else "wrong"


def regret(truth: Truth, said: Sequence[str]) -> float:
    """Best true speed-up over what one gets who acts on what was said, minus 1."""
    best = max(1.0, *truth.speedups.values())
    got = mean([max(1.0, truth.speedups.get(name, 1.0)) for name in said]) if said else 1.0
    return best / got - 1


def _smallest_ceiling(own: Measurement, truth: Measurement, _: Verdict) -> tuple[str, ...]:
    """`min(G, P, F)`: the parts in isolation, and the slowest is the cause."""
    ceilings = {
        "compute": [own.compute.specified_images_per_s or math.inf],
        "preprocessing": _loader_only(truth, "warm"),
        "storage": _loader_only(truth, "cached_samples"),
    }
    if not all(ceilings.values()):
        return ()
    return (min(ceilings, key=lambda name: median(ceilings[name])),)


def _loader_only(measured: Measurement, mode: Mode) -> list[float]:
    return [images_per_s(s, measured.config.loader.workers) for s in segments_of(measured, mode, "loader_only")]


def _stages(own: Measurement) -> dict[str, float]:
    """Seconds an image takes in each stage, N workers at once; and in the device."""
    base: Mode = "warm" if own.config.cache == "warm" else "baseline"
    loader_only = segments_of(own, base, "loader_only")
    cost = worker_cost(own.worker_batches, loader_only)
    assert cost
    workers = max(1, own.config.loader.workers)
    numbers = {number for s in loader_only for number in range(s.first_batch, s.first_batch + s.steps)}
    records = own.worker_batches
    collate = zip(records.batch, records.collate_ns, strict=True)
    collate_s = sum(ns for number, ns in collate if number in numbers) / 1e9 / cost.images
    return {
        "storage": cost.blocked_s / cost.images / workers,
        "preprocessing": max(0.0, cost.cpu_s / cost.images - collate_s) / workers,
        "transport": collate_s / workers,
        "compute": 1 / own.compute.specified_images_per_s if own.compute.specified_images_per_s else 0.0,
    }


def _largest_stage(own: Measurement, _: Measurement, __: Verdict) -> tuple[str, ...]:
    """The stage that takes longest."""
    stages = _stages(own)
    return (max(stages, key=lambda name: stages[name]),)


def _wait_threshold(own: Measurement, _: Measurement, found: Verdict) -> tuple[str, ...]:
    """Input-bound when 20 % of the time is spent waiting for it, by what workers then spend more time on."""
    if found.input_wait_fraction <= WAIT_THRESHOLD:
        return ("compute",)
    stages = _stages(own)
    return ("storage" if stages["storage"] > stages["preprocessing"] + stages["transport"] else "preprocessing",)


Judge = Callable[[Measurement, Measurement, Verdict], tuple[str, ...]]
RIVALS: dict[str, Judge] = {
    "min(G, P, F)": _smallest_ceiling,
    "largest stage": _largest_stage,
    "20 % wait": _wait_threshold,
}

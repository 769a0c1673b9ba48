"""From one loader by itself, whose files are known from its batches alone, to a `Report` of one row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from loaderprobe.analyze.advice import recommend_groups
from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.forecast import Surroundings
from loaderprobe.analyze.report import detail_of, row_of, run_info
from loaderprobe.analyze.verdict.judge import NOT_COLD, Judged
from loaderprobe.analyze.verdict.ranks import own_shares
from loaderprobe.analyze.verdict.rates import rate_interval, rates_by_round
from loaderprobe.analyze.verdict.validity import ceiling_phase, disturbance_notes
from loaderprobe.records.diagnosis import DataFound
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import NO_STEP, Measurement, segments_of
from loaderprobe.records.phases import NO_CEILING
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.resources import BOTTLENECKS, JUDGED, RESOURCE, SPEEDUPS, Bottleneck, ResourceName
from loaderprobe.records.thresholds import AMPLIFIED, FAR_LEAD, LEAD_OF_ONE_ROUND, MEMORY_SHARE, WORTH
from loaderprobe.records.verdict import Action, Advice, Bound, Interval, Reason, ReasonCode, Side, Speedup, Verdict
from loaderprobe.stats import median


def report_of(judged: Judged, data: DataFound, origin: Origin) -> Report:
    """The report of one loader by itself, of whose files is known what `data` says.

    Raises BadValue without a complete round.
    """
    measurement, memory_bytes = judged.measurement, origin.environment.memory_bytes
    size = data.size_bytes
    if size is not None and size <= MEMORY_SHARE * memory_bytes and not data.root:
        size = None  # nothing is to be read into memory from a folder that may hold anything
    storage = judged.ceiling or NO_CEILING
    around = Surroundings(storage=storage, root=data.root, size_bytes=size, memory_bytes=memory_bytes)
    recommendations, knees = recommend_groups([judged.experiments], {measurement.config.data: around}, {})
    advised = recommendations[measurement.config.key]
    row, detail = _as_trained(row_of(judged, advised), measurement), detail_of(judged)
    notes = (*detail.notes, *disturbance_notes([measurement]), *_notes(judged, data, memory_bytes))
    alone = measurement.compute.name == NO_STEP
    limits = {name: limit for name, limit in detail.then.items() if not (alone and name == "compute")}
    within = next((name for name in get_args(Bottleneck) if BOTTLENECKS[name].name == judged.bound.cause), None)
    if row.bound and row.bound.cause != judged.bound.cause and within:
        limits["wait"] = within
    row = replace(row, detail=replace(detail, key=row.key, notes=notes, then=limits))
    run = run_info("", origin.created_utc, origin.command, (), [measurement], ())
    return answered(Report(run=run, environment=origin.environment, configurations=(row,), knees=knees))


def _as_trained(row: ConfigurationRow, measurement: Measurement) -> ConfigurationRow:
    """With the ranks that trained and the batch of one, since a script has ranks without being asked for them."""
    assert row.verdict is not None
    config, ranks, verdict = measurement.config, measurement.ranks, row.verdict
    if config.ranks != ranks:
        batch_size = config.compute.batch_size * config.ranks // ranks
        config = replace(config, ranks=ranks, compute=replace(config.compute, batch_size=batch_size))
    if measurement.compute.name == NO_STEP:
        verdict = _without_step(verdict)
    verdict = with_starts(verdict, measurement)
    shares = own_shares(measurement.notes, verdict.images_per_s)
    emulated = row.emulated and measurement.compute.name != NO_STEP
    return replace(row, config=config, emulated=emulated, verdict=replace(verdict, advice=(*shares, *verdict.advice)))


_OF_TRAINING = ("speedups.compute", "accelerator_utilization", "input_wait_fraction")
"""Evidence of a device that trains."""


def _without_step(verdict: Verdict) -> Verdict:
    """Of a loader alone: the figures of a device that takes no time are none."""
    evidence = tuple(part for part in verdict.bound.evidence if part.metric not in _OF_TRAINING)
    inputs = (advice for advice in verdict.advice if advice.is_worth_making)
    missing = ("speedups.compute", "rates_images_per_s.compute", "accelerator_utilization")
    return replace(
        verdict,
        bound=replace(verdict.bound, evidence=evidence),
        rates_images_per_s=replace(verdict.rates_images_per_s, compute=None),
        speedups={**verdict.speedups, "compute": None},
        accelerator_utilization=None,
        advice=tuple(change for change in inputs if change.action.code != "accelerator"),
        unavailable=verdict.unavailable | dict.fromkeys(missing, Remark(code="no_step")),
    )


def _notes(judged: Judged, data: DataFound, memory_bytes: float) -> Iterator[Remark]:
    """What ranks it is of, what hidden files mean, what is read in vain, and what later epochs find."""
    measurement, verdict, activity = judged.measurement, judged.verdict, judged.measurement.judged
    unit = "images/s" if measurement.images else "samples/s"
    if measurement.by_rank:
        without_exchange = any(segment.mode == "no_exchange" for segment in measurement.segments)
        exchange = "compute" if activity == "training" and not without_exchange else ""
        hosts = len({rank.host for rank in measurement.by_rank})
        yield Remark(code="ranks_in_step", facts={"ranks": measurement.ranks, "hosts": hosts, "exchange": exchange})
    if len(segments_of(measurement, measurement.config.mode, activity)) == 1:
        yield Remark(code="one_round")
    if data.hidden is not None and data.hidden.code == "none_read":
        yield Remark(code="reads_no_files")
    elif data.hidden is not None:
        yield Remark(code="files_hidden", facts={"because": data.hidden.code})
    yield from _kept_samples(measurement, unit)
    warm, size = verdict.rates_images_per_s.loader_without["storage"], data.size_bytes
    if size and size <= MEMORY_SHARE * memory_bytes and warm is not None and verdict.speedups["storage"] is not None:
        yield Remark(code="fits_in_memory", facts={"size_bytes": size, "warm_per_s": warm, "unit": unit})
    yield from _read_ahead(judged, data, memory_bytes, unit)
    readers, read = measurement.config.readers, verdict.disk_read_bytes_per_s
    phase = judged.ceiling.at(readers) if judged.ceiling else None
    if phase is not None and phase.cache == "cold" and read:
        facts: Facts = {
            "alone_bytes_per_s": phase.moved_bytes_per_s, "readers": readers, "read_bytes_per_s": read,
            "ceiling_fraction": read / phase.moved_bytes_per_s, "at_least": "yes" if phase.at_least else "no",
        }  # fmt: skip
        yield Remark(code="storage_alone", facts=facts)


def _kept_samples(measurement: Measurement, unit: str) -> Iterator[Remark]:
    """The loader alone in the first epoch and in later ones, where a data set makes its samples once and keeps them."""
    first_pass = measurement.first_pass
    as_asked = rates_by_round(measurement, measurement.config.mode, "loader_only")
    if first_pass is None or not first_pass.quicker or not as_asked:
        return
    rate, makes_anew = median(as_asked.values()), measurement.access == "fresh"
    first = rate if makes_anew else max(1, measurement.workers) * first_pass.images / first_pass.wall_s
    later = [*rates_by_round(measurement, "warm", "loader_only").values()] if makes_anew else [rate]
    facts: Facts = {"first_per_s": first, "unit": unit, "judged": "first" if makes_anew else "later"}
    yield Remark(code="samples_kept", facts=facts | ({"later_per_s": median(later)} if later else {}))


def _read_ahead(judged: Judged, data: DataFound, memory_bytes: float, unit: str) -> Iterator[Remark]:
    """What is read in vain around each sample; what the epochs of a set find that it brings into memory at once."""
    measurement, verdict = judged.measurement, judged.verdict
    size, times = measurement.sample_bytes, verdict.read_amplification
    if size is None or times is None or times < AMPLIFIED:
        return
    counted = judged.experiments.measurement
    alone = rate_interval(counted, segments_of(counted, counted.config.mode, "loader_only"))
    facts: Facts = {
        "sample_bytes": size, "read_bytes": size * times, "amplification": times, "low_per_s": alone.low,
        "high_per_s": alone.high, "unit": unit,
    }  # fmt: skip
    yield Remark(code="read_ahead", facts=facts)
    phase, _ = ceiling_phase(measurement, judged.ceiling)
    later, total = verdict.rates_images_per_s.loader_without["storage"], size * (data.samples or 0)
    if phase is None or later is None or not data.samples or total > MEMORY_SHARE * memory_bytes:
        return
    storage_s, rest_s = total / phase.bw_bytes, data.samples / later
    facts = {
        "size_bytes": total, "within_s": storage_s, "low_per_s": data.samples / (storage_s + rest_s),
        "high_per_s": data.samples / max(storage_s, rest_s), "memory_per_s": later, "unit": unit,
        "how": "estimated" if verdict.speedups["storage"] is None else verdict.speedups["storage"].how,
    }  # fmt: skip
    yield Remark(code="small_set", facts=facts)


# The verdict on a script that starts its workers in each epoch: a wait that no segment of training holds.

NOTE = "workers_start_each_epoch"


def starts_workers(measurement: Measurement) -> bool:
    """True where the rate of a verdict is less than that of the segments, by the start of workers."""
    return any(note.code == NOTE for note in measurement.notes)


def with_starts(verdict: Verdict, measurement: Measurement) -> Verdict:
    """Of a script that starts its workers before each epoch, as a note says; the same of any other.

    That is a wait of its own kind: all rates of training have it, and a part that costs nothing gains less beside it.
    """
    for note in measurement.notes:
        if note.code == NOTE:
            starts = float(note.facts.get("starts", 1))  # earlier results do not say
            verdict = _with_start(verdict, float(note.facts["start_s"]), float(note.facts["epoch_s"]), starts)
    return verdict


def _with_start(verdict: Verdict, start_s: float, epoch_s: float, starts: float) -> Verdict:
    """With `start_s` before each epoch, the median of so many starts, which then trains for `epoch_s`.

    Both are estimates: the time of a batch is taken off a start, and few steps stand for an epoch. A single start may
    be off by as much as a single segment.
    """
    now, beside = verdict.images_per_s.value, start_s / epoch_s

    def slowed(rate: float) -> float:
        """Images/s, with the start."""
        return rate / (1 + beside * rate / now)

    def lessened(gain: float) -> float:
        """A factor by which training would be faster, beside the start."""
        return slowed(now * gain) / slowed(now)

    known = {name: gain for name in SPEEDUPS if (gain := verdict.speedups[name])}
    waits = known.pop("wait", Speedup(value=1.0, low=1.0, high=1.0, how="measured"))
    others = {
        name: replace(gain, low=lessened(gain.low), value=lessened(gain.value), high=lessened(gain.high))
        for name, gain in known.items()
    }
    rates, used = verdict.images_per_s, verdict.accelerator_utilization
    off = LEAD_OF_ONE_ROUND ** (1 / math.sqrt(starts))
    low, value, high = (1 + beside * end / now for end in (rates.low / off, now, rates.high * off))
    start = Speedup(low=low * waits.low, value=value * waits.value, high=high * waits.high, how="estimated")
    rate = Interval(
        low=rates.low / (1 + beside * off * rates.low / now),
        value=slowed(now),
        high=rates.high / (1 + beside / off * rates.high / now),
    )
    figures: dict[str, float] = {
        **{f"speedups.{name}": gain.value for name, gain in others.items()},
        "speedups.wait": start.value,
        "input_wait_fraction": (verdict.input_wait_fraction + beside) / (1 + beside),
    }
    facts, old = Facts(images_per_s=rate.value), verdict.bound.reason.facts
    if used is not None:
        figures["accelerator_utilization"] = facts["utilization"] = used / (1 + beside)
    facts |= {name: lessened(float(fact)) for name, fact in old.items() if _is_gain(name)}
    of_wait = {"wait_speedup", *(["speedup"] if old.get("resource") == "wait" else [])}
    facts |= dict.fromkeys(of_wait & set(old), start.value)
    evidence = tuple(replace(part, value=figures.get(part.metric, part.value)) for part in verdict.bound.evidence)
    reason = replace(verdict.bound.reason, facts=old | facts)
    bound = _bound(replace(verdict.bound, reason=reason, evidence=evidence), start, others)
    if bound.cause == "wait":
        timed: Facts = {"start_s": start_s, "whole_s": start_s + epoch_s}
        bound = replace(bound, reason=replace(bound.reason, facts=bound.reason.facts | timed))
    stay = Advice(
        action=Action(code="persistent_workers"), command="persistent_workers=True", speedup=1 + beside, before=rate,
        after=rates, how="estimated",
    )  # fmt: skip
    advice = [change for change in verdict.advice if change.is_worth_making or bound.cause != "wait"]
    return replace(
        verdict,
        images_per_s=rate,
        speedups={**verdict.speedups, **others, "wait": start},
        accelerator_utilization=figures.get("accelerator_utilization"),
        input_wait_fraction=figures["input_wait_fraction"],
        bound=bound,
        advice=(
            stay,
            *(
                replace(
                    change,
                    before=rate,
                    after=Interval(
                        low=slowed(change.after.low), value=slowed(change.after.value), high=slowed(change.after.high)
                    ),
                    speedup=lessened(change.speedup) if change.is_worth_making else change.speedup,
                )
                for change in advice
            ),
        ),
        unavailable={name: why for name, why in verdict.unavailable.items() if name != "speedups.wait"},
    )


def _bound(within: Bound, start: Speedup, others: dict[ResourceName, Speedup]) -> Bound:
    """Of what limited training within an epoch, and the start.

    The start is the cause where it leads all others far, since one may be all that was seen; one of two where it just
    leads another that is worth removing, and no firm one where there is no other. Its share of cold epochs is not known
    from epochs that memory served; and what is not known may gain as much as all of the epoch would.
    """
    if within.reason.code in NOT_COLD:
        return within
    rivals = {name: others[name].value for name in JUDGED if name in others and others[name].value >= WORTH}
    next_to_it = max(rivals, key=lambda name: rivals[name], default=None)
    lead = start.value / (rivals[next_to_it] if next_to_it else 1.0)
    if within.reason.code in _PARTS_UNKNOWN:
        lead = min(lead, start.value - 1)
    facts = {name: fact for name, fact in within.reason.facts.items() if name in _OF_RATES}
    of_start: Facts = {"resource": "wait", "speedup": start.value, "how": start.how}
    if lead >= FAR_LEAD:
        reason = Reason(code="largest_speedup", facts=facts | of_start)
        return replace(within, side="input", cause="wait", candidates=(), reason=reason)
    if lead <= 1 or not within.firm or within.cause == "wait":
        return within
    if next_to_it is None:
        reason = Reason(code="estimate_too_small", facts=facts | of_start)
        return replace(within, side="inconclusive", cause="inconclusive", reason=reason)
    facts |= {"wait_speedup": start.value, "wait_how": start.how}
    facts |= {f"{next_to_it}_speedup": rivals[next_to_it], f"{next_to_it}_how": others[next_to_it].how}
    side: Side = "input" if RESOURCE[next_to_it].side == "input" else "inconclusive"
    reason = Reason(code="speedups_alike", facts=facts)
    return replace(within, side=side, cause="either", candidates=("wait", next_to_it), reason=reason)


def _is_gain(fact: str) -> bool:
    """True of a fact that says by what factor training would be faster; `least_speedup` is a threshold."""
    return fact in ("speedup", "least", "most") or (fact.endswith("_speedup") and fact != "least_speedup")


_PARTS_UNKNOWN: tuple[ReasonCode, ...] = ("no_complete_round", "ablation_missing")
_OF_RATES = (
    "judged", "device", "images_per_s", "utilization", "loader_images_per_s", "compute_images_per_s", "compute_how",
    "files_were",
)  # fmt: skip
"""Facts of a reason that stay, whatever the cause."""

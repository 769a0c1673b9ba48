"""From one loader by itself, whose files are known from its batches alone, to a `Report` of one row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.forecast.advice import DataPlace, Surroundings, recommend_groups
from loaderprobe.analyze.judge import Judged
from loaderprobe.analyze.report import detail_of, row_of, run_info
from loaderprobe.analyze.starts import with_starts
from loaderprobe.analyze.verdict.ranks import own_shares
from loaderprobe.analyze.verdict.rates import rate_interval, rates_by_round
from loaderprobe.analyze.verdict.validity import ceiling_phase, disturbance_notes
from loaderprobe.records.diagnosis import DataFound
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import NO_STEP, Measurement, segments_of
from loaderprobe.records.phases import NO_CEILING
from loaderprobe.records.remark import Facts, Remark
from loaderprobe.records.report import ConfigurationRow, Report, Summary
from loaderprobe.records.resources import BOTTLENECKS, Bottleneck
from loaderprobe.records.thresholds import AMPLIFIED, MEMORY_SHARE
from loaderprobe.records.verdict import Verdict
from loaderprobe.stats import median


def report_of(judged: Judged, data: DataFound, origin: Origin) -> Report:
    """The report of one loader by itself, of whose files is known what `data` says.

    Raises BadValue without a complete round.
    """
    measurement, memory_bytes = judged.measurement, origin.environment.memory_bytes
    place = None
    if data.size_bytes is not None:
        place = DataPlace(root=data.root, size_bytes=data.size_bytes, memory_bytes=memory_bytes)
    if place and place.fits and not place.root:
        place = None  # nothing is to be read into memory from a folder that may hold anything
    around = Surroundings(storage=judged.ceiling or NO_CEILING, place=place)
    recommendations, knees = recommend_groups([judged.experiments], {measurement.config.data: around}, {})
    advised = recommendations[measurement.config.key]
    row, detail = _as_trained(row_of(judged, advised), measurement), detail_of(judged)
    notes = (*detail.notes, *disturbance_notes([measurement]), *_notes(judged, data, memory_bytes))
    alone = measurement.compute.name == NO_STEP
    then = {name: limit for name, limit in detail.then.items() if not (alone and name == "compute")}
    within = next((name for name in get_args(Bottleneck) if BOTTLENECKS[name].name == judged.bound.cause), None)
    if row.bound and row.bound.cause != judged.bound.cause and within:
        then["wait"] = within
    detail = replace(detail, key=row.key, notes=notes, then=then)
    summary = Summary(
        run=run_info("", origin.created_utc, origin.command, (), [measurement], ()),
        environment=origin.environment,
        configurations=(row,),
        knees=knees,
    )
    return answered(Report(summary=summary, details={row.key: detail}))


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
        advice=tuple(one for one in inputs if one.action.code != "accelerator"),
        unavailable=verdict.unavailable | dict.fromkeys(missing, Remark(code="no_step")),
    )


def _notes(judged: Judged, data: DataFound, memory_bytes: float) -> Iterator[Remark]:
    """What ranks it is of, what hidden files mean, what is read in vain, and what later epochs find."""
    measurement, verdict, activity = judged.measurement, judged.verdict, judged.measurement.judged
    unit = "images/s" if measurement.images else "samples/s"
    if measurement.by_rank:
        apart = any(segment.mode == "no_exchange" for segment in measurement.segments)
        exchange = "compute" if activity == "training" and not apart else ""
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

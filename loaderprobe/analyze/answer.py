"""The first screen as data: what limits where, how sure that is, what devices and ranks gain, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import ceil
from pathlib import PurePath
from typing import Literal

from loaderprobe.analyze.advice import FORECAST_OF
from loaderprobe.analyze.effects import fewest, of_intervals, ranked
from loaderprobe.records import by_key
from loaderprobe.records.config import OPTIONS, alike_but_for
from loaderprobe.records.files import Staged
from loaderprobe.records.options import COMPUTE, SWEEP
from loaderprobe.records.remark import TOO_SHORT, Facts, Remark
from loaderprobe.records.report import NOT_SURE, ConfigurationRow, DataInfo, NextStep, Report, RunInfo, Scaling
from loaderprobe.records.resources import JUDGED, RESOURCE, SPEEDUPS, ResourceName
from loaderprobe.records.thresholds import FAR_BEYOND_NOISE, MOST_UNEXPLAINED, WORTH
from loaderprobe.records.verdict import Action, Advice, Interval, Knee, ReasonCode, SideAndCause, Speedup
from loaderprobe.units import join_words, significant

Rows = Sequence[ConfigurationRow]

MORE_TIME = 2.0
"""The budget to measure again with, over the time that the run took."""
MOST_ADVICE = 2
"""Changes worth making, of a configuration."""
CHEAPER: dict[str, str] = {
    "preprocessing": "cheaper_preprocessing", "transport": "cheaper_transport", "compute": "cheaper_compute",
}  # fmt: skip
"""The remark on resources of which a change is named that has no forecast."""
OF_STORAGE = {"storage", "network", "imbalance"}
"""What faster storage, or memory in its place, makes less of."""
WANT_OF_TIME: tuple[ReasonCode, ...] = (
    "no_complete_round", "one_round_does_not_fit", "rounds_differ", "estimate_not_measured", "within_noise",
    "slower_without", "interval_too_wide", "lead_within_spread", "ranges_meet", "rounds_disturbed",
)  # fmt: skip
"""Reasons for which more rounds may be the remedy."""
_FIGURES = {"factor": 2, "share": 2, "utilization": 2}
"""Facts of an action of which fewer figures than three are shown."""


def answered(report: Report) -> Report:
    """The report with its answer."""
    every = report.configurations
    unclear = {(row.key, row.config.loader.workers) for row in measured(every) if not firm(row)}
    knees = (
        replace(knee, bottleneck=None, inconclusive=True)
        if unclear.intersection((key, knee.workers) for key in knee.keys)
        else knee
        for knee in report.knees
    )
    known = (row for rows in by_device(every) for row in rows if row.images_per_s)
    alike = by_key(known, lambda row: (_measured_on(row), row.config.resolution, row.config.loader.name))
    best = [_best_row(rows, report.knees) for rows in alike.values()]
    report = replace(report, knees=tuple(knees), best=_keys(best))
    report = replace(report, staging=tuple(_staging(report)))
    return replace(
        report,
        how_sure=_how_sure(report),
        scaling=tuple(_scaling(report)),
        next=_next_steps(report),
        not_known=tuple(_not_known(report)),
    )


def by_device(rows: Rows) -> tuple[tuple[ConfigurationRow, ...], ...]:
    """By what they were measured on, in the order of the report, CPUs last."""
    # A CPU that trains shows least: it stands last.
    return tuple(tuple(group) for group in sorted(by_key(rows, _measured_on).values(), key=on_cpu))


def _measured_on(row: ConfigurationRow) -> Hashable:
    """Model, device, cache state and ranks: figures of rows compare where these are the same."""
    config = row.config
    return config.compute.model, config.compute.name, config.cache, config.ranks, config.nodes


def on_cpu(rows: Rows) -> bool:
    """True where a CPU trains; of rows of one device."""
    return rows[0].config.compute.kind == "cpu"


def measured(rows: Iterable[ConfigurationRow]) -> list[ConfigurationRow]:
    """The rows that have figures."""
    return [row for row in rows if row.status == "measured"]


def firm(row: ConfigurationRow) -> bool:
    """True for a verdict that names what limits."""
    return row.bound is not None and "inconclusive" not in (row.bound.side, row.bound.cause)


def families(bound: SideAndCause | None) -> tuple[str, ...]:
    """What limits, where full cores count as what keeps them busy; several where they cannot be separated."""
    if bound is None:
        return ()
    names = bound.candidates if bound.cause == "either" else (bound.cause,)
    return tuple(RESOURCE[name].part_of or name if name in RESOURCE else name for name in names)


def speedup_of(row: ConfigurationRow, resource: ResourceName) -> Speedup | None:
    """The speed-up if `resource` were free; None where that is not known."""
    return row.verdict.speedups.get(resource) if row.verdict else None


def main_speedups(row: ConfigurationRow) -> tuple[tuple[str, Speedup], ...]:
    """The speed-ups that the verdict names: its cause's, both candidates' of `either`, none of `inconclusive`."""
    if row.bound is None:
        return ()
    known = {resource: speedup for resource in JUDGED if (speedup := speedup_of(row, resource))}
    named, slow = families(row.bound), speedup_of(row, "imbalance")
    if slow is not None and named == ("imbalance",):
        return (("imbalance", slow),)
    chosen = [resource for resource in named if resource in known]
    if not chosen and known and row.bound.cause != "inconclusive":
        chosen = [max(known, key=lambda resource: known[resource].value)]
    return tuple((resource, known[resource]) for resource in chosen)


def best_of(report: Report, rows: Rows) -> list[ConfigurationRow]:
    """Of each data set and loader the row with the workers that are enough, if that was measured; else the fastest."""
    rows_by_key = {row.key: row for row in rows}
    return [rows_by_key[key] for key in report.best if key in rows_by_key]


def first_devices(report: Report) -> Sequence[Rows]:
    """What the report is about: accelerators, or a CPU where nothing else trained; no emulated beside a real one."""
    devices = [rows for rows in by_device(report.configurations) if best_of(report, rows)]
    first = [rows for rows in devices if not on_cpu(rows)] or devices
    return [rows for rows in first if not any(row.emulated for row in rows)] or first


def _best_row(rows: Rows, knees: Sequence[Knee]) -> ConfigurationRow:
    """Of rows that were measured; with the smallest prefetch factor that is enough for its workers."""
    enough = {knee.workers for knee in knees if any(row.key in knee.keys for row in rows)}

    def goodness(row: ConfigurationRow) -> tuple[bool, bool, float]:
        """A rate whose band is as wide as itself is nothing to rank by."""
        assert row.images_per_s
        return not row.images_per_s.too_wide, row.config.loader.workers in enough, row.images_per_s.value

    best = max(rows, key=goodness)
    same = alike_but_for(best.config, "prefetch_factor")
    by_factor = {r.config.loader.prefetch_factor: r for r in rows if alike_but_for(r.config, "prefetch_factor") == same}
    rates = {factor: row.images_per_s for factor, row in by_factor.items() if row.images_per_s}
    return by_factor[fewest(ranked(rates)) or best.config.loader.prefetch_factor]


def _keys(rows: Rows) -> tuple[str, ...]:
    return tuple(row.key for row in rows)


def _how_sure(report: Report) -> Remark:
    """The level; how many verdicts name a cause, and the rounds and the bands of noise of the rows that are shown.

    Rows not measured yet count: one of them may be the best.
    """
    rows = [row for device in first_devices(report) for row in device]
    known = [row for row in best_of(report, rows) if row.verdict and row.images_per_s]
    if not known:
        return NOT_SURE
    details = {row.key: row.detail for row in measured(report.configurations) if row.detail}
    ablated = {key: detail.ablations for key, detail in details.items() if detail.ablations}
    once = {key for key, remark in ablated.items() if remark.code == "ablated" and 1 in remark.facts.values()}
    twice = {row.key for row in rows if row.verdict and row.verdict.complete_rounds > 1} - once
    rounds = [row.verdict.complete_rounds for row in known if row.verdict]
    bands = [row.images_per_s.half / row.images_per_s.value for row in known if row.images_per_s]
    asked = [row for row in rows if row.status != "failed"]
    levels = [_level([_leads(row) for row in group], twice.issuperset(_keys(group))) for group in (asked, known)]
    said = [*report.run.notes, *(note for row in known for note in row.notes)]
    levels += ["medium"] if any(map(_mostly_taken, said)) else []
    facts: Facts = {
        "level": min(levels, key=LEVELS.index), "clear": sum(map(firm, asked)), "of": len(asked), "shown": len(known),
        "low_rounds": min(rounds), "high_rounds": max(rounds), "low_band": min(bands), "high_band": max(bands),
    }  # fmt: skip
    return Remark(code="how_sure", facts=facts)


def _mostly_taken(note: Remark) -> bool:
    """True where other processes took cores in most of the segments that it is of."""
    return note.code == "others_took" and 2 * float(note.facts["segments"]) > float(note.facts["of"])


def outran(row: ConfigurationRow) -> bool:
    """True where training was faster than compute alone by over a third: the machine changed in between."""
    return row.verdict is not None and (row.verdict.accelerator_utilization or 0.0) > MOST_UNEXPLAINED


def _leads(row: ConfigurationRow) -> Speedup | None:
    """The speed-up of the only cause, from a machine that stayed as it was."""
    if not firm(row) or families(row.bound)[0] not in SPEEDUPS or outran(row):
        return None
    speedups = [speedup for _, speedup in main_speedups(row)]
    return speedups[0] if len(speedups) == 1 else None


LEVELS = ("low", "medium", "high")


def _level(leading: Sequence[Speedup | None], measured_twice: bool) -> str:
    """high: each configuration has its cause, measured more than once, far beyond noise. low: few have, or barely."""
    known = [speedup for speedup in leading if speedup]
    least = min((speedup.low for speedup in known), default=0.0)
    if 2 * len(known) < len(leading) or least < WORTH:
        return "low"
    measured_twice = measured_twice and all(speedup.how == "measured" for speedup in known)
    return "high" if measured_twice and len(known) == len(leading) and least >= FAR_BEYOND_NOISE else "medium"


def _scaling(report: Report) -> Iterator[Scaling]:
    """Rows of one data set, loader and cache state: each device with every number of ranks, model after model."""
    positions = {row.key: index for index, row in enumerate(report.configurations)}
    best = sorted(best_of(report, report.configurations), key=lambda row: positions[row.key])
    alike = by_key(best, lambda row: (row.config.resolution, row.config.loader.name, row.config.cache))
    for rows in alike.values():
        yield from _scaled(rows)


def _scaled(rows: Rows) -> Iterator[Scaling]:
    """A specified rate compares with no other: an emulated device is here with several numbers of ranks only."""
    lines = by_key(rows, lambda row: (row.config.compute.model, row.config.compute.name))
    for line in lines.values():
        line.sort(key=lambda row: (row.config.ranks, row.config.nodes))
    trained = [line[0] for line in lines.values() if not line[0].emulated]
    on_cpus = {row.config.compute.model: row for row in trained if on_cpu([row])}
    for first, *more in lines.values():
        real = first in trained
        cpu = on_cpus.get(first.config.compute.model) if real and not on_cpu([first]) else None
        for row in (first, *more) if more or (real and len(trained) > 1) else ():
            speedup = None if row is first else _over(row, first)
            yield Scaling(
                configuration=row.key,
                speedup=speedup,
                efficiency=speedup.value * _hardware(first) / _hardware(row) if speedup else None,
                over_cpu=_over(row, cpu) if cpu else None,
            )


def _over(row: ConfigurationRow, other: ConfigurationRow) -> Interval | None:
    """By what factor a row is faster; None of rates that are too noisy to be compared."""
    rates = row.images_per_s, other.images_per_s
    assert rates[0] and rates[1]
    return None if rates[0].too_wide or rates[1].too_wide else of_intervals(rates[0], rates[1])


def _hardware(row: ConfigurationRow) -> int:
    """GPUs; of CPUs the nodes, whose cores ranks share."""
    return row.config.nodes if on_cpu([row]) else row.config.ranks


def _staging(report: Report) -> Iterator[Remark]:
    """What epochs take from a copy: of each device and loader, where cold files were read from the data and from it."""
    copies = {data.label: data for data in report.run.data if data.staged}
    best = [row for row in best_of(report, report.configurations) if row.config.cache != "warm"]
    names = ("data", "resolution", "cache", "workers", "prefetch_factor")
    for row, source in product(best, best):
        data, gain = copies.get(row.config.resolution), _over(row, source)
        alike = alike_but_for(source.config, *names) == alike_but_for(row.config, *names)
        if data and data.staged and data.staged.source == source.config.resolution and alike and gain:
            memory_bytes = 0 if source.config.cache == "as-found" else report.environment.memory_bytes
            roots = [info.root for info in report.run.data if info.label in (data.label, data.staged.source)]
            devices = [location.devices for root in roots if (location := report.environment.below(root))]
            device = join_words(devices[0]) if len(devices) == 2 and devices[0] == devices[1] else ""
            yield _staged(data, data.staged, _rate(source), gain, memory_bytes, device)


def _staged(
    data: DataInfo, staged: Staged, source_per_s: float, gain: Interval, memory_bytes: int, device: str
) -> Remark:
    """Nothing sure is gained; or what an epoch takes of all images that were found, and when copying is paid back.

    `memory_bytes` may hold what is read from there; `device` has both, if one does.
    """
    source_s, whole_bytes = data.images_found / source_per_s, data.images_found * data.mean_size_bytes
    later_s = source_s * (staged.share / gain.value + 1 - staged.share)
    facts: Facts = {"data": staged.source, "low": gain.low, "high": gain.high}
    copying_s = staged.share * whole_bytes / staged.bytes_per_s if staged.bytes_per_s else 0.0
    facts |= {"copying_s": copying_s, "bytes_per_s": staged.bytes_per_s} if staged.bytes_per_s else {}
    if gain.low <= 1:
        return Remark(code="staging_gains_nothing", facts=facts | ({"device": device} if device else {}))
    facts |= {"images": data.images_found, "source_s": source_s, "later_s": later_s}
    facts |= {"share": staged.share} if staged.share < 1 else {}
    facts |= {"memory_bytes": memory_bytes} if memory_bytes > whole_bytes else {}
    if copying_s:
        facts |= {"first_s": max(source_s, copying_s), "epochs": ceil(copying_s / (source_s - later_s))}
    return Remark(code="staging", facts=facts)


def _next_steps(report: Report) -> tuple[NextStep, ...]:
    """The change that surely gains most, and the cores that are missing; on a CPU alone, what would show more."""
    rows = report.configurations
    devices = [device for device in by_device(rows) if not on_cpu(device)]
    made = _longer(report, [row for device in devices for row in device] or rows)
    copies = [remark for remark in report.staging if remark.code == "staging"]
    made += [NextStep(remark=replace(remark, code="train_from_copy")) for remark in copies]
    if not devices:
        emulated = NextStep(remark=Remark(code="train_on_emulated"), command="--compute emulated:mlperf-h100")
        return (*made, emulated) if measured(rows) else ()
    full = [row for row in best_of(report, rows) if row.bound and row.bound.cause == "cpu"]
    for device in devices:
        # What rests on an inconclusive row may be said later, but is not what to do next.
        best = [row for row in best_of(report, device) if not outran(row)]
        sure = [row for row in best if row.bound and row.bound.cause != "inconclusive"]
        gaining = _steps(sure, lambda advice: advice.surely_gains)
        first = sorted(gaining, key=lambda step: (_belongs(step, sure), _most(step)), reverse=True)[:1]
        cores = [more_core for more_core in _more_cores(report, device, full) if more_core not in made]
        made += [step for axis in USUAL for step in _other_choices(best_of(report, device), axis)]
        if not first or (_most(first[0]) >= WORTH and _belongs(first[0], sure)):
            made += first + cores
        else:
            # A gain that is not worth a word, or of what does not limit, does not stand above what limits.
            made += (cores or _cheaper(sure)) + first
    if not made:
        best = best_of(report, [row for device in devices for row in device])
        made += _cheaper(best) or _steps(filter(firm, best), lambda advice: advice.is_worth_making)[:1]
    if len(made) == 1 and made[0].advice and not full:
        # What limits now hides that cores are too few.
        changed = [row for row in rows if row.key in made[0].configurations]
        input_bound = [row for row in changed if row.bound and row.bound.side == "input"]
        made += _more_cores(report, changed, input_bound)
    return tuple(made)


def _belongs(step: NextStep, rows: Rows) -> bool:
    """False of faster storage, or memory in its place, where storage limits none of the rows that the step is for."""
    limits = {name for row in rows if row.key in step.configurations for name in families(row.bound)}
    return step.advice[0].action.code not in FORECAST_OF or not limits.isdisjoint(OF_STORAGE)


def _cheaper(rows: Rows) -> list[NextStep]:
    """What takes less of the resource that limits, and the gain if it took none: where no change has a forecast."""
    for row in filter(firm, rows):
        for resource, speedup in main_speedups(row):
            made = (advice.action.code for advice in row.advice if advice.is_worth_making)
            if resource not in CHEAPER and any(code not in FORECAST_OF or resource in OF_STORAGE for code in made):
                break  # what limits most has a change of its own
            if resource in CHEAPER and speedup.low >= WORTH:
                facts: Facts = {"low": speedup.low, "high": speedup.high}
                facts |= {"how": speedup.how} if speedup.how == "estimated" else {}
                facts |= {"most": speedup.value} if speedup.at_most else {}
                kept = row.bound is not None and row.bound.reason.code == "kept_from_cores"
                remark = Remark(code="use_idle_cores" if kept else CHEAPER[resource], facts=facts)
                return [NextStep(remark=remark, configurations=(row.key,))]
    return []


def _most(step: NextStep) -> float:
    """The largest gain that a step is forecast to give."""
    return max(advice.speedup for advice in step.advice)


Axis = Literal["layout", "loader"]
USUAL: dict[Axis, str] = {"layout": "files", "loader": "torch"}


def _other_choices(rows: Rows, axis: Axis) -> list[NextStep]:
    """The layout, or the loader, that surely gains over the usual one, or over the slowest without that."""
    steps = []
    for images, same, now in _alike_but_for(rows, axis):
        best = max(same, key=_rate)
        gain = None if now is best else _over(best, now)
        if gain and gain.low >= WORTH:
            facts: Facts = {
                "best": OPTIONS[axis].of(best.config), "now": OPTIONS[axis].of(now.config),
                "data": images, "low": gain.low, "high": gain.high,
            }  # fmt: skip
            code = "other_layout" if axis == "layout" else "other_loader"
            steps.append(NextStep(remark=Remark(code=code, facts=facts), configurations=_keys([best, now])))
    return steps


def _alike_but_for(rows: Rows, axis: Axis) -> Iterator[tuple[str, Rows, ConfigurationRow]]:
    """(the images, the rows that differ in nothing else, the usual of them or the slowest)."""
    alike: dict[tuple[str, str], list[ConfigurationRow]] = {}
    for row in rows:
        if row.images_per_s and not row.images_per_s.too_wide:
            images = row.config.resolution.removesuffix(f" {row.config.layout}")
            other = row.config.loader.name if axis == "layout" else row.config.layout
            alike.setdefault((images, other), []).append(row)
    for (images, _), same in alike.items():
        usual = (row for row in same if OPTIONS[axis].of(row.config) == USUAL[axis])
        yield images, same, next(usual, min(same, key=_rate))


def layout_notes(report: Report) -> Iterator[Remark]:
    """Of files of one image: that large files bring no gain with any device, or no sure one, measured or forecast."""
    rows = [row for device in by_device(report.configurations) if not on_cpu(device) for row in device]
    for images, same, _ in _alike_but_for(best_of(report, rows), "layout"):
        files = [row for row in same if row.config.layout == "files"]
        others = [row for row in same if row not in files]
        pairs = [(row, now) for row in others for now in files if _measured_on(row) == _measured_on(now)]
        gains = [gain for row, now in pairs if (gain := _over(row, now))]
        free = [row.verdict.speedups["storage"] for row in files if row.verdict and row.config.cache == "cold"]
        why: Facts = {}
        if gains and len(gains) == len(pairs) and max(gain.value for gain in gains) < WORTH:
            why = {"layouts": join_words(list(dict.fromkeys(row.config.layout for row in others)))}
            high = max(gain.high for gain in gains)
            why |= {"low": min(gain.low for gain in gains), "high": high} if high >= WORTH else {}
        elif files and not others and len(free) == len(files) and all(gain and gain.value < WORTH for gain in free):
            largest = max((gain for gain in free if gain), key=lambda gain: gain.value)
            why = {"low": largest.low, "high": largest.high, "how": largest.how}
        if why:
            yield Remark(code="layout_gains_nothing", facts={"data": images, **why})


def with_warm_notes(report: Report) -> Report:
    """The report with a note on each configuration that was slower with warm files than the same with cold ones."""
    rows = list(report.configurations)
    known = [row for row in measured(report.configurations) if row.images_per_s]
    cold = {alike_but_for(row.config, "cache"): row for row in known if row.config.cache == "cold"}
    for row in known:
        cold_row = cold.get(alike_but_for(row.config, "cache"))
        gain = _over(row, cold_row) if cold_row and row.config.cache == "warm" else None
        if row.detail and gain and gain.value * WORTH < 1:
            note = Remark(code="warm_slower", facts={"low": gain.low, "high": gain.high})
            detail = replace(row.detail, notes=(*row.notes, note))
            rows[rows.index(row)] = replace(row, detail=detail)
    return replace(report, configurations=tuple(rows))


def _rate(row: ConfigurationRow) -> float:
    return row.images_per_s.value if row.images_per_s else 0.0


def _steps(rows: Iterable[ConfigurationRow], wanted: Callable[[Advice], bool]) -> list[NextStep]:
    """Of two changes of each row the wanted ones; the same action is given once for all that gain by it."""
    pairs = [(row, advice) for row in rows for advice in row.advice[:MOST_ADVICE] if wanted(advice)]
    return [
        NextStep(
            advice=tuple(advice for _, advice in group),
            command=group[0][1].command,
            configurations=_keys([row for row, _ in group]),
        )
        for group in by_key(pairs, lambda pair: (as_read(pair[1].action), pair[1].command)).values()
    ]


def as_read(action: Action) -> Hashable:
    """The same for changes that read the same."""
    facts = action.facts
    if action.code == "files_in_memory" and facts["share"] == 1:
        facts = {}
    shown = {
        name: value if isinstance(value, str) else significant(value, _FIGURES.get(name, 3))
        for name, value in facts.items()
    }
    return action.code, tuple(sorted(shown.items()))


def _longer(report: Report, rows: Rows) -> list[NextStep]:
    """To measure longer, without others, or again on a machine that changed: where few of the best have a cause."""
    best, of_all = best_of(report, rows), report.run.notes
    known = measured(report.configurations)
    said = {row.key: (*row.notes, *filter(_mostly_taken, of_all)) for row in known}
    cut = {key for key, notes in said.items() if any(note.code in TOO_SHORT for note in notes)}
    settled, changed = {row.key for row in best if firm(row)}, {row.key for row in best if outran(row)}
    cut -= settled
    held_up = {key for key, notes in said.items() if any(note.code == "others_took" for note in notes)}
    reasons = {row.key: row.bound.reason.code for row in best if row.bound}
    misfits = {key for key in held_up if reasons.get(key) == "outside_noise_band"}
    short = [row for row in best if row.key in cut | misfits | changed or reasons.get(row.key) in WANT_OF_TIME]
    if not short or 2 * len(settled - changed) >= len(best):
        return []
    notes = [note for row in short for note in said.get(row.key, ())]
    enough_s = [ceil(float(note.facts["budget_s"])) for note in notes if "budget_s" in note.facts]
    budget_s = max(enough_s, default=60 * ceil(MORE_TIME * report.run.wall_s / 60))
    taken = max((float(note.facts["share"]) for note in notes if note.code == "others_took"), default=None)
    remark = Remark(code="measure_again" if changed else "measure_longer")
    remark = remark if taken is None else Remark(code="measure_alone", facts={"share": taken})
    # Rounds that were asked for are added to those that there are, unless the machine was another one then.
    again = resumed(report.run) if any(row.key in cut for row in short) and not changed else ""
    command = f"{again} --budget {budget_s}".lstrip()
    return [NextStep(remark=remark, command=command, configurations=_keys(short))]


def resumed(run: RunInfo) -> str:
    """The command that goes on with a sweep, from where that was typed; by its name where its path is not known."""
    if not run.command.startswith(("loaderprobe sweep", "loaderprobe.sweep")):
        return ""
    words = shlex.split(run.command) if run.command.startswith("loaderprobe sweep") else []
    given = [after for word, after in pairwise(words) if word == "--out"]
    given += [word.removeprefix("--out=") for word in words if word.startswith("--out=")]
    out = given[0] if given else f"loaderprobe-runs/{run.name}"
    known = PurePath(out).name == run.name and (given or run.name[:8].isdigit())
    return f"loaderprobe sweep --resume {shlex.quote(out if known else run.name)}"


def _more_cores(report: Report, rows: Rows, full: Rows) -> list[NextStep]:
    """Of the best configurations in `full`: the cores that the accelerators of a machine need there, if more than here.

    The same of all ranks and cache states of one compute: for the most accelerators.
    """
    spec = rows[0].config.compute
    full = [row for row in full if (row.config.compute.name, row.config.compute.model) == (spec.name, spec.model)]
    needs = [need for need in report.needs if (need.compute, need.model) == (spec.name, spec.model)]
    data = [row.config.resolution for row in full]
    ranks = max((row.config.ranks // row.config.nodes for row in full), default=1)
    cores = [ranks * need.cores for need in needs if need.data in data and need.cores is not None]
    if not cores or not any(row in full for row in rows) or max(cores) <= report.environment.cores_available:
        return []
    facts: Facts = {"accelerator": needs[0].accelerator, "low_cores": min(cores)}
    facts |= {"high_cores": max(cores), "cores_available": report.environment.cores_available}
    facts |= {"ranks": ranks} if ranks > 1 else {}
    return [NextStep(remark=Remark(code="more_cores", facts=facts), configurations=_keys(full))]


def _not_known(report: Report) -> Iterable[Remark]:
    if not report.environment.gpus:
        yield Remark(code="real_gpu")
    if any(data.generated for data in report.run.data):
        yield Remark(code="own_images")
    if not any(row.config.nodes > 1 for row in measured(report.configurations)):
        yield Remark(code="several_machines")
    if any(need.supply and need.supply.at_least for need in report.needs):
        yield Remark(code="storage_ceiling")


_MEASURING = ("loaderprobe sweep", "loaderprobe diagnose", "loaderprobe run")


def again_with(command: str, option: str) -> str:
    """The command with another option in place of those it rules out, for a directory of its own; or a whole command.

    Empty for a call in Python, which has no such option.
    """
    if option.startswith("--") and command.startswith("loaderprobe."):
        return ""
    if not option.startswith("--") or not command.startswith(_MEASURING):
        return option
    words = shlex.split(command)
    gone = {"--out", "--resume", *(word for word in option.split() if word.startswith("--"))}
    # An emulated accelerator has no model that could be trained one way or another; whole epochs are of files.
    if option.startswith("--compute emulated"):
        gone |= {flag for row in SWEEP if row.panel == COMPUTE and row.name != "batch_size" for flag in row.flags}
    gone |= {"--epochs"} if option.startswith("--layout") else set()
    switches = {flag for row in SWEEP if row.type is bool for flag in row.flags}
    script = words[words.index("--") :] if "--" in words else []
    kept, typed = [], iter(words[: len(words) - len(script)])
    for word in typed:
        if word.partition("=")[0] not in gone:
            kept.append(word)
        elif word in gone - switches:
            # Its value goes with it.
            next(typed, None)
    return " ".join(filter(None, (shlex.join(kept), option, shlex.join(script))))

"""The first page: what was examined, the answer, the map, the next change, and what accelerators would ask."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from loaderprobe.analyze.answer import best_of, measured
from loaderprobe.records.config import OPTIONS, RunConfig
from loaderprobe.records.remark import Remark, each_once, subject_of
from loaderprobe.records.report import Answer, ConfigurationRow, Limited, NextStep, Outlook, Report, Scaling, Summary
from loaderprobe.records.resources import RESOURCE, RESOURCES
from loaderprobe.records.verdict import Interval
from loaderprobe.render.document import Command, Item, Paragraph, Section, Shown, Table, further
from loaderprobe.render.figures import reason_words, reasons, words_of
from loaderprobe.render.format import MISSING, counted, first_upper, interval, named, percent, rate
from loaderprobe.render.groups import (
    RowGroup,
    detail_of,
    full_label,
    gain_words,
    group_of,
    groups,
    limit_map,
    map_key,
    read_words,
    then_of,
    used_words,
)
from loaderprobe.render.wording import bound_words, loading, option_words, speed, variation
from loaderprobe.render.words import action_words, advice_words, forecast_words, knee_words, remark_words, sentence
from loaderprobe.units import format_bytes, format_duration, format_rate, join_words, significant

# What a report says as a whole: how many ended where, what is missing and why.

HOW_TO_READ = (
    "A verdict is an experiment, not a threshold on a share of the step time. An ablation makes one resource free, "
    "one at a time. Storage 1.9x means that training would be 1.9 times as fast if reading files cost nothing. The "
    "resource with the largest speed-up is the limit. If no speed-up reaches 5 %, the configuration is balanced. If "
    "two speed-ups are about the same, both resources are named. If training differs from its prediction by more "
    "than the noise band, the verdict is inconclusive. Measured: the loader ran with that resource free. Estimated "
    "(est.): computed from what the workers spent their time on. Serial: num_workers=0, the training thread loads. "
    "Cold: files come from storage, not from memory. Knee: the fewest workers that are enough."
)

EMULATED_NOTE = "Emulated accelerator: its throughput is specified, not measured."
CPU_NOTE = "Training ran on a CPU: nothing follows for a GPU."

_ONE_RANK = remark_words(Remark(code="one_rank"))
"""No reader misses what one rank loses to others."""
_MOST_SKIPPED = 3
"""Of the skipped files of a data set, so many are named beside the answer."""
_SIDES = (
    ("input", "{} input-bound"),
    ("compute", "{} compute-bound"),
    ("balanced", "{} balanced"),
    ("inconclusive", "{} inconclusive"),
)


def counts(report: Report) -> str:
    """How many configurations ended on each side; what others did meanwhile, where no sentence on how sure says it."""
    rows = report.summary.configurations
    sides: Counter[str] = Counter(row.bound.side for row in rows if row.bound)
    states = Counter(row.status for row in rows)
    words = [text.format(sides[side]) for side, text in _SIDES if sides[side]]
    emulated = sum(row.emulated for row in measured(rows))
    all_of = "all" if emulated == len(measured(rows)) else emulated
    against = f" ({all_of} against an emulated accelerator)" if emulated else ""
    found = f"Of {counted(len(measured(rows)), 'measured configuration')}{against}: {join_words(words)}."
    lost = [f"{states[state]} {state}" for state in ("failed", "skipped") if states[state]]
    parts = [found if words else "Nothing was measured.", f"{join_words(lost).capitalize()}." if lost else ""]
    if not any(each.code == "how_sure" for each in report.summary.answer):
        parts += _beside(report)
    return " ".join(part for part in parts if part)


def _beside(report: Report) -> list[str]:
    """What other processes and other machines took meanwhile, a sentence each."""
    return [f"{first_upper(said)}." for said in map(remark_words, report.summary.run.notes)]


def not_complete(report: Report) -> str:
    """How many configurations are pending, and the command that continues, from where the run's directory stands."""
    run = report.summary.run
    pending = counted(run.pending, "configuration")
    return f"Not complete: {pending} not measured yet; loaderprobe sweep --resume {shlex.quote(run.name)} continues."


def sentences(rows: Sequence[ConfigurationRow], among: Sequence[ConfigurationRow]) -> list[tuple[str, str]]:
    """(label, sentence) of each row that has a verdict; the label says what sets it apart `among` all beside it."""
    return [(joint_label([row], among), sentence(row.bound)) for row in rows if row.bound]


def joint_label(sharing: Sequence[ConfigurationRow], rows: Sequence[ConfigurationRow]) -> str:
    """`256x256 to 1024x768, serial and 2 workers`, or `256x256, serial; 500x375, 2 and 4 workers`."""
    together: dict[tuple[str, str], list[ConfigurationRow]] = {}
    for row in sharing:
        together.setdefault((row.config.resolution, variation(row, rows)), []).append(row)
    alike: dict[tuple[str, str], list[str]] = {}
    for (resolution, extra), some in together.items():
        workers = [row.config.loader.workers for row in some]
        counts = [str(count) if count else "serial" for count in workers]
        loading_words = loading(some[0]) if len(some) == 1 else f"{join_words(counts)} workers"
        alike.setdefault((loading_words, extra), []).append(resolution)
    return "; ".join(joint_name(names, ", ".join(filter(None, words)), rows) for words, names in alike.items())


def joint_name(names: Sequence[str], rest: str, rows: Sequence[ConfigurationRow]) -> str:
    """Data sets and what else names their rows: `256x256 to 1024x768, 2 workers`."""
    resolutions = _resolutions(list(dict.fromkeys(names)), list(dict.fromkeys(row.config.resolution for row in rows)))
    return f"{resolutions}, {rest}" if rest else resolutions


def _resolutions(names: Sequence[str], order: Sequence[str]) -> str:
    """`256x256 to 1024x768` for three or more that follow each other in the report."""
    begin = order.index(names[0])
    if len(names) > 2 and list(names) == order[begin : begin + len(names)]:
        return f"{names[0]} to {names[-1]}"
    return join_words(names)


def missing(report: Report, columns: Sequence[str] = ()) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(what, why) for each different reason why a figure does not exist: first of `columns`, then of all others.

    `columns` are places in the summary. The first end with each damaged file without a row.
    """
    first, others = (_missing(report, columns, among) for among in (True, False))
    gpu_reason = report.summary.environment.gpu_reason
    no_gpu = remark_words(gpu_reason) if gpu_reason else ""
    if no_gpu and no_gpu not in [why for _, why in (*first, *others)]:
        others.append(("GPU", no_gpu))
    return first + _damaged(report), others


def _missing(report: Report, columns: Sequence[str], among: bool) -> list[tuple[str, str]]:
    """Of the figures that are among the columns, or are not."""
    found: dict[str, dict[str, list[ConfigurationRow]]] = {}
    rows = measured(report.summary.configurations)
    for row in rows:
        for at, reason in reasons(row).items():
            if reason != _ONE_RANK and (at in columns) is among:
                found.setdefault(reason, {}).setdefault(words_of(at), []).append(row)
    out = []
    for reason, fields in found.items():
        touched = list({row.key: row for affected in fields.values() for row in affected}.values())
        out.append((f"{join_words(list(fields))} ({_which(touched, rows, report)})", reason))
    return out


def _which(some: Sequence[ConfigurationRow], rows: Sequence[ConfigurationRow], report: Report) -> str:
    """The one configuration by name, else how many."""
    if len(some) == 1:
        return full_label(some[0], report)
    return "all" if len(some) == len(rows) else counted(len(some), "configuration")


def without_figures(report: Report, status: str) -> list[tuple[str, str]]:
    """(labels, reason) for the configurations that failed or were skipped; those with one reason share a line."""
    out = []
    for group in groups(report):
        by_reason: dict[str, list[ConfigurationRow]] = {}
        for row in group.rows:
            if row.status == status:
                by_reason.setdefault(reason_words(row), []).append(row)
        for reason, rows in by_reason.items():
            out.append((", ".join((joint_label(rows, group.rows), group.device, group.cache, *group.common)), reason))
    return out


def notes(report: Report) -> list[tuple[str, str]]:
    """(where, note) for each different note that a measurement left."""
    rows = measured(report.summary.configurations)
    left = [(note, row) for row in rows if (detail := detail_of(report, row)) for note in each_once(detail.notes)]
    found: dict[Hashable, list[ConfigurationRow]] = {}
    for note, row in left:
        found.setdefault(subject_of(note), []).append(row)
    said = each_once(note for note, _ in left)
    return [(_which(found[subject_of(note)], rows, report), remark_words(note)) for note in said]


def skipped_files(report: Report) -> list[str]:
    """`2 of 500 files of photos were skipped: a.jpg: damaged: truncated; notes.txt: not an image`, by data set."""
    found = []
    for data in report.summary.run.data:
        named = data.skipped[:_MOST_SKIPPED]
        more = data.skipped_count - len(named)
        if data.skipped_count:
            were = "was" if data.skipped_count == 1 else "were"
            of = f"{data.skipped_count} of {counted(data.images_found + data.skipped_count, 'file')} of {data.label}"
            found.append(f"{of} {were} skipped: {'; '.join([*named, *([f'{more} more'] if more else [])])}.")
    return found


def _damaged(report: Report) -> list[tuple[str, str]]:
    """(file, what is wrong, and what is missing without it); a result that is damaged has a failed row."""
    lost = {
        "files": "the description of its data is missing, and so is advice on where to keep them",
        "ceilings": "what the storage can deliver is not known",
        "prefilled": "what a full buffer does to short benchmarks is estimated",
        "epochs": "its epochs are missing",
    }
    found = [(each, lost.get(each.file.partition("/")[0])) for each in report.summary.run.damaged]
    return [(each.file, f"it {each.reason}; {missing}") for each, missing in found if missing]


def environment_facts(report: Report) -> list[tuple[str, str]]:
    """(what, which) for the machine, its software and the storage under the data."""
    machine = report.summary.environment
    no_gpu = remark_words(machine.gpu_reason) if machine.gpu_reason else "no reason recorded"
    gpus = [
        f"{gpu.name}{f', {format_bytes(gpu.memory_bytes)}' if gpu.memory_bytes else ''}"
        f"{f', driver {gpu.driver}' if gpu.driver else ''}"
        for gpu in machine.gpus
    ]
    shared = machine.shared_memory_bytes
    facts = [
        ("CPU", f"{machine.cpu_model}, {machine.cores_available:g} of {machine.cores_total} cores available"),
        ("Memory", format_bytes(machine.memory_bytes)),
        ("Shared memory", "not known" if shared is None else f"{format_bytes(shared)} in /dev/shm"),
        ("GPU", join_words(gpus) or f"none: {no_gpu}"),
        ("Kernel", machine.kernel),
        ("Python", machine.python),
        ("torch", machine.torch or "not installed"),
        ("torchvision", machine.torchvision or "not installed"),
        ("loaderprobe", machine.loaderprobe),
    ]
    for place in machine.storage:
        devices = f", device {join_words(place.devices)}" if place.devices else ", block device not visible"
        ahead = "" if place.read_ahead_bytes is None else f", read-ahead {place.read_ahead_bytes / 1024:.0f} KiB"
        notes = "".join(f"; {remark_words(note)}" for note in place.notes)
        where = f"{place.filesystem} ({place.kind}) on {place.mount}, {place.source}"
        facts.append(("Storage", f"{place.path}: {where}{devices}{ahead}{notes}"))
    return facts


NOUNS = {resource.name: resource.answer or resource.noun for resource in RESOURCES} | {
    "balanced": "several resources alike"
}
"""What limits, in an answer."""
_MOST_CLAUSES = 3
"""Of the answer for one device."""


# The answer in sentences.


def answers(report: Report) -> tuple[str, ...]:
    """A sentence or two for each device, and on storage."""
    return tuple(answer_words(report, each) for each in report.summary.answer)


def answer_words(report: Report, answer: Answer) -> str:
    """One of them."""
    rows = [row for row in report.summary.configurations if row.key in answer.configurations]
    if answer.code.startswith("storage"):
        return _on_storage(report, answer, rows)
    if answer.code == "how_sure":
        return _how_sure(report, answer, rows)
    return _on_device(report, answer, rows)


def _how_sure(report: Report, answer: Answer, rows: Sequence[ConfigurationRow]) -> str:
    """`How sure: one cause leads in 5 of 6 configurations, measured in 3 rounds; the least sure is ...`."""
    facts = {name: value for name, value in answer.facts.items() if not isinstance(value, str)}
    led, tried = len(answer.configurations), int(facts["measured"])
    how = "measured" if tried == led else "estimated" if not tried else f"{tried} of them measured,"
    rounds = _ends(f"{facts[name]:.0f}" for name in ("low_rounds", "high_rounds"))
    bands = _ends(significant(100 * facts[name], 2) for name in ("low_band", "high_band"))
    least = next(row for row in rows if row.key == answer.configurations[0])
    which = f"; the least sure is {joint_label([least], rows)}" if led > 1 else ""
    low = f", at least {significant(facts['low'], 2)} within noise" if facts["low_rounds"] > 1 else ""
    noise = low or " (one round, so its noise is not known)"
    cause = RESOURCE[str(answer.facts["resource"])]
    limits = {name for each in report.summary.answer for limit in each.limits for name in limit.resources}
    parts = f" {_in_preprocessing(facts)}" if "preprocessing" in limits else ""
    spread = " ".join([f"Their rates are good to ±{bands} %.", *_beside(report)])
    return (
        f"How sure: {answer.facts['level']}. One cause leads in {led} of {counted(int(facts['of']), 'configuration')}, "
        f"{how} in {rounds} round{'s' * (rounds != '1')}{which}: {significant(facts['speedup'])} times as fast "
        f"{cause.if_free or f'if {NOUNS[cause.name]} were free'}{noise}. {spread}{parts}"
    )


def _in_preprocessing(facts: Mapping[str, float]) -> str:
    """Which part of it takes the CPU, where that was timed."""
    if "low_decoding" not in facts:
        return "Preprocessing is decoding and augmentation together."
    share = _ends(percent(facts[name]).removesuffix(" %") for name in ("low_decoding", "high_decoding"))
    return f"Preprocessing is {share} % decoding, by CPU time timed apart."


def _ends(shown: Iterable[str]) -> str:
    """`2 to 9`, or `2` where both ends read the same."""
    return " to ".join(dict.fromkeys(shown))


def _parts(answer: Answer) -> str:
    """What stands after the limits."""
    said = "; ".join(map(remark_words, answer.parts))
    return f": {said}" if said else ""


def _nouns(found: Limited) -> str:
    return join_words([NOUNS.get(name, name) for name in found.resources], "or")


def _on_device(report: Report, answer: Answer, rows: Sequence[ConfigurationRow]) -> str:
    """What limits there; and with which files, where it was asked for several."""
    found = groups(report)
    group = group_of(found, rows[0].key)
    if answer.code == "cpu_is_the_limit":
        ends = dict.fromkeys(rate(float(answer.facts[name])) for name in ("low_images_per_s", "high_images_per_s"))
        at = f"at {' to '.join(ends)} images/s: nothing follows for a GPU"
        return f"On {group.short if group.model else 'this CPU'}, training itself is the limit, {at}."
    files = "files as found" if group.cache == "as-found" else f"{group.cache} files"
    several = len({each.cache for each in found if each.compute == group.compute}) > 1
    on = f"On {group.short}{f' with {files}' if several else ''}"
    if answer.code == "nothing_conclusive":
        return f"{on}, no configuration is conclusive."
    nothing = ": nothing follows for a GPU" if group.cpu else ""
    return f"{on}, {_clauses(answer, group)}{nothing or _parts(answer)}."


def _clauses(answer: Answer, group: RowGroup) -> str:
    """`training on 256x256 is limited by storage; on 500x375 by compute`; data sets that are alike share a clause."""
    alike: dict[tuple[str, ...], list[Limited]] = {}
    for limit in answer.limits:
        alike.setdefault(limit.data, []).append(limit)
    clauses = [
        f"{'on' if number else 'training on'} {joint_name(names, '', group.rows)} {'' if number else 'is limited '}"
        + join_words([f"by {_nouns(each)}{_with(each, some)}" for each in some])
        for number, (names, some) in enumerate(list(alike.items())[:_MOST_CLAUSES])
    ]
    more = ["the map shows the rest"] if len(alike) > _MOST_CLAUSES else []
    return "; ".join([*clauses, *more]) + _where(answer, named=any(len(some) > 1 for some in alike.values()))


def _with(found: Limited, among: Sequence[Limited]) -> str:
    """With which numbers of workers, where something else limits with others; or with as many, by prefetch factor."""
    if len(among) == 1:
        return ""
    others = {count for other in among if other is not found for count in other.workers}
    some = " and some prefetch factors" if others & set(found.workers) else ""
    return f" with {_numbers(found.workers)}{some}"


def _where(answer: Answer, *, named: bool) -> str:
    """With which numbers of workers the clauses hold, where they do not say it; the map has single ones."""
    if answer.facts["covered"] == "conclusive":
        return " wherever the verdict is conclusive"
    if named:
        return ""
    counts = sorted({count for limit in answer.limits for count in limit.workers})
    if len(counts) == 1:
        return f" with {_numbers(counts)}"
    return f" with every number of workers {'tried' if answer.facts['covered'] == 'all' else 'measured'}"


def _numbers(counts: Sequence[int]) -> str:
    """`the serial loader`, `2 and 4 workers`."""
    words = join_words([str(count) if count else "the serial loader" for count in counts])
    return words if list(counts) == [0] else f"{words} worker{'s' if counts[-1] > 1 else ''}"


def _on_storage(report: Report, answer: Answer, rows: Sequence[ConfigurationRow]) -> str:
    """Whether storage limits; where configurations differ in ranks, with which, and with which nothing is known."""
    if answer.code == "storage_not_read":
        return "All files were in memory, as asked: nothing follows for storage."
    unknown = [row for row in report.summary.configurations if row.key in answer.unknown]
    ranks = f" {with_ranks(rows)}" if any(row.config.ranks > 1 for row in (*rows, *unknown)) else ""
    on = (" on this CPU" if "only" in answer.facts else "") + ranks
    if answer.code == "storage_limits":
        sure, perhaps, of = (int(answer.facts[name]) for name in ("limited", "perhaps", "conclusive"))
        whole = counted(of, "conclusive configuration")
        said = f"Storage limits {sure} of {whole}" if sure else f"Storage may limit {perhaps} of {whole}"
        more = f", and may limit {perhaps} more" if sure and perhaps else ""
        found = f"{said}{on}{more}{_parts(answer)}."
    else:
        first = "the first limit" if answer.code == "storage_not_first" else "the limit"
        found = f"Storage is not {first}{on}{_parts(answer)}." + "".join(
            f" If {_nouns(limit)} cost nothing, storage would limit {joint_name(limit.data, '', rows)} next."
            for limit in answer.limits
        )
    if unknown:
        found += f" Nothing is known of storage {with_ranks(unknown)}: no configuration there is conclusive."
    return found


def with_ranks(rows: Sequence[ConfigurationRow]) -> str:
    """`with 1 rank`, `with 1 and 2 ranks`, `with 1 rank and 4 ranks on 2 nodes`."""
    configs = {(row.config.ranks, row.config.nodes): row.config for row in rows}
    chosen = [configs[each] for each in sorted(configs)]
    if len(chosen) == 1 or any(config.nodes > 1 for config in chosen):
        return f"with {join_words([_ranks(config) for config in chosen])}"
    return f"with {join_words([str(config.ranks) for config in chosen])} ranks"


def _ranks(config: RunConfig) -> str:
    """`1 rank`, `4 ranks`, `4 ranks on 2 nodes`."""
    return f"{counted(config.ranks, 'rank')}{f' on {config.nodes} nodes' if config.nodes > 1 else ''}"


# Knees, as they stand under the table of a group.


def knees(report: Report, group: RowGroup) -> list[tuple[str, str]]:
    """(what, sentence) for each knee of the group: one for each set of rows that differ in workers only."""
    rows = {row.key: row for row in group.rows}
    found = []
    for knee in report.summary.knees:
        row = next((rows[key] for key in reversed(knee.keys) if key in rows), None)
        if row:
            extra = variation(row, group.rows)
            found.append((f"{row.config.resolution}, {extra}" if extra else row.config.resolution, knee_words(knee)))
    return found


# What each model gains on each device, with each number of ranks, as a table.

SCALING_HEAD = ("model", "on", "workers", "images/s", "speed-up", "efficiency", "over CPU", "limited by")
SCALING_RIGHT = frozenset(range(2, 7))
SCALING_NOTE = (
    "Speed-up: over the fewest ranks of the same model and device. Efficiency: that, over how many times the "
    "accelerators there are; ranks on a CPU share its cores, so there it is that over nodes. Each rank trains a whole "
    "batch in a step."
)
NOISE = " (noise)"
"""Beside a speed-up whose range holds 1."""


def scaling_section(report: Report) -> Section:
    """A line for each model, device and number of ranks; empty where nothing compares. One model needs no column."""
    rows = {row.key: row for row in report.summary.configurations}
    pairs = [(each, rows[each.configuration]) for each in report.summary.scaling]
    apart = [name for name in ("resolution", "cache") if len({OPTIONS[name].of(row.config) for _, row in pairs}) > 1]
    lines = [_scaling_line(each, row, apart) for each, row in pairs]
    columns = [{line[place] for line in lines} for place in range(len(SCALING_HEAD))]
    shown = [
        place
        for place, name in enumerate(SCALING_HEAD)
        if columns[place] != {MISSING} and (len(columns[place]) > 1 or name not in ("model", "workers"))
    ]
    table = Table(
        head=tuple(SCALING_HEAD[place] for place in shown),
        lines=tuple(tuple(line[place] for place in shown) for line in lines),
        right=frozenset(number for number, place in enumerate(shown) if place in SCALING_RIGHT),
    )
    parts = (table, Paragraph(text=SCALING_NOTE, tone="quiet")) if lines else ()
    return Section(title="Models, devices and ranks", parts=parts, under=True)


def _scaling_line(scaling: Scaling, row: ConfigurationRow, apart: Sequence[str]) -> tuple[str, ...]:
    config = row.config
    over = f" on {counted(config.nodes, 'node')}" if config.nodes > 1 else ""
    return (
        ", ".join([config.compute.model, *(str(OPTIONS[name].of(config)) for name in apart)]),
        f"{f'{config.ranks} x ' if config.ranks > 1 else ''}{config.compute.name}{over}",
        str(config.loader.workers or "serial"),
        f"{interval(row.images_per_s)}{TOO_NOISY if row.images_per_s and row.images_per_s.too_wide else ''}",
        _gained(scaling.speedup),
        percent(scaling.efficiency),
        _gained(scaling.over_cpu),
        bound_words(row),
    )


def _gained(speedup: Interval | None) -> str:
    return f"{interval(speedup)}{NOISE if speedup and speedup.low <= 1 <= speedup.high else ''}"


# What accelerators would ask of storage and cores, beside what this machine has, as a table.


def need_sections(report: Report) -> Iterator[Section]:
    """A table for each kind of accelerator and model, a line a data set."""
    found: dict[tuple[str, str], list[Outlook]] = {}
    for need in report.summary.needs:
        found.setdefault((need.compute, need.model), []).append(need)
    several = len({compute for compute, _ in found}) < len(found)
    for (_, model), some in found.items():
        yield _needs(some, report.summary.environment.cores_available, f" of {model}" if several else "")


PLANNED = " *"
"""Beside the data set that a plan takes."""


def _needs(some: Sequence[Outlook], cores: float, trained: str) -> Section:
    first = some[0]
    counts = [str(need.accelerators) for need in first.needs]
    assumed = "" if first.compute != "cpu" else f" No accelerator ran here: the rate of {first.accelerator} is assumed."
    opens = join_words([f"{float(significant(need.files_per_s)):,.0f}" for need in first.needs])
    missing: dict[str, list[str]] = {}
    for each in some:
        if each.missing:
            missing.setdefault(remark_words(each.missing), []).append(each.data)
    reason = "".join(f" {_without_rate(names, len(some))}: {why}." for why, names in missing.items())
    pace = f" {remark_words(first.pace)}." if first.pace else ""
    head = ("data", *(f"{count} x" for count in counts), "storage here", "feeds", "cores each")
    planned = any(each.planned for each in some)
    more = f"{PLANNED}: default of loaderprobe plan, nearest to ImageNet" if planned else ""
    note = (
        f"And they open {opens} files a second. Needs are without headroom; feeds: accelerators, with "
        f"{percent(first.use)} of the storage's rate in use. cores each: estimated; {cores:g} here."
        f"{assumed}{pace}{reason}{f'{more}.' if more else ' More: loaderprobe plan'}"
    )
    return Section(
        title=f"What {named(first.accelerator, join_words(counts))} need at {percent(first.utilization)} of "
        f"{rate(first.images_per_s)} images/s{trained}, cold{' (specified)' if first.specified else ''}",
        parts=(
            # What a plan takes stands first: on a phone each line is a card.
            Table(
                head=head,
                lines=tuple(map(_line, sorted(some, key=lambda each: not each.planned))),
                right=frozenset(range(1, len(head))),
            ),
            Paragraph(text=note, tone="quiet"),
        ),
        under=True,
    )


def _without_rate(names: Sequence[str], among: int) -> str:
    """`No rate of this storage for 500x375`; without the names where no data set has one."""
    return "No rate of this storage" + (f" for {join_words(names)}" if len(names) < among else "")


def _line(each: Outlook) -> tuple[str, ...]:
    least = ">= " if each.supply and each.supply.at_least else ""
    return (
        f"{each.data}{PLANNED}" if each.planned else each.data,
        *(format_rate(need.read_bytes_per_s) for need in each.needs),
        f"{least}{format_rate(each.supply.read_bytes_per_s)}" if each.supply else MISSING,
        f"{least}{significant(each.supply.feeds, 2)}" if each.supply else MISSING,
        significant(each.cores, 2) if each.cores is not None else MISSING,
    )


# The page.

BEST_HEAD = ("best", "workers", "images/s", "of alone", "MB/s of max", "if free → then limited by")
BEST_RIGHT = frozenset({1, 2, 3, 4})
BEST_NOTE = (
    "best: with the workers that are enough; ±: 95 % interval, from rounds and steps. alone: "
    "compute without a loader. MB/s: read while training, of the most that the storage alone gave. if free: speed-up "
    "of training if that cost nothing."
)
ESTIMATED_NOTE = " est.: estimated, not measured."
PREFETCH_NOTE = " 8 x 4: 8 workers, prefetch factor 4."
TOO_NOISY = ", too noisy"
"""Beside a rate whose band is wider than itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToDo:
    """What to do, and what to type for it."""

    text: str
    command: str = ""
    labels: str = ""
    """For which configurations."""

    @property
    def words(self) -> str:
        """The change, what to type, and what for."""
        typed = f"; try it: {self.command}" if self.command else ""
        return f"{self.text}{typed}{f' (for {self.labels})' if self.labels else ''}"


def first_screen(report: Report) -> Iterator[Section]:
    """What limits, how sure that is and what is not known, what to change next, what accelerators need; then the maps.

    What only a CPU shows comes after that, where anything else trained.
    """
    rows, found = report.summary.configurations, groups(report)
    accelerated = {row.key for row in rows if row.config.compute.kind != "cpu"}
    said: list[Paragraph] = []
    of_cpu: list[Paragraph] = []
    for each, text in zip(report.summary.answer, answers(report), strict=True):
        later = accelerated and accelerated.isdisjoint(each.configurations)
        (of_cpu if later else said).append(Paragraph(text=text, strong=not later and each.code != "how_sure"))
    undone = [] if report.summary.run.complete else [Paragraph(text=not_complete(report), tone="warning")]
    counted = Paragraph(text=" ".join((counts(report), *skipped_files(report))), tone="quiet")
    missing = [Paragraph(text=unknown(report))] if report.summary.not_known else []
    yield Section(parts=(*said, *missing, *undone))
    yield scaling_section(report)
    changes = [part for number, each in enumerate(to_dos(report), 1) for part in _change(each, number)]
    yield Section(title="Do next", parts=tuple(changes), under=True)
    yield from need_sections(report)
    yield Section(parts=(*of_cpu, counted), under=True)
    best = [_best_lines(report, group) for group in found]
    for group, lines in zip(found, best, strict=True):
        table = [Table(head=BEST_HEAD, lines=lines, right=BEST_RIGHT)] if lines else []
        yield Section(title=_device_title(group), parts=(limit_map(group), *table), under=True)
    if key := map_key(rows):
        note = _best_note([line for lines in best for line in lines])
        words = f"Map: images/s with half the 95 % interval, and what limits: {key}. {note}"
        yield Section(parts=(Paragraph(text=words.rstrip(), tone="quiet"),), under=True)
    warnings = [EMULATED_NOTE] if any(row.emulated for row in rows) else []
    warnings += [CPU_NOTE] if any(row.config.compute.kind == "cpu" for row in rows) else []
    yield Section(parts=further(Paragraph(text=warning, tone="warning") for warning in warnings), under=True)


def _best_note(lines: Sequence[tuple[str, ...]]) -> str:
    """What the columns of `BEST_HEAD` are; empty where there are none."""
    if not lines:
        return ""
    factors, estimated = any(" x " in line[1] for line in lines), any("est." in line[-1] for line in lines)
    return BEST_NOTE + (PREFETCH_NOTE if factors else "") + (ESTIMATED_NOTE if estimated else "")


def _change(change: ToDo, number: int) -> Iterator[Shown]:
    what = f" (for {change.labels})" if change.labels else ""
    yield from to_do(Item(text=f"{change.text}{what}", number=number), change.command)


def to_do(item: Item, command: str) -> Iterator[Shown]:
    """A change, and what to type for it."""
    yield replace(item, text=f"{item.text}; try it:") if command else item
    if command:
        yield Command(text=command, further=item.further)


def title(report: Report) -> str:
    """Data, storage, machine, day."""
    run, machine = report.summary.run, report.summary.environment
    names = list(dict.fromkeys(row.config.resolution for row in report.summary.configurations))
    data = joint_name(names, "", report.summary.configurations) if names else "no data"
    made = " (generated)" if run.data and all(each.generated for each in run.data) else ""
    places = dict.fromkeys(f"{each.filesystem} ({join_words(each.devices) or each.kind})" for each in machine.storage)
    storage = f" on {join_words(list(places))}" if places else ""
    gpus = join_words(list(dict.fromkeys(gpu.name for gpu in machine.gpus))) or "no GPU"
    return f"{data}{made}{storage}, {machine.cores_available:g} cores, {gpus}, {run.created_utc[:10]}"


def facts(report: Report) -> str:
    """The run, time, sizes of the images."""
    run = report.summary.run
    sizes = [f"{each.label} {significant(each.mean_size_bytes / 1e3)} kB" for each in run.data]
    mean = f"; {', '.join(sizes)} an image" if sizes else ""
    return f"loaderprobe {run.name}; its configurations took {format_duration(run.wall_s)}{mean}."


def _device_title(group: RowGroup) -> str:
    batches = {row.config.compute.batch_size for row in group.rows}
    batch = [option_words(group.rows[0].config, "batch_size")] if len(batches) == 1 else []
    return ", ".join((group.heading, f"alone {group.ceiling}", group.cache, *group.common, *batch))


def _best_lines(report: Report, group: RowGroup) -> tuple[tuple[str, ...], ...]:
    """Under `BEST_HEAD`. What a CPU trains beside an accelerator shows no more than its map does."""
    less = group.cpu and any(not other.cpu for other in groups(report))
    return () if less else tuple(_best(report, group, row) for row in best_of(report, group.rows))


def _best(report: Report, group: RowGroup, row: ConfigurationRow) -> tuple[str, ...]:
    return (
        row.config.resolution,
        _workers(row, group),
        f"{speed(row)}{TOO_NOISY if row.images_per_s and row.images_per_s.too_wide else ''}",
        used_words(row, beside_rate=not group.emulated),
        read_words(report, row),
        gain_words(row, then_of(report, row)),
    )


def _workers(row: ConfigurationRow, group: RowGroup) -> str:
    """`serial`, `8`, or `8 x 4` where the prefetch factors differ."""
    loader = row.config.loader
    several = len({other.config.loader.prefetch_factor for other in group.rows if other.config.loader.workers}) > 1
    return (
        f"{loader.workers} x {loader.prefetch_factor}"
        if loader.workers and several
        else str(loader.workers or "serial")
    )


def to_dos(report: Report) -> tuple[ToDo, ...]:
    """What to do next."""
    return tuple(dict.fromkeys(_to_do(report, step) for step in report.summary.next))


def _to_do(report: Report, step: NextStep) -> ToDo:
    """A change to some configurations says to which; with several numbers of ranks also with how many."""
    if step.remark:
        return ToDo(text=remark_words(step.remark), command=again_with(report.summary.run.command, step.command))
    group = group_of(groups(report), step.configurations[0])
    several = len({configuration.config.ranks for configuration in report.summary.configurations}) > 1
    ranks = f", {option_words(group.rows[0].config, 'ranks')}" if several else ""
    rows = {row.key: row for row in group.rows}
    names = [joint_label([rows[key]], group.rows) for key in step.configurations]
    forecasts = [f"{name} {forecast_words(each)}" for name, each in zip(names, step.advice, strict=True)]
    text = advice_words(step.advice[0])
    if len(step.advice) > 1:
        text = f"{action_words(step.advice[0].action)}: {'; '.join(forecasts)}"
    others = [row for row in best_of(report, group.rows) if row.key in rows and row.key not in step.configurations]
    if others:
        text = f"{text}; no sure gain for {joint_label(others, group.rows)}"
    command = again_with(report.summary.run.command, step.command)
    return ToDo(text=text, command=command, labels="" if names[-1] in text else labels_of(step, group) + ranks)


def again_with(command: str, option: str) -> str:
    """The sweep's command with another option, for a directory of its own; what is no option is a command itself."""
    if not option.startswith("--") or not command.startswith("loaderprobe sweep"):
        return option
    # An emulated accelerator has no model.
    gone = {"--out", "--resume", option.split()[0], *(["--model"] if option.startswith("--compute emulated") else [])}
    words = shlex.split(command)
    left_out = {place + step for place, word in enumerate(words) if word in gone for step in (0, 1)}
    left_out |= {place for place, word in enumerate(words) if word.partition("=")[0] in gone}
    return f"{shlex.join(word for place, word in enumerate(words) if place not in left_out)} {option}"


def with_sentences(report: Report) -> Summary:
    """The summary, with the sentences of the answer and of what to do next."""
    found = report.summary
    steps = [replace(step, sentence=_to_do(report, step).words) for step in found.next]
    said = [replace(each, sentence=answer_words(report, each)) for each in found.answer]
    return replace(found, answer=tuple(said), next=tuple(steps))


def labels_of(step: NextStep, group: RowGroup) -> str:
    """For which configurations of a group it is."""
    rows = {row.key: row for row in group.rows}
    return joint_label([rows[key] for key in step.configurations], group.rows)


def unknown(report: Report) -> str:
    """What does not follow from this run."""
    parts = [remark_words(each) for each in report.summary.not_known]
    return f"Not known: {', '.join(parts)}." if parts else ""

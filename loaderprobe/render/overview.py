"""What a report says as a whole: how many ended where, what is missing and why."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Hashable, Sequence

from loaderprobe.analyze.answer import measured
from loaderprobe.records.remark import Remark, each_once, subject_of
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.render.figures import reason_words, reasons, words_of
from loaderprobe.render.groups import detail_of, full_label, groups
from loaderprobe.render.remarks import read_ahead_words, remark_words
from loaderprobe.render.verdict_words import kind_of, sentence
from loaderprobe.render.wording import counted, first_upper, loading, variation
from loaderprobe.units import format_bytes, join_words

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
    """How many configurations ended on each side, and what other processes did meanwhile, a sentence each."""
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
    parts += [f"{first_upper(said)}." for said in map(remark_words, report.summary.run.notes)]
    return " ".join(part for part in parts if part)


def not_complete(report: Report) -> str:
    """How many configurations are pending, and the command that continues, from where the run's directory stands."""
    run = report.summary.run
    pending = counted(run.pending, "configuration")
    return f"Not complete: {pending} not measured yet; loaderprobe sweep --resume {shlex.quote(run.name)} continues."


def sentences(rows: Sequence[ConfigurationRow], among: Sequence[ConfigurationRow]) -> list[tuple[str, str]]:
    """(labels, sentence); rows that share verdict and reason share a sentence with the range of its figures.

    The labels say what sets them apart `among` all rows beside them.
    """
    found: dict[tuple[object, ...], list[ConfigurationRow]] = {}
    for row in rows:
        if row.bound:
            found.setdefault(kind_of(row.bound), []).append(row)
    return [
        (joint_label(sharing, among), sentence([row.bound for row in sharing if row.bound], beside_table=True))
        for sharing in found.values()
    ]


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
        out.append((f"{join_words(list(fields))} ({_where(touched, rows, report)})", reason))
    return out


def _where(some: Sequence[ConfigurationRow], rows: Sequence[ConfigurationRow], report: Report) -> str:
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
    return [(_where(found[subject_of(note)], rows, report), remark_words(note)) for note in said]


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
        ahead = "" if place.read_ahead_bytes is None else f", {read_ahead_words(place.read_ahead_bytes)}"
        notes = "".join(f"; {remark_words(note)}" for note in place.notes)
        where = f"{place.filesystem} ({place.kind}) on {place.mount}, {place.source}"
        facts.append(("Storage", f"{place.path}: {where}{devices}{ahead}{notes}"))
    return facts

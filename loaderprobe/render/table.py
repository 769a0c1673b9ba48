"""The report as CSV for a spreadsheet, and as Markdown for an issue or a storage plan."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import fields
from io import StringIO

from loaderprobe.records.gaps import GAP_CAUSES
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Advice, Rates
from loaderprobe.render.gpu import profiled
from loaderprobe.render.overview import (
    EMULATED_NOTE,
    HOW_TO_READ,
    Group,
    counts,
    environment_facts,
    full_label,
    groups,
    missing,
    most_important,
    notes,
    sentences,
    without_figures,
)
from loaderprobe.render.recommend import advised, knees
from loaderprobe.render.verdict_words import sentence
from loaderprobe.render.wording import (
    MISSING,
    RESOURCES,
    advice_words,
    bound_words,
    factor,
    gain_of,
    label,
    main_gains,
    megabytes_per_s,
    percent,
    speed,
    visible,
    worth_making,
)
from loaderprobe.units import format_bytes

Cell = str | int | float | bool | None

_PLAIN = (
    "key", "resolution", "workers", "batch_size", "prefetch_factor", "loader", "pipeline", "decoder", "tensor",
    "compute", "emulated", "cache", "status", "reason",
)  # fmt: skip
_FIGURES = (
    "predicted_images_per_s", "prediction_error", "input_wait_fraction", "accelerator_utilization", "bytes_per_image",
    "disk_read_bytes_per_s", "cold_fraction", "disk_ceiling_fraction", "read_amplification", "other_read_bytes_per_s",
    "instrument_cpu_fraction",
)  # fmt: skip


class CsvTable:
    """One line a configuration, units in the column names, an empty cell where there is no figure."""

    def render(self, report: Report) -> str:
        """CSV with a header line and LF line ends."""
        rows = [_flat(row) for row in report.summary.configurations]
        names = list(dict.fromkeys(name for row in rows for name in row))
        # The reasons stand last, whatever GPU counters a single row brings.
        names = [name for name in names if name != "unavailable"] + ["unavailable"]
        out = StringIO()
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()


def _flat(row: ConfigurationRow) -> dict[str, Cell]:
    cells: dict[str, Cell] = {name: getattr(row, name) for name in _PLAIN}
    cells["bound_side"] = row.bound.side if row.bound else None
    cells["bound_cause"] = row.bound.cause if row.bound else None
    cells["bound_candidates"] = " ".join(row.bound.candidates) if row.bound else None
    speed = row.images_per_s
    cells["images_per_s"] = speed.value if speed else None
    cells["images_per_s_low"] = speed.low if speed else None
    cells["images_per_s_high"] = speed.high if speed else None
    for field in fields(Rates):
        rates = row.rates_images_per_s
        cells[f"{field.name}_images_per_s"] = getattr(rates, field.name) if rates else None
    for resource in RESOURCES:
        gain = gain_of(row, resource)
        for part in ("value", "low", "high", "how"):
            name = f"gain_without_{resource}{'' if part == 'value' else f'_{part}'}"
            cells[name] = getattr(gain, part) if gain else None
    cells.update({name: getattr(row, name) for name in _FIGURES})
    cells.update({f"gpu_{name}": value for name, value in row.gpu.items() if name != "unavailable"})
    cells.update(_window(row))
    cells["reason_code"] = row.bound.reason.code if row.bound else None
    cells["sentence"] = sentence([row.bound]) if row.bound else None
    best = next((each for each in row.advice if worth_making(each)), None)
    cells["advice"] = "; ".join(advice.action for advice in row.advice) or None
    cells["best_advice_command"] = best.command or None if best else None
    cells["best_advice_images_per_s"] = best.after.value if best else None
    cells["best_advice_images_per_s_low"] = best.after.low if best else None
    cells["best_advice_images_per_s_high"] = best.after.high if best else None
    reasons = dict(row.unavailable)
    if "unavailable" in row.gpu:
        reasons.setdefault("gpu", str(row.gpu["unavailable"]))
    cells["unavailable"] = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or None
    return cells


def _window(row: ConfigurationRow) -> dict[str, Cell]:
    """Shares of the profiler window; no columns where there is none."""
    window = row.gpu_window
    if window is None or window.gaps is None or window.use is None:
        return {}
    use = {f"gpu_{field.name}": getattr(window.use, field.name) for field in fields(window.use)}
    return use | {f"gpu_idle_{cause}": window.gaps.share(cause) for cause in GAP_CAUSES}


class MarkdownReport:
    """Headline, a table a device and cache state, the sentences, the data, the machine."""

    def render(self, report: Report) -> str:
        """GitHub-flavoured Markdown."""
        blocks = [f"# loaderprobe: {_escaped(report.summary.run.name)}", _escaped(counts(report))]
        row = most_important(report)
        if row and row.bound:
            blocks.append(f"**{_escaped(full_label(row, report))}:** {_escaped(sentence([row.bound]))}")
        if any(row.emulated for row in report.summary.configurations):
            blocks.append(f"> {EMULATED_NOTE}")
        for group in groups(report):
            blocks += _group_blocks(report, group)
        blocks += _section("Failed", without_figures(report, "failed"))
        blocks += _section("Skipped", without_figures(report, "skipped"))
        blocks += _section("Notes", notes(report))
        blocks += _section(f"Not measured ({MISSING})", missing(report))
        blocks += ["## Data", _data_table(report)]
        blocks += _section("Machine", environment_facts(report))
        blocks += ["## How to read this", HOW_TO_READ, f"Command: {_escaped(report.summary.run.command)}"]
        return "\n\n".join(blocks) + "\n"


def _group_blocks(report: Report, group: Group) -> list[str]:
    lines = [
        [
            label(row, group.rows),
            speed(row),
            percent(row.accelerator_utilization),
            megabytes_per_s(row.disk_read_bytes_per_s),
            percent(row.disk_ceiling_fraction),
            percent(row.input_wait_fraction),
            bound_words(row),
            ", ".join(f"{name} {factor(gain)}" for name, gain in main_gains(row)) or MISSING,
        ]
        for row in group.rows
    ]
    head = [
        "configuration", "images/s", "used", "MB/s", "of max", "input wait", "bound", "speed-up if free",
    ]  # fmt: skip
    return [
        f"## {_escaped(group.title)}",
        f"Compute alone: {group.ceiling}.",
        _pipe_table(head, lines, right=range(1, 6)),
        *_bullets(sentences(group.rows)),
        *_bullets([(f"Knee of {subject}", words) for subject, words in knees(report, group)]),
        *_bullets([(f"GPU of {subject}", words) for subject, words in profiled(group)]),
        *_bullets([(f"Advice for {labels}", _advice(advice)) for labels, advice in advised(group)]),
    ]


def _advice(advice: Sequence[Advice]) -> str:
    return f"{advice_words(advice)}{f' (type: {advice[0].command})' if advice[0].command else ''}"


def _section(title: str, entries: Sequence[tuple[str, str]]) -> list[str]:
    return [f"## {title}", *_bullets(entries)] if entries else []


def _bullets(entries: Sequence[tuple[str, str]]) -> list[str]:
    """One list, or nothing."""
    lines = [f"- **{_escaped(what)}:** {_escaped(text)}" for what, text in entries]
    return ["\n".join(lines)] if lines else []


def _data_table(report: Report) -> str:
    lines = [
        [
            data.label,
            data.root,
            f"{data.images_used} of {data.images_found}",
            format_bytes(data.mean_size_bytes),
            "; ".join(data.skipped) + (" …" if data.skipped_count > len(data.skipped) else "") or "none",
        ]
        for data in report.summary.run.data
    ]
    return _pipe_table(["data", "path", "images used", "mean size", "skipped files"], lines, right=range(2, 4))


def _pipe_table(head: Sequence[str], lines: Sequence[Sequence[str]], right: range) -> str:
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    rows = [head, rule, *([_escaped(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _escaped(text: str) -> str:
    """`text` with everything that Markdown or HTML would act on made harmless, on one line."""
    text = visible(text).replace("\n", " ")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{char}" if char in "\\`*_[]|#" else char for char in text)

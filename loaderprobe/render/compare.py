"""A comparison as a page: what changed from A to B as ratios with intervals, gates, what would have been seen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from loaderprobe.analyze.comparison import FIELD_WORDS
from loaderprobe.records import values
from loaderprobe.records.compare import Compared, ComparedSide, ComparisonReport, Difference, Gate, Subject, Unit, Word
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Interval, SideAndCause
from loaderprobe.render.charts import Bar, Chart, ChartRow, How
from loaderprobe.render.document import Cell, Column, Document, Paragraph, Part, Section, few, items, table, tags
from loaderprobe.render.format import MISSING, counted, first_upper, interval, percent, span
from loaderprobe.render.groups import bound_words, full_label, letters_of, option_words, tone
from loaderprobe.render.rows import as_columns, interval_cells
from loaderprobe.render.words import message
from loaderprobe.units import format_bytes, join_words, significant

SCALES: dict[Unit, tuple[float, str]] = {
    "images/s": (1.0, "images/s"), "samples/s": (1.0, "samples/s"),
    "bytes/s": (1e-6, "MB/s"), "1/s": (1.0, "1/s"),
}  # fmt: skip


def name_of(report: ComparisonReport, subject: Subject) -> str:
    """Its name, as far as that sets it apart from all that were compared."""
    if subject.kind == "all":
        return "the ladder together" if report.kind == "bandwidth" else "all together"
    if subject.kind in ("training", "loader"):
        return "training" if subject.kind == "training" else "the loader alone"
    if subject.config is not None:
        every = [*(row.subject for row in report.rows), *report.only_before, *report.only_after]
        # What differs between A and B is said apart, and rounds stand beside the figures.
        without = {"data", "rounds", *(diff.field for diff in report.differences)}
        return full_label(_stand_in(subject), [*map(_stand_in, every)], without=without) or "the configuration"
    what = f"{subject.kind}s"
    if subject.kind == "phase":
        what = "files" if subject.name == "files" else f"{subject.name} reads"
    return f"{what}, {counted(subject.readers, 'reader')}"


def _stand_in(subject: Subject) -> ConfigurationRow:
    """A row with nothing but its configuration, which is all that a label needs."""
    assert subject.config is not None
    return ConfigurationRow(config=subject.config, status="skipped", reason=None, verdict=None, emulated=False)


def figure_words(row: Compared, value: Interval | None, *, unit: bool) -> str:
    """`462±54`, in the unit of its row."""
    scale, name = SCALES[row.unit]
    return f"{interval(value and value.times(scale), '')}{f' {name}' if unit else ''}"


def _change(ratio: Interval | None) -> str:
    """`-12 % (-18 to -5)` of the speed; `31x (28 to 34)` of large changes."""
    if ratio is None:
        return MISSING
    if not 0.5 < ratio.value < 2:
        value, low, high = (significant(end, 2) for end in (ratio.value, ratio.low, ratio.high))
        return f"{value}x ({low} to {high})"
    low, high = (_signed(end - 1, 0.01) for end in (ratio.low, ratio.high))
    return f"{_signed(ratio.value - 1, 0.1)} % ({low} to {high})"


def _signed(share: float, whole_from: float) -> str:
    text = f"{100 * share:+.1f}" if abs(share) < 0.995 * whole_from else f"{100 * share:+.0f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def _matters(report: ComparisonReport) -> str:
    """`5 %`: the size of a change that matters."""
    return f"{100 * report.matters:g} %"


_ORDER: tuple[Word, ...] = ("slower", "faster", "unclear", "same")
_TONES: dict[Word, str] = {"slower": "failed", "faster": "good", "unclear": "warning", "same": "quiet"}
_MOST, _MOST_BRIEF = 40, 10
"""Rows of the chart and of the table; of the chart in a terminal."""


def compare_document(report: ComparisonReport) -> Document:
    """What is slower and faster; then the rates of all rows, and what differs."""
    word = next((word for word in _ORDER if report.of_word(word)), _ORDER[-1])
    configs = [row.subject.config for row in report.rows if row.subject.config]
    alike = [name for name in ("compute", "cache") if name not in {diff.field for diff in report.differences}]
    stated = {"".join(f", {option_words(config, name)}" for name in alike) for config in configs}
    verdicts = [row for row in report.rows if row.verdict_changed]
    sides = ((f"only in {side}", only) for side, only in (("A", report.only_before), ("B", report.only_after)) if only)
    alone = ((where, "; ".join(few([name_of(report, subject) for subject in only]))) for where, only in sides)
    size = f" {100 * report.matters:g}%"
    gates = (
        Column("gate", lambda gate: f"--fail-if-{gate.name.replace('_', '-')}{size * (gate.name == 'slower')}"),
        Column("", lambda gate: Cell(text="held", tone="good") if gate.passed else Cell(text="failed", tone="failed")),
        Column("because", lambda gate: "; ".join(_because(report, gate))),
    )
    name, noun = Column("", lambda row: name_of(report, row.subject)), message(f"compared.{report.kind}", {})
    return Document(
        title=f"B against A, {counted(len(report.rows), noun)}{stated.pop() if len(stated) == 1 else ''}",
        headline=_headline(report),
        subline=_subline(report),
        tone="good" if word == "same" else _TONES[word],
        unsure=word == "unclear",
        sections=(
            Section(title="B's speed over A's", parts=tuple(_ratios(report)), panel="main"),
            Section(title="Gates", parts=table(report.gates, gates), panel="side"),
            Section(title="Verdicts that changed", parts=table(verdicts, (name, *_LIMITS)), panel="side"),
            Section(title="How sure", parts=tags(_how_sure(report)), panel="side"),
            Section(title="Not in both", parts=items(alone), panel="side"),
            Section(title="Rates", parts=_rates(report, name)),
            Section(title="What differs", parts=table(report.differences, _DIFFERENCE)),
            Section(title="A and B", parts=items((("A", _side(report.before)), ("B", _side(report.after))))),
        ),
    )


def _headline(report: ComparisonReport) -> str:
    if report.same_results:
        return "A and B are the same measurement"
    counts = {word: len(report.of_word(word)) for word in _ORDER}
    changed = [f"{word} in {counts[word]}" for word in _ORDER[:2] if counts[word]]
    if len(report.rows) == 1 and changed:
        return f"B is {report.rows[0].word} than A"
    if changed:
        return f"B is {join_words(changed)} of {len(report.rows)}"
    return "No change is clear" if counts["unclear"] else "B is as fast as A"


def _subline(report: ComparisonReport) -> str:
    whole = report.whole or (report.rows[0] if len(report.rows) == 1 else None)
    verdicts = sum(row.verdict_changed for row in report.rows)
    unclear = sum(row.verdict_before != row.verdict_after for row in report.rows) - verdicts
    said = [f"{name_of(report, whole.subject)}: {_change(whole.ratio)}"] if whole else []
    said += [f"A is {diff.before}, B {diff.after}" for diff in report.differences if diff.field == "judged"]
    taken = [row.taken for row in report.rows if row.others_matter]
    if taken:  # `other processes took 49 to 52 % of the cores in A, 0 % in B, in 2 of 3`
        known = ([share for share in shares if share is not None] for shares in zip(*taken, strict=True))
        before, after = (span(shares, percent) if shares else "" for shares in known)
        affected = f"{len(taken)} of {len(report.rows)}" if len(report.rows) > 1 else ""
        said.append(message("part.others_took", {"before": before, "after": after, "some": affected}))
    said += [] if report.kind == "bandwidth" else [f"{counted(verdicts, 'verdict')} changed"]
    said += [f"{unclear} not clear in A or B"] if unclear else []
    return first_upper(", ".join([*said, f"a change matters from {_matters(report)}"]))


def _ordered(report: ComparisonReport) -> list[Compared]:
    """Verdict changes first, then slower, faster, unclear, the same; the largest changes of each first."""

    def size(row: Compared) -> float:
        return 0.0 if row.ratio is None else max(row.ratio.value, 1 / row.ratio.value)

    return sorted(report.rows, key=lambda row: (not row.verdict_changed, _ORDER.index(row.word), -size(row)))


def _ratios(report: ComparisonReport) -> Iterator[Part]:
    every = [*([report.whole] if report.whole else []), *_ordered(report)]
    pairs = [(row, _ratio_row(name_of(report, row.subject), row)) for row in every[:_MOST]]
    changed = [chart_row for row, chart_row in pairs if row.word != "same" or row.verdict_changed]
    yield Chart(
        rows=tuple(chart_row for _, chart_row in pairs),
        low=0.9,
        unit="times",
        level="no change",
        names=tuple((_TONES[word], word) for word in _ORDER),
        brief=tuple(changed[:_MOST_BRIEF]),
        ends="B over A,change (95 % interval)",
    )
    if len(every) > _MOST:
        yield Paragraph(text=f"{len(every) - _MOST} more are not shown.")


def _ratio_row(name: str, row: Compared) -> ChartRow:
    ratio = row.ratio
    how: How = "unsure" if row.word == "unclear" else "measured"
    return ChartRow(
        label=name,
        value=_change(ratio),
        note=": ".join(filter(None, [row.word, message(f"word.{row.reason}", {"side": row.held_up or ""})])),
        point=Bar(end=ratio.value, tone=_TONES[row.word], how=how) if ratio else None,
        interval=(ratio.low, ratio.high) if ratio else None,
        level=1.0,
    )


def _limit(verdict: SideAndCause | None) -> Cell | str:
    return Cell(text=f"{letters_of(verdict)} {bound_words(verdict)}", tone=tone(verdict)) if verdict else ""


_LIMITS = (
    Column("limit in A", lambda row: _limit(row.verdict_before)),
    Column("limit in B", lambda row: _limit(row.verdict_after)),
)


def _because(report: ComparisonReport, gate: Gate) -> Iterator[str]:
    rows = [report.whole if index < 0 else report.rows[index] for index in gate.rows]
    if not gate.passed:
        yield from few([name_of(report, row.subject) for row in rows if row])
    if gate.blind:
        yield f"too noisy to hold {_matters(report)}: {gate.blind} of {len(report.rows)}"
    if gate.missing:
        yield f"of A not in B: {gate.missing}"
    if gate.too_noisy:
        yield "--allow-unclear lets it hold"


def _how_sure(report: ComparisonReport) -> Iterator[str]:
    """What would have been seen, what would make unclear rows clear, and what weakens the comparison."""
    words: tuple[Word, ...] = ("same", "unclear")
    for word in words:
        losses = [row.visible for row in report.of_word(word) if row.visible is not None]
        if losses:
            count = f"{len(report.of_word(word))} of {len(report.rows)}"
            # Changes are factors, and a gain is seen from as large a one.
            loss = max(losses)
            gain = f" or a gain of {percent(loss / (1 - loss))}" if loss < 1 else ""
            yield f"{word}: {count}, a loss of {percent(loss)}{gain} would be seen"
    unclear = report.of_word("unclear")
    needed = [row.rounds_needed for row in unclear if row.rounds_needed is not None]
    if needed and report.kind == "sweep":
        yield f"--rounds {max(needed)} would show {_matters(report)} in {len(needed)} of {len(unclear)} unclear"
    if any(row.reason == "others_took" for row in unclear):
        yield "end other processes and measure again: they may be all of a change, or hide one"
    if unclear:
        yield "three runs a side, begun in turn, show more: compare A1 A2 A3 --with B1 --with B2 --with B3"
    for note in report.notes:
        yield f"{note.side}, {note.rows} of {len(report.rows)}: {message(f'comparison.{note.code}', {})}"


def _rates(report: ComparisonReport, name: Column) -> tuple[Part, ...]:
    units = {row.unit for row in report.rows}
    unit = SCALES[next(iter(units))][1] if len(units) == 1 else ""
    columns = (
        name,
        Column(f"A {unit}".strip(), lambda row: figure_words(row, row.before, unit=not unit)),
        Column(f"B {unit}".strip(), lambda row: figure_words(row, row.after, unit=not unit)),
        Column(
            "seen from",
            lambda row: percent(row.visible),
            "Seen from: the smallest loss that would be seen, in about half of all cases",
        ),
        *_LIMITS,
    )
    return table(_ordered(report)[:_MOST], columns)


def _value(difference: Difference, side: int) -> str:
    """Of A or B; with the name of the run where its side has several."""
    text, name = (difference.before, difference.after)[side], difference.between[side]
    shown = format_bytes(float(text)) if difference.field == "memory_bytes" else text
    return shown if name in ("A", "B") else f"{name}: {shown}"


_DIFFERENCE = (
    Column("", lambda difference: FIELD_WORDS.get(difference.field, difference.field)),
    Column("A", partial(_value, side=0)),
    Column("B", partial(_value, side=1)),
)


def _side(side: ComparedSide) -> str:
    runs = ", ".join(f"{path} ({created[:16]})" for path, created in zip(side.paths, side.created_utc, strict=True))
    data = f"; data: {join_words(side.roots)}" if side.roots else ""
    return f"{runs}{data}; {side.command}"


def compare_columns(report: ComparisonReport) -> dict[str, list[Any]]:
    """One row a configuration or phase, the whole last; units in the column `unit`."""
    rows = [*report.rows, *([report.whole] if report.whole else [])]
    return as_columns(
        {
            "name": name_of(report, row.subject),
            "kind": row.subject.kind,
            "key": row.subject.name,
            "unit": row.unit,
            **interval_cells("before", row.before),
            **interval_cells("after", row.after),
            **interval_cells("ratio", row.ratio),
            **values(row, "p", "visible"),
            "rounds_before": row.rounds[0],
            "rounds_after": row.rounds[1],
            **values(row, "word", "reason"),
            "cause_before": row.verdict_before.cause if row.verdict_before else None,
            "cause_after": row.verdict_after.cause if row.verdict_after else None,
            "verdict_changed": row.verdict_changed,
        }
        for row in rows
    )

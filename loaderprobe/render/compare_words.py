"""How a comparison is said: the names of its rows, changes, and the sentences of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.records.compare import (
    Compared,
    CompareNote,
    ComparisonReport,
    Gate,
    GateName,
    Ratio,
    ReasonCode,
    ResultKind,
    Subject,
    Unit,
    Word,
)
from loaderprobe.records.config import FEWEST_PAIRS, OPTIONS
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Interval
from loaderprobe.render.layers import PART_WORDS
from loaderprobe.render.trace import PART_WORDS as CAUSE_WORDS
from loaderprobe.render.wording import MISSING, counted, interval, label, percent, verdict_words
from loaderprobe.units import join_words, significant

STEPS: tuple[ResultKind, ...] = ("layers", "trace")
"""Kinds of results whose whole step is compared, too."""
NAMED = 3
"""Rows that a sentence names."""
NOUNS: dict[ResultKind, str] = {
    "sweep": "configuration", "bandwidth": "phase", "layers": "layer or part", "diagnosis": "loader",
    "trace": "cause",
}  # fmt: skip
PHASES: dict[str, str] = {"files": "files", "direct": "direct reads", "sequential": "sequential reads"}
SCALES: dict[Unit, tuple[float, str]] = {
    "images/s": (1.0, "images/s"), "samples/s": (1.0, "samples/s"),
    "bytes/s": (1e-6, "MB/s"), "1/s": (1.0, "1/s"), "ms": (1.0, "ms"), "": (1.0, ""),
}  # fmt: skip
THOUSANDS_FROM = 1e4
"""Operations/s."""
REASONS: dict[ReasonCode, str] = {
    "beyond_noise": "",
    "within_size": "",
    "too_noisy": "too noisy",
    "one_of_many": "in one of so many rows, chance alone makes such a change",
    "near_size": "changed, but perhaps by less than matters",
    "no_spread": "nothing shows how much it varies",
}
GATES: dict[GateName, str] = {
    "slower": "--fail-if-slower", "unclear": "--fail-if-unclear", "verdict_changes": "--fail-if-verdict-changes",
}  # fmt: skip


FEW_PAIRS = (
    f"Fewer than {FEWEST_PAIRS} pairs of rounds are compared as two runs apart: complete them with sweep --resume, or "
    "ask for more with --rounds."
)


def names_of(found: ComparisonReport, subjects: Sequence[Subject], *, device: bool = True) -> list[str]:
    """The names of these, as far as they set them apart from all that were compared; `device` and cache state, too."""
    every = [*(row.subject for row in found.rows), *found.only_before, *found.only_after]
    among = [stand_in(each) for each in every if each.config is not None]
    whole = "the ladder together" if found.kind == "bandwidth" else "all together"
    return [whole if each.kind == "all" else _name(each, among, device) for each in subjects]


def device_of(subject: Subject) -> str:
    """`emulated:mlperf-h100, cold files`; empty for what is no configuration."""
    return f"{subject.config.compute.name}, {subject.config.cache} files" if subject.config else ""


def _name(subject: Subject, among: Sequence[ConfigurationRow], device: bool) -> str:
    if subject.kind == "step":
        return "the whole step"
    if subject.kind in ("training", "loader"):
        return "training" if subject.kind == "training" else "the loader alone"
    if subject.kind == "cause":
        return CAUSE_WORDS[subject.name]  # type: ignore[index]  # one of a recording
    if subject.kind == "part":
        return f"all of {PART_WORDS.get(subject.name, subject.name)}"  # type: ignore[call-overload]
    if subject.kind == "layer":
        before, after = subject.classes
        kinds = before if before == after else f"{before} → {after}"
        again = f", call {subject.call + 1}" if subject.call else ""
        return f"{subject.name or 'outside its layers'} ({kinds}{again})"
    if subject.config is not None:
        return _configuration(stand_in(subject), among, device)
    what = PHASES.get(subject.name, subject.name) if subject.kind == "phase" else f"{subject.kind}s"
    return f"{what}, {counted(subject.readers, 'reader')}"


def _configuration(row: ConfigurationRow, among: Sequence[ConfigurationRow], device: bool) -> str:
    """`500x375, 2 workers`, with device and cache state where there are several."""
    alike = [each for each in among if _device(each) == _device(row)]
    parts = [label(row, alike)]
    if not device:
        return parts[0]
    if len({each.config.compute.name for each in among}) > 1:
        parts.append(row.config.compute.name)
    if len({each.config.cache for each in among}) > 1:
        parts.append(row.config.cache)
    return ", ".join(parts)


def _device(row: ConfigurationRow) -> tuple[str, str]:
    return row.config.compute.name, row.config.cache


def stand_in(subject: Subject) -> ConfigurationRow:
    """A row with nothing but its configuration, which is all that a label needs."""
    assert subject.config is not None
    # Whether the data differ is said apart, and rounds stand beside the figures.
    config = replace(subject.config, data="", rounds=OPTIONS["rounds"].default)
    return ConfigurationRow(config=config, status="skipped", reason=None, verdict=None, emulated=False)


def figure_words(row: Compared, value: Interval | None, *, unit: bool = False, gap: str = " ") -> str:
    """`462 ±54`, in the unit of its row."""
    if value is None:
        return MISSING
    scale, name = SCALES[row.unit]
    if row.unit == "1/s" and row.before and row.before.value >= THOUSANDS_FROM:
        scale, name = 1e-3, "k/s"
    scaled = Interval(value=value.value * scale, low=value.low * scale, high=value.high * scale)
    return f"{interval(scaled, gap)}{f' {name}' if unit and name else ''}"


def change_parts(ratio: Ratio | None) -> tuple[str, str]:
    """`-12 %` of the speed and `-18 to -5`; `31x` and `28 to 34` of large changes."""
    if ratio is None:
        return MISSING, MISSING
    if not 0.5 < ratio.value < 2:
        value, low, high = (significant(each, 2) for each in (ratio.value, ratio.low, ratio.high))
        return f"{value}x", f"{low} to {high}"
    low, high = (_signed(each - 1, 0.01) for each in (ratio.low, ratio.high))
    return f"{_signed(ratio.value - 1, 0.1)} %", f"{low} to {high}"


def change_words(ratio: Ratio | None) -> str:
    """`-12 % (-18 to -5)`."""
    value, ends = change_parts(ratio)
    return value if ratio is None else f"{value} ({ends})"


def _signed(share: float, whole_from: float) -> str:
    text = f"{100 * share:+.1f}" if abs(share) < 0.995 * whole_from else f"{100 * share:+.0f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def matters_words(found: ComparisonReport) -> str:
    """`5 %`: the size of a change that matters."""
    return f"{100 * found.matters:g} %"


def visible_words(row: Compared) -> str:
    """The smallest change that would have been seen."""
    return MISSING if row.visible is None else percent(row.visible)


def title(found: ComparisonReport) -> str:
    """The counts of the words."""
    many = counted(len(found.rows), NOUNS[found.kind])
    if len(found.rows) > 1 and found.kind == "layers":
        many = f"{len(found.rows)} layers and parts"
    words: tuple[Word, ...] = ("slower", "faster", "same", "unclear")
    counts = [f"{len(rows)} {word}" for word in words if (rows := found.of_word(word))]
    return f"B against A, {many}: {', '.join(counts)}"


def answers(found: ComparisonReport) -> list[tuple[str, bool]]:
    """(sentence, whether it is an answer): verdicts, slower, faster, all together, the rest.

    Of layers and of recordings, the whole step stands first.
    """
    whole = [_whole(found, found.whole)] if found.whole else []
    changed = [*_verdicts(found), *_changed(found, "slower"), *_changed(found, "faster")]
    first = [*whole, *changed] if found.kind in STEPS else [*changed, *whole]
    rest = [*_unclear(found), *_same(found)]
    if found.kind in ("sweep", "diagnosis", "trace") and not _verdicts(found):
        rest.append("No verdict changed.")
    # A single row that did not change has no answer but the rest.
    return [*((text, True) for text in first), *((text, not first) for text in rest)]


def _whole(found: ComparisonReport, row: Compared) -> str:
    name = "The whole step" if row.subject.kind == "step" else f"All {len(found.rows)} together"
    if row.subject.kind == "all" and found.kind == "bandwidth":
        name = "All steps of the ladder together"
    figures = f", {figure_words(row, row.before)} → {figure_words(row, row.after, unit=True)}" if row.before else ""
    only = "only " if row.word == "unclear" else ""
    seen = f"; {only}a change of {visible_words(row)} would have been seen" if row.visible else ""
    said = {"same": "the same", "unclear": "unclear"}.get(row.word, f"{row.word} in B")
    return f"{name} {'is' if row.before else 'are'} {said}{figures}: {change_words(row.ratio)}{seen}."


def _verdicts(found: ComparisonReport) -> list[str]:
    changed = [row for row in _judged(found) if row.verdict_changed]
    if not changed:
        return []
    names = names_of(found, [row.subject for row in changed])
    said = [f"{name}: {verdict_change(row)}" for name, row in zip(names, changed, strict=True)]
    return [f"{counted(len(changed), 'verdict')} changed: {'; '.join(_few(said))}."]


def _judged(found: ComparisonReport) -> list[Compared]:
    """All rows, and the whole, which of recordings has the verdict."""
    return [*found.rows, *([found.whole] if found.whole else [])]


def verdict_change(row: Compared) -> str:
    """`input: storage → compute`; of recordings `input → host`, as `trace` has it."""
    sides = (row.verdict_before, row.verdict_after)
    words = [verdict_words(each) if each else MISSING for each in sides]
    return " → ".join(each.removeprefix("compute: ") if row.subject.kind == "step" else each for each in words)


def _changed(found: ComparisonReport, word: Word) -> list[str]:
    rows = sorted(found.of_word(word), key=lambda row: -effect_size(row))
    if not rows:
        return []
    names = names_of(found, [row.subject for row in rows])
    said = [f"{name} {change_words(row.ratio)}" for name, row in zip(names, rows, strict=True)]
    return [f"{word.capitalize()} in B: {len(rows)} of {len(found.rows)}: {'; '.join(_few(said))}."]


def _unclear(found: ComparisonReport) -> list[str]:
    rows = found.of_word("unclear")
    if not rows:
        return []
    text = f"Unclear: {len(rows)} of {len(found.rows)}"
    known = [row.visible for row in rows if row.visible is not None]
    if known:
        ends = dict.fromkeys(percent(each) for each in (min(known), max(known)))
        text += f", where only changes of {' to '.join(ends)} and more would have been seen"
    return [f"{text}. {settles(found, rows)}".strip()]


def settles(found: ComparisonReport, rows: Sequence[Compared]) -> str:
    """What would make unclear rows clear."""
    if found.in_turn and not found.pairs:
        return FEW_PAIRS
    needed = [row.rounds_needed for row in rows if row.rounds_needed is not None]
    size = matters_words(found)
    runs = "Three runs a side would show more (A1 A2 A3 --with B1 --with B2 --with B3)"
    if found.kind == "sweep":
        runs = f"{runs}, or both measured in turn (sweep --against A)"
    runs = "" if found.pairs else f"{runs}."
    if found.kind in ("bandwidth", "diagnosis", "trace") or not needed:
        return runs
    what = "--rounds" if found.kind == "sweep" else "--steps"
    return f"With {what} {max(needed)}, {len(needed)} of them would show a change of {size}. {runs}".strip()


def _same(found: ComparisonReport) -> list[str]:
    rows = found.of_word("same")
    if not rows:
        return []
    seen = percent(max(row.visible or 0.0 for row in rows))
    many = f"The same within {matters_words(found)}: {len(rows)} of {len(found.rows)}"
    return [f"{many}, where changes of {seen} and more would have been seen."]


def effect_size(row: Compared) -> float:
    """By which rows of a word are ordered: milliseconds of a step, else the ratio."""
    if row.unit == "ms" and row.before and row.after:
        return abs(row.after.value - row.before.value)
    return 0.0 if row.ratio is None else max(row.ratio.value, 1 / row.ratio.value)


def _few(said: Sequence[str]) -> list[str]:
    more = len(said) - NAMED
    return [*said[:NAMED], f"and {more} more"] if more > 0 else [*said]


def gate_words(found: ComparisonReport, gate: Gate) -> tuple[str, str]:
    """(the option, whether it holds and why not)."""
    size = matters_words(found)
    name = f"{GATES[gate.name]} {size.replace(' ', '')}" if gate.name == "slower" else GATES[gate.name]
    if gate.too_noisy:
        return name, f"failed: {_too_noisy(found, gate)}"
    if not gate.passed:
        rows = [found.whole if place < 0 else found.rows[place] for place in gate.rows]
        names = names_of(found, [row.subject for row in rows if row])
        lacking = [f"{gate.missing} of A that B lacks or failed to measure"] if gate.missing else []
        return name, f"failed by {'; '.join(_few([*lacking, *names]))}"
    doubts = []
    if gate.blind:
        allowed = " (allowed)" if found.allow_unclear else ""
        doubts.append(f"{gate.blind} of {len(found.rows)} rows were too noisy to show a loss of {size}{allowed}")
    if gate.missing:
        doubts.append(f"{gate.missing} of A {'is' if gate.missing == 1 else 'are'} not in B")
    return name, f"held, but {join_words(doubts)}; --fail-if-unclear fails then" if doubts else "held"


def _too_noisy(found: ComparisonReport, gate: Gate) -> str:
    """Where a gate cannot see what it was asked to hold, what it can see, and what would help."""
    rows, where = [row for row in found.rows if row.word == "unclear"], f"in {gate.blind} of {len(found.rows)}"
    if found.kind in STEPS and found.whole:
        rows, where = [found.whole], "in the whole step"
    known = [row.visible for row in rows if row.visible is not None]
    seen = f"; only a loss of {percent(max(known))} would be seen in each" if known else ""
    return (
        f"too noisy to hold {matters_words(found)} {where}{seen}. {settles(found, rows)} --allow-unclear lets it hold."
    )


def note_words(found: ComparisonReport, note: CompareNote) -> str:
    """One thing that weakens the comparison."""
    rows = counted(note.rows, "configuration" if found.kind == "sweep" else "step")
    if note.code == "other_reads":
        return f"{note.side}: other processes read from the same devices in {rows}."
    if note.code == "few_rounds":
        return f"{note.side}: {rows} with fewer than three rounds, compared by the intervals of their rates."
    return f"{note.side}: the probe itself was the limit in {rows} of the ladder; the storage may be faster."

"""Short benchmarks: how much too fast one is that begins with a full buffer, as a chart and in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaderprobe.records.prefilled import CLOSE, BufferEffect
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import How
from loaderprobe.render.cells import Cell
from loaderprobe.render.charts import COLORS, Axis, Plot
from loaderprobe.render.groups import Group, groups
from loaderprobe.render.panels import Figure, Panel
from loaderprobe.render.unavailable_words import unavailable_words
from loaderprobe.render.wording import MISSING, counted, loading, percent
from loaderprobe.units import join_words, significant

SHOWN = (10, 20, 50, 100, 200)
"""Iterations of the table."""
USUAL = 100
"""Iterations of a benchmark that one often meets."""
CAPTION = (
    "A benchmark starts a loader, and while its device warms up, the buffer fills. Its first iterations then cost the "
    "loader nothing. Lines: the rate over the first k iterations, over the steady rate; the figure at each is its "
    "prefetch factor. Dots were measured; dashed is the most there can be, k / (k - free batches), or compute alone."
)
_LABEL_RATIO = 1.35
"""The height at which a line has its name, where it comes that low."""

Buffered = tuple[ConfigurationRow, BufferEffect]


def short_run_panels(report: Report) -> tuple[Panel, ...]:
    """A figure a data set: the configurations with the most workers as lines, all of them in the table."""
    return tuple(
        Panel(
            device=group.title,
            emulated=group.emulated,
            caption=CAPTION,
            figures=tuple(_figure(name, some) for name, some in _by_data(group).items()),
        )
        for group in groups(report)
        if _by_data(group)
    )


def short_run_sentences(report: Report) -> list[tuple[str, str]]:
    """(data set and workers, sentence) for each data set on each device where it was measured, or was to be."""
    found = groups(report)
    return [
        (f"{name}, {loading(chosen[0][0])}{f', {group.device}' if len(found) > 1 else ''}", _sentence(chosen))
        for group in found
        for name, some in _by_data(group).items()
        for chosen in [_most_workers(some)]
        if any(effect.how == "measured" or effect.reason for _, effect in chosen)
    ]


def short_run_cells(row: ConfigurationRow) -> dict[str, Cell]:
    """Columns of a flat table; none for a row without a buffer."""
    effect = row.buffer
    if effect is None:
        return {}
    cells: dict[str, Cell] = {"buffered_batches": effect.batches}
    cells |= {f"rate_over_steady_after_{count}_iterations": _at(effect, count) for count in SHOWN}
    return cells | {"rate_over_steady_how": effect.how, "iterations_within_2_percent": effect.enough}


def _by_data(group: Group) -> dict[str, list[Buffered]]:
    found: dict[str, list[Buffered]] = {}
    for row in group.rows:
        if row.buffer:
            found.setdefault(row.config.resolution, []).append((row, row.buffer))
    return found


def _most_workers(some: Sequence[Buffered]) -> list[Buffered]:
    most = max(row.config.loader.workers for row, _ in some)
    return [each for each in some if each[0].config.loader.workers == most]


def _at(effect: BufferEffect, iterations: int) -> float | None:
    """As measured where it was, as estimated where all is."""
    return effect.predicted(iterations) if effect.how == "estimated" else effect.measured(iterations)


def _excess(over_steady: float, effect: BufferEffect) -> str:
    """`+19 %`; within 2 %, or within the noise band, it is none."""
    more, none = over_steady - 1, max(CLOSE, effect.noise)
    if abs(more) <= none:
        return f"±{significant(none * 100, 1)} %"
    return f"{'+' if more > 0 else '−'}{percent(abs(more))}"  # noqa: RUF001  # the sign, as typeset


def _too(over_steady: float, how: How, effect: BufferEffect) -> str:
    """`19 % too fast`, or `within 2 %`. The law is the most there is."""
    more, none = over_steady - 1, max(CLOSE, effect.noise)
    if abs(more) <= none:
        return f"within {significant(none * 100, 1)} %"
    at_most = "up to " if how == "estimated" else ""
    return f"{at_most}{percent(abs(more))} too {'fast' if more > 0 else 'slow'}"


def _usual(effect: BufferEffect) -> tuple[float, How]:
    """(over the steady rate after the usual number of iterations, how that is known)."""
    seen = effect.measured(USUAL)
    return (effect.predicted(USUAL), "estimated") if seen is None else (seen, "measured")


def _with_noise(effect: BufferEffect) -> BufferEffect:
    """The noise of what was measured is not that of the law."""
    return effect if effect.measured(USUAL) is not None else replace(effect, noise=0.0)


def _sentence(chosen: Sequence[Buffered]) -> str:
    """`the first 100 iterations from a full buffer are 19 % too fast with prefetch 2 (measured); ...`."""
    factors: dict[str, list[str]] = {}
    for row, effect in chosen:
        words = _too(*_usual(effect), _with_noise(effect))
        factors.setdefault(words, []).append(str(row.config.loader.prefetch_factor))
    said = join_words([f"{words} with prefetch {join_words(some)}" for words, some in factors.items()])
    how = join_words(_once([_usual(effect)[1] for _, effect in chosen]))
    missing = _once([unavailable_words(effect.reason) for _, effect in chosen if effect.reason])
    reasons = [f" Not measured: {reason}." for reason in missing]
    first = f"the first {USUAL} iterations from a full buffer are {said} ({how})"
    return f"{first}; {_enough([effect.enough for _, effect in chosen])} (estimated).{''.join(reasons)}"


def _enough(iterations: Sequence[int]) -> str:
    """Where compute is the limit, the first iteration is as fast as any."""
    if set(iterations) == {1}:
        return "any number is within 2 %"
    return f"{join_words([f'{each:,}' for each in iterations])} are enough for 2 %"


def _once(words: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _figure(name: str, some: Sequence[Buffered]) -> Figure:
    chosen = _most_workers(some)
    ordered = sorted((effect for _, effect in chosen), key=lambda effect: _usual(effect)[0])
    ends = _once([_excess(_usual(effect)[0], _with_noise(effect)) for effect in (ordered[0], ordered[-1])])
    title = f"{name}, {loading(chosen[0][0])}: {USUAL} iterations {' to '.join(ends)}"
    return Figure(
        title=title,
        svg=_chart(title, chosen),
        head=("workers", "prefetch", "batches", *(f"{count}" for count in SHOWN), "for 2 %", "how"),
        lines=tuple(
            (
                str(row.config.loader.workers),
                str(row.config.loader.prefetch_factor),
                str(effect.batches),
                *(MISSING if (ratio := _at(effect, count)) is None else _excess(ratio, effect) for count in SHOWN),
                f"{effect.enough:,}",
                effect.how,
            )
            for row, effect in some
        ),
        note="; ".join(
            f"{counted(row.config.loader.workers, 'worker')}, prefetch {row.config.loader.prefetch_factor} not "
            f"measured: {unavailable_words(effect.reason)}"
            for row, effect in some
            if effect.reason
        ),
    )


def _chart(title: str, chosen: Sequence[Buffered]) -> str:
    seen = [each.over_steady for _, effect in chosen for each in effect.runs]
    low, high = min([0.8, *(0.9 * each for each in seen)]), max([2.0, *seen, *(effect.most for _, effect in chosen)])
    last = max([2000.0] + [1.2 * effect.enough for _, effect in chosen])
    x = Axis(name="first iterations", low=1, high=last, base=10)
    plot = Plot(title, x, Axis(name="rate over the steady rate", low=low, high=1.15 * high, base=10))
    for number, (row, effect) in enumerate(chosen):
        color = COLORS[number % len(COLORS)]
        plot.line([(count, effect.predicted(count)) for count in _counts(last)], color, dash="4 3", width=1)
        if effect.how == "measured":
            points = [(each.iterations, each.over_steady) for each in effect.runs]
            plot.line(points, color, width=1.5)
            plot.dots(points, color)
        ratio = min(_LABEL_RATIO, 1 + (effect.most - 1) / 2)
        at = effect.free * ratio / (ratio - 1) if ratio > 1 + CLOSE else 1.3 * 1.8**number
        plot.name(at, ratio, str(row.config.loader.prefetch_factor), "above right", color=color)
    return plot.svg()


def _counts(last: float) -> list[int]:
    """Close enough for a smooth line, and each once."""
    found, count = [], 1.0
    while count <= last:
        found.append(round(count))
        count = max(count + 1, count * 1.06)
    return list(dict.fromkeys(found))

"""Two measurements of the layers of a model: layer by layer, part by part, and the whole step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from loaderprobe.analyze.compare.comparable import Facts, environment_facts
from loaderprobe.analyze.compare.rows import SideRow
from loaderprobe.analyze.effects import Reading, interval
from loaderprobe.records.compare import Subject
from loaderprobe.records.layers import LayersReport

Key = tuple[str, str, int]


def layers_facts(found: LayersReport) -> Facts:
    """What it was measured on, and of what."""
    return {
        **environment_facts(found.origin.environment),
        "model": found.model,
        "device": found.device,
        "batch_size": float(found.batch_size),
    }


def layer_rows(runs: Sequence[LayersReport]) -> dict[Key, SideRow]:
    """Every part, and every call of a layer, forward and backward together."""
    rows: dict[Key, list[SideRow]] = {}
    for run in runs:
        for row in _rows(run):
            subject = row.subject
            rows.setdefault((subject.kind, subject.name, subject.call), []).append(row)
    return {key: _joined(found) for key, found in rows.items()}


def step_row(runs: Sequence[LayersReport]) -> SideRow:
    """All parts of a step together."""
    return _joined([_row(Subject(kind="step"), [part.ms.steps for part in run.parts]) for run in runs])


def _rows(run: LayersReport) -> Iterator[SideRow]:
    for part in run.parts:
        yield _row(Subject(kind="part", name=part.name), [part.ms.steps])
    for layer in run.layers:
        subject = Subject(kind="layer", name=layer.name, call=layer.call, classes=(layer.kind, layer.kind))
        row = _row(subject, [layer.forward.steps, layer.backward.steps])
        if row.readings[0].values:
            yield row


def _row(subject: Subject, columns: Iterable[Sequence[float]]) -> SideRow:
    """Milliseconds of each step, summed over columns; steps without any time say nothing."""
    values = tuple(total for each in zip(*columns, strict=False) if (total := sum(each)) > 0)
    figure = interval(values or (0.0,))
    return SideRow(subject=subject, unit="ms", readings=(Reading(values=values, figure=figure),))


def _joined(rows: Sequence[SideRow]) -> SideRow:
    first = rows[0]
    return SideRow(subject=first.subject, unit=first.unit, readings=tuple(row.readings[0] for row in rows))

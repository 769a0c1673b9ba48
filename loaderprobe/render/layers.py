"""The layers of a model as a page and as the rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from loaderprobe.records import values
from loaderprobe.records.layers import LAST_CALL, DrillLevel, LayersReport, LayerTime, PartName, Shape
from loaderprobe.render.charts import Bar, Chart, ChartRow
from loaderprobe.render.document import Column, Document, Paragraph, Part, Section, table, tags
from loaderprobe.render.format import percent
from loaderprobe.render.rows import as_columns, interval_cells
from loaderprobe.units import significant

_SHOWN, _BRIEF = 20, 10
"""Of the layers, the slowest; of them in a terminal."""
_FITS = (0.75, 1.33)
"""Layers that add up to another share of the whole were not measured on the same machine: it was busy meanwhile."""
_PARTS: dict[PartName, str] = {"zero_grad": "clear gradients", "copy": "copy to the device", "load": "load the batch"}


def layers_document(report: LayersReport) -> Document:
    """The slowest layers, the parts of a step, and the way down to a source line."""
    batch = f", batch {report.batch_size}" if report.batch_size else ""
    slowest = max(report.layers, key=lambda layer: layer.ms)
    where = "forward" if slowest.forward.value > slowest.backward.value else "backward"
    takes = f"{slowest.name or slowest.kind} takes {percent(slowest.ms / report.step_ms)} of a step"
    slow_part = f"{layer_name(slowest)} is the slowest of {len(report.layers)} layers, most of it {where}"
    return Document(
        title=f"{report.model} in {report.precision} on {report.device}{batch}",
        headline="The layers do not add up to the step" if _far(report) else takes,
        subline=f"{significant(report.step_ms)} ms a training step; {slow_part}",
        tone="compute",
        unsure=_far(report),
        sections=(
            Section(title="Slowest layers, ms a step", parts=tuple(_layers(report)), panel="main"),
            Section(title="Parts of a step", parts=(_parts(report),), panel="main"),
            Section(title="How sure", parts=tags(_how_sure(report)), panel="side"),
            Section(title="From the step to a source line", parts=table(report.drill, _drill(report))),
        ),
    )


def layer_columns(report: LayersReport) -> dict[str, list[Any]]:
    """One row a call of a layer, in the order in which they first ran; units in the names."""
    return as_columns(
        {
            "order": order,
            "layer": layer.name,
            **values(layer, "call", "kind"),
            "implementation": ", ".join(operator.name for operator in layer.operators if not operator.backward),
            "in_place": layer.in_place,
            **interval_cells("forward_ms", layer.forward),
            **interval_cells("backward_ms", layer.backward),
            "parameters": layer.parameters,
            "inputs": _shapes(layer.inputs),
            "outputs": _shapes(layer.outputs),
        }
        for order, layer in enumerate(report.layers)
    )


def _far(report: LayersReport) -> bool:
    # Where operators are not listed, the backward pass is divided among layers: of that, nothing can be missing.
    shares = [share for name, share in report.over_whole.items() if name == "forward" or not report.unlisted]
    return any(not _FITS[0] <= share <= _FITS[1] for share in shares)


def _how_sure(report: LayersReport) -> Iterator[str]:
    for name, share in report.over_whole.items():
        yield f"layers add up to {percent(share)} of the {name} pass"
    if _far(report):
        yield "something else used the machine: measure again when it is idle"
    if report.unlisted:
        yield f"{report.unlisted:,} operators are too many to record each: forward times include Python between them"
    yield f"{report.steps} steps timed without the profiler"


def _parts(report: LayersReport) -> Chart:
    return Chart(
        rows=tuple(
            ChartRow(
                label=_PARTS.get(part.name, part.name),
                value=f"{significant(part.ms.value)} ms",
                note=f"{significant(part.ms.low)} to {significant(part.ms.high)}",
                bars=(Bar(end=part.ms.value, tone="compute"),),
            )
            for part in report.parts
        ),
        caption="Median, and the middle half of the steps",
        ends="part,ms",
    )


def _layers(report: LayersReport) -> Iterator[Part]:
    """The slowest first, the part of its name that sets it apart in front."""
    slowest = sorted(report.layers, key=lambda layer: -layer.ms)
    rows = tuple(_row_of(layer, report.step_ms) for layer in slowest[:_SHOWN])
    yield Chart(
        rows=rows,
        unit="ms",
        names=(("compute", "F forward"), ("change", "B backward")),
        brief=rows[:_BRIEF],
        ends="layer,ms a step",
    )
    if len(slowest) > len(rows):
        together = significant(sum(layer.ms for layer in slowest))
        yield Paragraph(text=f"The slowest of {len(slowest)}, which take {together} ms together.", tone="quiet")
    if report.missing:
        yield Paragraph(text=f"Never ran: {', '.join(report.missing[:_SHOWN])}.")


def _row_of(layer: LayerTime, whole: float) -> ChartRow:
    block, _, name = layer.name.rpartition(".")
    forward, share = layer.forward.value, percent(layer.ms / whole)
    return ChartRow(
        label=f"{layer_name(replace(layer, name=name))}{f' in {block}' if block else ''}",
        value=significant(layer.ms),
        note=f"{share} {_shapes(layer.outputs)}{', in place' if layer.in_place else ''}",
        bars=(
            Bar(end=forward, tone="compute", letter="F"),
            Bar(begin=forward, end=layer.ms, tone="change", letter="B"),
        ),
    )


def _drill(report: LayersReport) -> tuple[Column, ...]:
    return (
        Column("level", lambda level: level.level),
        Column("the slowest", partial(_level_name, report)),
        Column("ms", lambda level: significant(level.ms)),
        Column("of the level above", lambda level: percent(level.of_above) if level.level != "step" else ""),
        Column("of the step", lambda level: percent(level.of_whole)),
    )


def _level_name(report: LayersReport, level: DrillLevel) -> str:
    if level.level == "layer":
        called = (level.name, level.call)
        return next(layer_name(layer) for layer in report.layers if (layer.name, layer.call) == called)
    return f"{level.name}  {level.text}".strip()


def layer_name(layer: LayerTime) -> str:
    """`layer1.0.conv2 (Conv2d)`; of a further call in a step, its number; the last row of a layer may hold many."""
    again = f", call {layer.call + 1}" if layer.call else ""
    again += " and later" if layer.call == LAST_CALL else ""
    return f"{layer.name or 'outside its layers'} ({layer.kind}{again})"


def _shapes(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)

"""From the step to its slowest layer, to the slowest operator in that, to the source line that runs it."""

from __future__ import annotations

import linecache
from pathlib import Path

from loaderprobe.compute.source_lines import Line, Lines
from loaderprobe.records.layers import DrillLevel, LayersReport, LevelName


def drilled(report: LayersReport, lines: Lines) -> tuple[DrillLevel, ...]:
    """The step, its slowest layer, the slowest operator in that, the slowest line of that.

    Where operators of the forward pass are not listed, the way goes from a layer that is slow there to the line.
    """
    step_ms = sum(part.ms.value for part in report.parts)
    layer = max(report.layers, key=lambda each: each.ms)
    forward = report.unlisted and layer.forward.value >= layer.backward.value
    operator = layer.operators[0] if layer.operators and not forward else None
    call = (layer.name, layer.call)
    backward = operator is not None and operator.backward
    found = (lines.backward.get(operator.name) if operator and backward else lines.forward.get(call)) or {}
    called = lines.called.get(call)
    if not found and called is not None:
        found = {called: 1.0}
    levels: list[tuple[LevelName, str, str, float]] = [
        ("step", report.model, "", step_ms),
        ("layer", layer.name, "", layer.ms),
    ]
    if operator is not None:
        levels.append(("operator", operator.name, "", operator.ms))
    if found:
        whole_ms = layer.forward.value if operator is None else operator.ms
        line, seconds = max(found.items(), key=lambda each: each[1])
        levels.append(("line", *_shown(line), whole_ms * seconds / sum(found.values())))
    return tuple(
        DrillLevel(
            level=level,
            name=name,
            call=layer.call if level == "layer" else 0,
            text=text,
            ms=ms,
            of_above=ms / levels[max(0, place - 1)][3],
            of_whole=ms / step_ms,
        )
        for place, (level, name, text, ms) in enumerate(levels)
    )


def _shown(line: Line) -> tuple[str, str]:
    """(`file.py:12`, the source there)."""
    file, number = line
    return f"{Path(file).name}:{number}", linecache.getline(file, number).strip()

"""From the step to its slowest layer, to the slowest operator in that, to the source line that runs it."""

from __future__ import annotations

import linecache
from pathlib import Path

from loaderprobe.compute.source_lines import Line, Lines
from loaderprobe.records.layers import DrillLevel, LayersReport, LevelName


def drilled(report: LayersReport, lines: Lines) -> tuple[DrillLevel, ...]:
    """The step, its slowest layer, the slowest operator in that, the slowest line of that."""
    step_ms = sum(part.ms.value for part in report.parts)
    layer = max(report.layers, key=lambda each: each.ms)
    operator = layer.operators[0]
    call = (layer.name, layer.call)
    found = (lines.backward.get(operator.name) if operator.backward else lines.forward.get(call)) or {}
    called = lines.called.get(call)
    if not found and called is not None:
        found = {called: 1.0}
    levels: list[tuple[LevelName, str, str, float]] = [
        ("step", report.model, "", step_ms),
        ("layer", layer.name, "", layer.ms),
        ("operator", operator.name, "", operator.ms),
    ]
    if found:
        line, seconds = max(found.items(), key=lambda each: each[1])
        levels.append(("line", *_shown(line), operator.ms * seconds / sum(found.values())))
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

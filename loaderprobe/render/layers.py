"""The layers of a model as a page with a heat map, as JSON and as the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaderprobe.records.layers import LAST_CALL, DrillLevel, LayersReport, LayerTime, PartName, Shape
from loaderprobe.render.document import Document, Exhibit, Paragraph, Part, Section, Table
from loaderprobe.render.plots import RED, heat_cell, heat_rows, shortened
from loaderprobe.render.rows import as_columns, interval_cells, own_cells
from loaderprobe.units import significant

SHOWN = 20
BAR = 12
_LONGEST = 9
"""Letters of a name that fit into a cell of the map."""
FITS = (0.75, 1.33)
"""Layers that add up to another share of the whole were not measured on the same machine: it was busy meanwhile."""
PART_WORDS: dict[PartName, str] = {
    "zero_grad": "clear gradients",
    "copy": "copy to the device",
    "load": "load the batch",
}


def layers_document(found: LayersReport) -> Document:
    """The parts of a step, the slowest layers in the order in which they run, and the way down to a source line."""
    batch = f", batch {found.batch_size}" if found.batch_size else ""
    return Document(
        title=f"{found.model}: {_ms(step_ms(found))} ms a training step on {found.device}{batch}",
        sections=(
            Section(parts=_answer(found)),
            Section(title="Parts of a step", parts=(_parts(found),)),
            Section(title=_title(found), name="layers", parts=(_layers(found), *_rest(found))),
            *([Section(title="From the step to a source line", parts=(_drill(found),))] if found.drill else []),
        ),
    )


def step_ms(found: LayersReport) -> float:
    """All parts together."""
    return sum(part.ms.value for part in found.parts)


def sums(found: LayersReport) -> dict[PartName, float]:
    """What the layers add up to, as a share of the forward and of the backward pass timed without a profiler."""
    added: dict[PartName, float] = {
        "forward": sum(layer.forward.value for layer in found.layers),
        "backward": sum(layer.backward.value for layer in found.layers),
    }
    whole = {part.name: part.ms.value for part in found.parts}
    return {name: value / whole[name] for name, value in added.items() if whole.get(name)}


def layer_exhibits(found: LayersReport) -> dict[str, tuple[Exhibit, ...]]:
    """The heat map of all layers, in the section of the layers."""
    if not found.layers:
        return {}
    map_ = Exhibit(
        title="All layers, as they run",
        text="A row for each block of the model, a cell for each layer. The darker, the longer it takes: its "
        "upper half forward, its lower half backward. The figure is the sum of both.",
        figures=(("Heat map of the layers' times", layer_map(found)),),
        wide=True,
    )
    return {"layers": (map_,)}


def layer_map(found: LayersReport) -> str:
    """The darker a cell, the longer its layer takes, forward in its upper half, backward in its lower half."""
    most = max(max(layer.forward.value, layer.backward.value) for layer in found.layers)
    return heat_rows(
        "Heat map of the layers' times",
        (
            (name or "outside blocks", [_cell(layer, most) for layer in some])
            for name, some in _blocks(found.layers).items()
        ),
    )


def _cell(layer: LayerTime, most: float) -> str:
    both = {"forward": layer.forward.value, "backward": layer.backward.value}
    times = ", ".join(f"{name} {significant(value)} ms" for name, value in both.items())
    # The square root shows small layers beside large ones.
    halves = [(RED, (value / most if most else 0.0) ** 0.5) for value in both.values()]
    name = shortened(layer.name.rpartition(".")[2] or layer.kind, _LONGEST)
    return heat_cell(f"{layer.name or layer.kind}: {times}", (name, f"{significant(layer.ms, 2)} ms"), halves)


def _blocks(layers: Sequence[LayerTime]) -> dict[str, list[LayerTime]]:
    """The layers of each block, which is the module around them; what a block does itself stands first in it."""
    around = {layer.name.rpartition(".")[0] for layer in layers}
    found: dict[str, list[LayerTime]] = {}
    for layer in layers:
        found.setdefault(layer.name if layer.name in around else layer.name.rpartition(".")[0], []).append(layer)
    return found


def layer_columns(found: LayersReport) -> dict[str, list[Any]]:
    """One row a call of a layer, in the order in which they first ran; units in the names."""
    return as_columns([_row(order, layer) for order, layer in enumerate(found.layers)])


def _row(order: int, layer: LayerTime) -> dict[str, Any]:
    return {
        "order": order,
        "layer": layer.name,
        **own_cells(layer, "call", "kind"),
        "implementation": ", ".join(operator.name for operator in layer.operators if not operator.backward),
        "in_place": layer.in_place,
        **interval_cells("forward_ms", layer.forward),
        **interval_cells("backward_ms", layer.backward),
        "parameters": layer.parameters,
        "inputs": _shapes(layer.inputs),
        "outputs": _shapes(layer.outputs),
    }


def _answer(found: LayersReport) -> tuple[Part, ...]:
    """The slowest layer, and how well the layers add up."""
    slowest = max(found.layers, key=lambda each: each.ms, default=None)
    whole = step_ms(found)
    parts: list[Part] = []
    if slowest is not None and whole:
        share = f"{100 * slowest.ms / whole:.0f} %"
        where = "forward" if slowest.forward.value > slowest.backward.value else "backward"
        text = f"The slowest layer is {layer_name(slowest)}, with {share} of the step, most of it {where}."
        parts.append(Paragraph(text=text, strong=True))
    shares = " and ".join(f"{100 * share:.0f} % of the {name} pass" for name, share in sums(found).items())
    if shares and found.unlisted:
        text = (
            f"The layers add up to {shares}. A step runs {found.unlisted:,} operators, too many to record each. So the "
            "forward time of a layer includes Python between its operators, and the time of the backward pass is "
            "divided among layers by the time of their operators, each timed by itself. Operators of the forward pass "
            "are not listed."
        )
        parts.append(Paragraph(text=text))
    elif shares:
        parts.append(
            Paragraph(
                text=f"The layers add up to {shares}, timed without the profiler over {found.steps} steps. The rest is "
                "Python between operators, and what the profiler adds."
            )
        )
    # Where operators are not listed, the backward pass is divided among layers: of that, nothing can be missing.
    compared = {name: share for name, share in sums(found).items() if name == "forward" or not found.unlisted}
    if any(not FITS[0] <= share <= FITS[1] for share in compared.values()):
        text = "That is far from all of it: something else may have used the machine. Measure again when it is idle."
        parts.append(Paragraph(text=text, strong=True))
    return tuple(parts)


def _parts(found: LayersReport) -> Table:
    whole = step_ms(found)
    return Table(
        head=("part", "ms", "middle half", "share"),
        lines=tuple(
            (
                PART_WORDS.get(part.name, part.name),
                _ms(part.ms.value),
                f"{_ms(part.ms.low)} to {_ms(part.ms.high)}",
                _bar(part.ms.value, whole, whole),
            )
            for part in found.parts
        ),
        right=frozenset({1, 2}),
    )


def _title(found: LayersReport) -> str:
    count = len(found.layers)
    return f"The {SHOWN} slowest of {count} layers, as they run" if count > SHOWN else "Layers, as they run"


def _shown(found: LayersReport) -> Sequence[LayerTime]:
    slowest = sorted(found.layers, key=lambda each: -each.ms)[:SHOWN]
    return [layer for layer in found.layers if layer in slowest]


def _layers(found: LayersReport) -> Table:
    shown, whole = _shown(found), step_ms(found)
    most = max((layer.ms for layer in shown), default=0.0)
    return Table(
        head=("layer", "output", "forward", "backward", "of the step"),
        lines=tuple(
            (
                layer_name(layer) + ("*" if layer.in_place else ""),
                _shapes(layer.outputs),
                _ms(layer.forward.value),
                _ms(layer.backward.value),
                _bar(layer.ms, whole, most),
            )
            for layer in shown
        ),
        right=frozenset({2, 3}),
    )


def _rest(found: LayersReport) -> tuple[Part, ...]:
    shown = _shown(found)
    notes = ["Forward and backward in ms. *: overwrites its input." if any(s.in_place for s in shown) else "In ms."]
    more = len(found.layers) - len(shown)
    if more:
        left = sum(layer.ms for layer in found.layers) - sum(layer.ms for layer in shown)
        notes.append(f"The {more} others take {_ms(left)} ms together.")
    if found.missing:
        notes.append(f"Never ran: {', '.join(found.missing[:SHOWN])}.")
    return (Paragraph(text=" ".join(notes)),)


def _drill(found: LayersReport) -> Table:
    return Table(
        head=("level", "the slowest", "ms", "of the level above", "of the step"),
        lines=tuple(
            (
                each.level,
                _level_name(found, each),
                _ms(each.ms),
                f"{100 * each.of_above:.1f} %" if each.level != "step" else "",
                f"{100 * each.of_whole:.1f} %",
            )
            for each in found.drill
        ),
        right=frozenset({2, 3, 4}),
    )


def _level_name(found: LayersReport, level: DrillLevel) -> str:
    if level.level == "layer":
        called = (level.name, level.call)
        return next(layer_name(layer) for layer in found.layers if (layer.name, layer.call) == called)
    return f"{level.name}  {level.text}".strip()


def layer_name(layer: LayerTime) -> str:
    """`layer1.0.conv2 (Conv2d)`; of a further call in a step, its number; the last row of a layer may hold many."""
    again = f", call {layer.call + 1}" if layer.call else ""
    again += " and later" if layer.call == LAST_CALL else ""
    return f"{layer.name or 'outside its layers'} ({layer.kind}{again})"


def _shapes(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)


def _ms(value: float) -> str:
    return significant(value)


def _bar(value: float, whole: float, most: float) -> str:
    """The share of the step, and a bar whose longest is that of `most`."""
    share = value / whole if whole else 0.0
    length = round(BAR * value / most) if most else 0
    return f"{100 * share:4.1f} % " + "█" * length

"""The heat map of a model: a row for each block, a cell for each call of a layer, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from loaderprobe.records.layers import LayersReport, LayerTime
from loaderprobe.render.charts import shortened, svg_text
from loaderprobe.render.wording import visible
from loaderprobe.units import significant

HEAT = "#D55E00"
CELLS = 14
"""In a row; longer blocks go on below."""
_WIDE, _HIGH, _GAP, _NAMES = 62, 34, 3, 118
_LONGEST = 9
"""Letters of a name that fit into a cell; of the name of a block, twice as many."""
_READABLE = 0.55
"""Cells that are darker than this have white text."""


def layer_map(found: LayersReport) -> str:
    """SVG: the darker a cell, the longer its layer takes, forward in its upper half, backward in its lower half."""
    if not found.layers:
        return ""
    most = max(max(layer.forward.value, layer.backward.value) for layer in found.layers)
    drawn: list[str] = []
    top = widest = 0
    for block, cells in _blocks(found.layers).items():
        drawn.append(svg_text(_NAMES - 8, top + 22, shortened(block or "outside blocks", 2 * _LONGEST), anchor="end"))
        for number, layer in enumerate(cells):
            x = _NAMES + number % CELLS * (_WIDE + _GAP)
            drawn += _cell(layer, x, top + number // CELLS * (_HIGH + _GAP), most)
        top += -(-len(cells) // CELLS) * (_HIGH + _GAP) + _GAP
        widest = max(widest, min(CELLS, len(cells)))
    width = _NAMES + widest * (_WIDE + _GAP)
    return (
        f'<svg viewBox="0 0 {width} {top}" style="max-width: {width}px" aria-hidden="true" font-family="sans-serif" '
        f'font-size="10">{"".join(drawn)}</svg>'
    )


def _blocks(layers: Sequence[LayerTime]) -> dict[str, list[LayerTime]]:
    """The layers of each block, which is the module around them; what a block does itself stands first in it."""
    around = {layer.name.rpartition(".")[0] for layer in layers}
    found: dict[str, list[LayerTime]] = {}
    for layer in layers:
        found.setdefault(layer.name if layer.name in around else layer.name.rpartition(".")[0], []).append(layer)
    return found


def _cell(layer: LayerTime, x: int, y: int, most: float) -> Sequence[str]:
    halves = [
        _half(x, y + half * _HIGH // 2, value / most if most else 0.0, name, layer)
        for half, (name, value) in enumerate((("forward", layer.forward.value), ("backward", layer.backward.value)))
    ]
    dark = layer.forward.value > _READABLE**2 * most
    name = shortened(layer.name.rpartition(".")[2] or layer.kind, _LONGEST)
    ink = "#FFFFFF" if dark else "currentColor"
    low = "#FFFFFF" if layer.backward.value > _READABLE**2 * most else "currentColor"
    return [
        *halves,
        svg_text(x + _WIDE / 2, y + 12, name, anchor="middle", fill=ink),
        svg_text(x + _WIDE / 2, y + 29, f"{significant(layer.ms, 2)} ms", anchor="middle", fill=low),
    ]


def _half(x: int, y: int, share: float, name: str, layer: LayerTime) -> str:
    value = layer.forward.value if name == "forward" else layer.backward.value
    # The square root shows small layers beside large ones.
    said = f"{layer.name or layer.kind}, {name}: {significant(value)} ms"
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH // 2}" fill="{HEAT}" fill-opacity="{share**0.5:.3f}" '
        f'stroke="{HEAT}" stroke-width="0.4"><title>{escape(visible(said))}</title></rect>'
    )

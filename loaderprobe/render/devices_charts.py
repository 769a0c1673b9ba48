"""Charts of devices: seconds an epoch, and the parts of a step."""

from __future__ import annotations

from loaderprobe.records.devices import WorkloadVerdict
from loaderprobe.render.charts import READ_COLOR, TONES, Column, Part, column_chart, stacked_chart
from loaderprobe.render.devices_words import shown_name
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.units import significant

PARTS = (
    Part(letter="C", name="compute", color=TONES["compute"], ink="#FFFFFF"),
    Part(letter="G", name="gradient exchange", color=TONES["transport"], ink="#000000"),
    Part(letter="I", name="input", color=TONES["preprocessing"], ink="#000000"),
)
_ABOVE = 1.25
"""A scale ends so far above what it shows, that figures have their place."""


def devices_exhibits(verdicts: tuple[WorkloadVerdict, ...]) -> dict[str, tuple[Exhibit, ...]]:
    """Two charts for each model, in its section."""
    return {each.workload.model: (_exhibit(each),) for each in verdicts if each.placements}


def _exhibit(verdict: WorkloadVerdict) -> Exhibit:
    legend = "; ".join(f"{part.letter} {part.name}" for part in PARTS)
    return Exhibit(
        title="Seconds an epoch, and where a step goes",
        text=f"Left with 95 % intervals. Right: {legend}. Exchange and input are what a step gets shorter by without "
        "them; what hides behind compute is not counted.",
        figures=(
            ("Bars of seconds an epoch", _epochs(verdict)),
            ("Parts of a step", _steps(verdict)),
        ),
    )


def _epochs(verdict: WorkloadVerdict) -> str:
    placements = verdict.placements
    columns = [
        Column(
            workers=shown_name(each.placement),
            value=each.epoch_s.value,
            low=each.epoch_s.low,
            high=each.epoch_s.high,
            text=f"{significant(each.epoch_s.value)} s",
            color=READ_COLOR,
        )
        for each in placements
    ]
    top = _ABOVE * max(each.epoch_s.high for each in placements)
    return column_chart(columns, "An epoch", "s", top, axis="")


def _steps(verdict: WorkloadVerdict) -> str:
    placements = verdict.placements
    bars = [
        (
            shown_name(each.placement),
            (each.parts.compute, each.parts.exchange, each.parts.input),
            f"{significant(each.parts.whole)} ms",
        )
        for each in placements
    ]
    return stacked_chart(bars, PARTS, "A step", "ms", _ABOVE * max(each.parts.whole for each in placements))

"""What weakens the comparison of two sweeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from loaderprobe.analyze.comparison import MeasuredRow, sweep_notes
from loaderprobe.analyze.effects import RunReading
from loaderprobe.records.verdict import Interval


def run(rounds: int, spread: float = 0.1) -> MeasuredRow:
    """Of so many rounds; its steps vary by `spread`."""
    figure = Interval(value=100.0, low=100.0 * (1 - spread), high=100.0 * (1 + spread))
    reading = RunReading(values=tuple(100.0 + number for number in range(rounds)), figure=figure)
    return cast(MeasuredRow, SimpleNamespace(reading=reading, row=SimpleNamespace(verdict=None)))


@pytest.mark.parametrize(
    ("before", "after", "sides"),
    [
        ([run(1)], [run(3)], ["A"]),
        ([run(2)], [run(1)], ["A", "B"]),
        ([run(1), run(1), run(1)], [run(2), run(2)], []),
        ([run(1, spread=0.0)], [run(2)], []),
        ([run(3)], [run(2, spread=0.0)], []),
    ],
)
def test_steps_stand_in_only_where_rows_were_compared_by_them(
    before: list[MeasuredRow], after: list[MeasuredRow], sides: list[str]
) -> None:
    """Several runs have rounds enough together; where steps do not vary either, nothing stands in, and rows say so."""
    notes = sweep_notes([(before, after)])
    assert [each.side for each in notes] == sides and all(each.code == "few_rounds" for each in notes)

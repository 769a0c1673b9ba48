"""The charts of the report."""

from __future__ import annotations

import re

import pytest

from loaderprobe.render.charts import Column, column_chart, svg_page


@pytest.mark.parametrize(
    ("title", "size"),
    [
        ("256x256, serial: 96 % decoding", "13"),
        ("256x256, prefetch 4, 2 workers: 71 % decoding and augmentation", "10.5"),
        ("a" * 200, "9"),
    ],
)
def test_a_long_title_is_smaller(title: str, size: str) -> None:
    """It would be cut at the edge of the chart."""
    found = re.search(r'font-size="([0-9.]+)" font-weight="600"', svg_page(title, 100, []))
    assert found and found[1] == size


def test_no_figure_lies_on_the_name_of_the_ceiling() -> None:
    """A bar that ends there has its figure at its foot; another keeps it on top."""
    bars = [Column(workers=str(value), value=value, text=f"rate{value:g}", color="#000000") for value in (50.0, 20.0)]
    drawn = column_chart(bars, "title", "images/s", 200.0, (55.0, "compute alone: 55"))
    places = {text: float(y) for y, text in re.findall(r' y="([\d.]+)"[^>]*>([^<]+)<', drawn)}
    assert abs(places["rate50"] - places["compute alone: 55"]) > 15
    assert places["rate50"] > places["rate20"]

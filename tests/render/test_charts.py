"""The charts of the report."""

from __future__ import annotations

import re

import pytest

from loaderprobe.render.charts import svg_page


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

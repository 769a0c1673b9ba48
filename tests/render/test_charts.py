"""The chart kit: axes, names that find their places, what is read out."""

from __future__ import annotations

import re

import pytest

from loaderprobe.render.plots import (
    Axis,
    Column,
    Plot,
    Shade,
    column_chart,
    heat_cell,
    heat_rows,
    stacked_chart,
    svg_page,
)

LINE = 13
"""Units that words are high."""


def places(svg: str) -> dict[str, tuple[float, float]]:
    """(x, y) of each text."""
    found = re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]+)<', svg)
    return {words: (float(x), float(y)) for x, y, words in found}


@pytest.mark.parametrize(
    ("title", "sizes"),
    [
        ("256x256, serial: 96 % decoding", ["13"]),
        ("1024x768, 8 workers: 100 iterations +4.7 % to +153 %", ["12.5"]),
        ("256x256, prefetch 4, 2 workers: 71 % decoding and augmentation", ["13", "13"]),
        ("a" * 140, ["13", "13", "13"]),
    ],
)
def test_a_long_title_is_smaller_and_a_longer_one_has_lines(title: str, sizes: list[str]) -> None:
    """It would be cut at the edge of the chart; no line is left out, and the chart grows upwards by them."""
    svg = svg_page(title, 100, [])
    assert re.findall(r'font-size="([0-9.]+)" font-weight="600"', svg) == sizes
    above = 15 * (len(sizes) - 1)
    assert f'viewBox="0 {-above} 348 {100 + above}" role="img" aria-label="{title}"' in svg


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(name="", low=1, high=512, base=2), ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512"][::2]),
        (Axis(name="", low=3e8, high=3e11, base=10), ["1G", "10G", "100G"]),
        (Axis(name="", low=0.4, high=6, base=10), ["0.5", "1", "2", "5"]),
        (Axis(name="", low=6, high=18, base=10), ["7", "10", "15"]),
        (Axis(name="", high=2100), ["0", "1,000", "2,000"]),
        (Axis(name="", high=0.5), ["0", "0.2", "0.4"]),
        (Axis(name="", high=1, shares=True), ["0 %", "25 %", "50 %", "75 %", "100 %"]),
    ],
)
def test_axes_have_some_ticks_and_not_too_many(axis: Axis, ticks: list[str]) -> None:
    """Round figures; on a short logarithmic axis those between the powers, on a long one every second power."""
    assert [words for _, words in axis.ticks()] == ticks


def test_a_value_beyond_an_axis_stands_at_its_end() -> None:
    """Also 0 on a logarithmic one, and nothing lies outside the drawing."""
    axis = Axis(name="", low=1, high=100, base=10)
    assert [axis.share(value) for value in (0, 1, 10, 1000)] == [0, 0, 0.5, 1]
    assert [Axis(name="", high=4).share(value) for value in (-1, 1, 9)] == [0, 0.25, 1]


def test_no_figure_lies_on_the_name_of_the_ceiling() -> None:
    """A bar that ends there has its figure at its foot; another keeps it on top."""
    bars = [Column(name=str(value), value=value, text=f"rate{value:g}", color="#000000") for value in (50.0, 20.0)]
    at = places(column_chart(bars, "title", "images/s", 200.0, (55.0, "compute alone: 55")))
    assert abs(at["rate50"][1] - at["compute alone: 55"][1]) > 15
    assert at["rate50"][1] > at["rate20"][1]


def test_names_of_close_lines_are_apart() -> None:
    """Also those of three lines of one height, and those of points in one place."""
    plot = Plot("title", Axis(name="x", high=10), Axis(name="y", high=10))
    for number in range(3):
        plot.level(5 + number / 100, f"line {number}")
        plot.name(2, 2, f"point {number}")
    at = places(plot.svg())
    some = [at[f"{what} {number}"] for what in ("line", "point") for number in range(3)]
    for one, (x, y) in enumerate(some):
        assert all(abs(y - other) >= LINE - 2 or abs(x - left) > 40 for left, other in some[:one])


def test_a_name_stays_within_the_chart() -> None:
    """At the right edge it stands left of its point, whatever was asked for."""
    plot = Plot("title", Axis(name="x", high=10), Axis(name="y", high=10))
    plot.name(10, 5, "a long name of a point", "right")
    assert re.search(r'<text x="33\d\.0"[^>]* text-anchor="end"[^>]*>a long name', plot.svg())


def test_equal_bars_are_one_path_and_parts_have_letters() -> None:
    """A thousand ranks make no thousand elements; a part that is too narrow has no letter."""
    bars = [Column(name=str(n), value=1.0, text="", color="#000000" if n else "#111111") for n in range(5)]
    paths = re.findall(r'<path d="([^"]*)" fill="#', column_chart(bars, "title", "images/s", 2.0))
    assert [path.count("z") for path in paths] == [1, 4]
    parts = [Shade(letter=letter, name="", color="#000000", ink="#FFFFFF") for letter in "AB"]
    drawn = stacked_chart([("2 workers", (10.0, 0.1), "10.1")], parts, "title", "ms", 12.0)
    assert ">A<" in drawn and ">B<" not in drawn and drawn.count('class="part"') == 2
    assert stacked_chart([], parts, "title", "ms", 1.0) == column_chart([], "title", "unit", 1.0) == ""


def test_words_from_outside_are_shown() -> None:
    """In titles, names and cells; nothing of them is a tag."""
    plot = Plot("<b>", Axis(name="x", high=1), Axis(name="y", high=1))
    plot.name(0.5, 0.5, "<i>")
    drawn = plot.svg() + heat_rows("<u>", [("<p>", [heat_cell("<s>", ("<a>", ""), [("#000000", 0.2)])])])
    assert not re.search("<[biupsa]>", drawn) and drawn.count("&lt;") == 7

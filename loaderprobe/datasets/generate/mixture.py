"""Sizes, qualities and samplings of ImageNet's images, drawn from measured files.

`imagenet_statistics.tsv` holds one line for each of 1,000 files of ILSVRC2012, one of every class (the sample images
collected by E. Schwartz): width, height, quality of the quantisation tables, sampling factors of luminance, number of
components, bytes of the file and of its header. It holds figures only, and no part of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

import numpy as np

from loaderprobe.datasets.generate.jpeg.frame import Frame

# MLPerf Storage's record length of ResNet-50; it agrees with the size of the training set's tar file.
IMAGENET_MEAN_BYTES = 114_660
HEADER_BYTES = 600
# Relative: a mean that is as near as this needs no weights to be had.
CLOSE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The properties of an image to generate."""

    frame: Frame
    size_bytes: float
    """Of the file, without more segments than the usual."""


@cache
def _table() -> tuple[Draw, ...]:
    """The measured files, ordered so that neighbours are similar."""
    text = files("loaderprobe.datasets.generate").joinpath("imagenet_statistics.tsv").read_text()
    lines = [tuple(map(int, line.split("\t"))) for line in text.splitlines()[1:]]
    draws = [
        Draw(
            frame=Frame(
                width=width, height=height, quality=quality, components=components,
                sampling=divmod(sampling, 10) if components == 3 else (1, 1),
            ),
            # Long headers are oddities of their own; the scan is what makes the work.
            size_bytes=size - header + min(header, HEADER_BYTES),
        )
        for width, height, quality, sampling, components, size, header in lines
    ]  # fmt: skip
    return tuple(sorted(draws, key=lambda draw: (draw.frame.sampling, draw.frame.quality, draw.size_bytes)))


def draws(
    resolution: tuple[int, int] | None, count: int, rng: np.random.Generator, *, components: int = 3
) -> list[Draw]:
    """`count` images like ImageNet's; at one resolution, with the bytes per pixel they have there.

    Takes every k-th of the measured files, ordered so that neighbours are similar. So even a few of them have all
    samplings, qualities and sizes in their shares.
    """
    table = [draw for draw in _table() if draw.frame.components == (1 if components == 1 else 3)]
    places = (np.arange(count) + rng.random()) * len(table) / count
    chosen = [table[int(place) % len(table)] for place in places]
    if components == 4:
        chosen = [replace(draw, frame=replace(draw.frame, components=4, sampling=(1, 1))) for draw in chosen]
    return [_resized(draw, resolution) if resolution else draw for draw in chosen]


def _resized(draw: Draw, resolution: tuple[int, int]) -> Draw:
    width, height = resolution
    scan = draw.size_bytes - min(draw.size_bytes / 2, HEADER_BYTES)
    per_pixel = scan / (draw.frame.width * draw.frame.height)
    return Draw(
        frame=replace(draw.frame, width=width, height=height), size_bytes=HEADER_BYTES + per_pixel * width * height
    )


def tilted(sizes: Sequence[float], target: float) -> list[float] | None:
    """Weights with sum 1 under which the mean of the sizes is the target, as equal as can be (largest entropy).

    They are exponential in the size (E. T. Jaynes 1957). None when the target is beyond the sizes by over 1 %.
    """
    values = np.asarray(sizes, np.float64)
    if len(set(sizes)) == 1 or not values.min() < target < values.max():
        return [1 / len(sizes)] * len(sizes) if np.isclose(values.mean(), target, rtol=CLOSE) else None
    scaled = (values - values.mean()) / values.std()
    low, high = -700.0, 700.0
    for _ in range(200):
        middle = (low + high) / 2
        exponent = middle * scaled
        weights = np.exp(exponent - exponent.max())
        weights /= weights.sum()
        low, high = (middle, high) if weights @ values < target else (low, middle)
    return [float(weight) for weight in weights]

"""Natural-looking images by the dead-leaves model: textured shapes that occlude one another.

Chosen among five models in earlier experiments, where its bytes per pixel came closest to photographs over
JPEG quality; uniform noise takes twice the bytes. Planes are luminance and two chrominances, less 128.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]

# Shapes per pixel of a 500 x 375 image with 2000 of them.
SHAPES_PER_PIXEL = 2000 / (500 * 375)
SMALLEST_RADIUS = 2.0
BACKGROUND_SHAPES = 25
TEXTURE_EXPONENT = 0.8
TEXTURE_STRENGTH = 5.4
BOX_SHARE = 0.35
GREY = -8.0
"""The mean of luminance, less 128."""
# Grain of a camera: nearly the same in all colours, so it shows in luminance.
GRAIN = (1.0, 0.22, 0.22)


def pink_plane(rng: np.random.Generator, height: int, width: int, exponent: float) -> Plane:
    """A field whose amplitude falls as 1 / frequency^exponent, with deviation 1; height x width."""
    vertical = np.fft.fftfreq(height)[:, None] * height
    horizontal = np.fft.rfftfreq(width)[None] * width
    frequency = np.hypot(vertical, horizontal)
    frequency[0, 0] = 1
    spectrum = (rng.standard_normal(frequency.shape) + 1j * rng.standard_normal(frequency.shape)) / frequency**exponent
    spectrum[0, 0] = 0
    field = np.fft.irfft2(spectrum, s=(height, width))
    plane: Plane = (field / field.std()).astype(np.float32)
    return plane


def dead_leaves(rng: np.random.Generator, width: int, height: int) -> list[Plane]:
    """An image: three planes of height x width."""
    planes = np.zeros((height, width, 3), np.float32)
    planes[..., 0] = GREY
    texture = pink_plane(rng, height, width, TEXTURE_EXPONENT)
    for shape in _shapes(rng, width, height):
        _paint(planes, texture, shape)
    return list(np.moveaxis(softened(planes), 2, 0))


def grain(rng: np.random.Generator, width: int, height: int) -> list[Plane]:
    """Noise with deviation 1 in luminance, three planes of height x width."""
    return [rng.standard_normal((height, width), np.float32) * np.float32(strength) for strength in GRAIN]


def _shapes(rng: np.random.Generator, width: int, height: int) -> NDArray[Any]:
    """The shapes in the order of painting, as records: radii follow r^-3, the first ones cover the ground."""
    count = max(BACKGROUND_SHAPES, round(SHAPES_PER_PIXEL * width * height))
    largest = min(width, height) * 0.5
    shapes = np.zeros(
        count,
        dtype=[(name, np.float32) for name in ("x", "y", "rx", "ry", "luma", "cb", "cr", "dx", "dy", "texture", "box")],
    )
    radius = (SMALLEST_RADIUS**-2 - rng.random(count) * (SMALLEST_RADIUS**-2 - largest**-2)) ** -0.5
    radius[:BACKGROUND_SHAPES] = rng.uniform(largest * 0.35, largest, BACKGROUND_SHAPES)
    aspect = rng.uniform(0.5, 2, count) ** 0.5
    shapes["rx"], shapes["ry"] = radius * aspect, radius / aspect
    shapes["x"], shapes["y"] = rng.uniform(0, width, count), rng.uniform(0, height, count)
    shapes["luma"] = rng.normal(118, 58, count).clip(0, 255) - 128
    shapes["cb"], shapes["cr"] = rng.normal(0, 14, count), rng.normal(0, 14, count)
    shapes["dx"], shapes["dy"] = rng.normal(0, 0.18, count), rng.normal(0, 0.18, count)
    shapes["texture"] = np.abs(rng.standard_cauchy(count)).clip(0, 4) * TEXTURE_STRENGTH
    shapes["box"] = rng.random(count) < BOX_SHARE
    return shapes


def _paint(planes: NDArray[np.float32], texture: Plane, shape: Any) -> None:
    height, width, _ = planes.shape
    left, right = max(0, int(shape["x"] - shape["rx"])), min(width, int(shape["x"] + shape["rx"]) + 1)
    top, bottom = max(0, int(shape["y"] - shape["ry"])), min(height, int(shape["y"] + shape["ry"]) + 1)
    if left >= right or top >= bottom:
        return
    y = np.arange(top, bottom, dtype=np.float32)[:, None] - shape["y"]
    x = np.arange(left, right, dtype=np.float32)[None] - shape["x"]
    window = planes[top:bottom, left:right]
    inside = np.ones(window.shape[:2], bool) if shape["box"] else (x / shape["rx"]) ** 2 + (y / shape["ry"]) ** 2 <= 1
    luma = shape["luma"] + shape["dx"] * x + shape["dy"] * y + shape["texture"] * texture[top:bottom, left:right]
    window[..., 0][inside] = luma[inside]
    window[..., 1][inside] = shape["cb"]
    window[..., 2][inside] = shape["cr"]


def softened(planes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Blur edges as a lens does: a binomial filter of three pixels each way, along the first two axes; in place."""
    planes[1:-1] = 0.25 * planes[:-2] + 0.5 * planes[1:-1] + 0.25 * planes[2:]
    planes[:, 1:-1] = 0.25 * planes[:, :-2] + 0.5 * planes[:, 1:-1] + 0.25 * planes[:, 2:]
    return planes

"""The images of a generated set, as JPEG bytes."""

from __future__ import annotations

import io
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from loaderprobe.datasets.content import dead_leaves

# Pillow's optimising encoder needs the whole picture in one buffer.
ImageFile.MAXBLOCK = 1 << 24

POOL = 6
# Bases are larger than the images cut from them by this factor each way.
MARGIN = 1.3
GRAIN = 3.0
# The real set is a mixture: 70 % at quality 96 without chroma subsampling, the rest lower and mostly 4:2:0.
BEST_SHARE = 0.7
BEST_QUALITY = 96
OTHER_QUALITIES = (75, 80, 85, 90)


class ImageSource(Protocol):
    """Makes the images of one set: image `index` depends on the set's seed and size, and on `index`."""

    def jpeg(self, index: int) -> bytes:
        """The whole file of image `index`."""
        ...


class PillowImages:
    """Cuts each image from one of a few dead-leaves bases, changes its light, adds grain, and has Pillow encode it."""

    def __init__(self, width: int, height: int, seed: int) -> None:
        self._size = (width, height)
        self._seed = seed
        wide, high = round(width * MARGIN), round(height * MARGIN)
        self._bases = [dead_leaves([seed, width, height, base], wide, high) for base in range(POOL)]
        rng = self._rng(-1)
        self._grain = (rng.standard_normal((high, wide, 3), np.float32) * GRAIN).astype(np.int16)

    def jpeg(self, index: int) -> bytes:
        """The whole file of image `index`."""
        rng = self._rng(index)
        contrast = rng.uniform(0.8, 1.15)
        shift = rng.uniform(-12, 12)
        light = ((np.arange(256) - 128) * contrast + 128 + shift).astype(np.int16)
        picture = light[self._cut(rng, self._bases[rng.integers(POOL)])] + self._cut(rng, self._grain)
        encoded = io.BytesIO()
        best = rng.random() < BEST_SHARE
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(
            encoded,
            "JPEG",
            quality=BEST_QUALITY if best else int(rng.choice(OTHER_QUALITIES)),
            subsampling=0 if best else 2,
            optimize=True,
        )
        return encoded.getvalue()

    def _rng(self, index: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([self._seed, *self._size, index + 1])))

    def _cut(self, rng: np.random.Generator, plane: NDArray[np.generic]) -> NDArray[np.generic]:
        """A window of the image's size at random, mirrored half the time."""
        width, height = self._size
        top, left = rng.integers(plane.shape[0] - height + 1), rng.integers(plane.shape[1] - width + 1)
        window = plane[top : top + height, left : left + width]
        return window[:, ::-1] if rng.random() < 0.5 else window

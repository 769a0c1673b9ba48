"""A base image whose file has a given size: one knob from blurred and flat to sharp and grainy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from loaderprobe.datasets.generate.content import GREY, dead_leaves, grain, softened
from loaderprobe.datasets.generate.jpeg.encoder import encoded_size, scan_tokens
from loaderprobe.datasets.generate.jpeg.frame import Frame, Plane, Spectrum, spectra
from loaderprobe.datasets.generate.jpeg.scan import Tokens

# Contrast rises with the knob up to its middle, where the image is as painted, with the grain of a camera.
FLATTEST = 0.04
LEAST_GRAIN, MOST_GRAIN = 2.0, 250.0
GRAIN_EXPONENT = 2.5
CLOSE_ENOUGH = 0.01
MOST_TRIES = 8


class BaseImage:
    """Dead leaves in one frame. Its spectrum is a sum, so the DCT is computed once and not for every try."""

    def __init__(self, rng: np.random.Generator, frame: Frame) -> None:
        self._frame = frame
        sharp = dead_leaves(rng, frame.width, frame.height)
        noise = grain(rng, frame.width, frame.height)
        soft = [softened(softened(plane.copy())) for plane in sharp]
        self._sharp, self._soft, self._grain = (
            spectra(_components(planes, frame.components), frame) for planes in (sharp, soft, noise)
        )

    def tokens(self, knob: float) -> Tokens:
        """The image quantised at a knob of 0 to 1; the file grows with the knob."""
        contrast = min(1.0, FLATTEST + (1 - FLATTEST) * 2 * knob)
        blur = max(0.0, 1 - 2 * knob)
        strength = LEAST_GRAIN * min(1.0, 2 * knob) + MOST_GRAIN * max(0.0, knob - 0.5) ** GRAIN_EXPONENT
        mixed: list[Spectrum] = []
        for sharp, soft, noise in zip(self._sharp, self._soft, self._grain, strict=True):
            mixed.append(contrast * ((1 - blur) * sharp + blur * soft) + strength * noise)
        return scan_tokens(mixed, self._frame)

    def sized(self, target_bytes: float) -> Tokens:
        """The image at the knob whose file is nearest to the target, within 1 % where the knob has enough range."""
        low, high, knob = 0.0, 1.0, 0.5
        best: tuple[float, Tokens] | None = None
        for _ in range(MOST_TRIES):
            found = self.tokens(knob)
            error = math.log(encoded_size(found, self._frame) / target_bytes)
            if best is None or abs(error) < abs(best[0]):
                best = error, found
            if abs(error) <= CLOSE_ENOUGH:
                break
            low, high = (knob, high) if error < 0 else (low, knob)
            knob = (low + high) / 2
        assert best is not None
        return best[1]


def _components(planes: Sequence[Plane], count: int) -> list[Plane]:
    """The planes as grey, as colour, or as the inks of a CMYK file: cyan, magenta, yellow about the grey, and black."""
    if count == 4:
        luminance, blue, red = planes
        return [luminance - red, luminance + (blue + red) / 4, luminance - blue, np.full_like(luminance, -GREY)]
    return list(planes[:count])

"""Frames and planes for the tests of the encoder, and what Pillow says of a file."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from loaderprobe.datasets.generate.jpeg import Encoded, Frame, Plane, encoded, scan_tokens, spectra

SAMPLINGS = ((1, 1), (2, 1), (1, 2), (2, 2))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Small frames of every shape, quality, sampling and number of components."""
    components = draw(st.sampled_from([1, 3, 3, 3, 4]))
    return Frame(
        width=draw(st.integers(1, 70)), height=draw(st.integers(1, 70)), quality=draw(st.integers(1, 100)),
        sampling=draw(st.sampled_from(SAMPLINGS)) if components == 3 else (1, 1), components=components,
    )  # fmt: skip


def planes(frame: Frame, seed: int, strength: float = 40.0) -> list[Plane]:
    """Noise about a ramp."""
    rng = np.random.default_rng(seed)
    ramp = np.add.outer(np.linspace(-25, 25, frame.height), np.linspace(-15, 15, frame.width)).astype(np.float32)
    return [
        (ramp + rng.normal(0, strength, ramp.shape)).astype(np.float32).clip(-128, 127) for _ in range(frame.components)
    ]


def encode(frame: Frame, seed: int = 0, strength: float = 40.0) -> Encoded:
    return encoded(scan_tokens(spectra(planes(frame, seed, strength), frame), frame), frame)


def opened(data: bytes | Encoded) -> Any:
    """The image as Pillow decodes it; a warning is an error."""
    data = data if isinstance(data, bytes) else data.file(data.scan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        image = Image.open(io.BytesIO(data))
        image.load()
    return image

"""An image's planes as quantised blocks, in the order of the scan (T.81 A.1 to A.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaderprobe.datasets.generate.jpeg.tables import CHROMINANCE, LUMINANCE, SIDE, ZIGZAG, Table, scaled

Plane = NDArray[np.float32]
"""Samples of one component less 128, height x width."""
Spectrum = NDArray[np.float32]
"""DCT coefficients of one component: minimum coded units x blocks in each x 64, row-major within a block."""
Sampling = tuple[int, int]
"""Of the first component against the others: how many times as wide, and as high (T.81 A.1.1)."""

_k = np.arange(SIDE)
# T.81 A.3.3: rows are frequencies.
DCT = (np.sqrt(2 / SIDE) * np.cos((2 * _k[None] + 1) * _k[:, None] * np.pi / (2 * SIDE))).astype(np.float32)
DCT[0] /= np.sqrt(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What the frame header says (T.81 B.2.2): 1 component (grey), 3 (YCbCr) or 4 (all of full size)."""

    width: int
    height: int
    quality: int
    sampling: Sampling = (1, 1)
    components: int = 3

    def factors(self, component: int) -> Sampling:
        """Horizontal and vertical sampling factor of a component."""
        return self.sampling if component == 0 and self.components > 1 else (1, 1)

    def table_of(self, component: int) -> int:
        """Which quantisation and entropy tables a component uses: 0, or 1 for chrominance."""
        return int(component > 0 and self.components == 3)

    @property
    def quantisers(self) -> tuple[Table, ...]:
        """One table, or two where there is chrominance."""
        tables = (LUMINANCE, CHROMINANCE)
        return tuple(scaled(table, self.quality) for table in tables[: 2 if self.components == 3 else 1])

    @property
    def unit(self) -> tuple[int, int]:
        """Width and height in samples of the minimum coded unit (T.81 A.2)."""
        horizontal, vertical = self.factors(0)
        return SIDE * horizontal, SIDE * vertical

    @property
    def block_components(self) -> NDArray[np.int64]:
        """The component of each block of a minimum coded unit."""
        sizes = [self.factors(component)[0] * self.factors(component)[1] for component in range(self.components)]
        return np.repeat(np.arange(self.components), sizes)


def spectra(planes: Sequence[Plane], frame: Frame) -> tuple[Spectrum, ...]:
    """The DCT of every component, which is linear: a sum of images has the sum of their spectra.

    All planes are of the frame's full size; chrominance is averaged down to its sampling, and edges are
    repeated up to whole units.
    """
    wide, high = frame.unit
    found = []
    for component, plane in enumerate(planes):
        padded = np.pad(plane, ((0, -frame.height % high), (0, -frame.width % wide)), "edge")
        horizontal, vertical = frame.factors(component)
        across, down = frame.factors(0)[0] // horizontal, frame.factors(0)[1] // vertical
        if (across, down) != (1, 1):
            padded = padded.reshape(padded.shape[0] // down, down, -1, across).mean((1, 3))
        found.append(_dct(padded, horizontal, vertical))
    return tuple(found)


def _dct(plane: Plane, horizontal: int, vertical: int) -> Spectrum:
    """Blocks in the order of the scan (T.81 A.2.3): units row by row, and so the blocks within each."""
    rows, columns = plane.shape[0] // SIDE, plane.shape[1] // SIDE
    blocks = plane.reshape(rows, SIDE, columns, SIDE).transpose(0, 2, 1, 3)
    transformed = (DCT @ blocks @ DCT.T).reshape(rows // vertical, vertical, columns // horizontal, horizontal, 64)
    ordered: Spectrum = transformed.transpose(0, 2, 1, 3, 4).reshape(-1, horizontal * vertical, 64)
    return ordered


def quantised(spectrum: Sequence[Spectrum], frame: Frame) -> NDArray[np.int16]:
    """All blocks in the order of the scan, coefficients in zigzag order: blocks x 64 (T.81 A.3.4, A.3.6).

    Clipped to what baseline can code (T.81 F.1.2.1 and F.1.2.2): 11 bits for a DC difference, 10 for the rest.
    """
    parts = []
    for component, coefficients in enumerate(spectrum):
        steps = frame.quantisers[frame.table_of(component)].astype(np.float32)
        parts.append(np.rint(coefficients * (1 / steps))[..., ZIGZAG])
    blocks = np.concatenate(parts, axis=1).reshape(-1, 64)
    clipped: NDArray[np.int16] = blocks.clip(-1023, 1023).astype(np.int16)
    return clipped

"""Constants of T.81: the zigzag order, the example quantisation tables, and their scaling by quality."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]
"""64 quantiser steps in row-major order."""

SIDE = 8
# T.81 Figure A.6: walks the anti-diagonals, upwards in the even ones.
ZIGZAG = np.array(
    sorted(range(64), key=lambda at: (at // 8 + at % 8, at // 8 if (at // 8 + at % 8) % 2 else at % 8)), np.intp
)

# T.81 Table K.1.
LUMINANCE: Table = np.array(
    [
        16, 11, 10, 16, 24, 40, 51, 61,
        12, 12, 14, 19, 26, 58, 60, 55,
        14, 13, 16, 24, 40, 57, 69, 56,
        14, 17, 22, 29, 51, 87, 80, 62,
        18, 22, 37, 56, 68, 109, 103, 77,
        24, 35, 55, 64, 81, 104, 113, 92,
        49, 64, 78, 87, 103, 121, 120, 101,
        72, 92, 95, 98, 112, 100, 103, 99,
    ],
    np.int64,
)  # fmt: skip

# T.81 Table K.2.
CHROMINANCE: Table = np.array(
    [
        17, 18, 24, 47, 99, 99, 99, 99,
        18, 21, 26, 66, 99, 99, 99, 99,
        24, 26, 56, 99, 99, 99, 99, 99,
        47, 66, 99, 99, 99, 99, 99, 99,
        *[99] * 32,
    ],
    np.int64,
)  # fmt: skip


def scaled(table: Table, quality: int) -> Table:
    """The table that the Independent JPEG Group's encoder takes for a quality of 1 to 100."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((table * scale + 50) // 100).clip(1, 255)

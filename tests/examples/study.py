"""The cases of the example study, with every kind of verdict among them.

The figures belong together: speed-ups follow from the rates, rates from one made-up machine whose disk
delivers about 31 MB/s in random order. They are made up, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.remark import reported
from loaderprobe.records.verdict import Cause, How, Side

BATCH_SIZE = 32
BYTES = {"256x256": 21_000.0, "500x375": 114_000.0, "1024x768": 480_000.0}
CEILING = {"cpu": 62.0, "emulated:mlperf-h100": 1786.0}
DISK_BYTES_PER_S = 31.2e6
NO_TRANSPORT = reported("the ablation of transport was not measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rates of the loader alone, in images/s: all of it, then without storage, then without preprocessing."""

    resolution: str
    workers: int
    compute: str
    loader: tuple[float, float, float]
    side: Side
    cause: Cause
    candidates: tuple[str, ...] = ()
    how: How = "measured"
    drift: float = -0.01

    def end_to_end(self, loader_images_per_s: float) -> float:
        """Images/s with compute: the slower of the two, or one after the other with the serial loader."""
        ceiling = CEILING[self.compute]
        if self.workers:
            return min(loader_images_per_s, ceiling)
        return 1 / (1 / loader_images_per_s + 1 / ceiling)


_H100 = "emulated:mlperf-h100"
CASES = (
    Case(
        resolution="256x256", workers=0, compute="cpu", loader=(420, 450, 1100), side="compute", cause="compute",
    ),
    Case(
        resolution="256x256", workers=2, compute="cpu", loader=(640, 690, 1480), side="compute", cause="compute",
    ),
    Case(
        resolution="500x375", workers=0, compute="cpu", loader=(118, 240, 190), side="compute", cause="compute",
    ),
    Case(
        resolution="500x375", workers=2, compute="cpu", loader=(205, 470, 272), side="compute", cause="compute",
    ),
    Case(
        resolution="1024x768", workers=0, compute="cpu", loader=(32, 70, 52), side="inconclusive", cause="either",
        candidates=("storage", "compute"),
    ),
    Case(
        resolution="1024x768", workers=2, compute="cpu", loader=(64, 180, 65), side="balanced", cause="balanced",
    ),
    Case(
        resolution="256x256", workers=0, compute=_H100, loader=(420, 450, 1100), side="input", cause="preprocessing",
    ),
    Case(
        resolution="256x256", workers=2, compute=_H100, loader=(640, 690, 1480), side="input", cause="cpu",
    ),
    Case(
        resolution="500x375", workers=0, compute=_H100, loader=(118, 240, 190), side="input", cause="storage",
    ),
    Case(
        resolution="500x375", workers=2, compute=_H100, loader=(205, 470, 272), side="input", cause="storage",
        how="estimated",
    ),
    Case(
        resolution="1024x768", workers=0, compute=_H100, loader=(32, 70, 52), side="inconclusive", cause="inconclusive",
        drift=-0.31,
    ),
    Case(
        resolution="1024x768", workers=2, compute=_H100, loader=(64, 180, 65), side="input", cause="storage",
    ),
)  # fmt: skip

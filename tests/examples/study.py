"""The cases of the example study, with every kind of verdict among them.

The figures belong together: gains follow from the rates, rates from one made-up machine whose disk
delivers about 31 MB/s in random order. They are nobody's measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from loaderprobe.records.verdict import Cause, How, Side

BATCH_SIZE = 32
BYTES = {"256x256": 21_000.0, "500x375": 114_000.0, "1024x768": 480_000.0}
CEILING = {"cpu": 62.0, "emulated:mlperf-h100": 1786.0}
DISK_BYTES_PER_S = 31.2e6
NO_TRANSPORT = "transport was not taken away: its mode runs only with --thorough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rates of the loader alone, in images/s: all of it, then without storage, then without preprocessing."""

    resolution: str
    workers: int
    compute: str
    loader: tuple[float, float, float]
    side: Side
    cause: Cause
    sentence: str
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
        sentence="Compute binds: the loader alone makes 420 images/s and the CPU trains 62.",
    ),
    Case(
        resolution="256x256", workers=2, compute="cpu", loader=(640, 690, 1480), side="compute", cause="compute",
        sentence="Compute binds: the loader alone makes 640 images/s and the CPU trains 62.",
    ),
    Case(
        resolution="500x375", workers=0, compute="cpu", loader=(118, 240, 190), side="compute", cause="compute",
        sentence="Compute binds: a faster device would gain up to x2.9, faster storage x1.2.",
    ),
    Case(
        resolution="500x375", workers=2, compute="cpu", loader=(205, 470, 272), side="compute", cause="compute",
        sentence="Compute binds: the loader alone makes 205 images/s and the CPU trains 62.",
    ),
    Case(
        resolution="1024x768", workers=0, compute="cpu", loader=(32, 70, 52), side="inconclusive", cause="either",
        candidates=("storage", "compute"),
        sentence="Either storage or compute binds: without storage training gains x1.56, without compute x1.52, "
        "which is too close to tell apart.",
    ),
    Case(
        resolution="1024x768", workers=2, compute="cpu", loader=(64, 180, 65), side="balanced", cause="balanced",
        sentence="Balanced: taking away any one resource gains less than 5 %.",
    ),
    Case(
        resolution="256x256", workers=0, compute=_H100, loader=(420, 450, 1100), side="input", cause="preprocessing",
        sentence="Input binds, by preprocessing: without decoding and augmenting training gains x2.0.",
    ),
    Case(
        resolution="256x256", workers=2, compute=_H100, loader=(640, 690, 1480), side="input", cause="cpu",
        sentence="Input binds, by the CPU: 1.96 of 2.00 cores are busy with preprocessing, so more workers will "
        "not help.",
    ),
    Case(
        resolution="500x375", workers=0, compute=_H100, loader=(118, 240, 190), side="input", cause="storage",
        sentence="Input binds, by storage: without it training gains x1.9.",
    ),
    Case(
        resolution="500x375", workers=2, compute=_H100, loader=(205, 470, 272), side="input", cause="storage",
        how="estimated", sentence="Input binds, by storage: without it training would gain x2.3 (estimated).",
    ),
    Case(
        resolution="1024x768", workers=0, compute=_H100, loader=(32, 70, 52), side="inconclusive", cause="inconclusive",
        drift=-0.31,
        sentence="Undecided: 21.7 images/s were measured where 31.4 were predicted (-31 %), beyond the interval.",
    ),
    Case(
        resolution="1024x768", workers=2, compute=_H100, loader=(64, 180, 65), side="input", cause="storage",
        sentence="Input binds, by storage: without it training gains x2.8, and the disk delivers 98 % of what it can.",
    ),
)  # fmt: skip

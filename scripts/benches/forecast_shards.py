"""Kind `shards`: what tar shards gain over files of one image, forecast from the files alone, on planted disks.

One sweep a disk has the same images in both layouts; the forecast rests on the files and on their storage.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import loaderprobe
from loaderprobe.render.words import remark_words
from scripts.benches.compared import Compared, Limits
from scripts.benches.harness import LATENCY_S, Progress, photographs, planted, program, ran, wanted

DISKS: dict[str, tuple[str, float, int | None]] = {
    "bytes-128": ("token_bucket", 20e6, 128 << 10),
    "bytes-8192": ("token_bucket", 20e6, 8192 << 10),
    "requests": ("requests", 100.0, 128 << 10),
    "latency": ("latency", LATENCY_S, None),
}
"""Kind, limit, and what is read ahead."""
RESOLUTIONS, IMAGES, LAYOUTS = ("250x188", "500x375"), 1000, ("files", "tar")
SWEEP = (
    "--resolutions", ",".join(RESOLUTIONS), "--images", IMAGES, "--layout", ",".join(LAYOUTS), "--workers", 2,
    "--no-serial", "--rounds", 3, "--compute", "emulated:mlperf-h100", "--batch-size", 16, "--quiet",
)  # fmt: skip
LIMIT_S = 300
LIMITS = Limits(error=0.15, in_range=0.9)


def measure(chosen: argparse.Namespace, out: Path) -> bool:
    names, complete = wanted([*DISKS], chosen.only), True
    with tempfile.TemporaryDirectory(prefix="loaderprobe-shards-") as scratch:
        source, progress = Path(scratch, "source"), Progress(len(names))
        for resolution in RESOLUTIONS:
            for layout in LAYOUTS:
                photographs(source, resolution, IMAGES, layout)
        for name in names:
            kind, limit, ahead = DISKS[name]
            with ExitStack() as undo:
                options = {"keep_cache": True, "read_ahead_bytes": ahead, "size_bytes": 600_000_000}
                disk = planted(undo, name, kind, limit, fill=source, scratch=Path(scratch), **options)
                command = program("sweep", "--data-dir", disk and disk.folder, *SWEEP, "--out", out / name)
                complete &= disk is not None and ran(disk.command(command), name, LIMIT_S, quiet=True)
            progress.done(name)
    return complete


def load(folder: Path, _: argparse.Namespace) -> list[Compared]:
    return [row for name in DISKS if (folder / name / "run.json").exists() for row in _compared(name, folder / name)]


def _compared(name: str, run: Path) -> Iterator[Compared]:
    rows = {row.config.resolution: row for row in loaderprobe.load(run).report().configurations}
    for resolution in RESOLUTIONS:
        files, tar = rows[resolution], rows[f"{resolution} tar"]
        made = next((forecast for forecast in files.forecasts if forecast.changed == "layout"), None)
        if tar.images_per_s is None or files.images_per_s is None:
            continue
        rate = made.images_per_s if made else None
        yield Compared(
            group=f"shards:{name}", name=resolution, measured=tar.images_per_s.value,
            predicted=rate.value if rate else None, low=rate.low if rate else None, high=rate.high if rate else None,
            note=f"files {files.images_per_s.value:.4g}; "
            + (remark_words(made.refused) if made and made.refused else "" if made else "no forecast"),
        )  # fmt: skip

"""The CPU cost of an image with the other decoder, or sent as bytes; measured on the same files."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.utils.data import default_collate

from loaderprobe.errors import BadValue
from loaderprobe.loaders.images import ImageFiles
from loaderprobe.records.config import Decoder, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Alternative
from loaderprobe.records.options import with_options
from loaderprobe.stats import median

Way = Literal["usual", "pillow", "torchvision", "uint8"]
IMAGES = 12
# CPU time for each alternative; large images get fewer tries.
ENOUGH_NS = 250_000_000


def alternatives(config: RunConfig, files: FileSet) -> tuple[Alternative, ...]:
    """CPU time of whole samples, collated, with the alternatives to `config` and with `config` itself, in turn.

    The files are read once before, so that all alternatives find them in the cache. Files that cannot be decoded
    are skipped: the loader reports them.
    """
    other: Decoder = "torchvision" if config.loader.decoder == "pillow" else "pillow"
    ways: dict[Way, RunConfig] = {"usual": config, other: with_options(config, decoder=other)}
    if config.loader.tensor == "float32":
        ways["uint8"] = with_options(config, tensor="uint8")
    made = {name: _maker(way, files) for name, way in ways.items()}
    timed: dict[Way, list[int]] = {name: [] for name in ways}
    for number in range(min(IMAGES, files.count)):
        files.absolute(number, 1)[0].read_bytes()
        try:
            used = {name: _cpu_ns(make, number) for name, make in made.items()}
        except BadValue:
            continue
        for name, cpu_ns in used.items():
            timed[name].append(cpu_ns)
        if sum(timed["usual"]) > ENOUGH_NS and number > 1:
            break
    if not timed["usual"]:
        return ()
    # The first image of each alternative imports what it needs.
    usual_s = median(timed["usual"][1:] or timed["usual"]) / 1e9
    return tuple(
        Alternative(name=name, cpu_s=median(timed[name][1:] or timed[name]) / 1e9, usual_cpu_s=usual_s)
        for name in ways
        if name != "usual"
    )


def _maker(config: RunConfig, files: FileSet) -> Callable[[int], Any]:
    images = ImageFiles(files, config.loader.pipeline, config.loader.decoder, config.loader.tensor)
    return lambda number: default_collate([images[number]])


def _cpu_ns(make: Callable[[int], Any], number: int) -> int:
    """In one thread, as in a worker; every alternative draws the same crop."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(number)
            before = time.thread_time_ns()
            make(number)
            return time.thread_time_ns() - before
    finally:
        torch.set_num_threads(threads)

"""What a sweep of several ranks is asked for: their layouts, and what one rank alone can measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from loaderprobe.api.seats import this_node
from loaderprobe.api.values import listed
from loaderprobe.errors import BadValue
from loaderprobe.measure.seat import check_gpus, parse_layout
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.records.ranks import Layout, Node

# A cold segment reads each file once, so a set must hold its batches, those ahead and those flushed.
COLD_BATCHES = 14
MOST_IMAGES = 20_000
"""Of one rank."""
IN_STEP = ("cuda", "cpu", "emulated")
"""Devices that train in step with others."""
Ranks = str | int | Iterable[int | str] | None
"""As they are asked for: `"1,2,4x8"`, `2`, `[1, "4x8"]`; None for as many as there are processes."""


def layouts_of(ranks: Ranks, nodes: Sequence[Node] | None) -> tuple[Layout, ...]:
    """As asked for; unless asked, all processes that a launcher started as evenly as they are, else one rank."""
    if ranks is not None:
        return listed(ranks, parse_layout)
    each = min(len(node.seats) for node in nodes) if nodes else 1
    count = len(nodes) if nodes else 1
    return (Layout(ranks=count * each, nodes=count),)


def images_of_rank(loader: LoaderSpec, batch_size: int) -> int:
    """That one of several ranks reads in a cold segment; before it, ranks take what is loaded ahead in step."""
    return (COLD_BATCHES + 2 * (loader.batches_ahead + loader.workers) + loader.batches_ahead) * batch_size


def check_alone(ranks: int, epochs: int, loaders: Sequence[LoaderSpec], computes: Sequence[ComputeSpec]) -> None:
    """Raises BadValue for what is measured with one rank only."""
    several = f"--ranks {ranks}"
    if epochs:
        raise BadValue(f"whole epochs are trained by one rank: --epochs and {several}", hint="leave one of them out")
    if any(loader.gpu_decode for loader in loaders):
        raise BadValue(f"one rank alone decodes on its GPU: --gpu-decode and {several}", hint="leave one of them out")
    if other := next((each for each in computes if each.kind not in IN_STEP), None):
        raise BadValue(f"--compute {other.name} does not train in step with other ranks", hint="use cuda or cpu")


def check_devices(
    computes: Iterable[ComputeSpec], ranks: Sequence[tuple[int, int]], nodes: Sequence[Node] | None
) -> None:
    """Raises MissingPart for more ranks on a node than it has GPUs; without nodes, on this one."""
    most = max(count for count, _ in ranks)
    if most > 1:
        there = this_node(most) if nodes is None else nodes
        for compute, (count, over) in product(computes, ranks):
            check_gpus(compute, count, over, there)


def check_images(files: Iterable[FileSet], configs: Iterable[RunConfig]) -> None:
    """Raises BadValue for a data set that is too small to be shared by the ranks of a configuration."""
    sets = {each.fingerprint: each for each in files}
    for config in configs:
        batch, there = config.compute.batch_size, sets[config.data]
        least = min(MOST_IMAGES, images_of_rank(config.loader, batch)) if config.cache == "cold" else batch
        if config.ranks > 1 and there.count < config.ranks * least:
            raise BadValue(
                f"the data set {there.label} has {there.count} images, and {config.title()} needs "
                f"{config.ranks * least}: each rank reads {least} of its own",
                hint="give more images, fewer ranks, or a smaller --batch-size or --workers",
            )

"""The spec of a sweep from its options, what is wrong with it, and the data that its configurations need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any

from loaderprobe.analyze.next_configs import PREFETCH_FACTORS, most_workers
from loaderprobe.api.values import counts, listed, spreads_of
from loaderprobe.datasets.generate.manifest import SetSpec, is_generated
from loaderprobe.datasets.generate.pool import expected_mean
from loaderprobe.datasets.layouts import FILES, LAYOUTS
from loaderprobe.errors import BadValue
from loaderprobe.measure.assembly import check_names, check_parts
from loaderprobe.measure.ranks.launch import check_crowd, check_gpus, this_node
from loaderprobe.measure.studies import batches_read
from loaderprobe.records.config import (
    ANY_LAYOUT,
    NO_SERIAL,
    ONE_LAYOUT,
    Auto,
    ComputeSpec,
    LoaderSpec,
    RunConfig,
    SweepSpec,
)
from loaderprobe.records.files import FileSet, is_url
from loaderprobe.records.options import SWEEP, check, of_python
from loaderprobe.records.rank_processes import Node
from loaderprobe.system.environment import list_gpus, trains_on_amd
from loaderprobe.system.launcher import VISIBLE
from loaderprobe.system.limits import cores_available
from loaderprobe.units import join_words

# A cold segment reads each file once, so a set must hold its batches, those ahead and those flushed.
COLD_BATCHES = 14
MOST_IMAGES = 20_000
"""Of one rank."""
IN_STEP = ("cuda", "cpu", "emulated")
"""Devices that train in step with others."""


def cold_batches(loader: LoaderSpec, ranks: int) -> int:
    """That a rank reads in a cold segment; before it, several take what is loaded ahead in step."""
    return COLD_BATCHES + 2 * (loader.batches_ahead + loader.workers) + loader.batches_ahead * (ranks > 1)


def _check_alone(spec: SweepSpec) -> None:
    """Raises BadValue for what is measured with one rank only."""
    ranks = max(config.ranks for config in spec.configs)
    several = f"--ranks {ranks}"
    if ranks == 1:
        return
    if spec.epochs:
        raise BadValue(f"whole epochs are trained by one rank: --epochs and {several}", hint="leave one of them out")
    if any(config.loader.gpu_decode for config in spec.configs):
        raise BadValue(f"one rank alone decodes on its GPU: --gpu-decode and {several}", hint="leave one of them out")
    if unfit := next((config.compute for config in spec.configs if config.compute.kind not in IN_STEP), None):
        raise BadValue(f"--compute {unfit.name} does not train in step with other ranks", hint="use cuda or cpu")


def check_images(files: Iterable[FileSet], configs: Iterable[RunConfig]) -> None:
    """Raises BadValue for a data set that is too small to be shared by the ranks of a configuration."""
    sets = {file.fingerprint: file for file in files}
    for config in configs:
        batch, there = config.compute.batch_size, sets[config.data]
        least = min(MOST_IMAGES, cold_batches(config.loader, config.ranks) * batch) if config.cache == "cold" else batch
        if config.ranks > 1 and there.count < config.ranks * least:
            raise BadValue(
                f"the data set {there.label} has {there.count} images, and {config.title()} needs "
                f"{config.ranks * least}: each rank reads {least} of its own",
                hint="give more images, fewer ranks, or a smaller --batch-size or --workers",
            )


AUTO = "auto"
FIRST = {"workers": "1", "prefetch_factor": str(PREFETCH_FACTORS[0])}
"""What is measured first with `auto`."""
LEAST_IMAGES = 512


def spec_of(*, command: tuple[str, ...] = (), nodes: Sequence[Node] | None = None, **options: Any) -> SweepSpec:
    """The spec for these options of `sweep`; its configurations have no data yet (`with_data`).

    An option of one value sets the field of its name, wherever that is. `nodes` are those on which a launcher started
    processes; without one, all ranks are on this node. Raises BadValue.
    """
    check(SWEEP, options)
    rows = of_python(SWEEP)
    settings = {**{row.name: row.default for row in rows}, **options}
    chosen: dict[str, bool] = {}
    for name, first in FIRST.items():
        chosen[name], settings[name] = _without_auto(settings[name], first)
    auto = Auto(most_workers=most_workers(cores_available()), **chosen) if any(chosen.values()) else None
    single = {row.name: settings[row.name] for row in rows if not row.several and row.type is not Path}

    def options_of(record: type) -> dict[str, Any]:
        return {field.name: single[field.name] for field in fields(record) if field.name in single}

    numbers = worker_counts(settings["workers"], settings["serial"])
    factors = counts(settings["prefetch_factor"], "--prefetch-factor")
    if 0 in factors:
        raise BadValue("a prefetch factor is 1 or more", hint="--no-serial and --workers choose the loaders")
    if chosen["workers"] and not chosen["prefetch_factor"] and len(factors) > 1:
        raise BadValue("--workers auto searches with one prefetch factor", hint="use --prefetch-factor auto, or one")
    # The serial loader has nothing ahead, and is there once; some libraries have none.
    pairs = dict.fromkeys((count, factor if count else 0) for factor in factors for count in numbers)
    loaders = [
        LoaderSpec(name=name, workers=count, prefetch_factor=factor, **options_of(LoaderSpec))
        for name in listed(settings["loader"], str)
        for count, factor in pairs
        if count or name not in NO_SERIAL
    ]
    if not loaders:
        raise BadValue(f"{join_words(NO_SERIAL)} have no serial loader", hint="name at least one worker count")
    kinds = product(listed(settings["model"], str), compute_names(settings["compute"]))
    of_device = options_of(ComputeSpec)
    computes = [
        ComputeSpec(name=name, model=model, **of_device | {"batch_size": of_device["batch_size"] or usual_batch(name)})
        for model, name in kinds
    ]
    remote = is_url(settings["data"])
    caches = ("as-found",) if remote else listed(settings["cache"], parse_cache)
    if remote and settings["cache"] != "cold":
        raise BadValue("no page cache holds what is behind a URL", hint="leave --cache out, or give a local copy")
    if remote and (settings["layout"] is not None or any(loader.name != "torch" for loader in loaders)):
        raise BadValue("behind a URL, torch's loader reads an image an object", hint="leave out --layout, --loader")
    spreads = spreads_of(settings["ranks"], nodes)
    same = {"rounds": settings["rounds"], "seed": settings["seed"]}
    configs = tuple(
        RunConfig(data="", resolution="", loader=loader, compute=compute, cache=cache, ranks=ranks, nodes=over, **same)
        for (ranks, over), compute, cache, loader in product(spreads, computes, caches, loaders)
    )
    spec = SweepSpec(configs=configs, auto=auto, command=command, **options_of(SweepSpec))
    if spec.epochs and "cold" not in caches:
        hint = "leave --epochs out" if remote else "add cold to --cache, or leave --epochs out"
        raise BadValue("the first of whole epochs is cold", hint=hint)
    _check_alone(spec)
    return spec


def possible(spec: SweepSpec) -> tuple[RunConfig, ...]:
    """The configurations, and beside each the one of the largest loader that may be added."""
    if spec.auto is None:
        return spec.configs
    loaders = [config.loader for config in spec.configs]
    workers = max([spec.auto.most_workers * spec.auto.workers, *(loader.workers for loader in loaders)])
    factors = [loader.prefetch_factor for loader in loaders]
    factor = max([PREFETCH_FACTORS[-1 if spec.auto.prefetch_factor else 0], *factors])
    largest = replace(loaders[0], workers=workers, prefetch_factor=factor if workers else 0)
    return (*spec.configs, *dict.fromkeys(replace(config, loader=largest) for config in spec.configs))


def images_needed(spec: SweepSpec) -> int:
    """Of one set: so many that the largest configuration can read each file once in a segment."""
    configs = possible(spec)
    loaders = dict.fromkeys(config.loader for config in configs)
    most_ranks = max(config.ranks for config in configs)
    of_segments = max(cold_batches(loader, most_ranks) for loader in loaders)
    batches = max(of_segments, _batches_of_full_buffers(spec, loaders))
    batch = max(config.compute.batch_size for config in configs)
    return most_ranks * min(MOST_IMAGES, max(LEAST_IMAGES, batches * batch))


def _batches_of_full_buffers(spec: SweepSpec, loaders: Iterable[LoaderSpec]) -> int:
    """Batches that training from a full buffer reads; 0 where that is not measured."""
    factors = {config.loader.prefetch_factor for config in spec.configs if config.loader.workers}
    if not (spec.thorough or len(factors) > 1):
        return 0
    most = max(loader.workers for loader in loaders)
    return max(batches_read(loader) for loader in loaders if loader.workers == most)


def _without_auto(value: Any, first: str) -> tuple[bool, str]:
    """(whether `auto` is among the values, the others with commas: `first` where it is alone)."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    items = [str(item).strip() for item in given]
    named = ",".join(item for item in items if item != AUTO)
    return AUTO in items, named or (first if set(items) == {AUTO} else "")


def worker_counts(workers: str | int | Iterable[int | str], serial: bool) -> tuple[int, ...]:
    """The counts in the order given; the serial loader, which is 0, first or not at all. Raises BadValue."""
    numbers = tuple(count for count in counts(workers, "--workers") if count)
    if not serial and not numbers:
        raise BadValue(
            "without the serial loader this leaves nothing to measure", hint="name at least one worker count"
        )
    return (0, *numbers) if serial else numbers


def compute_names(compute: str | Iterable[str]) -> tuple[str, ...]:
    """The devices by name; `auto` is CUDA where there is a GPU that is not hidden, else real steps on the CPU."""
    names = listed(compute, str)
    if "auto" in names:
        hidden = os.environ.get(VISIBLE) in ("", "-1")
        usual = "cuda" if not hidden and (list_gpus()[0] or trains_on_amd()) else "cpu"
        names = tuple(dict.fromkeys(usual if name == "auto" else name for name in names))
    return names


def usual_batch(compute: str) -> int:
    """As many images as keep the device busy."""
    return {"cuda": 256, "cpu": 4}.get(compute.partition(":")[0], 32)


def parse_cache(text: str) -> Any:
    """A state of the page cache that a sweep can bring about. Raises BadValue."""
    if text not in ("cold", "warm"):
        raise BadValue(f"'{text}' is not a state of the cache", hint="use cold, warm, or cold,warm")
    return text


def check_spec(spec: SweepSpec, nodes: Sequence[Node] | None = None) -> None:
    """Raise what is wrong with it, as far as that is known without its data; names before torch is imported.

    `nodes` as of `spec_of`.
    """
    parts = dict.fromkeys((config.loader, config.compute) for config in spec.configs)
    for loader, compute in parts:
        check_names(loader, compute)
    most_ranks = max(config.ranks for config in spec.configs)
    there = this_node(most_ranks) if nodes is None and most_ranks > 1 else nodes or ()
    for config in spec.configs:
        check_gpus(config, there)
    if nodes is None:
        check_crowd(most_ranks)
    for loader, compute in parts:
        check_parts(loader, compute)


def check_layouts(spec: SweepSpec, layouts: Iterable[str]) -> None:
    """Raises BadValue for a layout that a loader does not read, and where whole epochs are trained over large files."""
    for layout, name in product(layouts, dict.fromkeys(config.loader.name for config in spec.configs)):
        noun = LAYOUTS[layout].noun if layout in LAYOUTS else "files of one image"
        instead = f"leave the layout {layout} out"
        if spec.epochs and layout != FILES:
            raise BadValue(f"whole epochs are trained over files: --epochs and {noun}", hint=f"{instead}, or --epochs")
        reads = layout if name in ANY_LAYOUT else ONE_LAYOUT.get(name, FILES)
        if reads != layout:
            hint = f"use --layout {reads}, or --loader torch" if reads != FILES else f"{instead}, or use --loader torch"
            raise BadValue(f"the loader {name} does not read {noun}", hint=hint)


def bytes_to_make(specs: Iterable[SetSpec], data_dir: Path, count: int) -> float:
    """Bytes, about, of those data sets of so many images that are not there."""
    return sum(count * expected_mean(spec) for spec in specs if not is_generated(spec.directory(data_dir)))


def with_data(spec: SweepSpec, files: Sequence[FileSet]) -> SweepSpec:
    """The spec for each of these data sets. Raises BadValue for one that does not go with it."""

    def on_files(configs: Iterable[RunConfig]) -> tuple[RunConfig, ...]:
        alike = groupby(configs, key=lambda config: (config.ranks, config.nodes, config.compute, config.cache))
        return tuple(
            replace(
                config,
                data=file_set.fingerprint,
                resolution=file_set.label,
                layout=file_set.layout,
                cache="cold" if config.cache == "as-found" and not file_set.remote else config.cache,
            )
            for group in (list(group) for _, group in alike)
            for file_set in files
            for config in group
        )

    check_layouts(spec, (file_set.layout for file_set in files))
    check_images(files, on_files(possible(spec)))
    return replace(spec, configs=on_files(spec.configs))

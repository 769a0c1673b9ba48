"""What a sweep is asked for, and the run directory that is made of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from loaderprobe.analyze.knee import PREFETCH_FACTORS, most_workers
from loaderprobe.api.generate import make_sets
from loaderprobe.api.shown import usual_out
from loaderprobe.api.values import counts, listed
from loaderprobe.datasets.folder import check_folder, generated_set
from loaderprobe.datasets.generate.generate import SetRequest
from loaderprobe.datasets.generate.manifest import is_generated
from loaderprobe.datasets.generate.pool import expected_mean
from loaderprobe.errors import BadValue
from loaderprobe.measure.assembly import check_names, check_parts
from loaderprobe.measure.image_data import image_sets
from loaderprobe.measure.ranks.launch import Lead, check_crowd, check_gpus, parse_layout, spread, this_node
from loaderprobe.measure.studies import batches_read
from loaderprobe.protocols import OnStage
from loaderprobe.records.config import Auto, CacheState, ComputeSpec, LoaderSpec, RunConfig, SweepSpec
from loaderprobe.records.files import FileSet
from loaderprobe.records.options import SWEEP, check, of_python
from loaderprobe.records.ranks import Layout, Node
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.system.environment import describe_environment, list_gpus
from loaderprobe.system.host import utc_timestamp
from loaderprobe.system.limits import cores_available
from loaderprobe.units import Resolution, format_resolution, parse_resolution

# What a sweep of several ranks is asked for: their layouts, and what one rank alone can measure.

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
    if other := next((compute for compute in computes if compute.kind not in IN_STEP), None):
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
    sets = {file.fingerprint: file for file in files}
    for config in configs:
        batch, there = config.compute.batch_size, sets[config.data]
        least = min(MOST_IMAGES, images_of_rank(config.loader, batch)) if config.cache == "cold" else batch
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
DEFAULT_BATCH_SIZE = {"cuda": 256, "cpu": 4}
USUAL_BATCH_SIZE = 32


def check_seconds(name: str, seconds: float | None) -> None:
    """Raises BadValue for what is no time that anything can take."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise BadValue(f"the {name} must be a number of seconds above 0, not {seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What a sweep is asked for: its axes and its data."""

    data: Path | None
    """A folder of images; None generates the data sets under `data_dir`."""
    data_dir: Path
    out: Path
    resolutions: tuple[Resolution, ...]
    loaders: tuple[LoaderSpec, ...]
    """With `auto` of the spec, those that are measured first."""
    computes: tuple[ComputeSpec, ...]
    caches: tuple[CacheState, ...] = ("cold",)
    ranks: tuple[tuple[int, int], ...] = ((1, 1),)
    """(ranks, nodes)."""
    rounds: int = 3
    images: int | None = None
    """Of each data set; None for as many as the configurations need."""
    seed: int = 0
    spec: SweepSpec = field(default=SweepSpec(configs=()))
    """What holds for all configurations, which are made once the data are there."""

    def __post_init__(self) -> None:
        for name, seconds in (("budget", self.spec.budget_s), ("time limit", self.spec.time_limit_s)):
            check_seconds(name, seconds)
        if self.spec.epochs and "cold" not in self.caches:
            raise BadValue("the first of whole epochs is cold", hint="add cold to --cache, or leave --epochs out")
        if self.most_ranks > 1:
            check_alone(self.most_ranks, self.spec.epochs, self.loaders, self.computes)

    @property
    def most_ranks(self) -> int:
        return max(ranks for ranks, _ in self.ranks)

    @property
    def possible(self) -> tuple[LoaderSpec, ...]:
        """The loaders, and the largest that may be added to them."""
        auto = self.spec.auto
        if auto is None:
            return self.loaders
        workers = max([auto.most_workers * auto.workers, *(loader.workers for loader in self.loaders)])
        factors = [loader.prefetch_factor for loader in self.loaders]
        factor = max([PREFETCH_FACTORS[-1 if auto.prefetch_factor else 0], *factors])
        return (*self.loaders, replace(self.loaders[0], workers=workers, prefetch_factor=factor if workers else 0))

    @property
    def images_needed(self) -> int:
        """Images of one set: as asked, or what lets the largest configuration read each file once in a segment."""
        if self.images is not None:
            return self.images
        ahead = max(2 * (loader.batches_ahead + loader.workers) for loader in self.possible)
        batch = max(compute.batch_size for compute in self.computes)
        batches = max(COLD_BATCHES + ahead, self._batches_of_full_buffers)
        if self.most_ranks > 1:
            batches = max(batches, *(images_of_rank(loader, 1) for loader in self.possible))
        return self.most_ranks * min(MOST_IMAGES, max(LEAST_IMAGES, batches * batch))

    @property
    def _batches_of_full_buffers(self) -> int:
        """Batches that training from a full buffer reads; 0 where that is not measured."""
        if not (self.spec.thorough or len({loader.prefetch_factor for loader in self.loaders if loader.workers}) > 1):
            return 0
        most = max(loader.workers for loader in self.possible)
        return max(batches_read(loader) for loader in self.possible if loader.workers == most)


def request_of(*, command: tuple[str, ...] = (), nodes: Sequence[Node] | None = None, **options: Any) -> SweepRequest:
    """The request for these options of `sweep`. An option of one value sets the field of its name, wherever that is.

    `nodes` are those on which a launcher started processes; without one, all ranks are on this node. Raises BadValue.
    """
    check(SWEEP, options)
    rows = of_python(SWEEP)
    asked = {**{row.name: row.default for row in rows}, **options}
    chosen: dict[str, bool] = {}
    for name, first in FIRST.items():
        chosen[name], asked[name] = _without_auto(asked[name], first)
    auto = Auto(most_workers=most_workers(cores_available()), **chosen) if any(chosen.values()) else None
    single = {row.name: asked[row.name] for row in rows if not row.several and row.type is not Path}

    def own(record: type) -> dict[str, Any]:
        return {each.name: single[each.name] for each in fields(record) if each.name in single}

    return SweepRequest(
        data=None if asked["data"] is None else Path(asked["data"]),
        data_dir=Path(asked["data_dir"]),
        out=usual_out() if asked["out"] is None else Path(asked["out"]),
        resolutions=listed(asked["resolutions"], parse_resolution),
        loaders=loader_specs(
            worker_counts(asked["workers"], asked["serial"]),
            prefetch_factor=prefetch_factors(asked["prefetch_factor"]),
            name=asked["loader"],
            **own(LoaderSpec),
        ),
        computes=compute_specs(compute_names(asked["compute"]), listed(asked["model"], str), **own(ComputeSpec)),
        caches=listed(asked["cache"], parse_cache),
        ranks=tuple(dict.fromkeys(spread(layout, nodes) for layout in layouts_of(asked["ranks"], nodes))),
        spec=SweepSpec(configs=(), auto=auto, command=command, **own(SweepSpec)),
        **own(SweepRequest),
    )


def _without_auto(value: Any, first: str) -> tuple[bool, str]:
    """(whether `auto` is among the values, the others with commas: `first` where it is alone)."""
    given = value.split(",") if isinstance(value, str) else value if isinstance(value, Iterable) else [value]
    items = [str(item).strip() for item in given]
    named = ",".join(item for item in items if item != AUTO)
    return AUTO in items, named or (first if set(items) == {AUTO} else "")


def worker_counts(workers: str | int | Iterable[int | str], serial: bool) -> tuple[int, ...]:
    """The counts in the order given; the serial loader, which is 0, first or not at all. Raises BadValue."""
    some = tuple(count for count in counts(workers, "--workers") if count)
    if not serial and not some:
        raise BadValue(
            "without the serial loader this leaves nothing to measure", hint="name at least one worker count"
        )
    return (0, *some) if serial else some


def compute_names(compute: str | Iterable[str]) -> tuple[str, ...]:
    """The devices by name; `auto` is CUDA where there is a GPU, else real steps on the CPU."""
    names = listed(compute, str)
    if "auto" in names:
        usual = "cuda" if list_gpus()[0] else "cpu"
        names = tuple(dict.fromkeys(usual if name == "auto" else name for name in names))
    return names


def loader_specs(
    counts: Iterable[int], *, prefetch_factor: int | Iterable[int], **options: Any
) -> tuple[LoaderSpec, ...]:
    """One for each prefetch factor and worker count; `options` are fields of `LoaderSpec`.

    The serial loader has nothing ahead, and is there once.
    """
    factors = [prefetch_factor] if isinstance(prefetch_factor, int) else prefetch_factor
    some = tuple(counts)
    pairs = dict.fromkeys((count, factor if count else 0) for factor in factors for count in some)
    return tuple(LoaderSpec(workers=count, prefetch_factor=factor, **options) for count, factor in pairs)


def prefetch_factors(value: str | int | Iterable[int | str]) -> tuple[int, ...]:
    """The factors in the order given. Raises BadValue for 0, with which workers would make nothing."""
    found = counts(value, "--prefetch-factor")
    if 0 in found:
        raise BadValue("a prefetch factor is 1 or more", hint="--no-serial and --workers choose the loaders")
    return found


def compute_specs(
    names: Iterable[str], models: Iterable[str], *, batch_size: int | None, **options: Any
) -> tuple[ComputeSpec, ...]:
    """One for each model and device; without a batch size, as many images as keep the device busy."""
    return tuple(
        ComputeSpec(
            name=name,
            batch_size=batch_size or DEFAULT_BATCH_SIZE.get(name.partition(":")[0], USUAL_BATCH_SIZE),
            model=model,
            **options,
        )
        for model, name in product(models, names)
    )


def parse_cache(text: str) -> Any:
    """A state of the page cache that a sweep can bring about. Raises BadValue."""
    if text not in ("cold", "warm"):
        raise BadValue(f"'{text}' is not a state of the cache", hint="use cold, warm, or cold,warm")
    return text


def data_to_make(request: SweepRequest) -> float:
    """Bytes, about, of the data sets that a sweep would generate; 0 when it generates none."""
    if request.data is not None:
        return 0.0
    missing = [
        SetRequest(resolution=resolution, seed=request.seed).pool()
        for resolution in request.resolutions
        if not is_generated(request.data_dir / format_resolution(resolution))
    ]
    return sum(request.images_needed * expected_mean(pool) for pool in missing)


def check_request(request: SweepRequest, nodes: Sequence[Node] | None = None) -> None:
    """Raise what is wrong with a request, as far as that is known without its data: names and paths before torch.

    `nodes` as of `request_of`.
    """
    parts = [(loader, compute) for compute in request.computes for loader in request.loaders]
    for loader, compute in parts:
        check_names(loader, compute)
    if request.data is not None:
        check_folder(request.data)
    RunDirectory.check_new(request.out)
    check_devices(request.computes, request.ranks, nodes)
    if nodes is None:
        check_crowd(request.most_ranks, cores_available())
    for loader, compute in parts:
        check_parts(loader, compute)


def start_sweep(request: SweepRequest, *, processes: int, on_data: OnStage, lead: Lead | None = None) -> RunDirectory:
    """Prepare the data of a checked request and make the run directory. `lead` has the processes of a launcher."""
    files = _file_sets(request, processes, on_data)
    possible = tuple(
        RunConfig(
            data=file_set.fingerprint,
            resolution=file_set.label,
            loader=loader,
            compute=compute,
            cache=cache,
            rounds=request.rounds,
            seed=request.seed,
            ranks=ranks,
            nodes=over,
        )
        for ranks, over in request.ranks
        for compute in request.computes
        for cache in request.caches
        for file_set in files
        for loader in request.possible
    )
    check_images(files, possible)
    configs = tuple(config for config in possible if config.loader in request.loaders)
    if lead:
        lead.admit(configs, files)
    record = RunRecord(
        created_utc=utc_timestamp(),
        spec=replace(request.spec, configs=configs),
        environment=describe_environment([Path(file_set.root) for file_set in files]),
    )
    return RunDirectory.create(request.out, record, files)


def _file_sets(request: SweepRequest, processes: int, on_data: OnStage) -> list[FileSet]:
    if request.data is not None:
        return image_sets(request.data, sample=request.images_needed, seed=request.seed, progress=on_data)
    made = make_sets(
        request.data_dir,
        [SetRequest(resolution=resolution, seed=request.seed) for resolution in request.resolutions],
        count=request.images_needed,
        processes=processes,
        progress=on_data,
    )
    return [generated_set(path, sample=request.images_needed, seed=request.seed) for path in made]

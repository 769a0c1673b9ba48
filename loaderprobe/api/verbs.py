"""The verbs: sweep, report, bandwidth, doctor. The only place that knows both measuring and analysing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.analyze.report import build_report
from loaderprobe.api.ceilings import Ceilings
from loaderprobe.api.data import OnData, generate
from loaderprobe.api.stored import beside_results
from loaderprobe.compute.emulated import ACCELERATORS
from loaderprobe.datasets.generate.manifest import is_generated
from loaderprobe.datasets.generate.pool import expected_mean
from loaderprobe.datasets.generate.request import SetRequest
from loaderprobe.datasets.scan.folder import generated_set, scan_folder
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.capabilities import capabilities
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.forkserver import ForkServer
from loaderprobe.measure.options import check_options
from loaderprobe.measure.order import Order
from loaderprobe.measure.plan import Plan, plan_sweep
from loaderprobe.measure.runner import run_configuration
from loaderprobe.measure.sweep import OnProgress, pending
from loaderprobe.measure.sweep import sweep as run_sweep
from loaderprobe.plugins import resolve, split_name
from loaderprobe.protocols import Clock
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.config import CacheState, ComputeSpec, FileSet, LoaderSpec, RunConfig, SweepSpec
from loaderprobe.records.environment import Capability
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.report import Report
from loaderprobe.render.html import HtmlReport
from loaderprobe.render.json import summary_json
from loaderprobe.storage.probe import OnLeg, ProbeRequest, probe_bandwidth
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.system.environment import describe_environment, list_gpus
from loaderprobe.system.pagecache import LinuxPageCache, drop_all_caches
from loaderprobe.units import Resolution, format_resolution

# A cold segment reads each file once, so a set must hold its batches, those ahead and those flushed.
COLD_BATCHES = 14
LEAST_IMAGES = 512
MOST_IMAGES = 20_000
DEFAULT_BATCH_SIZE = {"cuda": 256, "cpu": 4}
USUAL_BATCH_SIZE = 32
# The device of AMD's driver: torch names such GPUs cuda, too, and NVML does not know them.
ROCM = Path("/dev/kfd")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What a sweep is asked for: its axes, its data, its limits."""

    data: Path | None
    """A folder of images; None generates the data sets under `data_dir`."""
    data_dir: Path
    out: Path
    resolutions: tuple[Resolution, ...]
    loaders: tuple[LoaderSpec, ...]
    computes: tuple[ComputeSpec, ...]
    caches: tuple[CacheState, ...] = ("cold",)
    rounds: int = 3
    thorough: bool = False
    """Every mode for every configuration; otherwise the costly ones only where the verdict is open."""
    seed: int = 0
    budget_s: float | None = None
    time_limit_s: float = 600.0
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, seconds in (("budget", self.budget_s), ("time limit", self.time_limit_s)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise BadValue(f"the {name} must be a number of seconds above 0, not {seconds:g}")

    @property
    def images_needed(self) -> int:
        """Images of one set that let the largest configuration read each file once in a segment."""
        ahead = max(2 * (loader.batches_ahead + loader.workers) for loader in self.loaders)
        batch = max(compute.batch_size for compute in self.computes)
        return min(MOST_IMAGES, max(LEAST_IMAGES, (COLD_BATCHES + ahead) * batch))


def usual_batch_size(compute: str) -> int:
    """Images a batch where none are asked for: as many as keep this device busy."""
    return DEFAULT_BATCH_SIZE.get(split_name(compute)[0], USUAL_BATCH_SIZE)


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


def start_sweep(request: SweepRequest, *, processes: int, on_data: OnData) -> RunDirectory:
    """Check every name, prepare the data and make the run directory."""
    for compute in request.computes:
        for loader in request.loaders:
            check_options(loader, compute)
        _check_compute(compute.name)
    for name in dict.fromkeys(loader.name for loader in request.loaders):
        resolve("loader", name)
    files = _file_sets(request, processes, on_data)
    configs = tuple(
        RunConfig(
            data=file_set.fingerprint,
            resolution=file_set.label,
            loader=loader,
            compute=compute,
            cache=cache,
            rounds=request.rounds,
            seed=request.seed,
        )
        for compute in request.computes
        for cache in request.caches
        for file_set in files
        for loader in request.loaders
    )
    spec = SweepSpec(
        configs=configs,
        budget_s=request.budget_s,
        time_limit_s=request.time_limit_s,
        thorough=request.thorough,
        command=request.command,
    )
    record = RunRecord(
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        spec=spec,
        environment=describe_environment([Path(file_set.root) for file_set in files]),
    )
    return RunDirectory.create(request.out, record, files)


def _check_compute(compute: str) -> None:
    """Raise now what would otherwise fail every configuration. A GPU is used only in the child."""
    name, argument = split_name(compute)
    made = resolve("compute", name)
    if name.startswith("emulated"):
        made(argument, SystemClock())
    if name == "cuda" and not ROCM.exists() and not (found := list_gpus())[0]:
        raise MissingPart(
            f"there is no GPU to train on: {found[1]}",
            hint="run `loaderprobe doctor`; or use --compute cpu, or --compute emulated:mlperf-h100",
        )


def _file_sets(request: SweepRequest, processes: int, on_data: OnData) -> list[FileSet]:
    if request.data is not None and is_generated(request.data):
        return [generated_set(request.data, sample=request.images_needed, seed=request.seed)]
    if request.data is not None:
        return [
            scan_folder(
                request.data,
                sample=request.images_needed,
                seed=request.seed,
                progress=lambda done, total: on_data("checking the images", done, total),
            )
        ]
    made = generate(
        request.data_dir,
        [SetRequest(resolution=resolution, seed=request.seed) for resolution in request.resolutions],
        count=request.images_needed,
        processes=processes,
        progress=on_data,
    )
    return [generated_set(path, sample=request.images_needed, seed=request.seed) for path in made]


def plan(run: RunDirectory) -> Plan:
    """What a sweep of the run would measure now, and how long that takes."""
    return plan_sweep(run.record.spec, pending(run))


def sweep(run: RunDirectory, on_progress: OnProgress) -> None:
    """Measure what is pending in the run; KeyboardInterrupt keeps what is done. Raises Locked."""

    ceilings, clock = Ceilings(run=run), SystemClock()
    begin_ns = clock.now_ns()

    def run_one(order: Order, *, clock: Clock, **options: Any) -> Measurement | RunFailure:
        result = run_configuration(order, clock=clock, start=nursery.start, **options)
        if isinstance(result, Measurement):
            # Kept before anything else can be interrupted.
            run.save(result)
            ceilings.after(order, result)
        return result

    with run.lock(), ForkServer() as nursery:
        run_sweep(run, clock=clock, on_progress=on_progress, run_one=run_one)
        budget_s, spent_s = run.record.spec.budget_s, (clock.now_ns() - begin_ns) / 1e9
        ceilings.name_kinds(None if budget_s is None else budget_s - spent_s)


def report(run: RunDirectory) -> Report:
    """Judge a stored run. Measures nothing and needs no torch."""
    spec = run.record.spec
    fingerprints = dict.fromkeys(config.data for config in spec.configs)
    if not fingerprints:
        raise BadValue(f"{run.path} holds no configuration")
    beside = beside_results(run, tuple(fingerprints))
    return build_report(
        name=run.path.resolve().name,
        created_utc=run.record.created_utc,
        command=" ".join(spec.command),
        environment=run.record.environment,
        files=beside.files,
        results=[(config, run.result(config.key)) for config in spec.configs],
        ceilings=beside.ceilings,
        accelerators={name: each.images_per_s for name, each in ACCELERATORS.items()},
        damaged=beside.damaged,
    )


def save_report(run: RunDirectory, shown: Report) -> Path:
    """Write `summary.json` and `report.html` into the run; returns the page's path."""
    run.write("summary.json", summary_json(shown))
    return run.write("report.html", HtmlReport().render(shown))


def bandwidth(request: ProbeRequest, *, drop_caches: bool, on_leg: OnLeg) -> BandwidthReport:
    """What the storage under a path delivers to readers of whole files, what limits it, and what it feeds.

    `drop_caches` empties all caches of the machine before each reading, where this user may. Raises what
    `storage.probe.probe_bandwidth` raises, and MissingPart where the caches may not be dropped.
    """
    if drop_caches:
        request = replace(request, drop_all=drop_all_caches)
    measured = probe_bandwidth(request, cache=LinuxPageCache(), on_leg=on_leg)
    return judge_bandwidth(measured, {name: each.images_per_s for name, each in ACCELERATORS.items()})


def doctor(path: Path) -> tuple[Capability, ...]:
    """What can be measured here, for data under `path`."""
    return capabilities(path)

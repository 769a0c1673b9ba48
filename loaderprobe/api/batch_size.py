"""`batch-size`: the batch size with which a model trains fastest, on a copy of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderprobe.analyze.batch_size import (
    MOST,
    MOST_OF_PAPER,
    PAPER_FIRST_SIZE,
    UPDATES,
    PaperStrategy,
    Throughput,
    limit_at,
    together,
)
from loaderprobe.api.diagnose import diagnose
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.sweep_spec import compute_names
from loaderprobe.api.values import IMAGENET_IMAGES, no_progress
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.image_data import image_files, loader_of_images
from loaderprobe.policy import Ask, Policy, follow
from loaderprobe.protocols import Clock, OnStage
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport, BatchSizeStop, StrategyName
from loaderprobe.records.measurement import Missing
from loaderprobe.records.options import BATCH_SIZES, check
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.verdict import Bound
from loaderprobe.render.batch_size import batch_size_columns, batch_size_document
from loaderprobe.render.words import remark_words
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import PERIOD_S, CoresSampler, SamplerThread
from loaderprobe.system.host import SystemClock
from loaderprobe.system.limits import cores_available, memory_left_bytes
from loaderprobe.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from loaderprobe.compute.batch_size import TorchProber

MEMORY_SHARE = 0.7
"""Of the memory that is available, for training on the CPU."""
SAMPLE = 2000
"""Images of a folder that take part; they come round again."""


Probe = Callable[[int], BatchSizeProbe]
"""Trains a copy of a model some steps with batches of a size; where memory ends, a probe that does not fit. Raises
BadValue when the model fails."""


def search(
    strategy: Policy[int, BatchSizeProbe, BatchSizeStop], probe: Probe, *, clock: Clock,
    progress: OnStage = lambda *_: None,
) -> tuple[tuple[BatchSizeProbe, ...], BatchSizeStop]:  # fmt: skip
    """All probes in order, and the end of the search. Ctrl-C ends it: the fastest so far is chosen, and no answer."""

    def measure(ask: Ask[int]) -> BatchSizeProbe:
        progress("batch sizes tried", round(ask.done), round(ask.total))
        return probe(ask.what)

    tried, stop = follow(strategy, measure, clock=clock, enough=lambda done: any(probe.images_per_s for probe in done))
    probes = tuple(tried)
    if stop is not None:
        return probes, stop
    fastest = max(probes, key=lambda probe: probe.images_per_s.value if probe.images_per_s else 0.0)
    return probes, BatchSizeStop(code="interrupted", chosen=fastest.batch_size)


ONE_S = 1.0
"""The paper's period."""


class Meter(SamplerThread):
    """One thread that reads the utilization while it is entered: of the GPU of this `uuid`; None: the CPU's cores."""

    def __init__(self, clock: Clock, uuid: str | None, period_s: float) -> None:
        self._name = "own_cpu" if uuid is None else "gpu_utilization"
        self._cores = CoresSampler(clock, cores_available()) if uuid is None else None
        super().__init__([self._cores or NvmlSampler(clock, uuid)], period_s)

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._cores is not None:
            # What a probe that is shorter than the period used.
            self._cores.sample()

    def readings(self) -> tuple[float, ...] | Missing:
        """Shares, 0 to 1, in the order of time; or why there are none."""
        series, missing = self.collected()
        values = next((sampled.values for sampled in series if sampled.name == self._name), ())
        why = next((lack for lack in missing if lack.name == self._name), None)
        return values or why or Missing(name=self._name, reason=Remark(code="not_read"))


def with_readings(probe: Probe) -> Probe:
    """For a strategy that cannot do without utilization: it raises MissingPart where that is not read."""

    def checked(batch_size: int) -> BatchSizeProbe:
        probed = probe(batch_size)
        if probed.fits and probed.utilization is None:
            why = probed.unavailable.get("utilization")
            reason = f": {remark_words(why)}" if why else ""
            raise MissingPart(
                f"gpu-usage needs the utilization of the device{reason}", hint="use --strategy throughput"
            )
        return probed

    return checked


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BatchSize(Documented, BatchSizeReport):
    """The batch size to use, why, and every probe. Shows itself."""

    table_name = "probes.csv"
    document = batch_size_document
    columns = batch_size_columns


def batch_size(
    model: Any,
    batch: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    strategy: StrategyName = "throughput",
    most: int | None = None,
    memory: str | int | None = None,
    iterations: int | None = None,
    images: int = IMAGENET_IMAGES,
    precision: str = "fp32",
    progress: OnStage = no_progress,
    name: str = "",
    command: str = "loaderprobe.batch_size(...)",
) -> BatchSize:
    """Find the batch size for training `model`, a `torch.nn.Module`, on the device of its weights.

    A copy is trained: the weights stay as they are. `batch` is an example, (inputs, targets) or inputs alone; inputs
    that are a dict are given by name. Batches of other sizes repeat its samples. It may be a function of the batch
    size, too, which returns a batch or a loader of batches; then input counts, and `loaderprobe.diagnose` says what
    limits at the chosen size. `loss(given, batch)` is as in `loaderprobe.layers`.

    `strategy` is `throughput`, or `gpu-usage` or `epoch-time` of the paper by Serizawa and Tatebe. `most` is the
    largest size (1,024; 256 in the paper). `memory` is what training may take: all of a GPU, or on the CPU 70 % of
    what is available. `iterations` are the steps of a probe: as many as take 2 s, or the paper's 1,000. `images` is
    the size of the data set, for epoch times. `precision` bf16 trains under autocast, as auto does on a
    GPU but for the paper's strategies.

    Raises BadValue for what cannot be trained, saying in which part of the step, and where not one image fits.
    """
    check(BATCH_SIZES, {"strategy": strategy, "most": most, "iterations": iterations, "precision": precision})
    from loaderprobe.compute.batch_size import repeated
    from loaderprobe.compute.trainer import device_words, is_loader

    if precision == "auto" and strategy != "throughput":
        precision = "fp32"  # as in the paper
    if is_loader(batch):
        raise BadValue(
            "a loader has one batch size", hint="give a function of the batch size that makes a loader, or one batch"
        )
    if not callable(batch):
        repeated(batch, 1)
    batches: Callable[[int], Any] = batch if callable(batch) else lambda size: repeated(batch, size)
    largest = most or (MOST if strategy == "throughput" else MOST_OF_PAPER)
    prober, limit = _prober(model, batches, loss, strategy, memory, iterations, precision)
    probe = with_readings(prober.probe) if strategy == "gpu-usage" else prober.probe
    policy: Policy[int, BatchSizeProbe, BatchSizeStop] = Throughput(most=largest)
    if strategy != "throughput":
        policy = PaperStrategy(name=strategy, images=images, first=min(PAPER_FIRST_SIZE, largest), most=largest)
    probes, stop = search(policy, probe, clock=SystemClock(), progress=progress)
    if not stop.chosen:
        at = f" into {format_bytes(limit)}" if limit else ""
        raise BadValue(
            f"not even a batch of {min(probe.batch_size for probe in probes)} fits{at}",
            hint="use a smaller model or smaller images, or give more with --memory",
        )
    tried = [probe for probe in probes if probe.batch_size == stop.chosen and probe.fits]
    if not tried:  # a rule of the paper ended at a size that it had not tried
        progress("the chosen size", 0, 1)
    loaded = is_loader(batches(stop.chosen))
    findings, why = _judged(prober, batches, stop, progress) if loaded else (None, None)
    return BatchSize(
        origin=origin_now(command),
        model=name or type(model).__name__,
        device=device_words(prober.device),
        image_size=None,
        precision=prober.precision,
        strategy=strategy,
        data="loader" if loaded else "",
        workers=None,
        dataset_images=images,
        most=largest,
        memory_limit_bytes=limit,
        utilization_of="gpu" if prober.device.type == "cuda" else "cores",
        probes=probes,
        stop=stop,
        at_chosen=together(tried) if tried else prober.probe(stop.chosen),
        limit=limit_at(stop.chosen, probes, most=largest, loaded=loaded),
        findings=findings,
        no_findings=why,
    )


def _prober(
    model: Any, batches: Callable[[int], Any], loss: Callable[[Any, Any], Any] | None, strategy: StrategyName,
    memory: str | int | None, iterations: int | None, precision: str,
) -> tuple[TorchProber, int | None]:  # fmt: skip
    """What makes the probes, and its memory limit in bytes. Raises MissingPart for the paper's length without a GPU."""
    from loaderprobe.compute.batch_size import TorchProber, gpu_of
    from loaderprobe.compute.trainer import usual_loss

    clock, uuid, ours = SystemClock(), gpu_of(model), strategy == "throughput"
    if not ours and iterations is None and uuid is None:
        raise MissingPart(
            f"the loops of {strategy} have 1,000 updates each, which take days without a GPU",
            hint="use a machine with a GPU, or shorter loops: --iterations 20",
        )
    limit = parse_bytes(str(memory)) if memory is not None else None
    if limit is None and uuid is None:
        limit = round(MEMORY_SHARE * (memory_left_bytes() or 0)) or None
    prober = TorchProber(
        model,
        batches,
        loss=loss or usual_loss,
        clock=clock,
        meter=lambda: Meter(clock, uuid, PERIOD_S if ours else ONE_S),
        steps=iterations or (None if ours else UPDATES),
        memory_limit=limit,
        precision=precision,
    )
    return prober, limit


def _judged(
    prober: TorchProber, batches: Callable[[int], Any], stop: BatchSizeStop, progress: OnStage
) -> tuple[Bound | None, Remark | None]:
    """What limits a loader of the chosen size, or why that is not known: Ctrl-C ends this, too."""
    if stop.interrupted:
        return None, Remark(code="interrupted")
    try:
        return diagnose(batches(stop.chosen), prober.step, progress=progress).bound, None
    except KeyboardInterrupt:
        return None, Remark(code="interrupted")
    except LoaderprobeError as error:
        return None, reported(error.message)


def named_batch_size(
    model: str, data: Path | None = None, *, workers: int = 0, device: str = "auto", image_size: int = 224,
    precision: str = "auto", strategy: StrategyName = "throughput", most: int | None = None,
    memory: str | None = None, iterations: int | None = None, progress: OnStage = no_progress, command: str = "",
) -> BatchSize:  # fmt: skip
    """The batch size for a model by name, on images of `data`, else on random ones in memory.

    Raises BadValue for an unknown name or a model that cannot be trained, MissingPart for one that cannot be imported
    or a GPU that is not there.
    """
    from loaderprobe.compute.trainer import model_on, random_images
    from loaderprobe.plugins import resolve

    (chosen,) = compute_names(device)
    make_model = resolve("model", model)
    files = None if data is None else image_files(data, sample=SAMPLE, progress=progress)

    def batches(size: int) -> Any:
        if files is None:
            return random_images(size, image_size)
        return loader_of_images(files, batch_size=size, workers=workers, device=chosen)

    answer = batch_size(
        model_on(chosen, model, make_model), batches, strategy=strategy, most=most, memory=memory,
        iterations=iterations, images=files.images_found if files else IMAGENET_IMAGES, precision=precision,
        progress=progress, name=model,
    )  # fmt: skip
    origin = origin_now(command, *([data] if data else []))
    answer = replace(answer, origin=origin, image_size=image_size)
    return replace(answer, data=str(data), workers=workers) if data else answer

"""`batch-size`: the batch size with which a model trains fastest, on a copy of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loaderprobe.analyze.batch_size import (
    MOST,
    PAPER_FIRST_SIZE,
    UPDATES,
    PaperStrategy,
    Throughput,
    by_size,
    limit_at,
    together,
)
from loaderprobe.analyze.batch_size import MOST_OF_PAPER as MOST_OF_PAPER
from loaderprobe.api.diagnose import diagnose
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.sweep_spec import compute_names
from loaderprobe.api.values import unheard
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.batch_size import ONE_S, Meter, WithReadings, search
from loaderprobe.measure.image_data import image_files, loader_of_images
from loaderprobe.policy import Policy
from loaderprobe.protocols import OnStage
from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeReport, BatchSizeStop, StrategyName
from loaderprobe.records.remark import Remark, reported
from loaderprobe.records.verdict import Bound
from loaderprobe.render.batch_size import batch_size_columns, batch_size_document
from loaderprobe.render.document import Document
from loaderprobe.render.words import remark_words
from loaderprobe.system.clock import SystemClock
from loaderprobe.system.limits import available_bytes
from loaderprobe.units import format_bytes, join_words, parse_bytes

if TYPE_CHECKING:
    from loaderprobe.compute.batch_size import TorchProber

STRATEGIES: tuple[StrategyName, ...] = ("throughput", "gpu-usage", "epoch-time")
IMAGENET_IMAGES = 1_281_167
MEMORY_SHARE = 0.7
"""Of the memory that is available, for training on the CPU."""
SAMPLE = 2000
"""Images of a folder that take part; they come round again."""
NEEDS_STEPS = "the loops of {} have 1,000 updates each, which take days without a GPU"
SHORTER = "use a machine with a GPU, or shorter loops: --iterations 20"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BatchSize(Documented, BatchSizeReport):
    """The batch size to use, why, and every probe. Shows itself."""

    table_name = "probes.csv"

    def document(self) -> Document:
        """The size and its rate, what limits there, then a row a size, or a row a loop."""
        return batch_size_document(self, by_size(self.probes))

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a probe, in order."""
        return batch_size_columns(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest:
    """What is asked for, beside the model and its batches."""

    strategy: StrategyName = "throughput"
    most: int | None = None
    memory: str | int | None = None
    steps: int | None = None
    images: int = IMAGENET_IMAGES
    precision: str = "fp32"
    name: str = ""
    command: str = ""
    image_size: int | None = None
    data: str = ""
    workers: int | None = None
    paths: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise BadValue(f"there is no strategy '{self.strategy}'", hint=f"use {join_words(STRATEGIES, 'or')}")
        if self.most is not None and self.most < 1:
            raise BadValue(f"{self.most} is no batch size", hint="give 1 or more")
        if self.steps is not None and self.steps < 1:
            raise BadValue(f"{self.steps} steps measure nothing", hint="give 1 or more")
        if self.precision not in ("fp32", "bf16"):
            raise BadValue(f"there is no precision '{self.precision}' here", hint="use fp32 or bf16")

    @property
    def largest(self) -> int:
        return self.most or (MOST if self.strategy == "throughput" else MOST_OF_PAPER)

    def made(self) -> Policy[int, BatchSizeProbe, BatchSizeStop]:
        if self.strategy == "throughput":
            return Throughput(most=self.largest)
        first = min(PAPER_FIRST_SIZE, self.largest)
        return PaperStrategy(name=self.strategy, images=self.images, first=first, most=self.largest)


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
    progress: OnStage = unheard,
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
    the size of the data set, for epoch times. `precision` bf16 trains under autocast.

    Raises BadValue for what cannot be trained, saying in which part of the step, and where not one image fits.
    """
    asked = TuneRequest(
        strategy=strategy, most=most, memory=memory, steps=iterations, images=images, precision=precision,
        name=name or type(model).__name__, command=command,
    )  # fmt: skip
    from loaderprobe.compute.batch_size import repeated
    from loaderprobe.compute.trainer import is_loader

    if callable(batch) and not is_loader(batch):
        return tuned(model, batch, asked, loss=loss, progress=progress)
    if is_loader(batch):
        raise BadValue(
            "a loader has one batch size", hint="give a function of the batch size that makes a loader, or one batch"
        )
    repeated(batch, 1)
    return tuned(model, lambda size: repeated(batch, size), asked, loss=loss, progress=progress)


def tuned(
    model: Any,
    batches: Callable[[int], Any],
    asked: TuneRequest,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    progress: OnStage = unheard,
) -> BatchSize:
    """The search for `asked`, with batches that `batches(size)` makes. Raises as `batch_size`."""
    from loaderprobe.compute.trainer import device_words

    prober, limit = _prober(model, batches, asked, loss)
    asking = WithReadings(prober, remark_words) if asked.strategy == "gpu-usage" else prober
    probes, stop = search(asked.made(), asking, clock=SystemClock(), progress=progress)
    if not stop.chosen:
        at = f" into {format_bytes(limit)}" if limit else ""
        raise BadValue(
            f"not even a batch of {min(probe.batch_size for probe in probes)} fits{at}",
            hint="use a smaller model or smaller images, or give more with --memory",
        )
    tried = [probe for probe in probes if probe.batch_size == stop.chosen and probe.fits]
    at_chosen = together(tried) if tried else _after(prober, stop.chosen, progress)
    loaded = _is_loaded(batches, stop.chosen)
    findings, why = _judged(prober, batches, stop, progress) if loaded else (None, None)
    return BatchSize(
        origin=origin_now(asked.command, *asked.paths),
        model=asked.name,
        device=device_words(prober.device),
        image_size=asked.image_size,
        precision=asked.precision,
        strategy=asked.strategy,
        data=asked.data or ("loader" if loaded else ""),
        workers=asked.workers,
        dataset_images=asked.images,
        most=asked.largest,
        memory_limit_bytes=limit,
        utilization_of="gpu" if prober.device.type == "cuda" else "cores",
        probes=probes,
        stop=stop,
        at_chosen=at_chosen,
        limit=limit_at(stop.chosen, probes, most=asked.largest, loaded=loaded),
        findings=findings,
        no_findings=why,
    )


def _prober(
    model: Any, batches: Callable[[int], Any], asked: TuneRequest, loss: Callable[[Any, Any], Any] | None
) -> tuple[TorchProber, int | None]:
    """What makes the probes, and its memory limit in bytes. Raises MissingPart for the paper's length without a GPU."""
    from loaderprobe.compute.batch_size import ProbeParts, TorchProber
    from loaderprobe.compute.trainer import usual_loss

    clock = SystemClock()
    uuid = _uuid(model)
    ours = asked.strategy == "throughput"
    if not ours and asked.steps is None and uuid is None:
        raise MissingPart(NEEDS_STEPS.format(asked.strategy), hint=SHORTER)
    limit = parse_bytes(str(asked.memory)) if asked.memory is not None else None
    if limit is None and uuid is None:
        limit = round(MEMORY_SHARE * available_bytes()) or None
    period_s = {} if ours else {"period_s": ONE_S}
    parts = ProbeParts(
        loss=loss or usual_loss,
        clock=clock,
        meter=lambda: Meter(clock, uuid, **period_s),
        steps=asked.steps or (None if ours else UPDATES),
        memory_limit=limit,
        precision="bf16" if asked.precision == "bf16" else "fp32",
    )
    return TorchProber(model, batches, parts), limit


def _uuid(model: Any) -> str | None:
    from loaderprobe.compute.batch_size import gpu_of

    return gpu_of(model)


def _after(prober: TorchProber, size: int, progress: OnStage) -> BatchSizeProbe:
    """The chosen size where a rule of the paper ended at one that it had not tried."""
    progress("the chosen size", 0, 1)
    return prober.probe(size)


def _is_loaded(batches: Callable[[int], Any], size: int) -> bool:
    from loaderprobe.compute.trainer import is_loader

    return bool(is_loader(batches(size)))


def _judged(
    prober: TorchProber, batches: Callable[[int], Any], stop: BatchSizeStop, progress: OnStage
) -> tuple[Bound | None, Remark | None]:
    """What limits a loader of the chosen size, or why that is not known: Ctrl-C ends this, too."""
    if stop.code == "interrupted":
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
    memory: str | None = None, iterations: int | None = None, images: int = IMAGENET_IMAGES,
    progress: OnStage = unheard, command: str = "",
) -> BatchSize:  # fmt: skip
    """The batch size for a model by name, on images of `data`, else on random ones in memory.

    `precision` auto is bf16 on a GPU, and fp32 on the CPU and for the paper's strategies. Raises BadValue for an
    unknown name or a model that cannot be trained, MissingPart for one that cannot be imported or a GPU that is not
    there.
    """
    from loaderprobe.compute.trainer import model_on, random_images
    from loaderprobe.plugins import resolve

    (chosen,) = compute_names(device)
    if precision == "auto":
        precision = "bf16" if chosen == "cuda" and strategy == "throughput" else "fp32"
    make_model = resolve("model", model)
    files = None if data is None else image_files(data, sample=SAMPLE, progress=progress)
    asked = TuneRequest(
        strategy=strategy, most=most, memory=memory, steps=iterations, precision=precision, name=model, command=command,
        images=files.images_found if files else images, image_size=image_size,
        data=str(data) if data else "", workers=workers if data else None, paths=(data,) if data else (),
    )  # fmt: skip
    if files is None:
        return tuned(model_on(chosen, model, make_model), lambda size: random_images(size, image_size), asked,
                     progress=progress)  # fmt: skip
    return tuned(
        model_on(chosen, model, make_model),
        lambda size: loader_of_images(files, batch_size=size, workers=workers, device=chosen),
        asked,
        progress=progress,
    )

"""`tune batch-size --paper`: the four patterns of Serizawa and Tatebe, by their strategies and by ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loaderprobe.analyze.tune.batch_size import UPDATES
from loaderprobe.api.batch_size import NEEDS_STEPS, SHORTER, named_batch_size
from loaderprobe.api.shown import Documented, origin_now
from loaderprobe.api.sweep_request import compute_names
from loaderprobe.api.values import unheard
from loaderprobe.errors import MissingPart
from loaderprobe.measure.session import OnStage
from loaderprobe.records.batch_size import (
    PAPER_PATTERNS,
    BatchSizePaperReport,
    BatchSizeReport,
    PaperPattern,
    PatternResult,
    StrategyName,
)
from loaderprobe.render.batch_size_paper import batch_size_paper_columns, batch_size_paper_document
from loaderprobe.render.document import Document


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BatchSizePaper(Documented, BatchSizePaperReport):
    """The paper's tables, with this machine's figures beside. Shows itself."""

    table_name = "patterns.csv"

    def document(self) -> Document:
        """How near the paper's strategies come to the fastest size, then its tables."""
        return batch_size_paper_document(self)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a pattern and strategy."""
        return batch_size_paper_columns(self)


def paper_batch_sizes(
    *,
    device: str = "auto",
    most: int | None = None,
    memory: str | None = None,
    iterations: int | None = None,
    probe_steps: int | None = None,
    patterns: Sequence[PaperPattern] = PAPER_PATTERNS,
    progress: OnStage = unheard,
    command: str = "",
) -> BatchSizePaper:
    """Search each pattern by gpu-usage, epoch-time and throughput, on random images in memory, in fp32.

    `iterations` are the updates of each loop of the paper's strategies, 1,000 on a GPU; `probe_steps` the steps of a
    probe of throughput, as many as take 2 s. Raises MissingPart where that
    would take days, and what `tune_batch_size` raises.
    """
    (chosen,) = compute_names(device)
    if chosen == "cpu" and iterations is None:
        raise MissingPart(NEEDS_STEPS.format("the paper"), hint=SHORTER)

    def searched(pattern: PaperPattern, strategy: StrategyName) -> BatchSizeReport:
        def heard(stage: str, done: int, total: int) -> None:
            progress(f"{pattern.model} {pattern.image_size}, {strategy}, {stage}", done, total)

        found = named_batch_size(
            pattern.model, device=chosen, image_size=pattern.image_size, precision="fp32", strategy=strategy, most=most,
            memory=memory, iterations=probe_steps if strategy == "throughput" else iterations,
            images=pattern.dataset_images, progress=heard, command=command,
        )  # fmt: skip
        return BatchSizeReport(**{name: getattr(found, name) for name in BatchSizeReport.__dataclass_fields__})

    results = [
        PatternResult(
            pattern=each,
            usage=searched(each, "gpu-usage"),
            time=searched(each, "epoch-time"),
            throughput=searched(each, "throughput"),
        )
        for each in patterns
    ]
    return BatchSizePaper(
        origin=origin_now(command),
        device=results[0].usage.device if results else chosen,
        steps=iterations or UPDATES,
        results=tuple(results),
    )

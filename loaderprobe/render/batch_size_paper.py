"""The paper's tables of batch sizes, with those of this machine and of our own search beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaderprobe.records.batch_size import BatchSizePaperReport, BatchSizeReport, PatternResult
from loaderprobe.render.batch_size import ACCURACY
from loaderprobe.render.cells import as_columns
from loaderprobe.render.document import Document, Paragraph, Section, Table
from loaderprobe.render.wording import counted, interval, percent
from loaderprobe.units import significant

MODELS = {"vgg16": "VGG16", "resnet50": "ResNet-50"}
SOURCE = (
    "Paper: Serizawa and Tatebe, Chainer 6 on a Tesla V100; strategies as in the author's package, "
    "chainer_minibatch_size_optimizer. Here the images are random and stay in memory, so loading, which limited the "
    "paper's ImageNet patterns, limits nothing; every model has 1,000 classes."
)


def batch_size_paper_document(found: BatchSizePaperReport) -> Document:
    """How near the paper's strategies come to the fastest size, then its tables."""
    return Document(
        title=f"The paper's {counted(len(found.results), 'pattern')} on {found.device}, {found.steps} updates a loop",
        sections=(
            Section(parts=(Paragraph(text=_answer(found), strong=True), Paragraph(text=ACCURACY))),
            Section(title="Batch size that each strategy ends at", name="sizes", parts=(_sizes(found),)),
            Section(title="Images/s at that size", parts=(_rates(found),)),
            Section(
                title="Epoch time, improvement against the first batch size",
                parts=(_improvements(found), Paragraph(text=SOURCE)),
            ),
        ),
    )


def batch_size_paper_columns(found: BatchSizePaperReport) -> dict[str, list[Any]]:
    """One row a pattern and strategy."""
    rows = [
        {
            "model": each.pattern.model,
            "data": each.pattern.data,
            "strategy": search.strategy,
            "batch_size": search.stop.chosen,
            "batch_size_in_paper": paper,
            "images_per_s": search.at_chosen.images_per_s.value if search.at_chosen.images_per_s else None,
            "improvement": improvement(each, search),
            "improvement_in_paper": each.pattern.improvement if search is each.time else None,
            "probes": len(search.probes),
            "stop": search.stop.code,
        }
        for each in found.results
        for search, paper in (
            (each.usage, each.pattern.usage_size),
            (each.time, each.pattern.time_size),
            (each.throughput, None),
        )
    ]
    return as_columns(rows)


def improvement(result: PatternResult, search: BatchSizeReport) -> float:
    """Of an epoch at the size that a search chose, against the first size of the paper's search; 0 to 1."""
    images = result.pattern.dataset_images
    return 1 - search.at_chosen.epoch_s(images) / result.time.probes[0].epoch_s(images)


def _answer(found: BatchSizePaperReport) -> str:
    if not found.results:
        return "No pattern was measured."
    return (
        f"Of the rate that the throughput search finds, gpu-usage reaches {_shares(found, lambda each: each.usage)}, "
        f"and epoch-time {_shares(found, lambda each: each.time)}."
    )


def _shares(found: BatchSizePaperReport, search: Callable[[PatternResult], BatchSizeReport]) -> str:
    shares = sorted(_rate(search(each)) / (_rate(each.throughput) or 1.0) for each in found.results)
    return " to ".join(dict.fromkeys(percent(each) for each in (shares[0], shares[-1])))


def _rate(search: BatchSizeReport) -> float:
    return search.at_chosen.images_per_s.value if search.at_chosen.images_per_s else 0.0


def _sizes(found: BatchSizePaperReport) -> Table:
    return Table(
        head=("pattern", "gpu-usage", "in paper", "epoch-time", "in paper", "throughput"),
        lines=tuple(
            (
                _name(each),
                _size(each.usage),
                str(each.pattern.usage_size),
                _size(each.time),
                str(each.pattern.time_size),
                _size(each.throughput),
            )
            for each in found.results
        ),
        right=frozenset(range(1, 6)),
    )


def _rates(found: BatchSizePaperReport) -> Table:
    return Table(
        head=("pattern", "gpu-usage", "epoch-time", "throughput", "probes of each"),
        lines=tuple(
            (
                _name(each),
                *(interval(search.at_chosen.images_per_s) for search in (each.usage, each.time, each.throughput)),
                ", ".join(str(len(search.probes)) for search in (each.usage, each.time, each.throughput)),
            )
            for each in found.results
        ),
        right=frozenset(range(1, 5)),
    )


def _improvements(found: BatchSizePaperReport) -> Table:
    return Table(
        head=("pattern", "gpu-usage", "epoch-time", "in paper", "throughput"),
        lines=tuple(
            (
                _name(each),
                percent(improvement(each, each.usage)),
                percent(improvement(each, each.time)),
                f"{significant(each.pattern.improvement * 100)} %",
                percent(improvement(each, each.throughput)),
            )
            for each in found.results
        ),
        right=frozenset(range(1, 5)),
    )


def _name(result: PatternResult) -> str:
    return f"{result.pattern.data}, {MODELS.get(result.pattern.model, result.pattern.model)}"


def _size(search: BatchSizeReport) -> str:
    """Marked where the rule that ended it is not convergence."""
    marks = {"at_maximum": " max", "loops_spent": " loops", "out_of_memory": " memory", "at_minimum": " min"}
    return f"{search.stop.chosen}{marks.get(search.stop.code, '')}"

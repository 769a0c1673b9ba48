"""The four patterns of Serizawa and Tatebe, by their strategies of a batch size and by ours; their figures beside.

Serizawa and Tatebe, automatic optimisation for faster DNN training, with errata: Chainer 6 on a Tesla V100, strategies
as in the author's package chainer_minibatch_size_optimizer. Here images are random and stay in memory, so loading,
which limited the paper's ImageNet patterns, limits nothing, and every model has 1,000 classes. A loop of the paper has
1,000 updates: without a GPU that takes days, so --iterations must be given there.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Literal

from loaderprobe.api.batch_size import named_batch_size
from loaderprobe.errors import LoaderprobeError
from loaderprobe.records.batch_size import BatchSizeReport, StrategyName
from scripts.benches.harness import Progress

STRATEGIES: tuple[StrategyName, ...] = ("gpu-usage", "epoch-time", "throughput")
MARKS = {"at_maximum": " max", "loops_spent": " loops", "out_of_memory": " memory", "at_minimum": " min"}
"""Of a search that did not end by convergence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One of the paper's patterns, with its figures."""

    model: str
    data: Literal["CIFAR-100", "ImageNet"]
    image_size: int
    images: int
    usage_size: int
    """Where GpuUsageMaximize converged."""
    time_size: int
    """Where EpochTimeMinimize converged."""
    improvement: float
    """Of the epoch time by EpochTimeMinimize, 0 to 1, against its first size."""


PATTERNS = (
    Pattern(model="vgg16", data="CIFAR-100", image_size=32, images=50_000, usage_size=54, time_size=196,
            improvement=0.734),
    Pattern(model="resnet50", data="CIFAR-100", image_size=32, images=50_000, usage_size=70, time_size=196,
            improvement=0.603),
    Pattern(model="vgg16", data="ImageNet", image_size=224, images=1_281_167, usage_size=46, time_size=72,
            improvement=0.135),
    Pattern(model="resnet50", data="ImageNet", image_size=224, images=1_281_167, usage_size=116, time_size=96,
            improvement=0.085),
)  # fmt: skip


def shown(pattern: Pattern, strategy: StrategyName, found: BatchSizeReport, begin: BatchSizeReport) -> str:
    """A line: where the strategy ended, its rate, and what it saves of an epoch against the paper's first size."""
    rate, first = found.at_chosen.images_per_s, begin.probes[0]
    saved = 1 - found.at_chosen.epoch_s(pattern.images) / first.epoch_s(pattern.images)
    paper = {"gpu-usage": f"{pattern.usage_size}", "epoch-time": f"{pattern.time_size}"}.get(strategy, "")
    in_paper = f" (paper {pattern.improvement:.1%})" if strategy == "epoch-time" else ""
    size = f"{found.stop.chosen}{MARKS.get(found.stop.code, '')}"
    return (
        f"{pattern.data:9} {pattern.model:9} {strategy:11} {size:>10} {paper:>6} "
        f"{f'{rate.value:.4g}' if rate else '-':>9} {len(found.probes):7} {saved:9.1%}{in_paper}"
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="auto")
    options.add_argument("--iterations", type=int, help="updates of each loop of the paper's strategies; 1,000")
    options.add_argument("--probe-steps", type=int, help="of throughput; as many as take 2 s")
    options.add_argument("--max", type=int, help="largest size")
    options.add_argument("--only", default="", help="patterns of this model")
    chosen = options.parse_args()
    patterns = [pattern for pattern in PATTERNS if chosen.only in pattern.model]
    progress = Progress(len(patterns) * len(STRATEGIES))
    print(f"{'data':9} {'model':9} {'strategy':11} {'size':>10} {'paper':>6} {'images/s':>9} {'probes':>7} saved")
    for pattern in patterns:
        found: dict[StrategyName, BatchSizeReport] = {}
        for strategy in STRATEGIES:
            try:
                found[strategy] = named_batch_size(
                    pattern.model, device=chosen.device, image_size=pattern.image_size, precision="fp32",
                    strategy=strategy, most=chosen.max, images=pattern.images,
                    iterations=chosen.probe_steps if strategy == "throughput" else chosen.iterations,
                )  # fmt: skip
            except LoaderprobeError as error:
                print(f"{error.message}; {error.hint}", file=sys.stderr)
                return error.exit_code
            progress.done(f"{pattern.model} {strategy}")
        for strategy, search in found.items():
            print(shown(pattern, strategy, search, found["epoch-time"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The two strategies of Serizawa and Tatebe, "automatic optimisation for faster DNN training", errata applied.

Step sizes, stopping rules and defaults are those of the author's own package, chainer_minibatch_size_optimizer by
K. Serizawa (GitHub), written again from its behaviour. Two things differ from the text of the paper, as they do
there: the printed comparison of GpuUsageMaximize is inverted (errata), and EpochTimeMinimize also shrinks the batch,
where an epoch got slower or improved beyond its target.

Both work on loops of 1,000 updates. After each, the batch grows or shrinks by a step that becomes longer, up to 10,
while the direction stays. Before loops 0, 5, 10, ... change the size, convergence is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loaderprobe.records.batch_size import BatchSizeProbe, BatchSizeStop

FIRST_SIZE = 10
MOST = 256
"""The package's front gives this; the class itself has 100."""
UPDATES = 1000
LOOPS = 100
CHECK_EVERY = 5
LONGEST_STEP = 10
USAGE_TARGET = 0.99
SIZES_ALIKE = 5
IMPROVEMENT_TARGET = 0.5
RATIOS_ALIKE = 0.05
FIRST_RATIO = 100.0
"""What the first ratio is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsageMaximize:
    """Grows the batch while the device is busy less than 99 % of the time, else shrinks it.

    The search converges when the size moved by 5 or less in five loops.
    """

    first: int = FIRST_SIZE
    most: int = MOST

    def next(self, probes: Sequence[BatchSizeProbe]) -> int | BatchSizeStop:
        """The size of the next loop. Memory that ends, for which the package has no rule, ends the search."""
        return _walk(
            probes,
            _Rule(
                grows=lambda number: (probes[number].usage or 0.0) < USAGE_TARGET,
                metric=lambda number: float(probes[number].batch_size),
                alike=SIZES_ALIKE,
                before_first=math.inf,
                turned=1,
            ),
            first=self.first,
            most=self.most,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimeMinimize:
    """Grows the batch while an epoch is no slower than with the first size, and no more than 50 % faster.

    The search converges when the improvement moved by 0.05 or less in five loops. The paper says only that the batch
    grows; its package shrinks it where an epoch is slower, or improved beyond the target, and so does this.
    """

    images: int
    """Of the data set."""
    first: int = FIRST_SIZE
    most: int = MOST

    def next(self, probes: Sequence[BatchSizeProbe]) -> int | BatchSizeStop:
        """The size of the next loop. Memory that ends, for which the package has no rule, ends the search."""
        epochs_s = [each.epoch_s(self.images) for each in probes]
        ratios = [(epochs_s[0] - each) / epochs_s[0] if each < math.inf else 0.0 for each in epochs_s]
        return _walk(
            probes,
            _Rule(
                grows=lambda number: 0 <= ratios[number] < IMPROVEMENT_TARGET,
                metric=lambda number: ratios[number],
                alike=RATIOS_ALIKE,
                before_first=FIRST_RATIO,
                turned=2,
            ),
            first=self.first,
            most=self.most,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What the two strategies do not share, by the number of the loop."""

    grows: Callable[[int], bool]
    metric: Callable[[int], float]
    """What convergence is checked by."""
    alike: float
    before_first: float
    turned: int
    """The step after a change of direction."""


def _walk(probes: Sequence[BatchSizeProbe], rule: _Rule, *, first: int, most: int) -> int | BatchSizeStop:
    """The loops so far once more, and what follows from the last of them."""
    size, up, step, checked = first, True, 1, rule.before_first
    for number, probe in enumerate(probes):
        if not probe.fits:
            return _out_of_memory(probes)
        size = probe.batch_size
        if number % CHECK_EVERY == 0:
            metric = rule.metric(number)
            if abs(checked - metric) <= rule.alike:
                return BatchSizeStop(code="converged", chosen=size)
            checked = metric
        grows = rule.grows(number)
        step = step + 1 if grows == up else rule.turned
        up = grows
        size += min(step, LONGEST_STEP) if up else -min(step, LONGEST_STEP)
        if size >= most:
            return BatchSizeStop(code="at_maximum", chosen=most)
        if size < 1:
            return BatchSizeStop(code="at_minimum", chosen=1)
    return size if len(probes) < LOOPS else BatchSizeStop(code="loops_spent", chosen=size)


def _out_of_memory(probes: Sequence[BatchSizeProbe]) -> BatchSizeStop:
    fitting = [each.batch_size for each in probes if each.fits]
    if not fitting:
        return BatchSizeStop(code="nothing_fits", chosen=0)
    return BatchSizeStop(code="out_of_memory", chosen=fitting[-1])

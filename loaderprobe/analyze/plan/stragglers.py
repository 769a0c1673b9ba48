"""What waiting for the slowest of N ranks costs, from the late steps of one.

All ranks wait for the slowest of them at every step. Where they wait together, a step is as late as one rank's; where
they wait independently, it is as late as the largest of N. Published records of single ranks lie between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from loaderprobe.analyze.plan.workload import Stalls
from loaderprobe.records.plan import Stragglers
from loaderprobe.records.remark import Remark

LEAST_STEPS = 30


def expected_most(values: Sequence[float], ranks: int) -> float:
    """The mean of the largest of `ranks` values drawn from these, each drawn independently."""
    ordered, count = sorted(values), len(values)
    below = [(place / count) ** ranks for place in range(count + 1)]
    return math.fsum(value * (below[place + 1] - below[place]) for place, value in enumerate(ordered))


def stragglers(stalls: Stalls, ranks: int, utilization: float) -> Stragglers | Remark:
    """The range of what N ranks wait, or why it cannot be said."""
    late, steps = stalls.late_s, len(stalls.late_s)
    if steps < LEAST_STEPS:
        return Remark(code="too_few_steps", facts={"steps": steps, "least": LEAST_STEPS})
    if ranks > steps:
        return Remark(code="fewer_steps_than_ranks", facts={"steps": steps, "ranks": ranks})
    mean, most = math.fsum(late) / steps, expected_most(late, ranks)
    alone = mean / (stalls.step_s + mean)
    if alone > 1 - utilization:
        return Remark(code="accelerator_waited", facts={"share": alone})
    return Stragglers(
        ranks=ranks, steps=steps, longest_s=max(late), alone=alone, independent=most / (stalls.step_s + most)
    )

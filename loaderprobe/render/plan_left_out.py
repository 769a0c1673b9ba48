"""What a storage plan leaves out: what this one cannot say, and what none covers."""

from __future__ import annotations

from loaderprobe.records.plan import PlanPart, PlanReport
from loaderprobe.records.remark import Remark

NOT_COVERED = (
    ("Writes", "checkpoints (ResNet-50: about 0.2 GB each), logs, staging"),
    ("Others", "other jobs on the same storage, failures, rebuilds: the unused share of a limit is for them"),
    ("Several clients", "what was measured was measured from one machine"),
    ("Caches of the storage", "they answer reads that a larger data set would send to its disks"),
    ("Start of an epoch", "buffers fill at the storage's limit: a longer wait for the first batch, and no higher need"),
    ("Utilization to expect", "it cannot be predicted for a storage that was not measured"),
)
COLD_OPENS = (
    "Cold opens",
    "sweep and run drop only file data before a read; cached directory entries make opens look cheap: bandwidth PATH "
    "--drop-caches measures opens/s cold",
)


def not_said(plan: PlanReport) -> dict[PlanPart, Remark]:
    """What is refused, but for what the answer says already."""
    return {part: why for part, why in plan.refused.items() if part != "lock_step" or plan.asked.simulate_ranks is None}


def not_covered(plan: PlanReport) -> tuple[tuple[str, str], ...]:
    """What no plan covers; and cold opens, of which a bandwidth result says itself what it measured."""
    return NOT_COVERED if plan.source.kind == "bandwidth" else (*NOT_COVERED, COLD_OPENS)

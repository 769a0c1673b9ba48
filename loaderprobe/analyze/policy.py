"""What measuring asks of a verdict while it goes on: whether more is to be measured, and of the storage as well."""

from __future__ import annotations

from loaderprobe.analyze.effects import CLEAR_LEAD
from loaderprobe.analyze.judge import verdict
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.measurement import Measurement
from loaderprobe.records.verdict import WORTH, Bound


def bound_of(measurement: Measurement) -> Bound:
    """What limits it. Raises BadValue without a complete round."""
    return verdict(measurement).bound


def training_rate(measurement: Measurement) -> float | None:
    """Images/s of training as the verdict has it; None without a complete round."""
    try:
        return verdict(measurement).images_per_s.value
    except BadValue:
        return None


def is_open(measurement: Measurement) -> bool:
    """True where no cause can be named yet."""
    try:
        return verdict(measurement).bound.cause == "inconclusive"
    except BadValue:
        return True  # no complete round


def is_unsure(measurement: Measurement, ceiling: StorageCeiling | None) -> bool:
    """True where no cause can be named, or one of several may be it."""
    try:
        return verdict(measurement, ceiling).bound.cause in ("inconclusive", "either")
    except BadValue:
        return True  # no complete round


def storage_advised(measurement: Measurement) -> bool:
    """True where faster storage may be advised, or more workers, which ask more of it than was seen."""
    try:
        cause = verdict(measurement).bound.cause
    except BadValue:
        return False
    return cause == "preprocessing" or storage_matters(measurement, WORTH)


def storage_matters(measurement: Measurement, least: float = CLEAR_LEAD) -> bool:
    """False where storage cannot be the limit, and would gain less than `least` if it were free."""
    try:
        judged = verdict(measurement)
    except BadValue:
        return False  # no complete round: nothing is known that a ceiling could explain
    speedup, estimate = judged.speedups.storage, judged.speedups.preprocessing
    if (
        estimate is not None
        and estimate.how == "estimated"
        and judged.bound.cause in ("preprocessing", "cpu", "either")
    ):
        return True  # however little workers wait: without their work the storage may be at its limit
    return speedup is None or speedup.value >= least or "storage" in (judged.bound.cause, *judged.bound.candidates)

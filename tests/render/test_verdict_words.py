"""The sentences of verdicts: short, in the field's words, with the figures of the reason."""

from __future__ import annotations

from typing import Any

from loaderprobe.records.verdict import Bound, Cause, Reason, ReasonCode
from loaderprobe.render.verdict_words import kind_of, sentence

RATES: dict[str, Any] = {
    "judged": "training", "images_per_s": 205.0, "loader_images_per_s": 210.0, "compute_images_per_s": 1786.0,
    "utilization": 0.115, "device": "emulated",
}  # fmt: skip
SPEEDUP: dict[str, Any] = {"resource": "storage", "speedup": 2.286, "how": "estimated"}
FILES: dict[str, Any] = {"files_were": "partly warm", "cold_reads_known_by": "waiting"}


def bound(cause: Cause, code: ReasonCode, candidates: tuple[str, ...] = (), **facts: float | str) -> Bound:
    side: Any = cause if cause in ("compute", "balanced", "inconclusive") else "input"
    side = "compute" if cause in ("host", "gradients", "communication") else side
    reason = Reason(code=code, facts={**RATES, **facts})
    return Bound(side=side, cause=cause, candidates=candidates, reason=reason, evidence=())


def largest(cause: Cause, **facts: float | str) -> Bound:
    merged: dict[str, Any] = {**SPEEDUP, "resource": cause, **facts}
    return bound(cause, "largest_speedup", **merged)


WAIT: dict[str, Any] = {"waiting_share": 0.62, "subject": "10.0.0.5:443"}


def test_verdicts_that_share_a_sentence_give_the_range() -> None:
    """From the smallest to the largest, with two figures; a mixture of measured and estimated says so."""
    low = largest("preprocessing", utilization=0.15, speedup=3.1, how="measured")
    high = largest("preprocessing", utilization=0.33, speedup=15.2)
    assert kind_of(low) == kind_of(high)
    assert sentence([high, low]) == (
        "Input-bound by preprocessing: training reaches 15 to 33 % of the emulated accelerator; free preprocessing "
        "would make it 3.1 to 15 times as fast (partly estimated)."
    )


def test_verdicts_that_say_something_else_share_nothing() -> None:
    """Another cause, another subject, another caveat or another kind of device is another sentence."""
    first = largest("network", **WAIT)
    others = [
        largest("lock", **WAIT), largest("network", waiting_share=0.62, subject="elsewhere"), largest("network"),
        largest("network", **WAIT, **FILES), largest("network", **WAIT, device="measured"),
    ]  # fmt: skip
    assert kind_of(first) not in [kind_of(each) for each in others]

"""The sentences of verdicts: short, in the field's words, with the figures of the reason."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import pytest

from loaderprobe.records.verdict import AblationCode, Ablations, Bound, Cause, Reason, ReasonCode
from loaderprobe.render.verdict_words import ablation_words, explanation, heading, kind_of, sentence

MOST_WORDS = 25
RATES: dict[str, Any] = {
    "judged": "training", "images_per_s": 205.0, "loader_images_per_s": 210.0, "compute_images_per_s": 1786.0,
    "utilization": 0.115, "device": "emulated",
}  # fmt: skip
SPEEDUP: dict[str, Any] = {"resource": "storage", "speedup": 2.286, "how": "estimated"}
DISK: dict[str, Any] = {"read_bytes_per_s": 23.1e6, "ceiling_share": 0.74, "concurrency": 2.0}
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
ALIKE: dict[str, Any] = {
    "storage_speedup": 1.9, "storage_how": "measured", "preprocessing_speedup": 1.8, "preprocessing_how": "estimated",
}  # fmt: skip
SLOW: dict[str, Any] = {
    "resource": "preprocessing", "speedup": 3.18, "how": "measured", "rank": "1", "host": "node7",
    "slow_images_per_s": 37.0, "middle_images_per_s": 114.0,
}  # fmt: skip
SLOW_HOST: dict[str, Any] = {
    "resource": "storage", "speedup": 3.08, "how": "estimated", "host": "node7", "slow_ranks": "7", "host_ranks": "8",
    "slow_images_per_s": 37.0, "other_images_per_s": 114.0,
}  # fmt: skip
EXCHANGE: dict[str, Any] = {
    "compute_speedup": 1.9, "compute_how": "measured", "gradients_speedup": 1.8, "gradients_how": "measured",
}  # fmt: skip
EVERY = [
    largest("storage", **DISK, **FILES), largest("preprocessing"), largest("transport"), largest("network", **WAIT),
    largest("lock", **WAIT), largest("wait", **WAIT), largest("compute"),
    largest("compute", input="preprocessing", input_speedup=1.23, input_how="estimated"),
    bound("cpu", "all_cores_busy", **{**SPEEDUP, "resource": "preprocessing"}),
    bound("cpu", "all_cores_busy", **SPEEDUP, run_delay_share=0.49, own_cores=1.0, cores=2.0),
    bound("imbalance", "slow_rank", **SLOW), bound("imbalance", "slow_rank", **{**SLOW, "resource": "cpu"}),
    bound("imbalance", "slow_host", **SLOW_HOST), largest("storage", **DISK, straggler_speedup=1.23),
    largest("gradients", gradients_speedup=2.86, compute_speedup=1.4),
    largest("compute", gradients_speedup=1.7, compute_speedup=2.61),
    bound("either", "speedups_alike", ("compute", "gradients"), **EXCHANGE),
    bound("copy", "device_idle", copy_share=0.31, copies_from="pageable memory"),
    bound("host", "device_idle", launch_share=0.5, sync_share=0.14),
    bound("communication", "device_idle", communication_share=0.62),
    bound("either", "speedups_alike", ("storage", "preprocessing"), **ALIKE),
    bound("balanced", "no_speedup", least_speedup=1.05),
    bound("inconclusive", "no_complete_round"),
    bound("inconclusive", "files_were_warm", because="always_warm"),
    bound("inconclusive", "above_ceiling", samples_bytes_per_s=54e6, ceiling_bytes_per_s=20e6),
    bound("inconclusive", "one_round_does_not_fit", predicted_share=0.6, noise_band=0.1),
    bound("inconclusive", "outside_noise_band", predicted_share=0.6, noise_band=0.1),
    bound("inconclusive", "rounds_differ", spread=0.6),
    bound("inconclusive", "ablation_missing", resource="storage", because="no_segment", files="warm"),
    bound("inconclusive", "estimate_not_measured", **SPEEDUP),
    bound("inconclusive", "estimate_too_small", **SPEEDUP),
    bound("inconclusive", "within_noise", **SPEEDUP),
    bound("inconclusive", "slower_without", resource="storage", rate_share=0.61, activity="loader_only"),
    bound("inconclusive", "slower_without", resource="preprocessing", rate_share=0.61, activity="training"),
    bound("inconclusive", "interval_too_wide", low_per_s=0.0, high_per_s=160.0),
    bound("inconclusive", "rounds_disturbed", rounds=3.0, **SPEEDUP),
    bound("inconclusive", "rounds_disturbed", rounds=1.0, **SPEEDUP),
    bound("inconclusive", "cores_shared", own_cores=1.94, cores=2.0),
    bound("either", "lead_within_spread", ("storage", "preprocessing"), **ALIKE, lead=1.6, spread=0.9),
]  # fmt: skip


def test_every_code_is_tried() -> None:
    """No reason is without words, or without a case here."""
    assert {each.reason.code for each in EVERY} == set(get_args(ReasonCode))


@pytest.mark.parametrize("each", EVERY, ids=lambda each: f"{each.cause}-{each.reason.code}")
def test_sentences_are_short_and_whole(each: Bound) -> None:
    """At most 25 words each, ended by a full stop, alone as well as with ranges of figures."""
    facts = {name: value / 3 if isinstance(value, float) else value for name, value in each.reason.facts.items()}
    other = replace(each, reason=replace(each.reason, facts=facts))
    for bounds in ([each], [each, other]):
        said = sentence(bounds)
        assert said.startswith(heading(each) + ": ") and said.endswith(".")
        # A full stop ends a sentence where a blank and a capital follow; those in numbers and addresses do not.
        for part in re.split(r"\. (?=[A-Z])", said):
            assert len(part.split()) <= MOST_WORDS, part


@pytest.mark.parametrize(
    ("each", "words"),
    [
        (
            largest("storage"),
            "Input-bound by storage: training reaches 12 % of the emulated accelerator; free storage would make it "
            "2.29 times as fast (estimated).",
        ),
        (
            largest("compute", device="measured", utilization=0.99, speedup=3.31, how="measured"),
            "Compute-bound: training reaches 99 % of compute alone; the loader alone is 3.31 times as fast as "
            "training.",
        ),
        (
            largest("compute", device="measured", utilization=0.99, speedup=3.31, compute_how="estimated"),
            "Compute-bound: training reaches 99 % of compute alone (estimated); the loader alone is 3.31 times as fast "
            "as training (estimated).",
        ),
        (
            bound("imbalance", "slow_rank", **SLOW),
            "Input-bound by rank 1 (node7): all wait for its preprocessing; with a middle rank's input training would "
            "be 3.18 times as fast. By itself, rank 1 loads 37.0 images/s, another rank 114. Training reaches 12 % of "
            "the emulated accelerator.",
        ),
        (
            bound("imbalance", "slow_host", **SLOW_HOST),
            "Input-bound by host node7: 7 of the 8 ranks there are slow, and the others wait for their storage. With "
            "ranks like the slowest elsewhere, training would be up to 3.08 times as fast (estimated). By itself, a "
            "rank there loads 37.0 images/s, the slowest rank elsewhere 114. Training reaches 12 % of the emulated "
            "accelerator.",
        ),
        (
            largest("gradients", gradients_speedup=2.86, compute_speedup=1.4),
            "Compute-bound by the exchange of gradients: without it training would be 2.86 times as fast, with a free "
            "device 1.40 times.",
        ),
        (
            bound("communication", "device_idle", communication_share=0.62),
            "Compute-bound by communication between GPUs: the device does nothing but communicate with other GPUs, or "
            "wait for them, 62 % of the time.",
        ),
        (
            bound("inconclusive", "outside_noise_band", predicted_share=0.69, noise_band=0.1),
            "Inconclusive: training ran at 69 % of its prediction, outside the noise band: the model does not fit "
            "this run.",
        ),
    ],
)
def test_the_sentence_of_a_verdict(each: Bound, words: str) -> None:
    """Subject, verb, figure."""
    assert sentence([each]) == words


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


def test_a_side_without_a_cause_keeps_its_side() -> None:
    """Input-bound stays, and the cause is called inconclusive."""
    found = replace(bound("inconclusive", "within_noise", **SPEEDUP), side="input")
    assert heading(found) == "Input-bound, cause inconclusive"


def test_a_loader_without_a_step_is_no_training() -> None:
    """Its own rate stands in the sentence, in what its batches hold."""
    found = largest("storage", judged="loader")
    assert explanation([found], sample="sample") == (
        "The loader alone delivers 205 samples/s; free storage would make the loader 2.29 times as fast (estimated)."
    )


def test_a_slow_host_of_loaders_without_a_step_slows_no_training() -> None:
    """What gains is the loader."""
    words = explanation([bound("imbalance", "slow_host", **SLOW_HOST, judged="loader")])
    assert "the loader would be up to 3.08 times" in words and "raining" not in words


def test_every_kind_of_ablations_has_words() -> None:
    """Each code is one or two whole sentences."""
    facts = {"in_training": {"rounds": 3.0}, "cannot_matter": {"input": 1.01, "compute": 3.2}}
    for code in get_args(AblationCode):
        assert ablation_words(Ablations(code=code, facts=facts.get(code, {"storage": 2.0}))).endswith(".")


def test_cores_that_others_take_are_said() -> None:
    """Else the limit of the cores, at which nothing else runs, contradicts the verdict."""
    facts = {**SPEEDUP, "resource": "preprocessing", "run_delay_share": 0.49, "own_cores": 1.0, "cores": 2.0}
    words = sentence([bound("cpu", "all_cores_busy", **facts)])
    assert "workers wait 49 % of their time for a core. All of this uses 1 of 2, other processes" in words

"""The sentence of every code: with as few facts as its words ask for, and with those that change the sentence.

So a code without words, or with a fact that none gives a unit, is seen where all sentences are read: fixtures/shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from loaderprobe.records.attached import Attached, SeenLoader, WhyNot
from loaderprobe.records.bandwidth import Limit, LimitCode
from loaderprobe.records.diagnosis import UnknownFilesCode
from loaderprobe.records.environment import Capability, StepCode
from loaderprobe.records.measurement import RejectedCode
from loaderprobe.records.phases import DeviceKind, KindCode
from loaderprobe.records.rank_processes import NotTogether, NotTogetherCode
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import Action, Bound, Evidence, EvidenceCode, How, Reason
from loaderprobe.render.doctor import step_words
from loaderprobe.render.messages import MESSAGES
from loaderprobe.render.watch import not_measured, without_verdict
from loaderprobe.render.words import action_words, explanation, message
from tests.said import said

Facts = dict[str, Any]


def under(kind: str) -> list[str]:
    """The codes of one kind of text, without its name."""
    return [code.removeprefix(f"{kind}.") for code in MESSAGES if code.startswith(f"{kind}.")]


_LOADER = SeenLoader(number=0, dataset="ImageFolder", batch_size=32, workers=2, batches=8, backward_passes=8)
_OTHER = replace(_LOADER, number=1, batch_size=None, workers=0)

# Facts that are words, and figures whose name does not say what they are.
_SAMPLES: Facts = {
    "because": "no_segment", "files": "cold", "resource": "storage", "how": "measured", "judged": "training",
    "input": "preprocessing", "input_how": "measured", "unit": "images/s", "host": "node7", "slow_host": "node7",
    "rank": "1", "device": "emulated", "decoder": "torchvision", "utilization": 0.115, "spread": 0.4, "lead": 1.6,
    "speedup": 2.286, "least_speedup": 1.05, "storage_how": "measured", "preprocessing_how": "estimated",
    "compute_how": "measured", "gradients_how": "measured", "cache": "in_memory", "status": 15.0, "limits": "opens",
    "factor": 4.0, "end": "flat", "hits_low": 0.04, "hits_high": 0.22, "slow_ranks": "7", "host_ranks": "8",
    "noise_band": 0.1, "how_known": "measured", "amplification": 23.1, "reason": "it rained", "error": "it broke",
    "stage": "round 1", "hint": "repair it", "text": "as it is",
    "loader": _LOADER, "loaders": [_LOADER], "ablated": "where_open", "experiments": "of_files", "round": "round 1",
}  # fmt: skip
_ENDS = {
    "share": 0.25, "fraction": 0.25, "bytes_per_s": 20.3e6, "_per_s": 123.4, "bytes": 3.2e6, "_s": 2.5, "_speedup": 1.7,
}  # fmt: skip
_NAMED = (
    "path", "file", "mount", "filesystem", "devices", "subject", "name", "gpu", "gpus", "wrapper", "under",
    "accelerator", "recipe", "data",
)  # fmt: skip

_RATES: Facts = {
    "judged": "training", "images_per_s": 205.0, "loader_images_per_s": 210.0, "compute_images_per_s": 1786.0,
    "utilization": 0.115, "device": "emulated",
}  # fmt: skip
_SPEEDUP: Facts = {"resource": "storage", "speedup": 2.286, "how": "estimated"}
_DISK: Facts = {"read_bytes_per_s": 23.1e6, "ceiling_fraction": 0.74, "concurrency": 2.0}
_SLOW: Facts = {
    "resource": "preprocessing", "rank": "1", "host": "node7", "slow_images_per_s": 37.0, "middle_images_per_s": 114.0,
}  # fmt: skip
_SLOW_HOST: Facts = {
    "resource": "storage", "host": "node7", "slow_ranks": "7", "host_ranks": "8", "slow_images_per_s": 37.0,
    "other_images_per_s": 114.0,
}  # fmt: skip
_INPUT: Facts = {"input": "preprocessing", "input_speedup": 1.7, "input_how": "measured"}
_EXCHANGE: Facts = {"gradients_speedup": 2.86, "compute_speedup": 1.7}
_WAIT: Facts = {"waiting_share": 0.62, "subject": "10.0.0.5:443"}

# (side, cause, candidates, reason, facts) beside those that each code asks for.
_BOUNDS: tuple[tuple[str, str, tuple[str, ...], str, Facts], ...] = (
    ("input", "storage", (), "largest_speedup", {**_SPEEDUP, **_DISK, "files_were": "partly warm"}),
    ("input", "preprocessing", (), "largest_speedup", {"resource": "preprocessing"}),
    ("input", "preprocessing", (), "largest_speedup", {"resource": "preprocessing", "how": "estimated",
                                                       "limit": "unknown"}),
    ("input", "storage", (), "largest_speedup", {**_SPEEDUP, "judged": "loader"}),
    ("input", "transport", (), "largest_speedup", {"resource": "transport", "cold_reads_known_by": "waiting"}),
    *(("input", wait, (), "largest_speedup", {"resource": wait, **_WAIT}) for wait in ("network", "lock", "wait")),
    ("compute", "compute", (), "largest_speedup", {"resource": "compute", "device": "measured", "utilization": 0.99}),
    ("compute", "compute", (), "largest_speedup", {"resource": "compute", "device": "measured", "how": "estimated",
                                                   "compute_how": "estimated"}),
    ("compute", "compute", (), "largest_speedup", {"resource": "compute", **_INPUT}),
    ("compute", "compute", (), "largest_speedup", {"resource": "compute", **_INPUT, "input": "network"}),
    ("compute", "gradients", (), "largest_speedup", {"resource": "gradients", **_EXCHANGE}),
    ("compute", "compute", (), "largest_speedup", {"resource": "compute", **_EXCHANGE}),
    ("input", "storage", (), "largest_speedup", {**_SPEEDUP, "straggler_speedup": 1.23}),
    ("input", "cpu", (), "all_cores_busy", {"resource": "preprocessing"}),
    ("input", "cpu", (), "all_cores_busy", {"run_delay_share": 0.49, "own_cores": 1.0, "cores": 2.0}),
    ("compute", "copy", (), "device_idle", {"copies_from": "pageable memory"}),
    ("compute", "host", (), "device_idle", {}),
    ("compute", "communication", (), "device_idle", {}),
    ("input", "imbalance", (), "slow_rank", _SLOW),
    ("input", "imbalance", (), "slow_rank", {**_SLOW, "resource": "cpu", "judged": "loader"}),
    ("input", "imbalance", (), "slow_rank", {}),
    ("input", "imbalance", (), "slow_host", _SLOW_HOST),
    ("input", "imbalance", (), "slow_host", {**_SLOW_HOST, "slow_ranks": "8", "judged": "loader"}),
    ("input", "either", ("storage", "preprocessing"), "speedups_alike", {}),
    ("compute", "either", ("compute", "gradients"), "speedups_alike", {}),
    ("inconclusive", "either", ("storage", "compute"), "speedups_alike", {}),
    ("input", "either", ("storage", "preprocessing"), "lead_within_spread", {}),
    ("input", "either", ("preprocessing", "storage"), "limit_not_known",
     {"preprocessing_speedup": 3.6, "storage_speedup": 1.3, "preprocessing_how": "estimated"}),
    ("input", "either", ("lock", "wait"), "ranges_meet",
     {"lock_speedup": 2.9, "wait_speedup": 1.6, "lock_how": "estimated", "wait_how": "estimated", "least": 1.9,
      "most": 2.2}),
    ("inconclusive", "either", ("compute", "storage", "preprocessing"), "input_in_parts", {"input_speedup": 2.1}),
    ("balanced", "balanced", (), "no_speedup", {}),
    ("input", "inconclusive", (), "no_speedup", {}),
    ("input", "inconclusive", (), "within_noise", _SPEEDUP),
    ("inconclusive", "inconclusive", (), "ablation_missing", {"resource": "storage", "files": "warm"}),
    ("inconclusive", "inconclusive", (), "estimate_not_measured", _SPEEDUP),
    ("inconclusive", "inconclusive", (), "estimate_too_small", _SPEEDUP),
    ("inconclusive", "inconclusive", (), "files_were_warm", {"because": "always_warm"}),
    ("inconclusive", "inconclusive", (), "slower_without", {"resource": "preprocessing", "activity": "training"}),
    ("inconclusive", "inconclusive", (), "slower_without", {"resource": "storage", "activity": "loader_only"}),
    ("inconclusive", "inconclusive", (), "outside_noise_band", {"judged": "loader"}),
    ("inconclusive", "inconclusive", (), "rounds_disturbed", {**_SPEEDUP, "rounds": 1.0}),
    ("inconclusive", "inconclusive", (), "rounds_disturbed", _SPEEDUP),
)  # fmt: skip

# The same of remarks: what their facts may be besides figures.
_REMARKS: tuple[tuple[str, Facts], ...] = (
    ("workers_without_data", {"idle": 1.0, "workers": 3.0, "busy": 2.0}),
    ("workers_without_data", {"idle": 2.0, "workers": 3.0, "busy": 1.0}),
    ("samples_kept", {"later_per_s": 200.0, "judged": "later"}),
    ("samples_kept", {"judged": "first"}),
    ("cache_unknown", {"because": "on_fuse", "path": "/data"}),
    ("not_published", {"limits": "bandwidth opens_at_size"}),
    ("no_time", {"budget_s": 60.0, "rounds": 3.0}),
    ("ranks_together", {"hosts": 1.0}),
    ("ranks_together", {"ranks": 16.0, "hosts": 2.0}),
    *(("files_hidden", {"because": code}) for code in get_args(UnknownFilesCode)),
    *(("records_rejected", {"because": code}) for code in get_args(RejectedCode)),
    *(("wrapper_left_out", {"because": code}) for code in under("left_out")),
    *(("loop_file", {"cache": code}) for code in under("loop_cache")),
    *(("nvml", {"status": float(status)}) for status in under("error.nvml")),
    ("ranks_in_step", {"exchange": "compute"}),
    ("storage_alone", {"at_least": "yes", "readers": 1.0}),
    ("few_steps", {"steps": 1.0}),
    ("nvml", {"ended_after_s": 3.04}),
    ("failed", {"rank": "1", "host": "node7", "hint": "repair it"}),
    ("first_steps_fed", {"steps": 3.0, "input_share": 0.25, "speedup": 1.333}),
    ("more_cores", {"images_per_s": 349.0, "free_images_per_s": 1783.0, "low_images_per_s": 1500.0,
                    "high_images_per_s": 1800.0, "then": "cores"}),
    ("failed", {}),
    ("storage_missing", {"because": "reported", "reason": "it rained"}),
    ("on_storage", {"read_ahead_bytes": 131072.0}),
    ("gpu_not_read", {"because": "no_gpm"}),
    ("clock_moved", {"clock_s": 67e-6, "most_s": 66e-6}),
    ("waits_alike", {"cold_s": 0.0021, "warm_s": 0.002}),
    ("launches_lost", {"exact_share": 0.0154, "most": 0.01}),
    ("ranks_meet", {"meeting_s": 0.004, "share": 0.08}),
    ("ablated_in_training", {"rounds": 3.0}),
    ("ablations_cannot_matter", {"input": 1.01, "compute": 3.2}),
    ("how_sure", {"level": "low"}),
    ("how_sure", {"level": "medium", "clear": 3, "of": 4, "shown": 2, "low_rounds": 5, "high_rounds": 6,
                  "low_band": 0.085, "high_band": 0.11}),
    *(
        (code, {"storage": 2.0, "preprocessing": 1.1})
        for code in ("ablated", "ablations_not_possible", "ablations_not_needed")
    ),
)  # fmt: skip
_ACTIONS: tuple[tuple[str, Facts], ...] = (
    ("workers", {"workers": 0}),
    ("workers", {"workers": 1}),
    ("files_in_memory", {"share": 1.0, "bytes": 1e9}),
    ("files_in_memory", {"share": 0.28, "bytes": 2.8e9, "hits_low": 0.04, "hits_high": 0.22}),
    ("faster_storage", {"factor": 4.0, "bytes_per_s": 8e7}),
    ("accelerator", {"images_per_s": 920.0, "name": "mlperf-a100"}),
    ("accelerator", {"images_per_s": 920.0, "name": "mlperf-a100", "ranks": 4.0}),
    ("slow_rank", {"rank": 3, "host": "node7"}),
    ("shorter_lock", {"subject": "/a"}),
    ("requests_in_flight", {"workers": 8, "subject": "10.0.0.5:443"}),
)
_MESSAGES: tuple[tuple[str, Facts], ...] = (
    ("script.begins", {"loader": _LOADER, "budget_s": 60.0, "ranks": 2, "others": [_OTHER]}),
    ("script.begins", {"loader": _LOADER, "budget_s": 60.0, "others": [_LOADER, _OTHER]}),
    ("script.no_such_loader", {"asked": 3, "loaders": [_LOADER, _OTHER]}),
    ("script.saved", {"files": "/out/a.pt, /out/b.pt", "more": 7}),
    ("script.was_paused", {"paused_s": 12.0, "place": "validate (train.py)", "budget_s": 60.0}),
    ("seen.place", {"place": "load (train.py)", "share": 0.3, "share_off": 0.02, "most": 1.43}),
    ("seen.thread", {"running_share": 0.7, "storage_share": 0.2}),
    ("sweep_plan.more", {"most_workers": 8}),
    ("sweep_plan.more", {"most_workers": 8, "factors": "factors"}),
)
_LADDER: Facts = {
    "first_readers": 1.0, "first_bytes_per_s": 20e6, "file_s": 0.0057, "knee_readers": 8.0,
    "best_readers": 16.0, "best_bytes_per_s": 104e6, "before_readers": 4.0, "before_bytes_per_s": 60e6,
    "after_readers": 8.0, "after_bytes_per_s": 50e6, "slow_ranks": 7.0, "host_ranks": 8.0,
}  # fmt: skip
_KIND: Facts = {"readers": 32.0, "rise": 4.91, "paced": 1.0, "because": "no_single_reader"}


# Each of these says one sentence of a code with facts.


def _verdict(side: Any, cause: Any, candidates: tuple[str, ...], code: Any, facts: Facts) -> str:
    reason = Reason(code=code, facts={**_RATES, **facts})
    return said(Bound(side=side, cause=cause, candidates=candidates, reason=reason, evidence=()))


def _remark(code: str, facts: Facts) -> str:
    return said(Remark(code=code, facts=facts))


def _action(code: Any, facts: Facts) -> str:
    return action_words(Action(code=code, facts=facts))


def _limit(code: Any, facts: Facts) -> str:
    return said(Limit(by="unknown", knee_readers=None, code=code, facts=facts))


def _with_needed_facts(say: Callable[..., str], *given: Any) -> str:
    """What is said of a code with facts, the last of these, and with as many more facts as are asked for."""
    *code, facts = given
    while True:
        try:
            return say(*code, facts)
        except KeyError as missing:
            name = str(missing.args[0])
            if name in facts or name == "None":
                raise
            facts = {**facts, name: _sample(name)}


def _sample(name: str) -> Any:
    if name in _SAMPLES:
        return _SAMPLES[name]
    if name in _NAMED:
        return f"<{name}>"
    return next((value for end, value in _ENDS.items() if name.endswith(end)), 3.0)


def _all_codes(codes: Iterable[str], rows: Sequence[tuple[str, Facts]]) -> list[tuple[str, Facts]]:
    """The rows, and a row without facts for each other code; by code."""
    return sorted([*((code, {}) for code in codes if code not in dict(rows)), *rows], key=lambda row: row[0])


def _coded() -> Iterator[tuple[str, str]]:
    """Of each reason, also without side and cause above it where samples are counted; of remarks and of actions."""
    given = {code for _, _, _, code, _ in _BOUNDS}
    rest = [("inconclusive", "inconclusive", (), code, {}) for code in under("reason") if code not in given]
    for row in (*_BOUNDS, *rest):
        yield f"verdict {row[3]}", _with_needed_facts(_verdict, *row)
    reason = Reason(code="largest_speedup", facts={**_RATES, **_SPEEDUP, "judged": "loader"})
    alone = Bound(side="input", cause="storage", candidates=(), reason=reason, evidence=())
    yield "of a loader", explanation(alone, sample="sample")
    for code, facts in _all_codes([code for code in MESSAGES if "." not in code], _REMARKS):
        yield f"remark {code}", _with_needed_facts(_remark, code, facts)
    plain: list[tuple[str, Facts]] = [(code, {}) for code in under("action")]
    for code, facts in sorted([*plain, *_ACTIONS], key=lambda row: row[0]):
        yield f"action {code}", _with_needed_facts(_action, code, facts)


def _storage() -> Iterator[tuple[str, str]]:
    for code, end in itertools.product(get_args(LimitCode), ("flat", "rising")):
        if end == "flat" or code.startswith("rises"):
            share = "partly" if code == "from_memory" else 0.25
            yield f"limit {code}", _with_needed_facts(_limit, code, {**_LADDER, "end": end, "share": share})
    for code in get_args(KindCode):
        yield f"kind {code}", said(DeviceKind(kind="unknown", code=code, facts=_KIND, evidence=()))


def _scripts() -> Iterator[tuple[str, str]]:
    """Why a script, or its ranks, were not measured."""
    for why in get_args(WhyNot):
        attached = Attached(pid=1, loaders=(), why_not=why, detail="its own words", hint="its own hint")
        if why != "ranks_apart":
            yield f"script {why}", not_measured(attached)
            continue
        for code in get_args(NotTogetherCode):
            not_together = NotTogether(code=code, ranks=(1, 3), detail="workers, period", hint="its own hint")
            yield f"ranks {code}", not_measured(replace(attached, detail="", hint="", apart=not_together))
    yield "script ended_early", not_measured(Attached(pid=1, loaders=(), why_not="ended_early", endangered="/out/a.pt"))
    follows = [Attached(pid=1, loaders=(), why_not="follows")] * 2
    refused = Attached(pid=1, loaders=(), why_not="ranks_apart", apart=NotTogether(code="ended", ranks=(1,)))
    for processes, code in (((), 0), ((), 137), (follows, 0), ([*follows, refused], 0)):
        yield f"command {code}", " / ".join(without_verdict(processes, code))


def _others() -> Iterator[tuple[str, str]]:
    for metric in get_args(EvidenceCode):
        how: How | None = "estimated" if metric.startswith("speedups") else None
        yield f"evidence {metric}", said(Evidence(metric=metric, value=1.0, threshold=None, unit="", how=how))
    why = Remark(code="cores", facts={"mount": "/mnt", "path": "/data"})
    for kind in ("sweep_plan", "script", "seen", "capability"):
        for code in under(kind):
            yield f"{kind} {code}", _with_needed_facts(message, f"{kind}.{code}", {})
    for code, facts in _MESSAGES:
        yield code.replace(".", " "), message(code, facts)
    for step in get_args(StepCode):
        yield f"step {step}", step_words(Capability(name="cores", state="no", why=(why,), next_step=step))


def words() -> str:
    """A line a sentence."""
    made = itertools.chain(_coded(), _storage(), _scripts(), _others())
    return "".join(f"{name}: {sentence}\n" for name, sentence in made)

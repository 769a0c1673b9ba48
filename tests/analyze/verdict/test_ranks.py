"""Several ranks: what stands beside the cause, and which figures are those of one rank."""

from __future__ import annotations

from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.analyze.verdict.experiments import run_experiments
from loaderprobe.records.verdict import Verdict
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import BATCH
from tests.analyze.verdict.test_truths import ALIKE, DISK, LIMITED, SLEEPING, SLOW


def judged(*arguments: Any, **changes: Any) -> Verdict:
    return verdict(rank_run(*arguments, **changes))


def test_slow_batches_have_prefetching_as_their_remedy() -> None:
    """It gains no less than nothing; not beside an imbalance, nor where two ranks are slow themselves."""
    found = judged(LIMITED, DISK, **{**ALIKE, "alone": (110.0, 111.0)})
    (advice,) = [each for each in found.advice if each.action.code == "prefetch"]
    assert advice.command == "prefetch_factor=8" and advice.after.low == advice.before.value
    two_speeds: dict[str, Any] = {"alone": (110.0, 110.0, 50.0, 50.0), "without": {2: 180.0, 0: 176.0}, "ranks": 4}
    for other in (judged(SLEEPING, **SLOW), judged(LIMITED, DISK, **ALIKE), judged(LIMITED, DISK, **two_speeds)):
        assert "straggler_speedup" not in other.bound.reason.facts
        assert "prefetch" not in {each.action.code for each in other.advice}


def test_rates_leave_out_what_only_some_ranks_did() -> None:
    """Segments without a rank, alone and without gradients change no rate of all ranks."""
    with_all = run_experiments(rank_run(LIMITED, DISK, **ALIKE))
    plain = run_experiments(rank_run(LIMITED, DISK))
    assert with_all.loader == plain.loader and with_all.speedups == plain.speedups
    assert with_all.end_to_end == plain.end_to_end and with_all.how == plain.how


def test_an_image_takes_a_worker_as_long_whatever_the_ranks() -> None:
    """Figures of one worker are those of its own images; the parts of a step sum to the batch of all ranks."""
    one, four = (judged(LIMITED, DISK, ranks=ranks) for ranks in (1, 4))
    assert one.worker_time and four.worker_time
    assert four.worker_time.blocked_s == pytest.approx(one.worker_time.blocked_s)
    spent = four.step_time
    assert spent.wait_s + spent.copy_s + spent.step_s + spent.other_s == pytest.approx(4 * BATCH / 180.0)


def test_the_rank_with_warm_files_is_named() -> None:
    """It hides in the bytes of all."""
    facts = judged(LIMITED, DISK, cold=(1.0, 0.5), **ALIKE).unavailable["speedups.storage"].facts
    assert (facts["rank"], facts["share"]) == ("1", 0.5)

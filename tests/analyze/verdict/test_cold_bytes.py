"""Cold is proved by bytes, for files whose batches are not known, too; and no cold rate exceeds its storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.judge import verdict
from loaderprobe.records.bandwidth import StorageCeiling
from loaderprobe.records.verdict import Verdict
from tests.analyze.runs import FILE_BYTES, Cost, alike, run
from tests.examples.bandwidth import example_phase

WAITING = Cost(cpu_s=0.002, blocked_s=0.02)


def judged(access: str, share: float, rates: Any = None, cost: Cost = WAITING, **facts: Any) -> Verdict:
    """Files read in parts, of which a sample has 100 kB: `share` of that came from storage."""
    known: dict[str, Any] = {"access": access, "modes": ("baseline", "warm"), "sample_bytes": FILE_BYTES, **facts}
    cache = "as-found" if access == "none" else "cold"
    return verdict(run(rates or alike(baseline=90), replace(cost, cold=share), cache=cache, facts=known))


@pytest.mark.parametrize("access", ["parts", "fresh", "none"])
@pytest.mark.parametrize(("share", "were"), [(12.0, "cold"), (0.81, "cold"), (0.5, "partly warm"), (0.01, "warm")])
def test_files_are_what_their_bytes_say(access: str, share: float, were: str) -> None:
    """However their library reads them; below 0.8 of the samples' bytes memory served the rest."""
    assert judged(access, share).files_were == were


@pytest.mark.parametrize("access", ["parts", "fresh", "none"])
@pytest.mark.parametrize("cost", [WAITING, Cost(cpu_s=0.02)], ids=["waiting", "computing"])
def test_rates_that_memory_served_name_no_cause(access: str, cost: Cost) -> None:
    """Neither storage, nor preprocessing, nor cores: with cold files another resource may be the limit."""
    found = judged(access, 0.5, cost=cost)
    assert found.bound.cause == "inconclusive"
    assert found.bound.reason.code == "files_were_warm"
    assert found.bound.reason.facts["share"] == 0.5
    assert judged(access, 1.2, alike(baseline=90, warm=600)).bound.reason.code != "files_were_warm"


def test_what_is_read_in_vain_is_said() -> None:
    """Bytes from storage over bytes of samples; not where memory served some."""
    assert judged("parts", 12.0).read_amplification == 12.0
    assert judged("parts", 0.5).read_amplification is None


@pytest.mark.parametrize(("mb_per_s", "contradicts"), [(5.0, True), (7.0, True), (8.5, False), (100.0, False)])
def test_no_cold_rate_exceeds_what_the_storage_delivers(mb_per_s: float, contradicts: bool) -> None:
    """90 images of 100 kB a second are 9 MB/s: from a slower storage a part of them came from memory."""
    ceiling = StorageCeiling(data="0" * 16, phases=(replace(example_phase(2, mb_per_s * 1e6), cache="cold"),))
    measurement = run(alike(baseline=90, warm=600), WAITING, workers=2)
    found = verdict(measurement, ceiling)
    assert (found.bound.reason.code == "above_ceiling") is contradicts
    if contradicts:
        assert found.bound.cause == "inconclusive"
        facts = found.bound.reason.facts
        assert facts["samples_bytes_per_s"] == pytest.approx(9e6)
        assert facts["ceiling_bytes_per_s"] == mb_per_s * 1e6

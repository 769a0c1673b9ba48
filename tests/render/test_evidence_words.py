"""The figures that a verdict follows from, in words."""

from __future__ import annotations

from typing import get_args

import pytest

from loaderprobe.records.verdict import Evidence, EvidenceCode
from loaderprobe.render.figures import FIGURES, evidence_words


def _words(metric: EvidenceCode) -> str:
    return evidence_words(Evidence(metric=metric, value=1.0, threshold=None, unit=""))


@pytest.mark.parametrize("metric", get_args(EvidenceCode))
def test_every_metric_has_words(metric: EvidenceCode) -> None:
    """Those of the table of figures where it is one of them; never the name of a field."""
    assert "_" not in _words(metric) and "." not in _words(metric)
    words = {each.at: each.words for each in FIGURES}
    assert _words(metric).startswith(words.get(metric, ""))


def test_what_is_known_besides_stands_in_brackets() -> None:
    """How a speed-up is known, and whose threshold it is."""
    speedup = Evidence(metric="speedups.storage", value=2.0, threshold=1.05, unit="x", how="estimated")
    assert evidence_words(speedup) == "speed-up if storage were free (estimated)"
    assert _words("accelerator_utilization") == "compute used (threshold: MLPerf Storage)"

"""Two verdicts on a loader of one's own: the rate of training with it, or of the loader alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.analyze.compare.comparable import Facts, environment_facts
from loaderprobe.analyze.compare.rows import SideRow
from loaderprobe.analyze.effects import Reading
from loaderprobe.analyze.verdict.counted import counted
from loaderprobe.analyze.verdict.rates import rates_by_round
from loaderprobe.analyze.verdict.speedups import judged_activity
from loaderprobe.analyze.verdict.validity import base_mode
from loaderprobe.records.compare import ShortVerdict, Subject
from loaderprobe.records.diagnosis import Findings
from loaderprobe.records.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """A verdict, and the measurement that it follows from."""

    findings: Findings
    measurement: Measurement

    @property
    def reading(self) -> Reading:
        """Images/s, or samples/s, of its rounds that count."""
        found = counted(self.measurement)
        rates = rates_by_round(found, base_mode(found), judged_activity(found))
        return Reading(values=tuple(rates.values()), figure=self.findings.images_per_s)

    @property
    def verdict(self) -> ShortVerdict:
        """Its side and cause."""
        found = self.findings
        return ShortVerdict(side=found.side, cause=found.cause, candidates=found.candidates)


def diagnosis_facts(found: Findings) -> Facts:
    """What it was measured on, and the options of the loader. Which data it has is not known."""
    return {
        **environment_facts(found.origin.environment),
        "ranks": float(found.ranks),
        "workers": float(found.workers),
        "prefetch_factor": float(found.prefetch_factor),
        "batch_size": float(found.batch_size),
        "cache": found.cache,
        "judged": "training" if found.with_step else "the loader alone",
        "counted": found.sample,
        "files_were": found.files_were,
    }


def diagnosis_row(runs: Sequence[Diagnosed]) -> SideRow:
    """The loader, of all runs of a side: inconclusive where their verdicts do not agree."""
    first = runs[0].findings
    verdicts = {each.verdict for each in runs}
    doubt = ShortVerdict(side="inconclusive", cause="inconclusive")
    return SideRow(
        subject=Subject(kind="training" if first.with_step else "loader"),
        unit="images/s" if first.sample == "images" else "samples/s",
        readings=tuple(each.reading for each in runs),
        verdict=verdicts.pop() if len(verdicts) == 1 else doubt,
    )

"""What ranks read from storage in step, as a storage: a ceiling, or at least that; refused where it shows nothing.

A rate that a decoder or a core limited is no supply: it counts only where it beats what else was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loaderprobe.analyze.plan.quantities import known
from loaderprobe.analyze.plan.supply import Offer, OfferLimit
from loaderprobe.analyze.rank_bandwidth import TWO_DOUBLINGS
from loaderprobe.analyze.verdict.disk import NEAR_CEILING
from loaderprobe.records.bandwidth import RISING
from loaderprobe.records.note import Note
from loaderprobe.records.plan_reason import PlanReason
from loaderprobe.records.report import ConfigurationRow
from loaderprobe.records.verdict import Verdict
from loaderprobe.units import join_words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rung:
    ranks: int
    bytes_per_s: float
    """From storage, of all ranks together."""
    by_storage: bool
    """True where storage limited them."""


def rank_offer(rows: Sequence[ConfigurationRow], known_bytes_per_s: float | None = None) -> Offer | PlanReason | None:
    """Of configurations that differ in their ranks only; `known_bytes_per_s` is what else was measured of the storage.

    None for one number of ranks, or where files were not cold; the reason where something else limited the ranks and
    no more is learned from them.
    """
    rungs = sorted(
        (rung for row in rows if row.verdict and (rung := _rung(row.config.ranks, row.verdict))),
        key=lambda each: each.ranks,
    )
    if len({each.ranks for each in rungs}) < 2:
        return None
    last = rungs[-1]
    if not last.by_storage and (known_bytes_per_s is None or last.bytes_per_s <= known_bytes_per_s):
        return PlanReason(code="ranks_not_storage", facts={"ranks": last.ranks, "bytes_per_s": last.bytes_per_s})
    early = max((each for each in rungs if each.ranks * TWO_DOUBLINGS <= last.ranks), key=_ranks, default=None)
    ended = early is not None and last.bytes_per_s < RISING * early.bytes_per_s and last.by_storage
    tried = join_words([str(each) for each in sorted({each.ranks for each in rungs})])
    source = f"{tried} ranks that load in step"
    facts: dict[str, float | str] = {"ranks": last.ranks, "next": 2 * last.ranks}
    return Offer(
        name=f"by {last.ranks} ranks of this run",
        label="measured",
        source=source,
        limits=(
            OfferLimit(
                resource="bandwidth",
                quantity=known(last.bytes_per_s, "B/s", "measured", source),
                at_least=not ended,
            ),
        ),
        notes=() if ended else (Note(code="ranks_at_least", facts=facts),),
    )


def _ranks(rung: _Rung) -> int:
    return rung.ranks


def _rung(ranks: int, verdict: Verdict) -> _Rung | None:
    rate, size = verdict.rates_images_per_s.loader, verdict.bytes_per_image
    if not rate or not size or verdict.files_were != "cold":
        return None
    near = (verdict.disk_ceiling_fraction or 0.0) >= NEAR_CEILING or verdict.bound.cause == "storage"
    return _Rung(ranks=ranks, bytes_per_s=rate * size * (verdict.read_amplification or 1.0), by_storage=near)

"""`plan`: what N accelerators need of storage, what limits it first, what to test. Measures nothing, needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from math import ceil
from typing import Any

from loaderprobe import __version__
from loaderprobe.analyze.plan.plan import Made, make_plan
from loaderprobe.analyze.plan.supply import Offer, catalogue_offer, given_offer
from loaderprobe.api import plan_values as values
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.api.load import Run
from loaderprobe.api.plan_source import find
from loaderprobe.api.shown import ShownRecord
from loaderprobe.api.values import PathLike
from loaderprobe.errors import BadValue
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.plan import USE, UTILIZATION, Asked, CacheAsked, CatalogueEntry, PlanReport
from loaderprobe.records.trace import TraceReport
from loaderprobe.render.document import Document
from loaderprobe.render.exhibit import Exhibit
from loaderprobe.render.plan import need_columns, plan_document
from loaderprobe.render.plan_charts import exhibits
from loaderprobe.render.plan_words import answer
from loaderprobe.storage.catalogue import catalogue, entry_named, published
from loaderprobe.units import parse_bytes

MOST_ACCELERATORS = 1e7


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(ShownRecord, PlanReport):
    """The storage plan: needs, supplies, epochs, levers, its inputs, the acceptance test. Shows itself."""

    def headline(self) -> str:
        """What the accelerators need, in a sentence."""
        return answer(self)[0]

    def document(self) -> Document:
        """The answer first, then its inputs and assumptions."""
        return plan_document(self)

    def exhibits(self) -> Mapping[str, Sequence[Exhibit]]:
        """The needs, what storage gives and epochs, drawn."""
        return exhibits(self)

    def made_by(self) -> str:
        """The version of the tool, and of the plan's schema."""
        return f"loaderprobe {self.loaderprobe}, {self.schema} {self.schema_version}"

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """One row a need, units in a column."""
        return need_columns(self)


def plan(
    run: Run | BandwidthReport | Diagnosis | TraceReport | PathLike,
    *,
    accelerators: int | str = 8,
    kind: str | float | None = None,
    utilization: float | str | None = None,
    per_node: int | str = 8,
    nic: float | str | None = None,
    storage: str | Iterable[str] = (),
    use: float | str | None = None,
    cache: str = "none",
    layout: str = "folder",
    data: str | None = None,
    images: float | str | None = None,
    mean_size: float | str | None = None,
    epochs: int | str = 90,
    growth: float | str = 1,
    simulate_ranks: int | str | None = None,
) -> Plan:
    """Plan storage for `accelerators` from a sweep, a result of `run`, `bandwidth` or `trace`, or the path of one.

    `kind` is `measured`, the name of an accelerator, or its images/s; without it, the run's fastest. `utilization`
    (0.9) is the share of their rate that the accelerators shall reach, `use` (0.8) the share of a storage's limits
    that one dares to use. `storage` names entries of the catalogue with their size (`fsx-lustre-250:24TiB`) or
    gives figures (`5GB/s,60kopens/s,2ms,1.5GB/s/client`). `cache` is of one node: `page:1TB`, `pinned:1TB`.
    `layout` is `folder` or `shards:IMAGES`. `data` chooses a data set of the run; `images` and `mean_size` replace
    what was measured of it. `simulate_ranks` replays the run's batches for that many ranks that take each step
    together, at several prefetch factors.

    Raises BadValue for what cannot be planned from, and for impossible values; MissingPart for a broken plug-in.
    """
    today = datetime.now(UTC)
    asked = Asked(
        accelerators=_grown(accelerators, growth),
        utilization=UTILIZATION if utilization is None else values.share(utilization, "--utilization"),
        utilization_given=utilization is not None,
        use=USE if use is None else values.share(use, "--use"),
        use_given=use is not None,
        per_node=values.count(per_node, "--per-node", most=MOST_ACCELERATORS),
        nic_bytes_per_s=None if nic is None else values.byte_rate(nic, "--nic"),
        images_per_file=values.layout(layout),
        epochs=values.count(epochs, "--epochs", most=100_000),
        growth=values.factor(growth, "--growth"),
        cache=values.cache(cache),
        simulate_ranks=None
        if simulate_ranks is None
        else values.count(simulate_ranks, "--simulate-ranks", most=MOST_ACCELERATORS),
        today=today.date().isoformat(),
    )
    offers = offers_of([storage] if isinstance(storage, str) else list(storage), today.date())
    file_bytes = None if mean_size is None else values.size(mean_size, "--mean-size")
    found = find(run, data, None if kind is None else str(kind), file_bytes)
    workload = found.workload.changed(
        images=None if images is None else values.count(images, "--images", most=values.MOST), file_bytes=file_bytes
    )
    _check_cache(asked.cache, workload.images is None)
    made = Made(loaderprobe=__version__, created_utc=today.isoformat(timespec="seconds"))
    offers = [*([found.by_ranks] if found.by_ranks else []), *offers]
    return Plan.of(make_plan(workload, asked, offers, found.source, made, _rulers(today.date())))


def _grown(accelerators: int | str, growth: float | str) -> int:
    """Accelerators once they have grown; a part of one counts as one."""
    now = values.count(accelerators, "--accelerators", most=MOST_ACCELERATORS)
    return ceil(round(now * values.factor(growth, "--growth"), 6))


def offers_of(texts: list[str], today: date) -> list[Offer]:
    """The storages that `--storage` names. Raises BadValue."""
    entries = catalogue() if any(not each[:1].isdigit() for each in texts) else ()
    return [_offer(each.strip(), entries, today) for each in texts]


def _rulers(today: date) -> list[Offer]:
    """What NVIDIA asks of storage for one unit of a DGX SuperPOD."""
    entry = next(each for each in published() if each.name == "superpod")
    offers = {tier.name: catalogue_offer(entry, f"{entry.name}-{tier.name}", 1.0, today) for tier in entry.tiers}
    return [replace(offer, name=f"SuperPOD {tier}", limits=offer.limits[:1]) for tier, offer in offers.items()]


def _offer(text: str, entries: tuple[CatalogueEntry, ...], today: date) -> Offer:
    if text[:1].isdigit():
        return given_offer(text, values.storage_figures(text))
    name, colon, bought = text.partition(":")
    entry = entry_named(entries, name)
    return catalogue_offer(entry, name, _bought(entry, bought) if colon else None, today)


def _bought(entry: CatalogueEntry, text: str) -> float:
    """The size that is bought, in the unit of the entry. Raises BadValue."""
    if entry.unit == "TiB":
        return parse_bytes(text) / 2**40
    number = text.removesuffix(entry.unit).strip()
    return float(values.count(number, f"--storage {entry.name}:"))


def _check_cache(cache: CacheAsked, unknown_set: bool) -> None:
    if cache.kind != "none" and unknown_set:
        raise BadValue("a cache is compared with the size of the set, which is not known", hint="add --images")

"""What changes on a page where one thing about a result is other: the lines that go, and those that come.

Of made-up results in 200 columns, so that a paragraph is a line. Kept as fixtures/shown/variants.txt.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from loaderprobe.analyze.answer import answered
from loaderprobe.records.bandwidth import BandwidthReport, DeviceKind
from loaderprobe.records.config import StudyPlan, SweepPlan
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Bottleneck, Bound, Cause, Interval, Reason, Side, Speedup
from loaderprobe.render.bandwidth import bandwidth_document
from loaderprobe.render.document import Document
from loaderprobe.render.first import first_screen
from loaderprobe.render.sweep_plan_words import sweep_plan_words
from loaderprobe.render.writers import document_text
from tests.examples.bandwidth import (
    example_bandwidth,
    example_feed,
    example_operations,
    example_phase,
    example_rank_bandwidth,
    example_ranks,
)
from tests.examples.reports import example_report, example_row

Variants = Iterator[tuple[str, str]]
_WIDTH = 200


def _changed(usual: Document, other: Document) -> str:
    """The lines that are only in one of them."""
    before, after = (document_text(each, width=_WIDTH).splitlines() for each in (usual, other))
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    return "\n".join(line.rstrip() for line in lines if not line.startswith("@@"))


# Storage.


def _on(found: BandwidthReport, **changes: Any) -> BandwidthReport:
    return replace(found, location=replace(found.location, **changes))


def _one_phase(**changes: Any) -> BandwidthReport:
    return replace(example_bandwidth(), phases=(example_phase(4, 204e6, **changes),), missing=())


def _bandwidth() -> Variants:
    usual, snow = example_bandwidth(), Remark(code="quoted", facts={"text": "it snowed"})
    unproved: dict[str, Any] = {"cache": "unproved", "cold_fraction": None}
    several = tuple(
        example_phase(readers, 1e8, notes=(snow,) * (readers < 4), other_bytes_per_s=readers * 10e6)
        for readers in (1, 2, 4)
    )
    wholes: dict[str, BandwidthReport] = {
        "a kind that is known": replace(usual, kind=DeviceKind(kind="token_bucket", code="token_bucket", evidence=())),
        "interrupted in the ladder": replace(usual, interrupted=True, phases=usual.phases[:3], missing=()),
        "notes of several phases": replace(usual, phases=several),
        "dropped caches": replace(usual, drop_caches=True),
        "too few files": replace(
            usual,
            missing=(Missing(name="files", reason=Remark(code="too_few_files", facts={"files": 40, "readers": 64})),),
        ),
    }  # fmt: skip
    yield "bandwidth", document_text(bandwidth_document(usual), width=_WIDTH)
    for name, found in wholes.items():
        yield f"bandwidth, {name}", _changed(bandwidth_document(usual), bandwidth_document(found))
    phases: dict[str, BandwidthReport] = {
        "without an interval": _one_phase(settled=False, bw_low=204e6, bw_high=204e6),
        "from memory": _one_phase(cache="warm", cold_fraction=0.0),
        "partly from memory": _one_phase(cache="mixed", cold_fraction=0.62),
        "held before": _one_phase(**unproved, resident_before=0.4),
        "a scratch file": replace(_one_phase(block_bytes=131072), scratch=True, images=False),
        "unread files": _one_phase(unread={"vanished": 3}),
        "other processes": _one_phase(other_bytes_per_s=12.5e6),
        "a fall": _one_phase(last_third_bw_bytes=120e6),
        "processes": _one_phase(engine="processes"),
    }  # fmt: skip
    counts: dict[str, dict[str, Any]] = {
        "a third of one": {"count": 0.374},
        "opens": {"first_limit": "opens"},
    }  # fmt: skip
    for name, changes in counts.items():
        feed = replace(example_feed("mlperf-a100", 919.5, 2.87), **changes)
        phases[f"accelerators, {name}"] = replace(_one_phase(), feeds=(feed,))
    for name, found in phases.items():
        yield f"one phase, {name}", _changed(bandwidth_document(_one_phase()), bandwidth_document(found))


def _opens() -> Variants:
    slow = {1: 310.0, 16: 3120.0}

    def opened(*phases: Any, **location: Any) -> BandwidthReport:
        return _on(replace(example_bandwidth(), metadata=tuple(phases)), **location)

    usual = example_operations(slow)
    warm: dict[str, Any] = {"metadata": "warm", "drops": 0}
    fuse: dict[str, Any] = {"kind": "fuse", "devices": ()}
    unproved = [replace(each, metadata="unproved", storage_bytes=None) for each in usual]
    cases: dict[str, BandwidthReport] = {
        "warm": opened(*example_operations(slow, **warm)),
        "not proved": opened(*unproved),
        "at least": opened(*example_operations(slow, at_least=True)),
        "short": opened(*example_operations(slow, at_least=True, short=True)),
        "FUSE": opened(*example_operations(slow, **warm), **fuse),
        "calls to a server": opened(
            *(replace(each, storage_bytes=None, server_calls=2 * each.total_ops) for each in usual)
        ),
    }  # fmt: skip
    plain = bandwidth_document(opened(*usual))
    yield "opens", _changed(bandwidth_document(example_bandwidth()), plain)
    yield from ((f"opens, {name}", _changed(plain, bandwidth_document(found))) for name, found in cases.items())


def _rank_bandwidth() -> Variants:
    one, most = example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6)
    slow = example_rank_bandwidth(one, most)
    many = example_ranks(*[1e6 + rank for rank in range(1024)], nodes=128)
    cases: dict[str, BandwidthReport] = {
        "many": example_rank_bandwidth(many),
        "a slow host": example_rank_bandwidth(one, example_ranks(7e6, 6.8e6, 4e6, 4.2e6, nodes=2)),
    }
    yield "bandwidth of ranks", document_text(bandwidth_document(slow), width=_WIDTH).rstrip()
    for name, found in cases.items():
        yield f"bandwidth of ranks, {name}", _changed(bandwidth_document(slow), bandwidth_document(found))


# The first page of a sweep.


def _limited(
    side: Side, cause: Cause, *candidates: str, code: Any = "largest_speedup", **changes: Any
) -> ConfigurationRow:
    bound = Bound(side=side, cause=cause, candidates=candidates, reason=Reason(code=code, facts={}), evidence=())
    return example_row(**{"bound": bound, **changes})


def _little(cause: Cause = "preprocessing", side: Side = "input", **changes: Any) -> ConfigurationRow:
    """A row with this cause, of which storage is worth 4 %."""
    speedups = example_row().verdict.speedups  # type: ignore[union-attr]  # it was measured
    storage = Speedup(value=changes.pop("storage", 1.04), low=1.0, high=1.1, how="measured")
    return _limited(side, cause, speedups=replace(speedups, storage=storage), **changes)


def _rate(value: float, half: float) -> Interval:
    return Interval(value=value, low=max(0.0, value - half), high=value + half)


def _then() -> Report:
    """Two data sets, of which storage would limit one next."""
    report = example_report([_little("cpu", resolution=name) for name in ("500x375", "1024x768")])
    then: tuple[Bottleneck, ...] = ("compute", "storage")
    details = tuple(replace(d, then={"preprocessing": t}) for d, t in zip(report.details, then, strict=True))
    return answered(replace(report, details=details))


def _first_pages() -> Variants:
    nothing: tuple[Side, Cause] = ("inconclusive", "inconclusive")
    rows: dict[str, list[ConfigurationRow]] = {
        "several causes": [
            _limited("input", "storage", workers=0), _limited("input", "preprocessing", workers=2),
            _limited("input", "cpu", workers=4),
        ],
        "not conclusive, short of time": [_limited(*nothing, code="estimate_not_measured")],
        "a CPU": [_limited("compute", "compute", compute="cpu", emulated=False)],
        "warm files": [_limited("input", "cpu", cache="warm")],
        "storage, or preprocessing": [_limited("input", "either", "storage", "preprocessing", workers=4)],
        "storage is worth 4 %": [_little("cpu", disk_read_bytes_per_s=3.12e6)],
        "storage with one rank only": [_little(), _little("inconclusive", "inconclusive", ranks=2)],
        "ranks with other loaders": [
            _little(images_per_s=_rate(381, 2), workers=2), _little(images_per_s=_rate(402, 2), workers=1, ranks=2),
        ],
        "one not measured": [_little(), _little(status="skipped", reason="no time left", workers=4)],
    }  # fmt: skip
    reports: dict[str, Report] = {name: example_report(some) for name, some in rows.items()}
    reports["storage is the next limit"] = _then()
    two = example_report([_little(), _little(resolution="500x375")])
    _, second = two.summary.needs
    missing = replace(second, supply=None, missing=Remark(code="no_ceiling", facts={}))
    reports |= {
        "no rate of storage": replace(two, summary=replace(two.summary, needs=(missing,))),
    }
    for name, found in reports.items():
        yield f"first page, {name}", _first_page(found)


def _first_page(report: Report) -> str:
    """The answer, the map, the best settings, what to do next, and what accelerators need."""
    return document_text(Document(title="", sections=tuple(first_screen(report))), width=_WIDTH).strip()


# What a sweep is about to measure.


def _sweep_plans() -> Variants:
    studies = (
        StudyPlan(study="prefilled", configurations=2, each_s=20.0),
        StudyPlan(study="epochs", configurations=1, each_s=40.0, epochs=2, images=6000, set_bytes=690_000_000,
                  images_per_s=300.0),
    )  # fmt: skip
    for count in (3, 0):
        plan = SweepPlan(configurations=count, expected_s=60.0, least_s=24.0, budget_s=None, thorough=False, rounds=3,
                         beside=studies)  # fmt: skip
        yield f"a plan of {count}, and of studies", "\n".join(sweep_plan_words(plan))


def variants() -> str:
    """Each under its name."""
    every: tuple[Callable[[], Variants], ...] = (
        _bandwidth, _opens, _rank_bandwidth, _first_pages, _sweep_plans,
    )  # fmt: skip
    return "".join(f"{'=' * 80}\n{name}\n\n{text.rstrip()}\n" for each in every for name, text in each())

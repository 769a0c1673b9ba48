"""What changes on a page where one thing about a result is other: the lines that go, and those that come.

Of made-up results in 200 columns, so that a paragraph is a line. Kept as fixtures/shown/variants.txt.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from loaderprobe.analyze.answer import answered
from loaderprobe.analyze.bandwidth import judge_bandwidth
from loaderprobe.records.bandwidth import BandwidthMeasurement, BandwidthReport, DeviceKind
from loaderprobe.records.config import StudyPlan, SweepPlan
from loaderprobe.records.measurement import Missing
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.verdict import Bottleneck, Bound, Cause, Interval, Reason, Side, Speedup
from loaderprobe.render.bandwidth import bandwidth_document
from loaderprobe.render.document import Document
from loaderprobe.render.first_page import first_screen
from loaderprobe.render.forecast_words import forecast_words
from loaderprobe.render.sweep import sweep_document
from loaderprobe.render.sweep_plan_words import sweep_plan_words
from loaderprobe.render.writers import document_text
from tests.examples.bandwidth import (
    example_bandwidth,
    example_feed,
    example_latency,
    example_operations,
    example_phase,
    example_rank_bandwidth,
    example_ranks,
)
from tests.examples.reports import example_report, example_row, with_changes

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
        "some of the files": replace(usual, files_used=200),
        "a kind that is known": replace(usual, kind=DeviceKind(kind="token_bucket", code="token_bucket", evidence=())),
        "no images": replace(usual, images=False, feeds=(), path="/data/shards"),
        "nothing measured": replace(usual, phases=(), missing=(), feeds=()),
        "interrupted in the ladder": replace(usual, interrupted=True, phases=usual.phases[:3], missing=()),
        "interrupted after it": replace(usual, interrupted=True, phases=usual.phases[:7], missing=()),
        "one more accelerator": replace(usual, feeds=(*usual.feeds, example_feed("v100-amp", 1200.0, 2.2))),
        "blocks of a large file": replace(
            usual,
            phases=(*usual.phases, example_phase(16, 340e6, name="sequential", block_bytes=1 << 20)),
        ),
        "notes of several phases": replace(usual, phases=several),
        "a note of all": replace(usual, notes=(snow,)),
        "NFS": _on(usual, notes=(Remark(code="nfs"),)),
        "dropped caches": replace(usual, drop_caches=True),
        "too few files": replace(
            usual,
            missing=(Missing(name="files", reason=Remark(code="too_few_files", facts={"files": 40, "readers": 64})),),
        ),
        "no opens": replace(usual, missing=(Missing(name="metadata", reason=Remark(code="opens_of_blocks")),)),
    }  # fmt: skip
    yield "bandwidth", document_text(bandwidth_document(usual), width=_WIDTH)
    for name, found in wholes.items():
        yield f"bandwidth, {name}", _changed(bandwidth_document(usual), bandwidth_document(found))
    phases: dict[str, BandwidthReport] = {
        "not settled": _one_phase(settled=False, bw_low=154e6, bw_high=254e6),
        "without an interval": _one_phase(settled=False, bw_low=204e6, bw_high=204e6),
        "from memory": _one_phase(cache="warm", cold_fraction=0.0),
        "partly from memory": _one_phase(cache="mixed", cold_fraction=0.62),
        "not proved": _one_phase(**unproved),
        "held before": _one_phase(**unproved, resident_before=0.4),
        "a file system in memory": _on(_one_phase(**unproved), kind="memory", filesystem="tmpfs", devices=()),
        "a network": _on(_one_phase(), kind="network", devices=()),
        "FUSE": _on(_one_phase(), kind="fuse", devices=()),
        "for an hour": _one_phase(runtime=3.6e6),
        "a scratch file": replace(_one_phase(block_bytes=131072), scratch=True, images=False),
        "blocks of what is no image": replace(_one_phase(block_bytes=1 << 20), images=False, feeds=()),
        "read calls": _one_phase(file_ns=None, clat_ns=example_latency(7.7e-3)),
        "other shares": _one_phase(file_ns=example_latency(2e-3), cold_fraction=0.97),
        "unread files": _one_phase(unread={"vanished": 3}),
        "other processes": _one_phase(other_bytes_per_s=12.5e6),
        "a fall": _one_phase(last_third_bw_bytes=120e6),
        "more bytes than asked": _one_phase(amplification=1.32),
        "processes": _one_phase(engine="processes"),
        "trifles": _one_phase(last_third_bw_bytes=170e6, other_bytes_per_s=5e6, amplification=1.05),
    }  # fmt: skip
    counts: dict[str, dict[str, Any]] = {
        "a third of one": {"count": 0.374}, "thousands": {"count": 2873.0}, "at least": {"at_least": True},
        "opens": {"first_limit": "opens"}, "other limits": {"use": 0.7, "utilization": 0.95},
    }  # fmt: skip
    for name, changes in counts.items():
        feed = replace(example_feed("mlperf-a100", 919.5, 2.87), **changes)
        phases[f"accelerators, {name}"] = replace(_one_phase(), feeds=(feed,))
    for name, found in phases.items():
        yield f"one phase, {name}", _changed(bandwidth_document(_one_phase()), bandwidth_document(found))


def _opens() -> Variants:
    slow, quick = {1: 310.0, 16: 3120.0}, {1: 330.0, 4: 1250.0, 16: 3300.0}

    def opened(*phases: Any, **location: Any) -> BandwidthReport:
        return _on(replace(example_bandwidth(), metadata=tuple(phases)), **location)

    usual, stats = example_operations(slow), example_operations(quick, "stat")
    warm: dict[str, Any] = {"metadata": "warm", "drops": 0}
    fuse: dict[str, Any] = {"kind": "fuse", "devices": ()}
    memory: dict[str, Any] = {"kind": "memory", "devices": ()}
    unproved = [replace(each, metadata="unproved", storage_bytes=None) for each in usual]
    cases: dict[str, BandwidthReport] = {
        "stats, too": opened(*usual, *stats),
        "warm": opened(*example_operations(slow, **warm)),
        "warm although dropped": opened(*example_operations(slow, metadata="warm")),
        "not proved": opened(*unproved),
        "at least": opened(*example_operations(slow, at_least=True)),
        "short": opened(*example_operations(slow, at_least=True, short=True)),
        "cold beside faster warm ones": opened(*usual, *example_operations({64: 1e5}, metadata="warm")),
        "warm stats": opened(*usual, *example_operations({4: 9e4}, "stat", metadata="warm")),
        "many": opened(*example_operations({1: 371_234.0})),
        "in memory": opened(*example_operations(slow, **warm), **memory),
        "FUSE": opened(*example_operations(slow, **warm), **fuse),
        "FUSE, not proved": opened(*unproved, **fuse),
        "a network, not proved": opened(*unproved, kind="network", devices=()),
        "calls to a server": opened(
            *(replace(each, storage_bytes=None, server_calls=2 * each.total_ops) for each in usual)
        ),
    }  # fmt: skip
    plain = bandwidth_document(opened(*usual))
    yield "opens", _changed(bandwidth_document(example_bandwidth()), plain)
    yield from ((f"opens, {name}", _changed(plain, bandwidth_document(found))) for name, found in cases.items())


def _rank_bandwidth() -> Variants:
    one, most = example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6)
    slow, rates = example_rank_bandwidth(one, most), {"mlperf-h100": 400 / 0.224}
    short = replace(most, by_rank=tuple(replace(each, seconds=0.1) for each in most.by_rank))
    many = example_ranks(*[1e6 + rank for rank in range(1024)], nodes=128)
    cases: dict[str, BandwidthReport] = {
        "alike": example_rank_bandwidth(one, example_ranks(10.2e6, 10e6), example_ranks(*[5.1e6] * 4)),
        "on four nodes": example_rank_bandwidth(example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6, nodes=4)),
        "for a moment": example_rank_bandwidth(one, short),
        "until the last is done": example_rank_bandwidth(one, example_ranks(*[5e6] * 4, runtime=15_000.0)),
        "accelerators": judge_bandwidth(_measured(slow), rates, slow.origin),
        "many": example_rank_bandwidth(many),
        "a slow host": example_rank_bandwidth(one, example_ranks(7e6, 6.8e6, 4e6, 4.2e6, nodes=2)),
    }
    yield "bandwidth of ranks", document_text(bandwidth_document(slow), width=_WIDTH).rstrip()
    for name, found in cases.items():
        yield f"bandwidth of ranks, {name}", _changed(bandwidth_document(slow), bandwidth_document(found))


def _measured(report: BandwidthReport) -> BandwidthMeasurement:
    return BandwidthMeasurement(**{field.name: getattr(report, field.name) for field in fields(BandwidthMeasurement)})


def _judged_again() -> Variants:
    """A ladder that is flat, with its accelerators counted."""
    report = replace(example_bandwidth(), phases=(example_phase(1, 60e6), example_phase(8, 59e6)), missing=())
    judged = judge_bandwidth(_measured(report), {"mlperf-h100": 400 / 0.224}, report.origin)
    yield "a flat ladder", _changed(bandwidth_document(report), bandwidth_document(judged))


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
    sets = ("256x256", "500x375")
    rows: dict[str, list[ConfigurationRow]] = {
        "one cause everywhere": [_limited("input", "cpu", workers=n, resolution=name) for n in (2, 4) for name in sets],
        "cores busy from other numbers on": [
            _limited("input", "preprocessing", workers=2, resolution="256x256"),
            _limited("input", "cpu", workers=4, resolution="256x256"),
            _limited("input", "cpu", workers=2, resolution="500x375"),
        ],
        "several causes": [
            _limited("input", "storage", workers=0), _limited("input", "preprocessing", workers=2),
            _limited("input", "cpu", workers=4),
        ],
        "not conclusive, short of time": [_limited(*nothing, code="estimate_not_measured")],
        "not conclusive, a misfit": [_limited(*nothing, code="outside_noise_band")],
        "one that is not": [
            _limited("input", "storage"), _limited(*nothing, code="estimate_not_measured", workers=8),
        ],
        "a CPU": [_limited("compute", "compute", compute="cpu", emulated=False)],
        "a CPU, not conclusive": [_limited(*nothing, code="estimate_not_measured", compute="cpu", emulated=False)],
        "warm files": [_limited("input", "cpu", cache="warm")],
        "storage, or preprocessing": [_limited("input", "either", "storage", "preprocessing", workers=4)],
        "storage, and perhaps another": [
            _limited("input", "storage"), _limited("input", "either", "storage", "preprocessing", workers=4),
        ],
        "storage is worth 4 %": [_little("cpu", disk_read_bytes_per_s=3.12e6)],
        "storage is worth 0.2 %": [_little("cpu", storage=1.002, disk_read_bytes_per_s=3.12e6)],
        "storage is worth 0.6 %": [_little("cpu", storage=1.006, disk_read_bytes_per_s=3.12e6)],
        "storage far below its ceiling": [_little("storage", disk_read_bytes_per_s=3.12e6)],
        "storage near its ceiling": [_little("storage", disk_read_bytes_per_s=28e6)],
        "storage with one rank only": [_little(), _little("inconclusive", "inconclusive", ranks=2)],
        "storage with all ranks": [_little(), _little(ranks=2)],
        "limited by storage with all ranks": [_little("storage"), _little("storage", ranks=2)],
        "storage on a CPU": [_little(compute="cpu", emulated=False), _little("inconclusive", "inconclusive")],
        "storage on a CPU and beside it": [_little(compute="cpu", emulated=False), _little()],
        "ranks gain nothing beyond noise": [
            _little(images_per_s=_rate(142, 50)), _little(images_per_s=_rate(185, 103), ranks=2),
        ],
        "ranks gain": [_little(images_per_s=_rate(142, 10)), _little(images_per_s=_rate(185, 9), ranks=2)],
        "ranks with other loaders": [
            _little(images_per_s=_rate(381, 2), workers=2), _little(images_per_s=_rate(402, 2), workers=1, ranks=2),
        ],
        "models on a CPU, one GPU and two": [
            _little(
                "compute", "compute", compute=compute, emulated=False, ranks=ranks, model=model,
                images_per_s=_rate(value, half),
            )
            for model, compute, ranks, value, half in (
                ("mlp", "cpu", 1, 900, 20), ("mlp", "cuda", 1, 2200, 90), ("vgg16", "cpu", 1, 0.41, 0.01),
                ("vgg16", "cuda", 1, 310, 4), ("mlp", "cuda", 2, 2150, 80), ("vgg16", "cuda", 2, 590, 8),
            )
        ],
        "a rate that is noise": [_little(images_per_s=_rate(463, 639), workers=0)],
        "noise beside a sound rate": [
            _little(images_per_s=_rate(463, 639), workers=0), _little(images_per_s=_rate(400, 20), workers=1),
        ],
        "one not measured": [_little(), _little(status="skipped", reason="no time left", workers=4)],
        "two measured, one not": [
            _little(), _little(workers=1), _little(status="skipped", reason="no time left", workers=4),
        ],
        "a specified rate": [_little(status="failed", reason="it broke", compute="emulated:300")],
    }  # fmt: skip
    reports: dict[str, Report] = {name: example_report(some) for name, some in rows.items()}
    reports["storage is the next limit"] = _then()
    two = example_report([_little(), _little(resolution="500x375")])
    first, second = two.summary.needs
    missing = replace(second, supply=None, missing=Remark(code="no_ceiling", facts={}))
    reports |= {
        "a rate of storage for one of two": replace(two, summary=replace(two.summary, needs=(first, missing))),
        "no rate of storage": replace(two, summary=replace(two.summary, needs=(missing,))),
    }
    for name, found in reports.items():
        yield f"first page, {name}", _first_page(found)


def _with_runs(**changes: Any) -> Report:
    report = example_report()
    run = replace(report.summary.run, **changes)
    return replace(report, summary=replace(report.summary, run=run))


def _sweeps() -> Variants:
    """Whole pages."""
    usual = example_report()
    shared = [example_row(workers=workers) for workers in (1, 2, 4)]
    assert shared[0].bound
    facts = {**shared[0].bound.reason.facts, "utilization": 0.4, "speedup": 2.0}
    other = replace(shared[0].bound, reason=Reason(code="largest_speedup", facts=facts))
    note = Remark(code="quoted", facts={"text": "the CPU drifted by 8 %"})
    took = Remark(code="others_took", facts={"share": 0.38, "cores": 2.0, "segments": 4, "of": 12})
    machine = usual.summary.environment
    machine = replace(machine, storage=(replace(machine.storage[0], read_ahead_bytes=2560 * 1024),))
    reports: dict[str, Report] = {
        "interrupted": _with_runs(complete=False, pending=3),
        "a note of all": replace(usual, details=tuple(replace(each, notes=(note,)) for each in usual.details)),
        "other processes": _with_runs(notes=(took,)),
        "read-ahead": replace(usual, summary=replace(usual.summary, environment=machine)),
    }
    for name, found in reports.items():
        yield f"sweep, {name}", _changed(sweep_document(usual), sweep_document(found))
    some: dict[str, list[ConfigurationRow]] = {
        "rows that share a sentence": [shared[0], with_changes(shared[1], bound=other), shared[2]],
        "shares of compute": [
            example_row(accelerator_utilization=share, workers=workers)
            for workers, share in enumerate((0.39, 1.0, 1.02, 1.09, 1.37, None))
        ],
        "data sets in a row": [example_row(resolution=name) for name in ("256x256", "500x375", "1024x768")],
        "precision": [example_row(precision="fp16", batch_size=batch) for batch in (32, 64)],
        "all failed": [example_row(status="failed", reason="it broke")],
        "nothing": [],
    }
    for name, rows in some.items():
        yield f"sweep, {name}", document_text(sweep_document(example_report(rows)), width=_WIDTH).rstrip()


def _first_page(report: Report) -> str:
    """The answer, the map, the best settings, what to do next, and what accelerators need."""
    return document_text(Document(title="", sections=tuple(first_screen(report))), width=_WIDTH).strip()


def _advice() -> Variants:
    (advice, *_) = example_row().advice
    before = _rate(200.0, 5.0)
    for name, after in {
        "sure": Interval(value=400.0, low=320.0, high=480.0), "wide": Interval(value=400.0, low=260.0, high=480.0),
        "perhaps worse": Interval(value=400.0, low=1.0, high=480.0),
    }.items():  # fmt: skip
        made = replace(advice, before=before, after=after, speedup=2.0)
        yield f"advice, {name}", f"{forecast_words([made])}\n{forecast_words([made, made])}"


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
        _bandwidth, _opens, _rank_bandwidth, _judged_again, _sweeps, _first_pages, _advice, _sweep_plans,
    )  # fmt: skip
    return "".join(f"{'=' * 80}\n{name}\n\n{text.rstrip()}\n" for each in every for name, text in each())

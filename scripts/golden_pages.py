"""Results that no fixture holds, as they are shown: `pages` in 80 columns, and what `variants` of a page change on it.

They are made up, each for lines that no stored result shows; `example` has every kind of verdict. A variant is the
lines that go and those that come where one thing about a result is other, in 200 columns: a paragraph is a line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, get_args

from loaderprobe.analyze.batch_size import Throughput, limit_at, together
from loaderprobe.analyze.report import build_report
from loaderprobe.api.batch_size import search
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.batch_size import BatchSizeReport, BatchSizeStop, StopCode, StrategyName
from loaderprobe.records.compare import Compared, ComparedSide, ComparisonReport, Gate, Subject
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import Measurement, Missing, RunFailure
from loaderprobe.records.phases import DeviceKind
from loaderprobe.records.remark import Coded, Facts, Remark, reported
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.studies import BufferEffect, EpochFigures, Epochs, ShortRun, over_steady
from loaderprobe.records.verdict import Interval, SideAndCause, Speedup
from loaderprobe.render.bandwidth import bandwidth_document
from loaderprobe.render.batch_size import batch_size_document
from loaderprobe.render.compare import compare_document
from loaderprobe.render.document import Document
from loaderprobe.render.first import first_screen
from loaderprobe.render.terminal import document_text
from loaderprobe.render.words import sweep_plan_words
from loaderprobe.testing import FakeClock, example_config
from tests.analyze.runs import FILES, Cost, alike, rank_run
from tests.batch_sizes import ScriptedProber
from tests.examples.bandwidth import (
    example_bandwidth,
    example_operations,
    example_phase,
    example_rank_bandwidth,
    example_ranks,
)
from tests.examples.reports import example_report, example_row, html_report, terminal_report
from tests.fakes import example_environment
from tests.stored import failure

Pages = Iterator[tuple[str, str]]
ORIGIN = Origin(created_utc="2026-11-22T10:00:00+00:00", command="loaderprobe", environment=example_environment())
_WIDTH = 200


def _around(value: float, share: float = 0.01) -> Interval:
    return Interval(value=value, low=value * (1 - share), high=value * (1 + share))


# Ranks: a slow one of many, beside even ones; and one that failed.

_DISK = {"training": 180.0, "baseline": 176.0, "warm": 338.0, "cached_samples": 185.0, "no_transport": 181.0}
_SLEEPING = {"training": 88.0, "baseline": 86.0, "warm": 90.0, "cached_samples": 868.0, "no_transport": 88.0}


def _even() -> Measurement:
    without = {0: 340.0, 1: 343.0}
    cost = Cost(blocked_s=0.05)
    return rank_run(alike(**_DISK), cost, alone=(88.0, 88.5), workers=2, compute=600.0, without=without)


def _uneven(ranks: int = 12) -> Measurement:
    alone, without = [37.0 if rank == 7 else 114.0 + rank for rank in range(ranks)], {7: 229.0, 0: 72.0}
    return rank_run(alike(**_SLEEPING), Cost(), ranks=ranks, nodes=4, alone=alone, workers=2, without=without)


def _report_on(*measured: Measurement | RunFailure) -> Report:
    return build_report(
        name="ranks", created_utc="2026-11-21T07:00:00+00:00", command="loaderprobe sweep --ranks 1,2",
        environment=example_environment(), files=[FILES], results=[(outcome.config, outcome) for outcome in measured],
        ceilings={},
    )  # fmt: skip


def _ranks() -> Pages:
    failed = failure(
        _even().config, "a worker was killed", stage="round 1: baseline loader_only", exit_code=None, signal="SIGKILL",
        rank=1, host="node7",
    )  # fmt: skip
    yield "a rank that failed", terminal_report(_report_on(failed))


# Studies beside verdicts.


def _effect(factor: int, workers: int, most: float = 9.0, **changes: Any) -> BufferEffect:
    """A measured one, exactly as the formula has it."""
    free = workers * factor - (workers - 1) / 2
    counts = (10, 20, 50, 100, 200)
    usual: dict[str, Any] = {
        "batches": workers * factor,
        "free": free,
        "how": "measured",
        "runs": tuple(ShortRun(iterations=count, over_steady=over_steady(count, free, most)) for count in counts),
        "most": most,
        "enough": 1 if most <= 1.02 else ceil(51 * free),
    }
    return BufferEffect(**{**usual, **changes})


def _epochs(**changes: Any) -> Epochs:
    """Three of a set that fits."""
    usual: dict[str, Any] = {
        "epochs": (
            EpochFigures(images_per_s=312.4, cold_fraction=0.98),
            EpochFigures(images_per_s=480.0, cold_fraction=0.4),
            EpochFigures(images_per_s=690.0, cold_fraction=0.0),
        ),
        "set_bytes": 580_000_000,
        "memory_bytes": 4_200_000_000,
        "fit": "fits",
        "whole_set_bytes": 580_000_000.0,
    }
    return Epochs(**{**usual, **changes})


def _with_buffer(workers: int, factor: int, **changes: Any) -> ConfigurationRow:
    return example_row(workers=workers, prefetch_factor=factor, buffer=_effect(factor, workers, **changes))


def _studied() -> Report:
    rows = [_with_buffer(2, 2), _with_buffer(8, 4), _with_buffer(8, 2, how="estimated")]
    return example_report([*rows, example_row(epochs=_epochs())])


def _studies() -> Pages:
    plain = EpochFigures(images_per_s=1.0, cold_fraction=None)
    epochs: tuple[dict[str, Any], ...] = (
        {},
        {"fit": "fits in part", "memory_bytes": 290_000_000},
        {"reason": reported("the worker was killed"), "epochs": ()},
        {"memory_bytes": None, "fit": None},
        {"epochs": (replace(plain, cold_fraction=0.5),)},
        {"epochs": (plain,)},
        {"whole_set_bytes": 2e9},
        {"whole_set_bytes": 42e9},
    )
    rows = [example_row(epochs=_epochs(**changes), seed=n) for n, changes in enumerate(epochs)]
    yield "epochs", terminal_report(example_report(rows))
    never = [example_row(workers=0, buffer=None), _with_buffer(8, 2, most=1.003), _with_buffer(8, 4, most=1.003)]
    text = terminal_report(example_report(never))
    yield "short benchmarks, compute-bound", text[text.index("Short benchmarks") :]


# Searches for a batch size.


def _searched(rate: Any, *, most: int = 256, fits_up_to: int | None = None, data: str = "") -> BatchSizeReport:
    prober = ScriptedProber(rate=rate, noise=0.01, fits_up_to=fits_up_to, utilization=lambda size: size / 256)
    probes, stop = search(Throughput(most=most), prober.probe, clock=FakeClock())
    return BatchSizeReport(
        origin=ORIGIN, model="net", device="a device", image_size=None if data else 32, precision="fp32",
        strategy="throughput", data=data, workers=2 if data else None, dataset_images=1000, most=most,
        memory_limit_bytes=300_000_000, utilization_of="gpu", probes=probes, stop=stop,
        at_chosen=together([probe for probe in probes if probe.batch_size == stop.chosen]),
        limit=limit_at(stop.chosen, probes, most=most, loaded=bool(data)),
    )  # fmt: skip


def _batch_sizes() -> Pages:
    even, rising = _searched(lambda size: 100.0), _searched(float, fits_up_to=40)
    cases = {
        "compute limits": _searched(lambda size: 100 * min(1.0, size / 16)),
        "memory limits": rising,
        "the most limits": _searched(float, most=64),
        "not judged": replace(_searched(lambda size: 100.0, data="/data"), no_findings=reported("no time")),
        "noise": replace(even, at_chosen=replace(even.at_chosen, images_per_s=_around(100.0, 0.2))),
    }
    for name, report in cases.items():
        yield f"batch-size, {name}", document_text(batch_size_document(report))
    ends: list[tuple[StopCode, StrategyName]] = [(code, "throughput") for code in get_args(StopCode)]
    for code, strategy in (*ends[:1], (ends[0][0], "epoch-time"), *ends[1:]):
        stop = BatchSizeStop(code=code, chosen=rising.stop.chosen, left=0.25)
        ended = replace(rising, stop=stop, strategy=strategy)
        text = document_text(batch_size_document(ended))
        yield f"batch-size, {code}, {strategy}", text.partition("\n\nSizes that were tried")[0]


# Comparisons.


def _compared(ratio: float = 1.0, *, workers: int = 1, **changes: Any) -> Compared:
    config = example_config(workers=workers, compute="emulated:1000")
    storage = SideAndCause(side="input", cause="storage")
    row = Compared(
        subject=Subject(kind="configuration", name=config.key, config=config), unit="images/s",
        before=_around(200.0, 0.02), after=_around(200.0 * ratio, 0.02), rounds=(3, 3),
        ratio=Interval(value=ratio, low=0.98 * ratio, high=1.02 * ratio), p=0.01, visible=0.021, rounds_needed=None,
        word="slower" if ratio < 0.95 else "faster" if ratio > 1.05 else "same",
        reason="beyond_noise" if abs(ratio - 1) > 0.05 else "within_size", verdict_before=storage,
        verdict_after=storage,
    )  # fmt: skip
    return replace(row, **changes)


def _comparison(*rows: Compared, gates: Sequence[Gate] = ()) -> str:
    side = ComparedSide(paths=("runs/a",), created_utc=("2026-11-21T07:00:00",), command="loaderprobe sweep",
                        environment=None, roots=("/data",))  # fmt: skip
    report = ComparisonReport(
        origin=ORIGIN, kind="sweep", matters=0.05, before=side, after=side, rows=rows, whole=None, only_before=(),
        only_after=(), differences=(), gates=tuple(gates), notes=(),
    )  # fmt: skip
    return document_text(compare_document(report))


def _comparisons() -> Pages:
    changed = _compared(workers=4, verdict_after=SideAndCause(side="compute", cause="compute"))
    noisy = _compared(1.0, workers=8, word="unclear", reason="too_noisy", visible=0.3, rounds_needed=8)
    same, slower = _compared(), _compared(0.8, workers=2)
    yield "compare, all of it", _comparison(same, slower, _compared(1.3, workers=3), changed, noisy)
    passed = Gate(name="slower", passed=True, rows=(), blind=1)
    failed = Gate(name="unclear", passed=False, rows=(1,), missing=2)
    yield "compare, gates", _comparison(same, slower, gates=(passed, failed))


# Variants: the page as it is with a name of its own, and what others change on it.


def _changed(usual: Document, changed: Document) -> str:
    """The lines that are only in one of them."""
    before, after = (document_text(document, width=_WIDTH).splitlines() for document in (usual, changed))
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]
    return "\n".join(line.rstrip() for line in lines if not line.startswith("@@"))


def _variants_of(name: str, usual: BandwidthReport, variants: Mapping[str, BandwidthReport]) -> Pages:
    for variant, report in variants.items():
        yield f"{name}, {variant}", _changed(bandwidth_document(usual), bandwidth_document(report))


def _one_phase(**changes: Any) -> BandwidthReport:
    return replace(example_bandwidth(), phases=(example_phase(4, 204e6, **changes),), missing=())


def _bandwidth() -> Pages:
    usual, snow = example_bandwidth(), Remark(code="quoted", facts={"text": "it snowed"})
    few = Missing(name="files", reason=Remark(code="too_few_files", facts={"files": 40, "readers": 64}))
    several = tuple(
        example_phase(readers, 1e8, notes=(snow,) * (readers < 4), other_bytes_per_s=readers * 10e6)
        for readers in (1, 2, 4)
    )
    yield "bandwidth", document_text(bandwidth_document(usual), width=_WIDTH)
    wholes = {
        "a kind that is known": replace(usual, kind=DeviceKind(kind="token_bucket", code="token_bucket", evidence=())),
        "interrupted in the ladder": replace(usual, interrupted=True, phases=usual.phases[:3], missing=()),
        "notes of several phases": replace(usual, phases=several),
        "dropped caches": replace(usual, drop_caches=True),
        "too few files": replace(usual, missing=(few,)),
    }
    yield from _variants_of("bandwidth", usual, wholes)
    phases = {
        "without an interval": _one_phase(settled=False, bw_low=204e6, bw_high=204e6),
        "from memory": _one_phase(cache="warm", cold_fraction=0.0),
        "partly from memory": _one_phase(cache="mixed", cold_fraction=0.62),
        "held before": _one_phase(cache="unproved", cold_fraction=None, resident_before=0.4),
        "a scratch file": replace(_one_phase(block_bytes=131072), scratch=True, images=False),
        "unread files": _one_phase(unread={"vanished": 3}),
        "other processes": _one_phase(other_bytes_per_s=12.5e6),
        "a fall": _one_phase(last_third_bw_bytes=120e6),
        "processes": _one_phase(engine="processes"),
    }
    yield from _variants_of("one phase", _one_phase(), phases)


def _opens() -> Pages:
    slow, usual = {1: 310.0, 16: 3120.0}, example_bandwidth()
    phases = example_operations(slow)
    plain = replace(usual, metadata=phases)
    unproved = tuple(replace(phase, metadata="unproved", storage_bytes=None) for phase in phases)
    called = tuple(replace(phase, storage_bytes=None, server_calls=2 * phase.total_ops) for phase in phases)
    cases = {
        "not proved": replace(usual, metadata=unproved),
        "short": replace(usual, metadata=example_operations(slow, at_least=True, short=True)),
        "FUSE": replace(
            usual, metadata=example_operations(slow, metadata="warm", drops=0),
            location=replace(usual.location, kind="fuse", devices=()),
        ),
        "calls to a server": replace(usual, metadata=called),
        "partly from memory": replace(usual, metadata=(phases[0], replace(phases[1], metadata="warm"))),
    }  # fmt: skip
    yield "opens", _changed(bandwidth_document(usual), bandwidth_document(plain))
    yield from _variants_of("opens", plain, cases)


def _rank_bandwidth() -> Pages:
    one_rank, four_ranks = example_ranks(20e6), example_ranks(6.9e6, 6.8e6, 6.8e6, 4e6)
    slow = example_rank_bandwidth(one_rank, four_ranks)
    many = example_ranks(*[1e6 + rank for rank in range(1024)], nodes=128)
    cases = {
        "many": example_rank_bandwidth(many),
        "a slow host": example_rank_bandwidth(one_rank, example_ranks(7e6, 6.8e6, 4e6, 4.2e6, nodes=2)),
    }
    yield "bandwidth of ranks", document_text(bandwidth_document(slow), width=_WIDTH).rstrip()
    yield from _variants_of("bandwidth of ranks", slow, cases)


def _limited(cause: str, *, side: str = "input", storage: float = 1.04, **changes: Any) -> ConfigurationRow:
    """A row with this cause, of which storage is worth 4 %."""
    row = example_row()
    assert row.verdict
    worth = Speedup(value=storage, low=1.0, high=1.1, how="measured")
    bound = replace(row.verdict.bound, side=side, cause=cause, candidates=(), evidence=())  # type: ignore[arg-type]
    bound = replace(bound, reason=replace(bound.reason, code="largest_speedup", facts={}))
    return example_row(**{"bound": bound, "speedups": {**row.verdict.speedups, "storage": worth}, **changes})


def _first_pages() -> Pages:
    """The answer, the map, the best settings, what to do next, and what accelerators need."""
    usual = example_row().verdict
    assert usual
    alike = _limited("preprocessing")
    slower, faster = (Interval(value=rate, low=rate - 2, high=rate + 2) for rate in (381.0, 402.0))
    cases = {
        "a CPU": [_limited("compute", side="compute", compute="cpu", emulated=False, speedups=usual.speedups)],
        "warm files": [_limited("cpu", cache="warm", speedups=usual.speedups)],
        "storage with one rank only": [alike, _limited("inconclusive", side="inconclusive", ranks=2)],
        "ranks with other loaders": [
            _limited("preprocessing", images_per_s=slower, workers=2),
            _limited("preprocessing", images_per_s=faster, workers=1, ranks=2),
        ],
    }
    for name, rows in cases.items():
        screen = Document(title="", sections=tuple(first_screen(example_report(rows))))
        yield f"first page, {name}", document_text(screen, width=_WIDTH).strip()


def _sweep_plans() -> Pages:
    """What a sweep is about to measure."""
    studies = (
        Coded(code="prefilled", facts={"configurations": 2, "each_s": 20.0}),
        Coded(code="epochs", facts={"configurations": 1, "each_s": 40.0, "epochs": 2, "images": 6000,
                                    "set_bytes": 690_000_000, "images_per_s": 300.0}),
    )  # fmt: skip
    facts: Facts = {"configurations": 3, "rounds": 3, "expected_s": 60.0, "open_s": 0.0}
    facts |= {"ablated": "where_open", "experiments": "of_files"}
    usual = [Coded(code=code, facts=facts) for code in ("configurations", "time")]
    for count, parts in ((3, usual), (0, [Coded(code="verdicts_measured")])):
        yield f"a plan of {count}, and of studies", "\n".join(sweep_plan_words([*parts, *studies]))


def _listed(*parts: Pages) -> str:
    return "".join(f"{'=' * 80}\n{name}\n\n{text.rstrip()}\n" for part in parts for name, text in part)


EXAMPLES = {
    "example.html": lambda: html_report(example_report()),
    "example-ranks.html": lambda: html_report(_report_on(_uneven(), _even())),
    "example-studies.html": lambda: html_report(_studied()),
    "pages.txt": lambda: _listed(_ranks(), _studies(), _batch_sizes(), _comparisons()),
    "variants.txt": lambda: _listed(_bandwidth(), _opens(), _rank_bandwidth(), _first_pages(), _sweep_plans()),
}
"""What is kept, by its file."""

"""Results that no fixture holds, as they are shown: causes, refusals, uneven ranks, searches that end in other ways.

They are made up; `example` is one report with every kind of verdict, in every format. The others are a page of text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from loaderprobe.analyze.batch_size import Throughput, by_size, limit_at, together
from loaderprobe.analyze.plan.plan import make_plan
from loaderprobe.analyze.report import build_report
from loaderprobe.measure.batch_size import search
from loaderprobe.records.batch_size import BatchSizeReport, BatchSizeStop, StopCode, StrategyName
from loaderprobe.records.compare import Compared, ComparedSide, ComparisonReport, Gate, Subject
from loaderprobe.records.environment import Origin
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.records.plan import CacheAsked, CheckpointAsked
from loaderprobe.records.remark import reported
from loaderprobe.records.report import Report
from loaderprobe.records.studies import EpochFigures
from loaderprobe.records.verdict import Interval, ShortVerdict
from loaderprobe.render.batch_size import batch_size_document
from loaderprobe.render.compare import compare_document
from loaderprobe.render.plan import plan_document
from loaderprobe.render.writers import document_text
from loaderprobe.testing import FakeClock, ScriptedProber, example_config, example_environment
from scripts.golden_variants import variants
from tests.analyze.rank_runs import rank_run
from tests.analyze.runs import FILES, Cost, alike
from tests.examples.plan import (
    MADE,
    SOURCE,
    example_asked,
    example_plan,
    example_storage,
    example_workload,
)
from tests.examples.reports import example_report, example_row
from tests.examples.studies import example_effect, example_epochs
from tests.pages import html_report, terminal_report

ORIGIN = Origin(created_utc="2026-11-22T10:00:00+00:00", command="loaderprobe", environment=example_environment())


def _around(value: float, share: float = 0.01) -> Interval:
    return Interval(value=value, low=value * (1 - share), high=value * (1 + share))


# Ranks: a slow one of many, even ones beside one, on more nodes, and one that failed.

_DISK: dict[str, Any] = {
    "training": 180.0,
    "baseline": 176.0,
    "warm": 338.0,
    "cached_samples": 185.0,
    "no_transport": 181.0,
}
_SLEEPING: dict[str, Any] = {
    "training": 88.0,
    "baseline": 86.0,
    "warm": 90.0,
    "cached_samples": 868.0,
    "no_transport": 88.0,
}
_WAITING = Cost(blocked_s=0.05)


def _even(**changes: Any) -> Measurement:
    without: dict[str, Any] = {"without": {0: 340.0, 1: 343.0}}
    return rank_run(alike(**_DISK), _WAITING, alone=(88.0, 88.5), workers=2, compute=600.0, **without, **changes)


def _uneven(ranks: int = 12) -> Measurement:
    alone, without = [37.0 if rank == 7 else 114.0 + rank for rank in range(ranks)], {7: 229.0, 0: 72.0}
    return rank_run(alike(**_SLEEPING), Cost(), ranks=ranks, nodes=4, alone=alone, workers=2, without=without)


def _report_on(*measured: Measurement | RunFailure) -> Report:
    return build_report(
        name="ranks", created_utc="2026-11-21T07:00:00+00:00", command="loaderprobe sweep --ranks 1,2",
        environment=example_environment(), files=[FILES], results=[(each.config, each) for each in measured],
        ceilings={},
    )  # fmt: skip


def _ranks() -> Iterator[tuple[str, str]]:
    failed = RunFailure(
        config=_even().config, stage="round 1: baseline loader_only", reason="a worker was killed", hint="",
        exit_code=None, signal="SIGKILL", log=(), started_utc="", wall_s=1.0, rank=1, host="node7",
    )  # fmt: skip
    reports = {
        "a rank that failed": _report_on(failed),
    }
    yield from ((name, terminal_report(report)) for name, report in reports.items())


# Studies beside verdicts.


def _studied() -> Report:
    rows = [
        example_row(workers=workers, prefetch_factor=factor, buffer=example_effect(factor, workers, how=how))
        for factor, workers, how in ((2, 2, "measured"), (4, 8, "measured"), (2, 8, "estimated"))
    ]
    return example_report([*rows, example_row(epochs=example_epochs())])


def _studies() -> Iterator[tuple[str, str]]:
    plain = EpochFigures(images_per_s=1.0, cold_fraction=None)
    epochs: dict[str, dict[str, Any]] = {
        "fits": {},
        "in part": {"fit": "fits in part", "memory_bytes": 290_000_000},
        "not measured": {"reason": reported("the worker was killed"), "epochs": ()},
        "memory unknown": {"memory_bytes": None, "fit": None},
        "not cold": {"epochs": (replace(plain, cold_fraction=0.5),)},
        "not counted": {"epochs": (plain,)},
        "whole set fits": {"whole_set_bytes": 2e9},
        "whole set is larger": {"whole_set_bytes": 42e9},
    }
    rows = [example_row(epochs=example_epochs(**changes), seed=n) for n, changes in enumerate(epochs.values())]
    yield "epochs", terminal_report(example_report(rows))
    effects: dict[str, Sequence[tuple[int, int, dict[str, Any]]]] = {
        "two factors": [(2, 2, {}), (2, 8, {}), (4, 8, {})],
        "within noise": [(1, 8, {"noise": 0.3})],
        "estimated": [(2, 8, {"how": "estimated", "reason": reported("99 images are too few")})],
        "compute-bound": [(2, 8, {"most": 1.003}), (4, 8, {"most": 1.003})],
    }
    for name, some in effects.items():
        rows = [
            example_row(workers=workers, prefetch_factor=factor, buffer=example_effect(factor, workers, **changes))
            for factor, workers, changes in some
        ]
        text = terminal_report(example_report([example_row(workers=0), *rows]))
        yield f"short benchmarks, {name}", text[text.index("Short benchmarks") :]


# Searches.


def _searched(rate: Any, *, most: int = 256, fits_up_to: int | None = None, data: str = "") -> BatchSizeReport:
    prober = ScriptedProber(rate=rate, noise=0.01, fits_up_to=fits_up_to, utilization=lambda size: size / 256)
    probes, stop = search(Throughput(most=most), prober, clock=FakeClock())
    return BatchSizeReport(
        origin=ORIGIN, model="net", device="a device", image_size=None if data else 32, precision="fp32",
        strategy="throughput", data=data, workers=2 if data else None, dataset_images=1000, most=most,
        memory_limit_bytes=300_000_000, utilization_of="gpu", probes=probes, stop=stop,
        at_chosen=together([each for each in probes if each.batch_size == stop.chosen]),
        limit=limit_at(stop.chosen, probes, most=most, loaded=bool(data)),
    )  # fmt: skip


def _batch_sizes() -> Iterator[tuple[str, str]]:
    even, rising = _searched(lambda size: 100.0), _searched(float, fits_up_to=40)
    cases: dict[str, BatchSizeReport] = {
        "compute limits": _searched(lambda size: 100 * min(1.0, size / 16)),
        "memory limits": rising,
        "the most limits": _searched(float, most=64),
        "not judged": replace(_searched(lambda size: 100.0, data="/data"), no_findings=reported("no time")),
        "noise": replace(even, at_chosen=replace(even.at_chosen, images_per_s=_around(100.0, 0.2))),
    }
    for name, found in cases.items():
        yield f"batch-size, {name}", document_text(batch_size_document(found, by_size(found.probes)))
    strategies: tuple[StrategyName, ...] = ("throughput", "epoch-time")
    for code, strategy in itertools.product(get_args(StopCode), strategies):
        stop = BatchSizeStop(code=code, chosen=rising.stop.chosen, left=0.25)
        ended = replace(rising, stop=stop, strategy=strategy)
        text = document_text(batch_size_document(ended, by_size(rising.probes)))
        yield f"batch-size, {code}, {strategy}", text.partition("\n\nSizes that were tried")[0]


# Comparisons.


def _compared(ratio: float = 1.0, *, workers: int = 1, **changes: Any) -> Compared:
    config, storage = (
        example_config(workers=workers, compute="emulated:1000"),
        ShortVerdict(side="input", cause="storage"),
    )
    row = Compared(
        subject=Subject(kind="configuration", name=config.key, config=config), unit="images/s",
        before=_around(200.0, 0.02), after=_around(200.0 * ratio, 0.02), rounds=(3, 3),
        ratio=Interval(value=ratio, low=0.98 * ratio, high=1.02 * ratio), p=0.01, visible=0.021, rounds_needed=None,
        word="slower" if ratio < 0.95 else "faster" if ratio > 1.05 else "same",
        reason="beyond_noise" if abs(ratio - 1) > 0.05 else "within_size", verdict_before=storage,
        verdict_after=storage,
    )  # fmt: skip
    return replace(row, **changes)


def _comparisons() -> Iterator[tuple[str, str]]:
    side = ComparedSide(paths=("runs/a",), created_utc=("2026-11-21T07:00:00",), command="loaderprobe sweep",
                        environment=None, roots=("/data",))  # fmt: skip
    compute = ShortVerdict(side="compute", cause="compute")
    noisy = _compared(1.0, workers=8, word="unclear", reason="too_noisy", visible=0.3, rounds_needed=8)
    gates = (
        Gate(name="slower", passed=True, rows=(), blind=1),
        Gate(name="unclear", passed=False, rows=(1,), missing=2),
    )
    cases: dict[str, tuple[Sequence[Compared], dict[str, Any]]] = {
        "all of it": ([_compared(), _compared(0.8, workers=2), _compared(1.3, workers=3),
                       _compared(workers=4, verdict_after=compute), noisy], {}),
        "gates": ([_compared(), _compared(0.8, workers=2)], {"gates": gates}),
    }  # fmt: skip
    for name, (rows, changes) in cases.items():
        found = ComparisonReport(
            origin=ORIGIN, kind="sweep", matters=0.05, before=side, after=side, rows=tuple(rows), whole=None,
            only_before=(), only_after=(), differences=(), gates=(), notes=(),
        )  # fmt: skip
        yield f"compare, {name}", document_text(compare_document(replace(found, **changes)))


# Plans.


def _plans() -> Iterator[tuple[str, str]]:
    full = example_plan(
        asked=replace(example_asked(), cache=CacheAsked(kind="page", bytes=75e9), nic_bytes_per_s=12.5e9)
    )
    stale = replace(full.supplies[1], label="published", stale=True, read_on="2025-01-01", source="a page")
    nothing: dict[str, Any] = {"cpu_s": None, "wait_s": None, "storage": None, "images": None}
    cases = {
        "full": full,
        "one accelerator": example_plan(asked=example_asked(1)),
        "nothing measured": example_plan(example_workload(**nothing)),
        "at least": example_plan(example_workload(storage=example_storage(at_least=True))),
        "with checkpoints": example_plan(
            asked=replace(example_asked(8), checkpoint=CheckpointAsked(bytes=2e9, every_s=1800))
        ),
        "stale": replace(full, supplies=(stale,)),
        "enough": make_plan(example_workload(1.0), example_asked(2), [], SOURCE, MADE),
    }
    yield from ((f"plan, {name}", document_text(plan_document(plan))) for name, plan in cases.items())


def pages() -> str:
    """Each under its name, in 80 columns."""
    every = (_ranks, _studies, _batch_sizes, _comparisons, _plans)
    return "".join(f"{'=' * 80}\n{name}\n\n{text.rstrip()}\n" for each in every for name, text in each())


EXAMPLES = {
    "example.html": lambda: html_report(example_report()),
    "example-ranks.html": lambda: html_report(_report_on(_uneven(), _even())),
    "example-studies.html": lambda: html_report(_studied()),
    "pages.txt": pages,
    "variants.txt": variants,
}
"""What is kept, by its file."""

"""What a report adds to verdicts: scaling, the next limit, and short benchmarks from a full buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loaderprobe.analyze.answer import answered, layout_notes, speedup_of, with_warm_notes
from loaderprobe.analyze.report import buffer_effect, enough, next_limits
from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.records.files import Staged
from loaderprobe.records.remark import Remark
from loaderprobe.records.report import ConfigurationRow, Report
from loaderprobe.records.studies import Prefilled, over_steady
from loaderprobe.records.verdict import (
    Action,
    ActionCode,
    Cause,
    Interval,
    Reason,
    ReasonCode,
    Side,
    Speedup,
    Verdict,
    WorkerTime,
)
from loaderprobe.render.words import knee_words, remark_words
from tests.analyze.scripted import Truth, measured
from tests.examples.reports import CAUSES, STORED, example_report, example_row, with_changes, with_details


def _row(rate: float, compute: str = "cuda", half: float = 1.0, **options: Any) -> ConfigurationRow:
    figure = Interval(value=rate, low=rate - half, high=rate + half)
    emulated = compute.startswith("emulated")
    return example_row(images_per_s=figure, compute=compute, emulated=emulated, **{"cache": "warm", **options})


def _value(speedup: Interval | None) -> float | None:
    return None if speedup is None else speedup.value


def with_speedups(**speedups: float | Speedup | None) -> Verdict:
    """161 images/s of 2 workers on an emulated H100, mostly waiting for storage."""
    made = example_row().verdict
    assert made
    found = {
        name: Speedup(value=value, low=value, high=value, how="measured") if isinstance(value, float) else value
        for name, value in speedups.items()
    }
    return replace(made, speedups=made.speedups | found)  # type: ignore[arg-type]  # names as of resources


def _stored(speedup: float, high: float) -> ConfigurationRow:
    """Of cold files, with this speed-up if storage were free."""
    storage = Speedup(value=speedup, low=speedup, high=high, how="measured")
    return example_row(speedups=with_speedups(storage=storage).speedups)


def _in(layout: str, rate: float, half: float = 1.0, **options: Any) -> ConfigurationRow:
    resolution = "500x375" if layout == "files" else f"500x375 {layout}"
    return _row(rate, half=half, layout=layout, resolution=resolution, **options)


def _by(loader: str, rate: float) -> ConfigurationRow:
    return _row(rate, loader=loader)


NO_GAIN = (None, None, None)
BOTH = {"data": "500x375", "layouts": "tar and lmdb"}
ONE = {"data": "500x375", "layouts": "tar"}
ADDED: dict[str, dict[str, tuple[list[ConfigurationRow], list[Any]]]] = {
    # Speed-up over fewer ranks, its efficiency over what there is more of (GPUs, or nodes of CPUs), and speed-up over
    # the CPU. A specified rate is compared with no other.
    "scaling": {
        "two GPUs": ([_row(100), _row(180, ranks=2)], [NO_GAIN, (1.8, 0.9, None)]),
        "the fewest count": ([_row(180, ranks=2), _row(270, ranks=4)], [NO_GAIN, (1.5, 0.75, None)]),
        "ranks share cores": ([_row(100, "cpu"), _row(90, "cpu", ranks=2)], [NO_GAIN, (0.9, 0.9, None)]),
        "nodes do not": ([_row(100, "cpu"), _row(150, "cpu", ranks=2, nodes=2)], [NO_GAIN, (1.5, 0.75, None)]),
        "a CPU beside": (
            [_row(20, "cpu"), _row(100), _row(180, ranks=2)], [NO_GAIN, (None, None, 5.0), (1.8, 0.9, 9.0)],
        ),
        "too noisy": ([_row(100, half=60), _row(180, ranks=2)], [NO_GAIN, NO_GAIN]),
        "emulated": ([_row(20, "cpu"), _row(100, "emulated:100")], []),
        "emulated ranks": (
            [_row(20, "cpu"), _row(100, "emulated:100"), _row(150, "emulated:100", ranks=2)],
            [NO_GAIN, (1.5, 0.75, None)],
        ),
        "one configuration a device": ([_row(100, workers=1), _row(180, workers=4)], []),
        "one of a data set": ([_row(100), _row(180, resolution="256x256")], []),
    },
    # The layout or loader that surely gains most over files, or torch's; over the slowest where those were not
    # measured; of the same images only.
    "change": {
        "of three layouts": (
            [_in("files", 100), _in("tar", 210), _in("parquet", 150)], [("other_layout", "tar", "files")],
        ),
        "without files": ([_in("lmdb", 50), _in("tar", 210), _in("parquet", 150)], [("other_layout", "tar", "lmdb")]),
        "within noise": ([_in("files", 100), _in("tar", 103)], []),
        "bands overlap": ([_in("files", 100, half=30), _in("tar", 150, half=40)], []),
        "files are best": ([_in("files", 100), _in("tar", 90)], []),
        "other images": ([_in("tar", 100), _row(300, resolution="250x188")], []),
        "another loader": ([_in("files", 100), _in("tar", 300, loader="webdataset")], []),
        "of three loaders": (
            [_by("torch", 100), _by("spdl", 210), _by("dali", 150)], [("other_loader", "spdl", "torch")],
        ),
        "without torch": ([_by("grain", 50), _by("spdl", 210)], [("other_loader", "spdl", "grain")]),
        "as fast": ([_by("torch", 100), _by("spdl", 103)], []),
        "torch is best": ([_by("torch", 210), _by("spdl", 100)], []),
    },
    # Large files that gain nothing: measured, beside files in the same state, with the range where one may gain; of
    # files alone wherever no gain is forecast, as storage gains none.
    "layouts": {
        "measured": ([_in("files", 100), _in("tar", 103), _in("lmdb", 60)], [BOTH]),
        "no sure gain": (
            [_in("files", 100, half=20), _in("tar", 104, half=36), _in("lmdb", 80, half=4)],
            [BOTH | {"low": 0.624, "high": 1.455}],
        ),
        "tar gains": ([_in("files", 100), _in("tar", 210)], []),
        "not clear": ([_in("files", 100, half=30), _in("tar", 110, half=40)], []),
        "warm and cold": (
            [_in("files", 100), _in("tar", 98), _in("files", 94, cache="cold"), _in("tar", 93, cache="cold")], [ONE],
        ),
        "ranks": ([_in("files", 100), _in("tar", 98), _in("files", 200, ranks=2), _in("tar", 200, ranks=2)], [ONE]),
        "no files": ([_in("tar", 100)], []),
        "storage is no limit": (
            [_stored(1.02, 1.2)], [{"data": "photographs", "low": 1.02, "high": 1.2, "how": "measured"}],
        ),
        "storage gains": ([_stored(1.06, 1.2)], []),
    },
    # Warm files that train slower than cold ones, with the range of the factor.
    "warm": {
        "slower": ([_row(100, cache="cold"), _row(90)], [(0.887, 0.913)]),
        "alike": ([_row(100, cache="cold"), _row(96)], []),
        "faster": ([_row(100, cache="cold"), _row(110)], []),
        "other workers": ([_row(100, cache="cold", workers=1), _row(90, workers=2)], []),
        "not known to be cold": ([_row(100, cache="as-found"), _row(90)], []),
        "too noisy": ([_row(100, cache="cold"), _row(90, half=80)], []),
    },
}  # fmt: skip


def _changes(report: Report) -> list[Any]:
    found = [step.remark for step in report.next if step.remark and step.remark.code.startswith("other_")]
    return [(each.code, each.facts["best"], each.facts["now"]) for each in found]


def _warm(report: Report) -> list[Any]:
    cold, *others = with_warm_notes(report).configurations
    assert not any(note.code == "warm_slower" for note in cold.notes)
    notes = [note.facts for row in others for note in row.notes if note.code == "warm_slower"]
    return [(facts["low"], facts["high"]) for facts in notes]


OF_REPORT: dict[str, Callable[[Report], list[Any]]] = {
    "scaling": lambda report: [(_value(e.speedup), e.efficiency, _value(e.over_cpu)) for e in report.scaling],
    "change": _changes, "layouts": lambda report: [note.facts for note in layout_notes(report)], "warm": _warm,
}  # fmt: skip


@pytest.mark.parametrize(("what", "name"), [(what, name) for what, rows in ADDED.items() for name in rows])
def test_what_a_report_adds_to_its_rows(what: str, name: str) -> None:
    """By comparing them, where that is more than noise; each has a place among the best."""
    rows, expected = ADDED[what][name]
    report = example_report(rows)
    assert OF_REPORT[what](report) == [pytest.approx(each, abs=2e-3) for each in expected]
    assert what != "change" or {row.key for row in rows} == set(report.best)


def _steps(rows: list[ConfigurationRow]) -> list[str]:
    """The codes of what to do next; empty for a change with a forecast."""
    return [step.remark.code if step.remark else "" for step in example_report(rows).next]


def _beside_full_cores(gain: float) -> list[ConfigurationRow]:
    storage, cores = STORED.configurations
    advice = tuple(replace(each, speedup=min(each.speedup, gain)) for each in storage.advice)
    return [with_changes(storage, advice=advice), with_changes(cores, advice=(), cache="cold", resolution="others")]


def _without_advice(*causes: Cause) -> list[ConfigurationRow]:
    """Stored rows of these causes; those whose preprocessing limits have no advice."""
    stored = [row for each in (STORED, CAUSES) for row in each.configurations]
    rows = [row for row in stored if row.bound and row.bound.cause in causes]
    return [with_changes(row, advice=()) if row.bound and row.bound.cause == "preprocessing" else row for row in rows]


def _limited(cause: Cause, code: ActionCode, side: Side = "input") -> list[ConfigurationRow]:
    row = example_row()
    assert row.bound and row.verdict and row.verdict.speedups["storage"]
    speedups = {**row.verdict.speedups, "preprocessing": row.verdict.speedups["storage"]}
    advice = (replace(row.advice[0], action=Action(code=code, facts={"share": 1.0, "bytes": 1e9, "workers": 4.0})),)
    return [with_changes(row, bound=replace(row.bound, side=side, cause=cause), advice=advice, speedups=speedups)]


def _unsure(rows: list[ConfigurationRow]) -> list[ConfigurationRow]:
    """Their changes may gain nothing."""
    low = [
        tuple(replace(each, after=replace(each.after, low=each.before.value)) for each in row.advice) for row in rows
    ]
    return [with_changes(row, advice=advice) for row, advice in zip(rows, low, strict=True)]


@pytest.mark.parametrize(
    ("rows", "steps"),
    [
        (_limited("storage", "files_in_memory"), ["", "more_cores"]),
        (_unsure(_limited("network", "requests_in_flight")), ["", "more_cores"]),
        (_unsure(_limited("inconclusive", "requests_in_flight")), []),
        (_unsure(_limited("preprocessing", "workers")), ["cheaper_preprocessing"]),
        (_limited("preprocessing", "files_in_memory"), ["cheaper_preprocessing", ""]),
        (_limited("preprocessing", "shards"), ["cheaper_preprocessing", ""]),
        (_limited("preprocessing", "workers"), ["", "more_cores"]),
        (_limited("compute", "accelerator", side="compute"), [""]),
        (_beside_full_cores(1.9), ["", "more_cores"]),
        (_beside_full_cores(1.03), ["more_cores", ""]),
        (_without_advice("preprocessing"), ["cheaper_preprocessing"]),
        (_without_advice("preprocessing", "storage"), ["", "more_cores"]),
        (_without_advice("inconclusive"), []),
    ],
)
def test_the_first_change_belongs_to_what_limits_and_is_worth_a_word(
    rows: list[ConfigurationRow], steps: list[str]
) -> None:
    """What saves waiting for storage stands behind what takes less of the part that limits, where that is another; a
    sure gain of 3 % behind the cores that are missing. Where no change has a forecast, what takes less is named with
    the interval of its gain, else a change that may gain nothing; not of a row that names no cause. Cores that would be
    too few after the only change stand behind it, where it is one of the input."""
    assert _steps(rows) == steps
    for step in example_report(rows).next:
        if step.remark and step.remark.code == "cheaper_preprocessing":
            gains = [speedup_of(row, "preprocessing") for row in rows if row.key in step.configurations]
            ends = (step.remark.facts["low"], step.remark.facts["high"])
            assert [(gain.low, gain.high) for gain in gains if gain] == [ends]


@pytest.mark.parametrize(
    ("cause", "side", "said"),
    [
        ("storage", "input", "storage"),
        ("either", "input", "storage"),
        ("either", "inconclusive", "inconclusive there, so what limits beyond it is not known."),
        ("inconclusive", "inconclusive", "inconclusive there, so what limits beyond it is not known."),
    ],
)
def test_a_knee_names_no_limit_beyond_an_inconclusive_verdict(cause: Cause, side: Side, said: str) -> None:
    """Of the configuration with these workers, where that was measured."""
    row = example_row()
    assert row.bound
    bound = replace(row.bound, cause=cause, side=side, candidates=("storage", "compute"))
    (knee,) = example_report([with_changes(row, bound=bound)]).knees
    assert knee.workers == row.config.loader.workers
    assert (knee_words(knee).partition("; ")[2] if knee.inconclusive else knee.bottleneck) == said


@pytest.mark.parametrize(
    ("full", "words"),
    [
        ([(1, 1)], "one mlperf-h100 needs 8.5"),
        ([(1, 1), (4, 1)], "4 x mlperf-h100 on a machine need 34"),
        ([(4, 1), (4, 2)], "4 x mlperf-h100 on a machine need 34"),
        ([(8, 4)], "2 x mlperf-h100 on a machine need 17"),
    ],
)
def test_missing_cores_are_those_of_one_machine(full: list[tuple[int, int]], words: str) -> None:
    """Of the ranks and nodes that fill it with the most accelerators, said once."""
    cores = STORED.configurations[1]
    rows = [with_changes(cores, advice=(), ranks=ranks, nodes=nodes) for ranks, nodes in full]
    (step,) = [each for each in example_report(rows).next if each.remark and each.remark.code == "more_cores"]
    assert step.remark and remark_words(step.remark) == f"more cores: {words} (estimated), 2 here"
    assert step.configurations == tuple(row.key for row in rows)
    report = example_report(_limited("storage", "files_in_memory"))
    many = replace(report.environment, cores_available=64.0)
    assert len(answered(report).next) == 2 and len(answered(replace(report, environment=many)).next) == 1


def _asked(
    reason: ReasonCode, notes: list[Remark], command: str, name: str = "r3", of_all: tuple[Remark, ...] = ()
) -> list[tuple[str, str]]:
    """The remarks, with their commands, on what to do after a run of half a minute that left its verdict open."""
    row = example_row()
    assert row.bound
    why = {"candidates": ("storage", "compute"), "reason": Reason(code=reason, facts={})}
    bound = replace(row.bound, side="inconclusive", cause="either", **why)  # type: ignore[arg-type]
    report = example_report([with_changes(row, bound=bound, advice=())])
    run = replace(report.run, name=name, command=command, wall_s=30.0, notes=of_all)
    found = with_details(replace(report, run=run), notes=tuple(notes))
    return [(step.remark.code, step.command) for step in found.next if step.remark]


TAKEN = Remark(code="others_took", facts={"share": 0.4, "cores": 2.0, "segments": 3.0, "of": 9.0})
MORE = Remark(code="no_time", facts={"budget_s": 210.0, "rounds": 3.0})


@pytest.mark.parametrize(("segments", "code"), [(5.0, "measure_alone"), (4.0, "measure_longer")])
def test_others_that_took_cores_in_most_segments_of_a_sweep_are_to_end(segments: float, code: str) -> None:
    """A sweep notes them once for all of its configurations."""
    taken = replace(TAKEN, facts=TAKEN.facts | {"segments": segments})
    ((found, _),) = _asked("rounds_differ", [], "loaderprobe sweep", of_all=(taken,))
    assert found == code


@pytest.mark.parametrize(
    ("reason", "notes", "steps"),
    [
        ("rounds_disturbed", [], [("measure_longer", "--budget 60")]),
        ("rounds_disturbed", [TAKEN], [("measure_alone", "--budget 60")]),
        ("outside_noise_band", [TAKEN], [("measure_alone", "--budget 60")]),
        ("cores_shared", [TAKEN, MORE], [("measure_alone", "--budget 210")]),
        ("files_were_warm", [MORE], [("measure_longer", "--budget 210")]),
        ("files_were_warm", [Remark(code="cut_short", facts={"budget_s": 30.0})], [("measure_longer", "--budget 30")]),
        ("files_were_warm", [TAKEN], []),
    ],
)
def test_an_open_verdict_asks_for_time_or_for_the_cores_that_others_took(
    reason: ReasonCode, notes: list[Remark], steps: list[tuple[str, str]]
) -> None:
    """As much time as a note on the rounds says, and none where other processes take the cores meanwhile; by its notes
    where its reason alone names no remedy. Cores that others took warm no files."""
    assert _asked(reason, notes, "loaderprobe diagnose") == steps


@pytest.mark.parametrize(
    ("command", "name", "path"),
    [
        ("loaderprobe sweep /data --out runs/r3", "r3", "runs/r3"),
        ("loaderprobe sweep --out=r3 /data", "r3", "r3"),
        ("loaderprobe sweep --out r3", "moved", "moved"),
        ("loaderprobe sweep '--out=my runs/r3'", "r3", "'my runs/r3'"),
        ("""loaderprobe.sweep('/data/Bob\\'s "x"')""", "run", "run"),
        ("loaderprobe sweep", "20261128-031459-393513", "loaderprobe-runs/20261128-031459-393513"),
        ("loaderprobe.sweep('/data')", "run", "run"),
    ],
)
def test_an_open_sweep_is_resumed_where_more_rounds_were_asked_for(command: str, name: str, path: str) -> None:
    """Whatever the reason of its verdict; else it begins again. By its name where its path is unknown."""
    ((_, typed),) = _asked("speedups_alike", [Remark(code="cut_short")], command, name)
    assert typed == f"loaderprobe sweep --resume {path} --budget 60"
    assert _asked("rounds_disturbed", [], command, name) == [("measure_longer", "--budget 60")]


NOW, CORES = with_speedups().images_per_s.value, with_speedups().rates_images_per_s.cpu_limit or 0.0
COMPUTING_BESIDE = WorkerTime(cpu_s=1e-5, run_delay_s=0.0, blocked_s=0.002, waits={"storage": 0.0005, "lock": 0.0})
OWN_THREADS: dict[str, Any] = {"own_threads": True, "worker_time": COMPUTING_BESIDE}
"""Of a loader whose training thread, whose times are known, just waits."""
LIMITS: dict[str, tuple[dict[str, float | None], dict[str, Any], dict[str, str | None]]] = {
    "up to compute alone": ({"preprocessing": 1786 / NOW}, {}, {"preprocessing": "compute"}),
    "up to the cores, but not of free preprocessing": (
        {"storage": CORES / NOW, "preprocessing": CORES / NOW}, {}, {"storage": "cores", "preprocessing": "storage"},
    ),
    "the largest part of a worker that is left": (
        {"storage": 2.0, "preprocessing": 1.1}, {}, {"storage": "preprocessing", "preprocessing": "storage"},
    ),
    # However long workers wait for it: twice as fast, training would read a tenth of what it gave to as many.
    "storage far below its ceiling": (
        {"preprocessing": 2.0}, {"disk_ceiling_fraction": 0.05}, {"preprocessing": "transport"},
    ),
    "not so far": ({"preprocessing": 2.0}, {"disk_ceiling_fraction": 0.3}, {"preprocessing": "storage"}),
    "a ceiling that is not known": (
        {"preprocessing": 2.0}, {"disk_ceiling_fraction": None}, {"preprocessing": "storage"},
    ),
    "a speed-up that is not known": ({"transport": None}, {}, {"transport": None}),
    "threads of a worker's own, seen computing": (
        {"transport": 1.1}, {"worker_time": COMPUTING_BESIDE}, {"transport": "preprocessing"},
    ),
    "no times of workers": ({"storage": 1.5}, {"worker_time": None}, {"storage": None}),
    "a loader's own threads, seen computing": ({"transport": 1.1}, OWN_THREADS, {"transport": "preprocessing"}),
    "own threads, and nothing seen": (
        {"transport": 1.1}, OWN_THREADS | {"worker_time": replace(COMPUTING_BESIDE, waits={})}, {"transport": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_what_limits_training_once_a_resource_is_free(name: str) -> None:
    """Compute, the cores, or the largest part of a worker's time that is left."""
    speedups, given, expected = LIMITS[name]
    changes = {name: value for name, value in given.items() if name != "own_threads"}
    own = "own_threads" in given
    found = next_limits(replace(with_speedups(**speedups), **changes), 1 if own else 2, own_threads=own)
    assert {resource: found.get(resource) for resource in expected} == expected


SLOW = measured(Truth(compute=100000.0), 2)
"""Its loader is the limit."""


@pytest.mark.parametrize(("free", "most", "iterations"), [(12.0, 10.0, 612), (60.0, 2.0, 3060), (12.0, 1.01, 1)])
def test_iterations_that_are_enough(free: float, most: float, iterations: int) -> None:
    """51 times the free batches for 2 %; where compute is the limit, the first one will do."""
    assert enough(free, most) == iterations
    assert over_steady(iterations, free, most) <= 1.02 + 1e-9
    assert iterations == 1 or over_steady(iterations - 1, free, most) > 1.02


def test_an_effect_that_was_not_measured_is_estimated() -> None:
    """From the rates of the verdict; a study that was refused gives its reason."""
    judged = verdict(SLOW)
    few = Remark(code="too_few_for_buffer", facts={"images": 99, "least": 100})
    refused = Prefilled(config=SLOW.config, reason=few)
    found = buffer_effect(SLOW, judged, refused)
    assert found is not None
    assert (found.batches, found.how, found.reason) == (4, "estimated", few)
    assert {each.iterations: each.over_steady for each in found.runs}[100] == pytest.approx(100 / 96.5)
    assert found.after(100) == pytest.approx(100 / 96.5)


@pytest.mark.parametrize(
    ("rates", "half", "share", "found"),
    [
        ((100, 400), 1, 1.0, {"source_s": 100, "later_s": 25, "copying_s": 300, "first_s": 300, "epochs": 4}),
        ((100, 400), 1, 0.5, {"source_s": 100, "later_s": 62.5, "copying_s": 150, "share": 0.5, "epochs": 4}),
        ((100, 102), 5, 1.0, None),
        ((100, 90), 1, 0.5, None),
    ],
    ids=["all of it", "half of it fits", "within noise", "slower"],
)
def test_what_epochs_take_from_a_copy(
    rates: tuple[float, float], half: float, share: float, found: dict[str, float] | None
) -> None:
    """10,000 images of 30 kB, copied at 1 MB/s: how long it takes is said also where the copy gains nothing."""
    names = ("photos", "photos staged")
    rows = [_row(rate, half=half, resolution=name) for rate, name in zip(rates, names, strict=True)]
    rows = [replace(row, config=replace(row.config, cache="cold", data=row.config.resolution)) for row in rows]
    report = example_report(rows)
    known: dict[str, Any] = {"images_found": 10_000, "mean_size_bytes": 30e3}
    staged = Staged(source="photos", bytes_per_s=1e6, share=share)
    copied = {"staged": staged} if share == 1 else {"staged": staged, "root": "/elsewhere"}
    data = [replace(each, **known, **copied if "staged" in each.label else {}) for each in report.run.data]
    run = replace(report.run, data=tuple(data))
    report = answered(replace(report, run=run))
    (remark,) = report.staging
    assert (remark.code == "staging") == (found is not None)
    assert remark.facts["copying_s"] == 300 * share and ("device" in remark.facts) == (found is None and share == 1)
    assert {name: remark.facts[name] for name in found or ()} == pytest.approx(found or {})
    first = [step.remark.code for step in report.next if step.remark]
    assert ("train_from_copy" in first[:1]) == (found is not None)

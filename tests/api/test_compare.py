"""`compare`: which results may be compared, what matches, what is said of it, and whether the gates hold."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.analyze.comparison import RunReading, SideRow, compare_rows, judge_gates
from loaderprobe.analyze.effects import interval
from loaderprobe.api.diagnose import diagnosis
from loaderprobe.api.load import Run
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.compare import Compared, Subject
from loaderprobe.records.config import with_options
from loaderprobe.records.diagnosis import DataFound, OwnMeasured
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Others
from loaderprobe.records.remark import Remark
from loaderprobe.records.verdict import SideAndCause
from loaderprobe.render.json import result_json
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import example_files
from tests.analyze.runs import scaled
from tests.analyze.scripted import Truth, measured
from tests.cli.invoke import invoke
from tests.examples.bandwidth import example_bandwidth, example_operations, example_phase
from tests.fakes import example_location
from tests.stored import RUNS, empty_run

TRUTH = Truth(compute=1000.0)
ALIKE = (1, 1, 1)


def stored(
    path: Path, *, workers: Sequence[int] = (0, 1, 2), truth: Truth = TRUTH, root: str = "/nowhere",
    environment: Environment | None = None, files: FileSet | None = None, slower: Sequence[int] = ALIKE,
    minute: int = 0, others: Others | None = None, **options: Any,
) -> Path:  # fmt: skip
    """A run of made-up measurements that began in this minute; `slower` are factors of all times, one a round."""
    kept = replace(files or example_files(), root=root)
    measurements = []
    for found in (measured(truth, number, **options) for number in workers):
        rounds = [scaled(found, factor).segments for factor in slower]
        segments = tuple(
            replace(rounds[segment.round][place], others=others) for place, segment in enumerate(found.segments)
        )
        config = with_options(found.config, data=kept.fingerprint)
        measurements.append(replace(found, segments=segments, config=config))
    configs = (each.config for each in measurements)
    asked: dict[str, Any] = {"environment": environment, "command": ("loaderprobe", "sweep")}
    run = empty_run(path, *configs, files=kept, created_utc=f"2026-11-21T07:{minute:02}:00+00:00", **asked)
    for measurement in measurements:
        run.save(measurement)
    return path


HALF = Others(span_ns=10**9, cores=2, cpu_ns=10**9, own_cpu_ns=10**9, steal_ns=0)
"""Other processes took half of two cores, and left none idle."""
SOME = replace(HALF, cpu_ns=6 * 10**8)
"""They took three tenths: whether that matters depends on what the run itself takes."""
SLOW_DEVICE = replace(TRUTH, compute=50.0)
MADE: dict[str, dict[str, Any]] = {
    "a": {"root": "/ssd"},
    "copy": {"root": "/ssd"},
    "a2": {"root": "/ssd", "minute": 2},
    "a3": {"root": "/ssd", "minute": 4},
    "nfs": {"root": "/nfs"},
    "slow": {"slower": (2, 2, 2)},
    "slow2": {"slower": (2, 2, 2), "minute": 3},
    "slow3": {"slower": (2, 2, 2), "minute": 5},
    "noisy": {"slower": (8, 10, 13)},
    "beside": {"others": HALF},
    "slow beside": {"slower": (2, 2, 2), "others": HALF},
    "quiet": {"others": replace(HALF, cpu_ns=0)},
    "beside idle": {"others": replace(SOME, own_cpu_ns=0)},
    "beside busy": {"others": replace(SOME, own_cpu_ns=13 * 10**8)},
    "other": {"workers": (0, 1, 4)},
    "more": {"workers": range(5)},
    "fewer": {"workers": (0, 1), "slower": (2, 2, 2)},
    "device": {"truth": SLOW_DEVICE},
    "disk": {"truth": replace(SLOW_DEVICE, bytes_per_s=2e6)},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for name, made in MADE.items():
        stored(place / name, **made)
    return place


SLOWER, UNCLEAR = "--fail-if-slower=5%", "--fail-if-unclear"
VERDICTS = "--fail-if-verdict-changes"
NO_WORD = "unclear unclear unclear"
SEVERAL = ("--with", "slow", "--with", "slow2", "--with")
CASES: list[tuple[tuple[str, ...], int, str, str]] = [
    (("a", "nfs", SLOWER, UNCLEAR, VERDICTS), 0, "same same same", "0 verdicts changed"),
    (("a", "nfs"), 0, "same same same", "B is as fast as A"),
    (("a", "a", SLOWER), 0, "same same same", "A and B are the same measurement"),
    (("a", "slow", SLOWER), 6, "slower slower slower", "--fail-if-slower 5% failed 500x375, "),
    (("slow", "a", SLOWER), 0, "faster faster faster", "--fail-if-slower 5% held"),
    (("device", "disk", VERDICTS), 6, "slower slower slower", "3 verdicts changed"),
    (("noisy", "noisy", SLOWER), 6, NO_WORD, "failed too noisy to hold 5 %: 3 of 3; --allow-unclear"),
    (("noisy", "noisy", SLOWER, "--allow-unclear"), 0, NO_WORD, "held too noisy to hold 5 %: 3 of 3"),
    # What others took on one side may be all of a change, or hide one; a side that is ahead all the same is faster.
    (("beside", "a", SLOWER), 6, NO_WORD, "took 50 % of the cores in A, an unknown part in B, in 3 of 3"),
    (("beside", "quiet"), 0, NO_WORD, "took 50 % of the cores in A, 0 % in B, in 3 of 3"),
    (("beside idle", "beside busy"), 0, "same same same", "took 30 % of the cores in A, 30 % in B, in 3 of 3"),
    (("beside", "a", SLOWER, "--allow-unclear"), 0, NO_WORD, "unclear: others took cores in A"),
    (("a", "slow beside", SLOWER, "--allow-unclear"), 6, NO_WORD, "failed 500x375, "),
    (("beside", "slow"), 0, "slower slower slower", "took 50 % of the cores in A, an unknown part in B"),
    (("slow", "beside"), 0, "faster faster faster", "took an unknown part of the cores in A, 50 % in B"),
    (("beside", "slow beside"), 0, "slower slower slower", "took 50 % of the cores in A, 50 % in B"),
    (("a", "noisy"), 0, "slower slower slower", "0 verdicts changed, 1 not clear in A or B"),
    (("noisy", "noisy", UNCLEAR), 6, NO_WORD, "--fail-if-unclear failed 500x375, "),
    (("a", "other", SLOWER), 6, "same same", "failed of A not in B: 1"),
    (("a", "other", UNCLEAR), 6, "same same", "failed of A not in B: 1"),
    (("a", "other", VERDICTS), 0, "same same", "held of A not in B: 1"),
    (("other", "more", SLOWER), 0, "same same same", "--fail-if-slower 5% held"),
    # Three equal runs a side have no spread at all; the row that a run lacks has the drift of single runs.
    (("a", "a2", "a3", *SEVERAL, "slow3"), 0, NO_WORD, "nothing shows how much it varies"),
    (("a", "a2", "a3", *SEVERAL, "slow3", SLOWER), 6, NO_WORD, "too noisy to hold 5 %: 3 of 3"),
    (("a", "a2", "a3", *SEVERAL, "fewer"), 0, "unclear unclear slower", "B is slower in 1 of 3"),
]


@pytest.mark.parametrize(("typed", "code", "words", "says"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_every_row_has_its_word_and_every_gate_its_code(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: tuple[str, ...], code: int, words: str,
    says: str,
) -> None:  # fmt: skip
    """The same on the terminal and in what is kept."""
    monkeypatch.chdir(runs)
    shown = invoke("compare", *typed, "--out", tmp_path / "out")
    assert shown.exit_code == code and says in " ".join(shown.stdout.split()), shown.output
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert " ".join(row["word"] for row in found["rows"]) == words
    assert found["passed"] == (code == 0) == all(gate["passed"] for gate in found["gates"])


def test_what_has_no_partner_is_refused(runs: Path, tmp_path: Path) -> None:
    """Two configurations of one run that are the same, a side without a result, and a run without a configuration."""
    empty = tmp_path / "empty"
    stored(empty, workers=())
    refused: Any = ((runs / "a", "workers", "the same without workers"), (empty, "", "holds no"), ([], "", "no"))
    for a, differ, says in refused:
        with pytest.raises(BadValue, match=says):
            loaderprobe.compare(a, runs / "slow", differ=differ)


def test_a_comparison_is_kept_and_shown_again(runs: Path, tmp_path: Path) -> None:
    """Nothing is written unless asked for; every format has the answer, and the page the ratios and both maps."""
    a, slow, out = runs / "a", runs / "slow", tmp_path / "out"
    kept = json.loads(invoke("compare", a, slow, "--json", "--out", out).stdout)
    assert (kept["schema"], kept["schema_version"]) == ("loaderprobe/compare", 1)
    assert json.loads(invoke("report", out, "--json").stdout) == kept
    found = loaderprobe.Comparison.load(out)
    frame = found.to_frame()
    assert list(frame["kind"]) == ["configuration"] * 3 + ["all"]
    assert frame["before"].isna().tolist() == [False] * 3 + [True]
    assert invoke("compare", a, slow, "--html", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").read_text().count("<svg x=") == 4
    assert "result that does not compare" in invoke("compare", out, a).stderr


def test_a_row_has_its_ratio_and_what_would_have_been_seen(runs: Path) -> None:
    """Of results as well as of their paths; roots may differ."""
    found = loaderprobe.compare(loaderprobe.load(runs / "a"), runs / "slow")
    assert [row.subject.config.loader.workers for row in found.rows if row.subject.config] == [0, 1, 2]
    assert found.rows[0].ratio and found.rows[0].ratio.value == pytest.approx(0.5, rel=0.01)
    assert (found.before.roots, found.after.roots) == (("/ssd",), ("/nowhere",)) and not found.differences
    assert found.whole and found.whole.visible == pytest.approx(0.0375, rel=0.02)
    many = replace(found, rows=found.rows * 30)
    assert "51 more are not shown." in many.text() and many.html().count("<svg x=") == 40


@pytest.fixture(scope="module")
def known(runs: Path) -> Run:
    return loaderprobe.load(runs / "a")


def on(run: Run, **changes: Any) -> Run:
    """The same run, measured in another environment."""
    record = run.directory.record
    environment = replace(record.environment, **changes)
    return Run(RunDirectory(run.path, replace(record, environment=environment)))


STORAGE = example_location("/x")
UNLIKE: tuple[tuple[dict[str, Any], dict[str, Any], set[str], str], ...] = (
    ({"cpu_model": "another", "torch": "2.10.0"}, {}, {"cpu_model", "torch"}, "--differ machine,software"),
    ({"storage": (STORAGE,)}, {}, set(), ""),
    ({"memory_bytes": 16_700_000_000}, {}, set(), ""),
    ({"memory_bytes": 8 * 10**9}, {}, {"memory_bytes"}, "machine"),
    ({"storage": (replace(STORAGE, filesystem="xfs"),)}, {}, {"storage"}, "storage"),
    ({"loaderprobe": "0.2.0"}, {}, {"loaderprobe"}, "software"),
    ({}, {"files": example_files(20)}, {"data"}, "--differ data"),
    ({}, {"decoder": "torchvision"}, {"decoder"}, "--differ options"),
    ({}, {"truth": replace(TRUTH, bytes_per_s=1e15)}, {"files_were"}, "--differ state"),
)
"""What differs of the environment, and of the measurements; the fields that are named, and the option."""


@pytest.mark.parametrize(("environment", "made", "fields", "hint"), UNLIKE)
def test_what_is_unlike_is_refused_by_name_and_can_be_allowed(
    known: Run, tmp_path: Path, environment: dict[str, Any], made: dict[str, Any], fields: set[str], hint: str
) -> None:
    """Each field with both values; allowed by the fields, by all, and by what the hint says."""
    other = loaderprobe.load(stored(tmp_path / "b", **made)) if made else on(known, **environment)
    if not fields:
        assert not loaderprobe.compare(known, other).differences
        return
    with pytest.raises(NotComparable) as caught:
        loaderprobe.compare(known, other)
    assert set(caught.value.fields) == fields and caught.value.exit_code == 2
    assert all(field in caught.value.message for field in fields) and hint in caught.value.hint
    for names in (tuple(fields), "all", caught.value.hint.rpartition(" ")[2]):
        found = loaderprobe.compare(known, other, differ=names)
        assert {each.field for each in found.differences} == fields and len(found.rows) == 3
    assert "decoder" not in loaderprobe.compare(other, known, differ="all").text().partition("What differs")[0]


def bandwidths(factor: float, **changes: Any) -> BandwidthReport:
    """A ladder with opens, on a storage that is `factor` times as fast."""
    phases = tuple(example_phase(readers, factor * 61e6 * readers) for readers in (1, 2, 4))
    operations = (*example_operations({4: 20e3 * factor}), *example_operations({4: 9e3}, "stat", metadata="warm"))
    return replace(example_bandwidth(), phases=phases, metadata=operations, **changes)


def test_two_storages_compare_step_by_step(tmp_path: Path) -> None:
    """Each phase at its concurrency, opens too, or alone; the mean is that of the ladder. Another must be meant."""
    paths = []
    nfs = replace(example_location("/nfs"), filesystem="nfs4", devices=(), source="server:/export")
    for name, report in (("a", bandwidths(1.0)), ("b", bandwidths(1.4, location=nfs, path="/nfs"))):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(result_json(report))
    with pytest.raises(NotComparable) as caught:
        loaderprobe.compare(*paths)
    assert caught.value.fields == ("storage",) and "nfs4 of server:/export" in caught.value.message
    found = loaderprobe.compare(*paths, differ="storage")
    assert [(row.subject.kind, row.subject.readers) for row in found.rows] == [
        ("phase", 1), ("phase", 2), ("phase", 4), ("open", 4),
    ]  # fmt: skip
    assert {row.word for row in found.rows} == {"faster"} and found.whole and found.whole.word == "faster"
    text = found.text()
    assert "20000±600 1/s" in text and "files, 1 reader " in text
    assert not loaderprobe.compare(*reversed(paths), differ="storage", fail_if_slower=0.05).passed
    no_partner = replace(bandwidths(1.4), phases=(example_phase(8, 61e6),))
    text = loaderprobe.compare(bandwidths(1.0), no_partner).text()
    assert "A 1/s" in text and " 20000±600 " in text, "the unit stands above opens alone"


def diagnosed(path: Path, truth: Truth, workers: int = 2, notes: tuple[Remark, ...] = ()) -> loaderprobe.Diagnosis:
    """What `run` would keep of a script's loader; kept in `path`."""
    raw = replace(measured(truth, workers), notes=notes)
    seen = DataFound(hidden=None, size_bytes=1e9, root="")
    found = diagnosis(OwnMeasured(config=raw.config, measurement=raw, data=seen), "loaderprobe run")
    found.save(path)
    return found


def test_a_diagnosis_is_a_run_of_one_row(tmp_path: Path) -> None:
    """The rate of training, from its rounds, and the verdict before and after; other workers must be meant."""
    slow = diagnosed(tmp_path / "a", Truth(bytes_per_s=2e6, compute=900.0))
    quick = diagnosed(tmp_path / "b", Truth(compute=50.0))
    found = loaderprobe.compare(tmp_path / "a", tmp_path / "b", fail_if_verdict_changes=True)
    (row,) = found.rows
    assert (row.subject.kind, row.unit, row.word) == ("training", "images/s", "faster")
    assert row.rounds == (slow.verdict.complete_rounds, quick.verdict.complete_rounds)
    assert row.before == slow.verdict.images_per_s
    note = Remark(code="workers_start_each_epoch", facts={"start_s": 3.0, "epoch_s": 1.0, "starts": 4.0})
    starting = diagnosed(tmp_path / "starting", Truth(compute=50.0), notes=(note,))
    (stay,) = loaderprobe.compare(starting, quick).rows
    assert stay.word == "faster" and stay.ratio and stay.ratio.value == pytest.approx(4.0)
    assert not loaderprobe.compare(quick, starting, fail_if_slower="5%").passed
    assert row.verdict_changed and not found.passed
    assert loaderprobe.compare(slow, quick).rows == found.rows
    assert not loaderprobe.compare(quick, slow, fail_if_slower="5%").passed
    assert found.html() and loaderprobe.compare(slow, slow, fail_if_verdict_changes=True).passed
    with pytest.raises(NotComparable, match=r"workers \(A: 2; B: 8\) differs"):
        loaderprobe.compare(slow, diagnosed(tmp_path / "c", Truth(compute=50.0), workers=8))
    by_step = replace(quick, origin=replace(quick.origin, command="loaderprobe diagnose train.py:make"))
    with pytest.raises(
        NotComparable, match=r"what was measured \(A: training by the script; B: training by step\(batch\)\)"
    ):
        loaderprobe.compare(slow, by_step)
    page = loaderprobe.compare(slow, by_step, differ="judged").text(width=400)
    assert "A is training by the script, B training by step(batch)" in page and "what was measured" in page
    in_block = replace(quick, origin=replace(quick.origin, command="loaderprobe.attached()"))
    assert not loaderprobe.compare(slow, in_block).differences
    with pytest.raises(BadValue, match="Layers holds a result that does not compare"):
        loaderprobe.compare(slow, loaderprobe.Layers.load(RUNS / "layers"))  # type: ignore[arg-type]  # another result


QUIET = (99.0, 100.0, 101.0)
NOISY = (70.0, 100.0, 130.0)
BY_STORAGE = SideAndCause(side="input", cause="storage")
OPEN = SideAndCause(side="inconclusive", cause="inconclusive")


def row(values: Sequence[float], *, factor: float = 1.0, verdict: SideAndCause | None = None) -> SideRow:
    """Of one run, whose values are times `factor`."""
    scaled = tuple(value * factor for value in values)
    reading = RunReading(values=scaled, figure=interval(scaled))
    return SideRow(subject=Subject(kind="configuration"), unit="images/s", readings=(reading,), verdict=verdict)


def judged(*pairs: tuple[SideRow, SideRow]) -> tuple[Compared, ...]:
    return compare_rows(pairs, matters=0.05)[0]


@pytest.mark.parametrize(
    ("values", "factor", "word", "reason"),
    [
        (QUIET, 0.88, "slower", "beyond_noise"),
        (QUIET, 1.15, "faster", "beyond_noise"),
        (QUIET, 1.01, "same", "within_size"),
        (QUIET, 0.962, "unclear", "near_size"),
        (NOISY, 0.88, "unclear", "too_noisy"),
        ((100.0,), 0.88, "unclear", "no_spread"),
    ],
)
def test_a_word_heeds_the_noise_and_the_size(values: tuple[float, ...], factor: float, word: str, reason: str) -> None:
    """Slower and faster are proved and matter; the same is proved, too; the rest is unclear, and why."""
    (found,) = judged((row(values), row(values, factor=factor)))
    assert (found.word, found.reason) == (word, reason)
    assert (found.ratio is None) == (reason == "no_spread")
    if found.ratio:
        assert found.ratio.low < found.ratio.value < found.ratio.high
        assert found.ratio.value == pytest.approx(factor, rel=0.01)


def test_among_many_rows_a_chance_change_is_none() -> None:
    """A loss that stands alone as proved is expected by chance in one of 40 rows; the whole is then the same."""
    loss = (row(QUIET), row((91.0, 93.0, 96.0)))
    assert judged(loss)[0].word == "slower"
    rows, whole = compare_rows([loss, *[(row(QUIET), row(QUIET))] * 39], matters=0.05)
    assert (rows[0].word, rows[0].reason) == ("unclear", "one_of_many")
    assert {each.word for each in rows[1:]} == {"same"}
    assert whole is not None and whole.word == "same" and whole.subject.kind == "all"
    assert (rows[0].visible or 0.0) > (judged(loss)[0].visible or 1.0)


def test_only_firm_verdicts_change() -> None:
    """To or from inconclusive, or between two of `either`, is no change."""
    compute = SideAndCause(side="compute", cause="compute")
    either = SideAndCause(side="input", cause="either", candidates=("storage", "preprocessing"))
    pairs = [(BY_STORAGE, compute), (BY_STORAGE, OPEN), (either, compute), (BY_STORAGE, BY_STORAGE)]
    rows = judged(*((row(QUIET, verdict=one), row(QUIET, verdict=other)) for one, other in pairs))
    assert [each.verdict_changed for each in rows] == [True, False, False, False]
    (gate,) = judge_gates(["verdict_changes"], rows, None, matters=0.05, missing=0, kind="sweep")
    assert (gate.passed, gate.rows) == (False, (0,))


def test_null_sweeps_rarely_fail_and_planted_losses_mostly_do() -> None:
    """Of 100 sweeps of six rows, five rounds and a spread of 2 %, drifting as runs do: at most 5 null ones fail the
    gate, and at least 90 of those that lost 10 % do. Rows may be too noisy for it."""
    draw = random.Random(11)

    def failed(factor: float) -> bool:
        shift = draw.lognormvariate(0, 0.0153)

        def side(factor: float) -> SideRow:
            return row([100 * factor * draw.lognormvariate(0, 0.02) for _ in range(5)])

        pairs = [(side(1.0), side(shift * factor)) for _ in range(6)]
        rows, whole = compare_rows(pairs, matters=0.05)
        (gate,) = judge_gates(["slower"], rows, whole, matters=0.05, missing=0, kind="sweep", allow_unclear=True)
        return not gate.passed

    assert sum(failed(1.0) for _ in range(100)) <= 5
    assert sum(failed(0.9) for _ in range(100)) >= 90

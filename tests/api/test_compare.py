"""`compare`: which results may be compared, what matches, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api.load import Run
from loaderprobe.errors import BadValue, NotComparable
from loaderprobe.records.config import SweepSpec, with_options
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment, example_files, example_location
from tests.analyze.measured import measured
from tests.analyze.runs import scaled
from tests.analyze.scripted import Truth

TRUTH = Truth(compute=1000.0)


def stored(
    path: Path, *, workers: Sequence[int] = (0, 1, 2), truth: Truth = TRUTH, root: str = "/nowhere",
    environment: Environment | None = None, files: FileSet | None = None, slower: int = 1, **options: Any,
) -> Path:  # fmt: skip
    """A run of made-up measurements whose rounds are all alike; `slower` is a factor of all times."""
    kept = replace(files or example_files(), root=root)
    measurements = [scaled(measured(truth, number, **options), slower) for number in workers]
    measurements = [replace(each, config=with_options(each.config, data=kept.fingerprint)) for each in measurements]
    record = RunRecord(
        created_utc="2026-11-21T07:00:00+00:00",
        spec=SweepSpec(configs=tuple(each.config for each in measurements), command=("loaderprobe", "sweep")),
        environment=environment or example_environment(),
    )
    run = RunDirectory.create(path, record, [kept])
    for each in measurements:
        run.save(each)
    return path


def test_the_same_data_on_another_storage_compare(tmp_path: Path) -> None:
    """Roots differ, files do not: every configuration has its partner, and all are the same."""
    a, b = stored(tmp_path / "a", root="/ssd"), stored(tmp_path / "b", root="/nfs")
    found = loaderprobe.compare(a, b)
    assert [row.subject.config.loader.workers for row in found.rows if row.subject.config] == [0, 1, 2]
    assert {row.word for row in found.rows} == {"same"} and found.whole and found.whole.word == "same"
    assert (found.before.roots, found.after.roots) == (("/ssd",), ("/nfs",))
    assert found.passed and not found.differences
    assert found.whole.visible == pytest.approx(0.0375, rel=0.02)
    assert "3 same" in found.headline() and "No verdict changed" in found.text()


def test_a_loss_and_a_verdict_that_changed_are_named_first(tmp_path: Path) -> None:
    """The run itself, half as fast; then one whose storage is slow."""
    a = stored(tmp_path / "a")
    found = loaderprobe.compare(loaderprobe.load(a), stored(tmp_path / "b", slower=2), fail_if_slower="5%")
    assert {row.word for row in found.rows} == {"slower"}
    assert found.rows[0].ratio and found.rows[0].ratio.value == pytest.approx(0.5, rel=0.01)
    assert not found.passed and found.gates[0].rows == (0, 1, 2, -1)
    device = stored(tmp_path / "c", truth=replace(TRUTH, compute=50.0))
    disk = loaderprobe.compare(device, stored(tmp_path / "d", truth=replace(TRUTH, compute=50.0, bytes_per_s=2e6)))
    assert [row.verdict_changed for row in disk.rows] == [True] * 3
    assert {row.verdict_after.cause for row in disk.rows if row.verdict_after} == {"storage"}
    text = " ".join(disk.text().split())
    assert text.index("3 verdicts changed: ") < text.index("Slower in B") and "compute → input: storage" in text
    assert 'stroke="currentColor" stroke-width="2"' in disk.html()


def test_several_runs_a_side_show_how_runs_vary(tmp_path: Path, known: Run) -> None:
    """From three on the drift that is assumed for single runs is gone: equal runs have no interval at all."""
    slow = loaderprobe.load(stored(tmp_path / "b", slower=2))
    found = loaderprobe.compare([known] * 3, [slow] * 3)
    assert len(found.before.paths) == 3 and {row.reason for row in found.rows} == {"no_spread"}
    assert {row.word for row in loaderprobe.compare(known, slow).rows} == {"slower"}


def test_a_configuration_that_one_run_lacks_has_the_drift_of_single_runs(tmp_path: Path, known: Run) -> None:
    """The others are judged by three runs a side."""
    counts = {"b": 3, "c": 2}
    slow, fewer = (
        loaderprobe.load(stored(tmp_path / name, workers=range(count), slower=2)) for name, count in counts.items()
    )
    found = loaderprobe.compare([known] * 3, [slow, slow, fewer])
    assert [row.reason for row in found.rows] == ["no_spread", "no_spread", "beyond_noise"]
    ratio = found.rows[2].ratio
    assert ratio and ratio.high / ratio.low > 1.05


OTHER_CPU = replace(example_environment(), cpu_model="another", torch="2.10.0")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that is judged once."""
    return loaderprobe.load(stored(tmp_path_factory.mktemp("known") / "run"))


def on(run: Run, **changes: Any) -> Run:
    """The same run, measured in another environment."""
    record = run.directory.record
    environment = replace(record.environment, **changes)
    return Run(RunDirectory(run.path, replace(record, environment=environment)), run.report())


@pytest.mark.parametrize(
    ("changes", "fields", "hint"),
    [
        ({"cpu_model": "another", "torch": "2.10.0"}, {"cpu_model", "torch"}, "--differ machine,software"),
        ({"storage": (example_location("/x"),)}, set(), ""),
        ({"memory_bytes": 16_700_000_000}, set(), ""),
        ({"memory_bytes": 8 * 10**9}, {"memory_bytes"}, "machine"),
        ({"storage": (replace(example_location("/x"), filesystem="xfs"),)}, {"storage"}, "storage"),
        ({"loaderprobe": "0.2.0"}, {"loaderprobe"}, "software"),
    ],
)
def test_what_is_unlike_is_refused_by_name_and_can_be_allowed(
    known: Run, changes: dict[str, Any], fields: set[str], hint: str
) -> None:
    """Machine, software and storage: each field with both values, and the option that allows it."""
    check_refused(known, on(known, **changes), fields, hint)


@pytest.mark.parametrize(
    ("changes", "fields", "hint"),
    [
        ({"files": example_files(20)}, {"data"}, "--differ data"),
        ({"decoder": "torchvision"}, {"decoder"}, "--differ options"),
        ({"truth": replace(TRUTH, bytes_per_s=1e15)}, {"files_were"}, "--differ state"),
    ],
)
def test_other_data_options_and_states_are_refused_too(
    tmp_path: Path, known: Run, changes: dict[str, Any], fields: set[str], hint: str
) -> None:
    """What the measurements themselves hold."""
    check_refused(known, loaderprobe.load(stored(tmp_path / "b", **changes)), fields, hint)


def check_refused(a: Run, b: Run, fields: set[str], hint: str) -> None:
    """Refused with these fields named; allowed by the fields, by all, and by what the hint says."""
    if not fields:
        assert not loaderprobe.compare(a, b).differences
        return
    with pytest.raises(NotComparable) as caught:
        loaderprobe.compare(a, b)
    assert set(caught.value.fields) == fields and caught.value.exit_code == 2
    assert all(field in caught.value.message for field in fields) and hint in caught.value.hint
    for names in (tuple(fields), "all", caught.value.hint.rpartition(" ")[2]):
        found = loaderprobe.compare(a, b, differ=names)
        assert {each.field for each in found.differences} == fields and len(found.rows) == 3


def test_runs_that_differ_within_a_side_are_named(known: Run) -> None:
    """A1 and A2 by their numbers, never as A and B; in the table, what differs between the sides."""
    other = on(known, torch="2.10.0")
    torch_now = example_environment().torch
    with pytest.raises(NotComparable, match=rf"torch \(A1: {torch_now}; A2: 2.10.0\) differs"):
        loaderprobe.compare([known, other], known)
    text = " ".join(loaderprobe.compare([known, other], known, differ="torch").text().split())
    assert f"torch: A1: {torch_now}; A2: 2.10.0" in text and "A B torch" not in text
    with pytest.raises(NotComparable, match=rf"torch \(A: {torch_now}; B2: 2.10.0\) differs"):
        loaderprobe.compare(known, [known, other])
    assert f"torch {torch_now} B2: 2.10.0" in " ".join(
        loaderprobe.compare(known, [known, other], differ="torch").text().split()
    )


def test_what_only_one_side_has_is_listed(tmp_path: Path) -> None:
    """And is unclear to a gate: what is not measured is not as fast."""
    a, b = stored(tmp_path / "a"), stored(tmp_path / "b", workers=(0, 1, 4))
    found = loaderprobe.compare(a, b, fail_if_unclear=True)
    assert len(found.rows) == 2 and [len(each) for each in (found.only_before, found.only_after)] == [1, 1]
    assert not found.passed and found.gates[0].missing == 1
    slower = loaderprobe.compare(a, b, fail_if_slower="5%")
    assert not slower.passed and "failed by 1 of A that B lacks or failed to measure" in " ".join(slower.text().split())
    assert loaderprobe.compare(b, stored(tmp_path / "c", workers=range(5)), fail_if_slower="5%").passed
    verdicts = loaderprobe.compare(a, b, fail_if_verdict_changes=True)
    assert "--fail-if-verdict-changes: held, but 1 of A is not in B;" in " ".join(verdicts.text().split())
    assert "only in A: 500x375, 2 workers" in found.text() and "only in B: 500x375, 4 workers" in found.text()


def uneven(path: Path) -> Path:
    """A run whose three rounds take 8, 10 and 13 times as long as they should."""
    run = RunDirectory.open(stored(path))
    for config in run.record.spec.configs:
        found = run.result(config.key)
        assert isinstance(found, Measurement)
        rounds = [scaled(found, factor).segments for factor in (8, 10, 13)]
        segments = tuple(rounds[each.round][place] for place, each in enumerate(found.segments))
        run.save(replace(found, segments=segments))
    return path


def test_a_gate_that_cannot_see_says_so_and_fails(tmp_path: Path, known: Run) -> None:
    """Noisy rows do not hold 5 %, unless that is allowed; what would show it is said, and JSON has all of it."""
    noisy = uneven(tmp_path / "a")
    found = loaderprobe.compare(noisy, noisy, fail_if_slower="5%")
    (gate,) = found.gates
    assert not found.passed and gate.too_noisy and gate.blind == 3 and not found.allow_unclear
    text = " ".join(found.text().split())
    assert (
        "--fail-if-slower 5%: failed: too noisy to hold 5 % in 3 of 3; only a loss of " in text
        and "--allow-unclear" in text
    )
    assert "Three runs a side would show more" in text.partition("too noisy to hold")[2]
    plain = json.loads(found.json())
    assert (plain["passed"], plain["allow_unclear"], plain["gates"][0]["too_noisy"]) == (False, False, True)
    allowed = loaderprobe.compare(noisy, noisy, fail_if_slower="5%", allow_unclear=True)
    assert allowed.passed and allowed.allow_unclear and allowed.gates[0].blind == 3
    assert "held, but 3 of 3 rows were too noisy" in " ".join(allowed.text().split())
    assert loaderprobe.compare(known, known, fail_if_slower="5%").passed
    with pytest.raises(BadValue, match="both fail a gate and be allowed"):
        loaderprobe.compare(known, known, fail_if_unclear=True, allow_unclear=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"differ": "nonsense"}, "names nothing"),
        ({"fail_if_slower": "80%"}, "half as fast"),
        ({"fail_if_slower": "much"}, "no share|not a number|much"),
    ],
)
def test_impossible_values_are_bad(known: Run, given: dict[str, Any], says: str) -> None:
    """Before anything is compared."""
    with pytest.raises(BadValue, match=says):
        loaderprobe.compare(known, known, **given)


def test_a_comparison_is_kept_and_shown_again(tmp_path: Path) -> None:
    """JSON with its schema, a frame with units, a page with the ratios and both maps; loading gives it back."""
    found = loaderprobe.compare(stored(tmp_path / "a"), stored(tmp_path / "b", slower=2), fail_if_slower="5%")
    page = found.save(tmp_path / "out")
    assert loaderprobe.Comparison.load(tmp_path / "out") == found
    plain = json.loads(found.json())
    assert (plain["schema"], plain["schema_version"]) == ("loaderprobe/compare", 1)
    frame = found.to_frame()
    assert list(frame["word"]) == ["slower"] * 4 and list(frame["kind"])[-1] == "all"
    html = page.read_text()
    assert html.count("<svg") == 1 + 2 * 3 and "What limits, in A and in B" in html and "-50 %" in html
    assert all(len(line) <= 80 for line in found.text().splitlines())
    assert found.markdown().startswith("# B against A")

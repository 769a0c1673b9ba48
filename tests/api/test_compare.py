"""`compare`: which results may be compared, what matches, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import loaderprobe
from loaderprobe.analyze.judge import verdict
from loaderprobe.api.diagnose import DataSeen, conclude
from loaderprobe.errors import BadValue, DamagedRun, NotComparable
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.config import SweepSpec
from loaderprobe.records.environment import Environment
from loaderprobe.records.files import FileSet
from loaderprobe.records.layers import Milliseconds
from loaderprobe.records.options import with_options
from loaderprobe.render.json import result_json
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_environment, example_files, example_location
from tests.analyze.measured import measured
from tests.analyze.runs import scaled
from tests.analyze.scripted import Truth
from tests.compute.slow_pool import Net, QuickPool, SlowPool
from tests.examples.bandwidth import example_bandwidth, example_operations, example_phase

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


def test_several_runs_a_side_show_how_runs_vary(tmp_path: Path) -> None:
    """From three on the drift that is assumed for single runs is gone: equal runs have no interval at all."""
    a = [stored(tmp_path / f"a{number}") for number in range(3)]
    b = [stored(tmp_path / f"b{number}", slower=2) for number in range(3)]
    found = loaderprobe.compare(a, b)
    assert len(found.before.paths) == 3 and {row.reason for row in found.rows} == {"no_spread"}
    single = loaderprobe.compare(a[0], b[0])
    assert {row.word for row in single.rows} == {"slower"}


def test_a_configuration_that_one_run_lacks_has_the_drift_of_single_runs(tmp_path: Path) -> None:
    """The others are judged by three runs a side."""
    a = [stored(tmp_path / f"a{number}") for number in range(3)]
    b = [stored(tmp_path / f"b{number}", workers=range(3 - number // 2), slower=2) for number in range(3)]
    found = loaderprobe.compare(a, b)
    assert [row.reason for row in found.rows] == ["no_spread", "no_spread", "beyond_noise"]
    ratio = found.rows[2].ratio
    assert ratio and ratio.high / ratio.low > 1.05


OTHER_CPU = replace(example_environment(), cpu_model="another", torch="2.10.0")


@pytest.mark.parametrize(
    ("changes", "fields", "hint"),
    [
        ({"environment": OTHER_CPU}, {"cpu_model", "torch"}, "--differ machine,software"),
        ({"environment": replace(example_environment(), storage=(example_location("/x"),))}, set(), ""),
        ({"environment": replace(example_environment(), memory_bytes=16_700_000_000)}, set(), ""),
        ({"environment": replace(example_environment(), memory_bytes=8 * 10**9)}, {"memory_bytes"}, "machine"),
        ({"files": example_files(20)}, {"data"}, "--differ data"),
        ({"decoder": "torchvision"}, {"decoder"}, "--differ options"),
        ({"truth": replace(TRUTH, bytes_per_s=1e15)}, {"files_were"}, "--differ state"),
        ({"environment": replace(example_environment(), loaderprobe="0.2.0")}, {"loaderprobe"}, "software"),
    ],
)
def test_what_is_unlike_is_refused_by_name_and_can_be_allowed(
    tmp_path: Path, changes: dict[str, Any], fields: set[str], hint: str
) -> None:
    """Each field with both values, and the option that allows it; then it stands in the result."""
    a, b = stored(tmp_path / "a"), stored(tmp_path / "b", **changes)
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


def test_runs_that_differ_within_a_side_are_named(tmp_path: Path) -> None:
    """A1 and A2 by their numbers, never as A and B; in the table, what differs between the sides."""
    other = replace(example_environment(), torch="2.10.0")
    a = [stored(tmp_path / "a1"), stored(tmp_path / "a2", environment=other)]
    b, torch_of_b = stored(tmp_path / "b"), stored(tmp_path / "b2", environment=other)
    torch_now = example_environment().torch
    with pytest.raises(NotComparable, match=rf"torch \(A1: {torch_now}; A2: 2.10.0\) differs"):
        loaderprobe.compare(a, b)
    text = " ".join(loaderprobe.compare(a, b, differ="torch").text().split())
    assert f"torch: A1: {torch_now}; A2: 2.10.0" in text and "A B torch" not in text
    with pytest.raises(NotComparable, match=rf"torch \(A: {torch_now}; B2: 2.10.0\) differs"):
        loaderprobe.compare(a[0], [b, torch_of_b])
    assert f"torch {torch_now} B2: 2.10.0" in " ".join(
        loaderprobe.compare(a[0], [b, torch_of_b], differ="torch").text().split()
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


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"differ": "nonsense"}, "names nothing"),
        ({"fail_if_slower": "80%"}, "half as fast"),
        ({"fail_if_slower": "much"}, "no share|not a number|much"),
    ],
)
def test_impossible_values_are_bad(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    """Before anything is compared."""
    a = stored(tmp_path / "a")
    with pytest.raises(BadValue, match=says):
        loaderprobe.compare(a, a, **given)


def bandwidths(factor: float, **changes: Any) -> BandwidthReport:
    """A ladder with opens, on a storage that is `factor` times as fast."""
    phases = tuple(example_phase(readers, factor * 61e6 * readers) for readers in (1, 2, 4))
    operations = (*example_operations({4: 20e3 * factor}), *example_operations({4: 9e3}, "stat", metadata="warm"))
    return replace(example_bandwidth(), phases=phases, metadata=operations, **changes)


def test_two_storages_compare_step_by_step(tmp_path: Path) -> None:
    """Each phase at its concurrency, opens too; the mean is that of the ladder. Another storage must be meant."""
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
    assert "MB/s" in text and "20.0±0.6 k/s" in text and "files, 1 reader " in text
    assert not loaderprobe.compare(*reversed(paths), differ="storage", fail_if_slower=0.05).passed
    with pytest.raises(BadValue, match="have no verdicts"):
        loaderprobe.compare(*paths, differ="storage", fail_if_verdict_changes=True)


@pytest.fixture(scope="module")
def nets() -> tuple[loaderprobe.Layers, loaderprobe.Layers]:
    """The model with the slow pool and the one with the quick one, in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    images = (torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4]))
    try:
        slow, quick = (loaderprobe.layers(Net(pool), images, steps=8) for pool in (SlowPool(), QuickPool()))
        return slow, quick
    finally:
        torch.set_num_threads(threads)


def steady(found: loaderprobe.Layers, *, pool_ms: float) -> loaderprobe.Layers:
    """The same layers and parts on an idle machine: 1 ms each way, but for the backward pass of the pool."""

    def ms(value: float) -> Milliseconds:
        steps = tuple(value * factor for factor in (0.99, 1.0, 1.01, 1.0))
        return Milliseconds(value=value, low=0.99 * value, high=1.01 * value, steps=steps)

    layers = tuple(
        replace(each, forward=ms(1.0), backward=ms(pool_ms if each.name == "pool" else 1.0)) for each in found.layers
    )
    whole = sum(each.backward.value for each in layers)
    parts = tuple(replace(each, ms=ms(whole if each.name == "backward" else 1.0)) for each in found.parts)
    return replace(found, layers=layers, parts=parts)


def test_a_layer_that_was_rewritten_is_faster(nets: tuple[loaderprobe.Layers, loaderprobe.Layers]) -> None:
    """It is named with both classes, the whole step before it; the others are the same."""
    slow, quick = nets
    found = loaderprobe.compare(steady(slow, pool_ms=9.0), steady(quick, pool_ms=1.0))
    faster = [(row.subject.kind, row.subject.name) for row in found.rows if row.word == "faster"]
    assert faster == [("part", "backward"), ("layer", "pool")]
    assert {row.word for row in found.rows} == {"faster", "same"}
    assert found.whole and found.whole.subject.kind == "step" and found.whole.word == "faster"
    text = " ".join(found.text().split())
    assert text.index("The whole step is faster") < text.index("pool (SlowPool → QuickPool) 5.0x")


def test_measured_layers_have_their_steps(nets: tuple[loaderprobe.Layers, loaderprobe.Layers]) -> None:
    """Whatever else the machine does, the slow pool is slower; its steps are what the figures come from."""
    found = loaderprobe.compare(*nets)
    pool = next(row for row in found.rows if row.subject.name == "pool")
    assert pool.subject.classes == ("SlowPool", "QuickPool") and pool.rounds == (8, 8)
    assert pool.ratio and pool.ratio.value > 1.5
    assert found.whole and found.whole.rounds == (8, 8) and found.whole.before
    assert all(len(layer.forward.steps) == 8 for layer in nets[0].layers)


def diagnosed(path: Path, truth: Truth, **changes: Any) -> loaderprobe.Diagnosis:
    """What `run` would keep of a script's loader; kept in `path`."""
    raw = measured(truth, 2)
    seen = DataSeen(hidden=None, size_bytes=1e9, root="")
    found = replace(conclude(raw, verdict(raw), seen, with_step=True, command="loaderprobe run"), **changes)
    found.save(path)
    return found


def test_two_results_of_run_have_one_row(tmp_path: Path) -> None:
    """The rate of training, from its rounds, and the verdict before and after; other workers must be meant."""
    slow = diagnosed(tmp_path / "a", Truth(bytes_per_s=2e6, compute=900.0))
    quick = diagnosed(tmp_path / "b", Truth(compute=50.0), files_were=slow.files_were)
    found = loaderprobe.compare(tmp_path / "a", tmp_path / "b", fail_if_verdict_changes=True)
    (row,) = found.rows
    assert (row.subject.kind, row.unit, row.word) == ("training", "images/s", "faster")
    assert row.rounds == (slow.rounds, quick.rounds) and row.before == slow.images_per_s
    assert row.verdict_changed and not found.passed
    text = " ".join(found.text().split())
    assert text.startswith("B against A, 1 loader: 1 faster 1 verdict changed: training: input: storage → compute.")
    assert loaderprobe.compare(slow, quick).rows == found.rows
    assert not loaderprobe.compare(quick, slow, fail_if_slower="5%").passed
    assert "No verdict changed." in loaderprobe.compare(slow, slow).text() and found.html()
    with pytest.raises(NotComparable, match=r"workers \(A: 2; B: 8\) differs"):
        loaderprobe.compare(slow, replace(quick, workers=8))
    with pytest.raises(BadValue, match="different kinds"):
        loaderprobe.compare(slow, stored(tmp_path / "c"))


def test_kinds_do_not_mix(tmp_path: Path, nets: tuple[loaderprobe.Layers, loaderprobe.Layers]) -> None:
    """Nor does anything compare with what is no result."""
    run, other = stored(tmp_path / "a"), nets[0].save(tmp_path / "layers").parent
    with pytest.raises(BadValue, match="different kinds"):
        loaderprobe.compare(run, other)
    loaderprobe.compare(run, run).save(tmp_path / "compared")
    with pytest.raises(BadValue, match="does not compare"):
        loaderprobe.compare(tmp_path / "compared", run)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DamagedRun):
        loaderprobe.compare(tmp_path / "x.json", run)


def test_a_comparison_is_kept_and_shown_again(tmp_path: Path) -> None:
    """JSON with its schema, a frame with units, a page with the ratios and both maps; loading gives it back."""
    found = loaderprobe.compare(stored(tmp_path / "a"), stored(tmp_path / "b", slower=2), fail_if_slower="5%")
    page = found.save(tmp_path / "out")
    assert loaderprobe.Comparison.load(tmp_path / "out") == found
    plain = json.loads(found.json())
    assert (plain["schema"], plain["schema_version"]) == ("loaderprobe/compare", 2)
    frame = found.to_frame()
    assert list(frame["word"]) == ["slower"] * 4 and list(frame["kind"])[-1] == "all"
    html = page.read_text()
    assert html.count("<svg") == 2 and "What limits, in A and in B" in html and "-50 %" in html
    assert all(len(line) <= 80 for line in found.text().splitlines())
    assert found.markdown().startswith("# B against A")

"""`compare` on results of `bandwidth`, `layers` and `run`: what matches, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import loaderprobe
from loaderprobe.analyze.judge import verdict
from loaderprobe.api.bandwidth import RankBandwidth
from loaderprobe.api.diagnose import conclude
from loaderprobe.errors import BadValue, DamagedRun, NotComparable
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.diagnosis import DataFound
from loaderprobe.records.layers import Milliseconds
from loaderprobe.render.json import result_json
from loaderprobe.testing import example_location
from tests.analyze.measured import measured
from tests.analyze.scripted import Truth
from tests.api.test_compare import stored
from tests.compute.slow_pool import Net, QuickPool, SlowPool
from tests.examples.bandwidth import example_bandwidth, example_operations, example_phase
from tests.examples.rank_bandwidth import example_rank_bandwidth, example_ranks


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


def test_ranks_compare_with_ranks_only(tmp_path: Path) -> None:
    """By the readers of all ranks; of steps with as many, the fastest. Readers of one process are another engine."""
    paths = []
    for name, factor in (("a", 1.0), ("b", 1.5)):
        phases = example_ranks(factor * 20e6), example_ranks(*[factor * 20e6] * 2), example_ranks(9e6, readers=4)
        paths.append(RankBandwidth.of(example_rank_bandwidth(*phases)).save(tmp_path / name).parent)
    found = loaderprobe.compare(*paths)
    assert [(row.subject.readers, row.word) for row in found.rows] == [(2, "faster"), (4, "faster")]
    with pytest.raises(NotComparable) as caught:
        loaderprobe.compare(bandwidths(1.0), paths[0])
    assert "engine" in caught.value.fields


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
    seen = DataFound(hidden=None, size_bytes=1e9, root="")
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

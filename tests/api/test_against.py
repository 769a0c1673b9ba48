"""`sweep --against`: what B is, what is refused before anything is measured, and both sides measured in turn."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api import against as verb
from loaderprobe.api.against import AgainstRequest, against_request, moved, sides_in, start_against
from loaderprobe.errors import BadValue, Refused
from loaderprobe.measure.ceilings import Ceilings
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.further import joined
from loaderprobe.measure.runner import ForkServer, Order, run_configuration
from loaderprobe.records.files import FileSet
from loaderprobe.records.measurement import Measurement, RunFailure
from loaderprobe.render.sweep_plan_words import against_words
from loaderprobe.testing import example_config, example_environment
from tests.analyze.measured import measured
from tests.analyze.runs import scaled
from tests.analyze.scripted import Truth
from tests.api.samples import photo_files
from tests.api.test_compare import stored
from tests.cli.invoke import invoke

TRUTH = Truth(compute=1000.0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> FileSet:
    """Three files of one byte in a folder of a class."""
    root = tmp_path_factory.mktemp("data") / "photos"
    (root / "cat").mkdir(parents=True)
    paths = tuple(f"cat/{number}.jpg" for number in range(3))
    for each in paths:
        (root / each).write_bytes(b"x")
    return FileSet(
        label="photos", root=str(root), generated=False, paths=paths, classes=(0,) * 3, size_bytes=(1,) * 3,
        images_found=3,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, files: FileSet) -> Path:
    """The serial loader and two workers, on these files."""
    return stored(tmp_path_factory.mktemp("runs") / "run", workers=(0, 2), files=files, root=files.root)


def asked(run: Path, out: Path, data: Path | None = None, **changes: Any) -> AgainstRequest:
    """The request for these changes."""
    return against_request(
        run, data, rounds=6, budget_s=None, time_limit_s=60.0, thorough=False, out=out, changes=changes, command=("x",)
    )


def test_b_is_a_with_the_changes(run: Path, tmp_path: Path) -> None:
    """Every configuration, with as many rounds as pairs; values are given as on the command line or in Python."""
    request = asked(run, tmp_path / "out", decoder="torchvision", batch_size="8")
    assert [(a.loader.workers, a.rounds, b.rounds) for a, b in request.pairs] == [(0, 6, 6), (2, 6, 6)]
    assert {(a.loader.decoder, b.loader.decoder) for a, b in request.pairs} == {("pillow", "torchvision")}
    assert {b.compute.batch_size for _, b in request.pairs} == {8}
    assert set(request.changes) == {"decoder", "batch_size"} and not request.moved
    said = " ".join(said_of(request))
    assert said.startswith(f"A is {run} as it was asked; B is the same with decoder torchvision (A: pillow)")
    assert "Changed since" in said and f"torch {example_environment().torch}, now" in said


def said_of(request: AgainstRequest) -> list[str]:
    return list(
        against_words(
            str(request.against.path), request.pairs, request.changes, roots=[each.root for each in request.files],
            moved=request.moved, left_out=request.left_out, since=request.since(),
        )
    )  # fmt: skip


def test_what_a_change_does_not_reach_is_left_out(run: Path, tmp_path: Path) -> None:
    """The serial loader has no batches ahead; with workers it has."""
    request = asked(run, tmp_path / "out", prefetch_factor=4)
    assert [b.loader.prefetch_factor for _, b in request.pairs] == [4] and request.left_out == 1
    assert any("1 configuration of" in each and "is left out" in each for each in said_of(request))
    one = stored(tmp_path / "one", workers=(0,), files=request.files[0], root=request.files[0].root)
    (pair,) = asked(one, tmp_path / "out", workers=3).pairs
    assert (pair[1].loader.workers, pair[1].loader.prefetch_factor) == (3, 2)
    assert set(asked(one, tmp_path / "out", workers=3).changes) == {"workers", "prefetch_factor"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"decoder": "pillow"}, "has decoder pillow already"),
        ({"decoder": "gpu"}, "--decoder gpu"),
        ({"prefetch_factor": "2,4"}, "--prefetch-factor names 2 values, but B has one"),
        ({"workers": 4}, "with workers 4, 2 configurations of"),
        ({"seed": 3}, "seed is no option in which B can differ"),
        ({"nonsense": 3}, "nonsense is no option"),
        ({"compute": "tpu"}, "tpu"),
        ({"cache": "tepid"}, "tepid"),
        ({"batch_size": 0}, "batch size"),
        ({}, "A is measured again as it is now, not as it was in"),
    ],
)
def test_what_cannot_be_compared_is_refused_first(
    run: Path, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    """A bad value, before anything is written; without a change, software of the past is no side."""
    with pytest.raises(BadValue, match=says):
        asked(run, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_a_copy_of_the_data_is_found_below_the_path_that_is_given(files: FileSet, tmp_path: Path) -> None:
    """The copy itself, or a folder with the same name in it; a copy that differs is none."""
    copy = tmp_path / "nfs" / "photos"
    shutil.copytree(files.root, copy)
    for given in (copy, copy.parent):
        found = moved(files, given)
        assert found.root == str(copy) and found.content == files.content and found.fingerprint != files.fingerprint
    (copy / files.paths[1]).write_bytes(b"longer")
    with pytest.raises(BadValue, match=r"cat/1.jpg has 6 bytes, and had 1"):
        moved(files, copy)
    (copy / files.paths[1]).unlink()
    with pytest.raises(BadValue, match=r"cat/1.jpg cannot be read: No such file"):
        moved(files, copy)
    with pytest.raises(BadValue, match="is no copy of"):
        moved(files, tmp_path / "nowhere")


def test_a_run_whose_data_are_gone_is_refused(files: FileSet, tmp_path: Path) -> None:
    """By the file that is missing."""
    gone = stored(tmp_path / "gone", workers=(0,), files=files, root="/nowhere")
    with pytest.raises(BadValue, match=r"/nowhere/cat/0.jpg cannot be read"):
        asked(gone, tmp_path / "out", decoder="torchvision")


def sides(run: Path, out: Path, **changes: Any) -> verb.Sides:
    """Both directories, with six rounds each that vary together: B takes a tenth longer."""
    pair = start_against(asked(run, out, **changes))
    for side, factor in zip(pair, (10, 11), strict=True):
        for config in side.record.spec.configs:
            made = scaled(measured(TRUTH, config.loader.workers), factor)
            side.save(replace(made, config=config))
    return pair


def test_both_runs_are_compared_as_pairs_without_being_asked(run: Path, files: FileSet, tmp_path: Path) -> None:
    """`compare OUT/a OUT/b` knows what was meant to differ; a copy of the data on another storage, too."""
    copy = tmp_path / "nfs"
    shutil.copytree(files.root, copy)
    a, b = sides(run, tmp_path / "out", data=copy, prefetch_factor=4)
    found = loaderprobe.compare(a.path, b.path)
    assert len(found.rows) == 2 and {each.field for each in found.differences} <= {"prefetch_factor", "storage"}
    assert found.before.roots == (files.root,) and found.after.roots == (str(copy),)
    assert sides_in(tmp_path / "out") is not None and sides_in(a.path) is None
    with pytest.raises(BadValue, match="measured in turn"):
        loaderprobe.resume(a.path)
    with pytest.raises(Refused):
        asked(run, tmp_path / "out" / "a", decoder="torchvision")


class Children:
    """Stands in for the child processes: made-up rounds, of which each takes as long as the machine says just then."""

    def __init__(self, interrupted: int | None = None) -> None:
        self.orders: list[Order] = []
        self.interrupted = interrupted

    def __call__(self, order: Order, **_: Any) -> Measurement | RunFailure:
        self.orders.append(order)
        if len(self.orders) == self.interrupted:
            raise KeyboardInterrupt
        config = order.config
        if config.loader.decoder == "torchvision" and config.loader.workers == 2:
            return RunFailure(
                config=config, stage="start", reason="it broke", hint="", exit_code=1, signal=None, log=(),
                started_utc="", wall_s=1.0,
            )  # fmt: skip
        pair = (len(self.orders) + 1) // 2
        is_a = (config.loader.decoder, config.loader.tensor) == ("pillow", "float32")
        factor = (10 + pair) * (9 + pair % 2 if is_a else 8)
        made = scaled(measured(TRUTH, config.loader.workers), factor)
        one = replace(made, config=config, segments=tuple(each for each in made.segments if each.round == 0))
        return joined(order.earlier, one) if order.earlier else one


def pretend(monkeypatch: pytest.MonkeyPatch, children: Children) -> None:
    """No process is started, and no storage measured."""
    monkeypatch.setattr(verb, "run_configuration", children)
    monkeypatch.setattr(verb, "forkserver", lambda: nullcontext(SimpleNamespace(start=None)))
    monkeypatch.setattr(Ceilings, "after", lambda *_: None)


def test_both_sides_are_measured_shown_and_kept(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C keeps whole pairs and says how to go on; then the comparison stands beside both runs. What failed is
    named and gives code 4."""
    out = tmp_path / "out"
    pretend(monkeypatch, Children(interrupted=8))
    begun = invoke("sweep", "--against", run, "--decoder", "torchvision", "--rounds", 4, "--out", out)
    assert begun.exit_code == 130 and f"sweep --resume {out}" in begun.stderr
    assert "B is the same with decoder torchvision (A: pillow)" in begun.stderr
    assert "Plan: 2 configurations, each as A and as B in turn (A B, B A), 4 pairs of rounds." in begun.stderr
    pretend(monkeypatch, children := Children())
    done = invoke("sweep", "--resume", out)
    assert f"4 pairs of rounds left. Resume with: loaderprobe sweep --resume {out}" in done.stderr
    assert done.exit_code == 4 and "B failed: 500x375, 2 workers, emulated:1000, cold: it broke" in done.stderr
    assert "a change is that of 4 pairs of rounds" in " ".join(done.stdout.split())
    assert f"loaderprobe compare {out / 'a'} {out / 'b'} --fail-if-slower 5%" in done.stdout
    assert sum(order.config.loader.workers == 0 for order in children.orders) == 4, "two pairs were there"
    found = loaderprobe.Comparison.load(out)
    (row,) = found.rows
    assert (row.pairs, row.rounds, row.word) == (4, (4, 4), "faster") and len(found.only_before) == 1
    assert [each.field for each in found.differences] == ["decoder"]
    assert all((out / name / "report.html").is_file() for name in ("a", "b")) and (out / "report.html").is_file()
    gate = invoke("compare", out / "b", out / "a", "--fail-if-slower", "5%", "--json")
    assert gate.exit_code == 6 and json.loads(gate.stdout)["rows"][0]["pairs"] == 4


def test_in_python_the_comparison_is_what_comes_back(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the call that made it; progress is heard; without a common configuration it is an error."""
    heard: list[tuple[str, int, int]] = []
    pretend(monkeypatch, Children())
    monkeypatch.setattr(verb, "save_report", lambda *_: None)
    found = loaderprobe.sweep_against(
        loaderprobe.load(run),
        tensor="uint8",
        rounds=3,
        out=tmp_path / "out",
        progress=lambda *stage: heard.append(stage),
    )
    assert [row.pairs for row in found.rows] == [3, 3] and found.whole and found.whole.pairs == 3
    assert found.origin.command == f"loaderprobe.sweep_against({str(run)!r}, tensor='uint8')"
    assert heard[0][0].startswith("1/12 ") and heard[-1][0].startswith("12/12 ")
    pretend(monkeypatch, Children(interrupted=2))
    with pytest.raises(KeyboardInterrupt) as caught:
        loaderprobe.sweep_against(run, tensor="uint8", out=tmp_path / "later")
    assert f"sweep --resume {tmp_path / 'later'}" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--seed", 3], "--seed has no effect beside --against"),
        (["--resolutions", "256x256"], "--resolutions has no effect"),
        (["--workers", "2,4"], "--workers names 2 values"),
        (["--decoder", "pillow"], "has decoder pillow already"),
        (["--decoder", "torchvision", "--budget", "0"], "above 0"),
    ],
)
def test_options_without_effect_are_refused(run: Path, tmp_path: Path, options: list[object], says: str) -> None:
    """With code 2, before anything is measured."""
    done = invoke("sweep", "--against", run, "--out", tmp_path / "out", *options)
    assert (done.exit_code, done.stdout) == (2, "") and says in done.stderr and not (tmp_path / "out").exists()


def test_a_real_child_measures_one_round_in_turn(tmp_path: Path, fork_server: ForkServer) -> None:
    """The first with what the verdict needs, the next joined to it; both train."""
    names = [str(Path(each).relative_to(tmp_path)) for each in photo_files(tmp_path / "photos")]
    files = FileSet(
        label="photos", root=str(tmp_path), generated=False, paths=tuple(names), classes=(0,) * len(names),
        size_bytes=tuple((tmp_path / each).stat().st_size for each in names), images_found=len(names),
    )  # fmt: skip
    config = example_config(data=files.fingerprint, workers=0, batch_size=2, compute="emulated:100", rounds=4)
    found: Measurement | None = None
    for _ in range(2):
        order = Order(
            config=config, files=files, budget_s=0.0, begin_ns=SystemClock().now_ns(), earlier=found, in_turn=True
        )
        result = run_configuration(
            order, clock=SystemClock(), time_limit_s=60.0, on_event=lambda _: None, start=fork_server.start
        )
        assert isinstance(result, Measurement), result
        found = result
    assert found is not None
    trained = [each.round for each in found.segments if (each.mode, each.activity) == ("baseline", "training")]
    assert trained == [0, 1] and min(each.round for each in found.segments if each.activity == "loader_only") == 0

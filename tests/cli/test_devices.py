"""`loaderprobe devices`: what it prints and keeps, its exit codes, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loaderprobe.api import devices as verb
from loaderprobe.records.devices import DeviceSegment, DeviceWork, PlacementResult
from loaderprobe.records.measurement import RunFailure
from loaderprobe.testing import example_config
from tests.cli.invoke import invoke

SMALL = ("devices", "--on", "cpu,2xcpu", "--rounds", 3)
LARGER = 4


@pytest.fixture(autouse=True)
def _starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "_started", lambda *_: (None, None))


def measured(work: DeviceWork, *_: object, **__: object) -> PlacementResult:
    """Two ranks exchange gradients for as long as they compute."""
    ranks = work.placement.ranks
    times = {"training": 10.0 * ranks, "resident": 10.0 * ranks, "larger_batch": 40.0}
    if ranks > 1:
        times |= {"no_exchange": 10.0, "larger_no_exchange": 40.0}
    segments = tuple(
        DeviceSegment(
            name=name, round=number, steps=10, seconds=(ms / 100 * (1 + number / 1000),) * ranks,  # type: ignore[arg-type]  # names of segments
            batch_size=work.workload.batch_size * (LARGER if name.startswith("larger") else 1),
        )
        for number in range(work.rounds)
        for name, ms in times.items()
    )  # fmt: skip
    return PlacementResult(placement=work.placement, threads=1, segments=segments)


def failed(work: DeviceWork, *_: object, **__: object) -> PlacementResult:
    """Its second rank is killed."""
    if work.placement.ranks == 1:
        return measured(work)
    failure = RunFailure(
        config=example_config(), stage="round 1: resident", reason="the measuring process was killed by SIGKILL",
        hint="", exit_code=None, signal="SIGKILL", log=("the last line",), started_utc="", wall_s=1.0, rank=1, host="a",
    )  # fmt: skip
    return PlacementResult(placement=work.placement, failure=failure)


def test_small_models_are_slower_on_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All models of the article beside its table; kept, and shown again by `report`."""
    monkeypatch.setattr(verb, "_placement", measured)
    out = tmp_path / "found"
    done = invoke(*SMALL, "--article", "--quiet", "--out", out)
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "mlp: one process on the CPU is fastest, 4.7 s an epoch." in text
    assert "2 ranks on the CPU share its cores and take 9.4 s, 0.5 times as fast." in text
    assert "Exchanging gradients takes 50 % of a step; without it an epoch would take 4.7 s." in text
    assert "Beside the article" in text and "1211.9" in text and "1.54" in text
    assert invoke("report", out).stdout in done.stdout
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 8 and "Parts of a step" in page
    assert (out / "devices.csv").read_text().count("\n") == 9
    plain = json.loads((out / "result.json").read_text())
    assert [each["placements"][1]["cause"] for each in plain["verdicts"]] == ["gradients"] * 4


def test_a_failed_placement_has_exit_code_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other is shown, and the failed one with its rank, signal and last lines."""
    monkeypatch.setattr(verb, "_placement", failed)
    done = invoke(*SMALL, "--out", tmp_path / "o")
    assert done.exit_code == 4, done.stderr
    assert "mlp: one process on the CPU takes 4.7 s an epoch." in done.stdout
    said = "2 x cpu failed: rank 1 (a): the measuring process was killed by SIGKILL, at: round 1: resident."
    assert said in " ".join(done.stdout.split())
    assert "the last line" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--model", "nope"), 2, "no model named 'nope'"),
        (("--model", "no.such.module:net"), 3, "no.such.module"),
        (("--model", "mlp", "--article"), 2, "exclude each other"),
        (("--on", "64000xcpu"), 2, "is no placement"),
        (("--on", "9999xcpu"), 3, "needs 9999 cores"),
        (("--md", "--json"), 2, "exclude each other"),
        (("--on", "cuda"), 3, "torch finds none"),
    ],
)
def test_trouble_has_a_code_and_a_reason(
    options: tuple[str, ...], code: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    monkeypatch.setattr(verb, "_gpus", lambda: 0)
    done = invoke(*SMALL, *options)
    assert (done.exit_code, done.stdout) == (code, "") and says in done.stderr

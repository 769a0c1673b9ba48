"""`devices` with two real ranks: what they gave, and one that dies."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.api import devices as verb
from loaderprobe.api.devices import parse_placement
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.devices import Placement, PlacementResult
from loaderprobe.records.environment import Gpu
from loaderprobe.records.measurement import RunFailure
from loaderprobe.records.remark import Remark
from loaderprobe.testing import example_config

SMALL = {"batch_size": 8, "samples": 400, "steps": 2, "rounds": 3}


@pytest.fixture(scope="module")
def found() -> Iterator[loaderprobe.Devices]:
    """A perceptron in two processes, where the port that torchrun would use by this variable is taken."""
    with socket.create_server(("", 0)) as taken, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        yield loaderprobe.devices("mlp", ["2xcpu"], **SMALL)  # type: ignore[arg-type]  # by name


def test_every_rank_takes_the_same_steps(found: loaderprobe.Devices) -> None:
    """Each experiment once a round, with the seconds of each rank; a batch is that of all ranks together."""
    (two,) = found.results[0].placements
    assert not found.failed and two.backend == "gloo"
    kinds = ["larger_batch", "larger_no_exchange", "no_exchange", "resident", "training"]
    assert sorted((each.round, each.name) for each in two.segments) == [(n, kind) for n in range(3) for kind in kinds]
    assert {len(each.seconds) for each in two.segments} == {2} and all(each.step_s > 0 for each in two.segments)
    assert {(each.name.startswith("larger"), each.batch_size) for each in two.segments} == {(True, 32), (False, 8)}
    # Weights and biases of 784 x 1000, 1000 x 1000 and 1000 x 10, in float32.
    assert two.gradient_bytes == 4 * (785 * 1000 + 1001 * 1000 + 1001 * 10)


def test_the_answer_says_which_is_fastest(found: loaderprobe.Devices) -> None:
    """Figures in the text are those of the verdict; no line is longer than a terminal."""
    (verdict,) = found.verdicts
    (two,) = verdict.placements
    assert two.speedup is None and {each.name for each in two.gains} == {"gradients", "input", "batch", "larger"}
    assert two.epoch_s.value == pytest.approx(two.step_ms.value / 1e3 * 400 / 8)
    text = found.text()
    assert text.startswith("mlp on 2 x cpu\n\nmlp: 2 ranks on the CPU take ") and all(
        len(line) <= 80 for line in text.splitlines()
    )
    assert "of 1x28x28, batch 8, 400 samples an epoch" in text and "no gradient exchange" in text
    assert "Ranks on the CPU share its" in text and "7.18 MB (gloo)" in text
    assert "<svg" in found.html() and list(found.to_frame()["on"]) == ["2xcpu"]


def test_why_there_is_no_larger_batch(found: loaderprobe.Devices) -> None:
    """Where an epoch has too few samples, with the number that is enough."""
    result = found.results[0]
    few = replace(result, workload=replace(result.workload, samples=31))
    text = " ".join(replace(found, results=(few,)).text().split())
    assert "No larger batch was tried: an epoch of 31 samples has none of 32. For that, use --samples 32 or" in text
    assert "No larger batch" not in found.text()


def test_a_result_is_read_again(found: loaderprobe.Devices, tmp_path: Path) -> None:
    """With its schema; verdicts are computed again."""
    found.save(tmp_path / "kept")
    plain = json.loads((tmp_path / "kept" / "result.json").read_text())
    assert (plain["schema"], plain["schema_version"]) == ("loaderprobe/devices", 1)
    assert plain["verdicts"][0]["placements"][0]["placement"] == {"device": "cpu", "ranks": 2}
    again = loaderprobe.Devices.load(tmp_path / "kept")
    assert again.results == found.results and again.text() == found.text()


def test_a_rank_that_dies_is_named() -> None:
    """With its signal and last line; the placement has failed, and the result says so."""
    found = loaderprobe.devices("tests.api.mortal:mortal", "2xcpu", image_size=4, **SMALL)  # type: ignore[arg-type]  # by name
    failure = found.results[0].placements[0].failure
    assert failure is not None and found.failed
    assert (failure.rank, failure.host, failure.signal) == (1, socket.gethostname(), "SIGKILL")
    assert failure.log[-1] == "about to be killed" and failure.stage == "warming up"
    assert "2 x cpu failed: rank 1 (" in found.text() and "killed by SIGKILL" in found.text()
    assert "killed by SIGKILL" in found.to_frame()["failure"][0]


def test_ctrl_c_keeps_what_was_measured(found: loaderprobe.Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    """The placement that was interrupted is not part of it; without any, the interrupt goes on."""
    given: list[PlacementResult] = [found.results[0].placements[0]]

    def interrupted(*_: object, **__: object) -> PlacementResult:
        if not given:
            raise KeyboardInterrupt
        return given.pop()

    monkeypatch.setattr(verb, "_placement", interrupted)
    monkeypatch.setattr(verb, "_started", lambda *_: (None, None))
    partly = loaderprobe.devices("mlp", "2xcpu,cpu", **SMALL)  # type: ignore[arg-type]  # by name
    assert partly.interrupted and [each.placement.name for each in partly.results[0].placements] == ["2xcpu"]
    assert "Interrupted: what was measured before is shown." in partly.text()
    with pytest.raises(KeyboardInterrupt):
        loaderprobe.devices("mlp", "cpu", **SMALL)  # type: ignore[arg-type]  # by name


def test_a_page_without_a_figure_is_no_error(found: loaderprobe.Devices) -> None:
    """Where every placement failed, each says why."""
    failure = RunFailure(
        config=example_config(), stage="round 1: resident", reason="timeout: it got no further for 120 s",
        hint="raise --timeout", exit_code=None, signal=None, log=('File "a.py", line 3',), started_utc="", wall_s=1.0,
        rank=1, host="a",
    )  # fmt: skip
    result = replace(
        found.results[0],
        placements=(PlacementResult(placement=Placement(device="cpu", ranks=2), failure=failure),),
    )
    text = " ".join(replace(found, results=(result,)).text().split())
    assert "mlp: no placement could be measured." in text
    assert "rank 1 (a): timeout: it got no further for 120 s, at: round 1: resident. Raise --timeout." in text
    assert "a.py" in text


@pytest.mark.parametrize(
    ("text", "name"), [("cpu", "cpu"), ("2xcpu", "2xcpu"), ("1xcuda", "cuda"), ("8 x cuda", "8xcuda")]
)
def test_placements_have_names(text: str, name: str) -> None:
    """One rank needs no number."""
    assert parse_placement(text).name == name


def test_more_gpus_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says how many torch finds; the default takes one and all."""
    monkeypatch.setattr(verb, "_gpus", lambda: 4)
    with pytest.raises(MissingPart, match="8 GPUs are asked for, and torch finds 4"):
        loaderprobe.devices("mlp", "8xcuda")
    monkeypatch.setattr(verb, "list_gpus", lambda: ((), Remark(code="no_gpu_listed")))
    with pytest.raises(MissingPart, match=r"torch finds 4 \(NVML lists no GPU\)"):
        loaderprobe.devices("mlp", "8xcuda")
    gpu = Gpu(name="made up", uuid=None, memory_bytes=None, driver=None)
    monkeypatch.setattr(verb, "list_gpus", lambda: ((gpu,) * 4, None))
    assert [each.name for each in verb._placements(None, 8)] == ["cpu", "cuda", "4xcuda"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on": "cuda:1"}, "torch's name of one GPU"),
        ({"on": "tpu"}, "'tpu' is no placement"),
        ({"batch_size": 7}, "a batch of 7 cannot be split over 2 ranks"),
        ({"samples": 10}, "an epoch of 10 samples has no batch of 128"),
        ({"image_size": 8}, "mlp is not trained on images"),
        ({"rounds": 2}, "2 rounds have no useful spread"),
        ({"steps": 0}, "needs a step"),
        ({"timeout_s": 0}, "cannot be waited for"),
    ],
)
def test_what_cannot_be_measured_is_refused(options: dict[str, object], says: str) -> None:
    """Before anything is started, with the next step."""
    with pytest.raises(BadValue, match=says) as caught:
        loaderprobe.devices(**{"on": "cpu,2xcpu", **options})  # type: ignore[arg-type]  # by name
    assert caught.value.hint

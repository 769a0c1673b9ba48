"""`loaderprobe trace`: what it prints and keeps, its exit codes, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.invoke import invoke
from tests.examples.traces import FIXTURES, event, ranks, training, written

PART_NAMES = {"compute", "communication", "input", "copy", "loader", "sync", "launch", "device", "unknown"}


def test_a_recording_in_every_format(tmp_path: Path) -> None:
    """Text and JSON, kept with its page, and shown again by `report`; the schema holds."""
    path, out = FIXTURES / "v100_2106_w0_a.json.gz", tmp_path / "found"
    done = invoke("trace", path, "--quiet", "--out", out)
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout.startswith("Tesla V100-DGXS-32GB, 2 steps of")
    assert invoke("report", out).stdout in done.stdout
    found = json.loads(invoke("report", out, "--json").stdout)
    assert found["schema"] == "loaderprobe/trace"
    assert (found["bound"]["side"], found["bound"]["cause"], found["bound"]["how"]) == ("input", "input", "estimated")
    for each in (found, *found["ranks"]):
        assert each["shares"].keys() == PART_NAMES and sum(each["shares"].values()) == pytest.approx(1)
        assert {"busy_fraction", "sm_efficiency", "occupancy", "steps", "step_s"} <= each.keys()
    jsonschema.validate(found, json.loads(invoke("report", out, "--schema").stdout))
    assert invoke("report", out, "--format", "md").stdout.startswith("# Tesla V100")
    assert invoke("report", out, "--format", "csv").stdout == (out / "trace.csv").read_text()
    assert "<svg" in (out / "report.html").read_text()


def test_json_alone_is_printed(tmp_path: Path) -> None:
    """Progress goes to standard error."""
    done = invoke("trace", written(tmp_path / "t.json"), "--json")
    assert json.loads(done.stdout)["steps"] == 4 and done.exit_code == 0


def test_a_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    """Instead of the text."""
    page = tmp_path / "page.html"
    done = invoke("trace", ranks(tmp_path / "r"), "--quiet", "--html", page)
    assert done.stdout == f"Trace: {page}\n" and page.read_text().count("<svg") == 3


def test_a_file_that_cannot_be_read_has_exit_code_4(tmp_path: Path) -> None:
    """The others are shown."""
    done = invoke("trace", written(tmp_path / "t.json"), tmp_path / "none.json", "--quiet")
    assert done.exit_code == 4 and "not exist" in done.stdout


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("none.json",), 2, "does not exist"),
        (("cpu.json",), 2, "only the CPU was recorded"),
        (("t.json", "--device", 9), 2, "no kernel of GPU 9"),
        (("t.json", "--annotation", "x"), 2, "no span named 'x'"),
        (("t.json", "--md", "--json"), 2, "exclude each other"),
        (("t.json", "--out", "."), 5, "not empty"),
    ],
)
def test_trouble_has_a_code_and_a_reason(
    options: tuple[str, ...], code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing on standard output."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "t.json", training())
    written(tmp_path / "cpu.json", [event("cpu_op", "aten::add", 1, 1)])
    done = invoke("trace", *options, "--quiet")
    assert (done.exit_code, done.stdout) == (code, "") and says in " ".join(done.stderr.split())

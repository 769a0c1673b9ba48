"""`loaderprobe trace`: what it prints and keeps, its exit codes, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loaderprobe.records.verdict import TIME_PARTS
from tests.cli.invoke import invoke
from tests.examples.traces import FIXTURES, ranks, written


def test_a_recording_in_every_format(tmp_path: Path) -> None:
    """Text and JSON, kept with its page, and shown again by `report`."""
    path, out = FIXTURES / "v100_2106_w0_a.json.gz", tmp_path / "found"
    done = invoke("trace", path, "--quiet", "--out", out)
    assert done.exit_code == 0 and done.stderr == ""
    assert done.stdout.startswith("Tesla V100-DGXS-32GB, 2 steps of")
    assert invoke("report", out).stdout in done.stdout
    found = json.loads(invoke("report", out, "--json").stdout)
    assert found["schema"] == "loaderprobe/trace"
    assert (found["bound"]["side"], found["bound"]["cause"], found["bound"]["how"]) == ("input", "input", "estimated")
    for each in (found, *found["ranks"]):
        assert sum(each["gaps"][f"{part}_ns"] for part in TIME_PARTS) == each["gaps"]["window_ns"]
        assert each["use"].keys() > {"kernel_busy", "occupancy_estimated"} and each["gaps"]["steps"] == 2
    assert invoke("report", out, "--format", "csv").stdout == (out / "trace.csv").read_text()
    assert "<svg" in (out / "report.html").read_text()


def test_a_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    """Instead of the text, of which the first line stays."""
    page = tmp_path / "page.html"
    done = invoke("trace", ranks(tmp_path / "r"), "--quiet", "--html", page)
    assert done.stdout.startswith("Test GPU, 3 recordings") and done.stdout.endswith(f"Trace: {page}\n")
    assert len(done.stdout.splitlines()) == 2 and page.read_text().count("<svg") == 3


def test_a_file_that_cannot_be_read_has_exit_code_4(tmp_path: Path) -> None:
    """The others are shown."""
    done = invoke("trace", written(tmp_path / "t.json"), tmp_path / "none.json", "--quiet")
    assert done.exit_code == 4 and "not exist" in done.stdout


def test_places_that_cannot_be_written_are_refused_before_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a page and of a result: a large recording is not read for nothing."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    for option in ("--html", "--out"):
        done = invoke("trace", tmp_path / "none.json", "--quiet", option, tmp_path / "new")
        assert done.exit_code == 3 and f"choose another path for {option}" in " ".join(done.stderr.split())


def test_a_page_beside_a_kept_result_hides_no_text(tmp_path: Path) -> None:
    """The page alone has its first line on the terminal; with `--out` all of it."""
    options = ("--quiet", "--html", tmp_path / "page.html", "--out", tmp_path / "found")
    done = invoke("trace", written(tmp_path / "t.json"), *options)
    assert "Where a step's time goes" in done.stdout and "Trace:" in done.stdout and "Report:" in done.stdout


def test_results_and_recordings_are_told_apart(tmp_path: Path) -> None:
    """A result in a file is shown; a recording in its place, and a result as a recording, name what to do."""
    path, packed = written(tmp_path / "t.json"), written(tmp_path / "t.json.gz")
    kept = tmp_path / "kept.json"
    kept.write_text(invoke("trace", path, "--json").stdout)
    assert invoke("report", kept).stdout.startswith("Test GPU, 4 steps")
    done = invoke("trace", kept, "--quiet")
    assert done.exit_code == 2 and "loaderprobe report" in done.stderr
    for typed in (("report", path), ("report", packed), ("compare", packed, packed), ("plan", packed), ("plan", path)):
        done = invoke(*typed)
        said = " ".join(done.stderr.split())
        assert done.exit_code == 2 and "loaderprobe trace FILE --out DIR" in said, (typed, said)

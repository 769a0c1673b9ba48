"""`loaderprobe layers`: a table, rows in a file, and clear errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from loaderprobe.records.files import FileSet
from tests.cli.invoke import invoke

SMALL = ("layers", "--model", "lenet5", "--compute", "cpu", "--batch-size", 2, "--image-size", 32, "--steps", 4)


def test_the_layers_of_a_named_model(tmp_path: Path) -> None:
    """As JSON, in a directory with every layer as a row of a file; `report` shows it again."""
    out = tmp_path / "found"
    done = invoke(*SMALL, "--json", "--out", out)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((out / "result.json").read_text()) == found
    assert (found["model"], found["batch_size"], found["steps"]) == ("lenet5", 2, 4)
    with (out / "profile.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == [each["name"] for each in found["layers"]]
    assert {"conv1", "fc3"} <= {row["layer"] for row in rows}
    assert json.loads(invoke("report", out, "--json").stdout) == found
    assert invoke("report", out, "--format", "csv").stdout == (out / "profile.csv").read_text()
    assert invoke("report", out, "--format", "html").stdout == (out / "report.html").read_text()
    assert "<svg" in (out / "report.html").read_text()


def test_loading_is_a_part_of_the_step(tmp_path: Path, photographs: FileSet) -> None:
    """Where the images of a folder are trained on."""
    small = [each for each in SMALL if each not in ("--image-size", 32)]
    done = invoke(*small, photographs.root, "--json", "--out", tmp_path / "o")
    assert done.exit_code == 0, done.stderr
    parts = json.loads(done.stdout)["parts"]
    assert parts[0]["name"] == "load" and parts[0]["ms"]["value"] > 0

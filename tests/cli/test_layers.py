"""`loaderprobe layers`: a table, rows in a file, and clear errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.cli.invoke import invoke

SMALL = ("layers", "--model", "lenet5", "--compute", "cpu", "--batch-size", 2, "--image-size", 32, "--steps", 4)


def test_the_layers_of_a_named_model(tmp_path: Path) -> None:
    """As JSON, with every layer as a row of a file."""
    done = invoke(*SMALL, "--json", "--csv", tmp_path / "profile.csv")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["model"], found["batch_size"], found["steps"]) == ("lenet5", 2, 4)
    with (tmp_path / "profile.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["layer"] for row in rows] == [each["name"] for each in found["layers"]]
    assert {"conv1", "fc3"} <= {row["layer"] for row in rows}


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--model", "nope"), 2, "no model named 'nope'"),
        (("--model", "no.such.module:net"), 3, "no.such.module"),
        (("--md", "--json"), 2, "exclude each other"),
        (("--compute", "cuda"), 3, "no CUDA device"),
    ],
)
def test_trouble_has_a_code_and_a_reason(options: tuple[str, ...], code: int, says: str) -> None:
    """Before anything is trained."""
    done = invoke(*SMALL, *options)
    assert (done.exit_code, done.stdout) == (code, "") and says in done.stderr

"""`loaderprobe tune workers`: one answer, kept and shown again, and clear errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.records.files import FileSet
from tests.cli.invoke import invoke

QUICK = ("--compute", "emulated:20000", "--batch-size", 4, "--budget", 3, "--most", 1)


def test_the_workers_of_a_folder(tmp_path: Path, photographs: FileSet) -> None:
    """As JSON, in a directory with a row a setting; `report` shows it again, in each format."""
    out = tmp_path / "found"
    done = invoke("tune", "workers", photographs.root, *QUICK, "--json", "--out", out)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((out / "result.json").read_text()) == found
    assert found["chosen"]["workers"] in (0, 1) and found["own"] is None
    assert found["line"].startswith("DataLoader(dataset, batch_size=4, shuffle=True, drop_last=True, num_workers=")
    with (out / "workers.csv").open() as file:
        assert [row["workers"] for row in csv.DictReader(file)] == ["0", "1"]
    assert "emulated accelerator" in invoke("report", out).stdout
    assert invoke("report", out, "--format", "md").stdout.startswith("# ")
    assert invoke("report", out, "--format", "html").stdout == (out / "report.html").read_text()


def test_an_interrupted_search_is_shown_and_kept(
    tmp_path: Path, photographs: FileSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit code of an interruption."""
    from loaderprobe.measure.own.loader import measure_loader

    visits: list[object] = []

    def measure(*given: Any) -> Any:
        if visits:
            raise KeyboardInterrupt
        visits.append(given)
        return measure_loader(*given)

    monkeypatch.setattr("loaderprobe.api.tune_workers.measure_loader", measure)
    done = invoke("tune", "workers", photographs.root, *QUICK, "--budget", 20, "--out", tmp_path / "o")
    assert done.exit_code == 130 and "The search was interrupted" in " ".join(done.stdout.split())
    assert json.loads((tmp_path / "o" / "result.json").read_text())["stop"] == "interrupted"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--compute", "emulated:nope"), 2, "neither a known accelerator"),
        (("--compute", "cpu,emulated:5"), 2, "names 2 devices"),
        (("--compute", "cuda"), 3, "there is no GPU"),
        (("--md", "--json"), 2, "exclude each other"),
        (("--most", 0), 2, "greater than or equal to 1"),
    ],
)
def test_trouble_has_a_code_and_a_reason(
    options: tuple[object, ...], code: int, says: str, photographs: FileSet, tmp_path: Path
) -> None:
    """Before anything is measured."""
    done = invoke("tune", "workers", photographs.root, *options, "--out", tmp_path / "o")
    assert (done.exit_code, done.stdout) == (code, "") and says in done.stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Is a bad path."""
    done = invoke("tune", "workers", tmp_path / "none", *QUICK, "--out", tmp_path / "o")
    assert (done.exit_code, done.stdout) == (2, "") and "none" in done.stderr

"""`loaderprobe plan`: formats, the largest input, and that nothing heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loaderprobe.cli.app import app
from tests.stored import full_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stored run of three measured configurations."""
    yield full_run(tmp_path_factory.mktemp("stored") / "run").path


def plan(*arguments: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_schema_and_catalogue_need_no_run(run: Path) -> None:
    """As JSON, with a reason for what is refused; the schema and the catalogue need no run."""
    found = json.loads(plan(run, "--json", "-n", 10**6).stdout)
    assert (found["schema"], found["schema_version"]) == ("loaderprobe/plan", 2)
    bare = json.loads(plan("fixtures/runs/bandwidth", "--kind", "mlperf-h100", "--json").stdout)
    assert bare["refused"]["cores"] == {
        "code": "bandwidth_without_workers", "facts": {},
        "sentence": "a bandwidth result has no worker: plan from a sweep",
    }  # fmt: skip
    assert json.loads(plan("--schema").stdout)["title"] == "loaderprobe/plan 2"
    assert "s3-standard" in plan("--catalogue").stdout
    assert plan("--catalogue", "--md").stdout.startswith("# Storage catalogue")
    assert {entry["name"] for entry in json.loads(plan("--catalogue", "--json").stdout)} > {"gcs"}


def test_a_page_is_written(run: Path, tmp_path: Path) -> None:
    """With charts; printed is where it lies. A folder that is not there is an error."""
    done = plan(run, "--html", tmp_path / "plan.html")
    assert (done.exit_code, done.stdout) == (0, f"Plan: {tmp_path / 'plan.html'}\n")
    page = (tmp_path / "plan.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<svg") >= 2
    missing = plan(run, "--html", tmp_path / "none" / "plan.html")
    assert missing.exit_code != 0 and missing.stdout == "" and "--html" in missing.stderr


def test_the_largest_of_everything_is_a_plan(run: Path) -> None:
    """Finite figures, at once."""
    done = plan(
        run, "-n", 10**7, "--per-node", 1, "--growth", 1000, "--kind", "999999999", "--mean-size", "900TB",
        "--images", "999999999999999", "--cache", "page:900TB", "--checkpoint", "900TB:1",
        "--storage", "0.001B/s,0.001us", "--json",
    )  # fmt: skip
    assert done.exit_code == 0
    assert "Infinity" not in done.stdout and "NaN" not in done.stdout
    assert json.loads(done.stdout)["supplies"][-1]["feeds"] > 0


def test_no_torch_is_imported(run: Path) -> None:
    """Nor pandas: the plan is made on any machine."""
    script = (
        "import sys; from loaderprobe.cli import main; sys.argv = ['loaderprobe', 'plan', sys.argv[1], '--json'];"
        "code = main(); sys.exit(code or ', '.join({'torch', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

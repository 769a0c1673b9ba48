"""`loaderprobe plan`: formats, exit codes, absurd input, and that nothing heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loaderprobe.cli.app import app
from loaderprobe.render.json import result_json
from tests.examples.bandwidth import example_bandwidth
from tests.stored import full_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stored run of three measured configurations."""
    yield full_run(tmp_path_factory.mktemp("stored") / "run").path


def plan(*arguments: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def test_every_format_is_printed(run: Path) -> None:
    """Text, Markdown, JSON; the schema and the catalogue need no run."""
    assert plan(run, "-n", 64).stdout.startswith("Storage plan for 64 ")
    assert plan(run, "--md").stdout.startswith("# Storage plan for 8 ")
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


ABSURD = [
    ("--accelerators", "0"), ("--accelerators", "-5"), ("--accelerators", "99999999999"), ("--utilization", "0%"),
    ("--utilization", "150%"), ("--utilization", "nan"), ("--use", "0"), ("--use", "-10%"), ("--per-node", "0"),
    ("--nic", "0GB/s"), ("--nic", "quick"), ("--storage", "floppy"), ("--storage", "fsx-lustre-250"),
    ("--storage", "azure-lustre-250:1TiB"), ("--storage", "fsx-lustre-250:-1TiB"), ("--storage", ""),
    ("--storage", "5"), ("--storage", "0GB/s"), ("--storage", "../../etc/passwd"), ("--storage", "efs-elastic:4TiB"),
    ("--storage", "s3-standard:0"), ("--storage", "s3-standard:1.5"), ("--cache", "page:0"), ("--cache", "all"),
    ("--layout", "tar"), ("--layout", "shards:0"), ("--images", "0"), ("--images", "-1"), ("--mean-size", "0"),
    ("--mean-size", "1e400"), ("--checkpoint", "2GB"), ("--growth", "0"), ("--growth", "nan"),
    ("--growth", "inf"), ("--kind", "abacus"), ("--kind", "0"), ("--kind", "nan"), ("--kind", "measured"),
    ("--data", "\x1b[31m"), ("--catalogue",), ("--schema",), ("--md", "--json"),
    ("--html", "x.html", "--json"), ("--html", "x.html", "--md"), ("--html", "x.html", "--schema"),
]  # fmt: skip


@pytest.mark.parametrize("options", ABSURD, ids=repr)
def test_absurd_options_have_exit_code_2_and_print_nothing(run: Path, options: tuple[str, ...]) -> None:
    """An error that says what is wrong; never a traceback."""
    done = plan(run, *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "rror" in done.stderr and "Traceback" not in done.stderr and "\x1b[31m" not in done.stderr


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


def test_what_is_no_run_has_exit_code_2(tmp_path: Path) -> None:
    """Nothing, an empty folder, another file, a bandwidth result without an accelerator."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "found.json").write_text(result_json(example_bandwidth()))
    for name in ("none", "empty", "text", "found.json"):
        done = plan(tmp_path / name)
        assert (done.exit_code, done.stdout) == (2, ""), name
    assert plan().exit_code == 2
    assert plan(tmp_path / "found.json", "--kind", "mlperf-h100").exit_code == 0


def test_no_torch_is_imported(run: Path) -> None:
    """Nor pandas: the plan is made on any machine."""
    script = (
        "import sys; from loaderprobe.cli import main; sys.argv = ['loaderprobe', 'plan', sys.argv[1], '--json'];"
        "code = main(); sys.exit(code or ', '.join({'torch', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(run)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

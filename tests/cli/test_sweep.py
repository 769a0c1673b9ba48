"""Real sweeps on the command line: complete, resumed, held by another, failing, interrupted and killed."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

import loaderprobe
from loaderprobe.measure.runner import ForkServer
from loaderprobe.records.files import FileSet
from loaderprobe.store.run_directory import RunDirectory, lock_directory
from tests.cli.invoke import invoke
from tests.conftest import shorten_sweeps
from tests.planted.loaders import without_torch

SMALL = ("--rounds", 1, "--batch-size", 4, "--budget", 40)
REPORT_WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
from tests.cli.invoke import invoke
shown = [invoke("report", *arguments) for arguments in json.loads(sys.argv[1])]
assert all(each.exit_code == 0 for each in shown), shown
print(json.dumps([each.stdout for each in shown]))
"""


class Swept(NamedTuple):
    """A sweep that has ended."""

    run: Path
    summary: dict[str, Any]
    """What was kept."""
    said: str
    """On standard error, on one line."""


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Swept:
    """A real sweep over generated data, which chooses its workers."""
    place = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patch:
        shorten_sweeps(patch, fork_server)
        done = invoke(
            "sweep", "--workers", "auto", "--resolutions", "64x48", "--compute", "emulated:20",
            "--data-dir", place / "data", "--out", place / "run", *SMALL,
        )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads((place / "run" / "summary.json").read_text())
    return Swept(place / "run", summary, " ".join(done.stderr.split()))


def test_a_sweep_chooses_its_workers(small_run: Swept) -> None:
    """Its summary has what was added; what will be generated, and that more may follow, is said before."""
    summary, rows = small_run.summary, small_run.summary["configurations"]
    jsonschema.validate(summary, json.loads(invoke("report", "--schema").stdout))
    assert [row["workers"] for row in rows][:2] == [0, 1] and len(rows) < 7
    assert {row["status"] for row in rows} == {"measured"} and all(row["emulated"] for row in rows)
    assert small_run.said.startswith("Data: about ") and "not known beforehand" in small_run.said
    run = loaderprobe.load(small_run.run)
    assert len(run.steps()) and {-1, 0} & set(run.batches()["worker"])


def test_a_stored_run_is_shown_again_without_torch(small_run: Swept, tmp_path: Path) -> None:
    """Every form of the report comes from the files alone."""
    run, page = str(small_run.run), tmp_path / "page.html"
    asked = json.dumps([[run, *form] for form in ([], ["--format", "csv"], ["--json"], ["-o", str(page)])])
    command = [sys.executable, "-c", REPORT_WITHOUT_TORCH, asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table, rows, summary, _ = json.loads(done.stdout)
    assert all(len(line) <= 80 for line in table.splitlines()) and "<svg" in page.read_text()
    assert len(list(csv.DictReader(io.StringIO(rows)))) == len(json.loads(summary)["configurations"])


@pytest.mark.usefixtures("short_sweeps")
def test_resuming_a_complete_run_measures_nothing(small_run: Swept) -> None:
    """The measurements stay as they are, to the byte. What `--json` prints is the summary and nothing else."""
    before = {path: path.read_bytes() for path in (small_run.run / "measurements").iterdir()}
    done = invoke("sweep", "--resume", small_run.run, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == small_run.summary
    assert "everything is already measured" in invoke("sweep", "--resume", small_run.run).stderr
    assert {path: path.read_bytes() for path in (small_run.run / "measurements").iterdir()} == before


@pytest.mark.usefixtures("impatient")
def test_a_second_sweep_on_the_same_run_is_refused(small_run: Swept) -> None:
    """While one holds the run, another gets exit code 5."""
    with lock_directory(small_run.run):
        done = invoke("sweep", "--resume", small_run.run)
    assert done.exit_code == 5
    assert "another loaderprobe" in done.stderr


@pytest.mark.usefixtures("short_sweeps")
def test_ones_own_photographs_with_rubbish_among_them(tmp_path: Path, photographs: FileSet) -> None:
    """Of a folder of images, damaged and foreign files are counted and named, and the others measured."""
    data = tmp_path / "photos"
    for index, path in enumerate(photographs.absolute(0, 12)):
        target = data / f"class{index % 2}" / f"{index}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (data / "class0" / "damaged.jpg").write_bytes(photographs.absolute(0, 1)[0].read_bytes()[:5000])
    (data / "class1" / "notes.txt").write_text("not an image")
    options = ("--no-serial", "--workers", 1, "--compute", "emulated:100", *SMALL, "--budget", 5)
    done = invoke("sweep", data, *options, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    assert [row["status"] for row in summary["configurations"]] == ["measured"]
    (info,) = summary["run"]["data"]
    assert (info["images_used"], info["skipped_count"], info["generated"]) == (12, 2, False)
    assert any("damaged.jpg: damaged" in text for text in info["skipped"])
    assert any("notes.txt: not an image" in text for text in info["skipped"])


@pytest.mark.usefixtures("short_sweeps")
def test_a_failing_configuration_is_reported_and_the_others_go_on(tmp_path: Path, photographs: FileSet) -> None:
    """With a loader whose worker is killed, the serial row fails too or not, but each has a row; the code is 4."""
    done = invoke(
        "sweep", photographs.root, "--workers", 1, "--no-serial", "--compute", "emulated:100,emulated:200", *SMALL,
        "--budget", 24, "--loader", "tests.planted.loaders:KilledWorker", "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert done.exit_code == 4
    rows = json.loads(done.stdout)["configurations"]
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert all("killed by SIGKILL" in row["reason"]["sentence"] for row in rows)


def start_hanging(tmp_path: Path, photographs: FileSet) -> tuple[subprocess.Popen[str], Path, int]:
    """A sweep that hangs in its first configuration: (process, run directory, pipe that closes when the child ends)."""
    data = tmp_path / "data"
    (data / "a").mkdir(parents=True)
    for index, path in enumerate(photographs.absolute(0, 8)):
        (data / "a" / f"{index}.jpg").write_bytes(path.read_bytes())
    os.mkfifo(tmp_path / "alive")
    command = [
        sys.executable, "-m", "loaderprobe", "sweep", str(data), "--workers", "1", "--compute", "emulated:100",
        "--loader", "tests.planted.loaders:Hanging", "--out", str(tmp_path / "run"), *map(str, SMALL),
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(without_torch(tmp_path / "first"))},
    )  # fmt: skip
    pipe = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([pipe], [], [], 60)[0], "the child did not come up"
    assert os.read(pipe, 5) == b"alive"
    os.set_blocking(pipe, True)
    return process, tmp_path / "run", pipe


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, photographs: FileSet) -> None:
    """Exit code 130, the child and its workers are gone, the summary is there."""
    process, run, pipe = start_hanging(tmp_path, photographs)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert os.read(pipe, 1) == b""
    os.close(pipe)
    assert process.returncode == 130
    assert "--resume" in stderr
    assert json.loads((run / "summary.json").read_text())["run"]["pending"] == 2


def test_killing_the_sweep_loses_only_the_configuration_at_work(tmp_path: Path, photographs: FileSet) -> None:
    """After SIGKILL the child dies with its parent, the run opens, and nothing holds it."""
    process, run, pipe = start_hanging(tmp_path, photographs)
    process.kill()
    process.communicate(timeout=60)
    assert os.read(pipe, 1) == b""
    os.close(pipe)
    with RunDirectory.open(run).lock():
        assert not list((run / "failures").iterdir())

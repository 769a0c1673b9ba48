"""What one file adds: a cause, judged, stored and shown as those that are built in; and a loader of another library."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import loaderprobe

ROW = """\
    Resource(
        name="decryption", side="input", known_by="loader", mode="no_decryption", remedy="hardware_decryption",
        advice="decrypt with the processor's own instructions",
        letter="K", color="#332288", style="bold blue", noun="decryption",
    ),
    Resource(
        name="pipe", side="input", known_by="loader", waits=("pipe",), letter="I", color="#332288", noun="a pipe",
    ),
"""
END = ')  # fmt: skip\n"""The order is that of speed-ups in the JSON.'
CHANGES = [
    (END, ROW + END),
    ('"gradients", "communication",', '"gradients", "communication", "decryption", "pipe",'),
    ('"slow_rank", "exchange"]', '"slow_rank", "exchange", "hardware_decryption"]'),
    ('waits=("sleep", "pipe", "memory", "other")', 'waits=("sleep", "memory", "other")'),
    ('"cached_samples", "no_transport"]', '"cached_samples", "no_transport", "no_decryption"]'),
    ('"speedups.wait",', '"speedups.wait", "speedups.decryption", "speedups.pipe",'),
]
"""What a person changes, in one file, who measures a loader without decryption, and who separates pipes from other
waits."""
LOADER = """
import acme
from loaderprobe.loaders.libraries import PythonLoader

class AcmeLoader(PythonLoader):
    make = staticmethod(acme.batches)
"""
PROGRAM = r"""
import json, sys
from pathlib import Path

from loaderprobe.analyze.verdict.judge import verdict
from loaderprobe.analyze.verdict.rounds import next_round
from loaderprobe.api.sweep_spec import check_spec, spec_of
from loaderprobe.cli.commands import app
from loaderprobe.plugins import check_name
from loaderprobe.records.config import SweepSpec
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from tests.fakes import example_environment
from loaderprobe.render.words import sentence
from tests.analyze.runs import FILES, Cost, alike, looked, run
from typer.testing import CliRunner

SLOW = {"baseline": 100.0, "warm": 102.0, "cached_samples": 101.0, "no_transport": 100.0, "training": 98.0}
MODES = ("baseline", "warm", "cached_samples", "no_transport", "no_decryption")


def measured(rates, rounds=3):
    costs = {"no_decryption": Cost()}
    return run([rates] * rounds, Cost(), costs, workers=1, compute=1000.0, facts={"modes": MODES})


first = measured({"baseline": 100.0, "training": 98.0}, rounds=1)
whole = measured(SLOW | {"no_decryption": 400.0})
kept = RunDirectory.create(
    Path(sys.argv[1]),
    RunRecord(created_utc="now", spec=SweepSpec(configs=(whole.config,)), environment=example_environment()),
    [FILES],
)
kept.save(whole)


def shown(*options):
    done = CliRunner().invoke(app, ["report", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


check_spec(spec_of(loader="acme", compute="emulated:100"))
remote = run(
    alike(baseline=90.0), Cost(cpu_s=0.002, blocked_s=0.02, cold=0.0),
    cache="as-found", facts={"access": "none", "modes": ("baseline",)},
)
waiting = verdict(looked(remote, "pipe"))
formats = {each: shown(sys.argv[1], "--format", each) for each in ("json", "csv", "table", "html")}
print(json.dumps({
    **formats, "asked": next_round(first, thorough=False), "schema": shown("--schema"),
    "loader": check_name("loader", "acme"), "help": CliRunner().invoke(app, ["sweep", "--help"]).stdout,
    "same": kept.result(whole.config.key) == whole, "waiting": [waiting.bound.cause, sentence(waiting.bound)],
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a copy of the package prints whose table has the rows, and which has a module for the library."""
    folder = tmp_path_factory.mktemp("copy")
    # Bytecode, too, which holds by its times; but none that is being written.
    package, written = Path(loaderprobe.__file__).parent, shutil.ignore_patterns("*.pyc.*")
    shutil.copytree(package, folder / "loaderprobe", ignore=written)
    table = folder / "loaderprobe" / "records" / "resources.py"
    source = table.read_text()
    for old, new in CHANGES:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    table.write_text(source)
    (folder / "loaderprobe" / "loaders" / "libraries" / "acme.py").write_text(LOADER)
    (folder / "acme.py").write_text("def batches(config, files): ...")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(folder / "program.py"), str(folder / "run")]
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{folder}:{root}", "PATH": "", "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_a_module_in_the_folder_is_a_loader(found: dict[str, Any]) -> None:
    """Of the library of its name: it is checked, found and offered without a row anywhere."""
    assert found["loader"] == ["loaderprobe.loaders.libraries.acme", "AcmeLoader"]
    assert "torch, acme, dali" in " ".join(found["help"].split())


def test_a_row_is_measured_judged_stored_and_shown(found: dict[str, Any]) -> None:
    """It has no estimate, so the first round that leaves it open asks for its mode; the largest speed-up is the cause.

    Side, cause, speed-up, rate of the loader without it, evidence and advice stand in the JSON, and in its schema. It
    has a letter, a column, a sentence and a colour. One that workers were seen to wait for needs no ablation.
    """
    assert ["no_decryption", "loader_only"] in found["asked"] and found["same"]
    (row,) = json.loads(found["json"])["configurations"]
    jsonschema.validate(json.loads(found["json"]), json.loads(found["schema"]))
    assert (row["bound"]["side"], row["bound"]["cause"]) == ("input", "decryption")
    assert row["rates_images_per_s"]["loader_without"]["decryption"] == pytest.approx(400.0)
    (figures,) = csv.DictReader(found["csv"].splitlines())
    speedup, column = row["speedups"]["decryption"], float(figures["speedup_without_decryption"])
    assert speedup["how"] == "measured" and [speedup["value"], column] == pytest.approx([4.0, 4.0], rel=0.05)
    assert "speedups.decryption" in {each["metric"] for each in row["bound"]["evidence"]}
    assert "hardware_decryption" in {each["action"]["code"] for each in row["advice"]}
    assert "decryption 4" in found["table"] and "Input-bound by decryption" in row["bound"]["sentence"]
    assert all(part in found["html"] for part in ("#332288", "K instant decryption", "decrypt with the processor"))
    cause, sentence = found["waiting"]
    assert cause == "pipe" and sentence.startswith("Input-bound by a pipe: ")

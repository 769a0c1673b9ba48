"""Scripts are where README, guide and code say."""

from __future__ import annotations

import ast
import math
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scripts.benches.forecast import KINDS
from scripts.benches.score import Row, Said
from scripts.benches.truth import FAMILIES
from scripts.campaign import FAULTS, MEMORY, possible

ROOT = Path(__file__).parents[1]
BENCHES = ROOT / "scripts" / "benches"


def _benches() -> dict[str, str]:
    """The first line of the docstring of each module that has a `main`, by name."""
    trees = {path.stem: ast.parse(path.read_text()) for path in sorted(BENCHES.glob("*.py"))}
    return {
        name: (ast.get_docstring(tree) or "").splitlines()[0]
        for name, tree in trees.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
    }


def _named() -> Iterator[tuple[str, str]]:
    """(where, `scripts/NAME` or `scripts/bench NAME`) of each in what people read, code included."""
    read = [ROOT / "README.md", ROOT / "pyproject.toml"]
    for path in (*read, *ROOT.glob("loaderprobe/**/*.md"), *ROOT.glob("loaderprobe/**/*.py")):
        for found in re.finditer(r"scripts/(bench\s+)?(\w+)", path.read_text()):
            yield str(path.relative_to(ROOT)), found[0]


def test_every_script_that_is_named_is_there() -> None:
    """A reader can type what is written; all that have no ending can be run."""
    benches, named = _benches(), list(_named())
    assert len(named) > 10
    for where, words in named:
        script, *bench = words.split()
        assert bench[0] in benches if bench else (ROOT / script).exists(), f"{where}: {words}"
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []


@pytest.mark.parametrize(("bench", "parts"), [("truth", FAMILIES), ("forecast", KINDS)])
def test_every_part_of_a_bench_that_is_named_is_there(bench: str, parts: Collection[str]) -> None:
    """Its first argument is a family, or a kind; and each of these has a module."""
    text = "".join(path.read_text() for path in (ROOT / "README.md", *ROOT.glob("loaderprobe/guide/*.md")))
    named = re.findall(rf"scripts/bench {bench} (\w+)", text)
    assert set(named) == set(parts)
    assert [name for name in parts if not (BENCHES / f"{bench}_{name}.py").exists()] == []


def _row(**gains: Sequence[float]) -> Row:
    return Row(name="row", logs={name: [math.log(gain) for gain in rounds] for name, rounds in gains.items()})


CLEAR = _row(storage=(2.0, 2.1, 1.9), compute=(1.0, 1.0, 1.0))
NEARLY_EQUAL = _row(storage=(1.3, 1.3), compute=(1.15, 1.15))
NOISY = _row(storage=(1.1, 2.0), compute=(1.0, 1.0))
NOTHING = _row(storage=(1.01, 1.02), compute=(1.0, 1.01))


@pytest.mark.parametrize(
    ("row", "cause", "candidates", "outcome"),
    [
        (CLEAR, "storage", (), "right"),
        (CLEAR, "compute", (), "wrong"),
        (CLEAR, "balanced", (), "wrong"),
        (CLEAR, "either", ("compute", "storage"), "either"),
        (CLEAR, "either", ("compute", "preprocessing"), "wrong"),
        (CLEAR, "inconclusive", (), "inconclusive"),
        (NEARLY_EQUAL, "storage", (), "unclear"),
        (NEARLY_EQUAL, "compute", (), "wrong"),
        (NOISY, "compute", (), "unclear"),
        (NOTHING, "balanced", (), "right"),
        (NOTHING, "storage", (), "wrong"),
        (Row(name="row", planted=("preprocessing", "cpu")), "cpu", (), "right"),
        (Row(name="row", planted=("preprocessing",)), "cpu", (), "wrong"),
        (Row(name="row", planted=("storage",)), "compute", (), "wrong"),
    ],
)
def test_what_benches_count_as_right(row: Row, cause: str, candidates: tuple[str, ...], outcome: str) -> None:
    """A firm word on a clear row is right or wrong; on others wrong where it loses over 10 %, beyond the noise."""
    assert row.outcome(Said(cause=cause, candidates=candidates)) == outcome


def test_without_a_name_benches_are_listed() -> None:
    """Each with the first line of its docstring."""
    done = subprocess.run([ROOT / "scripts" / "bench"], capture_output=True, text=True, check=True)
    assert [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]] == [[*each] for each in _benches().items()]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["bench", "nosuch"], "scripts/bench lists them"), (["bench", "harness"], "scripts/bench lists them"),
        (["bench", "../setup"], "scripts/bench lists them"), (["setup", "all"], "scripts/setup dev"),
        (["setup", "dev", "bench"], "scripts/setup dev"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_refused(command: list[str], says: str) -> None:
    """Before anything is installed, with exit code 2."""
    script, *arguments = command
    done = subprocess.run([ROOT / "scripts" / script, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


FAKE_PYTHON = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;; esac
"""


def test_setup_installs_what_is_asked_for_and_only_once(tmp_path: Path) -> None:
    """The program alone, or the development tools too, which a program alone does not have; again when it changes."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    project, python, calls = tmp_path / "pyproject.toml", tmp_path / "python", tmp_path / "calls"
    project.write_text("one")
    said: list[str] = []
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)

    def installed(*arguments: str) -> list[str]:
        calls.write_text("")
        environment = {**os.environ, "PYTHON": str(python), "CALLS": str(calls)}
        command = [str(tmp_path / "scripts" / "setup"), *arguments]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        said.extend(done.stderr.splitlines())
        return [line.split()[-1] for line in calls.read_text().splitlines() if " pip install " in line]

    assert (installed(), installed()) == (["."], [])
    (line,) = said
    assert "torch" in line and "5 GB" in line and "minutes" in line
    assert (installed("dev"), installed("dev"), installed()) == ([".[dev]"], [], [])
    project.write_text("another")
    assert (installed("dev"), installed()) == ([".[dev]"], [])


def test_the_campaign_leaves_out_what_cannot_be_done_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of a control group where there is none, which would be a failure of mkdir: its output names it."""
    assert FAULTS["little-memory"].needs == MEMORY
    needs = replace(FAULTS["little-memory"], needs=tmp_path / "nowhere")
    monkeypatch.setitem(FAULTS, "little-memory", needs)
    assert [*possible(["stop-child", "little-memory", "full-disk"])] == ["stop-child", "full-disk"]
    assert capsys.readouterr().out.startswith(f"little-memory: left out, for {tmp_path}/nowhere is not there")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_the_check_of_gpus_is_refused_without_one(tmp_path: Path, python: str) -> None:
    """With exit code 3 and what is missing, before anything is written."""
    command = [python, str(ROOT / "scripts" / "gpu_check.py"), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no GPU" in done.stderr
    assert not (tmp_path / "out").exists()

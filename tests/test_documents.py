"""README, guide and code promise only what there is: commands, options, topics, Python names, and scripts that run."""

from __future__ import annotations

import ast
import inspect
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import loaderprobe
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.cli.commands import app
from loaderprobe.records.diagnosis import DIAGNOSIS_VERSION
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.plan import PLAN_VERSION
from loaderprobe.records.resources import RESOURCE
from scripts.benches.forecast import KINDS
from scripts.benches.score import Row, Said
from scripts.benches.truth import FAMILIES
from scripts.campaign import FAULTS, MEMORY, possible

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GUIDE = ROOT / "loaderprobe" / "guide"
PAGES = (README, *sorted(GUIDE.glob("*.md")))
MOST_WORDS = 1000
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each command by its name; one of a group by both names, as they are typed."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, f"{before}{name} ")
        else:
            yield f"{before}{name}", each


COMMANDS: dict[str, Any] = dict(commands(typer.main.get_command(app)))
HELP = {"--help", "-h"}
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""Of the click that typer has inside."""


def spans(text: str) -> Iterator[str]:
    """What stands in backticks within a line of text, or across its end."""
    for match in re.finditer(r"`([^`]+)`", FENCE.sub("", text)):
        yield " ".join(match[1].split())


def command_lines(text: str) -> Iterator[str]:
    """`sweep --workers 2` of every `loaderprobe sweep --workers 2`, in blocks and in backticks."""
    blocks = [re.sub(r"\\\n\s*", "", match[2]) for match in FENCE.finditer(text)]
    lines = [line for block in blocks for line in block.splitlines()]
    for line in (*lines, *spans(text)):
        found = re.match(r"(?:\$ )?(?:\.venv/bin/)?loaderprobe (.*)", line)
        if found and not found[1].startswith(("COMMAND", "--version")):
            yield found[1]


def trouble(line: str) -> str:
    """What of a command line the program does not have; empty when it would be taken. Runs nothing."""
    name, *words = shlex.split(line, comments=True)
    if f"{name} {words[:1] and words[0]}" in COMMANDS:
        name = f"{name} {words.pop(0)}"
    if name not in COMMANDS:
        return f"no command {name}"
    command = COMMANDS[name]
    own = words[: words.index("--")] if "--" in words else words  # what follows is another program's
    try:
        _, left, _ = command.make_parser(command.context_class(command)).parse_args([*own])
    except USAGE_ERROR as error:
        return str(error.message)
    return f"{name} takes fewer arguments" if left else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_would_be_taken(page: Path) -> None:
    """Its command, each of its options, and as many arguments exist."""
    lines = list(command_lines(page.read_text()))
    assert {line: why for line in lines if (why := trouble(line))} == {}


def test_a_command_line_that_is_wrong_is_found() -> None:
    """Of each kind, so that the test above cannot pass by reading nothing."""
    text = "Use `loaderprobe\nsweep` and:\n```\n$ loaderprobe doctor . # here\n```\n"
    assert list(command_lines(text)) == ["doctor . # here", "sweep"]
    assert [trouble(line) for line in ("nonsense", "doctor a b", "sweep data --workers 1,2 --json")] == [
        "no command nonsense", "doctor takes fewer arguments", "",
    ]  # fmt: skip
    assert "--nonsense" in trouble("sweep --nonsense") and "--workers" in trouble("sweep --workers")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_name_exists(page: Path) -> None:
    """Attributes of the package, and keyword arguments of what is called."""
    for code in (match[2] for match in FENCE.finditer(page.read_text()) if match[1] == "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "loaderprobe":
                assert node.attr in loaderprobe.__all__
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("loaderprobe."):
                assert isinstance(node.func, ast.Attribute)
                taken = inspect.signature(getattr(loaderprobe, node.func.attr)).parameters
                assert {keyword.arg for keyword in node.keywords} <= set(taken)


def test_the_newest_version_of_a_schema_that_changed_is_named() -> None:
    """With what is new in it; the first version of a schema needs no words."""
    text = (GUIDE / "changes.md").read_text()
    named = re.findall(r"`loaderprobe/([\w-]+)` (\d+)", text)
    newest = {schema: max(int(number) for name, number in named if name == schema) for schema, _ in named}
    assert newest == {"plan": PLAN_VERSION, "diagnosis": DIAGNOSIS_VERSION} and SCHEMA_VERSION == 1


BENCHES = ROOT / "scripts" / "benches"
TEXTS = {page: page.read_text() for page in PAGES}
TOPICS = {path.stem for path in GUIDE.glob("*.md")}


def _benches() -> dict[str, str]:
    """The first line of the docstring of each module that has a `main`, by name."""
    trees = {path.stem: ast.parse(path.read_text()) for path in sorted(BENCHES.glob("*.py"))}
    return {
        name: (ast.get_docstring(tree) or "").splitlines()[0]
        for name, tree in trees.items()
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)
    }


def found(pattern: str, texts: Iterable[str]) -> set[str]:
    """What the pattern matches, or its group."""
    return {match for text in texts for match in re.findall(pattern, text, re.MULTILINE)}


OPTIONS = {each for one in COMMANDS.values() for given in one.params for each in given.opts} | HELP
SPANS = [span for text in TEXTS.values() for span in spans(text)]
CODE = (ROOT / "pyproject.toml", *ROOT.glob("loaderprobe/**/*.py"))
READ = [*TEXTS.values(), *(path.read_text() for path in CODE)]
MODULES = {path.stem for path in BENCHES.glob("*.py")}
NAMED: dict[str, tuple[Collection[str], Collection[str]]] = {
    "an option without its command": (found(r"^--[\w-]+", SPANS), OPTIONS),
    "a topic of explain": (found(r"^explain ([a-z-]+)", map("\n".join, map(command_lines, TEXTS.values()))), TOPICS),
    "a topic, which README names": (TOPICS, {span.split()[-1] for span in spans(TEXTS[README])}),
    "diagnosis.NAME": (
        found(r"^diagnosis\.(\w+)", spans((GUIDE / "diagnose.md").read_text())) | {"bound", "verdict", "measurement"},
        {*dir(Diagnosis), *(field.name for field in fields(Diagnosis))},
    ),
    "a module in README": (
        {span for span in spans(TEXTS[README]) if re.fullmatch(r"\w+/[\w/]+\.py", span)},
        {str(path.relative_to(ROOT / "loaderprobe")) for path in ROOT.glob("loaderprobe/**/*.py")},
    ),
    "a letter of a cause, which the map has": (
        {each.letter for each in RESOURCE.values() if each.is_cause},
        {*", ".join(found(r"^\| ([A-Z](?:, [A-Z])*) \|", [(GUIDE / "sweep.md").read_text()])).split(", ")},
    ),
    "a script": (found(r"scripts/(\w+)", READ), {path.name for path in (ROOT / "scripts").iterdir()}),
    "a bench": (found(r"scripts/bench\s+(\w+)", READ), _benches()),
    **{
        f"{name} of scripts/bench {bench}": pair
        for bench, parts in (("truth", FAMILIES), ("forecast", KINDS))
        for name, pair in {
            "a part": (found(rf"scripts/bench {bench} (\w+)", TEXTS.values()), parts),
            "a part, which is named": (parts, found(rf"scripts/bench {bench} (\w+)", TEXTS.values())),
            "the module of a part": ([f"{bench}_{part}" for part in parts], MODULES),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", NAMED)
def test_what_is_named_is_there(kind: str) -> None:
    """In what people read, code included: a reader can type what is written, and all that there is has its words."""
    named, there = NAMED[kind]
    assert named and {*named} - {*there} == set()


def test_readme_has_under_a_thousand_words_and_scripts_can_be_run() -> None:
    """It is the first page; a script has no ending."""
    assert len(TEXTS[README].split()) < MOST_WORDS
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    assert [path.name for path in scripts if not os.access(path, os.X_OK)] == []


CLEAR = {"storage": (2.0, 2.1, 1.9), "compute": (1.0, 1.0, 1.0)}
NEARLY_EQUAL = {"storage": (1.3, 1.3), "compute": (1.15, 1.15)}
NOISY = {"storage": (1.1, 2.0), "compute": (1.0, 1.0)}
NOTHING = {"storage": (1.01, 1.02), "compute": (1.0, 1.01)}


@pytest.mark.parametrize(
    ("gains", "planted", "cause", "candidates", "outcome"),
    [
        (CLEAR, (), "storage", (), "right"),
        (CLEAR, (), "compute", (), "wrong"),
        (CLEAR, (), "balanced", (), "wrong"),
        (CLEAR, (), "either", ("compute", "storage"), "either"),
        (CLEAR, (), "either", ("compute", "preprocessing"), "wrong"),
        (CLEAR, (), "inconclusive", (), "inconclusive"),
        (NEARLY_EQUAL, (), "storage", (), "unclear"),
        (NEARLY_EQUAL, (), "compute", (), "wrong"),
        (NOISY, (), "compute", (), "unclear"),
        (NOTHING, (), "balanced", (), "right"),
        (NOTHING, (), "storage", (), "wrong"),
        ({}, ("preprocessing", "cpu"), "cpu", (), "right"),
        ({}, ("preprocessing",), "cpu", (), "wrong"),
        ({}, ("storage",), "compute", (), "wrong"),
    ],
)
def test_what_benches_count_as_right(
    gains: dict[str, Sequence[float]], planted: tuple[str, ...], cause: str, candidates: tuple[str, ...], outcome: str
) -> None:
    """A firm word on a clear row is right or wrong; on others wrong where it loses over 10 %, beyond the noise."""
    logs = {name: [math.log(gain) for gain in rounds] for name, rounds in gains.items()}
    row = Row(name="row", planted=planted, logs=logs)
    assert row.outcome(Said(cause=cause, candidates=candidates)) == outcome


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["bench"], 0, ""), (["bench", "nosuch"], 2, "scripts/bench lists them"),
        (["bench", "harness"], 2, "scripts/bench lists them"), (["bench", "../setup"], 2, "scripts/bench lists them"),
        (["setup", "all"], 2, "scripts/setup dev"), (["setup", "dev", "bench"], 2, "scripts/setup dev"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_refused(command: list[str], code: int, says: str) -> None:
    """Before anything is installed. Without a name benches are listed, with the first line of their docstrings."""
    script, *arguments = command
    done = subprocess.run([ROOT / "scripts" / script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code and says in done.stderr
    listed = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
    assert listed == ([] if code else [[*each] for each in _benches().items()])


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

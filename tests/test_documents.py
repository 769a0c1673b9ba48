"""README and the guide promise only what the program has: commands, options, topics, scripts, Python names."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import loaderprobe
from loaderprobe.api.diagnose import Diagnosis
from loaderprobe.cli.commands import app
from loaderprobe.records.diagnosis import DIAGNOSIS_VERSION
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.records.plan import PLAN_VERSION
from loaderprobe.records.resources import RESOURCE

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
    assert list(command_lines("Use `loaderprobe\nsweep` and:\n```\n$ loaderprobe doctor . # here\n```\n")) == [
        "doctor . # here",
        "sweep",
    ]
    assert trouble("nonsense") == "no command nonsense"
    assert "--nonsense" in trouble("sweep --nonsense")
    assert "--workers" in trouble("sweep --workers")
    assert trouble("doctor a b") == "doctor takes fewer arguments"
    assert trouble("sweep data --workers 1,2 --json") == ""


def test_every_option_and_topic_exists() -> None:
    """An option that is named without its command belongs to one of them; `explain TOPIC` has a page."""
    options = {option for each in COMMANDS.values() for parameter in each.params for option in parameter.opts} | HELP
    texts = [page.read_text() for page in PAGES]
    named = {span.split()[0] for text in texts for span in spans(text) if span.startswith("--")}
    assert named - options == set()
    topics = {
        line.split()[1] for text in texts for line in command_lines(text) if re.match(r"explain [a-z]", line)
    }  # fmt: skip
    assert topics - {path.stem for path in GUIDE.glob("*.md")} == set()


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


def test_what_a_diagnosis_is_said_to_have_exists() -> None:
    """Each `found.NAME` of its page."""
    named = {
        match for span in spans((GUIDE / "diagnose.md").read_text()) for match in re.findall(r"^found\.(\w+)", span)
    }
    assert {"bound", "verdict", "measurement"} <= named
    assert {
        name for name in named - {field.name for field in fields(Diagnosis)} if not hasattr(Diagnosis, name)
    } == set()


def test_readme_names_modules_that_exist() -> None:
    """From the package or from the root."""
    modules = [span for span in spans(README.read_text()) if re.fullmatch(r"\w+/[\w/]+\.py", span)]
    assert modules and [each for each in modules if not (ROOT / "loaderprobe" / each).exists()] == []


def test_the_newest_version_of_a_schema_that_changed_is_named() -> None:
    """With what is new in it; the first version of a schema needs no words."""
    text = (GUIDE / "changes.md").read_text()
    named = re.findall(r"`loaderprobe/([\w-]+)` (\d+)", text)
    newest = {schema: max(int(number) for name, number in named if name == schema) for schema, _ in named}
    assert newest == {"plan": PLAN_VERSION, "diagnosis": DIAGNOSIS_VERSION} and SCHEMA_VERSION == 1


def test_every_letter_of_a_cause_is_explained() -> None:
    """In the table of the map."""
    rows = re.findall(r"^\| ([A-Z](?:, [A-Z])*) \|", (GUIDE / "sweep.md").read_text(), re.MULTILINE)
    assert {each.letter for each in RESOURCE.values() if each.is_cause} <= set(", ".join(rows).split(", "))


def test_readme_names_every_topic_in_under_a_thousand_words() -> None:
    """It is the first page, and leads to all others."""
    text = README.read_text()
    assert len(text.split()) < MOST_WORDS
    assert {path.stem for path in GUIDE.glob("*.md")} - {span.split()[-1] for span in spans(text)} == set()

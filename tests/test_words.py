"""The words that people read are the field's own: none that the project made up, and no riddles."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

COVERED = ("README.md", "loaderprobe", "scripts", "tests")

# A regular expression, and what to write instead.
RETIRED = {
    r"nursery": "forkserver",
    r"dice": "random state",
    r"abilit(y|ies)": "capabilities",
    r"counsel": "advice",
    r"gains? without": "speed-up if ... were free",
    r"performed": "measured",
    r"(taken|takes|take|taking) away": "removed",
    r"counterfactual": "ablation",
    r"(held|hold|holds|holding) against": "compared with",
    r"residual": "prediction error",
    r"undecided|left open|hopeless": "inconclusive",
    r"has hung|have hung": "timeout",
    r"nobody|somebody|anybody|everybody": "name the process or user",
    r"(?<!bind )binds(?! mounts)": "compute-bound, input-bound, limits",
    r"drains?|drained": "loader only",
    r"hand(ed|s|ing)? over|hand-over": "transport, send, return",
    r"banked": "token bucket",
    r"bouts?": "run of reads",
    r"mode [CWQT]": "baseline, warm files, cached samples, no transport",
    r"more than noise explains|what rounds differ by": "outside the noise band",
    r"more and more|as many readers get": "concurrency, ceiling",
    r"reads of others": "other processes' reads",
    r"mend(s|ed)?": "repair",
    r"complain(s|ed|ts?)?": "error",
    r"rooms?|floors?|strangers": "layers, packages",
    r"told|tells": "given, shown, reported",
    r"again and again": "repeatedly",
    r"anew": "again",
    r"blamed?": "error origin",
    r"gains? [0-9]": "speed-up of",
    r"foretold|foretells?": "predicted",
}

_RETIRED = re.compile("|".join(rf"\b(?:{each})\b" for each in RETIRED), re.IGNORECASE)

# Names in code: the nouns of that list alone, since `told` or `room` may well name a local value.
RETIRED_NAMES = (
    r"nursery|dice|abilit(y|ies)|counsel|hopeless|undecided|nobody|residual|banked|performed|drains?|bouts?|complain"
)


def covered(suffix: str) -> Iterator[Path]:
    """Every covered file of a kind; this one holds the retired words."""
    for place in (ROOT / name for name in COVERED):
        files = sorted(place.rglob(f"*{suffix}")) if place.is_dir() else [place] * (place.suffix == suffix)
        yield from (path for path in files if path != Path(__file__))


def prose(path: Path) -> str:
    """A page without what a program printed, which has a test of its own where it is made."""
    return re.sub(r"```output\n.*?```", "", path.read_text(), flags=re.DOTALL)


def texts(path: Path) -> Iterator[str]:
    """The strings of a module (docstrings, help, messages) and its comments; none where no letters would do."""
    # Strings side by side are one; finding that there is nothing takes a tenth of what parsing takes.
    if not any(retired(re.sub(r"""["']\s+[rfb]{0,2}["']|#""", "", path.read_text()))):
        return
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def names(path: Path) -> Iterator[str]:
    """The names that a module defines, as words: `ReadEngine` and `read_engine` are both `read engine`."""
    source = path.read_text()
    if not re.search(RETIRED_NAMES, source, re.IGNORECASE):
        return
    for node in ast.walk(ast.parse(source)):
        found = (
            node.name if isinstance(node, ast.ClassDef | ast.FunctionDef)
            else node.arg if isinstance(node, ast.arg)
            else node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            else ""
        )  # fmt: skip
        yield re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", found).strip().lower()


def retired(text: str) -> Iterator[str]:
    """The retired expressions in a text, as they stand there, whatever its line breaks."""
    yield from (match[0].lower() for match in _RETIRED.finditer(" ".join(text.split())))


def in_texts() -> set[tuple[str, str]]:
    """(file, retired expression) of all that people read."""
    pages = {path: [prose(path)] for path in covered(".md")}
    modules = {path: list(texts(path)) for path in covered(".py")}
    return {
        (str(path.relative_to(ROOT)), word)
        for path, found in (pages | modules).items()
        for text in found
        for word in retired(text)
    }


def test_no_retired_word_is_read_by_a_user() -> None:
    """README, guide, help, messages, docstrings and comments use the field's words."""
    assert in_texts() == set()


def test_no_name_in_code_has_a_retired_word() -> None:
    """Of classes, functions, parameters and variables."""
    found = {
        (str(path.relative_to(ROOT)), match[0])
        for path in covered(".py")
        for name in names(path)
        for match in re.finditer(rf"\b(?:{RETIRED_NAMES})\b", name)
    }
    assert found == set()


def test_a_retired_word_is_found_across_a_line_break() -> None:
    """And what only contains its letters is not."""
    assert list(retired("the storage was taken\n    away")) == ["taken away"]
    assert list(retired("bind mounts and stability")) == []


def test_every_package_says_what_belongs_there_and_what_does_not() -> None:
    """In its `__init__`, as two paragraphs."""
    packages = sorted(Path(ROOT, "loaderprobe").glob("*/**/__init__.py"))
    said = {
        str(each.parent.relative_to(ROOT)): ast.get_docstring(ast.parse(each.read_text())) or "" for each in packages
    }
    assert {name for name, text in said.items() if text.count("\n\n") != 1} == set()
    assert len(said) > 10

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

# As the whole name of a local value or a parameter: a loop variable is the noun of its list, a result says what it is.
RIDDLES = {
    "each",
    "found",
    "place",
    "told",
    "come",
    "held",
    "bell",
    "twin",
    "drawn",
    "then",
    "standing",
    "unheard",
    "apart",
}


def covered(suffix: str) -> dict[str, str]:
    """The text of every covered file of a kind, by its path; this one holds the retired words."""
    places = [ROOT / name for name in COVERED]
    files = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    kept = (path for path in files if path.suffix == suffix and path != Path(__file__))
    return {str(path.relative_to(ROOT)): path.read_text() for path in kept}


def texts(source: str) -> Iterator[str]:
    """The strings of a module (docstrings, help, messages) and its comments; none where no letters would do."""
    # Strings side by side are one; finding that there is nothing takes a tenth of what parsing takes.
    if not any(retired(re.sub(r"""["']\s+[rfb]{0,2}["']|#""", "", source))):
        return
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from (token.string for token in tokens if token.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def names(source: str) -> Iterator[str]:
    """The names that a module defines, as words: `ReadEngine` and `read_engine` are both `read engine`."""
    for node in ast.walk(ast.parse(source)) if re.search(RETIRED_NAMES, source, re.IGNORECASE) else ():
        name = getattr(node, "name", None) or getattr(node, "arg", None)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        yield re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name or "").strip().lower()


def local_names(source: str) -> Iterator[str]:
    """Parameters, and what functions and comprehensions assign; not the fields of a record."""
    if re.search(rf"\b(?:{'|'.join(RIDDLES)})\b", source):
        tree = ast.parse(source)
        bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        fields = {id(field.target) for body in bodies for field in body if isinstance(field, ast.AnnAssign)}
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                yield node.arg
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
                yield node.id


def retired(text: str) -> Iterator[str]:
    """The retired expressions in a text, as they stand there, whatever its line breaks."""
    yield from (match[0].lower() for match in _RETIRED.finditer(" ".join(text.split())))


def test_no_retired_word_is_read_by_a_user() -> None:
    """README, guide, help, messages, docstrings and comments use the field's words. What a program printed on a page
    has a test of its own where it is made."""
    pages = {name: [re.sub(r"```output\n.*?```", "", text, flags=re.DOTALL)] for name, text in covered(".md").items()}
    modules = {name: [*texts(source)] for name, source in covered(".py").items()}
    read = [(name, text) for name, found in (pages | modules).items() for text in found]
    assert {(name, word) for name, text in read for word in retired(text)} == set()
    assert len(pages) > 10 < len(modules)


def test_no_name_in_code_has_a_retired_word() -> None:
    """Of classes, functions, parameters and variables."""
    defined = ((path, name) for path, source in covered(".py").items() for name in names(source))
    assert [(path, name) for path, name in defined if re.search(rf"\b(?:{RETIRED_NAMES})\b", name)] == []


def test_a_name_says_what_it_holds() -> None:
    """`row` of rows, not `each`."""
    named = {path: RIDDLES & set(local_names(source)) for path, source in covered(".py").items()}
    assert {path: names for path, names in named.items() if names and not path.startswith("tests/")} == {}
    assert set(local_names("def f(found): ...\nx = [each for each in y]")) == {"found", "x", "each"}


def test_a_retired_word_is_found_across_a_line_break() -> None:
    """And what only contains its letters is not."""
    assert list(retired("the storage was taken\n    away")) == ["taken away"]
    assert list(retired("bind mounts and stability")) == []


def test_every_package_says_what_belongs_there_and_what_does_not() -> None:
    """In its `__init__`, as two paragraphs."""
    packages = {name: source for name, source in covered(".py").items() if re.match("loaderprobe/.*/__init__.py", name)}
    said = {name: ast.get_docstring(ast.parse(source)) or "" for name, source in packages.items()}
    assert len(said) > 10 and [name for name, text in said.items() if text.count("\n\n") != 1] == []

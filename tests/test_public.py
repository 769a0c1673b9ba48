"""What `import loaderprobe` offers, and what it costs; the tree of errors, as it is drawn."""

from __future__ import annotations

import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

import loaderprobe
from loaderprobe import errors
from loaderprobe.errors import LoaderprobeError


def test_the_public_names_are_a_sorted_list() -> None:
    """Every name of the list is there, each is listed once, and `dir` shows them all."""
    names = loaderprobe.__all__
    assert names == sorted(set(names))
    assert all(getattr(loaderprobe, name) is not None for name in names)
    assert set(names) <= set(dir(loaderprobe))
    assert {"bandwidth", "diagnose", "doctor", "generate", "load", "sweep"} <= set(names)
    assert not hasattr(loaderprobe, "nonsense")


def test_everything_is_imported_only_when_asked_for() -> None:
    """The package alone imports nothing heavy, all its names no torch or pandas; none draws a random number."""
    script = (
        "import random, sys, loaderprobe; state = random.getstate(); "
        "early = {'loaderprobe.api', 'numpy', 'rich', 'typer'} & set(sys.modules); "
        "found = [getattr(loaderprobe, name) for name in loaderprobe.__all__]; "
        "late = {'torch', 'pandas', 'pyarrow', 'typer'} & set(sys.modules); "
        "drawn = {'a random number'} - ({'a random number'} if random.getstate() == state else set()); "
        "sys.exit(', '.join(early | late | drawn) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types, within functions, and of a package by its own modules count; CycleError names the modules."""
    graph = grimp.build_graph("loaderprobe", cache_dir=None)
    TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules}).prepare()


def test_a_folder_of_its_name_does_not_hide_it(tmp_path: Path) -> None:
    """A script that lies beside a clone still gets the package: Python takes any folder for one without code."""
    (tmp_path / "loaderprobe").mkdir()
    script = "import loaderprobe; print(loaderprobe.diagnose.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("diagnose\n", 0), done.stderr


def _tree(kind: type[LoaderprobeError]) -> list[type[LoaderprobeError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


KINDS = [kind for kind in _tree(LoaderprobeError) if kind.__module__ == errors.__name__]


def test_each_error_is_drawn_with_its_exit_code_which_nothing_else_has() -> None:
    """The drawing gives the code on the line of the class, or on that of the class above. Done is 0, some failed 4, a
    gate failed 6, interrupted 130."""
    assert not {0, 4, 6, 130} & {kind.exit_code for kind in KINDS}
    apart = (errors.EXIT_DONE, errors.EXIT_SOME_FAILED, errors.EXIT_GATE_FAILED, errors.EXIT_INTERRUPTED)
    assert apart == (0, 4, 6, 130)
    for kind in KINDS:
        (line,) = re.findall(rf".*\b{kind.__name__}\b.*", errors.__doc__ or "")
        drawn = re.search(rf"{kind.__name__}\s+(\d)\b", line)
        above: Any = kind.__mro__[1]
        assert kind.exit_code == (int(drawn[1]) if drawn else above.exit_code), kind


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("s3://me:secret@bucket/a b", "s3://***@bucket/a b"), ("https:/tok@host", "https:/***@host"),
        ("of 'https://h/k?sig=secret&e=1' and", "of 'https://h/k?***' and"), ("/a:/b@c?d", "/a:/b@c?d"),
    ],
)  # fmt: skip
def test_secrets_in_urls_are_masked(text: str, kept: str) -> None:
    """User, password and query, also of a URL that was taken for a path; a path stays as it is."""
    assert errors.BadValue(text, hint=text).message == errors.BadValue("", hint=text).hint == kept

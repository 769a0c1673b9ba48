"""What `import loaderprobe` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import loaderprobe


def test_the_public_names_are_a_sorted_list() -> None:
    """Every name of the list is there, each is listed once, and `dir` shows them all."""
    names = loaderprobe.__all__
    assert names == sorted(set(names))
    assert all(getattr(loaderprobe, name) is not None for name in names)
    assert set(names) <= set(dir(loaderprobe))
    assert {"bandwidth", "diagnose", "doctor", "generate", "load", "sweep"} <= set(names)


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


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module, so that `hasattr` and imports behave."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = loaderprobe.nonsense


def test_a_folder_of_its_name_does_not_hide_it(tmp_path: Path) -> None:
    """A script that lies beside a clone still gets the package: Python takes any folder for one without code."""
    (tmp_path / "loaderprobe").mkdir()
    script = "import loaderprobe; print(loaderprobe.diagnose.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("diagnose\n", 0), done.stderr

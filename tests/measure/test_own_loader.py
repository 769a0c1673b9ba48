"""The function that makes a loader: by its name, and what it may return or raise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.measure.own.function import made, module_file, named

MODULE = """
import sys
ARGUMENTS = list(sys.argv)
def alone(): return [ARGUMENTS]
def both(): return [1], print
def wrong(): return [1], [2]
def nothing(): pass
def raises(): raise KeyError("x")
def in_group():
    import torch.distributed
    torch.distributed.get_rank()
def joins():
    import torch.distributed
    torch.distributed.init_process_group("gloo")
def parses():
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.parse_args()
value = 1
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A script of the user's, and a package of theirs in the current folder; out of the way afterwards."""
    before = list(sys.path)
    path = tmp_path / "own_loader_script.py"
    path.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield str(path)
    sys.path[:] = before
    sys.modules.pop("own_loader_script", None)


def test_a_function_is_named_by_its_file_or_its_module(script: str, tmp_path: Path) -> None:
    """Nothing is imported for that."""
    found = named(f"{script}:alone")
    assert (found.folder, found.module, found.function) == (str(tmp_path), "own_loader_script", "alone")
    found = named("package.module:make")
    assert (found.folder, found.module, found.function) == (str(Path.cwd()), "package.module", "make")
    assert "own_loader_script" not in sys.modules


@pytest.mark.parametrize(
    "text", ["make", "train.py", "a b:make", "module:", ":make", "my-train:make", "nowhere.py:make"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    """With the two forms; a script that is not there is not taken for a module."""
    missing = text.startswith("nowhere")
    with pytest.raises(BadValue, match=r"there is no file nowhere\.py" if missing else "names no function") as caught:
        named(text)
    assert missing or "train.py:make_loader" in caught.value.hint


def test_a_loader_comes_alone_or_with_a_step(script: str) -> None:
    """The function sees no arguments of our command line."""
    assert made(named(f"{script}:alone")) == ([[script]], None)
    assert made(named(f"{script}:both")) == ([1], print)
    assert sys.argv != [script]


@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        ("wrong", BadValue, r"returned \(list, list\)"),
        ("nothing", BadValue, "returned nothing"),
        ("value", BadValue, "is a int, not a function"),
        ("missing", MissingPart, "cannot be loaded: module 'own_loader_script' has no attribute 'missing'"),
        ("raises", LoaderprobeError, "raised KeyError: 'x'"),
        ("parses", LoaderprobeError, "raised SystemExit: 2"),
        ("in_group", None, "--ranks 2"),
        ("joins", None, "--ranks 2"),
    ],
)
def test_what_makes_no_loader_is_named(script: str, function: str, kind: type[Exception] | None, said: str) -> None:
    """And keeps its exit code; the next step of one that asks for its rank says that it needs ranks."""
    with pytest.raises(LoaderprobeError) as caught:
        made(named(f"{script}:{function}"))
    if kind is None:
        assert said in caught.value.hint
    else:
        assert caught.match(said) and type(caught.value) is kind


@pytest.mark.parametrize("inside", ["__init__.py", ""])
def test_nodes_are_asked_for_the_file_of_the_module(script: str, tmp_path: Path, inside: str) -> None:
    """It is found without its packages, which are the user's code and only run in ranks; also of packages without a
    file of their own."""
    folder = tmp_path / "own_outer" / "own_inner"
    folder.mkdir(parents=True)
    (folder / "data.py").write_text(MODULE)
    for package in (folder, folder.parent) if inside else ():
        (package / inside).write_text("raise RuntimeError('imported')")
    before = list(sys.path)
    assert module_file(named("own_outer.own_inner.data:alone")).root == str(folder)
    assert sys.path == before and "own_outer" not in sys.modules
    found = module_file(named(f"{script}:alone"))
    assert (found.root, found.paths, found.size_bytes) == (str(tmp_path), (Path(script).name,), (len(MODULE),))
    assert module_file(named("json.decoder:make")).paths == ("decoder.py",)


@pytest.mark.parametrize("module", ["nowhere_at_all", "nowhere_at_all.data", "own_loader_script.other", "__main__"])
def test_what_is_no_module_is_no_bug(script: str, tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not exist is refused by name before any rank begins, as is the running program."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MissingPart, match=f"there is no module {module}"):
        module_file(named(f"{module}:make"))

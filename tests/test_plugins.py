"""Loaders and computes by name: built in, written out, or added by an installed package; and names of none."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import get_args

import pytest

from loaderprobe import plugins
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.config import LIBRARIES


@pytest.mark.parametrize("kind", get_args(plugins.Kind))
def test_every_built_in_name_can_be_loaded(kind: plugins.Kind) -> None:
    """Each class has the methods of its protocol; those of other libraries are tried where these are installed."""
    assert all(callable(plugins.resolve(kind, name)) for name in plugins.BUILT_IN[kind] if name not in LIBRARIES)


@pytest.mark.parametrize(
    "name", ["", "torch2", "package.module", "os.path", "../x:Y", "a b:C", ":", "x\0y:Z", "nowhere..at:Z"]
)
def test_a_name_of_none_is_a_bad_value_that_says_how_to_write_one(name: str) -> None:
    """And which there are, unless it is one of a class of one's own. Nothing is imported for it."""
    with pytest.raises(BadValue) as caught:
        plugins.check_name("compute", name)
    assert ("cuda" in caught.value.hint) == (":" not in name) and "package.module:Class" in caught.value.hint


def test_a_module_that_raises_is_a_missing_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it raises, whatever that is."""

    def imported(_: str) -> None:
        raise RuntimeError("no licence")

    monkeypatch.setattr(plugins, "import_module", imported)
    with pytest.raises(MissingPart, match="the loader 'odd:Loader' cannot be loaded: RuntimeError: no licence"):
        plugins.resolve("loader", "odd:Loader")


def test_what_is_built_in_is_imported_only_to_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch is not installed; a plug-in is always imported."""

    def imported(name: str) -> None:
        raise ModuleNotFoundError(f"No module named 'torchvision', which {name} imports")

    monkeypatch.setattr(plugins, "import_module", imported)
    plugins.check_installed("loader", "torch")
    with pytest.raises(BadValue, match="no loader named 'ffcv'"):
        plugins.check_installed("loader", "ffcv")
    with pytest.raises(MissingPart, match=r"which tests\.planted\.loaders imports"):
        plugins.check_installed("loader", "tests.planted.loaders:Plain")
    monkeypatch.setattr(plugins, "find_spec", {"torch": "there"}.get)
    with pytest.raises(MissingPart, match="No module named 'torchvision'"):
        plugins.check_installed("loader", "torch")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_with_the_line_that_installs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the package that it is in is not there; the extra has the loader's name."""

    def find(module: str) -> None:
        if "." in module:
            raise ModuleNotFoundError(module)

    monkeypatch.setattr(plugins, "find_spec", find)
    with pytest.raises(MissingPart, match=f"the loader {name} needs .* not installed") as caught:
        plugins.check_installed("loader", name)
    with pytest.raises(MissingPart, match="the decoder opencv needs cv2") as decoder:
        plugins.check_decoder("opencv")
    assert decoder.value.hint == "pip install opencv-python-headless"
    assert caught.value.hint == f"pip install 'loaderprobe[{name}]'"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_loader_is_wherever_its_library_is_named(name: str) -> None:
    """Its class, its extra, the extra of all, the guide and the benchmark of rates."""
    root, module = Path(__file__).parents[1], Path(plugins.__file__).parent / "loaders" / "libraries" / f"{name}.py"
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert plugins.BUILT_IN["loader"][name].partition(":")[2] in module.read_text()
    assert name in extras and re.search(rf"[\[,]{name}[\],]", "".join(extras["libraries"]))
    assert f"| `{name}` |" in (module.parents[2] / "guide" / "loaders.md").read_text()
    assert f'    "{name}": ' in (root / "scripts" / "benches" / "libraries.py").read_text()


CLASSES = """
from loaderprobe.testing import FakeGpu, ScriptedLoader

class Mute(ScriptedLoader):
    batches = records = None

class Older(ScriptedLoader):
    def __init__(self, config, files): ...

class Chatty(FakeGpu):
    def __init__(self, argument, clock, config=None): ...

def loader(config, files, scratch): ...
"""


@pytest.mark.parametrize(
    ("kind", "name", "lack"),
    [
        ("loader", "Mute", "has no batches or records"),
        ("loader", "Older", r"is not made by Class\(config, files, scratch\)"),
        ("compute", "Chatty", r"is not made by Class\(arguments\)"),
        ("compute", "ScriptedLoader", "has no info, copy, step or finish"),
        ("loader", "loader", "is not a class"),
    ],
)
def test_what_misses_the_protocol_is_refused_by_name(
    kind: plugins.Kind, name: str, lack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is measured: what it lacks, and the page that shows what it needs."""
    (tmp_path / "odd_parts.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_parts", raising=False)
    with pytest.raises(BadValue, match=f"odd_parts:{name} cannot be a {kind}: it {lack}") as caught:
        plugins.resolve(kind, f"odd_parts:{name}")
    assert "explain plug-ins" in caught.value.hint


def _install(monkeypatch: pytest.MonkeyPatch, **classes: str) -> None:
    """As if packages had these loaders: name and class."""
    points = [EntryPoint(name.rstrip("_"), value, "loaderprobe.loaders") for name, value in classes.items()]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)


def test_what_would_be_imported_is_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of an entry point or of a name written out; nothing for built-in names. Nothing is imported."""
    _install(monkeypatch, mine="gone.away:Loader")
    assert plugins.foreign_module("loader", "torch") is None
    assert plugins.foreign_module("loader", "mine") == "gone.away"
    assert plugins.foreign_module("loader", "no.such.module:Class") == "no.such.module"


def test_a_name_of_several_classes_stands_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package cannot replace a built-in loader or another package's silently; the same class twice is one."""
    _install(monkeypatch, torch="acme.loading:Loader", mine="acme.loading:Loader", mine_="other:Loader")
    with pytest.raises(BadValue, match=r"'torch' is ambiguous: .* loaderprobe itself and acme\.loading:Loader"):
        plugins.resolve("loader", "torch")
    with pytest.raises(
        BadValue, match=r"'mine' is ambiguous: .* acme\.loading:Loader of .* and other:Loader"
    ) as caught:
        plugins.foreign_module("loader", "mine")
    assert "uninstall" in caught.value.hint and "acme.loading:Loader" in caught.value.hint
    _install(monkeypatch, mine="acme.loading:Loader", mine_="acme.loading:Loader")
    assert plugins.foreign_module("loader", "mine") == "acme.loading"
    with pytest.raises(BadValue) as caught:
        plugins.resolve("loader", "mime")
    beside = "use dali, datasets, energon, grain, litdata, mds, mine, spdl, torch, torchdata or webdataset,"
    assert caught.value.hint.startswith(beside), "installed ones are listed beside the built-in"

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
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.config import LIBRARIES


@pytest.mark.parametrize("kind", get_args(plugins.Kind))
def test_every_built_in_name_can_be_loaded(kind: plugins.Kind) -> None:
    """Each class has the methods of its protocol; those of other libraries are tried where these are installed."""
    assert all(callable(plugins.resolve(kind, name)) for name in plugins.BUILT_IN[kind] if name not in LIBRARIES)


PARTS = """
from loaderprobe.testing import FakeGpu, ScriptedLoader

class Mute(ScriptedLoader):
    batches = records = None

class Older(ScriptedLoader):
    def __init__(self, config, files): ...

class Chatty(FakeGpu):
    def __init__(self, argument, clock, config=None): ...

def loader(config, files, scratch): ...
"""
INSTALLED = {
    "torch": "acme:Loader",
    "mine": "acme:Loader",
    "mine ": "other:Loader",
    "same": "acme:A",
    "same ": "acme:A",
}
"""Loaders of packages, by name; a name may be there twice."""
WRITE, PAGE = "package.module:Class", "explain plug-ins"
REFUSED: list[tuple[plugins.Kind, str, type[LoaderprobeError], str, str]] = [
    *(("compute", name, BadValue, "no compute named", f"cuda.* {WRITE}") for name in ("", "torch2", "os.path")),
    *(
        ("compute", name, BadValue, "names no compute", rf"^(?!.*cuda).*{WRITE}")
        for name in ("../x:Y", "a b:C", ":", "x\0y:Z", "nowhere..at:Z")
    ),
    ("loader", "mime", BadValue, "no loader named 'mime'", "^use dali, datasets, energon, .*, mds, mine, .* or webdat"),
    ("loader", "torch", BadValue, "'torch' is ambiguous: .* acme:Loader and loaderprobe.loaders.torch:", "uninstall"),
    ("loader", "mine", BadValue, "'mine' is ambiguous: .* acme:Loader and other:Loader", "acme:Loader names"),
    ("loader", "broken:Loader", MissingPart, "'broken:Loader' cannot be loaded: RuntimeError: no licence", "imported"),
    ("loader", "parts:Mute", BadValue, "cannot be a loader: it has no batches or records", PAGE),
    ("loader", "parts:Older", BadValue, r"a loader: it is not made by Class\(config, files, scratch\)", PAGE),
    ("compute", "parts:Chatty", BadValue, r"a compute: it is not made by Class\(arguments\)", PAGE),
    ("compute", "parts:ScriptedLoader", BadValue, "a compute: it has no info, copy, step or finish", PAGE),
    ("loader", "parts:loader", BadValue, "a loader: it is not a class", PAGE),
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages with INSTALLED, and two modules of one's own."""
    points = [EntryPoint(name.strip(), value, "loaderprobe.loaders") for name, value in INSTALLED.items()]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == "loaderprobe.loaders" else [])
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "parts", raising=False)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("kind", "name", "error", "says", "hint"), REFUSED)
def test_what_cannot_be_a_part_is_refused_by_name(
    kind: plugins.Kind, name: str, error: type[LoaderprobeError], says: str, hint: str
) -> None:
    """A name of none, with how to write one and which there are; one of several classes, since a package cannot
    replace a built-in loader or another package's silently; what raises while it is imported, whatever that is; and
    what lacks a part of its protocol."""
    with pytest.raises(error, match=says) as caught:
        plugins.resolve(kind, name)
    assert re.search(hint, caught.value.hint)


@pytest.mark.usefixtures("installed")
def test_what_would_be_imported_is_known_before() -> None:
    """The module of an entry point or of a name written out; nothing for built-in names. The same class twice is one.
    Nothing is imported."""
    names = ("spdl", "same", "no.such.module:Class")
    assert [plugins.foreign_module("loader", name) for name in names] == [None, "acme", "no.such.module"]
    with pytest.raises(BadValue, match="'mine' is ambiguous"):
        plugins.foreign_module("loader", "mine")


def test_what_is_built_in_is_not_imported_to_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in is always imported."""

    def imported(name: str) -> None:
        raise ModuleNotFoundError(f"No module named 'acme', which {name} imports")

    monkeypatch.setattr(plugins, "import_module", imported)
    plugins.check_loader("torch")
    with pytest.raises(BadValue, match="no loader named 'ffcv'"):
        plugins.check_loader("ffcv")
    with pytest.raises(MissingPart, match=r"which tests\.planted\.loaders imports"):
        plugins.check_loader("tests.planted.loaders:Plain")
    for missing, there in (("torchvision", {"torch": "there"}), ("torch", {})):
        monkeypatch.setattr(plugins, "find_spec", there.get)
        with pytest.raises(MissingPart, match=f"the loader torch needs {missing}, which is not installed") as refused:
            plugins.check_loader("torch")
        assert refused.value.hint == f"pip install {missing}"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_with_the_line_that_installs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the package that it is in is not there; the extra has the loader's name."""

    def find(module: str) -> None:
        if "." in module:
            raise ModuleNotFoundError(module)

    monkeypatch.setattr(plugins, "find_spec", find)
    with pytest.raises(MissingPart, match=f"the loader {name} needs .* not installed") as caught:
        plugins.check_loader(name)
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

"""Names of plug-ins that are no names, and the built-in table."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from loaderprobe import plugins
from loaderprobe.errors import BadValue, MissingPart


@pytest.mark.parametrize("kind", ["loader", "compute", "sampling"])
def test_every_built_in_name_can_be_loaded(kind: plugins.Kind) -> None:
    """The table names nothing that is not there."""
    assert all(callable(plugins.resolve(kind, name)) for name in plugins.BUILT_IN[kind])


@pytest.mark.parametrize("name", ["", "torch2", "package.module", "os.path"])
def test_an_unknown_name_is_a_bad_value_that_lists_the_known(name: str) -> None:
    """The next step names what there is, and how to bring one's own."""
    with pytest.raises(BadValue) as caught:
        plugins.resolve("compute", name)
    assert "cuda" in caught.value.hint and "package.module:Class" in caught.value.hint


@pytest.mark.parametrize(
    "name",
    [":Class", ":", ".relative:Class", "json:", "json.:Class", "../json:Class", "a/b.c:Class", "json:a b", "a\0b:C"],
)
def test_half_a_name_is_a_bad_value(name: str) -> None:
    """Neither half of package.module:Class may be empty, and the module is absolute."""
    with pytest.raises(BadValue, match="names no class"):
        plugins.resolve("loader", name)


def test_a_missing_module_names_itself_and_the_next_step() -> None:
    """The error says which plug-in and what to check."""
    with pytest.raises(MissingPart, match=r"no\.such\.module:Class") as caught:
        plugins.resolve("loader", "no.such.module:Class")
    assert "no.such.module" in caught.value.hint


def test_a_module_that_raises_is_a_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a module of the user's own raises while it is imported, the error says which one it was."""
    (tmp_path / "broken_part.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingPart, match=r"'broken_part:Loader' cannot be loaded: RuntimeError: no licence"):
        plugins.resolve("loader", "broken_part:Loader")


def test_what_would_be_imported_is_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of an entry point or of a name written out; nothing for built-in names. Nothing is imported."""
    points = [EntryPoint("mine", "gone.away:Loader", "loaderprobe.loaders")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    assert plugins.foreign_module("loader", "torch") is None
    assert plugins.foreign_module("loader", "mine") == "gone.away"
    assert plugins.foreign_module("loader", "no.such.module:Class") == "no.such.module"


def test_an_entry_point_that_is_broken_is_a_missing_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed plug-in whose module has gone is named, as one written out would be."""
    points = [EntryPoint("mine", "gone.away:Loader", "loaderprobe.loaders")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    with pytest.raises(MissingPart, match="'mine'"):
        plugins.resolve("loader", "mine")


def test_an_entry_point_of_another_kind_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind has its own group."""
    asked: list[str] = []
    monkeypatch.setattr(plugins, "entry_points", lambda group: asked.append(group) or [])  # type: ignore[func-returns-value]  # append returns None, on purpose
    with pytest.raises(BadValue):
        plugins.resolve("compute", "mine")
    assert asked == ["loaderprobe.computes"]


def test_nothing_is_imported_for_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing mistake is answered without loading torch."""
    monkeypatch.delitem(sys.modules, "loaderprobe.loaders.torch", raising=False)
    with pytest.raises(BadValue):
        plugins.resolve("loader", "troch")
    assert "loaderprobe.loaders.torch" not in sys.modules

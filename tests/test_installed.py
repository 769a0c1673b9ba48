"""A loader and a compute from a separate installed package: those of the guide's page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from loaderprobe.measure.runner import ForkServer
from loaderprobe.records.files import FileSet
from tests.cli.invoke import invoke
from tests.test_documents import FENCE, GUIDE

PAGE = (GUIDE / "plug-ins.md").read_text()
SMALL = ("--workers", 1, "--no-serial", "--batch-size", 2, "--rounds", 1, "--budget", 1)
LOADERS = {"draft": {"baseline", "warm", "cached_samples", "no_transport"}, "pool": {"baseline", "warm"}}
"""Of the page, with the modes of each."""


def install(place: Path, name: str, entry_points: dict[str, dict[str, str]], modules: dict[str, str]) -> None:
    """What pip leaves in `place` for a package: its modules, its METADATA and its entry points by group."""
    for path, text in modules.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    about = place / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in entry_points.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))


def blocks(language: str) -> list[str]:
    """The page's code in this language."""
    return [match[2] for match in FENCE.finditer(PAGE) if match[1] == language]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this process and those that it starts find packages; what it has imported from there is forgotten."""
    place = tmp_path / "site"
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", str(place))
    known = set(sys.modules)
    yield place
    for name in set(sys.modules) - known:
        if str(place) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_wheel_holds_the_whole_package(tmp_path: Path) -> None:
    """Its modules, pages, templates, tables and `py.typed`, and the command; nothing else."""
    root = GUIDE.parents[1]
    for name in ("loaderprobe", "pyproject.toml", "README.md"):
        (tmp_path / name).symlink_to(root / name)
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, check=True)
    (built,) = tmp_path.glob("*.whl")
    with ZipFile(built) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        assert b"loaderprobe = loaderprobe.cli:main" in wheel.read(about)
    whole = {path for path in (root / "loaderprobe").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert held == {str(path.relative_to(root)) for path in whole} and "loaderprobe/py.typed" in held


def test_the_guides_package_is_measured(
    site: Path, tmp_path: Path, photographs: FileSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed as its page says, its loaders and its compute are named, run and judged as built-in ones are."""
    modules = {re.findall(r"^# (\S+\.py)$", code, re.MULTILINE)[0]: code for code in blocks("python")}
    (table,) = (tomllib.loads(text)["project"]["entry-points"] for text in blocks("toml"))
    install(site, "acme", table, {**modules, "acme/__init__.py": ""})
    monkeypatch.setattr("loaderprobe.measure.ceilings.CEILING_S", 0.02)
    with ForkServer() as server:
        monkeypatch.setattr("loaderprobe.api.sweep.ForkServer", lambda: nullcontext(server))
        for loader, modes in LOADERS.items():
            names = ("--loader", loader, "--compute", "torchvision:mobilenet_v3_small")
            done = invoke("sweep", photographs.root, *names, *SMALL, "--out", tmp_path / loader, "--json")
            assert done.exit_code == 0, done.stderr
            (row,) = json.loads(done.stdout)["configurations"]
            assert (row["loader"], row["compute"]) == (loader, "torchvision:mobilenet_v3_small")
            assert row["status"] == "measured" and row["images_per_s"]["value"] > 0
            (path,) = (tmp_path / loader / "measurements").iterdir()
            measured: dict[str, Any] = json.loads(path.read_text())["measurement"]
            assert measured["compute"]["device"] == "CPU, mobilenet_v3_small"
            assert {*measured["modes"]} == modes and sum(measured["worker_batches"]["images"]) > 0

"""A data set that loaderprobe generated is taken from its manifest, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from loaderprobe.datasets.folder import generated_set
from loaderprobe.datasets.generate.manifest import is_generated
from loaderprobe.errors import BadValue
from loaderprobe.records.files import FileSet
from tests.datasets.conftest import Make


def test_a_generated_set_is_taken_from_its_manifest(two_hundred: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label, classes and sizes are right, the order is by seed, and no image is opened."""
    monkeypatch.delattr(Image, "open")
    files = generated_set(two_hundred, sample=60, seed=3)
    assert (files.label, files.generated, files.images_found, len(files.paths)) == ("160x120", True, 200, 60)
    assert files == generated_set(two_hundred, sample=60, seed=3)
    assert files.paths != generated_set(two_hundred, sample=60, seed=4).paths
    for path, number, size in zip(files.paths, files.classes, files.size_bytes, strict=True):
        assert Path(files.root, path).stat().st_size == size
        assert Path(path).parent.name == f"n{number:08}"


def test_a_generated_set_that_lost_a_file_is_refused(tmp_path: Path, make: Make) -> None:
    """Missing or of another size: the first such file is named."""
    directory = make(tmp_path, count=6)
    image = next(directory.rglob("*.JPEG"))
    image.write_bytes(b"short")
    with pytest.raises(BadValue, match=image.name):
        generated_set(directory, sample=6, seed=0)
    image.unlink()
    with pytest.raises(BadValue, match=image.name):
        generated_set(directory, sample=6, seed=0)


def test_an_incomplete_generated_set_is_refused(tmp_path: Path, make: Make) -> None:
    """Without a manifest there is no set."""
    directory = make(tmp_path, count=6)
    (directory / "manifest.json").unlink()
    with pytest.raises(BadValue, match="no complete"):
        generated_set(directory, sample=6, seed=0)


def test_only_our_own_manifest_marks_a_generated_set(tmp_path: Path, photographs: FileSet) -> None:
    """Another program's `manifest.json` does not turn their folder into ours."""
    assert is_generated(Path(photographs.root))
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    assert not is_generated(tmp_path)

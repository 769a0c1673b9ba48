"""Which data sets a folder holds: one of images, one generated set, or several of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from loaderprobe.api.generate import generate
from loaderprobe.errors import BadValue
from loaderprobe.measure.image_data import image_files, image_sets


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `generate` makes, with two resolutions."""
    root = tmp_path_factory.mktemp("generated")
    generate(root, resolutions=["64x48", "32x32"], count=6, classes=2, pool=1)
    return root


def test_each_generated_set_of_a_folder_is_a_data_set(generated: Path) -> None:
    """Their files are not mixed; the smallest come first; each has the name of its resolution."""
    small, large = image_sets(generated, sample=100)
    assert (small.label, large.label) == ("32x32", "64x48")
    assert (Path(small.root).name, len(small.paths), small.generated) == ("32x32", 6, True)
    assert [each.label for each in image_sets(generated / "64x48", sample=100)] == ["64x48"]


def test_where_one_is_needed_several_are_refused(generated: Path) -> None:
    """With the names of the sets that could be given instead."""
    with pytest.raises(BadValue, match="holds 2 generated data sets") as caught:
        image_files(generated, sample=100)
    assert f"{generated / '32x32'} or {generated / '64x48'}" in caught.value.hint


def test_a_set_that_is_not_complete_is_refused(generated: Path, tmp_path: Path) -> None:
    """Its files are not taken for images of one's own, nor is it left out."""
    shutil.copytree(generated, tmp_path / "copy")
    (tmp_path / "copy" / "64x48" / "manifest.json").unlink()
    for place in (tmp_path / "copy", tmp_path / "copy" / "64x48"):
        with pytest.raises(BadValue, match="no complete generated data set"):
            image_sets(place, sample=100)


def test_ones_own_folders_with_such_file_names_are_one_data_set(tmp_path: Path) -> None:
    """A `spec.json` of another program makes no generated set."""
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
        (tmp_path / name / "spec.json").write_text("{}")
    (found,) = image_sets(tmp_path, sample=100)
    assert (found.label, found.generated, len(found.paths)) == (tmp_path.name, False, 2)

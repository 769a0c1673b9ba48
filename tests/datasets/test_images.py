from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from loaderprobe.datasets.content import dead_leaves
from loaderprobe.datasets.images import ImageSource, PillowImages
from loaderprobe.datasets.manifest import read_manifest


def test_a_picture_depends_on_its_seed_alone() -> None:
    """The same seed gives the same pixels, another seed gives others."""
    first, again, other = (dead_leaves([seed], 60, 40) for seed in (1, 1, 2))
    assert first.shape == (40, 60, 3)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_image_does_not_depend_on_those_made_before() -> None:
    """Asked first or last, of one source or another, image 5 is the same file."""
    source: ImageSource = PillowImages(64, 48, 0)
    alone = PillowImages(64, 48, 0).jpeg(5)
    assert [source.jpeg(index) for index in (0, 5, 3, 5)][1::2] == [alone, alone]


@pytest.mark.parametrize("size", [(16, 16), (17, 33), (256, 256), (333, 500)])
def test_images_have_the_size_that_was_asked(size: tuple[int, int]) -> None:
    """Odd sizes and the smallest ones too."""
    with Image.open(io.BytesIO(PillowImages(*size, 0).jpeg(0))) as image:
        image.load()
        assert (image.size, image.mode) == (size, "RGB")


def test_seven_in_ten_are_sampled_in_full_as_in_imagenet(two_hundred: Path) -> None:
    """The rest are 4:2:0, and none is progressive."""
    samplings = []
    for path in two_hundred.rglob("*.JPEG"):
        with Image.open(path) as image:
            samplings.append(JpegImagePlugin.get_sampling(image))
            assert "progressive" not in image.info
    assert set(samplings) == {0, 2}
    assert 0.6 < samplings.count(0) / len(samplings) < 0.8


def test_bytes_per_pixel_are_those_of_photographs() -> None:
    """ImageNet has 0.54 B/pixel over all; noise, which these images must not be, has 1.7."""
    source = PillowImages(500, 375, 0)
    mean = sum(len(source.jpeg(index)) for index in range(40)) / 40
    assert 0.45 < mean / (500 * 375) < 0.75


def test_pillow_and_torchvision_decode_every_image(two_hundred: Path) -> None:
    """Both decoders give 160x120 in colour, and nearly the same pixels."""
    pytest.importorskip("torch")
    read = pytest.importorskip("torchvision.io")
    manifest = read_manifest(two_hundred)
    assert manifest is not None
    for index in range(0, 200, 4):
        path = two_hundred / manifest.spec.path(index)
        with Image.open(path) as image:
            pixels = np.asarray(image)
        decoded = read.decode_image(str(path)).numpy().transpose(1, 2, 0)
        assert pixels.shape == decoded.shape == (120, 160, 3)
        assert np.abs(pixels.astype(int) - decoded).mean() < 2


def test_imagefolder_takes_the_set(two_hundred: Path) -> None:
    """torchvision's ImageFolder finds every image, in its class."""
    datasets = pytest.importorskip("torchvision.datasets")
    folder = datasets.ImageFolder(two_hundred / "train")
    assert (len(folder), len(folder.classes)) == (200, 4)

"""torch's DataLoader, really run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from loaderprobe.errors import BadValue, NoSpace
from loaderprobe.loaders import torch as torch_loader
from loaderprobe.loaders.torch import DECODERS, ImageFiles, TorchLoader, alternatives, shared_memory_needed
from loaderprobe.records.config import Decoder, LoaderSpec, Pipeline, with_options
from loaderprobe.records.files import FileSet
from loaderprobe.render.words import message
from loaderprobe.testing import example_config

INSTALLED = [name for name in DECODERS if torch_loader.is_installed(name)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_the_sets_order_with_a_record_each(photographs: FileSet, tmp_path: Path, workers: int) -> None:
    """Batch k holds the images k x size on, and its record carries its number, images and times."""
    config = example_config(data=photographs.fingerprint, workers=workers, batch_size=4)
    with TorchLoader(config, photographs, tmp_path) as loader:
        batches = loader.batches()
        for number in range(5):
            images, labels = next(batches)
            assert images.shape == (4, 3, 224, 224)
            assert images.dtype == torch.float32
            assert tuple(labels.tolist()) == photographs.classes[number * 4 : number * 4 + 4]
        assert len(loader.workers()) == workers
        records = loader.records()
    assert records.batch[:5] == (0, 1, 2, 3, 4)
    assert records.worker[:5] == ((0, 1, 0, 1, 0) if workers else (0,) * 5)
    assert set(records.images) == {4}
    assert all(cpu > 0 for cpu in records.cpu_ns)


def test_the_set_is_read_round_and_round(photographs: FileSet, tmp_path: Path) -> None:
    """After the last file comes the first."""
    few = {name: getattr(photographs, name)[:6] for name in ("paths", "classes", "size_bytes")}
    config = example_config(data=photographs.fingerprint, workers=0, batch_size=4)
    with TorchLoader(config, replace(photographs, **few), tmp_path) as loader:
        _, (_, labels) = islice(loader.batches(), 2)
    assert tuple(labels.tolist()) == photographs.classes[4:6] + photographs.classes[:2]


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize("pipeline", ["imagenet", "crop"])
def test_all_pipelines_give_the_same_kind_of_sample(photographs: FileSet, pipeline: Pipeline, decoder: Decoder) -> None:
    """Every combination gives 3 x 224 x 224 floats, normalised."""
    spec = LoaderSpec(workers=0, prefetch_factor=0, pipeline=pipeline, decoder=decoder)
    image, label = ImageFiles(photographs, spec)[0]
    assert image.shape == (3, 224, 224)
    assert image.dtype == torch.float32
    assert -3 < float(image.mean()) < 3
    assert label == photographs.classes[0]


@pytest.mark.parametrize("decoder", INSTALLED[1:])
def test_decoders_agree(photographs: FileSet, decoder: Decoder) -> None:
    """All decode the same image, of a file or of its bytes, but for rounding."""
    path = photographs.absolute(0, 1)[0]
    pillow = torch.from_numpy(np.array(DECODERS["pillow"](path))).permute(2, 0, 1).float()
    for encoded in (path, path.read_bytes()):
        assert (pillow - DECODERS[decoder](encoded).float()).abs().mean() < 1.0


def test_the_line_for_opencv_gives_what_was_measured(photographs: FileSet, tmp_path: Path) -> None:
    """In RGB, and as it is stored where EXIF would turn it."""
    cv2, turned, exif = pytest.importorskip("cv2"), tmp_path / "turned.JPEG", Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.open(photographs.absolute(0, 1)[0]).save(turned, exif=exif)
    line = message("line.decoder.opencv", {}).partition(", an array")[0]
    recommended = eval(line, {"cv2": cv2, "numpy": np, "data": turned.read_bytes()})
    assert np.array_equal(recommended, DECODERS["opencv"](turned).permute(1, 2, 0))


@pytest.mark.parametrize("decoder", INSTALLED)
@pytest.mark.parametrize("content", [b"\xff\xd8 no image", b""])
def test_what_no_decoder_takes_is_named(photographs: FileSet, tmp_path: Path, decoder: Decoder, content: bytes) -> None:
    """Whatever error the library has for it; no other way is measured. What has no bytes cannot be sent, either."""
    (tmp_path / "bad.JPEG").write_bytes(content)
    files = replace(photographs, root=str(tmp_path), paths=("bad.JPEG",), classes=(0,), size_bytes=(len(content),))
    with pytest.raises(BadValue, match=rf"bad\.JPEG cannot be decoded by {decoder}: "):
        ImageFiles(files, LoaderSpec(workers=0, prefetch_factor=0, decoder=decoder))[0]
    assert alternatives(example_config(data=files.fingerprint), files) == ()
    with nullcontext() if content else pytest.raises(BadValue, match=r"bad\.JPEG is empty"):
        torch_loader.EncodedFiles(files)[0]


def test_other_ways_are_measured_beside_the_usual_one(photographs: FileSet) -> None:
    """Not a way that is taken; each with CPU time above 0 beside the same figure for the way at hand. Of a photograph,
    decoding and reading take CPU time; the crop is the same. Threads and random state stay."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    found = alternatives(example_config(data=photographs.fingerprint), photographs)
    assert [each.name for each in found] == [*INSTALLED[1:], "uint8", "decoded"]
    assert all(each.cpu_s > 0 for each in found) and len({each.usual_cpu_s for each in found}) == 1
    assert found[-1].cpu_s < found[-1].usual_cpu_s
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)
    taken = example_config(data=photographs.fingerprint, decoder="torchvision", tensor="uint8")
    others = [name for name in INSTALLED if name != "torchvision"]
    assert [each.name for each in alternatives(taken, photographs)] == [*others, "decoded"]


def test_a_decoder_of_fewer_formats_is_left_out(photographs: FileSet, tmp_path: Path) -> None:
    """simplejpeg decodes JPEG alone; the others are measured."""
    pytest.importorskip("simplejpeg")
    Image.new("RGB", (300, 300)).save(tmp_path / "a.png")
    files = replace(photographs, root=str(tmp_path), paths=("a.png",), classes=(0,), size_bytes=(1,))
    found = [each.name for each in alternatives(example_config(data=files.fingerprint), files)]
    assert "torchvision" in found and "simplejpeg" not in found


def test_little_shared_memory_is_refused(photographs: FileSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would get a bus error; the loader says how much is needed and how to get it. All ranks of a node share
    its memory: each finds enough free for itself, as long as no other has begun."""
    config = example_config(data=photographs.fingerprint)
    needed = shared_memory_needed(config)
    assert needed == 16 * 3 * 224 * 224 * 4 * (4 + 1 + 2)
    two_of_four = replace(config, ranks=4, nodes=2)
    monkeypatch.setattr(torch_loader, "free_shared_memory_bytes", lambda: 1000)
    for asked, said in ((config, r"shared memory has 1\.00 kB free"), (two_of_four, "batches in flight of 2 ranks")):
        with pytest.raises(NoSpace, match=said) as caught, TorchLoader(asked, photographs, tmp_path):
            pytest.fail("it must not start")
        assert "--shm-size" in caught.value.hint
        monkeypatch.setattr(torch_loader, "free_shared_memory_bytes", lambda: needed)
        monkeypatch.setattr(torch_loader, "shared_memory_bytes", lambda: 2 * needed - 1)
    monkeypatch.setattr(torch_loader, "shared_memory_bytes", lambda: 2 * needed)
    with TorchLoader(two_of_four, photographs, tmp_path):
        pass


def test_bytes_are_handed_over_where_they_are_asked_for(photographs: FileSet, tmp_path: Path) -> None:
    """A quarter of the size, not normalised: the device does that."""
    config = example_config(data=photographs.fingerprint, workers=0, batch_size=4, tensor="uint8")
    with TorchLoader(config, photographs, tmp_path) as loader:
        images, _ = next(loader.batches())
    assert images.dtype == torch.uint8
    assert images.shape == (4, 3, 224, 224)
    assert shared_memory_needed(with_options(config, workers=1, prefetch_factor=2)) * 4 == shared_memory_needed(
        with_options(config, workers=1, prefetch_factor=2, tensor="float32")
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_files_stay_encoded_for_a_gpu_that_decodes(photographs: FileSet, tmp_path: Path, workers: int) -> None:
    """A batch is the files' bytes in a row, in one tensor, and every mode can be measured with it."""
    config = example_config(data=photographs.fingerprint, workers=workers, batch_size=4, gpu_decode=True)
    with TorchLoader(config, photographs, tmp_path) as loader:
        batches = loader.batches()
        lengths, packed, labels = next(batches)
        assert lengths.tolist() == list(photographs.size_bytes[:4])
        contents = [path.read_bytes() for path in photographs.absolute(0, 4)]
        assert bytes(packed.tolist()) == b"".join(contents)
        assert tuple(labels.tolist()) == photographs.classes[:4]
        if workers:
            loader.switch("no_transport")
            assert any(isinstance(batch, int) for batch in islice(batches, 7))
    largest = max(photographs.size_bytes)
    needed = shared_memory_needed(with_options(config, workers=2, prefetch_factor=2), largest)
    assert needed == 4 * largest * (4 + 1 + 2)


def test_memory_is_pinned_for_a_gpu_unless_it_is_not_wanted(photographs: FileSet) -> None:
    """Nor for the CPU, which copies nothing, nor for a GPU that decodes."""
    configs = [
        example_config(compute="cuda"), example_config(compute="cuda", pin_memory=False), example_config(compute="cpu"),
        example_config(compute="cuda", gpu_decode=True),
    ]  # fmt: skip
    pinned = [torch_loader.image_loader(config, photographs).pin_memory for config in configs]
    assert pinned == [True, False, False, False]

"""What images would cost in another way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from loaderprobe.loaders.torch import alternatives
from loaderprobe.records.files import FileSet
from loaderprobe.testing import example_config


def test_other_ways_are_measured_beside_the_usual_one(photographs: FileSet) -> None:
    """The other decoder and bytes, each with CPU time above 0 and beside the same figure for the way at hand."""
    threads = torch.get_num_threads()
    state = torch.get_rng_state()
    found = alternatives(example_config(data=photographs.fingerprint), photographs)
    assert [each.name for each in found] == ["torchvision", "uint8", "decoded"]
    assert all(each.cpu_s > 0 for each in found)
    assert len({each.usual_cpu_s for each in found}) == 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_an_image_that_was_decoded_takes_less(photographs: FileSet) -> None:
    """Of a photograph, decoding and reading take CPU time; the crop is the same."""
    found = {each.name: each for each in alternatives(example_config(data=photographs.fingerprint), photographs)}
    assert found["decoded"].cpu_s < found["decoded"].usual_cpu_s


def test_a_way_that_is_taken_is_no_alternative(photographs: FileSet) -> None:
    """With bytes and torchvision already, only Pillow is left."""
    config = example_config(data=photographs.fingerprint, decoder="torchvision", tensor="uint8")
    assert [each.name for each in alternatives(config, photographs)] == ["pillow", "decoded"]


def test_files_that_cannot_be_decoded_show_nothing(photographs: FileSet, tmp_path: Path) -> None:
    """The loader meets them too, and says so."""
    (tmp_path / "bad.JPEG").write_bytes(b"\xff\xd8 no image")
    files = replace(photographs, root=str(tmp_path), paths=("bad.JPEG",), classes=(0,), size_bytes=(11,))
    assert alternatives(example_config(data=files.fingerprint), files) == ()

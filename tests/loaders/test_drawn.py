"""What is seen of the samples that one rank takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from loaderprobe.loaders.drawn import drawn
from loaderprobe.records.files import BatchFiles, UnknownFiles
from loaderprobe.testing import example_config

DATA = TensorDataset(torch.arange(64.0).reshape(16, 4))
FILES = BatchFiles(batch_size=1, paths=(("/a",), ("/b",)), file_bytes={"/a": 1, "/b": 1})


def seen(loader: DataLoader[Any], held: Any = ()) -> Any:
    """Of a loader whose files are hidden."""
    return drawn(loader, example_config(), UnknownFiles(code="none_seen"), held, exchanges=False)


def test_files_are_known_by_their_names() -> None:
    """The same name has the same number in every process."""
    found = drawn(DataLoader(DATA), example_config(), FILES, (), exchanges=True)
    again = drawn(DataLoader(DATA), example_config(), FILES, (), exchanges=True)
    assert found == again and len(set(found.files)) == 2 and found.exchanges


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({"shuffle": True}, True),
        ({"batch_size": None}, True),
        ({"sampler": DistributedSampler(DATA, num_replicas=2, rank=0)}, False),
        ({"batch_sampler": BatchSampler(SequentialSampler(DATA), 2, False)}, True),
        ({"batch_sampler": [[0], [1]]}, False),
    ],
)
def test_a_sampler_goes_through_the_whole_data_set_or_a_share(options: dict[str, Any], whole: bool) -> None:
    """Of batches that something else forms, it is not known."""
    assert seen(DataLoader(DATA, **options)).whole is whole


def test_batches_of_the_same_content_are_the_same() -> None:
    """Tensors of any type; what holds none shows nothing. Of made-up data batch after batch has the same content: all
    ranks have it, whatever their samplers take."""
    batch = {"x": torch.ones(2, 3, dtype=torch.bfloat16), "y": [torch.tensor([True]), torch.tensor(3)]}
    other = {**batch, "x": torch.zeros(2, 3, dtype=torch.bfloat16)}
    loader = DataLoader(DATA)
    first = seen(loader, (batch,)).first
    assert first == seen(loader, (dict(batch),)).first == seen(loader, (batch, other)).first is not None
    assert first != seen(loader, (other,)).first
    for nothing in ((["text"],), (), (batch, dict(batch))):
        assert seen(loader, nothing).first is None

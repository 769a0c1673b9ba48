"""From an image file to a training sample: the two input pipelines and the two decoders."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import io as tvio
from torchvision.transforms import v2

from loaderprobe.errors import BadValue
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, Decoder, Pipeline, TensorType
from loaderprobe.records.files import FileSet

SIDE = 224


def pipeline_steps(pipeline: Pipeline, decoder: Decoder, tensor: TensorType) -> v2.Compose:
    """The transforms after decoding; they give tensors of 3 x 224 x 224: normalised floats, or bytes as decoded."""
    crops: dict[Pipeline, list[Any]] = {
        "imagenet": [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()],
        "crop": [v2.RandomCrop(SIDE, pad_if_needed=True)],
    }
    to_tensor = [v2.PILToTensor()] if decoder == "pillow" else []
    scale = (
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(CHANNEL_MEAN, CHANNEL_DEVIATION)]
        if tensor == "float32"
        else []
    )
    return v2.Compose([*crops[pipeline], *to_tensor, *scale])


def decode(path: Path, decoder: Decoder) -> Any:
    """An RGB image of the whole file: a Pillow image, or a uint8 tensor of 3 x H x W."""
    if decoder == "torchvision":
        return tvio.decode_image(tvio.read_file(str(path)), mode=tvio.ImageReadMode.RGB)
    return Image.open(io.BytesIO(path.read_bytes())).convert("RGB")


class _FilesInTurn(Dataset[tuple[torch.Tensor, int]]):
    """A file set that is read round and round, a sample a file."""

    def __init__(self, files: FileSet) -> None:
        self._paths = files.absolute(0, len(files.paths))
        self._classes = files.classes

    def files_of(self, batch: Sequence[int]) -> Iterator[Path]:
        """The files that hold the samples of a batch."""
        return (self._paths[k % len(self._paths)] for k in batch)


class ImageFiles(_FilesInTurn):
    """Image `k` of a file set that is read round and round: (3 x 224 x 224, class number).

    Raises BadValue, naming the file, when it cannot be decoded.
    """

    def __init__(self, files: FileSet, pipeline: Pipeline, decoder: Decoder, tensor: TensorType) -> None:
        super().__init__(files)
        self._decoder: Decoder = decoder
        self._transform = pipeline_steps(pipeline, decoder, tensor)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        """Read, decode and augment image `k`."""
        index = k % len(self._paths)
        try:
            image = decode(self._paths[index], self._decoder)
        except (OSError, RuntimeError, SyntaxError, ValueError) as error:
            raise BadValue(f"{self._paths[index]} cannot be decoded by {self._decoder}: {error}") from error
        return self._transform(image), self._classes[index]


class EncodedFiles(_FilesInTurn):
    """File `k` of a file set that is read round and round, not decoded: (bytes as uint8, class number)."""

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        """Read file `k`. Raises BadValue for an empty one."""
        index = k % len(self._paths)
        # A tensor may be written to, so it needs memory of its own.
        content = bytearray(self._paths[index].read_bytes())
        if not content:
            raise BadValue(f"{self._paths[index]} is empty")
        return torch.frombuffer(content, dtype=torch.uint8), self._classes[index]


def pack(samples: Sequence[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch of encoded files: (length of each, int64 N; the bytes of all in a row, uint8; labels, int64 N).

    One tensor for all: each tensor that a worker sends takes a file descriptor.
    """
    files, labels = zip(*samples, strict=True)
    return torch.tensor([len(each) for each in files]), torch.cat(files), torch.tensor(labels)

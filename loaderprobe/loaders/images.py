"""From an image file to a training sample: the two input pipelines and the two decoders."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import io as tvio
from torchvision.transforms import v2

from loaderprobe.errors import BadValue
from loaderprobe.records.config import Decoder, FileSet, Pipeline

SIDE = 224
# The channel means and deviations of ImageNet that torchvision's models are trained with.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)


def pipeline_steps(pipeline: Pipeline, decoder: Decoder) -> v2.Compose:
    """The transforms after decoding; they give float32 tensors of 3 x 224 x 224."""
    crops: dict[Pipeline, list[Any]] = {
        "imagenet": [v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()],
        "crop": [v2.RandomCrop(SIDE, pad_if_needed=True)],
    }
    to_tensor = [v2.PILToTensor()] if decoder == "pillow" else []
    scale = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    return v2.Compose([*crops[pipeline], *to_tensor, *scale])


def decode(path: Path, decoder: Decoder) -> Any:
    """An RGB image of the whole file: a Pillow image, or a uint8 tensor of 3 x H x W."""
    if decoder == "torchvision":
        return tvio.decode_image(tvio.read_file(str(path)), mode=tvio.ImageReadMode.RGB)
    return Image.open(io.BytesIO(path.read_bytes())).convert("RGB")


class ImageFiles(Dataset[tuple[torch.Tensor, int]]):
    """Image `k` of a file set that is read round and round: (3 x 224 x 224 float32, class number).

    Raises BadValue, naming the file, when it cannot be decoded.
    """

    def __init__(self, files: FileSet, pipeline: Pipeline, decoder: Decoder) -> None:
        self._paths = files.absolute(0, len(files.paths))
        self._classes = files.classes
        self._decoder: Decoder = decoder
        self._transform = pipeline_steps(pipeline, decoder)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        """Read, decode and augment image `k`."""
        index = k % len(self._paths)
        try:
            image = decode(self._paths[index], self._decoder)
        except (OSError, RuntimeError, SyntaxError, ValueError) as error:
            raise BadValue(f"{self._paths[index]} cannot be decoded by {self._decoder}: {error}") from error
        return self._transform(image), self._classes[index]

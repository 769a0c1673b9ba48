"""JPEG files to training images on the GPU."""

from __future__ import annotations

from typing import Any

import torch
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from loaderprobe.errors import BadValue

SIDE = 224


class GpuDecoder:
    """Decodes batches of JPEG files on a separate stream, and crops them to 224 x 224 there.

    nvJPEG's hardware path ignores the order of streams: it may write into memory that earlier queued kernels still
    read (torchvision issue 9606). So only the decoder uses the stream that owns the memory, and synchronises it before
    each call. Memory that training still uses returns to that stream's pool only after training has finished with
    it (`record_stream`). This has not been tried on a GPU yet.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._crop = crop()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def decode(self, batch: Any, user: torch.cuda.Stream) -> tuple[torch.Tensor, torch.Tensor]:
        """Images uint8 N x 3 x 224 x 224 and labels, ready for work queued on `user` from now on.

        `batch` is (lengths, bytes of all files in a row, labels), all on the host. Raises BadValue for files that
        are not JPEG.
        """
        lengths, packed, labels = batch
        with torch.cuda.stream(self._stream):
            self._stream.synchronize()
            try:
                decoded = decode_jpeg(split(lengths, packed), mode=ImageReadMode.RGB, device=self._device)
            except RuntimeError as error:
                raise BadValue(
                    f"the GPU cannot decode a batch: {error}", hint="the GPU decodes only JPEG files"
                ) from error
            images = torch.stack([self._crop(image) for image in decoded])
            labels = labels.to(self._device, non_blocking=True)
        user.wait_stream(self._stream)
        for tensor in (images, labels):
            tensor.record_stream(user)
        return images, labels


def split(lengths: torch.Tensor, packed: torch.Tensor) -> list[torch.Tensor]:
    """The bytes of each file, as views."""
    return list(torch.split(packed, lengths.tolist()))


def crop() -> v2.Compose:
    """Training's random resized crop and flip, to 3 x 224 x 224, of one image on its device.

    Boxes are drawn on the host with torch's generator, so drawing them does not wait for the device.
    """
    return v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])

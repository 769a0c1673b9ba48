"""A folder of images, or a generated data set, as a DataLoader that trains on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loaderprobe.api.values import unheard
from loaderprobe.datasets.generate.manifest import is_generated
from loaderprobe.datasets.scan.folder import generated_set, scan_folder
from loaderprobe.measure.session import OnStage
from loaderprobe.records.config import ComputeSpec, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet

PREFETCH_FACTOR = 2


def image_files(data: Path, *, sample: int, seed: int = 0, progress: OnStage = unheard) -> FileSet:
    """At most `sample` images of a folder or of a generated set, in random order. Raises BadValue, MissingPart."""
    if is_generated(data):
        return generated_set(data, sample=sample, seed=seed)
    return scan_folder(
        data, sample=sample, seed=seed, progress=lambda done, total: progress("checking the images", done, total)
    )


def loader_of_images(files: FileSet, *, batch_size: int, workers: int, device: str) -> Any:
    """A `torch.utils.data.DataLoader`: (images N x 3 x 224 x 224, labels) round and round, without end."""
    from loaderprobe.loaders.torch import image_loader

    config = RunConfig(
        data=files.fingerprint,
        resolution=files.label,
        loader=LoaderSpec(workers=workers, prefetch_factor=PREFETCH_FACTOR if workers else 0),
        compute=ComputeSpec(name=device, batch_size=batch_size),
    )
    return image_loader(config, files)

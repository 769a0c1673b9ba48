"""DALI: a pipeline in C++, whose threads read, decode, crop and normalise the images of a batch; here on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from loaderprobe.errors import BadValue
from loaderprobe.loaders.libraries import OwnThreadsLoader
from loaderprobe.loaders.torch import SIDE
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, LoaderSpec, RunConfig
from loaderprobe.records.files import FileSet


class DaliLoader(OwnThreadsLoader):
    """Workers are the threads of the pipeline; the prefetch factor is the batches that it makes ahead in all."""

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """Raises BadValue for a decoder: DALI has its own."""
        spec = config.loader
        if spec.decoder != "pillow" or spec.gpu_decode:
            raise BadValue("DALI decodes by itself, on the CPU", hint="leave --decoder and --gpu-decode out")
        pipeline = pipeline_def(_images)(
            files, spec, batch_size=config.compute.batch_size, num_threads=spec.workers,
            prefetch_queue_depth=spec.prefetch_factor, device_id=None, seed=config.seed,
        )  # fmt: skip
        try:
            for (batch,) in DALIGenericIterator(pipeline, ["images", "labels"]):
                yield batch["images"], batch["labels"].squeeze(1).long()
        except RuntimeError as error:
            reason = str(error).partition("encountered:")[2].strip().partition("\n")[0] or str(error)
            raise BadValue(
                f"DALI cannot make a batch: {reason}", hint="--loader torch names a damaged image"
            ) from error


def _images(files: FileSet, spec: LoaderSpec) -> tuple[Any, Any]:
    paths = [str(path) for path in files.absolute(0, files.count)]
    encoded, labels = fn.readers.file(files=paths, labels=list(files.classes), name="files")
    if spec.pipeline == "crop":
        where = {name: fn.random.uniform(range=(0.0, 1.0)) for name in ("crop_pos_x", "crop_pos_y")}
        images = fn.crop(fn.decoders.image(encoded), crop=(SIDE, SIDE), out_of_bounds_policy="pad", **where)
        flip: Any = 0
    else:
        images = fn.random_resized_crop(fn.decoders.image(encoded), size=(SIDE, SIDE), antialias=True)
        flip = fn.random.coin_flip()
    as_floats = spec.tensor == "float32"
    scaled = {"mean": [255 * mean for mean in CHANNEL_MEAN], "std": [255 * std for std in CHANNEL_DEVIATION]}
    return fn.crop_mirror_normalize(
        images, mirror=flip, output_layout="CHW", dtype=types.FLOAT if as_floats else types.UINT8,
        **(scaled if as_floats else {}),
    ), labels  # fmt: skip

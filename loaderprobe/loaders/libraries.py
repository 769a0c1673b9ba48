"""Loaders of other libraries in a sweep: the same images, work and batches as torch's.

Loaders that users bring to `diagnose` do not belong here. Each library is imported once its loader is made.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, redirect_stdout
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset

from loaderprobe.datasets.layouts import INDEX, LABELS, class_of, damage, named
from loaderprobe.errors import BadValue
from loaderprobe.loaders.iterable import IterableLoader, OwnIterable
from loaderprobe.loaders.torch import DECODERS, NOT_DECODED, SIDE, TorchLoader, as_tensor, image_loader, pipeline_steps
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, LoaderSpec, RunConfig
from loaderprobe.records.files import IMAGE_SUFFIXES, FileSet
from loaderprobe.system.host import SystemClock
from loaderprobe.system.scratch import scratch_directory

Encoded = tuple[bytes, int]
"""An image as it is encoded, and its class."""


class OwnThreadsLoader(IterableLoader, ABC):
    """A library whose own threads or processes make the batches: warm files are measured, other causes estimated."""

    def __init__(self, config: RunConfig, files: FileSet, scratch: Path) -> None:
        given = OwnIterable(partial(self.make, config, files))
        given.num_workers, given.prefetch_factor = config.loader.workers, config.loader.prefetch_factor
        super().__init__(given, SystemClock(), lambda: None)

    @staticmethod
    @abstractmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """(images N x 3 x 224 x 224, labels int64 N) without end, in the order of the files; closing it ends all."""


class PythonLoader(OwnThreadsLoader):
    """One that calls the functions that torch's workers call."""

    alternatives = staticmethod(TorchLoader.alternatives)


class Stream(IterableDataset[Any]):
    """What a worker's share of some shards holds, decoded and augmented as torch's workers do it."""

    def __init__(self, config: RunConfig, files: FileSet, encoded: Callable[[], Iterator[Encoded]]) -> None:
        self._spec, self._shards, self._encoded = config.loader, files, encoded
        if len(files.whole_bytes) < config.loader.workers:
            raise BadValue(
                f"{len(files.whole_bytes)} shards do not give each of {config.loader.workers} workers of "
                f"{config.loader.name} one",
                hint="use more images, smaller shards or fewer workers",
            )

    def files_of(self, batch: Sequence[Any]) -> tuple[Path, ...]:
        """Not known batch by batch."""
        return ()

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        """One pass. Raises BadValue for what cannot be decoded."""
        spec = self._spec
        transform = pipeline_steps(spec)
        for encoded, label in self._encoded():
            if spec.gpu_decode:
                yield as_tensor(encoded), label
                continue
            try:
                image = DECODERS[spec.decoder](encoded)
            except NOT_DECODED as error:
                # What was seen to be damaged before is left out of what torch reads, but not of the shards.
                left_out = ", ".join(each.path for each in self._shards.skipped[:3])
                raise BadValue(
                    f"an image in {self._shards.root} cannot be decoded by {spec.decoder}: {error}",
                    hint=f"--loader torch leaves out what is damaged ({left_out}); write the shards without it"
                    if left_out
                    else "--loader torch names its file",
                ) from error
            yield transform(image), label


class StreamLoader(TorchLoader, ABC):
    """A library that streams whole shards in torch's workers, and deals them out: all ablations that shards allow."""

    def samples_of(self, config: RunConfig, files: FileSet, scratch: Path) -> Stream:
        """Shards in the order in which the set has them. Raises BadValue for fewer than workers."""
        return Stream(config, files, partial(self.encoded, self.opened(config, files, scratch)))

    def evicts(self) -> bool:
        """False: whatever the layout, nothing asks for a sample by its key."""
        return False

    def opened(self, config: RunConfig, files: FileSet, scratch: Path) -> Any:
        """What a worker makes its pass of: the paths of the shards."""
        return [str(path) for path in files.absolute(0, files.count)]

    @staticmethod
    @abstractmethod
    def encoded(opened: Any) -> Iterator[Encoded]:
        """In a worker: one pass over its share of the shards."""


def linked(
    config: RunConfig, files: FileSet, scratch: Path, entries: str, file_of: Callable[[Any], tuple[str, int]]
) -> str:
    """A folder with links to the shards of the set, and an index of them alone, in their order.

    `entries` are those of the index; `file_of` gives (name, bytes) of one. Raises BadValue for what it cannot have, and
    for a shard that is not as long as its entry says: the libraries wait for the rest of it, or end without a word.
    """
    name, shards = config.loader.name, files.absolute(0, files.count)
    source = shards[0].parent
    if config.ranks > 1:
        raise BadValue(f"{name} deals shards to ranks by itself", hint="compare loaders with one rank")
    if len({path.parent for path in shards}) > 1:
        what = f"{name} reads shards of one directory, and {files.root} has them in several"
        raise BadValue(what, hint="put them in one, with one index.json, or use --loader torch")
    with damage(source / INDEX, OSError, ValueError, LookupError, TypeError):
        index = json.loads((source / INDEX).read_bytes())
        known = {file_of(entry)[0]: entry for entry in index[entries]}
        index[entries] = [known[path.name] for path in shards]
    for entry, path in zip(index[entries], shards, strict=True):
        if file_of(entry)[1] != path.stat().st_size:
            raise BadValue(f"{path} is damaged: {INDEX} has another size for it", hint="write it again")
    folder = links({path.name: path for path in shards}, scratch)
    (folder / INDEX).write_text(json.dumps(index))
    return str(folder)


def links(shards: dict[str, Path], scratch: Path) -> Path:
    """A folder with links of these names, beside which a library may write."""
    folder = Path(mkdtemp(prefix="linked-", dir=scratch))
    for name, path in shards.items():
        (folder / name).symlink_to(path)
    return folder


def from_tar(samples: Iterable[dict[str, Any]]) -> Iterator[Encoded]:
    """Of each sample of tar shards, by the suffixes of its files, the first image, and its class where it has one."""
    for sample in samples:
        images = (data for suffix, data in sample.items() if f".{suffix.rpartition('.')[2]}".lower() in IMAGE_SUFFIXES)
        for image in images:
            yield image, class_of(sample.get("cls", b"").strip())
            break


def encoded_in(row: Any) -> Encoded:
    """The image and the class of a row, by name, else the first. Raises BadValue for an image that is no bytes."""
    columns = row if isinstance(row, dict) else dict(enumerate(row))
    pixels = {
        name: value for name, value in columns.items()
        if isinstance(value, Image.Image) or (isinstance(value, torch.Tensor) and value.ndim == 3)
    }  # fmt: skip
    encoded = {name: value for name, value in columns.items() if isinstance(value, bytes | memoryview)}
    image = named({**pixels, **encoded}, ["image"], None)
    if not isinstance(image, bytes | memoryview):
        raise BadValue("the library decodes images of this set by itself", hint="--loader torch reads their bytes")
    numbers = {name: int(value) for name, value in columns.items() if isinstance(value, int | np.integer)}
    return bytes(image), named(numbers, LABELS, 0)


def samples_of(config: RunConfig, files: FileSet) -> tuple[Any, Callable[[Sequence[Any]], Any]]:
    """(the samples by number, what makes a batch of some), as torch's workers have them; pinned where theirs are."""
    loader: Any = image_loader(config, files)
    return loader.dataset, partial(_pinned, loader.collate_fn) if loader.pin_memory else loader.collate_fn


def by_threads(samples: Any) -> Callable[[int], Any]:
    """A sample by its number, for threads of a library: torch takes one thread in each, as in its own workers.

    More spin for each small operation: one thread of SPDL made 12 to 88 images/s on two busy cores, and 400 so.
    """

    def sample(number: int) -> Any:
        if current_thread() is not main_thread():
            torch.set_num_threads(1)
        return samples[number]

    return sample


def _pinned(collate: Callable[[Sequence[Any]], Any], samples: Sequence[Any]) -> Any:
    return [tensor.pin_memory() for tensor in collate(samples)]


class SpdlLoader(PythonLoader):
    """SPDL: a pipeline of threads, which decode while they leave Python's lock to others.

    Workers are the threads of the pipeline.
    """

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """A pipeline that ends at the first sample that fails, as torch does, instead of leaving it out."""
        from spdl.pipeline import PipelineBuilder

        samples, collate = samples_of(config, files)
        threads = config.loader.workers
        pipeline = (
            PipelineBuilder()
            .add_source(count())
            .pipe(by_threads(samples), concurrency=threads, output_order="input", max_failures=0)
            .aggregate(config.compute.batch_size, drop_last=True)
            .pipe(collate, max_failures=0)
            .add_sink(config.loader.batches_ahead)
            .build(num_threads=threads)
        )
        with pipeline.auto_stop():
            yield from pipeline


class TorchdataLoader(PythonLoader):
    """torchdata's nodes: samples are mapped in threads, batches are made ahead in one more.

    Workers are the threads of the mapper; without any, the training thread maps.
    """

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """The nodes, one in another."""
        from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, ParallelMapper, Prefetcher

        samples, collate = samples_of(config, files)
        threads = config.loader.workers
        mapped = ParallelMapper(IterableWrapper(count()), by_threads(samples), num_workers=threads, method="thread")
        batches = Mapper(Batcher(mapped, config.compute.batch_size, drop_last=True), collate)
        yield from Loader(Prefetcher(batches, config.loader.batches_ahead) if threads else batches)


class GrainLoader(PythonLoader):
    """Grain: processes that make whole batches, and send them in shared memory as arrays.

    Workers are its processes, each with one thread; without any, the training thread makes the batches.
    """

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """Batch `k` is made by process `k` modulo their number, as torch does."""
        import grain

        spec = config.loader
        samples, collate = samples_of(config, files)
        batches = (
            grain.MapDataset.range(files.count)
            .repeat()
            .map(samples.__getitem__)
            .batch(config.compute.batch_size, drop_remainder=True, batch_fn=collate)
            .map(_as_arrays)
            .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
            .mp_prefetch(grain.MultiprocessingOptions(spec.workers, spec.prefetch_factor), worker_init_fn=_one_thread)
        )
        with closing(iter(batches)) as made:
            for batch in made:
                yield tuple(torch.from_numpy(array) for array in batch)


def _one_thread(_number: int, _count: int) -> None:
    """In a process: torch takes one thread, as in its own workers; more would spin for each small operation."""
    torch.set_num_threads(1)


def _as_arrays(batch: Any) -> tuple[Any, ...]:
    return tuple(tensor.numpy() for tensor in batch)


class DaliLoader(OwnThreadsLoader):
    """DALI: a pipeline in C++, whose threads read, decode, crop and normalise the images of a batch; here on the CPU.

    Workers are the threads of the pipeline; the prefetch factor is the batches that it makes ahead in all.
    """

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """Raises BadValue for a decoder: DALI has its own."""
        from nvidia.dali import pipeline_def
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

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
    from nvidia.dali import fn, types

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


class WebdatasetLoader(StreamLoader):
    """WebDataset: tar shards as streams, which it deals out to torch's workers.

    Shards are not shuffled again, and samples neither: the set has them in random order.
    """

    @staticmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        from webdataset import WebDataset

        # Ranks have shards of their own already.
        return from_tar(WebDataset(shards, shardshuffle=False, nodesplitter=None, empty_check=False))


class EnergonLoader(StreamLoader):
    """Megatron's energon: tar shards as streams, whose samples it deals out to torch's workers.

    Shards are not shuffled again, and samples neither: the set has them in random order.
    """

    def opened(self, config: RunConfig, files: FileSet, scratch: Path) -> Any:
        """The samples of links to the shards, beside which `energon prepare` writes. Raises BadValue if that fails."""
        from megatron.energon import CrudeWebdataset, WorkerConfig
        from megatron.energon.epathlib import EPath
        from megatron.energon.savable_loader import SimpleSavableDatasetWrapper

        workers, shards = config.loader.workers, files.absolute(0, files.count)
        # The first worker gets the first samples: so each has the shards that torch's has.
        dealt = [path for worker in range(workers or 1) for path in shards[worker :: workers or 1]]
        names = {f"{number:06}.tar": path for number, path in enumerate(dealt)}
        folder = links(names, scratch)
        try:
            with redirect_stdout(StringIO()):
                CrudeWebdataset.prepare_dataset(
                    folder, [*names], split_parts_ratio=[("train", 1)], shuffle_seed=None, workers=1
                )
        except AssertionError as error:
            path = next((path for name, path in names.items() if name in str(error)), folder)
            raise BadValue(f"{path} is damaged: energon cannot index it", hint="write it again") from error
        except SystemExit as error:
            raise BadValue(
                f"energon needs a name of its own for each sample, and {files.root} has one twice",
                hint="`energon prepare --fix-duplicates` writes other names into the shards, or use another loader",
            ) from error
        # Ranks have shards of their own already.
        own = WorkerConfig(rank=0, world_size=1, num_workers=workers)
        samples = CrudeWebdataset(EPath(folder), split_part="train", training=False, worker_config=own, decoder=None)
        return SimpleSavableDatasetWrapper(samples.build(), own, cache_pool=None)

    @staticmethod
    def encoded(opened: Any) -> Iterator[Encoded]:
        return from_tar(sample for _, _, sample in opened)


class DatasetsLoader(StreamLoader):
    """Hugging Face datasets: Parquet files as a stream, which it deals out to torch's workers.

    Files are read one after the other, each from its begin to its end.
    """

    @staticmethod
    def encoded(shards: list[str]) -> Iterator[Encoded]:
        """Rows as they are stored: images are not decoded by the library."""
        from datasets import load_dataset

        from loaderprobe.datasets.layouts.parquet import columns_of, sample_of

        stream = load_dataset("parquet", data_files=shards, split="train", streaming=True).decode(False)
        columns = columns_of(stream.features.arrow_schema)
        for row in stream:
            sample = sample_of(*(row[name] for name in columns))
            yield sample.image, sample.label


class LitdataLoader(StreamLoader):
    """litdata: chunks as streams, which it deals out to torch's workers.

    Chunks are not shuffled again: the set has them in random order.
    """

    def opened(self, config: RunConfig, files: FileSet, scratch: Path) -> str:
        """A folder that holds the chunks of the set, and no others."""
        return linked(config, files, scratch, "chunks", lambda chunk: (chunk["filename"], chunk["chunk_bytes"]))

    @staticmethod
    def encoded(opened: str) -> Iterator[Encoded]:
        from litdata import StreamingDataset

        for row in StreamingDataset(opened):
            yield encoded_in(row)


class MdsLoader(PythonLoader):
    """MosaicML's Streaming: MDS shards, whose samples it deals out to torch's workers, which begin each pass together.

    Workers are torch's. They cannot be switched: one that begins a pass waits for all others to do so.
    """

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """Samples are not shuffled again: the set has its shards in random order."""
        from streaming import StreamingDataset
        from streaming.base.shared import SharedMemory

        with scratch_directory() as scratch:
            folder = linked(
                config,
                files,
                scratch,
                "shards",
                lambda shard: (shard["raw_data"]["basename"], shard["raw_data"]["bytes"]),
            )
            batch, workers = config.compute.batch_size, max(1, config.loader.workers)
            # As many for each: where one has more, it begins pass after pass later, until the others wait for ever.
            images = files.count - files.count % (batch * workers)
            if not images:
                raise BadValue(
                    f"{files.count} images do not give each of {workers} workers a batch of {batch}",
                    hint="use more images, fewer workers or a smaller batch",
                )
            samples = StreamingDataset(local=folder, batch_size=batch, epoch_size=images)
            try:
                yield from image_loader(config, files, Stream(config, files, partial(_endless, samples)))
            finally:
                # The library does this at the end of the process, which may be another's child.
                for value in vars(samples).values():
                    memory = getattr(value, "shm", value)
                    if isinstance(memory, SharedMemory):
                        memory.cleanup()


def _endless(samples: Any) -> Iterator[Encoded]:
    """In a worker."""
    while True:
        for row in samples:
            yield encoded_in(row)

"""Loaders of other libraries: diagnosed or refused, and the same samples as without loaderprobe.

Ends with the rows of the table in loaderprobe/guide/loaders.md. Other arguments go to pytest. Runs in an environment of
its own, .venv-libraries: these libraries ask for older versions of what the others need.

With --rates: each loader of `sweep --loader` through loaderprobe and bare in turn, on the same images in memory. A
loader has a process of its own. Through loaderprobe it is a segment of a sweep, with all that is sampled meanwhile.
Bare it is a plain loop over the library, written as its own documentation does, with the same work: decode by Pillow
(DALI by itself), RandomResizedCrop 224, flip, normalise, batches of 16 in float32.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from torchvision.transforms import v2

from loaderprobe.compute.step import NoCompute
from loaderprobe.datasets.folder import generated_set
from loaderprobe.errors import MissingPart
from loaderprobe.measure.pace import Pace, Part
from loaderprobe.measure.segment_runner import Counted, Parts, SegmentRunner
from loaderprobe.measure.segments import Readiness, flush
from loaderprobe.plugins import check_loader, resolve
from loaderprobe.protocols import Loader, OwnThreads
from loaderprobe.records.config import CHANNEL_DEVIATION, CHANNEL_MEAN, ONE_LAYOUT, RunConfig
from loaderprobe.records.files import FileSet
from loaderprobe.samplers.recorded import DiskSampler, SamplerThread
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.stats import median
from loaderprobe.system.device import locate_root
from loaderprobe.system.host import SystemClock
from loaderprobe.system.limits import cores_available
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import threads_of
from loaderprobe.testing import example_arguments, example_config
from scripts.benches.harness import alternated, answer, child, parser, photographs, spread, wanted

IMAGES, RESOLUTION, SHARD_IMAGES = 1000, "256x256", 50
BATCH, WORKERS, AHEAD = 16, 2, 2
PAUSE_S = 0.3
"""Before a turn: who has just worked is given less of a core that others want."""
EQUAL = 0.03
"""The most by which the rates of a loader may differ. Turns are short: others on the machine slow both alike."""
AUGMENT = v2.Compose(
    [
        v2.RandomResizedCrop(224, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(CHANNEL_MEAN, CHANNEL_DEVIATION),
    ]
)


class Photographs(Dataset[tuple[torch.Tensor, int]]):
    """As many as anyone may take: the images of the set, without end."""

    def __init__(self, files: FileSet) -> None:
        self.paths, self.labels = files.absolute(0, files.count), files.classes

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        number = k % len(self.paths)
        with Image.open(self.paths[number]) as image:
            return AUGMENT(image.convert("RGB")), self.labels[number]


def bare_torch(files: FileSet) -> Iterator[Any]:
    yield from DataLoader(Photographs(files), BATCH, num_workers=WORKERS, prefetch_factor=AHEAD, drop_last=True)


class OfThreads(Photographs):
    """For threads of a library, each of which has one of torch's, as torch's own workers: more spin in small steps."""

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        torch.set_num_threads(1)
        return super().__getitem__(k)


def bare_spdl(files: FileSet) -> Iterator[Any]:
    from spdl.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(count())
        .pipe(OfThreads(files).__getitem__, concurrency=WORKERS, output_order="input")
        .aggregate(BATCH, drop_last=True)
        .pipe(default_collate)
        .add_sink(WORKERS * AHEAD)
        .build(num_threads=WORKERS)
    )
    with pipeline.auto_stop():
        yield from pipeline


def bare_torchdata(files: FileSet) -> Iterator[Any]:
    from torchdata import nodes

    samples = nodes.ParallelMapper(
        nodes.IterableWrapper(count()), OfThreads(files).__getitem__, num_workers=WORKERS, method="thread"
    )
    batches = nodes.Mapper(nodes.Batcher(samples, BATCH, drop_last=True), default_collate)
    yield from nodes.Loader(nodes.Prefetcher(batches, WORKERS * AHEAD))


def _collated(samples: list[tuple[torch.Tensor, int]]) -> tuple[Any, ...]:
    """By torch, as the product does it: Grain's own batching of arrays takes 1.6 times as long in all."""
    return tuple(tensor.numpy() for tensor in default_collate(samples))


def bare_grain(files: FileSet) -> Iterator[Any]:
    import grain

    batches = (
        grain.MapDataset.source(OfThreads(files))
        .batch(BATCH, drop_remainder=True, batch_fn=_collated)
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        .mp_prefetch(grain.MultiprocessingOptions(WORKERS, AHEAD))
    )
    for batch in batches:
        yield tuple(map(torch.from_numpy, batch))


def bare_dali(files: FileSet) -> Iterator[Any]:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def  # type: ignore[untyped-decorator]  # it ships no types
    def pipeline() -> tuple[Any, Any]:
        encoded, labels = fn.readers.file(files=[*map(str, files.absolute(0, files.count))], labels=[*files.classes])
        images = fn.random_resized_crop(fn.decoders.image(encoded), size=(224, 224), antialias=True)
        return fn.crop_mirror_normalize(
            images, mirror=fn.random.coin_flip(), dtype=types.FLOAT, output_layout="CHW",
            mean=[255 * mean for mean in CHANNEL_MEAN], std=[255 * std for std in CHANNEL_DEVIATION],
        ), labels  # fmt: skip

    made = pipeline(batch_size=BATCH, num_threads=WORKERS, prefetch_queue_depth=AHEAD, device_id=None)
    for (batch,) in DALIGenericIterator(made, ["images", "labels"]):
        yield batch["images"], batch["labels"]


def bare_webdataset(files: FileSet) -> Iterator[Any]:
    import webdataset as wds

    shards = [*map(str, files.absolute(0, files.count))]
    samples = (
        wds.WebDataset(shards, shardshuffle=False).repeat().decode("pil").to_tuple("jpg", "cls").map_tuple(AUGMENT)
    )
    yield from DataLoader(samples, BATCH, num_workers=WORKERS, prefetch_factor=AHEAD)


class Repeated(IterableDataset[tuple[torch.Tensor, int]]):
    """Rows of an image and a class, without end: where an epoch ends, workers wait for the next."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        while True:
            for row in self.rows:
                image = row["image"]
                image = image if isinstance(image, Image.Image) else Image.open(io.BytesIO(image))
                yield AUGMENT(image.convert("RGB")), row["label"]


def bare_rows(rows: Any) -> Iterator[Any]:
    yield from DataLoader(Repeated(rows), BATCH, num_workers=WORKERS, prefetch_factor=AHEAD)


def bare_datasets(files: FileSet) -> Iterator[Any]:
    from datasets import load_dataset

    shards = [*map(str, files.absolute(0, files.count))]
    return bare_rows(load_dataset("parquet", data_files=shards, split="train", streaming=True))


def bare_litdata(files: FileSet) -> Iterator[Any]:
    from litdata import StreamingDataset

    return bare_rows(StreamingDataset(str(files.absolute(0, 1)[0].parent)))


def bare_mds(files: FileSet) -> Iterator[Any]:
    from streaming import StreamingDataset

    folder, taken = str(files.absolute(0, 1)[0].parent), BATCH * WORKERS
    # As many images for each worker: they begin a pass together, and would wait for ever.
    return bare_rows(StreamingDataset(local=folder, batch_size=BATCH, epoch_size=files.count // taken * taken))


def bare_energon(files: FileSet) -> Iterator[Any]:
    from megatron import energon

    @energon.stateless  # type: ignore[untyped-decorator]  # it is not installed for mypy
    def augmented(sample: dict[str, Any]) -> dict[str, Any]:
        return sample | {"jpg": AUGMENT(sample["jpg"].convert("RGB"))}

    class Encoder(energon.DefaultTaskEncoder):  # type: ignore[misc]  # it is not installed for mypy
        decoder = energon.SampleDecoder(image_decode="pil")
        cookers = (energon.Cooker(augmented),)

        def batch(self, samples: list[Any]) -> Any:
            return default_collate([(sample["jpg"], sample["cls"]) for sample in samples])

    folder = files.absolute(0, 1)[0].parent
    with redirect_stdout(sys.stderr):
        energon.CrudeWebdataset.prepare_dataset(
            folder, [path.name for path in files.absolute(0, files.count)], split_parts_ratio=[("train", 1)],
            shuffle_seed=None, workers=1,
        )  # fmt: skip
    (folder / ".nv-meta" / "dataset.yaml").write_text("__module__: megatron.energon\n__class__: CrudeWebdataset\n")
    samples = energon.get_train_dataset(
        folder, worker_config=energon.WorkerConfig(rank=0, world_size=1, num_workers=WORKERS), batch_size=BATCH,
        shuffle_buffer_size=None, max_samples_per_sequence=None, shuffle_over_epochs_multiplier=None,
        parallel_shard_iters=1, task_encoder=Encoder(),
    )  # fmt: skip
    yield from energon.get_loader(samples, prefetch_factor=AHEAD)


BARE: dict[str, Callable[[FileSet], Iterator[Any]]] = {
    "torch": bare_torch,
    "spdl": bare_spdl,
    "torchdata": bare_torchdata,
    "grain": bare_grain,
    "dali": bare_dali,
    "webdataset": bare_webdataset,
    "datasets": bare_datasets,
    "litdata": bare_litdata,
    "mds": bare_mds,
    "energon": bare_energon,
}


def bare_rate(batches: Iterator[Any], seconds: float) -> float:
    """Images/s, without what was made before."""
    time.sleep(PAUSE_S)
    flush(batches, WORKERS * AHEAD + WORKERS)
    begin_s, taken = time.perf_counter(), 0
    while taken % WORKERS or time.perf_counter() < begin_s + seconds:
        next(batches)
        taken += 1
    return taken * BATCH / (time.perf_counter() - begin_s)


def runner_of(loader: Loader, config: RunConfig, files: FileSet, seconds: float) -> SegmentRunner:
    """As a session begins one."""
    clock, location = SystemClock(), locate_root(files.root)
    compute = NoCompute(example_arguments(clock))
    parts = Parts(loader=loader, compute=compute, clock=clock, cache=LinuxPageCache(), location=location)
    batches = Counted(loader.batches(), 0)
    ready = Readiness(
        config, files.parts or files, "parts" if files.parts else "files", loader, parts.cache,
        lambda taken: flush(batches, taken), files.count // BATCH if files.parts else 0,
    )  # fmt: skip
    pace = Pace(min_s=seconds, max_s=seconds, multiple=WORKERS)
    return SegmentRunner(config, parts, batches, pace, ready, None)


def segment_of(runner: SegmentRunner, scratch: Path) -> float:
    """Images/s of the loader alone in one segment, with the samplers of a sweep."""
    loader = runner.parts.loader
    with (
        WaitsSampler(lambda: threads_of(loader.workers()), scratch) as looking,
        SamplerThread([DiskSampler(runner.parts.clock, runner.parts.location.devices)]),
    ):
        if isinstance(loader, OwnThreads):
            loader.new_processes = looking.follow_threads
        time.sleep(PAUSE_S)
        segment = runner.run(Part("warm", "loader_only"), 0)
        return segment.batch_size * segment.steps / segment.seconds


def rates(name: str, folder: str, rounds: int, seconds: float) -> None:
    """Prints images/s of each round: through loaderprobe, and bare."""
    files = generated_set(Path(folder), sample=IMAGES, seed=0)
    config = example_config(
        data=files.fingerprint, cache="warm", loader=name, workers=WORKERS, prefetch_factor=AHEAD, batch_size=BATCH,
        layout=files.layout,
    )  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as scratch,
        resolve("loader", name)(config, files.dealt(WORKERS, BATCH), Path(scratch)) as loader,
    ):
        runner, bare = runner_of(loader, config, files, seconds), BARE[name](files)
        runs = {"loaderprobe": partial(segment_of, runner, Path(scratch)), "bare": partial(bare_rate, bare, seconds)}
        alternated(runs, 0)  # all that begins late has begun
        by_round = [alternated(runs, number) for number in range(rounds)]
    print(json.dumps({way: [speeds[way] for speeds in by_round] for way in runs}), flush=True)
    os._exit(0)  # torchdata's threads would end the process with a signal


def installed(name: str) -> bool:
    try:
        check_loader(name)
    except MissingPart as error:
        print(f"{name}: left out: {error.message}")
    else:
        return True
    return False


def measure(only: str, rounds: int, seconds: float) -> int:
    """Print a row a loader; 1 where the median ratio of one is off by more than `EQUAL`."""
    print(f"{IMAGES} images of {RESOLUTION} in memory, {WORKERS} workers, batch {BATCH}, {cores_available():g} cores")
    print(f"{rounds} rounds of {seconds:g} s\n| loader | images/s | bare | ratio |\n|---|---|---|---|")
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="loaderprobe-bench-") as scratch:
        for name in filter(installed, wanted([*BARE], only)):
            layout = ONE_LAYOUT.get(name, "files")
            folder = photographs(Path(scratch), RESOLUTION, IMAGES, layout, shard_images=SHARD_IMAGES)
            by_way = answer(child(rates, name, folder, rounds, seconds), quiet=True)
            ratios = [ours / bare for ours, bare in zip(by_way["loaderprobe"], by_way["bare"], strict=True)]
            medians = " | ".join(f"{median(values):.0f}" for values in by_way.values())
            print(f"| {name} | {medians} | {spread(ratios)} |", flush=True)
            wrong += abs(median(ratios) - 1) > EQUAL
    return int(wrong > 0)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rates", action="store_true", help="compare rates of loaders, and run no tests")
    options.add_argument("--only", default="", help="loaders, with commas; all that are installed")
    options.add_argument("--rounds", type=int, default=24)
    options.add_argument("--seconds", type=float, default=0.6, help="of a turn (%(default)s)")
    chosen, rest = options.parse_known_args()
    if chosen.rates:
        return measure(chosen.only, chosen.rounds, chosen.seconds)
    return subprocess.run([sys.executable, "-m", "pytest", "tests/libraries", *rest], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

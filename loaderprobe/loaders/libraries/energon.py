"""Megatron's energon: tar shards as streams, whose samples it deals out to torch's workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from megatron.energon import CrudeWebdataset, WorkerConfig
from megatron.energon.epathlib import EPath
from megatron.energon.savable_loader import SimpleSavableDatasetWrapper

from loaderprobe.errors import BadValue
from loaderprobe.loaders.libraries import Encoded, StreamLoader, from_tar, links
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet


class EnergonLoader(StreamLoader):
    """Shards are not shuffled again, and samples neither: the set has them in random order."""

    def opened(self, config: RunConfig, files: FileSet, scratch: Path) -> Any:
        """The samples of links to the shards, beside which `energon prepare` writes. Raises BadValue if that fails."""
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
        single = WorkerConfig(rank=0, world_size=1, num_workers=workers)
        samples = CrudeWebdataset(EPath(folder), split_part="train", training=False, worker_config=single, decoder=None)
        return SimpleSavableDatasetWrapper(samples.build(), single, cache_pool=None)

    @staticmethod
    def encoded(opened: Any) -> Iterator[Encoded]:
        return from_tar(sample for _, _, sample in opened)

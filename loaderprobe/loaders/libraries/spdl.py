"""SPDL: a pipeline of threads, which decode while they leave Python's lock to others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from spdl.pipeline import PipelineBuilder

from loaderprobe.loaders.libraries import PythonLoader, by_threads, samples_of
from loaderprobe.records.config import RunConfig
from loaderprobe.records.files import FileSet


class SpdlLoader(PythonLoader):
    """Workers are the threads of the pipeline."""

    @staticmethod
    def make(config: RunConfig, files: FileSet) -> Iterator[Any]:
        """A pipeline that ends at the first sample that fails, as torch does, instead of leaving it out."""
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

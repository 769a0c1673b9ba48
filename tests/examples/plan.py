"""Builders of what a plan starts from: an H100 of MLPerf on files of 115 kB, and what is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from loaderprobe.analyze.plan.plan import given_offer, make_plan
from loaderprobe.analyze.plan.workload import MeasuredStorage, PlanWorkload, known, requests
from loaderprobe.records.plan import PlanReport, PlanSource
from loaderprobe.records.supply import Asked, CacheAsked

H100 = 400 / 0.224
SOURCE = PlanSource(
    kind="sweep", path="/runs/1", data="/data/500x375", other_data=("256x256",), accelerator="mlperf-h100",
    configuration="500x375, 2 workers, emulated:mlperf-h100, cold",
)  # fmt: skip
MADE: dict[str, Any] = {"loaderprobe": "0.1.0", "created_utc": "2026-11-22T10:00:00+00:00", "images_per_s": {}}


def example_workload(images_per_s: float = H100, file_bytes: float = 115_000.0, **changes: Any) -> PlanWorkload:
    """Measured on storage of 920 MB/s."""
    workload = PlanWorkload(
        accelerator="mlperf-h100",
        compute="emulated:mlperf-h100",
        rate=known(images_per_s, "images/s", "given", "MLPerf Storage"),
        file_bytes=known(file_bytes, "B", "measured", "832 of 832 files"),
        requests_per_file=requests([file_bytes], exact=True),
        amplification=known(1.0, "x", "measured", "counted"),
        images=known(1_281_167, "images", "measured", "files found"),
        cpu_s=known(0.0025, "s", "measured", "run"),
        other_s=known(0.0001, "s", "measured", "run"),
        wait_s=known(0.0004, "s", "measured", "run", half=0.0001),
        storage=example_storage(),
    )
    return replace(workload, **changes)


def example_storage(bytes_per_s: float = 0.92e9, **changes: Any) -> MeasuredStorage:
    """The best step of a ladder of 1 to 16 readers."""
    storage = MeasuredStorage(
        source="16 readers",
        read_bytes_per_s=known(bytes_per_s, "B/s", "measured", "16 readers", half=0.03 * bytes_per_s),
        files_per_s=known(bytes_per_s / 115_000, "1/s", "measured", "16 readers"),
        file_s=known(0.002, "s", "measured", "1 and 16 readers", low=0.0003),
        readers=16,
        at_least=False,
    )
    return replace(storage, **changes)


def example_asked(accelerators: int = 64, **changes: Any) -> Asked:
    """At 90 % utilization and 80 % use, eight accelerators a node."""
    asked = Asked(
        accelerators=accelerators, utilization=0.9, use=0.8, use_given=False, per_node=8, nic_bytes_per_s=None,
        images_per_file=1, growth=1.0, cache=CacheAsked(),
    )  # fmt: skip
    return replace(asked, **changes)


def example_plan(workload: PlanWorkload | None = None, asked: Asked | None = None) -> PlanReport:
    """The plan for the workload above, beside a storage whose opens give out first."""
    offer = given_offer("6GB/s,24kopens/s,2ms", {"bandwidth": 6e9, "opens": 24_000.0, "latency": 0.002})
    return make_plan(workload or example_workload(), asked or example_asked(), [offer], SOURCE, **MADE)

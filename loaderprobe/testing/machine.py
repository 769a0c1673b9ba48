"""The machine of the examples."""

from __future__ import annotations

from loaderprobe.records.environment import Environment, StorageLocation
from loaderprobe.records.unavailable import Unavailable

NO_GPU = Unavailable(code="nvml_not_started", facts={"error": "NVML Shared Library Not Found"})


def example_location(path: str) -> StorageLocation:
    """A local disk that counts its reads."""
    return StorageLocation(
        path=path, filesystem="ext4", kind="block", mount="/data", source="/dev/vdb1", devices=("vdb",)
    )


def example_environment() -> Environment:
    """Two cores of a virtual machine, without a GPU."""
    return Environment(
        loaderprobe="0.1.0",
        python="3.11.7",
        torch="2.9.0",
        torchvision="0.24.0",
        kernel="6.1.0-28-amd64",
        cpu_model="AMD EPYC 7B13",
        cores_total=16,
        cores_available=2.0,
        memory_bytes=16_800_000_000,
        shared_memory_bytes=64_000_000,
        gpus=(),
        gpu_reason=NO_GPU,
        storage=(example_location("/data/imagenet-like"),),
    )

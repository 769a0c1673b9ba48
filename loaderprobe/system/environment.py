"""The machine and its software, without importing torch."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loaderprobe.records.environment import Environment, Gpu
from loaderprobe.records.remark import Remark
from loaderprobe.system.device import locate_root
from loaderprobe.system.host import cores_total
from loaderprobe.system.limits import cores_available, cpu_model, memory_bytes, shared_memory_bytes

ROCM = Path("/dev/kfd")
"""The device of AMD's driver: torch names such GPUs cuda, too, and NVML does not know them."""


def describe_environment(paths: Sequence[Path | str]) -> Environment:
    """This machine, and the storage under `paths`, which may be URLs."""
    gpus, reason = list_gpus()
    return Environment(
        loaderprobe=own_version(),
        python=platform.python_version(),
        torch=_version("torch"),
        torchvision=_version("torchvision"),
        kernel=platform.release(),
        cpu_model=cpu_model(),
        cores_total=cores_total(),
        cores_available=cores_available(),
        memory_bytes=memory_bytes(),
        shared_memory_bytes=shared_memory_bytes(),
        gpus=gpus,
        gpu_reason=reason,
        storage=tuple(locate_root(str(path)) for path in paths),
    )


def own_version() -> str:
    """Of loaderprobe, which may run from a folder of its sources."""
    return _version("loaderprobe") or "not installed"


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def trains_on_amd() -> bool:
    """True with AMD's driver, which processors with graphics of their own have as well, and a torch built for it."""
    torch = find_spec("torch") if ROCM.exists() else None
    return torch is not None and (Path(torch.origin or "").parent / "lib" / "libtorch_hip.so").exists()


def list_gpus() -> tuple[tuple[Gpu, ...], Remark | None]:
    """(the NVIDIA GPUs, the reason when the list is empty, else None)."""
    try:
        import pynvml
    except ImportError as error:
        return (), Remark(code="pynvml_missing", facts={"error": str(error)})
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), Remark(code="nvml_not_started", facts={"error": str(error)})
    try:
        return _listed(pynvml)
    except pynvml.NVMLError as error:
        return (), Remark(code="gpus_not_listed", facts={"error": str(error)})
    finally:
        pynvml.nvmlShutdown()


def _listed(pynvml: Any) -> tuple[tuple[Gpu, ...], Remark | None]:
    driver, count = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()
    gpus: list[Gpu] = []
    reason = Remark(code="no_gpu_listed")
    for number in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError as error:
            reason = Remark(code="gpus_not_listed", facts={"error": str(error)})
            continue
        memory_bytes = None
        with suppress(pynvml.NVMLError):  # not permitted in a MIG container, unknown where the CPU shares it
            memory_bytes = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        gpus.append(Gpu(name=name, uuid=uuid, memory_bytes=memory_bytes, driver=driver))
    return tuple(gpus), None if gpus else reason

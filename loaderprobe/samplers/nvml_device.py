"""One GPU, or one MIG instance of it, as NVML knows it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from loaderprobe.records.unavailable import Unavailable
from loaderprobe.samplers.nvml_errors import FUNCTION_NOT_FOUND, NOT_SUPPORTED, reason_for

ERROR_NOT_FOUND = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlDevice:
    """Handles of a GPU. A call without an answer raises `nvml.NVMLError` and no other error."""

    nvml: Any
    """The pynvml module or a fake of it."""
    handle: Any
    """The device that trains: a whole GPU or a MIG instance."""
    parent: Any
    """The whole GPU."""
    instance: int | None
    """Number of the GPU instance; None for a whole GPU."""

    def ask(self, *names: str) -> Any:
        """The result of the first of these functions that both pynvml and the driver have."""
        for name in names[:-1]:
            try:
                return call(self.nvml, name, self.handle)
            except self.nvml.NVMLError as error:
                if error.value != FUNCTION_NOT_FOUND:
                    raise
        return call(self.nvml, names[-1], self.handle)

    def explain(self, error: Any) -> Unavailable:
        """The reason of an error; names MIG where MIG is the reason."""
        if error.value != NOT_SUPPORTED:
            return reason_for(error.value)
        if self.instance is not None:
            return Unavailable(code="mig_instance")
        with suppress(self.nvml.NVMLError):  # a GPU without MIG answers with an error as well
            if call(self.nvml, "nvmlDeviceGetMigMode", self.handle)[0]:
                return Unavailable(code="mig_split")
        return reason_for(error.value)


def call(nvml: Any, name: str, *arguments: Any) -> Any:
    """`nvml.name(*arguments)`. A pynvml without that function raises the same error as a driver without it."""
    function = getattr(nvml, name, None)
    if function is None:
        raise nvml.NVMLError(FUNCTION_NOT_FOUND)
    return function(*arguments)


def open_device(nvml: Any, uuid: str) -> NvmlDevice:
    """The GPU or MIG instance with this UUID, because CUDA's numbering is not NVML's. NVML must be initialised.

    Raises nvml.NVMLError when NVML does not know it.
    """
    handle = _handle(nvml, uuid)
    try:
        # pynvml returns a C integer here, which is true even when it is 0.
        found = call(nvml, "nvmlDeviceIsMigDeviceHandle", handle)
        is_instance = bool(getattr(found, "value", found))
    except nvml.NVMLError as error:
        if error.value not in (FUNCTION_NOT_FOUND, NOT_SUPPORTED):
            raise
        is_instance = False
    if not is_instance:
        return NvmlDevice(nvml=nvml, handle=handle, parent=handle, instance=None)
    return NvmlDevice(
        nvml=nvml,
        handle=handle,
        parent=call(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle),
        instance=int(call(nvml, "nvmlDeviceGetGpuInstanceId", handle)),
    )


def _handle(nvml: Any, uuid: str) -> Any:
    """Both prefixes are tried, because torch does not mark the UUID of a MIG instance."""
    try:
        return call(nvml, "nvmlDeviceGetHandleByUUID", uuid)
    except nvml.NVMLError as error:
        if error.value != ERROR_NOT_FOUND or not uuid.startswith("GPU-"):
            raise
        return call(nvml, "nvmlDeviceGetHandleByUUID", uuid.replace("GPU-", "MIG-", 1))

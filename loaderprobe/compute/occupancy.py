"""How full a kernel keeps the multiprocessors, from its launch and the device's limits. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WARP = 32
# Limits of cuda_occupancy.h: registers go to a warp in units of 256, and come from one of the four parts of an SM.
REGISTER_UNIT = 256
SM_PARTS = 4
# From this compute capability on, CUDA keeps 1 KiB of shared memory a block for itself.
RESERVES_FROM = (8, 0)
RESERVED_BYTES = 1024
# Above this a kernel must request its shared memory, which the profiler's own calculation ignores: it gives 0.
PLAIN_SHARED_BYTES = 49152
# Blocks that a multiprocessor can hold, by compute capability (CUDA C++ Programming Guide, technical specifications).
BLOCKS_PER_SM: dict[tuple[int, ...], int] = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24}
MOST_BLOCKS_PER_SM = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimits:
    """The limits of one multiprocessor (SM) of a device."""

    sm_count: int
    threads_per_sm: int = 2048
    registers_per_sm: int = 65536
    shared_bytes_per_sm: int = 233472
    blocks_per_sm: int = MOST_BLOCKS_PER_SM
    reserved_bytes: int = RESERVED_BYTES
    """Of the shared memory of each block, kept by CUDA."""

    @classmethod
    def of(cls, properties: Any) -> DeviceLimits | None:
        """From torch's device properties of an NVIDIA GPU; None where this torch has too few of them."""
        names = ("multi_processor_count", "max_threads_per_multi_processor", "regs_per_multiprocessor",
                 "shared_memory_per_multiprocessor", "major", "minor")  # fmt: skip
        return cls._read([getattr(properties, name, None) for name in names])

    @classmethod
    def recorded(cls, properties: Mapping[str, Any]) -> DeviceLimits | None:
        """From one of the `deviceProperties` of a trace; None where too few are there, as of AMD's GPUs."""
        names = ("numSms", "maxThreadsPerMultiprocessor", "regsPerMultiprocessor", "sharedMemPerMultiprocessor",
                 "computeMajor", "computeMinor")  # fmt: skip
        return cls._read([properties.get(name) for name in names])

    @classmethod
    def _read(cls, values: Sequence[Any]) -> DeviceLimits | None:
        """Of SMs, and of each its threads, registers and bytes; then the two numbers of the compute capability."""
        if not all(isinstance(value, int) for value in values) or not all(values[:5]):
            return None
        count, threads, registers, shared, *version = values
        capability = tuple(version)
        return cls(
            sm_count=count,
            threads_per_sm=threads,
            registers_per_sm=registers,
            shared_bytes_per_sm=shared,
            blocks_per_sm=BLOCKS_PER_SM.get(capability, MOST_BLOCKS_PER_SM),
            reserved_bytes=RESERVED_BYTES if capability >= RESERVES_FROM else 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The shape of one launch of a kernel."""

    blocks: int
    threads: int
    """Of each block."""
    registers: int
    """Of each thread."""
    shared_bytes: int
    """Of each block, static and dynamic."""

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Launch | None:
        """From the profiler's fields of a kernel; None where one of them is missing."""
        try:
            return cls(
                blocks=math.prod(details["grid"]),
                threads=math.prod(details["block"]),
                registers=int(details["registers per thread"]),
                shared_bytes=int(details["shared memory"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


def resident_blocks(launch: Launch, limits: DeviceLimits) -> int:
    """Blocks of this kernel that one SM can hold: the minimum over warps, registers and shared memory.

    The occupancy calculation of CUDA's cuda_occupancy.h, without its rarer limits.
    """
    warps = math.ceil(launch.threads / WARP)
    fits = [limits.blocks_per_sm, limits.threads_per_sm // WARP // warps]
    if launch.registers:
        of_warp = math.ceil(launch.registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
        fits.append(SM_PARTS * (limits.registers_per_sm // SM_PARTS // of_warp) // warps)
    if launch.shared_bytes:
        fits.append(limits.shared_bytes_per_sm // (launch.shared_bytes + limits.reserved_bytes))
    return min(fits)


def blocks_per_sm(details: Mapping[str, Any], limits: DeviceLimits | None) -> float | None:
    """Blocks of the launch over the number of SMs: below 1 some SMs stay empty. None where it cannot be computed."""
    given = details.get("blocks per SM")
    if isinstance(given, int | float):
        return float(given)
    launch = Launch.of(details)
    return None if launch is None or limits is None else launch.blocks / limits.sm_count


def occupancy(details: Mapping[str, Any], limits: DeviceLimits | None) -> float | None:
    """Estimated share of an SM's warps that the kernel keeps active, 0 to 1; None where it cannot be computed.

    min(resident blocks, blocks per SM) x threads of a block / threads of an SM: the formula of torch's profiler,
    whose own figure is used only where the launch is not fully known. Its 0 above 48 KiB of shared memory counts
    as unknown: its calculation ignores that a kernel may request more.
    """
    launch = Launch.of(details)
    if launch is not None and limits is not None and launch.threads:
        active = min(resident_blocks(launch, limits), launch.blocks / limits.sm_count)
        # A kernel that runs has a block on some SM: 0 means that a limit here is wrong.
        return min(1.0, active * launch.threads / limits.threads_per_sm) if active > 0 else None
    given = details.get("est. achieved occupancy %")
    if not isinstance(given, int | float) or (given == 0 and _beyond_plain(details)):
        return None
    return min(1.0, given / 100)


def _beyond_plain(details: Mapping[str, Any]) -> bool:
    shared = details.get("shared memory")
    return not isinstance(shared, int | float) or shared > PLAIN_SHARED_BYTES

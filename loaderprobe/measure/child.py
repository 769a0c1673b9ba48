"""The child process: `python -m loaderprobe.measure.child ORDER RESULT` measures one configuration.

Standard output carries events, one JSON object a line; what libraries print goes to standard error.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.options import make_compute
from loaderprobe.measure.order import Event, Order
from loaderprobe.measure.parts import Parts
from loaderprobe.measure.session import Session
from loaderprobe.measure.trouble import explain_error
from loaderprobe.plugins import BUILT_IN, resolve
from loaderprobe.records.measurement import Measurement
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.system.cpu import cores_available
from loaderprobe.system.device import locate, read_sectors
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import die_with_parent, threads_of


def measure(order: Order, scratch: Path, on_stage: Callable[[str, int, int], None]) -> Measurement:
    """Build the parts of the order and run them."""
    clock = SystemClock()
    config = order.config
    location = locate(Path(order.files.root))
    on_stage("alternative decoders", 0, 0)
    # Where the GPU decodes, alternatives on the CPU are irrelevant.
    known = config.loader.name in BUILT_IN["alternatives"] and not config.loader.gpu_decode
    alternatives = resolve("alternatives", config.loader.name)(config, order.files) if known else ()
    on_stage("starting the loader", 0, 0)
    with ExitStack() as stack:
        # Workers start before the device does: a process that has used CUDA cannot fork.
        loader = stack.enter_context(resolve("loader", config.loader.name)(config, order.files, scratch))
        on_stage("starting the device", 0, 0)
        compute = make_compute(config, clock)
        look = resolve("sampling", "loaderprobe.samplers.waits:WaitsSampler")
        looking = stack.enter_context(look(lambda: threads_of(loader.workers()), scratch))
        sampling = stack.enter_context(
            resolve("sampling", "standard")(
                clock, location.devices, loader.workers, compute.uuid() if hasattr(compute, "uuid") else None
            )
        )
        session = Session(
            config=config,
            files=order.files,
            parts=Parts(
                loader=loader,
                compute=compute,
                clock=clock,
                cache=LinuxPageCache(),
                location=location,
                cores_available=cores_available(),
                read_devices=lambda: read_sectors(location.devices),
                next_round=resolve("rounds", "standard"),
                waits=looking.samples,
            ),
            on_stage=on_stage,
            budget_s=None if order.budget_s is None else order.budget_s - (clock.now_ns() - order.begin_ns) / 1e9,
            thorough=order.thorough,
            alternatives=alternatives,
        )
        session.run()
        session.profile()
        return session.measurement(*sampling.collected())


def main(order_path: Path, result_path: Path, parent: int | None = None) -> int:
    """Measure, write the result, and return the exit code; an error becomes the last event."""
    order = decode("order", order_path.read_bytes(), Order, str(order_path))
    die_with_parent(parent or order.parent)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    stage = "start"

    def on_stage(name: str, done: int, total: int) -> None:
        nonlocal stage
        stage = name
        events.write(msgspec.json.encode(Event(stage=name, done=done, total=total)).decode() + "\n")

    try:
        result = measure(order, result_path.parent, on_stage)
        write_atomically(result_path, encode("measurement", result))
    except Exception as error:  # noqa: BLE001  # the border of the process: everything becomes a record
        reason, hint = explain_error(error)
        traceback.print_exc()
        events.write(msgspec.json.encode(Event(stage=stage, failure=reason, hint=hint)).decode() + "\n")
        return error.exit_code if isinstance(error, LoaderprobeError) else LoaderprobeError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

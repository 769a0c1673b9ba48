"""The process that measures: a forkserver that imports what its children need, and forks one for each configuration.

`python -m loaderprobe.measure.child LINK PARENT` is the forkserver; in its child, `measure` joins and runs the parts.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path

import msgspec

from loaderprobe.errors import LoaderprobeError
from loaderprobe.measure.assembly import alternatives, make_compute, make_loader
from loaderprobe.measure.ranks.child import RankChild, read_rank
from loaderprobe.measure.runner import MOST_BYTES, Event, Order, kill_group
from loaderprobe.measure.segment_runner import Parts
from loaderprobe.measure.session import Session
from loaderprobe.measure.study import in_epochs, study_epochs, study_prefilled
from loaderprobe.measure.user.function import measure_own
from loaderprobe.plugins import resolve
from loaderprobe.protocols import OnGpu, OnStage, OwnThreads
from loaderprobe.records.config import ComputeSpec
from loaderprobe.records.files import FileSet, to_json
from loaderprobe.records.measurement import Access, Alternative, Measurement
from loaderprobe.records.rank_processes import RankPlacement
from loaderprobe.records.studies import EpochsMeasured, Prefilled
from loaderprobe.samplers.nvml import NvmlSampler
from loaderprobe.samplers.recorded import DiskSampler, SamplerThread
from loaderprobe.samplers.waits import WaitsSampler
from loaderprobe.store.codec import decode, encode
from loaderprobe.system.device import locate_root
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.host import SystemClock
from loaderprobe.system.launcher import VISIBLE, own_gpu
from loaderprobe.system.limits import memory_left_bytes
from loaderprobe.system.others import OthersMeter
from loaderprobe.system.pagecache import LinuxPageCache
from loaderprobe.system.process import SHARED_MEMORY_HINT, die_with_parent, how_worker_ended, threads_of
from loaderprobe.system.scratch import written_in


def measure(order: Order, scratch: Path, on_stage: OnStage) -> Measurement:
    """Build the parts of the order and run them: alone, or as one of several ranks."""
    clock, config, placement = SystemClock(), order.config, order.placement
    if placement is not None and config.compute.kind == "cuda":
        _see_own_gpu(config.compute, placement)
    files = order.files if placement is None else order.files.shard(placement.rank, placement.size)
    files = files.dealt(config.loader.workers, config.compute.batch_size)
    location = locate_root(files.root)
    others = _alternatives(order, files, on_stage)
    on_stage("starting the loader", 0, 0)
    with ExitStack() as stack:
        # Workers start before the device does: a process that has used CUDA cannot fork.
        loader = stack.enter_context(make_loader(config, files, scratch))
        rank = None if placement is None else RankChild(order, placement, on_stage)
        stack.enter_context(rank.as_lost_rank() if rank else nullcontext())
        on_stage("starting the device", 0, 0)
        compute = make_compute(config, clock, rank.peers if rank else None)
        looking = stack.enter_context(WaitsSampler(lambda: threads_of(loader.workers()), scratch))
        if isinstance(loader, OwnThreads):
            loader.new_processes = looking.follow_threads
        gpu = compute.uuid() if isinstance(compute, OnGpu) else None
        # What belongs to a whole node is read by its first rank.
        devices, gpu = (location.devices, gpu) if placement is None or placement.local_rank == 0 else ((), None)
        samplers = stack.enter_context(SamplerThread([DiskSampler(clock, devices), NvmlSampler(clock, gpu)]))
        parts = Parts(
            loader=loader, compute=compute, clock=clock, cache=LinuxPageCache(), location=location,
            waits=looking.samples,
            # By the other children of the forkserver nothing else is done: they count as own.
            disturbance=OthersMeter((os.getppid(),)),
        )  # fmt: skip
        access: Access = "none" if files.remote else "parts" if files.parts else "files"
        session = Session(
            config=config,
            files=None if files.remote else files.parts or files,
            pool=files.count // config.compute.batch_size if files.parts else 0,
            parts=rank.joined(parts) if rank else parts,
            on_stage=on_stage,
            budget_s=None if order.budget_s is None else order.budget_s - (clock.now_ns() - order.begin_ns) / 1e9,
            thorough=order.thorough,
            access=access,
            sample_bytes=None if access == "files" else files.mean_size_bytes,
            alternatives=others,
            earlier=order.earlier,
        )
        session.run()
        if order.earlier is None or order.earlier.timeline is None:
            session.profile()
        measured = session.measurement(*samplers.collected())
        return rank.together(measured) if rank else measured


def _see_own_gpu(compute: ComputeSpec, placement: RankPlacement) -> None:
    """Before anything touches CUDA: the loader's pinning thread starts before the device, and would open GPU 0."""
    number = int(compute.argument) if compute.argument.isdecimal() else 0
    visible = own_gpu(os.environ, number + placement.local_rank, len(list_gpus()[0]))
    if visible is not None:
        os.environ[VISIBLE] = visible


def _alternatives(order: Order, files: FileSet, on_stage: OnStage) -> tuple[Alternative, ...]:
    """Other decoders, measured once, by rank 0; all ranks report the same stages, which shows who is behind."""
    if order.earlier is not None:
        return order.earlier.alternatives
    on_stage("alternative decoders", 0, 0)
    return alternatives(order.config, files) if order.placement is None or order.placement.rank == 0 else ()


def study(order: Order, scratch: Path, on_stage: OnStage) -> Prefilled | EpochsMeasured:
    """Measure what the order asks for beside the verdict."""
    config, cache, clock = order.config, LinuxPageCache(), SystemClock()
    if order.study == "epochs":
        on_stage("making the files cold", 0, order.epochs)
        cache.evict(order.files.absolute(0, order.files.count))
        served = in_epochs(order.files, config, order.epochs)
    else:
        served = order.files.dealt(config.loader.workers, config.compute.batch_size)
    # Workers start before the device does: a process that has used CUDA cannot fork.
    with make_loader(config, served, scratch) as loader:
        compute, location = make_compute(config, clock), locate_root(order.files.root)
        parts = Parts(loader=loader, compute=compute, clock=clock, cache=cache, location=location)
        if order.study == "prefilled":
            return study_prefilled(config, served, parts, on_stage)
        return study_epochs(
            config, order.files, served, parts, epochs=order.epochs, memory=memory_left_bytes, on_stage=on_stage
        )


# The child itself: what its order asks for becomes its result, or an event says why there is none.
#
# Standard output carries events, one JSON object a line; what libraries print goes to standard error.

_KILLED_WORKER = re.compile(r"DataLoader worker \(pid (\d+)\) is killed by signal: ([^.]+)\.")
"""What torch raises in the middle of anything, as soon as it hears of a worker's end."""


def explain_error(error: BaseException) -> tuple[str, str]:
    """(reason, hint) for an exception that ended a measurement.

    An exception in a worker arrives with the worker's traceback as its text: its last line says what happened.
    """
    text = str(error)
    if re.search(r"No space left on device(?!: ['\"])", text) or "unable to allocate shared memory" in text:
        return "a loader worker ran out of shared memory", SHARED_MEMORY_HINT
    killed = _KILLED_WORKER.search(text)
    number = next((kind for kind in signal.Signals if killed and signal.strsignal(kind) == killed[2]), None)
    if killed and number:
        return how_worker_ended(int(killed[1]), -number)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    if text.startswith("Caught "):
        return f"the data set raised in a worker: {last}", "the worker's traceback is in the failure record"
    hint = error.hint if isinstance(error, LoaderprobeError) else ""
    reason = last if isinstance(error, LoaderprobeError) else f"{type(error).__name__}: {last}"
    return reason, hint


def live(order_path: Path, result_path: Path, parent: int) -> int:
    """Measure, write the result, and return the exit code; an error becomes the last event."""
    order = decode("order", order_path.read_bytes(), Order, str(order_path))
    die_with_parent(parent)
    keep_together(result_path.parent)
    events = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # It is asked where it is when it hangs.
    faulthandler.register(signal.SIGUSR1, file=2)
    stage = "start"

    def on_stage(name: str, done: int, total: int) -> None:
        nonlocal stage
        stage = name
        events.write(to_json(Event(stage=name, done=done, total=total)).decode() + "\n")

    try:
        if order.own or order.read:
            result: object = (measure_own if order.own else read_rank)(order, on_stage)
        else:
            result = (study if order.study else measure)(order, result_path.parent, on_stage)
        with written_in(result_path.parent):
            result_path.write_bytes(encode(order.result, result))
    except Exception as error:  # noqa: BLE001  # the border of the process: everything becomes a record
        reason, hint = explain_error(error)
        events.write(to_json(Event(stage=stage, failure=reason, hint=hint)).decode() + "\n")
        with suppress(OSError):  # a full disk takes no log, but the reason is said
            traceback.print_exc()
        return error.exit_code if isinstance(error, LoaderprobeError) else LoaderprobeError.exit_code
    return 0


LONGEST_SOCKET, SOCKET_NAME = 107, len("/pymp-01234567/listener-01234567")
"""Bytes that the kernel allows, and what multiprocessing adds to the temporary directory."""


def keep_together(scratch: Path) -> None:
    """Make temporary files in the directory of the order, which the parent removes also where this process is killed.

    Where that has too long a name for sockets, they stay where they usually are.
    """
    if len(os.fsencode(scratch)) + SOCKET_NAME <= LONGEST_SOCKET:
        tempfile.tempdir = str(scratch)


def serve(link_fd: int, parent: int) -> None:
    """Fork a child for every message (its order, its result), send its process id, wait, and send its exit status.

    Where none can be forked, minus the errno is sent in place of its id. Nothing here may use CUDA: no process can fork
    after that.

    Returns when the sweep has ended, whose process is `parent`; `link_fd` is the socket to it. Where the sweep is
    killed, no other process is left to end its child and the workers, and to remove what they leave in shared memory.
    """
    child, server = 0, os.getpid()

    def end(*_: object) -> None:
        if os.getpid() != server:  # a child that has just been forked: it dies as any other does
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        if child:
            with suppress(OSError):  # it has ended, or leads its group already
                os.setpgid(child, child)
            kill_group(child, waited)
        os._exit(1)

    def waited() -> None:
        with suppress(ChildProcessError):  # it had ended by itself
            os.waitpid(child, 0)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(parent, signal.SIGTERM)
    link = socket.socket(fileno=link_fd)
    while True:
        message, fds = next_order(link)
        if not message:
            return
        order, result = map(Path, msgspec.json.decode(message, type=tuple[str, str]))
        try:
            child = os.fork()
        except OSError as error:
            _close(fds)
            link.sendall(struct.pack("q", -(error.errno or 1)))
            continue
        if child == 0:
            _begin_life(order, result, fds, link)
        # The child leads its process group before its id is sent, so that the group can be ended as a whole.
        os.setpgid(child, child)
        _close(fds)
        with suppress(ConnectionError):  # the sweep has ended; the next receive says so
            link.sendall(struct.pack("q", child))
            _, status = os.waitpid(child, 0)
            child = 0
            link.sendall(struct.pack("q", os.waitstatus_to_exitcode(status)))


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def next_order(link: socket.socket) -> tuple[bytes, list[int]]:
    """The next message and its descriptors; empty when the sweep has ended, with or without having read all answers."""
    try:
        message, fds, _, _ = socket.recv_fds(link, MOST_BYTES, 2)
    except ConnectionResetError:
        return b"", []
    return message, fds


def _begin_life(order: Path, result: Path, fds: list[int], link: socket.socket) -> None:
    """Run the child: its own process group, events to its output, everything else to the log."""
    server = os.getppid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    link.close()
    os.setpgid(0, 0)
    events, log = fds[0], fds[1]
    os.dup2(events, 1)
    os.dup2(log, 2)
    code = 1
    try:
        code = live(order, result, server)
    except BaseException:  # noqa: BLE001  # the border of the process: the log gets the last word
        traceback.print_exc()
    finally:
        with suppress(OSError):  # of a full disk; it must not come back into the forkserver's loop
            sys.stderr.flush()
        os._exit(code)


def main(link_fd: int, parent: int) -> None:
    """Import what children need, then serve until the sweep ends."""
    # An interrupt is for the sweep, which ends all others; nor does one of these processes lose a measurement by it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(Exception):  # whatever it is, the child that needs it meets it too, and says so
        resolve("loader", "torch")
        resolve("compute", "cpu")
    serve(link_fd, parent)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

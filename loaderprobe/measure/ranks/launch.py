"""A sweep of several ranks: the processes that a launcher started for it, or those that loaderprobe has it start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from loaderprobe.errors import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_SOME_FAILED,
    BadValue,
    LoaderprobeError,
    MissingPart,
)
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.crew import Lead, Seat, check_crowd, check_room
from loaderprobe.measure.runner import ForkServer
from loaderprobe.records.config import RunConfig
from loaderprobe.records.ranks import Launched, Node, SeatSeen
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.launcher import address_towards, interface_of, launched
from loaderprobe.system.limits import allow_open_files, connections_of, cores_available
from loaderprobe.system.process import child_environment, die_with_parent

PREFIX = "loaderprobe"
END_S = 45.0
"""For the launcher to end its processes, which save what they have; it gives them 30 s."""
HEAR_S = 0.5


def comes(here: Launched) -> Seat:
    """This process among the others, once all are there. Raises LostRank, BadValue, and MissingPart for too many."""
    from loaderprobe.loaders.ranks import clients

    if here.agent_store:
        # torchrun's agent may be killed, and with it goes the store.
        die_with_parent(os.getppid())
    _allow_connections(here)
    host = socket.gethostname()
    seen = SeatSeen(
        rank=here.rank,
        host=host,
        node=here.node or host,
        gpus=tuple(gpu.uuid or gpu.name for gpu in list_gpus()[0]),
        version=version("loaderprobe"),
        address=address_towards(here.address, here.port),
    )
    prefix = f"{PREFIX}/{here.attempt}"
    store, watching = clients(here, prefix)
    seat = Seat(here, seen, store, watching, SystemClock(), prefix)
    seat.come()
    own = next(node for node in seat.nodes if here.rank in node.seats)
    # As many threads a rank for every configuration, whatever its ranks: torchrun sets one, other launchers none.
    os.environ.setdefault("OMP_NUM_THREADS", str(_threads(len(own.seats))))
    if interface := _interface(own, seat.nodes, here.port):
        # Else gloo takes the address of the host's own name, which on many hosts is 127.0.1.1.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    return seat


def _allow_connections(here: Launched) -> None:
    """For this process and those that it starts; that which holds the store has connections to all.

    Raises MissingPart, on rank 0, where it may not have as many: it would fail amid the first configuration.
    """
    needed = connections_of(here.size)
    allowed = allow_open_files(needed)
    if here.rank:
        return
    if here.agent_store:
        allowed = allow_open_files(needed, os.getppid())
    if allowed is not None and allowed < needed:
        holder = "torchrun on the node of rank 0" if here.agent_store else "rank 0"
        raise MissingPart(
            f"{here.size} processes all connect to {holder}, which needs {needed} open files for that, and its hard "
            f"limit is {allowed}",
            hint=f"raise it before they are started, as root: ulimit -Hn {needed}, or nofile in "
            "/etc/security/limits.conf; or start fewer",
        )


def _interface(own: Node, nodes: Sequence[Node], port: int) -> str:
    """That joins a node to the others; empty where there are none, or where it is not known."""
    other = next((node.address for node in nodes if node is not own and node.address), "")
    # The node that holds the store reaches it by itself; the others say where they are.
    return interface_of(address_towards(other, port) if other else own.address)


def leads(here: Launched, measure: Callable[[Lead], int]) -> int:
    """Rank 0's part: the others take part in what it measures, and end with the same exit code."""
    lead = Lead(comes(here))
    code = LoaderprobeError.exit_code
    try:
        code = measure(lead)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
        raise
    except LoaderprobeError as error:
        code = error.exit_code
        raise
    finally:
        ends_by_itself()
        lead.end(code)
    return code


def follows(here: Launched, forkserver: Callable[[], ForkServer]) -> int:
    """The part of any other rank; returns the exit code. Raises LostRank when rank 0 has gone."""
    seat = comes(here)
    with forkserver() as server:
        code = seat.follow(server.start)
    ends_by_itself()
    return code


def ends_by_itself() -> None:
    """A launcher ends all processes once one has failed; this one is done, and has an exit code of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def recorded(body: Callable[[], int]) -> Callable[[], int | None]:
    """The same; what it raises, torchelastic's launcher finds."""
    from loaderprobe.loaders.ranks import recorded as by_torch

    return by_torch(body)


def most_ranks(configs: Sequence[RunConfig]) -> int:
    """Of any configuration."""
    return max((config.ranks for config in configs), default=1)


def this_node(ranks: int) -> tuple[Node, ...]:
    """This machine, with as many processes as are going to be started."""
    return (Node(host=socket.gethostname(), seats=tuple(range(ranks)), gpus=len(list_gpus()[0])),)


def start_ranks(run: RunDirectory, options: Sequence[str] = (), log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start torchrun on this host: as many processes as the run has ranks, which complete it.

    What they print goes to `log`, or where this process prints. Raises BadValue for a run that needs several nodes.
    """
    configs = run.record.spec.configs
    ranks = most_ranks(configs)
    if spread := next((each for each in configs if each.nodes > 1), None):
        raise BadValue(
            f"{run.path} has {spread.title()}, and loaderprobe starts processes on this node only",
            hint="start it on all nodes, as training is: loaderprobe explain ranks",
        )
    check_room(configs, this_node(ranks))
    return start_here(ranks, ["sweep", "--resume", str(run.path.absolute()), *options], log)


def start_here(ranks: int, arguments: Sequence[str], log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start torchrun on this host: so many processes of loaderprobe with these arguments.

    What they print goes to `log`, or where this process prints. Raises BadValue for far more than there are cores.
    """
    check_crowd(ranks, cores_available())
    command = [sys.executable, "-P", "-m", "loaderprobe.compute.seats", str(os.getpid()), str(ranks)]
    output = log.open("wb") if log else None
    try:
        return subprocess.Popen(
            [*command, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment(ranks),
            start_new_session=True,
        )  # fmt: skip
    finally:
        if output:
            output.close()


def _environment(ranks: int) -> dict[str, str]:
    """Ours, with as many threads for each rank, whatever its configuration, and the loopback device to meet by."""
    # PET_*: torchrun's own options, which an operator of Kubernetes sets for all processes of a pod.
    ours = {name: value for name, value in child_environment().items() if not name.startswith("PET_")}
    return {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": str(_threads(ranks)),
        **ours,
    }


def _threads(ranks: int) -> int:
    return max(1, int(cores_available()) // ranks)


def wait_for(launcher: subprocess.Popen[bytes], hear: Callable[[], None] = lambda: None) -> int:
    """The exit code of the processes. KeyboardInterrupt ends them, after they have saved what they have."""
    try:
        while True:
            try:
                return launcher.wait(HEAR_S)
            except subprocess.TimeoutExpired:
                hear()
    except KeyboardInterrupt:
        launcher.terminate()
        with suppress(subprocess.TimeoutExpired):
            launcher.wait(END_S)
        return EXIT_INTERRUPTED
    finally:
        launcher.kill()
        launcher.wait()


def complete(run: RunDirectory, hear: Callable[[], None]) -> None:
    """Complete a run in processes of its own, and print nothing. Raises KeyboardInterrupt, and what went wrong."""
    if launched(os.environ):
        raise BadValue(
            "this program is one of several that a launcher started, and each would start all ranks",
            hint="start the command instead of the program: torchrun ... -m loaderprobe sweep --ranks 1,2",
        )
    with tempfile.TemporaryDirectory(prefix="loaderprobe-") as scratch:
        log = Path(scratch) / "log.txt"
        code = wait_for(start_ranks(run, ("--quiet",), log), hear)
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if code not in (EXIT_DONE, EXIT_SOME_FAILED):
            lines = log.read_text(errors="replace").strip().splitlines()
            raise LoaderprobeError(
                f"the processes of the ranks ended with code {code}", hint="; ".join(lines[-2:]) or "see the log"
            )

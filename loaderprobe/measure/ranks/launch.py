"""Several ranks: in the processes that a launcher started, or in threads of this one on this machine."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version

from loaderprobe.errors import EXIT_DONE, EXIT_INTERRUPTED, BadValue, LoaderprobeError, LostRank, MissingPart
from loaderprobe.measure.clock import SystemClock
from loaderprobe.measure.ranks.crew import Lead, Seat, check_crowd
from loaderprobe.measure.runner import ForkServer, Start
from loaderprobe.records.config import RunConfig
from loaderprobe.records.ranks import Launched, Node, SeatSeen
from loaderprobe.system.environment import list_gpus
from loaderprobe.system.launcher import address_towards, interface_of, launched
from loaderprobe.system.limits import allow_open_files, connections_of, cores_available
from loaderprobe.system.process import die_with_parent

PREFIX = "loaderprobe"
LOOPBACK = "127.0.0.1"
MakeForkServer = Callable[[Mapping[str, str]], ForkServer]
"""Of variables of its environment, which this process does not set otherwise."""


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
        gpus=_gpus(),
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


def _gpus() -> tuple[str, ...]:
    return tuple(gpu.uuid or gpu.name for gpu in list_gpus()[0])


def _threads(ranks: int) -> int:
    return max(1, int(cores_available()) // ranks)


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


def leads(here: Launched, measure: Callable[[Lead], int], forkserver: MakeForkServer) -> int:
    """Rank 0's part: the others take part in what it measures, and end with the same exit code."""
    seat = comes(here)
    with forkserver({}) as server:
        lead = Lead(seat, server.start)
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


def follows(here: Launched, forkserver: MakeForkServer) -> int:
    """The part of any other rank; returns the exit code. Raises LostRank when rank 0 has gone."""
    seat = comes(here)
    with forkserver({}) as server:
        code = seat.follow(server.start)
    ends_by_itself()
    return code


def ends_by_itself() -> None:
    """A launcher ends all processes once one has failed; this one is done, and has an exit code of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def most_ranks(configs: Sequence[RunConfig]) -> int:
    """Of any configuration."""
    return max((config.ranks for config in configs), default=1)


def this_node(ranks: int) -> tuple[Node, ...]:
    """This machine, with as many processes as are going to be started."""
    return (Node(host=socket.gethostname(), seats=tuple(range(ranks)), gpus=len(list_gpus()[0])),)


@contextmanager
def on_this_machine(ranks: int, forkserver: MakeForkServer) -> Iterator[Lead]:
    """So many ranks, without a launcher: what its processes do, threads of this one do, each with a child at a time.

    Raises BadValue for far more than there are cores, and in one of several programs that a launcher started.
    """
    from loaderprobe.loaders.ranks import TorchStore, clients

    if launched(os.environ):
        raise BadValue(
            "this program is one of several that a launcher started, and each would start all ranks",
            hint="start the command instead of the program: torchrun ... -m loaderprobe sweep --ranks 1,2",
        )
    check_crowd(ranks, cores_available())
    host, gpus = socket.gethostname(), _gpus()
    first = Launched(rank=0, size=ranks, node=host, address=LOOPBACK, port=0, agent_store=False)
    _allow_connections(first)
    # As many threads for each rank, whatever its configuration, and the loopback device to meet by.
    variables = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(_threads(ranks))}
    with ExitStack() as stack:
        # They import what children need meanwhile.
        starts = [stack.enter_context(forkserver(variables)).start for _ in range(ranks)]
        holder = TorchStore(LOOPBACK, 0, PREFIX, holds=True)
        seats = []
        for rank in range(ranks):
            here = replace(first, rank=rank, port=holder.port, agent_store=True)
            seen = SeatSeen(rank=rank, host=host, node=host, gpus=gpus, version=version("loaderprobe"))
            seats.append(Seat(here, seen, *clients(here, PREFIX), SystemClock(), PREFIX))
        followers = [
            threading.Thread(target=_follow, args=(seat, start), daemon=True)
            for seat, start in zip(seats[1:], starts[1:], strict=True)
        ]
        for each in followers:
            each.start()
        seats[0].come()
        lead = Lead(seats[0], starts[0])
        try:
            yield lead
        finally:
            lead.end(EXIT_DONE)
            for each in followers:
                each.join()


def _follow(seat: Seat, start: Start) -> None:
    with suppress(LostRank):  # rank 0 has lost the store, too, and says so
        seat.come()
        seat.follow(start)

"""Which of the processes that were started take part in a configuration, and in which place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.config import ComputeSpec, RunConfig
from loaderprobe.records.place import Place
from loaderprobe.records.seats import Launched, Layout, Node, SeatSeen

MOST_A_CORE = 8
"""Ranks that loaderprobe starts itself: so many of an emulated accelerator still share one core, if they must."""
FORMS = "--ranks takes numbers with commas; 4x8 is 8 ranks on each of 4 nodes: --ranks 1,8,4x8"


def parse_layout(text: str) -> Layout:
    """Of `8`, or `4x2`. Raises BadValue."""
    match = re.fullmatch(r"(?:(\d{1,5})x)?(\d{1,6})", text.strip())
    nodes, ranks = (int(part) if part else 1 for part in match.groups()) if match else (0, 0)
    if not match or nodes < 1 or ranks < 1:
        raise BadValue(f"'{text}' is no number of ranks", hint=FORMS)
    return Layout(ranks=nodes * ranks, nodes=nodes if match[1] else None)


def nodes_of(seats: Sequence[SeatSeen]) -> tuple[Node, ...]:
    """The nodes, that of rank 0 first; on each its processes in their order."""
    names = dict.fromkeys(each.node for each in sorted(seats, key=lambda seat: seat.rank))
    there = [[each for each in seats if each.node == name] for name in names]
    return tuple(
        Node(
            host=group[0].host,
            seats=tuple(sorted(each.rank for each in group)),
            gpus=len({gpu for each in group for gpu in each.gpus}),
            address=next((each.address for each in group if each.address), ""),
        )
        for group in there
    )


def spread(layout: Layout, nodes: Sequence[Node] | None) -> tuple[int, int]:
    """(ranks, nodes) of a layout on these nodes; without a launcher (None), all on this one.

    Raises BadValue for more than there are, or for ranks that cannot be spread evenly.
    """
    if nodes is None:
        if (layout.nodes or 1) > 1:
            raise BadValue(
                f"{layout.nodes} nodes are asked for, and loaderprobe starts processes on this one only",
                hint="start it on all nodes, as training is: loaderprobe explain ranks",
            )
        return layout.ranks, 1
    over = layout.nodes or fewest_nodes(layout.ranks, nodes)
    check_seats(layout.ranks, over, nodes)
    return layout.ranks, over


def fewest_nodes(ranks: int, nodes: Sequence[Node]) -> int:
    """That have as many processes, and over which the ranks spread evenly; all, where none does."""
    for count in range(1, len(nodes) + 1):
        if ranks % count == 0 and ranks // count <= min(len(node.seats) for node in nodes[:count]):
            return count
    return len(nodes)


def check_seats(ranks: int, over: int, nodes: Sequence[Node]) -> None:
    """Raises BadValue where the launcher started too few processes for so many ranks over so many nodes."""
    there = sum(len(node.seats) for node in nodes)
    if ranks > there:
        raise BadValue(
            f"{ranks} ranks are asked for, and the launcher started {there} processes",
            hint="start more, or ask for fewer",
        )
    if over > len(nodes):
        raise BadValue(
            f"{over} nodes are asked for, and the launcher started processes on {len(nodes)}",
            hint="start it on more, or ask for fewer",
        )
    if ranks % over:
        raise BadValue(f"{ranks} ranks cannot be spread evenly over {over} nodes", hint=FORMS)
    for node in nodes[:over]:
        if len(node.seats) < ranks // over:
            raise BadValue(
                f"{ranks // over} ranks on each node are asked for, and {node.host} has {len(node.seats)} processes",
                hint="start as many on each node",
            )


def check_crowd(ranks: int, cores: float) -> None:
    """Raises BadValue for far more ranks than this machine has cores: what they wait for would be a core."""
    most = max(MOST_A_CORE, int(MOST_A_CORE * cores))
    if ranks > most:
        raise BadValue(
            f"{ranks} ranks on this machine would share {cores:g} core{'' if cores == 1 else 's'}, and show what that "
            "costs, not what training on as many machines does",
            hint=f"ask for {most} at most here, or start on several nodes; a forecast for {ranks} is: loaderprobe plan "
            f"RUN --simulate-ranks {ranks}",
        )


def check_room(configs: Iterable[RunConfig], nodes: Sequence[Node]) -> None:
    """Raises BadValue where a configuration needs more processes than there are, MissingPart for more GPUs."""
    for config in configs:
        check_seats(config.ranks, config.nodes, nodes)
        check_gpus(config.compute, config.ranks, config.nodes, nodes)


def check_gpus(compute: ComputeSpec, ranks: int, over: int, nodes: Sequence[Node]) -> None:
    """Raises MissingPart for more ranks on a node than it has GPUs, where they are needed and can be listed."""
    wanted = ranks // over
    for node in nodes[:over] if compute.kind == "cuda" and ranks > 1 else ():
        if 0 < node.gpus < wanted:
            raise MissingPart(
                f"{wanted} ranks on cuda need a GPU each, and {node.host} has {node.gpus}",
                hint="ask for fewer ranks, or use --compute emulated:NAME",
            )


def place_of(here: Launched, ranks: int, over: int, nodes: Sequence[Node], prefix: str) -> Place | None:
    """The place of this process in a configuration; None where it has none."""
    local = ranks // over
    for number, node in enumerate(nodes[:over]):
        if here.rank in node.seats[:local]:
            at = node.seats.index(here.rank)
            return Place(
                rank=number * local + at,
                size=ranks,
                node=number,
                local_rank=at,
                local_size=local,
                address=here.address,
                port=here.port,
                prefix=prefix,
            )
    return None


def taking_part(ranks: int, over: int, nodes: Sequence[Node]) -> list[tuple[int, str]]:
    """(rank of the process, host) of each rank of a configuration, in their order."""
    return [(seat, node.host) for node in nodes[:over] for seat in node.seats[: ranks // over]]

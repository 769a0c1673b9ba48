"""Which of the processes that a launcher started this one is, from the variables that launchers set."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psutil

from loaderprobe.errors import BadValue
from loaderprobe.records.rank_processes import Launched

Join = Literal["slurm", "mpi"]
Variables = Mapping[str, str]
VISIBLE = "CUDA_VISIBLE_DEVICES"
TORCH = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Set by torchrun, and never by accident."""
USUAL_PORT = 29500
FIRST_PORT = 15000
PORTS = 15000
"""From the first one on: below those that the kernel gives to clients."""
MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
"""Rank, size and processes on this node, of Open MPI; of MPICH and Intel MPI."""


def launched(variables: Variables, join: Join | None = None) -> Launched | None:
    """This process among those that were started; None where it is alone. Those of torch count without being asked for.

    Raises BadValue where `join` names a launcher that did not start this process, or a variable is no number.
    """
    process = None
    if all(variables.get(name) for name in TORCH):
        process = _by_torch(variables)
    elif join == "slurm":
        process = _by_slurm(variables)
    elif join == "mpi":
        process = _by_mpi(variables)
    if process is not None and not 0 <= process.rank < process.size:
        raise BadValue(f"this process has rank {process.rank} of {process.size}", hint="check the launcher's variables")
    return None if process is None or process.size == 1 else process


def _by_torch(variables: Variables) -> Launched:
    return Launched(
        rank=_number(variables, "RANK"),
        size=_number(variables, "WORLD_SIZE"),
        node=variables.get("GROUP_RANK", ""),
        address=variables["MASTER_ADDR"],
        port=_number(variables, "MASTER_PORT"),
        agent_store=variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=variables.get("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def _by_slurm(variables: Variables) -> Launched:
    """Of a step: a batch script has SLURM_NTASKS as well, and is one process."""
    if "SLURM_STEP_NUM_TASKS" not in variables or "SLURM_PROCID" not in variables:
        raise BadValue(
            "--join slurm: srun did not start this process",
            hint="start it with srun, in the batch script too: srun loaderprobe sweep --join slurm ...",
        )
    job = int(re.sub(r"\D", "", variables.get("SLURM_JOB_ID", "")) or 0)
    step = int(re.sub(r"\D", "", variables.get("SLURM_STEP_ID", "")) or 0)
    hosts = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_JOB_NODELIST", "")
    return Launched(
        rank=_number(variables, "SLURM_PROCID"),
        size=_number(variables, "SLURM_STEP_NUM_TASKS"),
        node=variables.get("SLURM_NODEID", ""),
        address=variables.get("MASTER_ADDR") or first_host(hosts) or "localhost",
        port=_number(variables, "MASTER_PORT", FIRST_PORT + (job * 8 + step) % PORTS),
        agent_store=False,
        attempt=variables.get("SLURM_RESTART_COUNT", "0"),
    )


def _by_mpi(variables: Variables) -> Launched:
    names = next((names for names in MPI if names[0] in variables), None)
    if names is None:
        raise BadValue(
            "--join mpi: mpirun did not start this process",
            hint="start it with mpirun: mpirun -n 4 loaderprobe sweep --join mpi ...",
        )
    rank, size = (_number(variables, name) for name in names[:2])
    address = variables.get("MASTER_ADDR", "")
    if not address and _number(variables, names[2], 0) != size:
        raise BadValue(
            "--join mpi: mpirun does not say on which host rank 0 is",
            hint="mpirun -x MASTER_ADDR=HOST (Open MPI), or -genv MASTER_ADDR HOST (MPICH, Intel MPI)",
        )
    port = _number(variables, "MASTER_PORT", USUAL_PORT)
    return Launched(rank=rank, size=size, node="", address=address or "localhost", port=port, agent_store=False)


def first_host(hosts: str) -> str:
    """The first of Slurm's list: `node007` of `node[007-9,12],other`; empty for an empty one."""
    match = re.match(r"([^,\[]*)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", hosts)
    return "".join(part or "" for part in match.groups()) if match else ""


def _number(variables: Variables, name: str, otherwise: int | None = None) -> int:
    text = variables.get(name, "")
    if not text and otherwise is not None:
        return otherwise
    try:
        return int(text)
    except ValueError as error:
        raise BadValue(f"{name} is '{text}', which is no number", hint="check the launcher's variables") from error


def half_set(variables: Variables) -> str:
    """The variable of torch's that alone is missing; empty where all or fewer are set, or for one process."""
    missing = [name for name in TORCH if not variables.get(name)]
    return missing[0] if len(missing) == 1 and variables.get("WORLD_SIZE") != "1" else ""


def own_gpu(variables: Variables, number: int, gpus: int) -> str | None:
    """What CUDA_VISIBLE_DEVICES is to be, so that a process sees its own GPU only, of those that it sees by now.

    None where it is to stay: where one is seen, as of some launchers, where none can be listed, and where there are
    fewer. A variable and no call, since every thread of the process obeys it, and nothing touches the driver by it.
    """
    shown = variables.get(VISIBLE)
    visible = [str(index) for index in range(gpus)] if shown is None else [word.strip() for word in shown.split(",")]
    return visible[number] if len(visible) > 1 and number < len(visible) else None


OWN = Path("/proc/self/fd")
IP = (socket.AF_INET, socket.AF_INET6)


def address_towards(host: str, port: int) -> str:
    """The own address that packets to another host carry. Nothing is sent.

    Empty where the host is this one, its name is unknown, or no route leads there.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError:
        return ""
    for family, kind, _, _, there in addresses:
        try:
            with socket.socket(family, kind) as probe:
                probe.connect(there)
                address = str(probe.getsockname()[0])
        except OSError:
            continue
        return "" if ipaddress.ip_address(address).is_loopback else address
    return ""


def interface_of(address: str) -> str:
    """The interface that has this address of ours; empty where none has."""
    for name, addresses in psutil.net_if_addrs().items():
        # Those of IPv6 may end with the interface.
        if address and any(entry.address.partition("%")[0] == address for entry in addresses):
            return name
    return ""


def bound_calls(port: int, seconds: float) -> None:
    """A call over the connections of this process to that port fails once it has waited so long.

    For those of a library that hands out no socket: the kernel itself gives up after 15 minutes, where a host has gone
    without a word.
    """
    limit = struct.pack("ll", int(seconds), round(seconds % 1 * 1e6))
    for entry in OWN.iterdir():
        try:
            if not entry.is_socket():
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as sock:
                if sock.family in IP and sock.type == socket.SOCK_STREAM and sock.getpeername()[1] == port:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        except OSError:  # not connected, or closed meanwhile
            continue

"""Which process of a launcher this one is, and how it reaches the others."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from loaderprobe.errors import BadValue
from loaderprobe.records.rank_processes import Launched
from loaderprobe.system import launcher
from loaderprobe.system.launcher import Join, address_towards, first_host, half_set, interface_of, launched

TORCHRUN = {
    "RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "GROUP_RANK": "1", "MASTER_ADDR": "head", "MASTER_PORT": "4000",
    "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2",
}  # fmt: skip
SRUN = {
    "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NODEID": "1", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "2", "SLURM_STEP_NODELIST": "gpu[017-018]", "SLURM_NTASKS": "4",
}  # fmt: skip
BATCH_SCRIPT = {
    "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NODELIST": "gpu[017-018]",
}  # fmt: skip
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1", "MASTER_ADDR": "head", "MASTER_PORT": "7"}


OWN = {"MASTER_ADDR": "other", "MASTER_PORT": "99"}
AGENT = Launched(rank=9, size=16, node="1", address="head", port=4000, agent_store=True, attempt="2")
NO_AGENT = replace(AGENT, node="", agent_store=False, attempt="0")
ON_ONE_HOST = Launched(rank=1, size=2, node="", address="localhost", port=29500, agent_store=False)
STEP = Launched(rank=3, size=4, node="1", address="gpu017", port=15000 + 1234 * 8 + 2, agent_store=False)


@pytest.mark.parametrize(
    ("variables", "launcher", "expected"),
    [
        # The agent of torchrun holds the store, and a restart is another attempt; it counts without being asked for.
        (TORCHRUN, None, AGENT),
        (TORCHRUN, "slurm", AGENT),
        # Without an agent, rank 0 holds the store.
        ({name: TORCHRUN[name] for name in launcher.TORCH}, None, NO_AGENT),
        # One process alone is no group, nor is one without variables, or with a part of them.
        ({}, None, None),
        ({**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}, None, None),
        ({**TORCHRUN, "LOCAL_RANK": ""}, None, None),
        # Slurm counts only when it is asked for: a batch script has the number of tasks too, and would wait for ever.
        (SRUN, None, None),
        (BATCH_SCRIPT, None, None),
        # The first host of the step has the store, at a port of the job and the step.
        (SRUN, "slurm", STEP),
        ({**SRUN, **OWN}, "slurm", replace(STEP, address="other", port=99)),
        # On one host mpirun need not say more; on several, where rank 0 is.
        (MPIRUN, None, None),
        (MPIRUN, "mpi", ON_ONE_HOST),
        (HYDRA, "mpi", replace(ON_ONE_HOST, address="head", port=7)),
    ],
)
def test_which_process_this_is(variables: dict[str, str], launcher: Join | None, expected: Launched | None) -> None:
    """By the variables that it sets."""
    assert launched(variables, launcher) == expected


@pytest.mark.parametrize(
    ("variables", "launcher", "says"),
    [
        (BATCH_SCRIPT, "slurm", "srun did not start"),
        ({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "mpi", "on which host rank 0 is"),
        ({}, "mpi", "mpirun did not start"),
        ({**TORCHRUN, "RANK": "x"}, None, "no number"),
        ({**TORCHRUN, "RANK": "16"}, None, "rank 16 of 16"),
        ({**TORCHRUN, "RANK": "-1"}, None, "rank -1 of 16"),
    ],
)
def test_variables_that_cannot_be_are_refused(variables: dict[str, str], launcher: Join | None, says: str) -> None:
    """A rank is a number below that of all, and a launcher that is asked for has set its variables."""
    with pytest.raises(BadValue, match=says):
        launched(variables, launcher)


def test_a_variable_that_is_not_set_is_named() -> None:
    """Of several processes only."""
    assert half_set({**TORCHRUN, "LOCAL_RANK": ""}) == "LOCAL_RANK"
    assert half_set(TORCHRUN) == half_set({}) == half_set({**TORCHRUN, "LOCAL_RANK": "", "WORLD_SIZE": "1"}) == ""


HOSTS = {
    "one": "one",
    "one,two": "one",
    "n[1-4]": "n1",
    "n[007,009-12],m1": "n007",
    "n[1-2]-ib,m": "n1-ib",
    "a-b[3]": "a-b3",
    "": "",
}


def test_the_first_host_of_a_list() -> None:
    """As Slurm shortens them."""
    assert {hosts: first_host(hosts) for hosts in HOSTS} == HOSTS


def test_this_machine_is_no_way_to_another() -> None:
    """By its loopback, under any name; nor is a name that cannot be found, or an address without a route."""
    assert address_towards("127.0.0.1", 1) == address_towards("localhost", 1) == address_towards("127.0.1.1", 1) == ""
    assert address_towards("no-such-host.invalid", 1) == ""


def test_an_interface_is_found_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv6 addresses may name it; an unknown address belongs to none."""
    given = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.7", "fe80::1%eth0", "02:42:ac:11:00:02"]}
    addresses = {name: [SimpleNamespace(address=each) for each in found] for name, found in given.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    assert [interface_of(each) for each in ("10.0.0.7", "fe80::1", "127.0.0.1")] == ["eth0", "eth0", "lo"]
    assert interface_of("10.0.0.8") == interface_of("") == ""


def test_a_call_over_a_bounded_connection_ends() -> None:
    """Of connections to that port, and of no others; sockets of other kinds, as MPICH hands down, have no port."""
    with ExitStack() as held:
        for each in socket.socketpair():
            held.enter_context(each)
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        bounded, free = (held.enter_context(socket.create_connection(each.getsockname())) for each in servers)
        launcher.bound_calls(servers[0].getsockname()[1], 0.05)
        with pytest.raises(BlockingIOError):
            bounded.recv(1)
        assert not any(free.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16))

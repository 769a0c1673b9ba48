"""Which process of a launcher this one is."""

from __future__ import annotations

import pytest

from loaderprobe.errors import BadValue
from loaderprobe.records.ranks import Launched
from loaderprobe.system.launcher import TORCH, first_host, half_set, launched, own_gpu

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


def test_the_variables_of_torchrun_count_without_being_asked_for() -> None:
    """Its agent holds the store, and a restart is another attempt."""
    expected = Launched(
        rank=9, size=16, node="1", address="head", port=4000, agent_store=True, attempt="2"
    )  # fmt: skip
    assert launched(TORCHRUN) == launched(TORCHRUN, "slurm") == expected


def test_bare_variables_are_enough() -> None:
    """Without an agent, rank 0 holds the store."""
    found = launched({name: TORCHRUN[name] for name in TORCH})
    assert found is not None and not found.agent_store and found.node == ""


def test_one_process_alone_is_no_group() -> None:
    """Nor is one without variables, or with a part of them."""
    assert launched({}) is None
    assert launched({**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1"}) is None
    assert launched({**TORCHRUN, "LOCAL_RANK": ""}) is None
    assert half_set({**TORCHRUN, "LOCAL_RANK": ""}) == "LOCAL_RANK"
    assert half_set(TORCHRUN) == half_set({}) == half_set({**TORCHRUN, "LOCAL_RANK": "", "WORLD_SIZE": "1"}) == ""


def test_slurm_counts_only_when_it_is_asked_for() -> None:
    """A batch script has the number of tasks too, and would wait for ever."""
    assert launched(SRUN) is None
    assert launched(BATCH_SCRIPT) is None
    with pytest.raises(BadValue, match="srun did not start"):
        launched(BATCH_SCRIPT, "slurm")


def test_a_step_of_slurm() -> None:
    """The first host of the step has the store, at a port of the job and the step."""
    assert launched(SRUN, "slurm") == Launched(
        rank=3, size=4, node="1", address="gpu017", port=15000 + 1234 * 8 + 2, agent_store=False
    )
    own = launched({**SRUN, "MASTER_ADDR": "other", "MASTER_PORT": "99"}, "slurm")
    assert own is not None and (own.address, own.port) == ("other", 99)


def test_mpirun() -> None:
    """On one host nothing more is needed; on several, where rank 0 is."""
    found = launched(MPIRUN, "mpi")
    assert found is not None and (found.rank, found.size, found.address) == (1, 2, "localhost")
    hydra = launched(HYDRA, "mpi")
    assert hydra is not None and (hydra.rank, hydra.address, hydra.port) == (1, "head", 7)
    with pytest.raises(BadValue, match="on which host rank 0 is"):
        launched({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "mpi")
    with pytest.raises(BadValue, match="mpirun did not start"):
        launched({}, "mpi")
    assert launched(MPIRUN) is None


@pytest.mark.parametrize("wrong", [{"RANK": "x"}, {"RANK": "16"}, {"RANK": "-1"}])
def test_variables_that_cannot_be_are_refused(wrong: dict[str, str]) -> None:
    """A rank is a number below that of all."""
    with pytest.raises(BadValue):
        launched({**TORCHRUN, **wrong})


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("one", "one"), ("one,two", "one"), ("n[1-4]", "n1"), ("n[007,009-12],m1", "n007"), ("n[1-2]-ib,m", "n1-ib"),
        ("a-b[3]", "a-b3"), ("", ""),
    ],
)  # fmt: skip
def test_the_first_host_of_a_list(hosts: str, first: str) -> None:
    """As Slurm shortens them."""
    assert first_host(hosts) == first


@pytest.mark.parametrize(
    ("shown", "gpus", "seen"),
    [(None, 8, "2"), ("4,5,6,7", 8, "6"), ("GPU-a, GPU-b, GPU-c", 8, "GPU-c"), ("3", 8, None), ("0,1", 8, None),
     (None, 2, None), (None, 0, None), ("", 8, None)],
)  # fmt: skip
def test_a_rank_sees_its_own_gpu(shown: str | None, gpus: int, seen: str | None) -> None:
    """The third of those that it sees; where one is shown, or too few, the variable stays."""
    assert own_gpu({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}, 2, gpus) == seen

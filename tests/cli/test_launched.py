"""The same sweep of two ranks, started in each of the ways in which training is started, over torch's own store.

As a module it is a process of a launcher whose sweep is real, with scripts as children: `RUN MEASURED [fails] [slurm]`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.api import sweep
from loaderprobe.api.load import judge_run
from loaderprobe.cli.ranks import in_ranks
from loaderprobe.errors import BadValue
from loaderprobe.measure.ranks import launch
from loaderprobe.measure.ranks.launch import Coordinator
from loaderprobe.measure.runner import Child, Order
from loaderprobe.records.measurement import Measurement
from loaderprobe.render.json import summary_json
from loaderprobe.store.codec import decode, encode
from loaderprobe.store.run_directory import RunDirectory
from tests.analyze.runs import alike, rank_run
from tests.measure.scripted import by_command
from tests.planted.objects import free_port
from tests.stored import empty_run

ROOT = Path(__file__).parent.parent.parent
PROGRAM = "tests.cli.test_launched"
LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "TORCHELASTIC_", "PET_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_")
"""How the variables of launchers begin."""


@dataclass(frozen=True)
class Scripted:
    """A forkserver whose children return what was measured; where it has three workers, that of rank 1 is killed."""

    measured: str

    def start(self, order: Path, result: Path, log: Path) -> Child:
        asked = decode("order", order.read_bytes(), Order, "order")
        assert asked.placement is not None
        script = f"cp {self.measured} {result}"
        if asked.config.loader.workers == 3:
            script = "kill -9 $$" if asked.placement.rank else "exec sleep 1000"
        return by_command(lambda *_: ["/bin/sh", "-c", script])(order, result, log)


def rows_of(run: RunDirectory) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(summary_json(judge_run(run)))["configurations"]
    return found


def main(path: str, measured: str, *options: str) -> int:
    """The exit code of this process: a sweep of two ranks on two nodes, and where asked one that fails."""
    config = decode("measurement", Path(measured).read_bytes(), Measurement, measured).config
    failing = replace(config, loader=replace(config.loader, workers=3))

    def swept(coordinator: Coordinator | None) -> int:
        assert coordinator is not None
        run = empty_run(Path(path), *((failing, config) if "fails" in options else (config,)))
        coordinator.admit((config,), ())
        sweep.measure(run, lambda *_: None, coordinator)
        sys.stdout.write(json.dumps(rows_of(run)) + "\n")
        return 4

    changed: Any = {"ForkServer": lambda: nullcontext(Scripted(measured))}
    vars(launch).update(changed)
    return in_ranks("slurm" if "slurm" in options else None, "2", swept)


def torchrun(port: str, rank: int) -> tuple[list[str], dict[str, str]]:
    """Two agents on one host stand for two nodes."""
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "7", "--no-python"]
    meeting = ["--rdzv-endpoint", f"127.0.0.1:{port}", "--local-addr", "127.0.0.1"]
    return [sys.executable, "-m", "torch.distributed.run", *options, *meeting], {}


def by_variables(port: str, rank: int) -> tuple[list[str], dict[str, str]]:
    """Torch's own variables, as an operator of Kubernetes sets them; for the second process those of srun."""
    bare = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "GROUP_RANK": "0"}
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NODEID": "1", "SLURM_STEP_NODELIST": "127.0.0.1"}
    return [], {**(srun if rank else bare), "MASTER_PORT": port}


def started(way: Any, python: str, folder: Path, options: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(The rows that rank 0 printed, of both processes; the one that is expected)."""
    folder.mkdir()
    given = rank_run(alike(warm=186.0, resident=18000.0), cache="warm", workers=2, ranks=2, nodes=2)
    (folder / "measured.json").write_bytes(encode("measurement", given))
    port, clean = str(free_port()), {name: os.environ[name] for name in os.environ if not name.startswith(LAUNCHERS)}
    running = []
    for rank in range(2):
        before, variables = way(port, rank)
        program = [python, "-m", PROGRAM, str(folder / "run"), str(folder / "measured.json"), *options]
        running.append(
            subprocess.Popen(
                [*before, *program], cwd=ROOT, env={**clean, "OMP_NUM_THREADS": "1", **variables}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
        )  # fmt: skip
    ended = [each.communicate(timeout=120) for each in running]
    printed = [line for out, _ in ended for line in out.splitlines() if line.startswith("[{")]
    assert len(printed) == 1, ended
    # torchrun shows any exit code of a process as 1; all end with that of rank 0.
    assert {each.returncode for each in running} == {1 if way is torchrun else 4}, ended
    expected = empty_run(folder / "expected", given.config)
    expected.save(given)
    return json.loads(printed[0]), rows_of(expected)[0]


@pytest.mark.parametrize(("way", "options"), [(torchrun, ()), (by_variables, ("fails", "slurm"))])
def test_every_way_to_start_gives_the_same_summary(
    way: Any, options: Sequence[str], tmp_path: Path, python: str
) -> None:
    """The row of what was measured; where a rank is killed, it is named. One process prints."""
    (*failed, row), expected = started(way, python, tmp_path / "way", options)
    assert row == expected and (row["status"], row["ranks"], row["nodes"]) == ("measured", 2, 2)
    if "fails" in options:
        (reason,) = (each["reason"]["sentence"] for each in failed)
        assert "killed by SIGKILL" in reason and "rank 1" in reason and socket.gethostname() in reason
    else:
        assert failed == []


def test_variables_of_which_one_is_missing_are_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ranks are asked for: each process would start all of them."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "head", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert in_ranks(None, None, lambda coordinator: 7) == 7
    with pytest.raises(BadValue, match="but not LOCAL_RANK"):
        in_ranks(None, "4", lambda coordinator: 7)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""What a sweep of several ranks is asked for, and how its processes are started on this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import loaderprobe
from loaderprobe.api import sweep as verb
from loaderprobe.api import sweep_request
from loaderprobe.api.sweep_request import (
    SweepRequest,
    check_devices,
    check_images,
    check_request,
    layouts_of,
    request_of,
)
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.measure.ranks import launch
from loaderprobe.records.config import ComputeSpec, SweepSpec
from loaderprobe.records.ranks import Layout, Node
from loaderprobe.store.run_directory import RunDirectory, RunRecord
from loaderprobe.testing import example_config, example_environment, example_files

NODES = (Node(host="a", seats=(0, 1), gpus=2), Node(host="b", seats=(2, 3), gpus=1))


def request(tmp_path: Path, **changes: Any) -> SweepRequest:
    """Of generated data, on an emulated accelerator."""
    usual: dict[str, Any] = {
        "data": None, "data_dir": tmp_path, "out": tmp_path / "run", "resolutions": "64x48", "workers": "1",
        "serial": False, "loader": "torch", "compute": "emulated:100", "cache": "cold", "batch_size": 64,
        "prefetch_factor": "2",
    }  # fmt: skip
    return request_of(**{**usual, **changes})


def run_of(path: Path, *ranks: int) -> RunDirectory:
    """A run that has not begun, with a configuration of each number of ranks."""
    files = example_files(4096)
    configs = tuple(example_config(data=files.fingerprint, ranks=each) for each in ranks)
    record = RunRecord(
        created_utc="2026-11-22T00:00:00+00:00", spec=SweepSpec(configs=configs), environment=example_environment()
    )
    return RunDirectory.create(path, record, [files])


def test_ranks_are_an_axis(tmp_path: Path) -> None:
    """In any form of a list; each once. Without it there is one rank, or as many as a launcher started."""
    assert request(tmp_path).ranks == ((1, 1),)
    assert request(tmp_path, ranks=[1, 2, "1x2"]).ranks == ((1, 1), (2, 1))
    assert request(tmp_path, ranks="1,2x2", nodes=NODES).ranks == ((1, 1), (4, 2))
    assert request(tmp_path, nodes=NODES).ranks == ((4, 2),)
    uneven = (*NODES, Node(host="c", seats=(4,), gpus=0))
    assert layouts_of(None, uneven) == (Layout(ranks=3, nodes=3),)


def test_each_rank_reads_files_of_its_own(tmp_path: Path) -> None:
    """So more ranks need more; ranks take what is loaded ahead in step before they are timed."""
    assert request(tmp_path).images_needed == (14 + 6) * 64
    assert request(tmp_path, ranks=4).images_needed == 4 * (14 + 6 + 2) * 64
    assert request(tmp_path, ranks=4, workers="16", batch_size=512).images_needed == 4 * 20_000
    assert request(tmp_path, ranks=4, images=99).images_needed == 99


@pytest.mark.parametrize(("cache", "least"), [("cold", 2 * (14 + 12 + 4) * 16), ("warm", 2 * 16)])
def test_a_set_too_small_for_its_ranks_is_refused_with_the_number_needed(cache: str, least: int) -> None:
    """For a cold segment of each rank, or at least a batch."""
    for count in (least, least - 1):
        files = example_files(count)
        configs = [example_config(ranks=2, workers=2, batch_size=16, cache=cache, data=files.fingerprint)]
        if count == least:
            check_images([files], configs)
            continue
        with pytest.raises(BadValue, match=rf"has {count} images, and .* needs {least}: each rank reads {least // 2}"):
            check_images([files], configs)
    alone = example_files(3)
    check_images([alone], [example_config(data=alone.fingerprint)])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"epochs": 2}, "whole epochs are trained by one rank"),
        ({"gpu_decode": True, "compute": "cuda"}, "one rank alone decodes"),
        ({"compute": "tests.planted.loaders:Other"}, "does not train in step"),
        ({"ranks": "2x2"}, "on this one only"),
        ({"ranks": "two"}, "no number of ranks"),
    ],
)
def test_what_one_rank_alone_measures_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    """With several ranks; with one, each is taken."""
    with pytest.raises(BadValue, match=why):
        request(tmp_path, **{"ranks": "1,2", **changes})
    if "ranks" not in changes:
        assert request(tmp_path, **changes).most_ranks == 1


def test_ranks_on_cuda_need_a_gpu_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any data is generated."""
    with pytest.raises(MissingPart, match="2 ranks on cuda need a GPU each, and b has 1"):
        check_devices([ComputeSpec(name="cuda", batch_size=8)], [(4, 2)], NODES)
    monkeypatch.setattr(sweep_request, "this_node", lambda ranks: NODES[1:])
    with pytest.raises(MissingPart, match="b has 1"):
        check_request(request(tmp_path, compute="cuda", ranks=2))


def test_far_more_ranks_than_cores_are_refused_before_any_data_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before any process is started; those of a launcher are its own matter."""
    for module in (sweep_request, launch):
        monkeypatch.setattr(module, "cores_available", lambda: 2.0)
    with pytest.raises(BadValue, match="17 ranks on this machine would share 2 cores"):
        check_request(request(tmp_path, ranks=17))
    check_request(request(tmp_path, ranks="17x1", nodes=[Node(host=str(n), seats=(n,), gpus=0) for n in range(17)]), ())
    no_server: Any = lambda variables: pytest.fail("a process was started")  # noqa: E731
    with pytest.raises(BadValue, match="17 ranks"), launch.on_this_machine(17, no_server):
        pass


def test_nodes_meet_by_the_way_from_one_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node of the store, which finds it at its own loopback, looks for the way to another node."""
    head = Node(host="a", seats=(0,), gpus=0)
    other = Node(host="b", seats=(1,), gpus=0, address="10.0.0.2")
    monkeypatch.setattr(launch, "address_towards", lambda host, port: {"10.0.0.2": "10.0.0.1"}[host])
    monkeypatch.setattr(
        launch, "interface_of", lambda address: {"10.0.0.1": "eth1", "10.0.0.2": "eth2", "": ""}[address]
    )
    assert launch._interface(head, (head, other), 7) == "eth1"
    assert launch._interface(other, (head, other), 7) == "eth2"
    assert launch._interface(head, (head,), 7) == ""


def test_a_run_of_several_nodes_is_not_completed_here(tmp_path: Path) -> None:
    """Nor does a program that a launcher started start all ranks once more."""
    run = run_of(tmp_path / "run", 2)
    config = replace(run.record.spec.configs[0], nodes=2)
    spread = RunDirectory(run.path, replace(run.record, spec=SweepSpec(configs=(config,))))
    with pytest.raises(BadValue, match="on this one only"):
        verb.measure(spread, lambda _: None)


def test_one_of_several_programs_starts_no_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would start all of them."""
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "head", "MASTER_PORT": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadValue, match="one of several that a launcher started"):
        loaderprobe.resume(run_of(tmp_path / "run", 2).path)

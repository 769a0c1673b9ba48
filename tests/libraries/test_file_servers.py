"""Real file servers behind a link that delays: what is asked first, what is counted, and what limits."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaderprobe import bandwidth, generate, sweep
from loaderprobe.system.device import locate, reads_from_storage
from tests.planted.file_servers import Client, Link, missing, mounted

# Minutes of real servers: `scripts/bench libraries` has them, as it has the object store.
pytest.importorskip("s3fs")

Server = tuple[Path, Link]


@pytest.fixture(scope="module", params=["sshfs", "rclone", "weed"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Photographs on a server of files."""
    client: Client = request.param
    if lacking := missing(client):
        pytest.skip(f"not installed: {lacking}")
    if client != "weed" and getpass.getuser() != "root":
        pytest.skip("only root may start an sshd that takes other users")
    (made,) = generate(tmp_path_factory.mktemp("photographs"), resolutions="256x256", count=120)
    with mounted(client, made, tmp_path_factory.mktemp("server")) as (place, link):
        if reads_from_storage(locate(place)) is None:
            pytest.skip("this kernel does not name the mount that a program serves")
        yield place, link


def test_opens_stand_first_and_reads_are_counted(server: Server) -> None:
    """5 ms an answer: names are asked for before bytes, each open asks the server, and what it reads is known."""
    place, link = server
    link.latency_s = 0.005
    found = bandwidth(place, readers=(1, 4), seconds=0.5)
    assert found.location.kind == "fuse" and {phase.cache for phase in found.ladder} == {"cold"}
    assert found.text().index("opens/s") < found.text().index("MB/s  ")
    assert found.limit.by == "latency" and all(feed.count > 0 for feed in found.feeds)
    assert found.ladder[0].clat_ns.min >= 5e6


def test_a_sweep_names_the_storage(server: Server, tmp_path: Path) -> None:
    """Storage is worth most, cold reads and the ceiling are known by the server's count; more workers are advised."""
    place, link = server
    link.latency_s = 0.02
    run = sweep(
        place, out=tmp_path / "run", images=120, workers=1, serial=False, compute="emulated:2000", batch_size=4,
        rounds=2, budget_s=30,
    )  # fmt: skip
    (row,) = run.report().configurations
    assert row.verdict
    speedups = {name: found.value for name in ("storage", "preprocessing") if (found := row.verdict.speedups.get(name))}
    assert speedups["storage"] > 2 > speedups.get("preprocessing", 1.0)
    assert row.verdict.cold_fraction and row.verdict.disk_ceiling_fraction and row.verdict.files_were == "cold"

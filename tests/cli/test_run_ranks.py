"""`loaderprobe run -- torchrun ...`: two gloo ranks, one verdict."""

from __future__ import annotations

import json
from pathlib import Path

from loaderprobe.records.ranks import RankMeasurement
from loaderprobe.store.codec import decode
from tests.cli.test_run import run


def test_two_ranks_are_measured_together(tmp_path: Path, python: str) -> None:
    """In the same steps. Rank 0 speaks, once, and both have ended."""
    launcher = (python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "--no-python")
    done = run(python, tmp_path, *launcher, python, "-m", "tests.examples.ranks", "plain")
    stdout, stderr = done.stdout, done.stderr
    assert done.returncode == 0, stderr
    assert stderr.count("on 2 ranks together") == stderr.count("round 1") == 1
    assert "2 ranks, each serial, 8 a batch" in stdout and "2 ranks, measured together" in stdout
    assert "ended by itself" not in stdout
    found = json.loads((tmp_path / "found" / "result.json").read_text())
    assert (found["ranks"], found["batch_size"]) == (2, 8)
    assert [each["batch_size"] for each in found["measurement"]["segments"][:1]] == [16]
    files = sorted((tmp_path / "found" / "ranks").iterdir())
    ranks = [decode("rank-measurement", each.read_bytes(), RankMeasurement, each.name) for each in files]
    assert [each.rank for each in ranks] == [0, 1]
    first, second = ([(s.mode, s.activity, s.steps) for s in each.measurement.segments] for each in ranks)
    assert first == second and first

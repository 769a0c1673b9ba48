"""`loaderprobe batch-size`: the answer first, a directory with a page, and clear errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from loaderprobe.api.batch_size import BatchSize
from loaderprobe.compute.batch_size import TorchProber
from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.records.files import FileSet
from tests.cli.invoke import invoke

SMALL = ("batch-size", "--model", "lenet5", "--compute", "cpu", "--image-size", 32, "--max", 8)
SHORT = (*SMALL, "--iterations", 2)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a short search."""
    place = tmp_path_factory.mktemp("batch-size") / "found"
    done = invoke(*SHORT, "--out", place)
    assert done.exit_code == 0, done.stderr
    assert "Up to 32 probes" in done.stderr
    return place


def test_the_directory_has_every_probe(out: Path) -> None:
    """As JSON, as rows, and as charts of rate and memory; `report` shows it again."""
    found = json.loads((out / "result.json").read_text())
    assert (found["schema"], found["strategy"], found["utilization_of"]) == (
        "loaderprobe/batch-size", "throughput", "cores",
    )  # fmt: skip
    with (out / "probes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["batch_size"]) for row in rows] == [each["batch_size"] for each in found["probes"]]
    assert json.loads(invoke("report", out, "--json").stdout) == found
    page = (out / "report.html").read_text()
    assert page.count('<figure class="bars"') == 2 and "Memory by batch size" in page
    assert invoke("report", out, "--format", "html").stdout == page


@pytest.mark.parametrize("strategy", ["gpu-usage", "epoch-time"])
def test_a_strategy_of_the_paper_shows_its_loops(strategy: str, tmp_path: Path) -> None:
    """In order, with usage and improvement, and why it ended."""
    done = invoke(*SHORT, "--max", 14, "--strategy", strategy, "--out", tmp_path / "o", "--quiet")
    assert done.exit_code == 0, done.stderr
    found = BatchSize.load(tmp_path / "o")
    assert [each.batch_size for each in found.probes][:2] == [10, 12] or found.stop.code != "at_maximum"
    assert f"{strategy} ends at batch {found.stop.chosen}" in done.stdout
    assert "Loops, in order" in done.stdout and "improvement" in done.stdout and not done.stderr


def test_batches_of_a_folder_are_judged(tmp_path: Path, photographs: FileSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `diagnose` at the chosen size; where it finds nothing, the reason stands there."""
    from loaderprobe.errors import BadValue

    sizes: list[int] = []

    def no_diagnosis(loader: object, step: object, **_: object) -> None:
        sizes.append(loader.batch_size)  # type: ignore[attr-defined]  # a DataLoader
        raise BadValue("there was no time")

    monkeypatch.setattr("loaderprobe.api.batch_size.diagnose", no_diagnosis)
    small = [each for each in SHORT if each not in ("--image-size", 32)]
    done = invoke(*small, photographs.root, "--max", 2, "--out", tmp_path / "o", "--quiet")
    assert done.exit_code == 0, done.stderr
    found = BatchSize.load(tmp_path / "o")
    assert (sizes, found.data) == ([found.stop.chosen], str(photographs.root)) and found.limit != "compute"
    says = f"What limits training at batch {found.stop.chosen} is not known: there was no time."
    assert says in " ".join(done.stdout.split())


@pytest.mark.parametrize("searching", [True, False])
def test_ctrl_c_ends_the_search_and_the_verdict(
    searching: bool, tmp_path: Path, photographs: FileSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first probe, or while the loader is judged: nothing more is measured, and the probes are kept."""
    probes: list[BatchSizeProbe] = []
    judged: list[int] = []

    def probe(self: TorchProber, size: int) -> BatchSizeProbe:
        if searching and probes:
            raise KeyboardInterrupt
        probes.append(probed(self, size))
        return probes[-1]

    def diagnosis(*_: object, **__: object) -> None:
        judged.append(1)
        raise KeyboardInterrupt

    probed = TorchProber.probe
    monkeypatch.setattr(TorchProber, "probe", probe)
    monkeypatch.setattr("loaderprobe.api.batch_size.diagnose", diagnosis)
    small = [each for each in SHORT if each not in ("--image-size", 32)]
    done = invoke(*small, photographs.root, "--max", 2, "--out", tmp_path / "o", "--quiet")
    assert done.exit_code == 130, done.stderr
    found = BatchSize.load(tmp_path / "o")
    assert found.probes == tuple(probes) and len(judged) == (not searching)
    assert (found.stop.code == "interrupted") == searching
    assert "is not known: Ctrl-C came before it was judged." in " ".join(done.stdout.split())

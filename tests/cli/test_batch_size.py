"""`loaderprobe batch-size`: the answer first, a directory with a page, and clear errors."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from loaderprobe.api.batch_size import BatchSize
from loaderprobe.compute.batch_size import TorchProber
from loaderprobe.errors import BadValue
from loaderprobe.records.batch_size import BatchSizeProbe
from loaderprobe.records.files import FileSet
from tests.cli.invoke import invoke

SMALL = ("batch-size", "--model", "lenet5", "--compute", "cpu", "--image-size", 32, "--max", 8)
SHORT = (*SMALL, "--iterations", 2)
pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_directory_has_every_probe(tmp_path: Path) -> None:
    """As JSON, as rows, and as a chart of the rate and a table; `report` shows it again."""
    out = tmp_path / "found"
    done = invoke(*SHORT, "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "Up to 32 probes" in done.stderr
    found = json.loads((out / "result.json").read_text())
    assert (found["schema"], found["strategy"], found["utilization_of"]) == (
        "loaderprobe/batch-size", "throughput", "cores",
    )  # fmt: skip
    with (out / "probes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["batch_size"]) for row in rows] == [each["batch_size"] for each in found["probes"]]
    assert json.loads(invoke("report", out, "--json").stdout) == found
    page = (out / "report.html").read_text()
    assert page.count('<figure class="bars"') == 1 and "memory" in page
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


ENDED = "Ctrl-C came before it was judged"


@pytest.mark.parametrize(
    ("searching", "error", "code", "says"),
    [
        (False, BadValue("there was no time"), 0, "there was no time"), (False, KeyboardInterrupt(), 130, ENDED),
        (True, KeyboardInterrupt(), 130, ENDED), (True, signal.SIGTERM, 130, ENDED),
    ],
)  # fmt: skip
def test_batches_of_a_folder_are_judged(
    searching: bool, error: BaseException | signal.Signals, code: int, says: str, tmp_path: Path, photographs: FileSet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By `diagnose` at the chosen size. Where that finds nothing, or Ctrl-C comes then or after the first probe, the
    reason stands there: nothing more is measured, and the probes are kept. SIGTERM is as Ctrl-C."""
    probes, sizes = list[BatchSizeProbe](), list[int]()

    def fail() -> None:
        if isinstance(error, BaseException):
            raise error
        assert signal.getsignal(error) is signal.default_int_handler
        signal.raise_signal(error)

    def probe(self: TorchProber, size: int) -> BatchSizeProbe:
        if searching and probes:
            fail()
        probes.append(probed(self, size))
        return probes[-1]

    def diagnosis(loader: Any, *_: object, **__: object) -> None:
        sizes.append(loader.batch_size)
        fail()

    probed = TorchProber.probe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(TorchProber, "probe", probe)
    monkeypatch.setattr("loaderprobe.api.batch_size.diagnose", diagnosis)
    small = [each for each in SHORT if each not in ("--image-size", 32)]
    done = invoke(*small, photographs.root, "--max", 2, "--out", tmp_path / "o", "--quiet")
    assert done.exit_code == code, done.stderr
    found = BatchSize.load(tmp_path / "o")
    assert (found.probes, found.data, found.limit != "compute") == (tuple(probes), str(photographs.root), True)
    assert sizes == ([] if searching else [found.stop.chosen]) and (found.stop.code == "interrupted") == searching
    says = f"What limits training at batch {found.stop.chosen} is not known: {says}."
    assert says in " ".join(done.stdout.split())

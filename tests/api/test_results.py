"""What the other verbs return, and that they need no callback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.api.bandwidth import Bandwidth
from loaderprobe.errors import BadValue
from loaderprobe.records.environment import Capability
from loaderprobe.records.remark import Remark, reported
from loaderprobe.render.json import result_json
from tests.examples.bandwidth import example_bandwidth, example_operations

CAPABILITIES = (
    Capability(name="cold_reads", state="yes", why=(Remark(code="evicted"),)),
    Capability(name="gpu_sm_occupancy", state="no", why=(reported("<no GPU>"),), next_step="hopper_gpu"),
)


def test_a_bandwidth_has_a_frame_of_its_phases() -> None:
    """One row a phase, units in the names, latencies as columns, NaN for what could not be counted."""
    found = Bandwidth.of(example_bandwidth())
    table = found.to_frame()
    assert list(table["readers"]) == [phase.readers for phase in found.phases]
    assert list(table["bw_bytes_per_s"]) == [phase.bw_bytes for phase in found.phases]
    assert list(table["file_p99_ns"]) == [
        phase.file_ns.percentile["99.000000"] for phase in found.phases if phase.file_ns
    ]
    assert list(table["cold_fraction"].isna()) == [phase.cold_fraction is None for phase in found.phases]
    assert not {"clat_ns", "file_ns", "unread", "runtime"} & set(table.columns)


def test_a_bandwidth_shows_itself() -> None:
    """One line at the prompt, the report when printed, a table in a notebook; its JSON is that of the record."""
    found = Bandwidth.of(example_bandwidth())
    assert repr(found).startswith("<Bandwidth: /data/imagenet-like/500x375: ") and "\n" not in repr(found)
    assert "MB/s" in str(found)
    assert found._repr_html_().count("<tr>") == 1 + len(found.ladder) + 2, "the ladder, and past the page cache"
    assert result_json(found) == result_json(example_bandwidth())


def test_the_frame_of_a_bandwidth_has_its_opens() -> None:
    """A row each after the phases of reads, named by the operation, with the label in a column."""
    operations = (*example_operations({4: 1000.0}), *example_operations({4: 900.0}, "stat", metadata="warm"))
    table = Bandwidth.of(replace(example_bandwidth(), metadata=operations)).to_frame()
    assert list(table["name"])[-2:] == ["open", "stat"]
    assert list(table["ops_per_s"].dropna()) == [1000.0, 900.0]
    assert list(table["metadata"].dropna()) == ["cold", "warm"]


def test_bandwidth_reads_a_folder_without_a_callback(tmp_path: Path) -> None:
    """A list of concurrencies gives a step for each of them."""
    (tmp_path / "0.bin").write_bytes(b"x" * 300_000)
    (tmp_path / "1.bin").write_bytes(b"y" * 300_000)
    found = loaderprobe.bandwidth(tmp_path, readers=[1, 2], seconds=0.1)
    assert [phase.readers for phase in found.ladder] == [1, 2]
    assert {(phase.operation, phase.metadata) for phase in found.metadata} == {("open", "warm"), ("stat", "warm")}


@pytest.mark.parametrize("changes", [{"readers": "two"}, {"readers": [0]}, {"scratch": "big"}])
def test_impossible_probes_are_bad_values(tmp_path: Path, changes: dict[str, object]) -> None:
    """Before anything is read."""
    with pytest.raises(BadValue):
        loaderprobe.bandwidth(tmp_path, **changes)  # type: ignore[arg-type]  # bad on purpose


def test_generate_makes_the_sets_and_names_them(tmp_path: Path) -> None:
    """One directory for each resolution; the result is a tuple of paths that shows itself."""
    made = loaderprobe.generate(tmp_path, resolutions=["64x48"], count=4, classes=2, pool=2)
    assert tuple(made) == (tmp_path / "64x48",)
    assert len(list(made[0].rglob("*.JPEG"))) == 4
    assert str(made) == f"{made[0]}\n" and str(made[0]) in repr(made) and str(made[0]) in made._repr_html_()


@pytest.mark.parametrize("changes", [{"count": 0}, {"resolutions": "500"}, {"mean_size": "big"}, {"oddities": ["odd"]}])
def test_impossible_sets_are_bad_values(tmp_path: Path, changes: dict[str, object]) -> None:
    """And nothing is written."""
    with pytest.raises(BadValue):
        loaderprobe.generate(tmp_path / "data", **changes)  # type: ignore[arg-type]  # bad on purpose
    assert not (tmp_path / "data").exists()


def test_doctor_returns_what_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a file, of the folder around it; with every reason in text and in a notebook, where it is escaped."""
    asked: list[Path] = []

    def capabilities(path: Path) -> tuple[Capability, ...]:
        asked.append(path)
        return CAPABILITIES

    monkeypatch.setattr("loaderprobe.api.doctor.capabilities", capabilities)
    (tmp_path / "file").touch()
    found = loaderprobe.doctor(tmp_path / "file")
    assert (tuple(found), asked) == (CAPABILITIES, [tmp_path])
    assert repr(found) == "<Capabilities: 1 of 2 can be measured in full>"
    assert all(text in str(found) for text in ("cold reads, proved", "<no GPU>", "to get it: an NVIDIA GPU, Hopper"))
    assert "&lt;no GPU&gt;" in found._repr_html_()
    assert found[1].sentence == found[1].why[0].sentence == "<no GPU>"
    with pytest.raises(BadValue, match="does not exist"):
        loaderprobe.doctor(tmp_path / "nowhere")

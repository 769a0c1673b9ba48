"""What the other verbs return, and that they need no callback."""

from __future__ import annotations

from pathlib import Path

import pytest

import loaderprobe
from loaderprobe.errors import BadValue
from loaderprobe.records.environment import Capability
from loaderprobe.records.remark import Remark, reported

CAPABILITIES = (
    Capability(name="cold_reads", state="yes", why=(Remark(code="evicted"),)),
    Capability(name="gpu_sm_occupancy", state="no", why=(reported("<no GPU>"),), next_step="hopper_gpu"),
)


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

"""`loaderprobe compare`: exit codes of gates, refusals, and formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.test_compare import OTHER_CPU, stored, uneven
from tests.cli.invoke import invoke


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A run, one that takes twice the time, and one of another machine."""
    place = tmp_path_factory.mktemp("runs")
    return (
        stored(place / "a"), stored(place / "b", slower=2), stored(place / "c", environment=OTHER_CPU),
    )  # fmt: skip


def test_a_gate_that_fails_has_a_code_of_its_own(runs: tuple[Path, Path, Path]) -> None:
    """6; without a gate, or where it holds, 0."""
    a, b, _ = runs
    assert invoke("compare", a, b).exit_code == 0
    failed = invoke("compare", a, b, "--fail-if-slower", "5%")
    assert failed.exit_code == 6 and "--fail-if-slower 5%: failed by" in failed.stdout
    assert invoke("compare", b, a, "--fail-if-slower", "5%").exit_code == 0
    held = invoke("compare", a, a, "--fail-if-slower", "5%", "--fail-if-unclear", "--fail-if-verdict-changes")
    assert held.exit_code == 0 and held.stdout.count(": held") == 3


def test_a_gate_that_cannot_see_fails_unless_that_is_allowed(tmp_path: Path) -> None:
    """With the same code as one that sees a loss."""
    noisy = uneven(tmp_path / "noisy")
    failed = invoke("compare", noisy, noisy, "--fail-if-slower", "5%")
    assert failed.exit_code == 6 and "too noisy to hold 5 %" in " ".join(failed.stdout.split())
    assert invoke("compare", noisy, noisy, "--fail-if-slower", "5%", "--allow-unclear").exit_code == 0
    both = invoke("compare", noisy, noisy, "--fail-if-unclear", "--allow-unclear")
    assert both.exit_code == 2 and "give one of the two" in both.stderr


def test_what_does_not_compare_is_refused(runs: tuple[Path, Path, Path]) -> None:
    """With code 2 and the option that allows it."""
    a, _, c = runs
    refused = invoke("compare", a, c)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "cpu_model" in refused.stderr and "--differ machine,software" in refused.stderr
    assert invoke("compare", a, c, "--differ", "machine, torch").exit_code == 0


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["A"], 2, "two results, but 1"),
        (["A", "A", "A"], 2, "--with"),
        (["A", "nowhere"], 2, "nowhere does not exist"),
        (["A", "A", "--json", "--md"], 2, "exclude each other"),
        (["A", "A", "--out", "A"], 5, "not empty"),
    ],
)
def test_trouble_has_a_code_and_a_reason(
    runs: tuple[Path, Path, Path], options: list[str], code: int, says: str
) -> None:
    """Before anything is compared."""
    done = invoke("compare", *(runs[0] if each == "A" else each for each in options))
    assert (done.exit_code, done.stdout) == (code, "") and says in done.stderr


def test_every_format_has_the_answer(tmp_path: Path, runs: tuple[Path, Path, Path]) -> None:
    """Nothing is written unless asked for; `report` shows what was kept."""
    a, b, _ = runs
    found = json.loads(invoke("compare", a, b, "--json", "--out", tmp_path / "o").stdout)
    assert [row["word"] for row in found["rows"]] == ["slower"] * 3 and found["passed"] and found["answers"]
    assert json.loads(invoke("report", tmp_path / "o", "--json").stdout) == found
    assert invoke("compare", a, b, "--md").stdout.startswith("# B against A")
    assert invoke("compare", a, b, "--html", tmp_path / "page.html").exit_code == 0
    assert "<svg" in (tmp_path / "page.html").read_text()
    several = invoke("compare", a, a, a, "--with", b, "--with", b, "--with", b, "--json")
    assert len(json.loads(several.stdout)["after"]["paths"]) == 3

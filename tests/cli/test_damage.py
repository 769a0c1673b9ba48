"""Stored results that are damaged: by a disk, by hand, or by someone who means harm."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaderprobe.api import sweep as verb
from loaderprobe.api.load import Run, load_any
from loaderprobe.api.sweep import foreign_modules
from loaderprobe.errors import LoaderprobeError
from loaderprobe.store.run_directory import RunDirectory
from loaderprobe.testing import example_config
from tests.analyze.runs import FILES
from tests.cli.invoke import invoke
from tests.stored import empty_run, full_run


def cli(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, standard error on one line."""
    done = invoke(*arguments)
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return full_run(tmp_path / "run")


def with_loader(path: Path, name: str) -> RunDirectory:
    """A run of which nothing is measured."""
    return empty_run(path, example_config(data=FILES.fingerprint, loader=name))


def altered(path: Path, change: Callable[[dict[str, object]], object]) -> bytes:
    tree = json.loads(path.read_bytes())
    (kind,) = tree.keys() - {"schema", "schema_version"}
    change(tree[kind])
    return json.dumps(tree).encode()


DAMAGES: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "cut": (lambda path: path.read_bytes()[:2000], "is damaged"),
    "absurd": (lambda path: path.read_bytes().replace(b'"wall_s":5.0', b'"wall_s":1e300'), "beyond"),
    "another's": (lambda path: altered(path, lambda m: m["config"].update(seed=9)), "another configuration"),  # type: ignore[attr-defined]  # plain JSON
    "no round": (
        lambda path: altered(path, lambda m: m.update(segments=m["segments"][:1])),  # type: ignore[index]  # plain JSON
        "the measurement has no complete round",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_measurement_is_a_failed_row_and_the_rest_is_shown(run: RunDirectory, damage: str) -> None:
    """Exit code 4 instead of 0; the row names the file and what is wrong; the other rows are as before."""
    whole, out, _ = cli("report", run.path, "--json")
    assert whole == 0
    before = json.loads(out)["configurations"]
    path = run.path / "measurements" / f"{run.record.spec.configs[1].key}.json"
    make, says = DAMAGES[damage]
    data = make(path)
    assert data != path.read_bytes()
    path.write_bytes(data)
    code, out, err = cli("report", run.path, "--json")
    assert (code, err) == (4, "")
    found = json.loads(out)
    after = found["configurations"]
    assert [damaged["file"] for damaged in found["run"]["damaged"]] == [f"measurements/{path.name}"]
    assert after[1]["status"] == "failed" and f"measurements/{path.name}" in after[1]["reason"]["sentence"]
    assert says in after[1]["reason"]["sentence"]
    assert [row["status"] for row in after] == ["measured", "failed", "measured", "failed"]
    assert [row["images_per_s"] for row in (after[0], after[2])] == [row["images_per_s"] for row in before[::2]]


def test_what_stands_in_the_place_of_a_file_is_said(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory, a pipe (which must not block) and a file without permission are rows with a reason."""
    path = run.path / "measurements" / f"{run.record.spec.configs[1].key}.json"
    data = path.read_bytes()
    path.unlink()
    path.mkdir()
    assert "it is a directory" in cli("report", run.path, "--format", "csv")[1]
    path.rmdir()
    os.mkfifo(path)
    assert "it is no regular file" in cli("report", run.path, "--format", "csv")[1]
    path.unlink()
    path.write_bytes(data)
    usual = Path.read_bytes

    def denied(file: Path) -> bytes:
        if file == path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return usual(file)

    monkeypatch.setattr(Path, "read_bytes", denied)
    code, out, _ = cli("report", run.path, "--format", "csv")
    assert code == 4 and "cannot be read: Permission denied" in out


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("files", "advice on where to keep"),
        ("ceilings", "what the storage can deliver is not known"),
        ("failures", "is damaged"),
    ],
)
def test_other_damaged_files_are_named_with_what_is_missing(run: RunDirectory, part: str, says: str) -> None:
    """Exit code 4, on the page and in JSON; all rows stay, and a figure without its ceiling has the file as reason."""
    (path,) = (run.path / part).iterdir()
    path.write_bytes(path.read_bytes()[:100])
    code, out, _ = cli("report", run.path)
    words = " ".join(out.split())
    assert code == 4 and f"{part}/{path.name}" in words and says in words
    found = json.loads(cli("report", run.path, "--json")[1])
    (damaged,) = found["run"]["damaged"]
    assert damaged["file"] == f"{part}/{path.name}" and damaged["reason"].startswith("is damaged: ")
    rows = found["configurations"][:3]
    assert [row["status"] for row in rows] == ["measured"] * 3
    if part == "ceilings":
        reasons = [row["unavailable"]["disk_ceiling_fraction"] for row in rows]
        assert {(reason["code"], reason["facts"]["file"]) for reason in reasons} == {("file_damaged", damaged["file"])}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'{"schema": "\\u001b[2J\\u202e"}', b"[" * 100_000, b'{"schema":1e400}', None]
)
def test_without_run_json_there_is_no_report(run: RunDirectory, data: bytes | None) -> None:
    """Exit code 2 with the file's name and a next step, and no character on the terminal that it would act on."""
    path = run.path / "run.json"
    if data is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(data)
    for command in (("report", run.path), ("sweep", "--resume", run.path)):
        code, out, err = cli(*command)
        assert (code, out) == (2, "")
        assert "run.json" in err and "try:" in err and "Traceback" not in err and not {"\x1b", "\u202e"} & {*err}


def test_a_name_in_a_run_leads_nowhere_else(run: RunDirectory) -> None:
    """A fingerprint with `../` in it is refused with run.json, and the file it points at is not opened."""
    aside = run.path.parent / "aside.json"
    aside.write_bytes(next((run.path / "files").iterdir()).read_bytes())
    path = run.path / "run.json"
    path.write_bytes(path.read_bytes().replace(run.record.spec.configs[0].data.encode(), b"../../aside"))
    code, out, err = cli("report", run.path)
    assert (code, out) == (2, "") and "no fingerprint" in err


@pytest.mark.usefixtures("same_machine")
def test_a_report_imports_nothing_that_a_run_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders and computes of third parties, known or not, are only words; resuming says what it will import."""
    (tmp_path / "surprise.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    run = with_loader(tmp_path / "run", "surprise:Loader")
    code, out, _ = cli("report", run.path, "--format", "csv")
    assert code == 0 and "surprise:Loader" in out and "surprise" not in sys.modules
    assert foreign_modules(run) == ("surprise",) and foreign_modules(with_loader(tmp_path / "own", "torch")) == ()
    monkeypatch.setattr(verb, "measure", lambda *_: None)
    _, _, err = cli("sweep", "--resume", run.path, "--quiet")
    assert "its module surprise is going to be imported" in err and "surprise" not in sys.modules


@pytest.mark.usefixtures("same_machine")
def test_a_run_with_an_unknown_name_is_shown_and_not_resumed(tmp_path: Path) -> None:
    """`report` shows it; `--resume` ends with exit code 2 before it begins."""
    run = with_loader(tmp_path / "run", "gone")
    assert cli("report", run.path)[0] == 0
    code, out, err = cli("sweep", "--resume", run.path)
    assert (code, out) == (2, "") and "there is no loader named 'gone'" in err


def test_a_full_disk_does_not_hide_what_was_measured(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is printed, the old summary stays whole, the error names the file and what to do."""
    (run.path / "summary.json").write_text("old")
    monkeypatch.setattr(verb, "describe_environment", lambda _: run.record.environment)
    monkeypatch.setattr(verb, "measure", lambda *_: None)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = cli("sweep", "--resume", run.path, "--json")
    assert code == 5 and "no space left" in err and "summary.json" in err and "try:" in err
    assert len(json.loads(out)["configurations"]) == 4
    assert (run.path / "summary.json").read_text() == "old"
    assert not list(run.path.glob(".*.part"))


# Any damage.

NUMBER = re.compile(rb"(?<=[:,\[ ])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?=[,\]}\n])")
NUMBERS = (
    b"1e400", b"-1e400", b"1e308", b"-1", b"0", b"NaN", b"Infinity", b"1" + b"0" * 30, b"1" + b"0" * 5000,
    b"9223372036854775807", b"-9223372036854775808", b"5e-324", b"1.5", b"null", b'"12"', b"true", b"[]",
)  # fmt: skip


def less(old: Any) -> Any:
    return old[:-1] if isinstance(old, list) else -old if isinstance(old, int | float) else None


def more(old: Any) -> Any:
    return 2 * old if isinstance(old, list) else 1e6 * old if isinstance(old, int | float) else []


VALUES: tuple[object, ...] = (
    None, {}, [], "", "../../x", "\x1b[31m", "<script>", "=cmd()", True, -1, 0, 1e18, 10**25, 0.5, [None],
    [[1]], {"a": 1}, less, more, ...,
)  # fmt: skip
PLACES = st.floats(0, 1, exclude_max=True)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything in a JSON value."""
    items = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    return [(tree, key) for key, _ in items] + [place for _, value in items for place in places(value)]


def with_value(data: bytes, where: float, value: object) -> bytes:
    """One value replaced by another of any type, or by what is made of it; `...` removes it."""
    tree = json.loads(data)
    found = places(tree)
    container, key = found[int(where * len(found))]
    if value is ...:
        del container[key]
    else:
        container[key] = value(container[key]) if callable(value) else value
    return json.dumps(tree).encode()


def with_number(data: bytes, where: float, number: bytes) -> bytes:
    found = list(NUMBER.finditer(data))
    chosen = found[int(where * len(found))]
    return data[: chosen.start()] + number + data[chosen.end() :]


def flipped(data: bytes, where: float, bits: int) -> bytes:
    at = int(where * len(data))
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


damages = st.one_of(
    st.builds(lambda where: lambda data: data[: int(where * len(data))], PLACES),
    st.builds(lambda where, bits: lambda data: flipped(data, where, bits), PLACES, st.integers(1, 255)),
    st.builds(lambda where, new: lambda data: with_number(data, where, new), PLACES, st.sampled_from(NUMBERS)),
    st.builds(lambda where, new: lambda data: with_value(data, where, new), PLACES, st.sampled_from(VALUES)),
)


def statuses(found: Any) -> list[str]:
    """Of the rows of a run; another result has none."""
    return [row.status for row in found.report().summary.configurations] if isinstance(found, Run) else []


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[str]]:
    """Copies of the results that are whole, each damaged and restored repeatedly, with their statuses."""
    place = Path(shutil.copytree("fixtures/runs", tmp_path_factory.mktemp("stored") / "runs"))
    whole = [path for path in sorted(place.iterdir()) if path.is_dir() and path.name != "damaged"]
    return {path: statuses(load_any(path)) for path in whole}


@settings(max_examples=70)
@given(st.data())
def test_any_damage_gives_a_result_or_one_of_our_errors(stored: dict[Path, list[str]], data: st.DataObject) -> None:
    """Cut, flipped, infinite, absurd or of another type: of a run only run.json ends the command, the rest costs a row
    at most. It is shown in every format, and nothing in it reaches a terminal or a page raw."""
    run = data.draw(st.sampled_from(sorted(stored)), label="run")
    files = sorted(path for path in run.rglob("*.json") if path.name != "summary.json")
    path, damage = data.draw(st.sampled_from(files), label="file"), data.draw(damages, label="damage")
    before = path.read_bytes()
    try:
        path.write_bytes(damage(before))
        try:
            found = load_any(run)
        except LoaderprobeError as error:
            assert path.name in ("run.json", "result.json") and error.exit_code == 2 and error.hint, error
            return
        assert "\x1b" not in found.text() + found.markdown() and "<script>" not in found.html()
        assert found.json() and found.csv()
        if path.name not in ("run.json", "result.json"):
            changed = sum(one != other for one, other in zip(statuses(found), stored[run], strict=True))
            assert changed <= ("measurements" in path.parts)
    finally:
        path.write_bytes(before)

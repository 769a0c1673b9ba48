"""Stored results that are damaged: by a disk, by hand, or by someone who means harm."""

from __future__ import annotations

import errno
import json
import os
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


@pytest.mark.parametrize("option", ["-o", "--format html -o"])
def test_a_page_is_never_written_over_what_was_measured(
    option: str, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run itself, its measurements, also of ranks, and its lists of files, by whatever path; an earlier page, and
    a summary, are replaced."""
    ranks = run.path / "measurements" / "0123456789abcdef"
    ranks.mkdir()
    (ranks / "rank-0.json").write_text("{}")
    (run.path / "link").symlink_to(run.path / "run.json")
    kept = {path: path.read_bytes() for path in run.path.rglob("*.json") if path.name != "summary.json"}
    monkeypatch.chdir(ranks)
    for path in (*kept, run.path / "link", "rank-0.json"):
        code, _, said = cli("report", run.path, *option.split(), path)
        assert code == 5 and "holds what was measured try: choose another path for -o" in said
    assert len(kept) > 3 and kept == {path: path.read_bytes() for path in kept}
    for page in (run.path / "page.html", run.path.parent / "result.json"):
        assert [cli("report", run.path, "-o", page)[0] for _ in range(2)] == [0, 0]


def with_loader(path: Path, name: str) -> RunDirectory:
    """A run of which nothing is measured."""
    return empty_run(path, example_config(data=FILES.fingerprint, loader=name))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def altered(change: Callable[[Any], object]) -> Callable[[Path], object]:
    """What a file holds is changed; it stays whole JSON."""

    def write(path: Path) -> None:
        tree = json.loads(path.read_bytes())
        (kind,) = tree.keys() - {"schema", "schema_version"}
        change(tree[kind])
        path.write_text(json.dumps(tree))

    return write


def in_its_place(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replaced(path: Path) -> None:
        path.unlink()
        make(path)

    return replaced


DAMAGES: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "cut": ("measurements", cut, "is damaged"),
    "absurd": ("measurements", altered(lambda found: found.update(wall_s=1e300)), "beyond"),
    "another's": ("measurements", altered(lambda found: found["config"].update(seed=9)), "another configuration"),
    "no round": ("measurements", altered(lambda found: found.update(segments=found["segments"][:1])), "complete round"),
    "a time that breaks the advice alone": (
        "measurements",
        altered(lambda found: found.update(alternatives=[{"name": "uint8", "cpu_s": 1.0, "usual_cpu_s": 1e-320}])),
        "cannot be judged",
    ),
    "a directory": ("measurements", in_its_place(Path.mkdir), "it is a directory"),
    "a pipe, which must not block": ("measurements", in_its_place(os.mkfifo), "it is no regular file"),
    "a list of files": ("files", cut, "advice on where to keep"),
    "a ceiling": ("ceilings", cut, "what the storage can deliver is not known"),
    "a failure": ("failures", cut, "is damaged"),
}
"""A file in this folder, what happens to it, and what is said."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_the_rest_is_shown(run: RunDirectory, damage: str) -> None:
    """Exit code 4, with the reason on the page and in JSON. A measurement is a failed row; a figure without its ceiling
    has the file as reason; all other rows are as before."""
    folder, change, says = DAMAGES[damage]
    before = json.loads(cli("report", run.path, "--json")[1])["configurations"]
    path = sorted((run.path / folder).iterdir())[0]
    file = f"{folder}/{path.name}"
    change(path)
    code, page, _ = cli("report", run.path)
    assert code == 4 and file in " ".join(page.split())
    code, out, err = cli("report", run.path, "--json")
    found = json.loads(out)
    (damaged,) = found["run"]["damaged"]
    assert (code, err, damaged["file"]) == (4, "", file)
    if folder != "measurements":
        assert says in " ".join(page.split()) and damaged["reason"].startswith("is damaged: ")
    for row, whole in zip(found["configurations"], before, strict=True):
        if row["key"] == path.stem:
            assert row["status"] == "failed" and file in row["reason"]["sentence"] and says in row["reason"]["sentence"]
        else:
            assert (row["status"], row["images_per_s"]) == (whole["status"], whole["images_per_s"])
        if folder == "ceilings" and row["status"] == "measured":
            reason = row["unavailable"]["disk_ceiling_fraction"]
            assert (reason["code"], reason["facts"]["file"]) == ("file_damaged", file)


RESTORE, RENDER = "restore it from a copy", "render it with the loaderprobe that wrote it"
RUN_JSON: tuple[tuple[tuple[bytes, bytes] | bytes | None, str, str], ...] = (
    *((data, "is damaged", RESTORE) for data in (b"", b"{", b"\xff", b"[]", b"null", b"[" * 100_000)),
    *(((b'"schema_version":1', b'"schema_version":' + other), "version 1", RENDER) for other in (b"0", b"2", b'"1"')),
    (b'{"schema": "another/program", "schema_version": 1}', "another/program version 1, not", RENDER),
    (b'{"schema": "\\u001b[2J\\u202e"}', "not loaderprobe/run", RENDER),
    (b'{"schema": "loaderprobe/run", "schema_version": 1}', "it has no run", RESTORE),
    *(
        ((old, new), "is damaged", RESTORE)
        for old, new in (
            (b'"workers":1', b'"workers":"1"'), (b'"workers":1', b'"workers":-2'), (b'"cold"', b'"hot"'),
            (b'"prefetch_factor":2', b'"prefetch_factor":0'), (b'"seed":0', b'"seed":1e400'),
        )
    ),
    ((b'"data":"', b'"data":"../../aside'), "no fingerprint", RESTORE),  # such a name would lead elsewhere
    (None, "it is a directory", "remove it"),
)  # fmt: skip
"""What it holds, or what replaces what in it; what is said, and the next step."""


@pytest.mark.parametrize(("change", "says", "step"), RUN_JSON)
def test_without_run_json_there_is_no_report(
    run: RunDirectory, change: tuple[bytes, bytes] | bytes | None, says: str, step: str
) -> None:
    """Cut, no JSON, of another version, kind or type, or with values that its records refuse: exit code 2 with its
    name and a next step, and no character on the terminal that it would act on."""
    path = run.path / "run.json"
    if change is None:
        in_its_place(Path.mkdir)(path)
    else:
        path.write_bytes(change if isinstance(change, bytes) else path.read_bytes().replace(*change))
    for command in (("report", run.path), ("sweep", "--resume", run.path)):
        code, out, err = cli(*command)
        assert (code, out) == (2, "") and "run.json" in err and says in err and f"try: {step}" in err
        assert "Traceback" not in err and not {"\x1b", "\u202e"} & {*err}


@pytest.mark.usefixtures("same_machine")
def test_a_report_imports_nothing_that_a_run_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders and computes of third parties, known or not, are only words; resuming says what it will import, and ends
    before it begins where there is no such name."""
    (tmp_path / "surprise.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(verb, "measure", lambda *_: None)
    says = {"surprise:Loader": "its module surprise is going to be imported", "gone": "there is no loader named 'gone'"}
    for number, name in enumerate(says):
        run = with_loader(tmp_path / str(number), name)
        code, out, _ = cli("report", run.path, "--format", "csv")
        assert code == 0 and name in out
        code, out, err = cli("sweep", "--resume", run.path, "--quiet")
        assert says[name] in err and (name != "gone" or (code, out) == (2, "")) and "surprise" not in sys.modules
    assert [foreign_modules(with_loader(tmp_path / name, name)) for name in ("surprise:Other", "torch")] == [
        ("surprise",), (),
    ]  # fmt: skip


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


def less(old: Any) -> Any:
    return old[:-1] if isinstance(old, list) else -old if isinstance(old, int | float) else None


def more(old: Any) -> Any:
    return 2 * old if isinstance(old, list) else 1e6 * old if isinstance(old, int | float) else []


RAW = ("1e400", "-1e400", "NaN", "Infinity", "1" + "0" * 30, "1" + "0" * 5000, "9223372036854775807")
VALUES: tuple[object, ...] = (
    None, {}, [], "", "12", "../../x", "\x1b[31m", "<script>", "=cmd()", True, -1, 0, 5e-324, 0.5, 1.5, 1e18, 1e308,
    [None], [[1]], {"a": 1}, less, more, ..., *RAW,
)  # fmt: skip
"""Of RAW ones the text itself, which no value of Python is written as."""
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
    text = json.dumps(tree)
    return (text.replace(f'"{value}"', value) if isinstance(value, str) and value in RAW else text).encode()


def flipped(data: bytes, where: float, bits: int) -> bytes:
    at = int(where * len(data))
    return data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]


damages = st.one_of(
    st.builds(lambda where: lambda data: data[: int(where * len(data))], PLACES),
    st.builds(lambda where, bits: lambda data: flipped(data, where, bits), PLACES, st.integers(1, 255)),
    st.builds(lambda where, new: lambda data: with_value(data, where, new), PLACES, st.sampled_from(VALUES)),
)


def statuses(found: Any) -> list[str]:
    """Of the rows of a run; another result has none."""
    return [row.status for row in found.report().configurations] if isinstance(found, Run) else []


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

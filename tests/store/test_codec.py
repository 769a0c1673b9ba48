"""Files written whole, and read back with all types checked; what is no such file is refused by name."""

from __future__ import annotations

import errno
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart, NoSpace
from loaderprobe.records.bandwidth import BandwidthReport
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.render.json import result_json
from loaderprobe.store.codec import decode, encode, file_place, write_atomically
from loaderprobe.store.results import read_result
from loaderprobe.testing import example_config
from tests.examples.bandwidth import example_bandwidth, example_operations

CONFIG = example_config()


def _altered(cache: str = "cold", **changes: object) -> bytes:
    """With another cache state, and changes to the loader."""
    envelope = json.loads(encode("config", CONFIG))
    envelope["config"]["cache"] = cache
    envelope["config"]["loader"].update(changes)
    return json.dumps(envelope).encode()


def _versioned(version: object) -> bytes:
    envelope = json.loads(encode("config", CONFIG))
    return json.dumps(envelope | {"schema_version": version}).encode()


@pytest.mark.parametrize(
    ("data", "says", "hint"),
    [
        *(
            (_versioned(other), f"is loaderprobe/config version {other}, .* version {SCHEMA_VERSION}", "that wrote it")
            for other in (0, SCHEMA_VERSION + 1, "1", None)
        ),
        (b'{"schema": "another/program", "schema_version": 1}', "another/program", ""),
        (encode("failure", CONFIG), "loaderprobe/failure", ""),
        (b'{"schema": "loaderprobe/config", "schema_version": 1}', "is damaged", "--resume"),
        *(
            (data, "is damaged", "--resume")
            for data in (b"", b"{", b"\xff\xfe", b"[]", b"null", encode("config", CONFIG)[:-5])
        ),
        (_altered(workers="2"), "is damaged", "--resume"),
        (_altered(cache="hot"), "is damaged", "--resume"),
        (_altered(workers=-2), "is damaged", "--resume"),
        (_altered(prefetch_factor=0), "is damaged", "--resume"),
    ],
)
def test_what_is_strange_or_damaged_is_refused_by_name(data: bytes, says: str, hint: str) -> None:
    """Another version or kind; cut, not JSON, of another type, or with values that the record itself refuses."""
    with pytest.raises(BadValue, match=says) as caught:
        decode("config", data, RunConfig, "x.json")
    assert "x.json" in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize("late", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (OSError(errno.ENOSPC, "full"), NoSpace), (OSError(errno.EDQUOT, "quota"), NoSpace),
        (OSError(errno.EROFS, "read-only"), MissingPart), (OSError(errno.EACCES, "no"), MissingPart),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)  # fmt: skip
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str, error: BaseException, becomes: type[BaseException]
) -> None:
    """However late the trouble comes, Ctrl-C too, the old file is whole and no half one stays."""
    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(late, fail)
    with pytest.raises(becomes):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("old.html", None, ""), ("new.html", None, ""), ("closed/old.html", MissingPart, "closed cannot be written"),
        ("old.html/new.html", BadValue, "old.html is a file"), (".", BadValue, "is a directory"),
        ("missing/new.html", MissingPart, "its directory is not there"),
    ],
)  # fmt: skip
def test_a_file_that_could_not_be_written_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: type[LoaderprobeError] | None, says: str
) -> None:
    """By what is in its place, and by its folder: there the new file is made, also where it replaces one."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "old.html").touch()
    (tmp_path / "closed" / "old.html").touch()
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path / "closed")
    with pytest.raises(error, match=says) if error else nullcontext():
        assert file_place(tmp_path / name, "--html") == tmp_path / name


# Results in single JSON files.


def _with(*path: str | int, value: Any) -> str:
    tree = json.loads(result_json(example_bandwidth()))
    place = tree
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(tree)


_OPENS = json.loads(msgspec.json.encode(example_operations({4: 1000.0})[0]))
BAD = {
    "empty": "",
    "no JSON": "MB/s",
    "a list": "[]",
    "another schema": '{"schema": "loaderprobe/summary", "schema_version": 1}',
    "another version": _with("schema_version", value=2),
    "a missing field": '{"schema": "loaderprobe/bandwidth", "schema_version": 1}',
    "a wrong type": _with("mean_size_bytes", value="big"),
    "a negative size": _with("mean_size_bytes", value=-1.0),
    "a number beyond all": _with("phases", 0, "bw_bytes", value=1e300),
    "infinity": _with("phases", 0, "bw_bytes", value=float("inf")),
    "a negative rate": _with("phases", 0, "bw_bytes", value=-5.0),
    "no readers": _with("phases", 0, "readers", value=0),
    # It is a number nowhere else, and all that is shown of durations goes by it.
    "another percentile": result_json(example_bandwidth()).replace("95.000000", "95/000000"),
    "a negative time": _with("phases", 0, "file_ns", "mean", value=-1.0),
    "opens without a rate": _with("metadata", value=[_OPENS | {"ops_per_s": 0.0}]),
    "opens of no readers": _with("metadata", value=[_OPENS | {"readers": 0}]),
    "opens that are neither cold nor warm": _with("metadata", value=[_OPENS | {"metadata": "cool"}]),
    "no amplification": _with("phases", 0, "amplification", value=0.0),
    "figures of too few ranks": _with("phases", 0, "ranks", value=2),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_a_bad_value_that_names_the_file(case: str, tmp_path: Path) -> None:
    """With what to do."""
    file = tmp_path / "found.json"
    file.write_text(BAD[case])
    with pytest.raises(BadValue, match=r"found\.json") as caught:
        read_result(file, {"loaderprobe/bandwidth": BandwidthReport}.get)
    assert "measure it again" in caught.value.hint

"""Files written whole, and read back with all types checked; what is no such file is refused by name."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.records.bandwidth import BANDWIDTH_SCHEMA, BandwidthReport
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.render.json import result_json
from loaderprobe.store.codec import decode, encode, write_atomically
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


def test_a_place_that_cannot_be_is_a_missing_part(tmp_path: Path) -> None:
    """Below a file, or in a directory that is not there, nothing can be written; the error says which path."""
    (tmp_path / "file").write_text("")
    for place in ("file", "none"):
        with pytest.raises(MissingPart, match=f"{place}/x.json"):
            write_atomically(tmp_path / place / "x.json", b"")


def _versioned(version: object, kind: str = "config") -> bytes:
    envelope = json.loads(encode(kind, CONFIG))
    return json.dumps(envelope | {"schema_version": version}).encode()


def test_a_record_comes_back_and_says_what_it_is() -> None:
    """The envelope names kind and version, and a tuple is a tuple again."""
    data = encode("config", CONFIG)
    assert json.loads(data)["schema"] == "loaderprobe/config"
    assert json.loads(data)["schema_version"] == SCHEMA_VERSION
    assert decode("config", data, RunConfig, "x.json") == CONFIG


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


def test_a_directory_that_has_vanished_is_no_lack_of_permission(tmp_path: Path) -> None:
    """The next step is to look for it."""
    with pytest.raises(MissingPart, match="its directory is not there") as caught:
        write_atomically(tmp_path / "gone" / "file.json", b"new")
    assert "moved or removed" in caught.value.hint


# Results in single JSON files.


def read_bandwidth(file: Path) -> BandwidthReport:
    found: BandwidthReport = read_result(file, {BANDWIDTH_SCHEMA: BandwidthReport}.get)
    return found


def test_a_bandwidth_result_comes_back(tmp_path: Path) -> None:
    """Equal to what was printed."""
    file = tmp_path / "found.json"
    report = replace(example_bandwidth(), metadata=example_operations({4: 1000.0}))
    file.write_text(result_json(report))
    assert read_bandwidth(file) == report


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
        read_bandwidth(file)
    assert "measure it again" in caught.value.hint


def test_a_file_that_is_not_there_is_a_bad_value(tmp_path: Path) -> None:
    """And so is no text."""
    with pytest.raises(BadValue, match="does not exist"):
        read_bandwidth(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadValue, match="no JSON"):
        read_bandwidth(tmp_path / "bytes.json")

"""Files written whole, and read with all types checked."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.records.config import RunConfig
from loaderprobe.records.environment import SCHEMA_VERSION
from loaderprobe.store.codec import decode, encode, write_atomically
from loaderprobe.testing import example_config

CONFIG = example_config()


def _altered(cache: str = "cold", **changes: object) -> bytes:
    """With another cache state, and changes to the loader."""
    envelope = json.loads(encode("config", CONFIG))
    envelope["config"]["cache"] = cache
    envelope["config"]["loader"].update(changes)
    return json.dumps(envelope).encode()


def test_a_record_comes_back_and_says_what_it_is() -> None:
    """The envelope names kind and version, and a tuple is a tuple again."""
    data = encode("config", CONFIG)
    assert json.loads(data)["schema"] == "loaderprobe/config"
    assert json.loads(data)["schema_version"] == SCHEMA_VERSION
    assert decode("config", data, RunConfig, "x.json") == CONFIG


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, "1", None])
def test_another_version_is_refused_with_both_versions(version: object) -> None:
    """The error names the file, its version and ours, and who can read it."""
    envelope = json.loads(encode("config", CONFIG)) | {"schema_version": version}
    with pytest.raises(
        BadValue, match=rf"x\.json is loaderprobe/config version {version}, .* version {SCHEMA_VERSION}"
    ) as caught:
        decode("config", json.dumps(envelope).encode(), RunConfig, "x.json")
    assert "that wrote it" in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff\xfe", b"[]", b"null", encode("config", CONFIG)[:-5],
        _altered(workers="2"), _altered(cache="hot"), _altered(workers=-2), _altered(prefetch_factor=0),
    ],
    ids=["empty", "binary", "list", "null", "cut", "type", "choice", "negative", "contradiction"],
)  # fmt: skip
def test_damage_of_any_kind_names_the_file_and_the_next_step(data: bytes) -> None:
    """Cut, not JSON, of another type, or with values that the record itself refuses."""
    with pytest.raises(BadValue, match=r"x\.json is damaged") as caught:
        decode("config", data, RunConfig, "x.json")
    assert "--resume" in caught.value.hint


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (OSError(errno.ENOSPC, "full"), NoSpace),
        (OSError(errno.EDQUOT, "quota"), NoSpace),
        (OSError(errno.EROFS, "read-only"), MissingPart),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_replacement_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, becomes: type[BaseException]
) -> None:
    """However late the trouble comes, Ctrl-C too, the old file is whole and no half one stays."""
    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(becomes):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_place_that_cannot_be_is_a_missing_part(tmp_path: Path) -> None:
    """Below a file, or in a directory that is not there, nothing can be written; the error says which path."""
    (tmp_path / "file").write_text("")
    for place in ("file", "none"):
        with pytest.raises(MissingPart, match=f"{place}/x.json"):
            write_atomically(tmp_path / place / "x.json", b"")

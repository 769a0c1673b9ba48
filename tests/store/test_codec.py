"""Files written whole, and read with all types checked."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from loaderprobe.errors import BadValue, MissingPart, NoSpace
from loaderprobe.records.config import RunConfig
from loaderprobe.store.codec import SCHEMA_VERSION, decode, encode, write_atomically
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
    ("kind", "value", "renamed"),
    [
        ("ceiling", {"kind": {"kind": "banked"}}, {"kind": {"kind": "token_bucket", "code": "token_bucket"}}),
        ("ceiling", {"kind": {"kind": "serial"}}, {"kind": {"kind": "single_server", "code": "single_server"}}),
        ("ceiling", {"kind": {"kind": "latency"}}, {"kind": {"kind": "latency", "code": "latency"}}),
        ("ceiling", {"kind": None, "phases": None}, {"kind": None, "phases": None}),
        ("ceiling", {"phases": [{"foreign_bytes_per_s": 1.0}]}, {"phases": [{"other_bytes_per_s": 1.0}]}),
        ("image-set", {"spec": {"pictures": 48}}, {"spec": {"base_images": 48}}),
        ("image-set-spec", {"pictures": 48}, {"base_images": 48}),
        ("run", {"kind": "banked", "pictures": 1}, {"kind": "banked", "pictures": 1}),
        ("measurement", {"segments": [{"activity": "train"}]}, {"segments": [{"activity": "training"}]}),
    ],
)
def test_version_2_migrates(kind: str, value: dict[str, object], renamed: dict[str, object]) -> None:
    """Names that later versions changed are renamed one version after the other, in files of their kind only."""
    envelope = {"schema": f"loaderprobe/{kind}", "schema_version": 2, kind: value}
    assert decode(kind, json.dumps(envelope).encode(), dict, "x.json") == renamed


def test_version_3_migrates() -> None:
    """Only what changed since is renamed; damaged segments stay as they are."""
    segments = [{"activity": "train"}, {"activity": "loader_only"}, {"activity": 1}, None]
    value = {"segments": segments, "pictures": 1}
    envelope = {"schema": "loaderprobe/measurement", "schema_version": 3, "measurement": value}
    found = decode("measurement", json.dumps(envelope).encode(), dict, "x.json")
    assert found == {"segments": [{"activity": "training"}, *segments[1:]], "pictures": 1}


QUOTED = {"code": "reported", "facts": {"reason": "no driver"}}
NOTED = {"code": "reported", "facts": {"text": "it snowed"}}


@pytest.mark.parametrize(
    ("kind", "value", "migrated"),
    [
        ("measurement", {"missing": [{"name": "gpu", "reason": "no driver"}]},
         {"missing": [{"name": "gpu", "reason": QUOTED}]}),
        ("measurement", {"notes": ["it snowed", "the budget left no time for another round"]},
         {"notes": [NOTED, {"code": "no_time"}]}),
        ("measurement", {"notes": ["it snowed", {}, ["x"], 3]}, {"notes": [NOTED, {}, ["x"], 3]}),
        ("measurement", {"notes": "it snowed"}, {"notes": "it snowed"}),
        ("measurement", {"waits": {"letters_only": "no driver"}}, {"waits": {"letters_only": QUOTED}}),
        ("measurement", {"waits": {"letters_only": None}}, {"waits": {"letters_only": None}}),
        ("measurement", {"timeline": {"rejected": [{"reason": "outside the window"}]}},
         {"timeline": {"rejected": [{"reason": "outside"}]}}),
        ("ceiling", {"missing": "no driver", "phases": [{"notes": ["it snowed"]}]},
         {"missing": QUOTED, "phases": [{"notes": [NOTED]}]}),
        ("ceiling", {"kind": {"kind": "unknown", "sentence": "no driver", "evidence": [{"metric": "rate of 4"}]}},
         {"kind": {"kind": "unknown", "code": "not_paced", "evidence": [{"metric": "rise_of_ladder"}],
                   "facts": {"because": "reported", "reason": "no driver"}}}),
        ("run", {"environment": {"gpu_reason": "no driver", "storage": [{"notes": ["it snowed"]}]}},
         {"environment": {"gpu_reason": QUOTED, "storage": [{"notes": [NOTED]}]}}),
        ("run", {"environment": "no driver"}, {"environment": "no driver"}),
        ("failure", {"reason": "no driver"}, {"reason": "no driver"}),
    ],
)  # fmt: skip
def test_version_4_migrates(kind: str, value: dict[str, object], migrated: dict[str, object]) -> None:
    """Sentences become codes that quote them, in files of their kind only; what is no record stays as it is."""
    envelope = {"schema": f"loaderprobe/{kind}", "schema_version": 4, kind: value}
    assert decode(kind, json.dumps(envelope).encode(), dict, "x.json") == migrated


@pytest.mark.parametrize("kind", ["prefilled", "epochs"])
@pytest.mark.parametrize(("reason", "becomes"), [("no driver", QUOTED), ("", None), (3, 3)])
def test_version_5_migrates(kind: str, reason: object, becomes: object) -> None:
    """Why a study was not made becomes a code that quotes it; of one that was made there is none."""
    envelope = {"schema": f"loaderprobe/{kind}", "schema_version": 5, kind: {"reason": reason, "epochs": []}}
    found = decode(kind, json.dumps(envelope).encode(), dict, "x.json")
    assert found == {"reason": becomes, "epochs": []}
    envelope = {"schema": "loaderprobe/failure", "schema_version": 5, "failure": {"reason": reason}}
    assert decode("failure", json.dumps(envelope).encode(), dict, "x.json") == {"reason": reason}


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

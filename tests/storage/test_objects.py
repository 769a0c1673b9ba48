"""Objects behind a URL: sampled, read whole or in ranges, failures counted by kind, and no secret anywhere."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import fsspec
import pytest

from loaderprobe.api.bandwidth import bandwidth
from loaderprobe.cli import main
from loaderprobe.datasets.folder import scan_url
from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.bandwidth import BandwidthMeasurement
from loaderprobe.records.files import FileSet, is_url, masked
from loaderprobe.storage import files as files_module
from loaderprobe.storage import probe as probe_module
from loaderprobe.storage.probe import ProbeRequest, probe_objects
from loaderprobe.system import objects
from loaderprobe.system.host import SystemClock
from loaderprobe.system.objects import TRANSIENT, kind_of, open_store


class Scripted(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Objects in memory, whose requests fail as scripted."""

    protocol = "scripted"
    cachable = False
    objects: ClassVar[dict[str, bytes]] = {}
    failures: ClassVar[dict[str, Iterator[BaseException]]] = {}
    """By object, or by the folder that is listed."""
    spans: ClassVar[list[tuple[str, int | None, int | None]]] = []
    sizes_listed: ClassVar[bool] = True

    def _may(self, path: str) -> None:
        if failure := next(self.failures.get(path, iter(())), None):
            raise failure

    def ls(self, path: str, detail: bool = True, **given: Any) -> list[dict[str, Any]]:
        self._may(path)
        found: dict[str, dict[str, Any]] = {}
        for name, body in self.objects.items():
            first, _, rest = name.removeprefix(f"{path}/").partition("/")
            if name.startswith(f"{path}/"):
                kind = "directory" if rest else "file"
                size = len(body) if self.sizes_listed else None
                found[first] = {"name": f"{path}/{first}", "type": kind, "size": size}
            elif name == path:
                found[name] = {"name": name, "type": "file", "size": len(body)}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values())

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self._may(path)
        return {"name": path, "type": "file", "size": len(self.objects[path])}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        self.spans.append((path, start, end))
        self._may(path)
        return self.objects[path][start:end]


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Forty images of 1 kB in four folders, and their labels; no waits between attempts."""
    images = {f"bucket/train/{k % 4}/{k}.jpg": bytes(1000) for k in range(40)}
    monkeypatch.setattr(Scripted, "objects", {**images, "bucket/train/labels.csv": b"0"})
    monkeypatch.setattr(Scripted, "failures", {})
    monkeypatch.setattr(Scripted, "spans", [])
    monkeypatch.setattr(objects, "WAIT_S", 0.0)
    fsspec.register_implementation("scripted", Scripted, clobber=True)
    return Scripted


def probed(url: str = "scripted://bucket/train", **changes: Any) -> BandwidthMeasurement:
    request = ProbeRequest(**{"readers": (1, 2), "seconds": 0.05, "metadata": True, **changes})
    return probe_objects(url, request, on_phase=lambda *_: None, clock=SystemClock())


def test_a_ladder_of_objects(scripted: type[Scripted]) -> None:
    """Images of all folders are read whole; what a file system would have is missing with a reason, and never 0."""
    measured = probed()
    assert [phase.readers for phase in measured.ladder] == [1, 2]
    assert measured.images and measured.files_found == measured.files_used == 40
    assert {(start, end) for _, start, end in scripted.spans} == {(None, None)}
    for phase in measured.phases:
        assert phase.cache == "remote" and phase.io_bytes == 1000 * phase.total_ios > 0
        assert (phase.storage_bytes, phase.cold_fraction, phase.amplification, phase.resident_before) == (None,) * 4
    missing = {each.name: each.reason.code for each in measured.missing}
    names = ("metadata", "direct", "sequential")
    assert missing == {**dict.fromkeys(names, "not_of_objects"), "first byte": "requests_hidden"}
    assert measured.location.kind == "object" and not measured.location.counts_reads and not measured.from_memory


def test_large_objects_are_read_in_ranges(scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each range once a pass, the last one shorter; small ones beside them whole; an object may be the URL itself. An
    image that is read in ranges among others is one image."""
    for module in (probe_module, files_module):
        monkeypatch.setattr(module, "LARGE_FILE_BYTES", 1000)
    monkeypatch.setattr(probe_module, "RANGE_BYTES", 400)
    scripted.objects = {"bucket/a.tar": bytes(1001), "bucket/b.tar": bytes(2000), "bucket/c.idx": bytes(10)}
    assert {note.code for note in probed("scripted://bucket").notes} >= {"large_objects_in_ranges"}
    assert {span for span in scripted.spans if span[0] != "bucket/b.tar"} == {
        ("bucket/a.tar", 0, 400), ("bucket/a.tar", 400, 800), ("bucket/a.tar", 800, 1001), ("bucket/c.idx", None, None)
    }  # fmt: skip
    scripted.objects |= {f"bucket/{k}.jpg": bytes(300) for k in range(8)}
    scripted.objects["bucket/8.jpg"] = bytes(7600)
    mixed = probed("scripted://bucket")
    assert mixed.images and mixed.mean_size_bytes == pytest.approx(10_000 / 9)
    assert mixed.ladder[0].files_per_s == pytest.approx(mixed.ladder[0].bw_bytes * 9 / 10_000, rel=0.5)
    scripted.spans.clear()
    assert probed("scripted://bucket/a.tar").files_used == 1
    assert {path for path, _, _ in scripted.spans} == {"bucket/a.tar"}


def error(name: str, **facts: Any) -> Any:
    """Of a class that a library has under this name, with what it knows of the reply."""
    return type(name, (Exception,), facts)("https://host/x?X-Amz-Signature=SECRET")


def caused(raised: BaseException, cause: BaseException) -> BaseException:
    raised.__cause__ = cause
    return raised


SLOW_DOWN = {"ResponseMetadata": {"HTTPStatusCode": 503}, "Error": {"Code": "SlowDown"}}
# As libraries of HTTP (`Reply`), botocore, gcsfs (`HttpError`, `ChecksumError`), google.auth (`RefreshError`), azure
# (`HttpResponseError`, `ClientAuthenticationError` without a reply) and aiohttp have them.
FAILURES: dict[str, tuple[BaseException, ...]] = {
    "403 Forbidden": (
        PermissionError("SECRET"), error("HttpResponseError", status_code=403),
        OSError("Forbidden: https://host/SECRET"),
    ),
    "404 Not Found": (FileNotFoundError("SECRET"),),
    "401 Unauthorized": (error("Reply", status=401), error("HttpError", code=401)),
    "429 Too Many Requests": (error("Reply", status=429),),
    "503 Service Unavailable": (
        caused(OSError(16, "SECRET"), error("ClientError", response=SLOW_DOWN)), error("HttpError", code="503"),
    ),
    "301 Moved Permanently": (error("Reply", status=301),),
    "408 Request Timeout": (error("HttpError", code="408"),),
    "credentials not refreshed": (error("RefreshError"),),
    "no credentials": (error("ClientAuthenticationError", status_code=None),),
    "timeout": (TimeoutError("SECRET"),),
    "truncated body": (error("ClientPayloadError", code=400), error("ChecksumError")),
    "no connection": (
        ConnectionResetError("SECRET"), caused(FileNotFoundError("SECRET"), ConnectionRefusedError("SECRET")),
    ),
    "OSError": (OSError("SECRET"),),
    "ZeroDivisionError": (ZeroDivisionError("SECRET"),),
}  # fmt: skip
"""Errors of libraries by their kind; each library names the status of a reply in its own way."""


@pytest.mark.parametrize(("given", "code", "says"), [("", 3, "no credentials"), ("AccountKey", 2, "as it is given")])
def test_wrong_credentials_are_not_missing(monkeypatch: pytest.MonkeyPatch, given: str, code: int, says: str) -> None:
    """The library's ValueError is the same; its text, which may have them, is not shown."""
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "CONNECTION_STRING", "ANON"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    if given:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", given)
    monkeypatch.setattr(fsspec.core, "url_to_fs", Mock(side_effect=ValueError("unable to connect: SECRET")))
    with pytest.raises(LoaderprobeError, match=says) as caught:
        open_store("az://bucket/train")
    assert caught.value.exit_code == code and "AZURE_STORAGE_CONNECTION_STRING" in caught.value.hint
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("kind", FAILURES)
def test_each_failure_has_its_kind(scripted: type[Scripted], kind: str) -> None:
    """Those that pass are tried again, and counted as such; those that stay are objects that could not be read, and
    cost no other. Its words are on the page."""
    assert {kind_of(error) for error in FAILURES[kind]} == {kind}
    scripted.failures = {"bucket/train/1/1.jpg": iter(FAILURES[kind][:1] * 2)}
    phase = probed(readers=(1,)).ladder[0]
    notes = [note.facts for note in phase.notes if note.code == "requests_retried"]
    again = kind in TRANSIENT
    assert notes == ([{"requests": 2, "why": kind}] if again else [])
    assert phase.unread == ({} if again else {kind: 1})
    scripted.failures = {"bucket/train/1/1.jpg": itertools.repeat(FAILURES[kind][0])}
    found = bandwidth("scripted://bucket/train", readers=1, seconds=0.1)
    assert found.steps[0].unread == {kind: 1} and found.steps[0].io_bytes % 39_000 == 0 < found.steps[0].io_bytes
    text = " ".join(found.text().split())
    assert f"1 image could not be read to the end: {kind}" in text
    assert (f"requests were made again: {kind}" in text) == again


def test_a_short_body_is_truncated(scripted: type[Scripted]) -> None:
    """Fewer bytes than the listing says, without an error of the library."""
    (store, name) = open_store("scripted://bucket/train"), "1/1.jpg"
    assert store.get(name, 0, 1000, whole=True)[0] == 1000
    with pytest.raises(OSError, match="truncated body"):
        store.get(name, 0, 1001, whole=True)
    assert store.retried == {"truncated body": 2}


@pytest.mark.parametrize(
    ("url", "failing", "error", "said"),
    [
        ("scripted://bucket/train", "listing", MissingPart, "403 Forbidden"),
        ("scripted://bucket/train", "listing", BadValue, "404 Not Found"),
        ("scripted://bucket/train", "listing", BadValue, "503 Service Unavailable"),
        ("scripted://bucket/train", "objects", MissingPart, "403 Forbidden"),
        ("scripted://bucket/train", "objects", BadValue, "404 Not Found"),
        ("scripted://bucket/none", "", BadValue, "404 Not Found"),
        ("nothing://a/b", "", BadValue, "fsspec knows no nothing://"),
        ("s3://a/b", "", MissingPart, "pip install"),
    ],
)
def test_nothing_to_read(
    scripted: type[Scripted], url: str, failing: str, error: type[LoaderprobeError], said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A listing that fails, objects none of which can be read, an address with nothing there, a scheme that nothing
    knows, and one whose library is missing are errors with their kind and exit code."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    paths = {"listing": ["bucket/train"], "objects": list(scripted.objects)}.get(failing, [])
    scripted.failures = {path: itertools.repeat(FAILURES[said][0]) for path in paths}
    with pytest.raises(error) as raised:
        probed(url)
    words = f"{raised.value} {raised.value.hint}"
    assert said in words and "SECRET" not in words


@pytest.mark.parametrize(("kind", "error"), [("403 Forbidden", MissingPart), ("404 Not Found", BadValue)])
def test_no_size_to_read(
    scripted: type[Scripted], monkeypatch: pytest.MonkeyPatch, kind: str, error: type[LoaderprobeError]
) -> None:
    """Without sizes listed they are asked for; what is refused is counted and replaced; all of it is an error."""
    monkeypatch.setattr(scripted, "sizes_listed", False)
    images = [path for path in scripted.objects if path.endswith(".jpg")]

    def listed(sample: int = 50) -> FileSet:
        return scan_url("scripted://bucket", sample=sample, seed=0, progress=lambda *_: None)

    scripted.failures = {path: itertools.repeat(FAILURES[kind][0]) for path in images[:10]}
    assert listed(30).count == 30
    scripted.failures = {images[0]: itertools.repeat(FAILURES[kind][0])}
    files = listed()
    assert (files.count, files.images_found, files.skipped_count) == (39, 39, 2)
    assert files.skipped[-1].path == "train/0/0.jpg" and kind in files.skipped[-1].reason
    assert probed().files_used == 39
    scripted.failures = {path: itertools.repeat(FAILURES[kind][0]) for path in images}
    monkeypatch.setattr(probe_module, "MOST_SIZED", 39)
    for measured in (listed, probed):
        with pytest.raises(error, match=kind):
            measured()


def test_options_of_file_systems_are_refused(tmp_path: Path) -> None:
    """With the name of the option; a file URL is a path, with all that a file system has."""
    for options in ({"scratch": "1MB"}, {"drop_caches": True}, {"ranks": 2}):
        with pytest.raises(BadValue, match="of a file system, not of a URL"):
            bandwidth("scripted://bucket/train", **options)
    (tmp_path / "0.jpg").write_bytes(bytes(1000))
    found = bandwidth(f"file://{tmp_path}", readers=1, seconds=0.1)
    assert found.path == str(tmp_path) and found.location.kind != "object"


MASKED = {
    "s3://bucket/train": "s3://bucket/train",
    "/data/a@b?c": "/data/a@b?c",
    "https://me:SECRET@host/a/?X-Amz-Signature=SECRET": "https://***@host/a/?***",
    "s3://KEY:SEC/RET@bucket/a": "s3://***@bucket/a",
    "--data=https://SECRET@host/a#SECRET": "--data=https://***@host/a?***",
    "simplecache::https://host/a?b SECRET\nSECRET": "simplecache::https://host/a?***",
    "s3://bucket/a@b.jpg": "s3://bucket/a@b.jpg",
}


def test_what_is_masked() -> None:
    """Userinfo and query of URLs, and nothing of paths."""
    assert {text: masked(text) for text in MASKED} == MASKED
    assert is_url("s3://a") and not is_url("/a") and not is_url("C:/a") and not is_url(Path("s3://a"))


def test_no_secret_is_kept(
    scripted: type[Scripted], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in files, nor in what is printed, nor in the command that is stored."""
    url = "scripted://me:SECRET@bucket/train?token=SECRET"
    monkeypatch.setattr(scripted, "_strip_protocol", classmethod(lambda cls, path: "bucket/train"))
    words = ["loaderprobe", "bandwidth", url, "--readers", "1", "--seconds", "0.1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", words)
    assert main() == 0
    printed = capsys.readouterr()
    kept = {path: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert len(kept) == 3 and "SECRET" not in "".join((printed.out, printed.err, *kept.values()))
    assert "scripted://***@bucket/train?***" in kept[tmp_path / "out" / "result.json"]

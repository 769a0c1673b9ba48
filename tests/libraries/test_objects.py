"""Real object stores through a proxy that plants latency, a rate and failures: SeaweedFS, and where they are installed
Azurite and an emulator of Google Cloud Storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from loaderprobe import generate, plan, sweep
from loaderprobe.api.bandwidth import bandwidth
from loaderprobe.errors import BadValue, MissingPart
from loaderprobe.records.verdict import Verdict
from loaderprobe.system import objects
from loaderprobe.system.objects import open_store
from tests.planted.objects import SECRETS, Proxy, environment, missing, proxied, put_folder, put_images, store

BUCKET = "planted"
ONE_WORKER: dict[str, Any] = {"workers": 1, "serial": False, "compute": "emulated:2000", "batch_size": 4}
FOUR_WORKERS: dict[str, Any] = {"workers": 4, "rounds": 4, "budget_s": 90}
SIZES = [20_000 + 1_000 * k for k in range(40)]


Servers = Callable[[str], int]
Photographs = Callable[..., str]
each_store = pytest.mark.parametrize("proxy", ["s3", "az", "gs"], indirect=True)


def kept_secrets(folder: Path) -> list[Path]:
    """The files that hold one."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS.values())]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """By scheme, the port of a server with forty images."""
    with ExitStack() as stack:

        @cache
        def port_of(scheme: str) -> int:
            if lacking := missing(scheme):
                pytest.skip(f"not installed: {lacking}")
            port = stack.enter_context(store(scheme, tmp_path_factory.mktemp(scheme)))
            put_images(scheme, port, BUCKET, SIZES)
            return port

        yield port_of


@pytest.fixture
def proxy(servers: Servers, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy of the test's own, which the environment names."""
    scheme = getattr(request, "param", "s3")
    with proxied(servers(scheme), scheme) as planted:
        for name, value in planted.environment.items():
            monkeypatch.setenv(name, value)
        yield planted


def test_latency_is_latency(proxy: Proxy) -> None:
    """100 ms a request: as many times the rate with as many readers, and the first byte takes that long."""
    proxy.latency_s = 0.1
    found = bandwidth(f"s3://{BUCKET}/train", readers=(1, 4), seconds=0.6)
    assert found.limit.by == "latency" and found.kind.kind == "latency" and found.files_used == 40
    for phase in found.ladder:
        assert phase.file_ns is not None
        assert phase.clat_ns.min >= 100e6 and phase.clat_ns.mean < phase.file_ns.mean
    assert all(feed.count > 0 for feed in found.feeds)


def test_a_rate_is_bandwidth(proxy: Proxy) -> None:
    """1 MB/s: no more with more readers, who wait longer for each object. A request's own time is a tenth of it."""
    proxy.bytes_per_s = 1e6
    found = bandwidth(f"s3://{BUCKET}/train", readers=(1, 4), seconds=0.6)
    assert found.limit.by == "bandwidth" and found.best is not None
    assert found.best.bw_bytes == pytest.approx(1e6, rel=0.1)


@each_store
@pytest.mark.parametrize(
    "kind", ["403 Forbidden", "404 Not Found", "503 Service Unavailable", "truncated body", "timeout"]
)
def test_failures_are_counted_by_kind(proxy: Proxy, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that pass are made again, the others are objects that could not be read; the rest is read."""
    monkeypatch.setattr(objects, "TIMEOUT_S", 0.5)
    planted = {"truncated body": "truncate", "timeout": "stall"}.get(kind, kind[:3])
    proxy.failures = {"/1.jpg": [planted] * 2}
    found = bandwidth(f"{proxy.scheme}://{BUCKET}/train", readers=2, seconds=0.3)
    phase = found.steps[0]
    retried = {str(note.facts["why"]): note.facts["requests"] for note in phase.notes if "why" in note.facts}
    if kind[:3] in ("403", "404"):
        assert (phase.unread, retried) == ({kind: 1}, {})
    else:
        assert (phase.unread, retried) == ({}, {kind: 2})
    assert phase.io_bytes > sum(SIZES) - SIZES[1] and kind in found.text()


@each_store
def test_what_is_not_there(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket, a folder, a server."""
    for path in ("none/train", f"{BUCKET}/none"):
        with pytest.raises(BadValue, match="404 Not Found"):
            bandwidth(f"{proxy.scheme}://{path}")
    for name, value in environment(proxy.scheme, port=9).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadValue, match="no connection"):
        bandwidth(f"{proxy.scheme}://{BUCKET}/train")


@pytest.mark.parametrize(
    ("proxy", "secret", "named", "other"),
    [
        ("s3", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        ("az", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING"),
    ],
    indirect=["proxy"],
)
def test_what_cannot_be_listed(
    proxy: Proxy, secret: str, named: str, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a wrong secret, which is in no error, and with none."""
    right, wrong = SECRETS[proxy.scheme], SECRETS[proxy.scheme][::-1]
    monkeypatch.setenv(secret, proxy.environment[secret].replace(right, wrong))
    with pytest.raises(MissingPart, match="403 Forbidden") as raised:
        bandwidth(f"{proxy.scheme}://{BUCKET}/train")
    assert wrong not in str(raised.value) + raised.value.hint and named in raised.value.hint
    monkeypatch.delenv(other)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(MissingPart, match="no credentials"):
        bandwidth(f"{proxy.scheme}://{BUCKET}/train")


@pytest.fixture(scope="module")
def photographs(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Photographs:
    """By scheme, the URL of 120 photographs; `behind` each of them so many bytes that decoders skip."""
    (made,) = generate(tmp_path_factory.mktemp("photographs"), resolutions="256x256", count=120)

    @cache
    def url_of(scheme: str, behind: int) -> str:
        folder, bucket = made, f"photographs-{behind}" if behind else "photographs"
        if behind:
            folder = tmp_path_factory.mktemp(bucket)
            for path in made.rglob("*.JPEG"):
                (folder / path.name).write_bytes(path.read_bytes() + bytes(behind))
        put_folder(scheme, servers(scheme), bucket, folder)
        return f"{scheme}://{bucket}"

    return lambda scheme, behind=0: url_of(scheme, behind)


def worth(verdict: Verdict | None) -> dict[str, float]:
    """By resource, its speed-up. Whether one is the cause also depends on what else this machine does."""
    assert verdict is not None
    found = {name: verdict.speedups.get(name) for name in ("network", "storage", "preprocessing", "compute")}
    return {name: speedup.value if speedup else 0.0 for name, speedup in found.items()}


@each_store
def test_a_sweep_streams_objects(proxy: Proxy, photographs: Photographs, tmp_path: Path) -> None:
    """50 ms a request: the network is worth most, nothing is called cold, workers are advised, a plan is made."""
    proxy.latency_s = 0.05
    run = sweep(photographs(proxy.scheme), out=tmp_path / "run", images=120, **ONE_WORKER)
    row = run.report().configurations[0]
    assert row.verdict and row.verdict.unavailable["read_amplification"].code == "not_of_objects"
    speedups = worth(row.verdict)
    assert max(speedups, key=lambda name: speedups[name]) == "network" and row.config.cache == "as-found"
    assert row.verdict.disk_ceiling_fraction is not None and row.verdict.cold_fraction is None
    assert "workers" in {each.action.code for each in row.verdict.advice}
    assert "cold" not in run.text() and not kept_secrets(tmp_path / "run")
    files = run.directory.files(row.config.data)
    assert (files.root, len(files.paths)) == (f"{proxy.scheme}://photographs/train", 120) and len(
        set(files.classes)
    ) == 10
    assert plan(run).source.data == files.root


def test_a_copy_of_objects_is_trained_on(proxy: Proxy, photographs: Photographs, tmp_path: Path) -> None:
    """Beside the objects, from cold files; it surely gains, and the rate of copying is that of several requests."""
    proxy.latency_s = 0.05
    run = sweep(photographs(proxy.scheme), out=tmp_path / "run", images=120, stage=tmp_path / "copy", **ONE_WORKER)
    report = run.report()
    assert [row.config.cache for row in report.configurations] == ["as-found", "cold"]
    (remark,) = report.staging
    assert remark.code == "staging" and remark.facts["epochs"] == 1 and "From a copy" in run.text()
    assert float(remark.facts["copying_s"]) < float(remark.facts["source_s"]) == remark.facts["first_s"]
    assert len(list((tmp_path / "copy").rglob("*.JPEG"))) == 120


@pytest.mark.parametrize(("bytes_per_s", "behind", "more"), [(1e6, 0, {"workers": 2}), (20e6, 400_000, FOUR_WORKERS)])
def test_a_limited_network_gets_no_more_workers(
    proxy: Proxy, photographs: Photographs, tmp_path: Path, bytes_per_s: float, behind: int, more: dict[str, Any]
) -> None:
    """A rate for all, which these workers reach: the network is worth most, and no more of them are advised."""
    url = photographs(proxy.scheme, behind)
    proxy.bytes_per_s = bytes_per_s
    run = sweep(url, out=tmp_path / "run", images=120, **{**ONE_WORKER, **more})
    row = run.report().configurations[0]
    speedups = worth(row.verdict)
    assert row.verdict and max(speedups, key=lambda name: speedups[name]) == "network"
    assert not {each.action.code for each in row.verdict.advice} & {"workers", "requests_in_flight"}


def test_http_is_listed_by_its_index(tmp_path: Path) -> None:
    """And by those that it links to; a request each has its size; no query is kept; links to nothing are counted."""
    pytest.importorskip("aiohttp")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(2):
            (tmp_path / folder / f"{number}.jpg").write_bytes(bytes(1000))
    (tmp_path / "b/dead.jpg").symlink_to("nothing")
    with served(tmp_path) as port:
        found = bandwidth(f"http://127.0.0.1:{port}/", readers=1, seconds=0.2)
        with pytest.raises(BadValue, match="is a page, not an object") as page:
            bandwidth(f"http://127.0.0.1:{port}/b", readers=1, seconds=0.2)
        with pytest.raises(BadValue, match=r"nothing is at http.*/b/dead.jpg: 404"):
            open_store(f"http://127.0.0.1:{port}/b/").read("dead.jpg")
        one = bandwidth(f"http://127.0.0.1:{port}/a/1.jpg?key=SECRET", readers=1, seconds=0.2)
    assert (found.files_used, found.mean_size_bytes, found.location.filesystem) == (4, 1000.0, "http")
    assert "1 files skipped: answered by 404 Not Found" in found.text() and "final /" in page.value.hint
    assert one.files_used == 1 and one.path == f"http://127.0.0.1:{port}/a/1.jpg?***"


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a web server of a folder."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()

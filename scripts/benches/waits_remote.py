"""A server of objects on 127.0.0.1 with a latency or a limited bandwidth, and the data sets that ask it.

Run as a program it serves the files of a folder until its standard input ends. The first part of a path says how:
`/10ms/...` answers after 10 ms, `/6MB/...` sends 6 MB/s over all connections together, `/fast/...` at once.
"""

from __future__ import annotations

import hashlib
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from scripts.benches.harness import child
from scripts.benches.waits_samples import Samples, Work, photographs_in

PIECE_BYTES = 1 << 14
CREDIT_S = 0.1
SECONDS_UNTIL_UP = 30.0
TIMEOUT_S = 30.0


class Bucket:
    """A rate shared by all connections; idle time is credit, up to CREDIT_S."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = time.monotonic()
        self._lock = Lock()

    def take(self, size_bytes: int) -> None:
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic() - CREDIT_S) + size_bytes / self._bytes_per_s
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))


class Objects(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    objects: dict[str, bytes]
    buckets: dict[str, Bucket]
    opened = Lock()

    def do_GET(self) -> None:  # http.server's name
        how, _, key = self.path.lstrip("/").partition("/")
        data = self.objects[key.rpartition("/")[2]]
        if how.endswith("ms"):
            time.sleep(float(how.removesuffix("ms")) / 1e3)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.md5(key.encode()).hexdigest()}"')
        self.end_headers()
        if not how.endswith("MB"):
            self.wfile.write(data)
            return
        with self.opened:
            bucket = self.buckets.setdefault(how, Bucket(float(how.removesuffix("MB")) * 1e6))
        for first in range(0, len(data), PIECE_BYTES):
            piece = data[first : first + PIECE_BYTES]
            bucket.take(len(piece))
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of these files, in a process of its own."""
    with subprocess.Popen(
        child("waits_remote", folder), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(SECONDS_UNTIL_UP)


class Remote(Samples):
    """Objects by GET, over one connection in each worker that stays open."""

    how = "10ms"

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        super().__init__(folder, work)
        self.keys = [f"bucket/train/{file.name}" for file in photographs_in(folder)]
        self.url = url
        self._client: Any = None

    @property
    def side(self) -> str:
        return "fast" if self.work.without == "network" else self.how


class HttpRequests(Remote):
    """requests, as most write it."""

    def read(self, index: int) -> Any:
        import requests

        if self._client is None:
            self._client = requests.Session()
        answer = self._client.get(f"{self.url}/{self.side}/{self.keys[index]}", timeout=TIMEOUT_S)
        answer.raise_for_status()
        return answer.content


class SlowHttp(HttpRequests):
    """The same, from far away."""

    how = "40ms"


class S3(Remote):
    """As a client of an object store does it, with its headers; latency."""

    how = "20ms"

    def read(self, index: int) -> Any:
        if self._client is None:
            self._client = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        headers = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ")}
        self._client.request("GET", f"/{self.side}/{self.keys[index]}", headers=headers)
        return self._client.getresponse().read()


class S3Narrow(S3):
    """The same, with a bandwidth that all connections share."""

    how = "6MB"


def serve() -> None:
    Objects.objects = {file.name: file.read_bytes() for file in Path(sys.argv[1]).rglob("*.JPEG")}
    Objects.buckets = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Objects)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()

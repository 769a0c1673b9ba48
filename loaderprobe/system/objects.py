"""Objects behind a URL, through fsspec: listed, and read whole or in ranges, with each failed request by its kind."""

from __future__ import annotations

import http
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

from loaderprobe.errors import BadValue, LoaderprobeError, MissingPart
from loaderprobe.records.files import masked

T = TypeVar("T")

ATTEMPTS = 3
"""Of one request: the default of AWS's SDKs (retry mode `standard`)."""
WAIT_S, WAIT_GROWS = 0.1, 1.7
"""Before the second attempt, and by how much more before each later one: as s3fs waits."""
TIMEOUT_S = 15.0
"""Of one attempt: what s3fs waits for a read."""
UNSIZED = "of unknown size"
TIMED_OUT, TRUNCATED, NO_CONNECTION = "timeout", "truncated body", "no connection"
_STATUS = {status.value: f"{status.value} {status.phrase}" for status in http.HTTPStatus}
NO_CREDENTIALS, NOT_REFRESHED = "no credentials", "credentials not refreshed"
TRANSIENT = (
    *(_STATUS[status] for status in (408, 429, 500, 502, 503, 504)), TIMED_OUT, TRUNCATED, NO_CONNECTION, NOT_REFRESHED,
)  # fmt: skip
"""Kinds of failures after which a request is made again."""
DENIED = (_STATUS[401], _STATUS[403], NO_CREDENTIALS, NOT_REFRESHED)
_FAMILIES = {"s3a": "s3", "https": "http", "gcs": "gs", "abfs": "az", "abfss": "az"}
_VARIABLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_ENDPOINT_URL; FSSPEC_S3_ANON=true without any",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or what gcloud keeps",
    "az": (
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CONNECTION_STRING; "
        "AZURE_STORAGE_ANON=true without any"
    ),
}
"""From which libraries take credentials."""
_NO_LOG = logging.NullHandler()
"""Keeps what a library logs from the terminal, unless the program has a log."""


class TruncatedBody(Exception):
    """The body of a reply ended before its object does."""


@dataclass(slots=True, kw_only=True)
class ObjectStore:
    """What is behind one URL. Several threads may call its methods at once."""

    url: str
    """Without what could be a credential."""
    family: str
    """The scheme, one for several names of it: s3, gs, az, http, file, memory."""
    filesystem: Any
    root: str
    """As the file system names it."""
    retried: Counter[str] = field(default_factory=Counter)
    """Kind of failure to the number of requests that were made again after it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def sees_requests(self) -> bool:
        """False where the library has no hook for the first byte."""
        return self.family in ("s3", "http")

    @property
    def endpoint(self) -> str:
        """Where requests go, as far as it is known."""
        client = getattr(self.filesystem, "_s3", None)
        return masked(str(client.meta.endpoint_url)) if client else self.url.split("/")[2] or self.family

    def listed(self) -> Iterator[tuple[str, int | None]]:
        """(name below the root, bytes) of each object, folder by folder; no size where a listing has none.

        The name is empty for a URL that is itself an object. Raises BadValue, or MissingPart without permission.
        """
        if self.family == "http" and not self.root.endswith("/"):
            info = self._answer(self.filesystem.info, self.root)
            if info.get("mimetype") == "text/html":
                raise BadValue(f"{self.url} is a page, not an object", hint="give the URL of a folder with a final /")
            yield "", info["size"]
            return
        folders = [self.root]
        while folders:
            folder = folders.pop()
            entries = self._answer(self.filesystem.ls, folder, detail=True)
            for entry in entries:
                path = str(entry["name"])
                below = path.removeprefix(self.root.rstrip("/")).strip("/")
                if entry["type"] == "directory":
                    folders += [path] if path.rstrip("/") != folder.rstrip("/") else []
                elif below or len(entries) == 1:
                    yield below, entry["size"]

    def sized(self, name: str, listed_bytes: int | None) -> tuple[int, str]:
        """(bytes, empty), asked for where none are listed, or (0, why there are none). Raises BadValue unanswered."""
        path, size_bytes = self._path(name), listed_bytes
        try:
            if size_bytes is None:
                size_bytes = self._repeated(lambda: self.filesystem.info(path))["size"]
        except Exception as error:  # noqa: BLE001  # see `get`
            if (kind := kind_of(error)) in TRANSIENT:
                raise self._refused(kind, path) from None
            return 0, f"answered by {kind}"
        return (size_bytes, "") if size_bytes else (0, UNSIZED if size_bytes is None else "empty")

    def check_permitted(self, reasons: Collection[str]) -> None:
        """Raise MissingPart where of reasons of `sized` those that are known are a lack of permission."""
        denied = [kind for kind in DENIED if f"answered by {kind}" in reasons]
        if denied and len(denied) == len({*reasons} - {UNSIZED}):
            raise self._refused(denied[0], self.root)

    def read(self, name: str) -> bytes:
        """A whole object. Raises as `listed` does."""
        return bytes(self._answer(self.filesystem.cat_file, self._path(name)))

    def get(self, name: str, offset: int, size_bytes: int, *, whole: bool) -> tuple[int, float]:
        """(bytes, seconds to the first byte of the last attempt). Raises OSError with the kind of failure."""
        path = self._path(name)
        span = {} if whole else {"start": offset, "end": offset + size_bytes}

        def once() -> tuple[int, float]:
            got, first_s = self._get(path, span)
            if got < size_bytes:
                raise TruncatedBody
            return got, first_s

        try:
            return self._repeated(once)
        except Exception as error:  # noqa: BLE001  # libraries have a tree of errors each; the kind is counted and shown
            raise OSError(kind_of(error)) from None

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root

    def _answer(self, ask: Callable[..., Any], path: str, **given: Any) -> Any:
        """What the file system says of a path."""
        try:
            return self._repeated(lambda: ask(path, **given))
        except Exception as error:  # noqa: BLE001  # see `get`
            # Its text may have what `masked` leaves out.
            raise self._refused(kind_of(error), path) from None

    def _refused(self, kind: str, path: str) -> LoaderprobeError:
        return _refused(self.family, kind, self.url.rstrip("/") + path.removeprefix(self.root.rstrip("/")))

    def _repeated(self, once: Callable[[], T]) -> T:
        """What `once` gives, tried again after failures that pass."""
        for attempt in range(ATTEMPTS - 1):
            try:
                return once()
            except Exception as error:
                kind = kind_of(error)
                if kind not in TRANSIENT:
                    raise
            with self._lock:
                self.retried[kind] += 1
            time.sleep(WAIT_S * WAIT_GROWS**attempt)
        return once()

    def _get(self, path: str, span: dict[str, int]) -> tuple[int, float]:
        """(bytes, seconds to the first of them; to the last where that is not seen)."""
        from fsspec.asyn import AsyncFileSystem, sync

        if not self.sees_requests:
            begun = time.perf_counter()
            limit = {"timeout": TIMEOUT_S} if isinstance(self.filesystem, AsyncFileSystem) else {}
            return len(self.filesystem.cat_file(path, **span, **limit)), time.perf_counter() - begun
        stream = self._stream_s3 if self.family == "s3" else self._stream_http
        headers = {"Range": f"bytes={span['start']}-{span['end'] - 1}"} if span else {}
        got: tuple[int, float] = sync(self.filesystem.loop, stream, path, headers, timeout=TIMEOUT_S)
        return got

    async def _stream_s3(self, path: str, headers: dict[str, str]) -> tuple[int, float]:
        begun = time.perf_counter()
        bucket, key, _ = self.filesystem.split_path(path)
        reply = await self.filesystem._call_s3("get_object", Bucket=bucket, Key=key, **headers)
        async with reply["Body"] as body:
            first = await body.read(1)
            first_s = time.perf_counter() - begun
            return len(first) + len(await body.read()), first_s

    async def _stream_http(self, path: str, headers: dict[str, str]) -> tuple[int, float]:
        begun = time.perf_counter()
        given = self.filesystem.kwargs
        headers = {**given.get("headers", {}), **headers, "Accept-Encoding": "identity"}
        session = await self.filesystem.set_session()
        async with session.get(self.filesystem.encode_url(path), **{**given, "headers": headers}) as reply:
            self.filesystem._raise_not_found_for_status(reply, path)
            first = await reply.content.read(1)
            first_s = time.perf_counter() - begun
            return len(first) + len(await reply.content.read()), first_s


def open_store(url: str) -> ObjectStore:
    """The store behind a URL. Raises BadValue for a scheme that is not known, MissingPart without its library."""
    import fsspec

    scheme = url.partition("://")[0]
    family = _FAMILIES.get(scheme, scheme)
    try:
        filesystem, root = fsspec.core.url_to_fs(url, skip_instance_cache=True, **_options(family))
    except ImportError as error:
        extra = f"loaderprobe[{family}]" if family in ("s3", "gs", "az", "http") else str(error)
        raise MissingPart(f"{masked(url)} needs a library: {error}", hint=f"pip install '{extra}'") from None
    except Exception as error:  # noqa: BLE001  # of the library, by its kind
        if isinstance(error, ValueError) and scheme not in fsspec.available_protocols():
            hint = "such as s3://, gs://, az://, https://, file://"
            raise BadValue(f"{masked(url)}: fsspec knows no {scheme}://", hint=hint) from None
        raise _refused_opening(family, error, masked(url)) from None
    _without_retries(filesystem, family)
    if family == "http" and url.endswith("/"):
        root = root.rstrip("/") + "/"
    return ObjectStore(url=masked(url), family=family, filesystem=filesystem, root=root)


def _refused_opening(family: str, error: Exception, url: str) -> LoaderprobeError:
    """A library that finds no credentials says so by a ValueError, as it does of those that it cannot use."""
    if not isinstance(error, ValueError) or family not in _VARIABLES:
        return _refused(family, kind_of(error), url)
    if not os.environ.keys() & set(re.findall(r"[A-Z_0-9]{8,}", _VARIABLES[family])):
        return _refused(family, NO_CREDENTIALS, url)
    hint = f"check it, and the credentials: {_VARIABLES[family]}"
    return BadValue(f"{url} cannot be opened as it is given", hint=hint)


def _refused(family: str, kind: str, url: str) -> LoaderprobeError:
    if kind in DENIED:
        variables = _VARIABLES.get(family, "those of the server")
        return MissingPart(f"no permission to read {url}: {kind}", hint=f"set credentials: {variables}")
    if kind == _STATUS[404]:
        return BadValue(f"nothing is at {url}: {kind}", hint="list it with a tool of its provider")
    return BadValue(f"{url} cannot be read: {kind}", hint="check the address of the server and the way to it")


def _without_retries(filesystem: Any, family: str) -> None:
    """Those of the library would hide failures and multiply the attempts made here, and so would its log of them."""
    with suppress(AttributeError):  # of a version without these parts, which keeps its own attempts
        if family == "s3":
            filesystem.retries = 1
        elif family == "gs":
            filesystem._request = partial(type(filesystem)._request.__wrapped__, filesystem)
        elif family == "az":
            filesystem.service_client._config.retry_policy.total_retries = 0
    for name in ("gcsfs", "azure"):
        logging.getLogger(name).addHandler(_NO_LOG)


@lru_cache(maxsize=8)
def _opened(url: str, _process: int) -> ObjectStore:
    """Once in each process: what a worker has from before it was forked is of no use to it."""
    return open_store(url)


def read_object(url: str, name: str) -> bytes:
    """A whole object below a URL. Raises BadValue, or MissingPart without permission."""
    return _opened(url, os.getpid()).read(name)


def _options(family: str) -> dict[str, Any]:
    """Of the library: no retries, which would hide failures, and as many connections as there are requests."""
    if family == "http":
        return {"get_client": _http_client}
    if family != "s3":
        return {}
    from fsspec.config import conf

    given = conf.get("s3", {}).get("config_kwargs", {})
    return {"config_kwargs": {**given, "retries": {"total_max_attempts": 1}, "max_pool_connections": 512}}


async def _http_client(*, loop: Any = None, **settings: Any) -> Any:
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), **settings)


def kind_of(error: BaseException) -> str:
    """What went wrong with a request: the status of the reply where there is one. Never the text of an error."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    names = {base.__name__ for cause in causes for base in type(cause).__mro__}
    for cause in causes:
        if (status := _status_of(cause)) in _STATUS and status >= http.HTTPStatus.MULTIPLE_CHOICES:
            return _STATUS[status]
    for kind, among in _NAMES:
        if names & among:
            return kind
    return type(causes[0]).__name__


def _status_of(error: BaseException) -> int:
    """Of the reply, where this error has it, else 0: in botocore, aiohttp, azure and gcsfs."""
    reply = getattr(error, "response", None)
    if isinstance(reply, dict):
        return int(reply.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if type(error) is OSError and str(error).startswith("Forbidden: "):  # gcsfs
        return http.HTTPStatus.FORBIDDEN
    names = ("status", "status_code", *(["code"] if type(error).__name__ == "HttpError" else []))
    # gcsfs has the text of a reply.
    return next((int(status) for name in names if str(status := getattr(error, name, "")).isdecimal()), 0)


_NAMES: tuple[tuple[str, set[str]], ...] = (
    (NO_CREDENTIALS, {"NoCredentialsError", "PartialCredentialsError", "ClientAuthenticationError"}),
    (NOT_REFRESHED, {"RefreshError"}),
    (TRUNCATED, {"TruncatedBody", "ClientPayloadError", "ContentLengthError", "IncompleteReadError", "ChecksumError"}),
    (TIMED_OUT, {"TimeoutError", "FSTimeoutError", "ReadTimeoutError", "ConnectTimeoutError"}),
    (NO_CONNECTION, {"ConnectionError", "ClientConnectionError", "ConnectionClosedError", "HTTPClientError"}),
    (_STATUS[404], {"FileNotFoundError", "NotADirectoryError"}),
    (_STATUS[403], {"PermissionError"}),
)
"""Kinds by the names of classes of errors, whose libraries may not be installed; the first that fits."""

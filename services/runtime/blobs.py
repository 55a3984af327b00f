"""Payloads beside the log. Invariant: a blob's name is its content hash, and what is read has been checked against it.

Every call has a deadline and fails as `BlobError`, whatever the driver behind fsspec raises. A driver that hangs keeps a thread
each time; when `HUNG` of a process's threads hang, further calls fail at once.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate
from urllib.parse import quote

import fsspec
from fsspec.implementations.local import LocalFileSystem

from schemas.ids import digest
from schemas.trajectories import BlobRef
from services.runtime.errors import Unavailable

DIGEST_DIGITS = 64
DEADLINE_S = 60.0
"""Longest that one call may take."""
HUNG = 16
"""Calls of a process that may be left behind, unanswered."""
INLINE_LIMIT = 64 << 10
"""Payloads above this many bytes belong here and not into an event."""


class BlobError(Unavailable):
    """A blob is missing, cannot be stored, or does not have the content its name says."""


_left: set[threading.Thread] = set()


def _bounded[**P, T](call: Callable[Concatenate[Blobs, P], T]) -> Callable[Concatenate[Blobs, P], T]:
    """The call, with the store's deadline, and with its driver's own errors as BlobError."""

    @wraps(call)
    def within(self: Blobs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        _left.difference_update([thread for thread in _left if not thread.is_alive()])
        if len(_left) >= HUNG:
            raise BlobError(
                f"blob store {self.url}: {len(_left)} calls hang; is it up? Start this service again"
            )
        found: list[T] = []
        failed: list[BaseException] = []

        def work() -> None:
            try:
                found.append(call(self, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001 (raised again where it was asked)
                failed.append(error)

        thread = threading.Thread(target=work, name="blobs", daemon=True)
        thread.start()
        thread.join(self.deadline_s)
        if found:
            return found[0]
        if not failed:
            _left.add(thread)
            late = TimeoutError(f"no answer within {self.deadline_s:g} s")
            raise BlobError(f"blob store {self.url}: {late}; is it up, and can it be reached?") from late
        error = failed[0]
        if isinstance(error, BlobError) or not isinstance(error, Exception):
            raise error
        said = " ".join(str(error).split())[:300]
        unreachable = OSError(said)  # as such, whoever asks tells it from a blob that is damaged
        unreachable.__cause__ = error
        raise BlobError(
            f"blob store {self.url}: {call.__name__}: {type(error).__name__}: {said}; look at TEMPER_BLOBS and its rights"
        ) from unreachable

    return within


class Blobs:
    """A content-addressed store in a folder, or at any fsspec address (`s3://bucket/path`, `memory://x`)."""

    def __init__(self, url: str, *, deadline_s: float = DEADLINE_S) -> None:
        """`url`: a folder or an fsspec address; `deadline_s`: of each call.

        Raises:
            BlobError: the address has an unknown scheme, or its driver is not installed.
        """
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except Exception as error:  # each driver has errors of its own
            raise BlobError(
                f"blob store {url}: {error}; set TEMPER_BLOBS to a folder or an fsspec address"
            ) from error
        self._local = isinstance(self._fs, LocalFileSystem)
        self._root = str(root).rstrip("/")
        self.deadline_s = deadline_s
        self._url = str(Path(root).resolve()) if self._local else self._fs.unstrip_protocol(self._root)

    def under(self, *names: str) -> Blobs:
        """A store of its own below this one, whose blobs are listed and removed apart from all others."""
        url = "/".join((self._url, *(quote(name, safe="") or "_" for name in names)))
        return Blobs(url, deadline_s=self.deadline_s)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    @_bounded
    def listed(self) -> dict[str, float]:
        """Digest -> when it was written (seconds since the epoch) of every blob of this store, and of none below it.

        Raises:
            BlobError: the store cannot be asked.
        """
        found: dict[str, float] = {}
        try:
            for path, facts in self._fs.glob(f"{self._root}/??/*", detail=True).items():
                name = str(path).rpartition("/")[2]
                if len(name) != DIGEST_DIGITS or facts.get("type") != "file":
                    continue
                try:
                    found[name] = float(self._fs.modified(path).timestamp())
                except FileNotFoundError:
                    continue  # somebody else has removed it
        except OSError as error:
            raise BlobError(f"blob store {self._url}: cannot be listed: {error}") from error
        return found

    @_bounded
    def remove(self, name: str) -> None:
        """Remove the payload of that digest; nothing where there is none.

        Raises:
            BlobError: the store does not do it.
        """
        try:
            self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise BlobError(f"blob store {self._url}: {name} cannot be removed: {error}") from error

    @_bounded
    def put(self, data: bytes) -> BlobRef:
        """Store `data`, and return where it is; storing the same again changes nothing, and mends a damaged blob.

        Raises:
            BlobError: the store does not take it.
        """
        name = digest(data)
        path = self._path(name)
        try:
            if not self._holds(path, data):
                self._write(path, data)
        except OSError as error:
            raise BlobError(f"blob store {self._url}: cannot write: {error}") from error
        return BlobRef(uri=f"{self._url}/{name[:2]}/{name}", digest=name, size=len(data))

    @_bounded
    def find(self, name: str) -> BlobRef | None:
        """Where the payload of that digest (64 hex digits) is, or None when this store has none.

        Raises:
            BlobError: the store cannot be asked, or `name` is no digest.
        """
        if len(name) != DIGEST_DIGITS or not set(name) <= set("0123456789abcdef"):
            raise BlobError(f"blob {name[:80]!r} is no SHA-256 digest")
        try:
            size = int(self._fs.size(self._path(name)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BlobError(f"blob store {self._url}: cannot be read: {error}") from error
        return BlobRef(uri=f"{self._url}/{name[:2]}/{name}", digest=name, size=size)

    @_bounded
    def get(self, ref: BlobRef) -> bytes:
        """The payload, checked.

        It is looked up in this store by its digest, never by the address in the event, which somebody else wrote.

        Raises:
            BlobError: missing, unreadable, or of other content than its digest says.
        """
        if len(ref.digest) != DIGEST_DIGITS or not set(ref.digest) <= set("0123456789abcdef"):
            raise BlobError(f"blob {ref.uri}: {ref.digest!r} is no SHA-256 digest")
        path = self._path(ref.digest)
        try:
            if self._fs.size(path) != ref.size:
                raise BlobError(
                    f"blob {ref.uri}: has {self._fs.size(path)} bytes, {ref.size} were stored; it is damaged"
                )
            data = bytes(self._fs.cat_file(path))
        except FileNotFoundError as error:
            raise BlobError(
                f"blob {ref.uri}: missing from {self._url}; do all services name the same TEMPER_BLOBS?"
            ) from error
        except OSError as error:
            raise BlobError(f"blob {ref.uri}: cannot be read: {error}") from error
        if digest(data) != ref.digest:
            raise BlobError(f"blob {ref.uri}: its content has another digest; it is damaged")
        return data

    def _path(self, name: str) -> str:
        return f"{self._root}/{name[:2]}/{name}"

    def _holds(self, path: str, data: bytes) -> bool:
        """Whether what is stored there is `data`: by its content, for a damaged blob can have the right size."""
        try:
            return self._fs.size(path) == len(data) and bytes(self._fs.cat_file(path)) == data
        except FileNotFoundError:
            return False

    def _write(self, path: str, data: bytes) -> None:
        """A reader sees the whole blob or none: object stores write so by nature, a folder by renaming."""
        if not self._local:
            self._fs.pipe_file(path, data)
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            partial.write_bytes(data)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

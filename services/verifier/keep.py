"""Where the progress of long answers lies, so that any worker can go on: in the blob store, beside the payloads.

`progress/<2 digits>/<key>/` holds one `record` (progress.py) and, in `parts`, the layers of its snapshots under their
digests. Invariant: a reader sees a whole record or none; a record is replaced only by one that is further. In a folder a
lock makes looking and replacing one step. At other addresses (s3://...) two workers that hold the same answer at the same
moment could both write; the next look of either shows which stands, and at worst a stage is run twice.

Nothing here is forced to the disk: kill -9 loses nothing, and what a power cut damages is recognised by its digest.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from services.runtime.blobs import BlobError
from services.verifier.progress import DamagedRecordError, Progress, decode, encode

FOLDER = "progress"
LOCK_S = 10.0
RETRY_S = 0.005
log = logging.getLogger(__name__)


class Keep:
    """Records and snapshots under an fsspec address or folder: the blob store's. All calls block; they are for threads."""

    def __init__(self, url: str) -> None:
        """Raises BlobError: the address has an unknown scheme, or its driver is not installed."""
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BlobError(
                f"blob store {url}: {error}; set TEMPER_BLOBS to a folder or an fsspec address"
            ) from error
        self._local = isinstance(self._fs, LocalFileSystem)
        self._root = str(root).rstrip("/")

    def parts(self, key: str) -> str:
        """Address of the store for the snapshots of `key`."""
        path = f"{self._folder(key)}/parts"
        return path if self._local else str(self._fs.unstrip_protocol(path))

    def address(self, key: str, snapshot: str) -> str:
        """Where the snapshot of that digest is; empty for none."""
        return f"{self.parts(key)}/{snapshot[:2]}/{snapshot}" if snapshot else ""

    def read(self, key: str) -> Progress:
        """The progress of `key`; that of an answer nobody has seen where there is no record, or only a damaged one.

        Raises:
            BlobError: the store cannot be asked.
        """
        try:
            return decode(key, bytes(self._fs.cat_file(self._record(key))))
        except FileNotFoundError:
            return Progress()
        except DamagedRecordError as error:
            log.warning("%s; all its stages are run again", error)
            return Progress()
        except OSError as error:
            raise BlobError(f"{self._record(key)}: cannot be read: {error}") from error

    def write(self, key: str, progress: Progress) -> Progress:
        """Put `progress` in place unless what is there is as far or further; returns what stands then.

        Raises:
            BlobError: the store does not take it.
        """
        try:
            with self._locked(key):
                there = self.read(key)
                if there.rank >= progress.rank:
                    return there
                self._replace(self._record(key), encode(key, progress))
                return progress
        except OSError as error:
            raise BlobError(f"{self._record(key)}: cannot be written: {error}") from error

    def drop_parts(self, key: str) -> None:
        """Remove the snapshots of `key`: its verdict is out. The record stays, for a record of the log that comes again.

        Raises:
            BlobError: they cannot be removed.
        """
        self._remove(f"{self._folder(key)}/parts")

    def drop(self, key: str) -> None:
        """Remove all of `key`. Raises BlobError."""
        self._remove(self._folder(key))

    def sweep(self, older_s: float, now: float | None = None) -> int:
        """Remove whatever was not written to for `older_s` seconds before `now` (of the wall clock); returns how many.

        Raises:
            BlobError: the store cannot be asked.
        """
        before = (time.time() if now is None else now) - older_s
        removed = 0
        try:
            folders = self._fs.glob(f"{self._root}/{FOLDER}/*/*")
            for folder in folders:
                if self._written(folder) < before:
                    self._remove(folder)
                    removed += 1
        except OSError as error:
            raise BlobError(f"{self._root}/{FOLDER}: cannot be swept: {error}") from error
        return removed

    def _written(self, folder: str) -> float:
        """When its record was, or the folder itself where there is none yet; now, for what has just been removed."""
        for path in (f"{folder}/record", folder):
            with contextlib.suppress(FileNotFoundError):
                return float(self._fs.modified(path).timestamp())
        return time.time()

    def _folder(self, key: str) -> str:
        return f"{self._root}/{FOLDER}/{key[:2]}/{key}"

    def _record(self, key: str) -> str:
        return f"{self._folder(key)}/record"

    def _replace(self, path: str, data: bytes) -> None:
        if not self._local:
            self._fs.pipe_file(path, data)
            return
        partial = Path(f"{path}.{uuid.uuid4().hex}")
        try:
            partial.write_bytes(data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Alone with the record, where the store is a folder; the kernel frees the lock of whoever dies."""
        if not self._local:
            yield
            return
        folder = Path(self._folder(key))
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    # flock has no waiting with a deadline; whoever holds it does so for a write of some kilobytes.
                    if time.monotonic() >= end:
                        raise
                    time.sleep(RETRY_S)
            yield
        finally:
            os.close(descriptor)

    def _remove(self, path: str) -> None:
        try:
            self._fs.rm(path, recursive=True)
        except FileNotFoundError:
            return  # somebody else was faster, or nothing was ever kept
        except OSError as error:
            raise BlobError(f"{path}: cannot be removed: {error}") from error

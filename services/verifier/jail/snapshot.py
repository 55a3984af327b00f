"""Snapshots of the working folder as content-addressed layers.

Invariant: a layer's digest is the SHA-256 of its canonical bytes, a snapshot's that of its list of layers; whatever is
read back from a store is checked against the digest before it is used, and a layer is data only (no links followed,
nothing executed). Layers are shared: a snapshot holds those of its base and its own on top.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from services.verifier.jail.job import Change
from services.verifier.jail.tree import KEPT, Entry, Tree, change, display, overlay, sha256

FORMAT = 1
ID_DIGITS = 64
SNAPSHOT_SUFFIX, LAYER_SUFFIX = ".snapshot", ".layer"


class SnapshotError(ValueError):
    """A snapshot that is absent, damaged or not what its digest says; the message is one line."""


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """One path of a stored layer. `content` is a file's bytes or a link's target."""

    path: bytes
    kind: str
    mode: int
    content: bytes
    opaque: bool


class _StoredLayer(msgspec.Struct, frozen=True, array_like=True):
    version: int
    rows: list[_Row]


class _Manifest(msgspec.Struct, frozen=True, array_like=True):
    version: int
    layers: list[str]


@dataclass(frozen=True)
class Layer:
    """What one run, or one set of given files, changed; make it with `layer_of`."""

    tree: Tree

    @cached_property
    def encoded(self) -> bytes:
        """The canonical bytes: sorted by path, without times and owners."""
        rows = [_Row(path, e.kind, e.mode, e.content, e.opaque) for path, e in sorted(self.tree.items())]
        return msgspec.msgpack.encode(_StoredLayer(FORMAT, rows))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hex."""
        return sha256(self.encoded)


def layer_of(tree: Tree) -> Layer:
    """The layer of a collected tree. A special file (FIFO, socket, device) is not kept; what it replaced is gone."""
    gone = Entry("whiteout", 0, 0, "")
    return Layer({p: e if e.kind in KEPT or e.kind == "whiteout" else gone for p, e in tree.items()})


def decode_layer(data: bytes) -> Layer:
    """The layer of canonical bytes. Raises SnapshotError when they are not a layer."""
    try:
        stored = msgspec.msgpack.decode(data, type=_StoredLayer)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"not a snapshot layer: {error}") from error
    if stored.version != FORMAT:
        raise SnapshotError(f"snapshot layer of format {stored.version}: this version reads {FORMAT}")
    tree: dict[bytes, Entry] = {}
    for row in stored.rows:
        parts = row.path.split(b"/")
        if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
            raise SnapshotError(f"snapshot layer with the path {display(row.path)!r}")
        if row.kind not in KEPT and row.kind != "whiteout":
            raise SnapshotError(f"snapshot layer with a {row.kind!r}")
        plain = row.kind in ("file", "symlink")
        size, digest = (len(row.content), sha256(row.content)) if plain else (0, "")
        tree[row.path] = Entry(row.kind, row.mode, size, digest, row.content, row.opaque)
    return Layer(tree)


@dataclass(frozen=True)
class Snapshot:
    """A state of /w: layers, lowest first. Held in memory; `save` and `load` move it to and from a folder."""

    layers: tuple[Layer, ...]

    @cached_property
    def manifest(self) -> bytes:
        """The canonical bytes of the list of layers."""
        return msgspec.msgpack.encode(_Manifest(FORMAT, [layer.digest for layer in self.layers]))

    @cached_property
    def digest(self) -> str:
        """The id: SHA-256, in hex, of the list of layers."""
        return sha256(self.manifest)

    @cached_property
    def tree(self) -> dict[bytes, Entry]:
        """The merged tree."""
        return overlay(layer.tree for layer in self.layers)

    def read(self, path: str) -> bytes | None:
        """The bytes of a regular file; None when there is none of that path (links are never followed)."""
        entry = self.tree.get(path.encode("utf-8", "surrogateescape"))
        if entry is None:
            entry = next((e for p, e in self.tree.items() if display(p) == path), None)
        return entry.content if entry is not None and entry.kind == "file" else None

    def target(self, path: str) -> str | None:
        """The target of a symbolic link, as text; None when there is no link of that path."""
        entry = self.tree.get(path.encode("utf-8", "surrogateescape"))
        return display(entry.content) if entry is not None and entry.kind == "symlink" else None

    def listing(self) -> dict[str, Change]:
        """Every path of the merged tree."""
        return {display(path): change(path, entry) for path, entry in sorted(self.tree.items())}

    def close(self) -> None:
        """Forget the merged tree; the snapshot stays usable."""
        self.__dict__.pop("tree", None)


def save(snapshot: Snapshot, folder: Path) -> str:
    """Write what is not yet there under `folder`; returns the id. Each file appears by rename. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for layer in snapshot.layers:
        _put(folder / (layer.digest + LAYER_SUFFIX), layer.encoded)
    _put(folder / (snapshot.digest + SNAPSHOT_SUFFIX), snapshot.manifest)
    return snapshot.digest


def _put(path: Path, data: bytes) -> None:
    if path.exists():
        return
    handle, scratch = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(scratch).rename(path)
    except BaseException:
        Path(scratch).unlink()
        raise


def load(snapshot_id: str, folder: Path) -> Snapshot:
    """The snapshot of that id. Raises SnapshotError when it is absent or a digest does not match."""
    if len(snapshot_id) != ID_DIGITS or set(snapshot_id) - set("0123456789abcdef"):
        raise SnapshotError(f"snapshot id {snapshot_id[:80]!r}: give the 64 hex digits that a run printed")
    manifest = msgspec.msgpack.decode(_get(folder, snapshot_id, SNAPSHOT_SUFFIX), type=_Manifest)
    layers = tuple(decode_layer(_get(folder, digest, LAYER_SUFFIX)) for digest in manifest.layers)
    return Snapshot(layers)


def _get(folder: Path, digest: str, suffix: str) -> bytes:
    path = folder / (digest + suffix)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"snapshot part {path} cannot be read: {error.strerror}") from error
    if sha256(data) != digest:
        raise SnapshotError(f"snapshot part {path} is damaged: its bytes do not match its name")
    return data

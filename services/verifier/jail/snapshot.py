"""Snapshots of the working folder as content-addressed layers.

Invariant: a layer's digest is the SHA-256 of its canonical bytes, a snapshot's that of its list of layers; whatever is
read back from a store is checked against the digest before it is used; what `save` takes, `load` gives back, and a slot can
lay it out (`check_snapshot`: one rule, where a snapshot is made, kept and loaded). Layers are shared: a snapshot holds those of
its base and its own on top.

Not part of a snapshot: times, owners, extended attributes, setuid and setgid bits. Files that were hard links to each
other are files of their own afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from services.runtime.errors import Unavailable
from services.verifier.jail.job import Change
from services.verifier.jail.layers import FORMAT, Layer, SnapshotError, check_layer, decode_layer, layer_of
from services.verifier.jail.tree import Entry, change, check, display, overlay, sha256, tree_digest

if TYPE_CHECKING:
    from schemas.trajectories import BlobRef

__all__ = [
    "Layer",
    "Snapshot",
    "SnapshotError",
    "Store",
    "check_snapshot",
    "decode_layer",
    "layer_of",
    "load",
    "save",
    "stacked",
]

ID_DIGITS = 64
MAX_LAYERS = 64
STACK = 16
"""Layers that a new snapshot may have; of more, one is made."""
MAX_BYTES = 1 << 30
"""Of all layers of a snapshot together, as stored. A slot's folder has room for as much and for MAX_PATHS part-filled pages."""
MAX_PATHS = 90_000
"""Of the merged tree: a slot's folder takes 100,000, the jail's own files among them."""


class Store(Protocol):
    """Where the parts of snapshots are kept under their SHA-256: `services.runtime.blobs.Blobs`."""

    def put(self, data: bytes) -> BlobRef: ...  # noqa: D102 (as in Blobs)
    def find(self, name: str) -> BlobRef | None: ...  # noqa: D102
    def get(self, ref: BlobRef) -> bytes: ...  # noqa: D102


class _Manifest(msgspec.Struct, frozen=True, array_like=True):
    version: int
    layers: list[str]


@dataclass(frozen=True)
class Snapshot:
    """A state of /w: layers, lowest first. Held in memory; `save` and `load` move it to and from a store."""

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

    @cached_property
    def tree_digest(self) -> str:
        """SHA-256, in hex, of the merged tree: equal for equal files, however they came about."""
        return tree_digest(self.tree)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Special files that runs left and that are not part of it, each as `'path' (kind)`."""
        return tuple(name for layer in self.layers for name in layer.dropped)

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


def stacked(layers: tuple[Layer, ...]) -> Snapshot:
    """The snapshot of these layers, lowest first: of many, or of big ones that hide one another, merged into one.

    Raises SnapshotError, with one line about why, when it could not be kept or laid out again.
    """
    if len(layers) > STACK or sum(layer.size for layer in layers) > MAX_BYTES:
        layers = (Layer(overlay(layer.tree for layer in layers)),)
    snapshot = Snapshot(layers)
    check_snapshot(snapshot)
    return snapshot


def check_snapshot(snapshot: Snapshot) -> None:
    """Raise SnapshotError unless the snapshot can be kept, loaded and laid out; the line says what of it cannot."""
    if len(snapshot.layers) > MAX_LAYERS:
        raise SnapshotError(f"{len(snapshot.layers)} layers are too many: {MAX_LAYERS} can be kept")
    held = sum(layer.size for layer in snapshot.layers)
    if held > MAX_BYTES:
        raise SnapshotError(f"its files and names, {held} bytes, are too big: {MAX_BYTES} can be kept")
    for layer in snapshot.layers:
        check_layer(layer)
    if len(snapshot.tree) > MAX_PATHS:
        raise SnapshotError(f"{len(snapshot.tree)} paths are too many: {MAX_PATHS} can be laid out")
    try:
        check(snapshot.tree)
    except ValueError as error:
        raise SnapshotError(str(error)) from error


def save(snapshot: Snapshot, store: Store | Path) -> str:
    """Keep what is not yet in `store` (a folder, too); returns the id, with which any other machine can `load` it.

    The list of layers goes last: an id that can be found is whole. Raises BlobError, and SnapshotError, with nothing kept,
    for what `load` would refuse.
    """
    check_snapshot(snapshot)
    blobs = _opened(store)
    for layer in snapshot.layers:
        blobs.put(layer.encoded)
    blobs.put(snapshot.manifest)
    return snapshot.digest


def load(snapshot_id: str, store: Store | Path) -> Snapshot:
    """The snapshot of that id, every part checked against its digest.

    Raises SnapshotError when it is absent, damaged or not a snapshot, and BlobError when the store cannot be asked.
    """
    if len(snapshot_id) != ID_DIGITS or set(snapshot_id) - set("0123456789abcdef"):
        raise SnapshotError(f"snapshot id {snapshot_id[:80]!r}: give the 64 hex digits that a run printed")
    blobs = _opened(store)
    try:
        manifest = msgspec.msgpack.decode(_part(blobs, snapshot_id, MAX_BYTES), type=_Manifest)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"{snapshot_id[:12]} is a stored payload, but no snapshot") from error
    if manifest.version != FORMAT or len(manifest.layers) > MAX_LAYERS:
        raise SnapshotError(
            f"snapshot {snapshot_id[:12]} of format {manifest.version} with {len(manifest.layers)} layers: "
            f"this version reads format {FORMAT} and {MAX_LAYERS} layers"
        )
    layers, left = list[Layer](), MAX_BYTES
    for digest in manifest.layers:
        data = _part(blobs, digest, left)
        left -= len(data)
        layers.append(decode_layer(data))
    snapshot = Snapshot(tuple(layers))
    try:
        check_snapshot(snapshot)
    except SnapshotError as error:
        raise SnapshotError(f"snapshot {snapshot_id[:12]} cannot be laid out: {error}") from error
    return snapshot


def _opened(store: Store | Path) -> Store:
    if not isinstance(store, Path):
        return store
    from services.runtime.blobs import Blobs

    return Blobs(str(store))


def _part(blobs: Store, digest: str, most: int) -> bytes:
    """The bytes of one part, checked. Raises SnapshotError; BlobError when the store cannot be asked."""
    short = f"snapshot part {digest[:12]}"
    try:
        ref = blobs.find(digest)
        if ref is None:
            raise SnapshotError(f"{short} is missing: do all verifiers name the same TEMPER_BLOBS?")
        if ref.size > most:
            raise SnapshotError(f"{short} is too big: a snapshot may have {MAX_BYTES} bytes")
        data = blobs.get(ref)
    except Unavailable as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
            raise  # the store is out of reach: says nothing about the snapshot
        raise SnapshotError(f"{short} cannot be used: {error}") from error
    if sha256(data) != digest:
        raise SnapshotError(f"{short} is damaged: its bytes do not match its name")
    return data

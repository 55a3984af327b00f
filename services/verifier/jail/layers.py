"""One layer of a snapshot: what one run changed, as data with a name of its own.

Invariant: a layer has exactly one sequence of bytes, and only such bytes are read back; it is data only (no links
followed, nothing executed), and laying it out can never leave its folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import msgspec

from services.verifier.jail.tree import (
    DIR_BITS,
    FILE_BITS,
    KEPT,
    MAX_PATH,
    Entry,
    Tree,
    display,
    plain,
    sha256,
)

FORMAT = 1
MAX_NAME = 255
ROW_BYTES = 40
"""At most, of a row besides its path and its content: heads of 5 bytes for each, the kind's 9, the mode's 5 and two more."""

Kind = Literal["file", "dir", "symlink", "whiteout"]


class SnapshotError(ValueError):
    """A snapshot that is absent, damaged or not what its digest says; the message is one line."""


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """One path of a stored layer. `content` is a file's bytes or a link's target."""

    path: bytes
    kind: Kind
    mode: int
    content: bytes
    opaque: bool


class _StoredLayer(msgspec.Struct, frozen=True, array_like=True):
    version: int
    rows: list[_Row]


@dataclass(frozen=True)
class Layer:
    """What one run, or one set of given files, changed; of a collected tree make it with `layer_of`.

    `dropped` names the special files that are not kept, each as `'path' (kind)`.
    """

    tree: Tree
    dropped: tuple[str, ...] = field(default=(), compare=False)

    @property
    def encoded(self) -> bytes:
        """The canonical bytes: sorted by path, without times and owners. Made anew each time: they are a whole copy."""
        rows = [(path, e.kind, e.mode, e.content, e.opaque) for path, e in sorted(self.tree.items())]
        return msgspec.msgpack.encode((FORMAT, rows))

    @property
    def size(self) -> int:
        """No fewer bytes than `encoded` has, without making them."""
        return ROW_BYTES * (len(self.tree) + 1) + sum(len(p) + len(e.content) for p, e in self.tree.items())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes, in hex."""
        return sha256(self.encoded)


def layer_of(tree: Tree) -> Layer:
    """The layer of a collected tree. A special file (FIFO, socket, device) is not kept; what it replaced is gone."""
    gone = Entry("whiteout", 0, 0, "")
    layer: dict[bytes, Entry] = {}
    dropped: list[str] = []
    for path, entry in sorted(tree.items()):
        if entry.kind in KEPT or entry.kind == "whiteout":
            layer[path] = plain(entry)
        else:
            layer[path] = gone
            dropped.append(f"{display(path)!r} ({entry.kind})")
    return Layer(layer, tuple(dropped))


def decode_layer(data: bytes) -> Layer:
    """The layer of canonical bytes, and of no others. Raises SnapshotError when they are not a layer."""
    try:
        stored = msgspec.msgpack.decode(data, type=_StoredLayer)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"not a snapshot layer: {error}") from error
    if stored.version != FORMAT:
        raise SnapshotError(f"snapshot layer of format {stored.version}: this version reads {FORMAT}")
    tree: dict[bytes, Entry] = {}
    last = b""
    for row in stored.rows:
        if row.path <= last or not _sound(row):
            raise SnapshotError(f"snapshot layer with an impossible entry: {display(row.path)!r:.200}")
        last = row.path
        full = row.kind in ("file", "symlink")
        size, digest = (len(row.content), sha256(row.content)) if full else (0, "")
        tree[row.path] = Entry(row.kind, row.mode, size, digest, row.content, row.opaque)
    layer = Layer(tree)
    if layer.encoded != data:
        raise SnapshotError("not a snapshot layer: its bytes are in an unusual form")
    return layer


def check_layer(layer: Layer) -> None:
    """Raise SnapshotError unless `decode_layer` takes the layer's bytes, which are not made for it."""
    for path, entry in layer.tree.items():
        known = entry.kind in (*KEPT, "whiteout")
        if not known or not _sound(_Row(path, entry.kind, entry.mode, entry.content, entry.opaque)):  # type: ignore[arg-type]
            raise SnapshotError(f"{display(path)!r:.80} ({len(path)} bytes) cannot be kept")


def _sound(row: _Row) -> bool:
    """Whether `layer_of` could have made the row, and laying it out stays beneath its folder."""
    parts = row.path.split(b"/")
    if len(row.path) > MAX_PATH or any(
        part in (b"", b".", b"..") or len(part) > MAX_NAME or b"\0" in part for part in parts
    ):
        return False
    bits = {"file": FILE_BITS, "dir": DIR_BITS, "symlink": 0o777, "whiteout": 0}[row.kind]
    if row.mode < 0 or row.mode & ~bits or (row.opaque and row.kind != "dir"):
        return False
    if row.kind == "symlink":
        return bool(row.content) and b"\0" not in row.content and len(row.content) <= MAX_PATH
    return row.kind == "file" or not row.content

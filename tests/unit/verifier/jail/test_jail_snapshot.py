"""A snapshot's id is its content; what does not match its id is refused."""

from __future__ import annotations

import msgspec
import pytest

from services.verifier.jail import FileEntry, Snapshot, SnapshotError
from services.verifier.jail.snapshot import Layer, decode_layer, layer_of
from services.verifier.jail.tree import Entry, file_entry, from_files, sha256

BASE = Layer(from_files({"a": FileEntry(b"one"), "d/x": FileEntry(b"two", 0o755)}))
TOP = layer_of(
    {
        b"a": Entry("whiteout", 0, 0, ""),
        b"d": Entry("dir", 0o755, 0, "", opaque=True),
        b"l": Entry("symlink", 0o777, 11, "", b"/etc/shadow"),
        b"p": Entry("fifo", 0o644, 0, ""),
        b"\xff": Entry("file", 0o600, 1, "", b"!"),
    }
)


def one(content: bytes) -> Entry:
    return file_entry(content, 0o644)


def test_layer_survives_its_bytes() -> None:
    back = decode_layer(TOP.encoded)
    assert back.encoded == TOP.encoded
    assert back.tree[b"p"].kind == "whiteout"
    assert back.tree[b"d"].opaque


def test_same_content_same_id_whatever_the_order() -> None:
    turned = Layer(dict(reversed(list(BASE.tree.items()))))
    assert Snapshot((turned,)).digest == Snapshot((BASE,)).digest
    assert Snapshot((BASE, TOP)).digest != Snapshot((TOP, BASE)).digest


def test_read_and_listing_are_of_the_merged_tree() -> None:
    snapshot = Snapshot((BASE, TOP))
    assert sorted(snapshot.listing()) == ["\\xff", "d", "l"]
    assert snapshot.read("\\xff") == snapshot.read("\udcff") == b"!"
    assert snapshot.read("a") is None
    assert snapshot.read("l") is None
    assert snapshot.target("l") == "/etc/shadow"
    assert Snapshot((BASE,)).read("d/x") == b"two"
    snapshot.close()
    assert snapshot.read("d") is None


def rows(*given: tuple[object, ...], version: int = 1) -> bytes:
    return msgspec.msgpack.encode([version, list(given)])


def test_rows_are_read_as_written() -> None:
    assert sorted(
        decode_layer(rows((b"a", "file", 0o644, b"1", False), (b"b", "dir", 0o755, b"", True))).tree
    ) == [
        b"a",
        b"b",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        rows() + b"\0",
        rows(version=2),
        rows((b"../x", "file", 0, b"", False)),
        rows((b"/etc/x", "file", 0, b"", False)),
        rows((b"a/./x", "file", 0, b"", False)),
        rows((b"a//x", "file", 0, b"", False)),
        rows((b"", "dir", 0, b"", False)),
        rows((b"a\0b", "file", 0, b"", False)),
        rows((b"n" * 256, "file", 0, b"", False)),
        rows((b"/".join([b"n" * 200] * 21), "file", 0, b"", False)),
        rows((b"x", "device", 0, b"", False)),
        rows((b"x", "fifo", 0, b"", False)),
        rows((b"x", "file", 0o4755, b"", False)),
        rows((b"x", "file", -1, b"", False)),
        rows((b"x", "dir", 0o755, b"content", False)),
        rows((b"x", "file", 0o644, b"", True)),
        rows((b"x", "whiteout", 0o644, b"", False)),
        rows((b"x", "whiteout", 0, b"x", False)),
        rows((b"x", "symlink", 0o777, b"", False)),
        rows((b"x", "symlink", 0o777, b"a\0b", False)),
        rows((b"b", "file", 0, b"", False), (b"a", "file", 0, b"", False)),
        rows((b"a", "file", 0, b"", False), (b"a", "file", 0, b"1", False)),
        b"\xdc\x00\x02\x01\x90",  # the empty layer, its list in a longer form
    ],
)
def test_bytes_that_are_no_layer(data: bytes) -> None:
    with pytest.raises(SnapshotError) as caught:
        decode_layer(data)
    assert "\n" not in str(caught.value)


def test_special_files_are_dropped_and_named() -> None:
    layer = layer_of(
        {b"a": Entry("socket", 0o755, 0, ""), b"d\n": Entry("device", 0, 0, ""), b"f": one(b"x")}
    )
    assert layer.dropped == ("'a' (socket)", "'d\\n' (device)")
    assert Snapshot((BASE, layer)).dropped == layer.dropped
    assert sorted(Snapshot((BASE, layer)).tree) == [b"d", b"d/x", b"f"]


def test_setuid_is_not_kept() -> None:
    layer = layer_of(
        {b"a": Entry("file", 0o6755, 1, sha256(b"x"), b"x"), b"d": Entry("dir", 0o3777, 0, "", opaque=True)}
    )
    assert [(e.mode, e.opaque) for e in layer.tree.values()] == [(0o755, False), (0o1777, True)]


def test_equal_files_have_equal_tree_digests_however_they_came_about() -> None:
    moved = Layer({b"a": Entry("whiteout", 0, 0, ""), b"b": one(b"one")})
    direct = Layer(from_files({"b": FileEntry(b"one"), "d/x": FileEntry(b"two", 0o755)}))
    assert Snapshot((BASE, moved)).tree_digest == Snapshot((direct,)).tree_digest
    assert Snapshot((BASE, moved)).digest != Snapshot((direct,)).digest
    assert Snapshot((BASE,)).tree_digest != Snapshot((direct,)).tree_digest

"""A snapshot's id is its content; what does not match its id is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from services.verifier.jail import FileEntry, Snapshot, SnapshotError
from services.verifier.jail.snapshot import Layer, decode_layer, layer_of, load, save
from services.verifier.jail.tree import Entry, from_files

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


def test_save_and_load(tmp_path: Path) -> None:
    snapshot = Snapshot((BASE, TOP))
    name = save(snapshot, tmp_path)
    assert save(snapshot, tmp_path) == name == snapshot.digest
    assert load(name, tmp_path).listing().keys() == snapshot.listing().keys()
    assert load(name, tmp_path).digest == name


@pytest.mark.parametrize("suffix", [".layer", ".snapshot"])
def test_damage_is_found(tmp_path: Path, suffix: str) -> None:
    name = save(Snapshot((BASE,)), tmp_path)
    part = next(tmp_path.glob(f"*{suffix}"))
    part.write_bytes(part.read_bytes() + b"\0")
    with pytest.raises(SnapshotError, match="damaged"):
        load(name, tmp_path)
    part.unlink()
    with pytest.raises(SnapshotError, match="cannot be read"):
        load(name, tmp_path)


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "A" * 64, "0" * 64])
def test_ids_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotError):
        load(name, tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1, [[b"../x", "file", 0, b"", False]]]),
        msgspec.msgpack.encode([1, [[b"/etc/x", "file", 0, b"", False]]]),
        msgspec.msgpack.encode([1, [[b"x", "device", 0, b"", False]]]),
        msgspec.msgpack.encode([2, []]),
    ],
)
def test_bytes_that_are_no_layer(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        decode_layer(data)

"""A snapshot goes through the blob store to another machine and comes back the same, or not at all."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.runtime.blobs import BlobError, Blobs
from services.verifier.jail import FileEntry, Snapshot, SnapshotError
from services.verifier.jail import snapshot as rules
from services.verifier.jail.collect import Collected
from services.verifier.jail.layers import Layer, decode_layer
from services.verifier.jail.layout import lay_out, verify
from services.verifier.jail.once import snapshot_of
from services.verifier.jail.snapshot import load, save
from services.verifier.jail.tree import Entry, Tree, file_entry, from_files, overlay, parents, sha256

BASE = Layer(from_files({"a": FileEntry(b"one"), "d/x": FileEntry(b"two", 0o755)}))
TOP = Layer({b"a": Entry("whiteout", 0, 0, ""), b"d": Entry("dir", 0o755, 0, "", opaque=True)})
NUMBERS = itertools.count()


def stored(folder: Path, digest: str) -> Path:
    return folder / digest[:2] / digest


def keep(folder: Path, *layers: bytes | str) -> str:
    """A manifest of layers given by their bytes or by their digest."""
    blobs = Blobs(str(folder))
    names = [layer if isinstance(layer, str) else blobs.put(layer).digest for layer in layers]
    return blobs.put(msgspec.msgpack.encode([1, names])).digest


@pytest.mark.parametrize("url", ["{folder}/blobs", "memory://{name}"])
def test_from_one_machine_to_another(tmp_path: Path, url: str) -> None:
    url = url.format(folder=tmp_path, name=tmp_path.name)
    snapshot = Snapshot((BASE, TOP))
    name = save(snapshot, Blobs(url))
    assert save(snapshot, Blobs(url)) == name == snapshot.digest
    there = load(name, Blobs(url))
    assert (there.digest, there.tree_digest) == (name, snapshot.tree_digest)
    assert there.listing() == snapshot.listing()
    assert [layer.tree for layer in there.layers] == [layer.tree for layer in snapshot.layers]


def test_a_folder_is_a_store(tmp_path: Path) -> None:
    name = save(Snapshot((BASE,)), tmp_path)
    assert load(name, Blobs(str(tmp_path))).tree_digest == load(name, tmp_path).tree_digest


def test_layers_are_shared(tmp_path: Path) -> None:
    save(Snapshot((BASE,)), tmp_path)
    before = len(list(tmp_path.rglob("*")))
    save(Snapshot((BASE, TOP)), tmp_path)
    new = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(new) == 4  # two layers, two lists of layers
    assert before == 4  # one of each, with their folders


@pytest.mark.parametrize("which", ["manifest", "layer"])
def test_damage_is_one_clear_error(tmp_path: Path, which: str) -> None:
    snapshot = Snapshot((BASE,))
    name = save(snapshot, tmp_path)
    part = stored(tmp_path, name if which == "manifest" else BASE.digest)
    whole = part.read_bytes()
    for damaged in (whole[:-1], whole + b"\0", whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        part.write_bytes(damaged)
        with pytest.raises(SnapshotError, match=f"snapshot part {part.name[:12]}.*damaged") as caught:
            load(name, tmp_path)
        assert "\n" not in str(caught.value)
    part.unlink()
    with pytest.raises(SnapshotError, match="missing: do all verifiers name the same TEMPER_BLOBS"):
        load(name, tmp_path)
    part.write_bytes(whole)
    assert load(name, tmp_path).digest == name


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 64, "é" * 64]
)
def test_ids_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(SnapshotError):
        load(name, tmp_path)


@pytest.mark.parametrize(
    "layers",
    [
        [b"not a layer"],
        ["../../../etc/passwd"],
        ["0" * 64],
        [BASE.encoded] * 65,
        [msgspec.msgpack.encode([1, [[b"d/x", "file", 0o644, b"", False]]])],  # in no folder
        [
            msgspec.msgpack.encode(
                [1, [[b"d", "symlink", 0o777, b"/etc", False], [b"d/x", "file", 0o644, b"", False]]]
            )
        ],
    ],
    ids=["no layer", "path", "absent", "too many", "no folder", "through a link"],
)
def test_manifests_that_lead_nowhere(tmp_path: Path, layers: list[bytes | str]) -> None:
    name = keep(tmp_path, *layers)
    with pytest.raises(SnapshotError) as caught:
        load(name, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_payload_that_is_no_snapshot(tmp_path: Path) -> None:
    name = Blobs(str(tmp_path)).put(b"a trajectory").digest
    with pytest.raises(SnapshotError, match="is a stored payload, but no snapshot"):
        load(name, tmp_path)


def test_too_big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = save(Snapshot((BASE,)), tmp_path)
    monkeypatch.setattr("services.verifier.jail.snapshot.MAX_BYTES", 40)
    with pytest.raises(SnapshotError, match="too big"):
        load(name, tmp_path)


def test_a_store_out_of_reach_is_not_the_snapshots_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BlobError, match="cannot write"):
        save(Snapshot((BASE,)), tmp_path / "file" / "blobs")
    name = save(Snapshot((BASE,)), tmp_path / "blobs")
    part = stored(tmp_path / "blobs", name)
    part.unlink()
    part.mkdir()
    with pytest.raises(BlobError, match="cannot be read"):
        load(name, tmp_path / "blobs")


def test_find(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path))
    ref = blobs.put(b"payload")
    assert blobs.find(ref.digest) == ref
    assert blobs.find("0" * 64) is None
    with pytest.raises(BlobError, match="no SHA-256"):
        blobs.find("../x")


part = st.one_of(
    st.sampled_from([b"a", b"b", b"-rf", b"new\nline", b"\xff\xfe", b"n" * 255, "é".encode(), b" ", b"*"]),
    st.binary(min_size=1, max_size=6).filter(lambda b: not {0, 47} & set(b) and b not in (b".", b"..")),
)
path = st.lists(part, min_size=1, max_size=4).map(b"/".join)
leaf = st.one_of(
    st.binary(max_size=9).flatmap(lambda b: st.integers(0, 0o777).map(lambda mode: file_entry(b, mode))),
    st.binary(min_size=1, max_size=9)
    .filter(lambda b: 0 not in b)
    .map(lambda b: Entry("symlink", 0o777, len(b), sha256(b), b)),
    st.integers(0, 0o1777).map(lambda mode: Entry("dir", mode & 0o1777, 0, "")),
    st.just(Entry("dir", 0o755, 0, "", opaque=True)),
    st.just(Entry("whiteout", 0, 0, "")),
)


@st.composite
def layer(draw: st.DrawFn) -> Tree:
    """What overlayfs could leave in an upper folder: everything lies in folders of the same layer."""
    tree: dict[bytes, Entry] = {}
    for name in draw(st.lists(path, max_size=6)):
        above = list(parents(name))
        if any(tree.get(up, Entry("dir", 0, 0, "")).kind != "dir" for up in above) or name in tree:
            continue
        for up in above:
            tree.setdefault(up, Entry("dir", 0o755, 0, ""))
        tree[name] = draw(leaf)
    return tree


@given(st.lists(layer(), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_was_saved_is_restored(tmp_path: Path, trees: list[Tree]) -> None:
    """Through the store, onto the disk, and read back from there: the same digest, of the same files."""
    number = next(NUMBERS)
    snapshot = Snapshot(tuple(map(Layer, trees)))
    there = load(save(snapshot, tmp_path / "blobs"), tmp_path / "blobs")
    target = tmp_path / f"restored{number}"
    target.mkdir()
    folder = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    try:
        lay_out(folder, there.tree, os.getuid())
        verify(folder, snapshot.tree)
    finally:
        os.close(folder)


@given(st.lists(layer().filter(bool), min_size=17, max_size=22), layer().filter(bool))
@settings(max_examples=40, deadline=None)
def test_many_layers_made_one_are_the_same_tree(trees: list[Tree], last: Tree) -> None:
    """Whiteouts and opaque folders of all layers have done their work then; what comes on top finds the same below it."""
    layers = tuple(map(Layer, trees))
    flat, why = snapshot_of(layers[:-1], Collected(dict(trees[-1]), complete=True))
    assert flat is not None, why
    assert len(flat.layers) == 1
    assert flat.tree == overlay(trees)
    assert all(e.kind != "whiteout" and not e.opaque for e in flat.layers[0].tree.values())
    assert overlay([*trees, last]) == overlay([flat.tree, last])
    assert decode_layer(flat.layers[0].encoded).tree == flat.layers[0].tree


def test_what_changes_nothing_is_no_layer() -> None:
    again = Collected(dict(BASE.tree), complete=True)
    assert snapshot_of((BASE,), again, same=True) == (Snapshot((BASE,)), "")
    kept, why = snapshot_of((BASE,), again)
    assert kept is not None, why
    assert len(kept.layers) == 2
    assert snapshot_of((BASE,), Collected({}, complete=False, why="cap"), same=True) == (None, "cap")


def test_what_could_not_be_loaded_again_is_no_snapshot_and_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rule where a snapshot is made, kept and loaded: bytes of all layers, paths, and entries that are not sound."""
    monkeypatch.setattr(rules, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr(rules, "MAX_PATHS", 5)
    big = [
        Layer({name: file_entry(bytes([n]) * (300 << 10), 0o644)})
        for n, name in enumerate([b"a", b"b", b"c"])
    ]
    last = Layer({b"d": file_entry(b"x" * (300 << 10), 0o644)})
    long = b"/".join([b"d" * 250] * 16 + [b"f" * 200])
    deep = {path: Entry("dir", 0o755, 0, "") for path in parents(long)}
    bad = {
        "bytes": ((*big,), last),
        "paths": ((BASE,), Layer({b"%d" % n: file_entry(b"", 0o644) for n in range(6)})),
        "cannot be kept": ((BASE,), Layer({**deep, long: file_entry(b"", 0o644)})),
        "cannot be kept ": ((), Layer({b"l": Entry("symlink", 0o777, 0, "", b"")})),
        "not a folder": ((), Layer({b"no/such": file_entry(b"", 0o644)})),
    }
    for words, (layers, top) in bad.items():
        made, why = snapshot_of(layers, Collected(dict(top.tree), complete=True))
        assert made is None
        assert words.strip() in why
        assert len(why) < 200
        with pytest.raises(SnapshotError, match=words.strip()):
            save(Snapshot((*layers, top)), tmp_path / "blobs")
    assert not (tmp_path / "blobs").exists()
    assert load(save(Snapshot(tuple(big)), tmp_path / "blobs"), tmp_path / "blobs").layers == tuple(big)


def test_big_layers_that_hide_one_another_are_made_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "MAX_BYTES", 1 << 20)
    layers = tuple(Layer({b"a": file_entry(bytes([n]) * (300 << 10), 0o644)}) for n in range(4))
    made, why = snapshot_of(layers[:-1], Collected(dict(layers[-1].tree), complete=True))
    assert made is not None, why
    assert made.layers == layers[-1:]
    assert load(save(made, tmp_path), tmp_path).tree == dict(layers[-1].tree)

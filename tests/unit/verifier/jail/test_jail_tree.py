"""Layers stack as overlayfs stacks them, and a diff names exactly what differs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.jail import FileEntry
from services.verifier.jail.tree import Entry, check, compare, file_entry, from_files, overlay

DIR = Entry("dir", 0o755, 0, "")
OPAQUE = Entry("dir", 0o755, 0, "", opaque=True)
WHITEOUT = Entry("whiteout", 0, 0, "")
BASE = from_files(
    {"a": FileEntry(b"1"), "d/x": FileEntry(b"2"), "d/y": FileEntry(b"3"), "dd": FileEntry(b"4")}
)


def one(text: bytes) -> Entry:
    return file_entry(text, 0o644)


def test_folders_are_made_for_files() -> None:
    assert sorted(BASE) == [b"a", b"d", b"d/x", b"d/y", b"dd"]
    assert BASE[b"d"].kind == "dir"


def test_whiteout_deletes_what_lies_below() -> None:
    merged = overlay([BASE, {b"d": WHITEOUT, b"a": WHITEOUT}])
    assert sorted(merged) == [b"dd"]


def test_opaque_folder_hides_and_refills() -> None:
    merged = overlay([BASE, {b"d": OPAQUE, b"d/z": one(b"new")}])
    assert sorted(merged) == [b"a", b"d", b"d/z", b"dd"]
    assert not merged[b"d"].opaque


def test_file_over_folder_and_folder_over_file() -> None:
    merged = overlay([BASE, {b"d": one(b"now a file"), b"a": DIR, b"a/b": one(b"in it")}])
    assert sorted(merged) == [b"a", b"a/b", b"d", b"dd"]
    check(merged)


def test_diff_names_created_changed_deleted() -> None:
    layer = {b"a": one(b"other"), b"d": DIR, b"d/x": WHITEOUT, b"n": one(b""), b"dd": one(b"4")}
    diff = compare(BASE, layer)
    assert [c.path for c in diff.created] == ["n"]
    assert [c.path for c in diff.changed] == ["a"]
    assert [c.path for c in diff.deleted] == ["d/x"]


def test_mode_alone_is_a_change() -> None:
    diff = compare(BASE, {b"a": file_entry(b"1", 0o600)})
    assert [(c.path, c.mode) for c in diff.changed] == [("a", 0o600)]


def test_odd_names_are_shown() -> None:
    diff = compare({}, {b"\xff\n": one(b"x"), "é".encode(): one(b"x")})
    assert [c.path for c in diff.created] == ["\\xff\n", "é"]


@pytest.mark.parametrize(
    "tree",
    [
        {b"l": Entry("symlink", 0o777, 1, "", b"/"), b"l/etc": one(b"x")},
        {b"no/folder": one(b"x")},
        {b"f": one(b"x"), b"f/g": one(b"x")},
        {b"p": Entry("fifo", 0o644, 0, "")},
    ],
)
def test_a_tree_that_could_follow_a_link_is_refused(tree: dict[bytes, Entry]) -> None:
    with pytest.raises(ValueError, match=r"folder|cannot be laid out"):
        check(tree)


names = st.sampled_from([b"a", b"b", b"c"])
paths = st.lists(names, min_size=1, max_size=3).map(b"/".join)


@given(st.lists(st.dictionaries(paths, st.binary(max_size=2), max_size=5), max_size=3))
def test_stacking_is_associative(contents: list[dict[bytes, bytes]]) -> None:
    """Flattening the lower layers first gives the same tree: this is what a long stack of layers relies on."""
    layers = []
    for content in contents:
        layer = {path: one(data) for path, data in content.items()}
        for path in content:
            for cut in range(1, path.count(b"/") + 1):
                layer[b"/".join(path.split(b"/")[:cut])] = DIR
        layers.append(layer)
    whole = overlay(layers)
    check(whole)
    assert overlay([overlay(layers[:2]), *layers[2:]]) == whole

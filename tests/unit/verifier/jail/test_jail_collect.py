"""Collecting follows no link, opens no FIFO, and stops at its caps."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from services.verifier.jail.collect import Caps, collect, listing, read_file
from services.verifier.jail.syscalls import open_beneath


def caps(entries: int = 1000, read_bytes: int = 1 << 20) -> Caps:
    return Caps(entries, read_bytes)


def test_kinds(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "d").mkdir(mode=0o700)
    (tmp_path / "d" / "inner").write_bytes(b"")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to("..")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    found = collect(str(tmp_path), caps(), keep=True)
    assert found.complete
    assert {path: e.kind for path, e in found.layer.items()} == {
        b"file": "file",
        b"d": "dir",
        b"d/inner": "file",
        b"link": "symlink",
        b"loop": "symlink",
        b"up": "symlink",
        b"pipe": "fifo",
        b"s": "socket",
    }
    assert found.layer[b"file"].digest == hashlib.sha256(b"abc").hexdigest()
    assert found.layer[b"file"].content == b"abc"
    assert found.layer[b"link"].content == b"/etc/passwd"
    assert found.layer[b"d"].mode == 0o700


def test_contents_only_when_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert collect(str(tmp_path), caps(), keep=False).layer[b"file"].content == b""


def test_entries_are_capped(tmp_path: Path) -> None:
    for n in range(20):
        (tmp_path / str(n)).touch()
    found = collect(str(tmp_path), caps(entries=7), keep=False)
    assert (len(found.layer), found.complete) == (7, False)


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    found = collect(str(tmp_path), caps(), keep=True)
    assert not found.complete
    assert (found.layer[b"sparse"].size, found.layer[b"sparse"].digest) == (1 << 40, "")


def test_sparse_files_count_by_what_they_take(tmp_path: Path) -> None:
    """Holes have a budget of their own, so that they cannot crowd out what was really written, nor fill our memory."""
    (tmp_path / "a-hole").touch()
    os.truncate(tmp_path / "a-hole", 1 << 20)
    (tmp_path / "b-real").write_bytes(b"x" * 100_000)
    os.sync()
    found = collect(str(tmp_path), Caps(10, 200_000, hole_bytes=1 << 21), keep=False)
    assert found.complete
    assert found.layer[b"a-hole"].digest == hashlib.sha256(bytes(1 << 20)).hexdigest()
    found = collect(str(tmp_path), Caps(10, 200_000, hole_bytes=1 << 19), keep=False)
    assert not found.complete
    assert found.layer[b"a-hole"].digest == ""
    assert found.layer[b"b-real"].digest == hashlib.sha256(b"x" * 100_000).hexdigest()
    assert found.why == "'a-hole': 1048576 bytes (0 of them stored) are too many"


def test_bytes_are_capped_in_all(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / str(n)).write_bytes(b"x" * 4096)
    os.sync()
    found = collect(str(tmp_path), Caps(10, 3 * 4096, hole_bytes=0), keep=True)
    assert not found.complete
    assert sum(len(e.content) for e in found.layer.values()) == 3 * 4096


def test_hard_links_are_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 4096)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    os.sync()
    found = collect(str(tmp_path), caps(), keep=True)
    assert found.layer[b"a"] == found.layer[b"b"]
    assert not collect(str(tmp_path), caps(read_bytes=5000), keep=True).complete  # and cost as such


def test_names_are_capped_in_all(tmp_path: Path) -> None:
    """A deep tree multiplies its names: a few thousand files would make gigabytes of paths."""
    deep = tmp_path / ("n" * 250) / ("n" * 250)
    deep.mkdir(parents=True)
    for n in range(50):
        (deep / str(n)).touch()
    found = collect(str(tmp_path), Caps(1000, 1 << 20, name_bytes=10_000), keep=False)
    assert not found.complete
    assert "too many files" in found.why
    assert sum(map(len, found.layer)) <= 10_000


def test_paths_longer_than_a_system_call_takes(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 255, dir_fd=here)
        deeper = os.open("n" * 255, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    found = collect(str(tmp_path), caps(), keep=False)
    assert not found.complete
    assert sorted(map(len, found.layer))[-2] <= 4095  # the first that is too long is named, none below it
    assert "its path is too long" in found.why
    assert "\n" not in found.why


def test_a_folder_with_very_many_names_is_not_listed_whole(tmp_path: Path) -> None:
    for n in range(300):
        (tmp_path / str(n)).touch()
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert len(list(listing(folder, caps(entries=10)))) == 11
    finally:
        os.close(folder)
    assert len(collect(str(tmp_path), caps(entries=10), keep=False).layer) == 10


def test_by_descriptor(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(2):  # the descriptor's own position is not used up
            assert collect(folder, caps(), keep=True) == collect(str(tmp_path), caps(), keep=True)
    finally:
        os.close(folder)


def swap_for_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def swap_for_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def swap_for_another_file(path: Path) -> None:
    (path.parent / "other").write_bytes(b"other")
    (path.parent / "other").rename(path)


def swap_for_a_longer_one(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x" * 10)


@pytest.mark.parametrize(
    "swap", [swap_for_a_link, swap_for_a_fifo, swap_for_another_file, swap_for_a_longer_one]
)
def test_what_changes_meanwhile_is_an_error(tmp_path: Path, swap: Callable[[Path], None]) -> None:
    """Nothing should be alive by then; if something is, it still gets no other file read and no wait."""
    path = tmp_path / "result"
    path.write_bytes(b"right")
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        info = os.stat("result", dir_fd=folder, follow_symlinks=False)
        swap(path)
        with pytest.raises(OSError, match=r"collected|symbolic links"):
            read_file(folder, b"result", info, caps(), keep=True)
    finally:
        os.close(folder)


def test_a_flag_set_by_the_program_is_none(tmp_path: Path) -> None:
    """What the kernel makes of the program's user.overlay.opaque is not the kernel's own mark."""
    (tmp_path / "d").mkdir()
    os.setxattr(tmp_path / "d", "user.overlay.overlay.opaque", b"y")
    assert not collect(str(tmp_path), caps(), keep=False).layer[b"d"].opaque
    os.setxattr(
        tmp_path / "d", "user.overlay.opaque", b"x"
    )  # means: may hold whiteout files; overlayfs never does here
    assert not collect(str(tmp_path), caps(), keep=False).layer[b"d"].opaque
    os.setxattr(tmp_path / "d", "user.overlay.opaque", b"y")
    assert collect(str(tmp_path), caps(), keep=False).layer[b"d"].opaque


def test_depth_is_capped_and_descriptors_are_closed(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):  # deeper than a path of text could go at once
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    found = collect(str(tmp_path), caps(), keep=False)
    assert not found.complete
    assert len(found.layer) == 64
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_names_are_bytes(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"n" * 255):
        Path(os.fsdecode(folder + b"/" + name)).touch()
    assert set(collect(str(tmp_path), caps(), keep=False).layer) == {
        b"\xff\xfe",
        b"new\nline",
        b"-rf",
        b"n" * 255,
    }


@pytest.mark.parametrize("name", [b"link", b"d/link", b"../x", b"/etc/passwd", b"proc"])
def test_open_beneath_refuses(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "d" / "link").symlink_to("../link")
    (tmp_path / "proc").symlink_to("/proc/self/fd/0")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"link|cross-device|many levels"):
            open_beneath(folder, name, os.O_RDONLY)
    finally:
        os.close(folder)


def test_open_beneath_never_waits_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(open_beneath(folder, b"pipe", os.O_RDONLY))
    finally:
        os.close(folder)

"""Collecting follows no link, opens no FIFO, and stops at its caps."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from services.verifier.jail.collect import Caps, collect
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

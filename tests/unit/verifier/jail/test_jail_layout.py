"""What is laid out is what the tree says; anything else is noticed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.verifier.jail.layers import SnapshotError
from services.verifier.jail.layout import TIME_NS, lay_out, verify
from services.verifier.jail.tree import Entry, file_entry, sha256

TREE = {
    b"d": Entry("dir", 0o1777, 0, ""),
    b"d/empty": Entry("dir", 0o700, 0, ""),
    b"d/closed": Entry("dir", 0, 0, ""),
    b"d/closed/f": file_entry(b"in a folder that nobody may enter", 0),
    b"f": file_entry(b"x" * 100_000, 0o755),
    b"l": Entry("symlink", 0o777, 11, sha256(b"/etc/shadow"), b"/etc/shadow"),
    b"-rf\n\xff": file_entry(b"", 0o644),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "w").mkdir()
    fd = os.open(tmp_path / "w", os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_everything_is_there(folder: int, tmp_path: Path) -> None:
    lay_out(folder, TREE, os.getuid())
    verify(folder, TREE)
    verify(str(tmp_path / "w"), TREE)
    for path, entry in TREE.items():
        info = os.stat(path, dir_fd=folder, follow_symlinks=False)
        assert info.st_mtime_ns == TIME_NS
        assert entry.kind == "symlink" or stat.S_IMODE(info.st_mode) == entry.mode
    assert os.readlink(b"l", dir_fd=folder) == b"/etc/shadow"


def test_owner(folder: int) -> None:
    if os.getuid():
        pytest.skip("only root gives files away")
    lay_out(folder, TREE, 12345)
    for path in TREE:
        info = os.stat(path, dir_fd=folder, follow_symlinks=False)
        assert (info.st_uid, info.st_gid) == (12345, 12345)
    verify(folder, TREE)


def test_setuid_is_never_laid_out(folder: int) -> None:
    lay_out(folder, {b"s": Entry("file", 0o6755, 0, sha256(b""))}, os.getuid())
    assert stat.S_IMODE(os.stat("s", dir_fd=folder).st_mode) == 0o755


def test_long_paths(folder: int) -> None:
    """As long as a system call takes, wherever the folder itself lies."""
    names = [b"n" * 255] * 15 + [b"m" * 255]
    tree = {b"/".join(names[:n]): Entry("dir", 0o755, 0, "") for n in range(1, 16)}
    tree[b"/".join(names)] = file_entry(b"deep", 0o644)
    assert max(map(len, tree)) == 4095
    lay_out(folder, tree, os.getuid())
    verify(folder, tree)


@pytest.mark.parametrize(
    "tree",
    [
        {b"l": Entry("symlink", 0o777, 1, "", b"/"), b"l/x": file_entry(b"", 0o644)},
        {b"no/folder": file_entry(b"", 0o644)},
        {b"p": Entry("fifo", 0o644, 0, "")},
        {b"w": Entry("whiteout", 0, 0, "")},
        {b"/".join([b"n" * 255] * n): Entry("dir", 0o755, 0, "") for n in range(1, 18)},
    ],
)  # fmt: skip
def test_what_cannot_be_laid_out(folder: int, tree: dict[bytes, Entry]) -> None:
    with pytest.raises(ValueError, match=r"laid out|not a folder"):
        lay_out(folder, tree, os.getuid())
    assert os.listdir(folder) == []


def test_what_is_already_there_is_not_written_through(folder: int, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (tmp_path / "w" / "f").symlink_to(secret)
    with pytest.raises(FileExistsError):
        lay_out(folder, {b"f": file_entry(b"theirs", 0o644)}, os.getuid())
    assert secret.read_text() == "mine"


def change_content(top: Path) -> None:
    (top / "f").write_bytes(b"y" + b"x" * 99_999)


def change_mode(top: Path) -> None:
    (top / "f").chmod(0o754)


def change_kind(top: Path) -> None:
    (top / "l").unlink()
    (top / "l").write_bytes(b"/etc/shadow")


def change_target(top: Path) -> None:
    (top / "l").unlink()
    (top / "l").symlink_to("/etc/shadov")


def lose(top: Path) -> None:
    (top / "d" / "empty").rmdir()


def add(top: Path) -> None:
    (top / "d" / "more").touch()


def grow(top: Path) -> None:
    with (top / "f").open("ab") as file:
        file.write(b"x" * 200_000)


def add_a_fifo(top: Path) -> None:
    os.mkfifo(top / "pipe")


@pytest.mark.parametrize(
    "damage", [change_content, change_mode, change_kind, change_target, lose, add, grow, add_a_fifo]
)
def test_every_difference_is_noticed(folder: int, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    lay_out(folder, TREE, os.getuid())
    damage(tmp_path / "w")
    with pytest.raises(SnapshotError, match="restored files have the digest"):
        verify(folder, TREE)

"""What a program leaves in /w is collected, kept, moved through a store and laid out again, whatever it is.

The programs here try the names, kinds and marks that could confuse one of these steps.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from services.verifier.jail import Diff, FileEntry, Host, Job, Limits, Outcome, Slot, Snapshot
from services.verifier.jail.layout import TIME_NS, verify
from services.verifier.jail.snapshot import load, save
from services.verifier.jail.tree import change
from tests.slots import number

pytestmark = pytest.mark.integration
LIMITS = Limits(wall_s=20.0, cpu_s=15.0, disk_bytes=8 << 20)
BASE = {
    "kept": FileEntry(b"k"),
    "gone": FileEntry(b"g"),
    "mode": FileEntry(b"m"),
    "d/x": FileEntry(b"1"),
    "d/y": FileEntry(b"2"),
    "old/a/b": FileEntry(b"3"),
    "turn": FileEntry(b"a file"),
    "turned/in": FileEntry(b"it"),
}
# Every path below /w with what can be told of it from inside, the time of change included.
LIST = """
import hashlib, json, os, stat
found = {}
for here, folders, files in os.walk(b"/w"):
    for name in folders + files:
        path = os.path.join(here, name)
        info = os.lstat(path)
        kind = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink"}.get(stat.S_IFMT(info.st_mode), "other")
        data = b""
        if kind == "file":
            with open(path, "rb") as file:
                data = file.read()
        if kind == "symlink":
            data = os.readlink(path)
        shown = path[3:].decode("utf-8", "backslashreplace")
        digest = "" if kind == "dir" else hashlib.sha256(data).hexdigest()
        found[shown] = [kind, stat.S_IMODE(info.st_mode), len(data), digest, info.st_mtime_ns, info.st_nlink]
print(json.dumps(found))
"""


def python(slot: Slot, code: str, **more: Any) -> Outcome:
    options: dict[str, Any] = {"limits": LIMITS, "keep": True} | more
    outcome = slot.run(Job(argv=("/usr/bin/python3", "-I", "-S", "-c", code), **options))
    assert (outcome.cause, outcome.exit_code, outcome.stderr) == ("exit", 0, b""), (
        outcome.detail,
        outcome.stderr,
    )
    return outcome


def inside(slot: Slot, snapshot: Snapshot) -> dict[str, list[Any]]:
    outcome = python(slot, LIST, base=snapshot)
    assert outcome.diff == Diff()
    found: dict[str, list[Any]] = json.loads(outcome.stdout)
    return found


EVERYTHING = r"""
import os
os.remove("gone"); os.chmod("mode", 0o600)
os.rename("d/x", "d/moved")                      # a whiteout and a new file in a folder that stays
import shutil
shutil.rmtree("old"); os.makedirs("old/new")     # an opaque folder
os.remove("turn"); os.mkdir("turn"); open("turn/in", "w").close()
shutil.rmtree("turned"); open("turned", "w").write("a file now")
os.mkdir("empty", 0o711); os.mkdir("closed"); open("closed/f", "w").write("hidden"); os.chmod("closed", 0)
open("suid", "w").close(); os.chmod("suid", 0o6755)
os.symlink("/etc/shadow", "absolute"); os.symlink("loop", "loop"); os.symlink("../../../..", "up")
os.symlink("nowhere", "dangling")
open("one", "w").write("linked"); os.link("one", "two")
for name in (b"new\nline", b"\xff\xfe", b"-rf", b"n" * 255, b"\xc3\xa9", b" ", b"\x1b[31m"):
    open(name, "wb").write(name)
here = "deep"; os.mkdir(here)
for n in range(40):
    here += "/" + "e" * 60; os.mkdir(here)
open(here + "/end", "w").write("end")
with open("sparse", "wb") as file:
    file.truncate(1 << 20); file.seek(1 << 19); file.write(b"middle")
os.mkfifo("fifo"); os.mkfifo("d/fifo")
import socket; socket.socket(socket.AF_UNIX).bind("sock")
os.remove("kept"); os.mkfifo("kept")             # a special file in the place of one that was there
"""


def test_everything_through_a_store_to_another_slot(slot: Slot, host: Host, tmp_path: Path) -> None:
    outcome = python(slot, EVERYTHING, files=BASE)
    snapshot = outcome.snapshot
    assert snapshot is not None
    assert outcome.diff.complete
    kinds = {c.path: c.type for c in (*outcome.diff.created, *outcome.diff.changed)}
    assert {kinds[p] for p in ("fifo", "d/fifo", "kept")} == {"fifo"}
    assert kinds["sock"] == "socket"
    assert sorted(c.path for c in outcome.diff.deleted) == ["d/x", "gone", "old/a", "old/a/b", "turned/in"]
    assert snapshot.dropped == ("'d/fifo' (fifo)", "'fifo' (fifo)", "'kept' (fifo)", "'sock' (socket)")
    there = load(save(snapshot, tmp_path / "blobs"), tmp_path / "blobs")
    assert (there.digest, there.tree_digest) == (snapshot.digest, snapshot.tree_digest)
    with Slot(f"temper-layers-{os.getpid()}-{number()}", tmp_path / "other", host) as other:
        found = inside(other, there)
        verify(other._storage.lower, snapshot.tree)  # as laid out, read by us
    expected = {
        path: [entry.type, entry.mode, entry.size, entry.digest] for path, entry in snapshot.listing().items()
    }
    # Of what the program closed to itself it sees the folder only.
    assert expected.pop("closed/f")[2] == 6
    for entry in expected.values():
        entry[2] = 0 if entry[0] == "dir" else entry[2]
    assert {path: facts[:4] for path, facts in found.items()} == expected
    assert {facts[4] for facts in found.values()} == {TIME_NS}
    assert found["one"][3] == found["two"][3]
    assert (found["one"][5], found["two"][5]) == (1, 1)
    assert found["suid"][1] == 0o755
    assert found["n" * 255][0] == "file"
    assert not {"gone", "d/x", "old/a", "fifo", "kept", "turned/in"} & set(found)
    assert (
        next(c for c in outcome.diff.created if c.path == "suid").mode == 0o6755
    )  # the diff says it as it was


def test_stages_on_top_of_each_other_give_what_one_run_gives(slot: Slot) -> None:
    """Whiteouts and opaque folders of one layer act on those below it as the kernel's own do."""
    steps = [
        "import os; os.makedirs('a/b/c'); open('a/b/c/f', 'w').write('1'); open('top', 'w').write('t')",
        "import shutil; shutil.rmtree('a'); import os; os.mkdir('a'); open('a/new', 'w').write('2')",
        "import os; os.makedirs('a/b'); open('a/b/again', 'w').write('3'); os.remove('a/new')",
        "import os; os.remove('top'); os.mkdir('top')",
        "import os, shutil; shutil.copytree('a/b', 'top/b'); shutil.rmtree('a')",
        "import shutil, os; shutil.rmtree('top'); os.symlink('nowhere', 'top')",
    ]
    snapshot: Snapshot | None = None
    for n in range(len(steps)):
        staged = python(slot, steps[n], base=snapshot).snapshot
        whole = python(slot, "\n".join(steps[: n + 1])).snapshot
        assert staged is not None
        assert whole is not None
        assert staged.tree_digest == whole.tree_digest
        snapshot = staged


MARKS = r"""
import errno, os
def attempt(what, *given):
    try:
        what(*given)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EACCES, errno.EXDEV, errno.EINVAL, errno.ENODATA, errno.ENOENT):
            raise
for name in ("d", "fresh"):
    os.makedirs(name, exist_ok=True)
    for mark in ("opaque", "whiteout", "redirect", "metacopy", "origin", "overlay.opaque", "overlay.whiteout", "impure"):
        attempt(os.setxattr, name, f"user.overlay.{mark}", b"y")
    attempt(os.setxattr, name, "trusted.overlay.opaque", b"y")
attempt(os.setxattr, "kept", "user.overlay.whiteout", b"y")
attempt(os.setxattr, "kept", "user.overlay.metacopy", b"")
attempt(os.mknod, "gone-by-device", 0o020000, 0)   # a 0/0 device is a whiteout
attempt(os.mknod, "/tmp/w", 0o020000, 0)
attempt(os.rename, "/tmp/w", "mode")
import ctypes
libc = ctypes.CDLL(None)
libc.renameat2(-100, b"mode", -100, b"mode2", 4)   # RENAME_WHITEOUT
attempt(os.rename, "mode2", "mode")
os.remove("turn"); os.mkdir("turn")                # the kernel's own mark, which the program tries to take away
attempt(os.removexattr, "turn", "user.overlay.opaque")
open("d/x", "a").close()
"""


def test_marks_that_the_program_sets_itself_mean_nothing(slot: Slot) -> None:
    outcome = python(slot, MARKS, files=BASE)
    assert [c.path for c in outcome.diff.deleted] == []
    assert [(c.path, c.type) for c in outcome.diff.changed] == [("turn", "dir")]
    assert [c.path for c in outcome.diff.created] == ["fresh"]
    assert outcome.snapshot is not None
    found = inside(slot, outcome.snapshot)
    assert set(found) == {*BASE, "d", "old", "old/a", "turned", "fresh"}


def test_special_files_in_the_place_of_results_never_make_us_wait(slot: Slot) -> None:
    code = "import os\nfor n in ('kept', 'd/x', 'result.json'):\n  os.path.exists(n) and os.remove(n); os.mkfifo(n)"
    outcome = python(slot, code, files=BASE)
    assert outcome.wall_s < 10
    assert outcome.snapshot is not None
    for name in ("kept", "d/x", "result.json"):
        assert outcome.snapshot.read(name) is None
        assert name not in inside(slot, outcome.snapshot)


def test_very_deep_and_very_long(slot: Slot) -> None:
    """Ten thousand folders in each other: cut off and said so; the run itself stands."""
    code = "import os\nfor n in range(1500):\n  os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('end', 'w').close()"
    outcome = python(slot, code)
    assert outcome.diff.complete is False
    assert outcome.snapshot is None
    assert "its path is too long" in outcome.detail
    assert len(outcome.diff.created) < 64
    assert python(slot, LIST).stdout == b"{}\n"  # and nothing of it is left


def test_as_many_files_as_there_may_be(slot: Slot) -> None:
    code = "import os\nn = 0\ntry:\n  while True:\n    open(str(n), 'w').close(); n += 1\nexcept OSError:\n  print(n)"
    outcome = python(slot, code)
    assert outcome.snapshot is not None
    assert len(outcome.snapshot.listing()) == int(outcome.stdout)


def test_a_sparse_terabyte(slot: Slot) -> None:
    code = "import os; os.truncate(os.open('big', os.O_CREAT | os.O_WRONLY), 1 << 40)"
    limits = Limits(wall_s=20.0, cpu_s=15.0, file_bytes=1 << 45)
    outcome = python(slot, code, limits=limits)
    assert outcome.diff.complete is False
    assert outcome.snapshot is None
    big = next(c for c in outcome.diff.created if c.path == "big")
    assert (big.size, big.digest) == (1 << 40, "")
    assert "are too many" in outcome.detail


def test_a_diff_says_what_each_thing_is(slot: Slot) -> None:
    code = "import os; os.symlink('x', 'link'); os.mkdir('dir', 0o700); os.remove('gone'); open('kept', 'a').write('!')"
    diff = python(slot, code, files=BASE).diff
    rows = {c.path: (c.type, oct(c.mode), c.size) for c in (*diff.created, *diff.changed, *diff.deleted)}
    assert rows == {
        "link": ("symlink", "0o777", 1),
        "dir": ("dir", "0o700", 0),
        "kept": ("file", "0o644", 2),
        "gone": ("file", "0o644", 1),
    }
    assert all(c.digest for c in (*diff.created, *diff.changed, *diff.deleted) if c.type != "dir")
    assert ([c.path for c in diff.changed], [c.path for c in diff.deleted]) == (["kept"], ["gone"])


def test_a_restoration_that_is_not_what_was_kept_is_infra(slot: Slot) -> None:
    """Digests are checked after laying out; here the disk is made to lie."""
    snapshot = python(slot, "open('f', 'w').write('right')").snapshot
    assert snapshot is not None
    assert python(slot, "print(open('f').read())", base=snapshot).stdout == b"right\n"
    Path(slot._storage.lower, "f").write_bytes(b"wrong")
    outcome = slot.run(Job(argv=("/bin/cat", "f"), base=snapshot))
    assert outcome.cause == "infra"
    assert "restored files have the digest" in outcome.detail
    assert outcome.stdout == b""
    assert python(slot, "print(open('f').read())", base=snapshot).stdout == b"right\n"  # laid out anew


def test_reporting_needs_no_disk(slot: Slot) -> None:
    snapshot = python(slot, "open('f', 'w').write('x')").snapshot
    assert snapshot is not None
    assert snapshot.listing() == {"f": change(b"f", snapshot.tree[b"f"])}

"""The folders of one slot, on two tmpfs of their own.

`in/` holds what the supervisor lays out: `root` (the jail's root: device nodes, /etc, mount points, the init), `lower`
(the working folder before the job) and `t` (trusted files). `up/` holds what the program writes: `u` and `k` (overlay
upper and work folder), `tmp`, `shm`.

Invariant: every job starts with an empty `up`, bounded in bytes and inodes, and with `lower` and `t` holding exactly
its own files; nothing a program wrote is ever seen by the next.
"""

# Paths are text or bytes: this runs for every job, and pathlib costs more than the calls.
# ruff: noqa: PTH101, PTH102, PTH108, PTH112, PTH113, PTH114, PTH115, PTH123, PTH211
from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from services.verifier.jail.job import Limits
from services.verifier.jail.syscalls import MS_NODEV, MS_NOSUID, SOURCE, mount_tmpfs, unmount
from services.verifier.jail.tree import Entry, Tree, check

INPUT_BYTES = 2 << 30
INPUT_INODES = 100_000
# On top of the job's limits: our four folders and overlay's own, which take a few inodes and pages.
OWN_INODES = 12
OWN_BYTES = 64 << 10
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9)}
LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


# Names of slots, like those of their cgroups, are one name space per machine; their locks lie here.
HOME = Path("/run/temper")
# Mount points that nsjail uses in its own mount namespace; made here, it need not make them in a folder open to all.
NSJAIL_SCRATCH = "/run/user/nsjail.{uid}.{purpose}"


WALK = 0o755  # the jailed user is not the owner
ANYONE = 0o666  # of device nodes


class Storage:
    """Folders of the slot at `base`; `uid` is the outside id that the jailed user is mapped to."""

    def __init__(self, base: Path, uid: int, init: Path) -> None:
        self.base, self.uid = base, uid
        self.root, self.lower, self.trusted = (f"{base}/{name}" for name in ("in/root", "in/lower", "in/t"))
        self.up = f"{base}/up"
        self.upper, self.work, self.tmp, self.shm = (
            f"{base}/{name}" for name in ("up/u", "up/k", "up/tmp", "up/shm")
        )
        self.binds: list[str] = []
        self._mounted = False
        self._laid: dict[str, Tree] = {}
        for name in ("in", "up"):
            (base / name).mkdir(parents=True)
            os.chmod(base / name, WALK)
        os.chmod(base, WALK)
        # Without nosuid: nsjail's last remount of the root may not drop a flag that the host's mount has. Nothing here
        # is setuid, only we write here, and the jail has no_new_privs.
        mount_tmpfs(f"{base}/in", size=INPUT_BYTES, inodes=INPUT_INODES, flags=0)
        for purpose in ("root", "tmp"):
            Path(NSJAIL_SCRATCH.format(uid=os.getuid(), purpose=purpose)).mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.lower, self.trusted):
            os.mkdir(folder, 0o755)
        os.chown(self.lower, uid, uid)
        self._make_root(init)

    def _make_root(self, init: Path) -> None:
        """The jail's root folder; it is mounted read-only. Fills `binds` with the host folders to mount into it."""
        for name in ("usr", "proc", "dev", "dev/shm", "etc", "tmp", "w", "t"):
            os.mkdir(f"{self.root}/{name}", 0o755)
        self.binds = ["usr"]
        for name in SYSTEM:
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"{self.root}/{name}")
            elif os.path.isdir(f"/{name}"):
                os.mkdir(f"{self.root}/{name}", 0o755)
                self.binds.append(name)
        for name, (major, minor) in DEVICES.items():
            path = f"{self.root}/dev/{name}"
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            os.chmod(path, ANYONE)
        for name, target in LINKS.items():
            os.symlink(target, f"{self.root}/dev/{name}")
        etc = f"{self.root}/etc"
        Path(etc, "passwd").write_text("user:x:1000:1000:user:/w:/bin/sh\n")
        Path(etc, "group").write_text("user:x:1000:\n")
        Path(etc, "hosts").write_text("127.0.0.1 localhost temper\n")
        if os.path.isdir("/etc/alternatives"):  # awk, cc and others are links through this folder
            shutil.copytree("/etc/alternatives", f"{etc}/alternatives", symlinks=True)
        if os.path.isfile("/etc/ld.so.cache"):
            shutil.copyfile("/etc/ld.so.cache", f"{etc}/ld.so.cache")
        shutil.copyfile(init, f"{self.root}/.init")
        os.chmod(f"{self.root}/.init", WALK)

    def reset(self, limits: Limits) -> None:
        """Give the next job an empty `up` of its size. Raises OSError."""
        self.drop()
        size, inodes = limits.disk_bytes + OWN_BYTES, limits.inodes + OWN_INODES
        mount_tmpfs(self.up, size=size, inodes=inodes, flags=MS_NOSUID | MS_NODEV)
        self._mounted = True
        for folder, mode in ((self.upper, 0o755), (self.work, 0o755), (self.tmp, 0o1777), (self.shm, 0o1777)):
            os.mkdir(folder)
            os.chown(folder, self.uid, self.uid)
            os.chmod(folder, mode)

    def drop(self) -> None:
        """Throw away what the program wrote. Raises OSError."""
        if self._mounted:
            unmount(self.up)
            self._mounted = False

    def full(self) -> bool:
        """Whether the program's bytes or inodes are used up now."""
        usage = os.statvfs(self.up)
        return usage.f_bavail * usage.f_frsize <= OWN_BYTES or usage.f_favail == 0

    def lay_out(self, where: str, tree: Tree) -> None:
        """Make `lower` or `trusted` hold exactly `tree`; nothing is done when they do already.

        Raises OSError, and ValueError for a tree that cannot be laid out.
        """
        if self._laid.get(where) == tree:
            return
        self._laid.pop(where, None)
        with os.scandir(where) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    shutil.rmtree(item.path)
                else:
                    os.unlink(item.path)
        check(tree)
        owner = self.uid if where == self.lower else 0
        folder = os.fsencode(where) + b"/"
        for path in sorted(tree):  # a folder sorts before what is in it
            write_entry(folder + path, tree[path], owner)
        self._laid[where] = tree

    def close(self) -> None:
        """Unmount and remove everything of the slot. Raises OSError."""
        self.drop()
        unmount(f"{self.base}/in")
        shutil.rmtree(self.base)


def write_entry(path: bytes, entry: Entry, owner: int) -> None:
    """Make one new file, folder or link (nothing else is ever laid out), without setuid bits. Raises OSError."""
    if entry.kind == "symlink":
        os.symlink(entry.content, path)
    elif entry.kind == "dir":
        os.mkdir(path, 0o700)
        os.chmod(path, entry.mode & 0o1777)
    else:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(entry.content)
            while view:
                view = view[os.write(fd, view) :]
            os.fchmod(fd, entry.mode & 0o777)
        finally:
            os.close(fd)
    if owner:
        os.chown(path, owner, owner, follow_symlinks=False)


def clear_orphans(name: str, candidates: Iterable[Path]) -> None:
    """Unmount and remove what a crashed process left of the slot `name`, wherever it was. Raises OSError."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        rows = [line.split() for line in lines]
    points = [row[4].replace("\\040", " ") for row in rows if row[row.index("-") + 2] == SOURCE]
    bases = {base for point in points for base in [Path(point).parent] if base.name == name}
    for point in reversed(points):
        if Path(point).parent.name == name:
            unmount(point)
    for base in bases.union(candidates):
        if base.is_dir():
            shutil.rmtree(base)


def place(root: Path, name: str) -> Path:
    """Where the slot's folders go: below `root` if the jail can use that, else below HOME.

    nsjail mounts as the slot's unprivileged user, who must be able to walk to the folder (a temporary folder or a
    home is often closed to others), and overlayfs options cannot name every path.
    """
    base = root.resolve() / name
    plain = not any(sign in os.fspath(base) for sign in ',:\\"\n')
    walkable = all(above.stat().st_mode & 0o001 for above in base.parents if above.exists())
    return base if plain and walkable else HOME / name

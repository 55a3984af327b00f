"""The folders of one slot, on two tmpfs of their own.

`in/` holds what the supervisor lays out: `root` (the jail's root: device nodes, /etc, mount points, the init), `lower`
(the working folder before the job) and `t` (trusted files). What a program writes never lies here: it is on a tmpfs
in the job's own mount namespace (job.c), of which we get a descriptor.

Invariant: a job finds `lower` and `t` holding exactly its own files, and cannot write to them.
"""

# Paths are text or bytes: this runs for every job, and pathlib costs more than the calls.
# ruff: noqa: PTH101, PTH102, PTH108, PTH112, PTH113, PTH114, PTH115, PTH123, PTH211
from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from services.verifier.jail import layout
from services.verifier.jail.syscalls import SOURCE, mount_tmpfs, unmount
from services.verifier.jail.tree import Tree

INPUT_BYTES = 2 << 30
INPUT_INODES = 100_000
# On top of a job's limits: our four folders and overlay's own, which take a few inodes and pages.
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
GROUP = 0o750
REPORTER = 3  # outside id of the reporter's group, from the slot's first (config.py, IDS)
ANYONE = 0o666  # of device nodes


class Storage:
    """Folders of the slot at `base`; `uid` is the outside id that the jailed user is mapped to."""

    def __init__(self, base: Path, uid: int, init: Path) -> None:
        self.base, self.uid = base, uid
        self.root, self.lower, self.trusted = (f"{base}/{name}" for name in ("in/root", "in/s/lower", "in/t"))
        self.shared = f"{base}/in/s"  # with a mount point for what a job writes
        self.binds: list[str] = []
        self._laid: dict[str, Tree] = {}
        self._sealed = False
        (base / "in").mkdir(parents=True)
        os.chmod(base / "in", WALK)
        os.chmod(base, WALK)
        # Without nosuid: nsjail's last remount of the root may not drop a flag that the host's mount has. Nothing here
        # is setuid, only we write here, and the jail has no_new_privs.
        mount_tmpfs(f"{base}/in", size=INPUT_BYTES, inodes=INPUT_INODES, flags=0)
        for purpose in ("root", "tmp"):
            Path(NSJAIL_SCRATCH.format(uid=os.getuid(), purpose=purpose)).mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.shared, self.lower, f"{self.shared}/up", self.trusted):
            os.mkdir(folder, 0o755)
        os.chown(self.lower, uid, uid)
        self._make_root(init)

    def _make_root(self, init: Path) -> None:
        """The jail's root folder; it is mounted read-only. Fills `binds` with the host folders to mount into it."""
        for name in ("usr", "proc", "dev", "dev/shm", "etc", "tmp", "w", "t", ".in"):
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

    def lay_out(self, where: str, tree: Tree, *, checked: bool = False) -> None:
        """Make `lower` or `trusted` hold exactly `tree`; nothing is done when they do already.

        `checked`: read it back and compare digests; what does not match is laid out anew the next time.
        Raises OSError, ValueError for a tree that cannot be laid out, and SnapshotError.
        """
        if self._laid.pop(where, None) != tree:
            self._clear(where)
            owner = self.uid if where == self.lower else 0
            folder = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                layout.lay_out(folder, tree, owner)
            finally:
                os.close(folder)
        if checked:
            layout.verify(where, tree)
        self._laid[where] = tree

    def seal(self, *, sealed: bool) -> None:
        """Open `trusted` to the reporter's group alone, or to all of the jail. Raises OSError."""
        if sealed != self._sealed:
            # Closed first: a step that fails leaves it closed.
            os.chmod(self.trusted, 0o700)
            os.chown(self.trusted, -1, self.uid + REPORTER if sealed else 0)
            os.chmod(self.trusted, GROUP if sealed else WALK)
            self._sealed = sealed

    def _clear(self, where: str) -> None:
        with os.scandir(where) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    shutil.rmtree(item.path)
                else:
                    os.unlink(item.path)

    def close(self) -> None:
        """Unmount and remove everything of the slot. Raises OSError."""
        unmount(f"{self.base}/in")
        shutil.rmtree(self.base)


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

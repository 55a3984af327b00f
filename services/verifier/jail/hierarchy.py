"""Which cgroup hierarchies this machine offers, and where below them the jail may make its own groups.

Invariant: every controller that the jail relies on (memory, pids, CPU accounting) is found, on v1, v2 or a mixture,
or the machine is refused by name of what is missing. `plan` is pure: it reads only the two texts it is given.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from services.verifier.jail.job import JailUnavailable

V2 = 2
POINT = 4  # field of a mountinfo line; the one before is the root
NEEDED = ("memory", "pids")
LEAF = "temper-service"


@dataclass(frozen=True, slots=True)
class Tree:
    """One place to make groups: `parent` folder, version 1 or 2, and the roles that it plays for the jail.

    Roles: `memory`, `pids`, `cpu` (usage accounting), `kill` (v2's cgroup.kill and its `populated` event).
    """

    parent: Path
    version: int
    roles: frozenset[str]


@dataclass(frozen=True, slots=True)
class Mount:
    """A cgroup file system: where it is, which part of the hierarchy it shows, its version and controllers."""

    point: Path
    root: str
    version: int
    controllers: frozenset[str]


def mounts(mountinfo: str) -> list[Mount]:
    """The cgroup mounts named in the text of /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) <= POINT or not tail or tail[0] not in ("cgroup", "cgroup2"):
            continue
        point = Path(fields[POINT].replace("\\040", " "))
        version = V2 if tail[0] == "cgroup2" else 1
        controllers = frozenset(tail[2].split(",")) if version == 1 and tail[2:] else frozenset[str]()
        found.append(Mount(point, fields[POINT - 1], version, controllers))
    return found


def own_path(mount: Mount, proc_cgroup: str) -> Path:
    """Folder, below the mount, of the group this process is in; the mount itself when that is not visible."""
    for line in proc_cgroup.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        same = not names if mount.version == V2 else bool(mount.controllers & set(names.split(",")))
        if same:
            inside = os.path.relpath(path, mount.root) if mount.root != "/" else path.lstrip("/")
            return mount.point if inside.startswith("..") else mount.point / inside
    return mount.point


def plan(mountinfo: str, proc_cgroup: str, v2_controllers: frozenset[str]) -> list[Tree]:
    """Choose a tree for each role; `v2_controllers` are those the unified hierarchy can hand to our groups.

    A controller lives in one hierarchy at a time, so it is taken from v2 where v2 has it and else from v1. Raises
    JailUnavailable naming the first controller that is nowhere.
    """
    all_mounts = mounts(mountinfo)
    unified = next((m for m in all_mounts if m.version == V2), None)
    roles: dict[Path, tuple[int, set[str]]] = {}

    def give(mount: Mount, role: str) -> None:
        roles.setdefault(own_path(mount, proc_cgroup), (mount.version, set()))[1].add(role)

    for name in NEEDED:
        if unified is not None and name in v2_controllers:
            give(unified, name)
            continue
        old = next((m for m in all_mounts if name in m.controllers), None)
        if old is None:
            raise JailUnavailable(
                f"no cgroup controller '{name}': mount it (v1) or delegate it to this service's group (v2)"
            )
        give(old, name)
    if unified is not None:
        give(unified, "cpu")  # v2 accounts CPU time in every group, with or without the controller
        give(unified, "kill")
    else:
        old = next((m for m in all_mounts if "cpuacct" in m.controllers), None)
        if old is None:
            raise JailUnavailable("no cgroup CPU accounting: mount cgroup v2, or the v1 controller 'cpuacct'")
        give(old, "cpu")
    return [Tree(parent, version, frozenset(names)) for parent, (version, names) in roles.items()]


def describe(trees: list[Tree]) -> str:
    """`cgroup v1`, `cgroup v2` or `cgroup hybrid (memory v1, pids v1, cpu v2, kill v2)`."""
    versions = {tree.version for tree in trees}
    if len(versions) == 1:
        return f"cgroup v{versions.pop()}"
    parts = [
        f"{role} v{t.version}" for role in ("memory", "pids", "cpu", "kill") for t in trees if role in t.roles
    ]
    return f"cgroup hybrid ({', '.join(parts)})"


def delegate(unified: Path) -> frozenset[str]:
    """Make memory and pids available to children of the v2 group `unified`; returns those that now are.

    v2 forbids processes beside child groups that have controllers, except in the root of the hierarchy: where our
    own group holds processes (a container, a service unit) they are moved into a leaf of it first.
    """
    offered = set((unified / "cgroup.controllers").read_text().split())
    switch = unified / "cgroup.subtree_control"
    for name in NEEDED:
        if name not in offered or name in switch.read_text().split():
            continue
        try:
            switch.write_text(f"+{name}")
        except OSError:
            if not move_to_leaf(unified):
                continue
            try:
                switch.write_text(f"+{name}")
            except OSError:
                continue  # not ours to hand out: `plan` names what is missing
    return frozenset(switch.read_text().split()) & frozenset(NEEDED)


def move_to_leaf(group: Path) -> bool:
    """Move the processes of `group` into its child `LEAF`; False when that is not permitted."""
    leaf = group / LEAF
    try:
        leaf.mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text().split():
            try:
                (leaf / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                continue  # ended meanwhile
    except OSError:
        return False
    return True


def discover(proc: Path = Path("/proc/self")) -> list[Tree]:
    """The trees of the machine that `proc` tells of, delegating v2 controllers where needed. Raises JailUnavailable."""
    mountinfo = (proc / "mountinfo").read_text()
    # A process that `move_to_leaf` moved, or that such a one started, makes its groups beside that leaf.
    lines = (proc / "cgroup").read_text().splitlines()
    proc_cgroup = "\n".join(x.removesuffix(f"/{LEAF}") if x.startswith("0::") else x for x in lines)
    unified = next((m for m in mounts(mountinfo) if m.version == V2), None)
    available: frozenset[str] = frozenset()
    if unified is not None:
        group = own_path(unified, proc_cgroup)
        try:
            available = delegate(group)
        except OSError as error:
            raise JailUnavailable(f"cgroup v2 at {group} cannot be read: {error.strerror}") from error
    return plan(mountinfo, proc_cgroup, available)

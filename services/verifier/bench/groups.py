"""The cgroups that count what a measured system uses.

Invariant: everything a system starts, the jail's own groups included, is below the system's group `<run>/<system>` in each
hierarchy that the jail uses, so the usage of that one group is all its processor time. What kernel threads do
afterwards (the teardown of network namespaces) is in no group and counted for nobody.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from services.verifier.jail import JailUnavailable
from services.verifier.jail.hierarchy import NEEDED, V2, Tree

LEAF = "run"
REMOVE_S = 5.0
RETRY_S = 0.01


class Groups:
    """One group in each tree for a benchmark, with one below it for each of `systems`."""

    def __init__(self, trees: Sequence[Tree], systems: Sequence[str]) -> None:
        """Make them. Raises JailUnavailable."""
        self.trees, self._name = list(trees), f"temper-bench-{os.getpid()}"
        try:
            for tree in self.trees:
                self._make(tree, tree.parent / self._name)
                for system in systems:
                    self._make(tree, self.folder(tree, system))
                    (self.folder(tree, system) / LEAF).mkdir()
        except OSError as error:
            self.remove()
            raise JailUnavailable(f"cgroups for the benchmark cannot be made: {error}") from error

    def folder(self, tree: Tree, system: str) -> Path:
        """Group of a system in one tree; its own processes go one below, as v2 demands."""
        return tree.parent / self._name / system

    def procs(self, system: str) -> list[str]:
        """The cgroup.procs files that a process of the system joins by."""
        return [f"{self.folder(tree, system) / LEAF}/cgroup.procs" for tree in self.trees]

    def tree(self, role: str) -> Tree:
        """The tree that plays a role for the jail."""
        return next(tree for tree in self.trees if role in tree.roles)

    def cpu_s(self, system: str) -> float:
        """Processor seconds, user and system, of all that ever ran for the system."""
        tree = self.tree("cpu")
        folder = self.folder(tree, system)
        if tree.version == V2:
            words = (folder / "cpu.stat").read_text().split()
            return int(words[words.index("usage_usec") + 1]) / 1e6
        return int((folder / "cpuacct.usage").read_text()) / 1e9

    def below(self, system: str) -> list[Path]:
        """Groups that a system's own work has made and that are still there."""
        leaves = [self.folder(tree, system) / LEAF for tree in self.trees]
        return [
            path
            for leaf in leaves
            for path in leaf.rglob("*")
            if path.is_dir() and path.name.startswith("temper-")
        ]

    def members(self, system: str) -> set[int]:
        """Processes now in the system's groups."""
        found: set[int] = set()
        for tree in self.trees:
            for path in self.folder(tree, system).rglob("cgroup.procs"):
                with suppress(OSError):  # the group has gone meanwhile
                    found.update(int(word) for word in path.read_text().split())
        return found

    def remove(self) -> None:
        """Kill what is in the groups and remove them. Raises OSError when that is not done in time."""
        end = time.monotonic() + REMOVE_S
        for tree in self.trees:
            top = tree.parent / self._name
            while top.is_dir():
                try:
                    for path in sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True):
                        path.rmdir()
                    top.rmdir()
                except OSError:
                    if time.monotonic() > end:
                        raise
                    _kill(top)
                    time.sleep(RETRY_S)  # no event tells when the last of a group is gone

    def _make(self, tree: Tree, path: Path) -> None:
        path.mkdir()
        if tree.version == V2 and (wanted := [name for name in NEEDED if name in tree.roles]):
            (path / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))


def _kill(top: Path) -> None:
    for path in top.rglob("cgroup.procs"):
        with suppress(OSError):
            for word in path.read_text().split():
                os.kill(int(word), signal.SIGKILL)

"""Machines of every kind as trees of files: what the jail finds on each, uses there, or misses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.verifier.jail import Host, JailUnavailable, Outcome
from services.verifier.jail import machine as probing
from services.verifier.jail.hierarchy import LEAF, Tree, describe, discover
from services.verifier.jail.job import Limits
from services.verifier.jail.jobgroups import JobGroups

V1_FILES = (
    *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "memory.max_usage_in_bytes"),
    *("memory.kmem.tcp.limit_in_bytes", "pids.max", "pids.current", "pids.events", "cpuacct.usage", "cgroup.procs"),
)  # fmt: skip


class Machine:
    """A folder that stands for /proc/self and for the mounted hierarchies."""

    def __init__(self, top: Path) -> None:
        self.top, self.proc = top, top / "proc"
        self.proc.mkdir()
        self.mounts: list[str] = []
        self.groups: list[str] = []

    def v1(self, *controllers: str, own: str = "/") -> Path:
        names = ",".join(controllers)
        point = self.top / "cgroup" / names
        (point / own.strip("/")).mkdir(parents=True)
        self.mounts.append(f"3{len(self.mounts)} 1 0:1 / {point} rw - cgroup cgroup rw,{names}")
        self.groups.append(f"{len(self.groups) + 1}:{names}:{own}")
        return point / own.strip("/")

    def v2(self, offered: str, handed: str, own: str = "/", root: str = "/") -> Path:
        point = self.top / "cgroup" / "unified"
        group = point / own.strip("/")
        group.mkdir(parents=True)
        (group / "cgroup.controllers").write_text(offered)
        (group / "cgroup.subtree_control").write_text(handed)
        (group / "cgroup.procs").write_text("")
        self.mounts.append(f"3{len(self.mounts)} 1 0:1 {root} {point} rw - cgroup2 cgroup2 rw")
        self.groups.append(f"0::{own}")
        return group

    def discover(self) -> list[Tree]:
        (self.proc / "mountinfo").write_text("\n".join(self.mounts) + "\n")
        (self.proc / "cgroup").write_text("\n".join(self.groups) + "\n")
        return discover(self.proc)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def by_role(trees: list[Tree]) -> dict[str, tuple[Path, int]]:
    return {role: (tree.parent, tree.version) for tree in trees for role in tree.roles}


def test_v1_only(machine: Machine) -> None:
    memory, pids = machine.v1("memory", own="/a.service"), machine.v1("pids")
    cpu = machine.v1("cpu", "cpuacct", own="/b")
    trees = machine.discover()
    assert by_role(trees) == {"memory": (memory, 1), "pids": (pids, 1), "cpu": (cpu, 1)}
    assert describe(trees) == "cgroup v1"


def test_v1_with_all_controllers_in_one_hierarchy(machine: Machine) -> None:
    top = machine.v1("memory", "pids", "cpu", "cpuacct", own="/x")
    (tree,) = machine.discover()
    assert (tree.parent, sorted(tree.roles)) == (top, ["cpu", "memory", "pids"])


def test_v2_only(machine: Machine) -> None:
    group = machine.v2("cpuset cpu io memory pids", "memory pids", own="/verifier.service")
    (tree,) = trees = machine.discover()
    assert (tree.parent, tree.version, sorted(tree.roles)) == (group, 2, ["cpu", "kill", "memory", "pids"])
    assert describe(trees) == "cgroup v2"


def test_v2_only_asks_for_the_controllers_that_it_is_offered(machine: Machine) -> None:
    group = machine.v2("memory pids", "", own="/verifier.service")
    with pytest.raises(JailUnavailable, match="no cgroup controller 'memory'"):
        machine.discover()  # a file does not hand out what is written to it, as the kernel would
    assert (group / "cgroup.subtree_control").read_text() == "+pids"


def test_what_a_container_is_not_shown_is_taken_for_its_root(machine: Machine) -> None:
    point = machine.v2("memory pids", "memory pids", root="/docker/x")
    machine.groups[-1] = "0::/elsewhere"
    (tree,) = machine.discover()
    assert tree.parent == point


def test_a_process_in_the_leaf_makes_its_groups_beside_it(machine: Machine) -> None:
    group = machine.v2("memory pids", "memory pids", own="/v.service")
    machine.groups[-1] = f"0::/v.service/{LEAF}"
    (tree,) = machine.discover()
    assert tree.parent == group


def test_hybrid_takes_each_controller_where_it_lives(machine: Machine) -> None:
    memory = machine.v1("memory")
    unified = machine.v2("hugetlb pids", "pids")
    found = by_role(machine.discover())
    assert found == {"memory": (memory, 1), "pids": (unified, 2), "cpu": (unified, 2), "kill": (unified, 2)}


@pytest.mark.parametrize(
    ("offered", "missing"), [("cpu pids", "'memory'"), ("memory", "'pids'"), ("", "'memory'")]
)
def test_v2_without_a_controller_is_refused_by_its_name(machine: Machine, offered: str, missing: str) -> None:
    machine.v2(offered, offered)
    with pytest.raises(JailUnavailable, match=f"no cgroup controller {missing}") as caught:
        machine.discover()
    assert "\n" not in str(caught.value)


def test_v1_without_accounting_of_processor_time_is_refused(machine: Machine) -> None:
    machine.v1("memory")
    machine.v1("pids")
    with pytest.raises(JailUnavailable, match="CPU accounting"):
        machine.discover()


def test_no_cgroups_at_all_are_refused(machine: Machine) -> None:
    machine.mounts.append("30 1 0:1 / /proc rw - proc proc rw")
    with pytest.raises(JailUnavailable, match="no cgroup controller 'memory'"):
        machine.discover()


def test_a_hierarchy_that_cannot_be_read_is_named(machine: Machine) -> None:
    group = machine.v2("memory pids", "memory pids")
    (group / "cgroup.controllers").unlink()
    with pytest.raises(JailUnavailable, match=f"{group} cannot be read"):
        machine.discover()


def test_limits_and_counters_of_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of v1, in one hierarchy: what is written to which, and what is read from which."""
    (tmp_path / "slot").mkdir()
    real = os.mkdir

    def mkdir(path: str) -> None:
        real(path)
        for name in V1_FILES:
            (Path(path) / name).write_text("")

    monkeypatch.setattr(os, "mkdir", mkdir)
    groups = JobGroups([Tree(tmp_path, 1, frozenset({"memory", "pids", "cpu"}))], "slot", 1)
    groups.create(Limits(memory_bytes=64 << 20, pids=10))
    group = tmp_path / "slot" / "job-1"
    assert (group / "memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (group / "memory.memsw.limit_in_bytes").read_text() == str(64 << 20)
    assert (group / "pids.max").read_text() == "11"
    (group / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    (group / "memory.max_usage_in_bytes").write_text("8192\n")
    (group / "pids.events").write_text("max 2\n")
    (group / "pids.current").write_text("4\n")
    (group / "cpuacct.usage").write_text("2500000000\n")
    assert (groups.oom_kills(), groups.refused_forks(), groups.peak_memory()) == (3, 2, 8192)
    assert groups.pids() == 3
    assert groups.cpu_s() == pytest.approx(2.5)


HERE = Host(Path("nsjail"), Path("keeper"), Path("launch"), (), 1, "x")
RAN = Outcome(cause="exit", exit_code=0)
APART = "Name:\tcat\nUid:\t1002\t1000\t1000\t1000\nGid:\t1000\t1002\t1002\t1002\n"


@pytest.mark.parametrize(
    ("usual", "late", "found"),
    [
        (APART, "never asked for", False),
        (APART.replace("1002\t1000", "1002\t1002", 1), APART, True),
        (APART.replace("1000\t1002", "1000\t1000"), APART, True),
        ("", APART, True),
        (APART.replace("1002", "1000"), APART.replace("1002", "1000"), None),
        ("", "", None),
    ],
)
def test_ids_that_an_exec_takes_away_are_kept_in_another_way_or_the_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch, usual: str, late: str, *, found: bool | None
) -> None:
    """What the two kinds of kernel say, of which only one is ours."""

    def trial(host: Host) -> tuple[Outcome, Outcome]:
        return RAN, Outcome(cause="exit", exit_code=0, stdout=(late if host.late else usual).encode())

    monkeypatch.setattr(probing, "trial", trial)
    if found is None:
        with pytest.raises(
            JailUnavailable, match=r"^this kernel \(.*\) does not let .* of its own beside an answer"
        ):
            probing.tried_out(HERE)
    else:
        assert probing.tried_out(HERE).late is found

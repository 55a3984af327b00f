"""Cgroup v1, v2 and hybrid are told apart, and what is missing is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.verifier.jail import JailUnavailable, cgroups
from services.verifier.jail.cgroups import SlotGroups, counter
from services.verifier.jail.hierarchy import Tree, delegate, describe, plan
from services.verifier.jail.job import Limits
from services.verifier.jail.jobgroups import JobGroups

V1 = """
30 20 0:25 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
31 20 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
32 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
"""
UNIFIED = "33 20 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
PURE = "33 20 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
OWN = "5:pids:/\n4:memory:/me/here\n3:cpu,cpuacct:/\n0::/unit.service\n"


def roles(trees: list[Tree]) -> dict[str, tuple[str, int]]:
    return {role: (str(tree.parent), tree.version) for tree in trees for role in tree.roles}


def test_v1_alone() -> None:
    trees = plan(V1, OWN, frozenset())
    assert roles(trees) == {
        "memory": ("/sys/fs/cgroup/memory/me/here", 1),
        "pids": ("/sys/fs/cgroup/pids", 1),
        "cpu": ("/sys/fs/cgroup/cpu,cpuacct", 1),
    }
    assert describe(trees) == "cgroup v1"


def test_hybrid_kills_and_counts_by_v2() -> None:
    trees = plan(V1 + UNIFIED, OWN, frozenset())
    found = roles(trees)
    assert found["memory"] == ("/sys/fs/cgroup/memory/me/here", 1)
    assert found["kill"] == found["cpu"] == ("/sys/fs/cgroup/unified/unit.service", 2)
    assert describe(trees) == "cgroup hybrid (memory v1, pids v1, cpu v2, kill v2)"


def test_v2_alone_is_one_tree() -> None:
    trees = plan(PURE, OWN, frozenset({"memory", "pids"}))
    assert [(str(t.parent), t.version, len(t.roles)) for t in trees] == [
        ("/sys/fs/cgroup/unit.service", 2, 4)
    ]
    assert describe(trees) == "cgroup v2"


def test_a_container_sees_its_own_part_as_the_root() -> None:
    part = "33 20 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert (
        str(plan(part, "0::/docker/abc/x\n", frozenset({"memory", "pids"}))[0].parent) == "/sys/fs/cgroup/x"
    )
    assert str(plan(part, "0::/elsewhere\n", frozenset({"memory", "pids"}))[0].parent) == "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("mountinfo", "v2", "missing"),
    [
        ("", frozenset[str](), "memory"),
        (PURE, frozenset[str](), "memory"),
        (PURE, frozenset({"memory"}), "pids"),
        (V1.replace("cpuacct", "cpuset"), frozenset[str](), "CPU accounting"),
    ],
)
def test_what_is_missing_is_named(mountinfo: str, v2: frozenset[str], missing: str) -> None:
    with pytest.raises(JailUnavailable, match=missing):
        plan(mountinfo, OWN, v2)


def test_delegation_names_only_what_is_offered(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("pids\n")
    assert delegate(tmp_path) == {"pids"}


def test_v2_limits_are_written_to_the_files_of_v2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines that run the tests may have no v2 controllers: a folder stands for the kernel's."""
    group = tmp_path / "slot" / "job-3"
    (tmp_path / "slot").mkdir()
    real = os.mkdir
    files = (
        "memory.max",
        "memory.swap.max",
        "pids.max",
        "memory.events",
        "pids.events",
        "pids.peak",
        "memory.peak",
        "cpu.stat",
    )

    def mkdir(path: str) -> None:
        real(path)
        for name in files:
            (Path(path) / name).write_text("")

    monkeypatch.setattr(os, "mkdir", mkdir)
    groups = JobGroups([Tree(tmp_path, 2, frozenset({"memory", "pids", "cpu", "kill"}))], "slot", 3)
    groups.create(Limits(memory_bytes=64 << 20, pids=10))
    assert (group / "memory.max").read_text() == str(64 << 20)
    assert (group / "memory.swap.max").read_text() == "0"
    assert (group / "pids.max").read_text() == "11"
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (group / "pids.events").write_text("max 5\n")
    (group / "memory.peak").write_text("4096\n")
    (group / "pids.peak").write_text("4\n")
    (group / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert (groups.oom_kills(), groups.refused_forks(), groups.peak_memory()) == (2, 5, 4096)
    assert groups.peak_pids() == 3
    assert groups.cpu_s() == pytest.approx(1.5)


def test_counter_takes_the_whole_key() -> None:
    assert counter(b"oom 1\noom_kill 7\noom_kill_all 9\n", b"oom_kill") == 7
    assert counter(b"", b"oom_kill") == 0


def test_a_slot_hands_the_controllers_of_v2_to_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr(cgroups, "write", lambda path, text: asked.append((path, text)))
    trees = [
        Tree(tmp_path / "two", 2, frozenset({"pids", "cpu", "kill"})),
        Tree(tmp_path / "one", 1, frozenset({"memory"})),
    ]
    for tree in trees:
        tree.parent.mkdir()
    groups = SlotGroups(trees, "slot")
    groups.make()
    assert asked == [(f"{tmp_path}/two/slot/cgroup.subtree_control", "+pids")]
    assert all((tree.parent / "slot" / "keep").is_dir() for tree in trees)
    assert not groups.keeps_peak


V1_AS_NEW = {
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
    "memory.usage_in_bytes": "524288\n",
    "memory.max_usage_in_bytes": "9999999\n",
    "pids.events": "max 0\n",
    "pids.current": "0\n",
    "pids.peak": "2\n",
    "cpuacct.usage": "2500000000\n",
}


@pytest.mark.parametrize(
    ("file", "text", "good"),
    [
        ("", "", True),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", False),
        ("memory.usage_in_bytes", f"{(1 << 20) + 1}\n", False),
        ("pids.events", "max 1\n", False),
        ("pids.current", "1\n", False),
        ("pids.peak", "3\n", False),
        ("pids.peak", None, False),  # a kernel that keeps none
        ("memory.max_usage_in_bytes", None, False),
    ],
)
def test_groups_serve_another_job_only_if_nothing_tells_them_from_new_ones(
    tmp_path: Path, file: str, text: str | None, *, good: bool
) -> None:
    group = tmp_path / "slot" / "job-1"
    group.parent.mkdir()
    limits = Limits(memory_bytes=64 << 20, pids=10)
    groups = JobGroups([Tree(tmp_path, 1, frozenset({"memory", "pids", "cpu"}))], "slot", 1)
    groups.make()
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max"):
        (group / name).write_text("")
    for name, content in (V1_AS_NEW | {file: text} if file else V1_AS_NEW).items():
        if content is not None:
            (group / name).write_text(content)
    groups.limit(limits)
    assert groups.as_new(limits) is good
    if good:
        assert groups.cpu_s() == 0.0  # the time of the job before is not this one's
        (group / "cpuacct.usage").write_text("4000000000\n")
        assert groups.cpu_s() == pytest.approx(1.5)
        assert (group / "memory.max_usage_in_bytes").read_text().startswith("0")
    assert not groups.as_new(Limits(memory_bytes=64 << 20, pids=11))

"""What a job sees, what comes back, and that nothing of it stays."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.verifier.jail import FileEntry, Host, JailUnavailable, Job, Limits, Slot, Snapshot
from services.verifier.jail.snapshot import load, save
from services.verifier.jail.storage import HOME
from tests.slots import number

pytestmark = pytest.mark.integration
CALM = Limits(wall_s=10, cpu_s=5)


def sh(text: str, **more: Any) -> Job:
    return Job(**{"argv": ("/bin/sh", "-c", text), "limits": CALM, **more})


def test_streams_report_and_status(slot: Slot) -> None:
    outcome = slot.run(sh("cat; echo err >&2; echo told >&9; exit 3", stdin=b"given", report=True))
    assert (outcome.cause, outcome.exit_code, outcome.signal) == ("exit", 3, None)
    assert (outcome.stdout, outcome.stderr, outcome.report) == (b"given", b"err\n", b"told\n")
    assert outcome.network == "none"
    assert "seccomp" in outcome.isolation
    assert 0 < outcome.cpu_s < 1
    assert 0 < outcome.wall_s < 5
    assert outcome.peak_memory_bytes > 0


def test_no_report_unless_asked(slot: Slot) -> None:
    assert slot.run(sh("echo told >&9")).exit_code != 0


def test_input_larger_than_a_pipe(slot: Slot) -> None:
    data = os.urandom(3_000_000)
    outcome = slot.run(sh("sha256sum", stdin=data, limits=replace(CALM, output_bytes=1000)))
    assert outcome.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert slot.run(sh("exec <&-; sleep 0.2", stdin=data)).exit_code == 0


def test_output_is_cut_and_flagged_before_it_is_a_flood(slot: Slot) -> None:
    limits = replace(CALM, output_bytes=1000)
    outcome = slot.run(sh("head -c 3000 /dev/zero; echo ok >&2", limits=limits))
    assert (outcome.cause, len(outcome.stdout), outcome.stdout_truncated) == ("exit", 1000, True)
    assert (outcome.stderr, outcome.stderr_truncated) == (b"ok\n", False)


def test_files_trusted_files_and_environment(slot: Slot) -> None:
    job = sh(
        "cat deep/in/a; ./run; cat /t/x/b; echo no > /t/x/b; echo $EXTRA $HOME $TZ",
        files={"deep/in/a": FileEntry(b"A"), "run": FileEntry(b"#!/bin/sh\necho ran\n", 0o755)},
        trusted={"x/b": FileEntry(b"B\n")},
        env={"EXTRA": "more", "TZ": "Asia/Tokyo"},
    )
    outcome = slot.run(job)
    assert outcome.stdout == b"Aran\nB\nmore /w Asia/Tokyo\n"
    assert b"Read-only" in outcome.stderr
    assert outcome.diff.created == ()


def test_diff(slot: Slot) -> None:
    files = {name: FileEntry(b"old\n") for name in ("edit", "drop", "keep", "dir/a", "dir/b", "gone/x")}
    job = sh(
        "echo new > edit; rm drop; chmod 644 keep; cat keep >> /dev/null; : >> keep; rm -r gone;"
        "rm -r dir; mkdir dir; echo c > dir/c; ln -s /etc/shadow link; mkfifo pipe; mkdir -p x/y",
        files=files,
    )
    diff = slot.run(job).diff
    assert [(c.path, c.type) for c in diff.created] == [
        ("dir/c", "file"),
        ("link", "symlink"),
        ("pipe", "fifo"),
        ("x", "dir"),
        ("x/y", "dir"),
    ]
    assert [c.path for c in diff.changed] == ["edit"]
    assert [c.path for c in diff.deleted] == ["dir/a", "dir/b", "drop", "gone", "gone/x"]
    assert diff.complete


def test_a_program_cannot_hide_files_by_attributes(slot: Slot) -> None:
    code = (
        "import os\nfor n in ('user.overlay.opaque', 'user.overlay.whiteout', 'user.overlay.origin'):\n"
        "  for p in ('d', 'd/x'):\n    try: os.setxattr(p, n, b'y')\n    except OSError: pass"
    )
    job = Job(
        argv=("/usr/bin/python3", "-c", code),
        files={"d/x": FileEntry(b"1"), "d/y": FileEntry(b"2")},
        limits=CALM,
    )
    outcome = slot.run(replace(job, keep=True))
    assert outcome.exit_code == 0
    assert (outcome.diff.created, outcome.diff.changed, outcome.diff.deleted) == ((), (), ())
    assert outcome.snapshot is not None
    assert outcome.snapshot.read("d/y") == b"2"


def test_snapshots_stack_roll_back_and_survive_a_store(slot: Slot, host: Host, tmp_path: Path) -> None:
    first = slot.run(
        sh("echo 1 > a; mkdir d; echo x > d/x; mkfifo d/p", files={"g": FileEntry(b"G")}, keep=True)
    )
    assert isinstance(first.snapshot, Snapshot)
    second = slot.run(sh("cat g a; echo 2 > a; rm -r d; mkdir d; touch d/y", base=first.snapshot, keep=True))
    assert second.stdout == b"G1\n"
    assert second.snapshot is not None
    assert [c.path for c in second.diff.changed] == ["a"]
    assert (second.snapshot.read("a"), second.snapshot.read("d/x"), second.snapshot.read("d/y")) == (
        b"2\n",
        None,
        b"",
    )
    assert first.snapshot.read("a") == b"1\n"
    rolled_back = slot.run(sh("cat a; ls d", base=first.snapshot))
    assert rolled_back.stdout == b"1\nx\n"
    name = save(second.snapshot, tmp_path / "blobs")
    with Slot(f"temper-other-{os.getpid()}-{number()}", tmp_path, host) as other:
        restored = other.run(sh("cat g a; ls -A d", base=load(name, tmp_path / "blobs"), keep=True))
    assert restored.stdout == b"G2\ny\n"
    assert restored.snapshot is not None
    assert restored.snapshot.digest == name


def test_a_long_chain_of_snapshots_is_flattened(slot: Slot) -> None:
    snapshot: Snapshot | None = None
    for n in range(20):
        snapshot = slot.run(sh(f"echo {n} > f{n}", base=snapshot, keep=True)).snapshot
        assert snapshot is not None
    assert snapshot is not None
    assert len(snapshot.listing()) == 20
    assert len(snapshot.layers) <= 16


def test_same_input_same_facts(slot: Slot) -> None:
    code = (
        "import os,sys,time,tempfile,json\nopen('f','w').write('x')\n"
        "print(json.dumps([hash('a'), id(object()), os.getpid(), os.uname().nodename, time.tzname, os.getcwd(),"
        " os.stat('f').st_ino, sorted(os.environ.items()), sys.flags.hash_randomization, os.listdir('/')]))"
    )
    job = Job(argv=("/usr/bin/python3", "-S", "-c", code), limits=CALM, keep=True)
    outcomes = [slot.run(job) for _ in range(3)]
    assert len({outcome.stdout for outcome in outcomes}) == 1, outcomes
    assert len({outcome.snapshot.digest for outcome in outcomes if outcome.snapshot}) == 1
    assert json.loads(outcomes[0].stdout)[3] == "temper"


def test_setup_failure_is_infra_and_the_slot_recovers(slot: Slot, host: Host, tmp_path: Path) -> None:
    broken = replace(host, nsjail=Path("/bin/false"))
    with Slot(f"temper-broken-{os.getpid()}-{number()}", tmp_path, broken) as bad:
        outcome = bad.run(sh("true"))
    assert (outcome.cause, outcome.exit_code) == ("infra", None)
    assert "could not be set up" in outcome.detail
    init = Path(f"{slot._storage.root}/.init")
    content = init.read_bytes()
    init.unlink()
    assert slot.run(sh("exit 0")).cause == "infra"
    init.write_bytes(content)
    init.chmod(0o755)
    assert slot.run(sh("exit 0")).exit_code == 0


def test_a_cgroup_that_cannot_be_made_is_infra(slot: Slot) -> None:
    blocker = slot.host.trees[0].parent / slot.name
    blocker.mkdir()
    outcome = slot.run(sh("true"))
    assert outcome.cause == "infra"
    assert "File exists" in outcome.detail
    assert slot.run(sh("true")).cause == "exit"  # the failed job removed what was in the way


def test_a_name_belongs_to_one(slot: Slot, host: Host, tmp_path: Path) -> None:
    with pytest.raises(JailUnavailable, match="in use"):
        Slot(slot.name, tmp_path, host, wait_s=0)
    with pytest.raises(JailUnavailable, match="must be temper-"):
        Slot("other", tmp_path, host)


def test_closing_leaves_nothing(host: Host, tmp_path: Path) -> None:
    name = f"temper-closing-{os.getpid()}-{number()}"
    before = len(list(Path("/proc/self/fd").iterdir()))
    made = Slot(name, tmp_path, host)
    made.run(sh("echo x > f"))
    made.close()
    made.close()
    assert name not in Path("/proc/self/mountinfo").read_text()
    assert not list(HOME.glob(f"{name}*"))
    assert not (tmp_path / name).exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert not [path for tree in host.trees if (path := tree.parent / name).exists()]


def test_slots_have_different_outside_ids(slot: Slot, host: Host, tmp_path: Path) -> None:
    with Slot(f"temper-ids-{os.getpid()}-{number()}", tmp_path, host) as other:
        assert other.uid != slot.uid
        assert other.run(sh("id -u")).stdout == slot.run(sh("id -u")).stdout == b"1000\n"


def test_a_descriptor_of_ours_does_not_reach_the_program(slot: Slot, tmp_path: Path) -> None:
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)  # noqa: FBT003
    try:
        outcome = slot.run(sh("ls /proc/self/fd", env={"X": "1"}))
    finally:
        os.close(secret)
    assert outcome.stdout.split() == [b"0", b"1", b"2", b"3"]

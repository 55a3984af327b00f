"""No two slots of this machine have a user id in common, whichever processes they belong to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.verifier.jail import JailUnavailable
from services.verifier.jail.numbers import COUNT, own, reserve
from services.verifier.jail.ownership import free_lock, take_lock, take_name

HOLDER = """
import sys
from pathlib import Path
from services.verifier.jail.numbers import reserve
from services.verifier.jail.ownership import take_lock
home = Path(sys.argv[1])
held = reserve(3, home)
owned = take_lock(home / f"temper-other-{held.numbers[0]}.lock", 0)
print(*held.numbers, flush=True)
sys.stdin.read()
"""


def test_pools_get_numbers_apart_however_many(tmp_path: Path) -> None:
    """Also those that begin to look at the same place, and with more slots than lie between two such places."""
    held = [reserve(40, tmp_path, first=112) for _ in range(3)]
    together = [number for each in held for number in each.numbers]
    assert len(set(together)) == 120
    held[1].close()
    again = reserve(40, tmp_path, first=112)
    assert not set(again.numbers) & {*held[0].numbers, *held[2].numbers}
    for each in (held[0], held[2], again):
        each.close()


def test_what_another_process_holds_is_left_alone_until_it_ends(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        theirs = [int(word) for word in other.stdout.readline().split()]
        rest = reserve(COUNT - 3, tmp_path)
        assert set(rest.numbers) == set(range(COUNT)) - set(theirs)
        rest.close()
        with pytest.raises(JailUnavailable, match=f"slot number {theirs[0]} .* in use") as caught:
            take_lock(tmp_path / f"temper-mine-{theirs[0]}.lock", 0.05)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / f"temper-mine-{theirs[0]}.lock").exists()
        other.kill()
    free_lock(take_lock(tmp_path / f"temper-mine-{theirs[0]}.lock", 5.0), tmp_path / "x")


def test_two_slots_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    first = take_lock(tmp_path / "temper-a-5.lock", 0)
    with pytest.raises(JailUnavailable, match="number 5"):
        take_lock(tmp_path / "temper-b-5.lock", 0)
    assert 5 not in reserve(COUNT - 1, tmp_path).numbers
    free_lock(first, tmp_path / "temper-a-5.lock")
    free_lock(take_lock(tmp_path / "temper-b-5.lock", 0), tmp_path / "temper-b-5.lock")


def test_a_sweep_may_take_a_dead_name_whose_number_lives_on(tmp_path: Path) -> None:
    alive = take_lock(tmp_path / "temper-new-9.lock", 0)
    dead = take_name(tmp_path / "temper-old-9.lock", 0)
    os.close(dead)
    free_lock(alive, tmp_path / "temper-new-9.lock")


def test_when_all_are_taken_one_line_says_so(tmp_path: Path) -> None:
    held = reserve(COUNT, tmp_path)
    with pytest.raises(JailUnavailable, match="2 slots are wanted, 0 of 10000 are free"):
        reserve(2, tmp_path)
    held.close()
    reserve(1, tmp_path).close()


@pytest.mark.parametrize("name", ["temper", "temper-x-", "temper-x-y", "temper-x-10000", "temper-x--"])
def test_a_name_without_a_number_is_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(JailUnavailable, match="must end in a number"):
        own(tmp_path, name, 0.0)


def test_one_descriptor_is_all_that_stays_open(tmp_path: Path) -> None:
    reserve(1, tmp_path).close()
    before = sorted(Path("/proc/self/fd").iterdir())
    reserve(5, tmp_path).close()
    path = tmp_path / "temper-a-1.lock"
    free_lock(take_lock(path, 0), path)
    with pytest.raises(JailUnavailable):
        own(tmp_path, "nothing", 0.0)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_jailed_program_does_not_see_who_has_a_number(tmp_path: Path) -> None:
    """A lock of an open file would be in everybody's /proc/locks; one of a process is where the process is."""
    path = tmp_path / "numbers"
    held = reserve(3, tmp_path)
    inode = str(path.stat().st_ino)
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]
    assert rows
    assert {(row[1], row[4]) for row in rows} == {("POSIX", str(os.getpid()))}
    held.close()


def test_a_child_by_fork_owns_nothing_of_its_parents(tmp_path: Path) -> None:
    held = reserve(2, tmp_path)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            mine = reserve(2, tmp_path, first=held.numbers[0])
            code = int(bool(set(mine.numbers) & set(held.numbers)))
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not set(reserve(2, tmp_path, first=held.numbers[0]).numbers) & set(held.numbers)

"""Odd entries in the working folder: each counts as what it is, none hides another, and a rollback undoes all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import stages, terminal
from services.verifier.jail import Limits, Outcome, Slot

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)
TREE: dict[str, Any] = {
    "files": {"a": "1\n", "b": "2\n"},
    "tree": {"want": {"a": {"text": "2\n"}, "b": {"absent": True}, "d/c": {"text": "3\n"}}},
}
WORK = "echo 2 >a; rm b; mkdir d; echo 3 >d/c"
Judge = Callable[..., Verdict]


@pytest.fixture
def judge(slot: Slot, attack: Callable[..., Outcome]) -> Judge:
    def run(answer: str, spec: dict[str, Any], family: Any = terminal) -> Verdict:
        family.check_spec(spec, {})
        verdict: Verdict = family.verify(
            Task(id="t", domain="d", prompt="p", spec=spec), {}, CALM, answer.encode(), slot
        )
        attack(("/bin/true",), CALM)
        assert verdict.outcome == "scored", verdict
        return verdict

    return run


@pytest.mark.parametrize(
    ("more", "right", "beyond"),
    [
        ("true", 3, 0),
        ("touch 'x\ny'", 3, 1),
        ("touch \"$(printf 'x\\377')\" \"$(printf 'x\\376')\"", 3, 2),
        ("mkdir -m 700 s; touch s/x; chmod 0 s", 3, 2),
        ("touch x; chmod 0 x", 3, 1),
        ("cp /bin/true x; chmod 6755 x", 3, 1),
        ("mkfifo x", 3, 1),
        ("ln a x", 3, 1),
        ("ln -s x x; ln -s y z; ln -s z y", 3, 3),
        ("truncate -s 64K x", 3, 1),
        ("mkdir e", 3, 1),
        ("echo 3 >d/C; echo 3 >D", 3, 2),
        ("mv d /tmp/d; ln -s /tmp/d d", 2, 1),
        ("mv d/c d/e; ln d/e d/x; mv d/x d/c; rm d/e", 3, 0),
        ("mknod x c 1 3; mknod y b 8 0", 3, 0),
        ("rm -r d; mkdir d; echo 3 >d/c", 3, 0),
        ("chmod 0 a", 3, 0),
    ],
)
def test_110_every_entry_counts_once_as_what_it_is(judge: Judge, more: str, right: int, beyond: int) -> None:
    verdict = judge(f"{WORK}; {more}", TREE)
    assert verdict.score == pytest.approx(2 * right / (right + beyond + 3)), verdict


@pytest.mark.parametrize(
    "way",
    [
        "ln keep x; echo 9 >x",
        "ln -s keep x; echo 9 >x",
        "chmod 4755 keep",
        "mv keep k; ln k keep; echo 9 >k",
        "exec 3<>keep; echo 9 >&3",
        "rm keep; echo 1 >KEEP",
    ],
)
def test_110_a_protected_file_is_not_changed_by_another_name(judge: Judge, way: str) -> None:
    spec = {
        "files": {"keep": "1\n"},
        "checks": [{"kind": "exists", "path": "out"}],
        "protected": ["keep"],
        "ignore": ["*"],
    }
    assert judge(f"touch out; {way}", spec).score == 0.0
    assert judge("touch out; ln keep x; cat x", spec).score == 1.0


@pytest.mark.parametrize(
    "wreck",
    [
        "rm -rf a d l",
        "chmod 777 a; chmod 700 d",
        "rm l; ln -s /etc/passwd l",
        "rm -r d; mkdir d; touch d/other",
        "mv d e; ln -s e d",
        "echo 9 >a; ln a x",
        "rm a; mkfifo a; touch \"$(printf 'x\\377')\"",
        "chmod 0 d a",
    ],
)
def test_111_a_failed_stage_leaves_nothing_and_takes_nothing(judge: Judge, wreck: str) -> None:
    left = {"kind": "exists", "path": "done"}
    as_it_was = [
        {"kind": "file", "path": "a", "text": "1"},
        {"kind": "mode", "path": "a", "mode": "640"},
        {"kind": "mode", "path": "d", "mode": "750"},
        {"kind": "file", "path": "d/c", "text": "3"},
        {"kind": "link", "path": "l", "target": "d/c"},
        {"kind": "absent", "path": "x"},
        {"kind": "absent", "path": "d/other"},
        {"kind": "absent", "path": "e"},
    ]
    spec = {
        "files": {},
        "stages": [
            {"name": "make", "checks": as_it_was},
            {"name": "fail", "checks": [{"kind": "exists", "path": "never"}]},
            {"name": "look", "checks": [left, *as_it_was]},
        ],
    }
    made = "echo 1 >a; chmod 640 a; mkdir d; echo 3 >d/c; chmod 750 d; ln -s d/c l"
    verdict = judge(f"{made}\n{wreck}\ntouch done", spec, stages)
    assert [each.passed for each in verdict.stages] == [True, False, True], verdict.stages

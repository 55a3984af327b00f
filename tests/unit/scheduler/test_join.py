from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from schemas.cards import Ladder, Retry, Timeouts
from schemas.tasks import TaskCancelled
from services.scheduler.effects import Derive, Publish
from services.scheduler.join import Child, joined
from services.scheduler.policies import Policy
from services.scheduler.snapshot import restore, snapshot

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench

OK, BAD, OPEN = Child("s", "succeeded", 0.8), Child("f", "failed", 0.2), Child("o")
GONE = Child("g", "dead")


@pytest.mark.parametrize(
    ("rule", "children", "happening", "score"),
    [
        ("all", (OK, OPEN), None, None),
        ("all", (OK, OK), "passed", 0.8),
        ("all", (BAD, OPEN), "failed", 0.2),
        ("all", (OK, GONE), "died", 0.8),
        ("any", (OPEN, BAD), None, None),
        ("any", (OPEN, OK), "passed", 0.8),
        ("any", (BAD, BAD), "failed", 0.2),
        ("any", (BAD, GONE), "failed", 0.2),
        ("any", (GONE, GONE), "died", None),
        ("mean", (OK, OPEN), None, None),
        ("mean", (OK, BAD), "passed", 0.5),
        ("mean", (BAD, BAD, OK), "failed", 0.4),
        ("mean", (OK, GONE), "passed", 0.8),
        ("mean", (GONE, GONE), "died", None),
    ],
)
def test_a_join_rule_decides_by_what_was_measured(
    rule: str, children: tuple[Child, ...], happening: str | None, score: float | None
) -> None:
    found = joined(rule, 0.5, children)
    if happening is None:
        assert found is None
        return
    assert found is not None
    assert found.happening == happening
    assert found.score == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize("rule", ["all", "any", "mean"])
def test_when_the_time_is_over_every_rule_decides(rule: str) -> None:
    for children in ((OPEN, OPEN), (OK, OPEN), (GONE, OPEN)):
        found = joined(rule, 0.5, children, over=True)
        assert found is not None
        if found.happening != "passed":
            assert "did not end in time" in found.reason


def waiting(bench: Bench, join: Any, **fields: Any) -> list[str]:
    """`t` has failed and waits for two sub-tasks, which have come; their ids."""
    bench.policies.domains["j"] = Policy(
        retry=Retry(infra=0),
        ladder=Ladder(steps=(0.5,), children=2, join=join, climb=False),
        timeouts=Timeouts(children_s=500.0),
    )
    bench.submit("t", domain="j", difficulty=1.0, priority=7, batch="x", **fields)
    bench.now += 5.0
    assert bench.run(0.0, 0.0) == "t"
    assert bench.phase("t") == "waiting"
    return [event.task.id for event in bench.derived()]


def test_sub_tasks_inherit_what_their_parent_was(bench: Bench) -> None:
    children = waiting(bench, "all")
    parent = bench.state.live["t"]
    for name in children:
        child = bench.state.live[name]
        for field in ("domain", "priority", "batch", "trace", "pool", "purpose", "group_size", "eligible_at"):
            assert getattr(child, field) == getattr(parent, field), field
        assert (child.level, child.parent, child.origin) == (1, "t", 1.0)


def test_a_parent_completes_with_its_last_sub_task_and_frees_nothing_twice(bench: Bench) -> None:
    waiting(bench, "all")
    bench.run(1.0, 0.0)
    assert bench.phase("t") == "waiting"
    bench.run(1.0, 1.0)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.score, len(ended.children)) == ("succeeded", 0.75, 2)
    assert bench.said("t") == ["ready", "leased", "running", "waiting", "succeeded"]
    assert bench.state.expected == {}


def test_any_is_decided_by_the_first_and_the_other_goes_on(bench: Bench) -> None:
    first, second = waiting(bench, "any")
    bench.run(1.0, 0.0)
    assert bench.phase("t") == "succeeded"
    assert {bench.phase(first), bench.phase(second)} == {"succeeded", "ready"}


def test_a_parent_never_waits_for_ever(bench: Bench) -> None:
    children = waiting(bench, "all")
    bench.tick(499.0)
    assert bench.phase("t") == "waiting"
    bench.tick(2.0)
    ended = bench.state.ended["t"]
    assert (ended.state, ended.cause) == ("failed", "timeout")
    assert all(name in bench.state.live for name in children), "their own work is not lost with it"


def test_cancelling_the_parent_cancels_its_sub_tasks_those_to_come_too(bench: Bench) -> None:
    bench.policies.domains["j"] = Policy(ladder=Ladder(steps=(0.5,), children=2, join="all"))
    bench.submit("t", domain="j", difficulty=1.0)
    bench.run(0.0, 0.0)
    asked = [effect for effect in bench.effects if isinstance(effect, Derive)]
    bench.submit(asked[0].child_id, domain="j", parent="t", level=1)
    bench.beat()
    bench.tick()
    bench.send(TaskCancelled(task_id="t", reason="enough"))
    bench.submit(asked[1].child_id, domain="j", parent="t", level=1)
    for name in ("t", asked[0].child_id, asked[1].child_id):
        assert bench.phase(name) == "cancelled"


def test_cancelling_a_parent_that_has_ended_reaches_its_sub_tasks(bench: Bench) -> None:
    bench.submit("t", domain="b", difficulty=1.0)
    bench.run(0.0, 0.0)
    children = [event.task.id for event in bench.derived()]
    bench.send(TaskCancelled(task_id="t"))
    assert bench.phase("t") == "degraded"
    assert [bench.phase(name) for name in children] == ["cancelled", "cancelled"]


def test_cancelling_the_batch_takes_parent_and_sub_tasks(bench: Bench) -> None:
    children = waiting(bench, "any")
    bench.send(TaskCancelled(batch="x"))
    assert {bench.phase(name) for name in ["t", *children]} == {"cancelled"}


def test_a_sub_task_that_cannot_be_made_or_is_rejected_is_no_failure_of_its_parent(bench: Bench) -> None:
    bench.policies.domains["j"] = Policy(ladder=Ladder(steps=(0.5,), children=2, join="mean", climb=False))
    bench.submit("t", domain="j", difficulty=1.0)
    bench.run(0.0, 0.0)
    first, second = (effect.child_id for effect in bench.effects if isinstance(effect, Derive))
    effects = bench.send(TaskCancelled(task_id=first, reason="cannot be made: no prompts left"))
    assert [e.event.cause for e in effects if isinstance(e, Publish)] == ["underivable"]
    bench.submit(second, domain="j", parent="t", level=1)
    bench.run(1.0, 1.0)
    assert (bench.phase("t"), bench.state.ended["t"].score) == ("succeeded", 1.0)


def test_a_parent_of_nothing_but_losses_is_dead_and_not_failed(bench: Bench) -> None:
    waiting(bench, "all")
    bench.run(None, None)
    bench.run(None, None)
    assert bench.phase("t") == "dead"


def test_waiting_parents_survive_a_snapshot(bench: Bench) -> None:
    waiting(bench, "all")
    bench.run(1.0, 1.0)
    bench.state = restore(snapshot(bench.state))
    bench.run(1.0, 1.0)
    assert bench.phase("t") == "succeeded"


def test_the_end_of_the_lowest_rung_ends_all_above_it(bench: Bench) -> None:
    bench.policies.domains["j"] = Policy(ladder=Ladder(steps=(0.6, 0.3, 0.0), join="all", climb=False))
    bench.submit("t", domain="j", difficulty=1.0)
    for _ in range(3):
        bench.run(0.0, 0.0)
        bench.derived()
    assert sum(entry.state == "waiting" for entry in bench.state.live.values()) == 3
    bench.run(1.0, 1.0)
    assert not bench.state.live
    assert {ended.state for ended in bench.state.ended.values()} == {"succeeded"}

"""Memory of what has ended is bounded, and nothing that lives needs what is forgotten."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from schemas.cards import Ladder, Retry
from schemas.grants import KeyAsk, KeysAsked
from schemas.heartbeats import WorkerHeartbeat
from schemas.tasks import Task, TaskCancelled, TaskSubmitted
from services.scheduler import forget
from services.scheduler.effects import Assign, Derive, Effect, Publish
from services.scheduler.fold import Batch, FoldError, Input, fold, step
from services.scheduler.invariants import invariant
from services.scheduler.keys import home_of
from services.scheduler.policies import Policies, Policy
from services.scheduler.snapshot import encode_fields, restore, snapshot, state_digest
from services.scheduler.state import State
from tests.verdicts import judged

if TYPE_CHECKING:
    from schemas.base import Event
    from tests.unit.scheduler.conftest import Bench

CAP = 200


class Log:
    """A shard that takes one batch after the other."""

    def __init__(self, **fields: object) -> None:
        self.state = State()
        self.policies = msgspec.structs.replace(
            Policies(
                domains={
                    "a": Policy(
                        retry=Retry(failures=0), ladder=Ladder(steps=(0.5, 0.0), children=2, join="all")
                    )
                },
                group_size=1,
                eta=10**6,
                verify_backlog=0,
                ended_kept=CAP,
            ),
            **fields,
        )
        self.now = 1000.0
        self.batches: list[Batch] = []

    def take(self, *events: Event, seconds: float = 1.0, trace: str = "") -> list[Effect]:
        self.now += seconds
        batch = Batch(
            seq=len(self.batches) + 1,
            now=self.now,
            inputs=tuple(Input(event=event, at=self.now, trace=trace) for event in events),
        )
        self.batches.append(batch)
        return step(self.state, self.policies, batch)

    def submit(self, name: str, domain: str = "a", **fields: Any) -> list[Effect]:
        return self.take(
            msgspec.convert({"task": {"id": name, "domain": domain, "prompt": "p"}, **fields}, TaskSubmitted)
        )

    def verdict(self, task: str, score: float) -> list[Effect]:
        entry = self.state.live[task]
        return self.take(judged(task, score, entry.attempt, lease=entry.lease_id))

    def run(self, name: str, score: float = 1.0, **fields: Any) -> list[Effect]:
        self.take(beat(), seconds=0.0)
        effects = self.submit(name, **fields)
        return effects + self.verdict(name, score)


def beat(worker: str = "w", slots: int = 8) -> WorkerHeartbeat:
    return WorkerHeartbeat(worker=worker, service="sampler", pool="standard", slots=slots)


def working(**fields: object) -> Log:
    log = Log(**fields)
    log.take(beat())
    return log


def run_many(log: Log, first: int, count: int) -> None:
    for n in range(first, first + count):
        log.run(f"t{n}", idempotency_key=f"k{n}")
        log.submit(f"r{n}", domain="nowhere")
        log.take(beat())
        log.batches.clear()


def test_memory_stays_flat_with_ten_times_as_many_tasks_as_are_remembered() -> None:
    log = working()
    run_many(log, 0, CAP + 50)
    log.state.changed.clear()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for round_ in range(1, 11):
            run_many(log, round_ * 1000, CAP)
            log.state.changed.clear()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    state = log.state
    assert len(state.done) == len(state.refused) == CAP
    assert len(state.ended) == 2 * CAP
    assert len(state.keys) == CAP
    assert forget.forgotten(state) == 2 * (10 * CAP + 50)
    assert invariant(state) == []
    # All that was there before was forgotten and replaced: what was traced is a whole memory, and no more than that.
    assert after - before < 2 * CAP * 2048, f"{(after - before) / 1024:.0f} KiB"
    fields = snapshot(state)
    assert sum(name.startswith("task:") for name in fields) == 2 * CAP


def test_refused_submissions_take_no_memory_of_work_that_was_done() -> None:
    log = working()
    log.run("t")
    for n in range(3 * CAP):
        log.submit(f"r{n}", domain="nowhere")
    assert log.state.ended["t"].state == "succeeded"
    assert len(log.state.refused) == CAP


def test_an_ended_task_is_a_repeat_for_seven_days_and_a_new_one_after() -> None:
    log = working()
    log.run("t", idempotency_key="k")
    for _ in range(24 * 7 - 1):
        log.take(beat(), seconds=3600.0)
    log.submit("t", idempotency_key="k")
    assert log.state.meta.counters["duplicate_task"] == 1
    log.take(beat(), seconds=3599.0)
    log.take(beat(), seconds=3599.0)
    assert "t" not in log.state.ended
    assert log.state.keys == {}
    assert encode_fields(log.state, ["task:t"]) == {"task:t": None}
    assert "task:t" in log.state.changed, "Redis must hear of it"
    log.submit("other", idempotency_key="k", priority=3)
    assert log.state.live["other"].state == "leased", "the key is free again"
    log.submit("t")
    assert log.state.live["t"].attempt == 1
    assert log.state.meta.submitted == 3
    assert invariant(log.state) == []


def test_a_clock_that_jumps_a_month_forgets_nothing() -> None:
    log = working()
    log.run("t")
    log.take(beat(), seconds=30 * 86_400.0)
    log.submit("t")
    assert log.state.meta.counters == {"duplicate_task": 1}
    assert log.state.ended["t"].state == "succeeded"


def test_what_comes_late_for_a_forgotten_task_changes_nothing_and_is_counted() -> None:
    log = working()
    log.run("t")
    for n in range(CAP):
        log.run(f"u{n}")
    assert "t" not in log.state.ended
    before = state_digest(log.state)
    assert log.take(judged("t", 1.0), TaskCancelled(task_id="t"), seconds=0.0) == []
    assert log.state.meta.counters == {"verdict_of_unknown_task": 1, "cancel_of_unknown_task": 1}
    assert before != state_digest(log.state), "only the counters and the position"
    assert len(log.state.ended) == CAP


def test_a_waiting_parent_keeps_what_a_forgotten_sub_task_came_to() -> None:
    log = working(ended_kept=2)
    log.run("p", score=0.0)
    parent = log.state.live["p"]
    assert parent.state == "waiting"
    first, second = parent.children
    log.run(first, parent="p", level=1)
    for n in range(5):
        log.run(f"u{n}")
    assert first not in log.state.ended
    assert [child.id for child in log.state.live["p"].past] == [first]
    assert invariant(log.state) == []
    again = restore(snapshot(log.state))
    assert again.live["p"].past == log.state.live["p"].past
    log.take(TaskCancelled(task_id=first))
    assert log.state.live["p"].state == "waiting", "what has ended is not ended again"
    log.run(second, parent="p", level=1)
    assert log.state.ended["p"].state == "succeeded"
    assert log.state.ended["p"].reason.startswith("2 of 2 sub-tasks passed")


def test_a_sub_task_that_has_ended_is_not_ended_again_by_a_cancellation() -> None:
    log = working()
    log.run("p", score=0.0)
    first = log.state.live["p"].children[0]
    log.run(first, parent="p", level=1)
    log.take(TaskCancelled(task_id=first))
    assert log.state.ended[first].state == "succeeded"
    assert log.state.meta.counters == {"cancel_of_ended_task": 1}
    assert invariant(log.state) == []


def test_a_sub_task_that_cannot_be_made_ends_as_rejected_also_if_nobody_waits_for_it() -> None:
    log = working(domains={"a": Policy(retry=Retry(failures=0), ladder=Ladder(steps=(0.0,)))})
    log.run("p", score=0.0)
    ended = log.state.ended["p"]
    assert ended.state == "degraded"
    event = TaskCancelled(task_id=ended.children[0], parent="p", reason="cannot be made: no generator")
    effects = log.take(event, trace="tr")
    [told] = [effect for effect in effects if isinstance(effect, Publish)]
    assert (told.event.state, told.event.cause, told.event.parent) == ("rejected", "underivable", "p")
    assert (told.event.reason, told.trace) == ("cannot be made: no generator", "tr")
    assert invariant(log.state) == []
    log.take(event)
    assert log.state.meta.counters == {"rejected": 1, "cancel_of_ended_task": 1}


def test_a_replay_and_a_restored_state_forget_alike() -> None:
    log = working(ended_kept=20)
    for n in range(50):
        log.run(f"t{n}", score=float(n % 2), idempotency_key=f"k{n}")
        log.submit(f"r{n}", domain="nowhere")
        log.take(beat())
    again = State()
    for number, batch in enumerate(log.batches):
        if number % 7 == 0 and number:
            again = restore(dict(reversed(snapshot(again).items())))
        step(again, log.policies, batch)
    assert snapshot(again) == snapshot(log.state)
    assert (again.done, again.refused) == (log.state.done, log.state.refused)
    assert len(again.done) == len(again.refused) == 20


def test_keys_kept_for_other_shards_are_forgotten_too() -> None:
    log = Log(shards=2, shard=0)
    keys = [key for key in (f"k{n}" for n in range(3 * CAP)) if home_of(key, 2) == 0]
    for key in keys[: CAP + 10]:
        log.take(KeysAsked(shard=1, asks=(KeyAsk(key=key, task=key, content="00", claim=True),)))
    assert len(log.state.claims) == CAP
    assert list(log.state.claimed) == list(log.state.claims) == keys[10 : CAP + 10]
    again = restore(snapshot(log.state))
    assert again.claimed == log.state.claimed
    for _ in range(24 * 7 + 1):
        log.take(seconds=3600.0)
    assert log.state.claims == {}


def test_workers_are_forgotten_after_an_hour_or_when_there_are_too_many_but_not_with_a_lease(
    bench: Bench,
) -> None:
    bench.beat("holder", slots=1)
    bench.submit("t")
    bench.tick()
    bench.beat("holder", slots=1, leases=(bench.assigned[-1].lease_id,))
    bench.policies = msgspec.structs.replace(
        bench.policies,
        domains={
            "a": msgspec.structs.replace(
                bench.policies.of("a"),
                timeouts=msgspec.structs.replace(
                    bench.policies.of("a").timeouts, lease_s=7200.0, attempt_s=90_000.0
                ),
            )
        },
    )
    bench.beat("holder", slots=1, leases=(bench.assigned[-1].lease_id,))
    bench.tick(1.0)
    for n in range(forget.WORKERS + 20):
        bench.now += 0.001
        bench.beat(f"w{n}", slots=0) if n % 500 == 0 else forget_beat(bench, f"w{n}")
    bench.tick(20.0)
    assert len(bench.state.workers) == forget.WORKERS
    assert "holder" in bench.state.workers
    assert "w0" not in bench.state.workers
    bench.tick(3700.0)
    assert set(bench.state.workers) == {"holder"}


def forget_beat(bench: Bench, name: str) -> None:
    """As `bench.beat`, without looking at all invariants each time."""
    fold(bench.state, bench.policies, beat(name, 0), bench.now)


def test_the_trace_of_a_submission_goes_to_its_lease_its_sub_tasks_and_all_its_states() -> None:
    log = working(
        domains={
            "a": Policy(retry=Retry(failures=0), ladder=Ladder(steps=(0.5, 0.0), children=2, join="all"))
        }
    )
    effects = log.take(
        TaskSubmitted(task=Task(id="p", domain="a", prompt="p", difficulty=1.0), priority=7), trace="tr"
    )
    effects += log.verdict("p", 0.0)
    [assign] = [effect for effect in effects if isinstance(effect, Assign)]
    assert assign.trace == "tr"
    derived = [effect for effect in effects if isinstance(effect, Derive)]
    assert [(one.trace, one.priority, one.parent.domain) for one in derived] == [("tr", 7, "a")] * 2
    assert {effect.trace for effect in effects if isinstance(effect, Publish)} == {"tr"}
    ends: list[Effect] = []
    for one in derived:
        event = TaskSubmitted(
            task=msgspec.structs.replace(one.parent, id=one.child_id, difficulty=0.5),
            priority=one.priority,
            parent="p",
            level=1,
        )
        more = log.take(event, trace=one.trace)
        assert {effect.trace for effect in more if isinstance(effect, Publish | Assign)} == {"tr"}
        assert log.state.live[one.child_id].eligible_at == log.state.live["p"].eligible_at
        ends = log.verdict(one.child_id, 1.0)
    assert {effect.trace for effect in ends if isinstance(effect, Publish)} == {"tr"}
    assert log.state.ended["p"].state == "succeeded"


def test_a_record_that_the_fold_cannot_take_is_named_with_its_place_and_what_to_do() -> None:
    log = working()
    log.state.meta.counters = None  # type: ignore[assignment]
    late = Input(event=judged("gone", 1.0), topic="rewards", partition=3, offset=17)
    with pytest.raises(FoldError) as caught:
        step(log.state, log.policies, Batch(seq=9, now=log.now, epoch=2, inputs=(late,)))
    line = str(caught.value)
    assert "TrajectoryVerified at rewards/3 offset 17 (journal entry 9 of epoch 2)" in line
    assert "report it with that record" in line
    assert "\n" not in line

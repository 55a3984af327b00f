"""The checker can fail: each way in which a log may be wrong is seen, and the log as it was written is clean."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from schemas.assignments import AttemptAssigned
from schemas.journal import BatchFolded
from schemas.rewards import TrajectoryVerified
from schemas.states import TERMINAL, TaskState
from schemas.tasks import TaskSubmitted
from schemas.verdicts import Part, scored
from services.scheduler.fold import Batch, Input, step
from services.scheduler.invariants import invariant
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State
from tests.chaos.recorded import TASKS, Recorded, changed, places, renamed
from tests.chaos.suite.findings import unchecked
from tests.chaos.suite.log import Log

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


def drop_assignment(log: Log) -> None:
    place, index = places(log, AttemptAssigned)[5]
    del log.parts[place][index]


def drop_state(log: Log) -> None:
    """As if it had never been written: those after it lie one offset earlier."""
    place, index = places(log, TaskState)[7]
    records = log.parts[place]
    log.parts[place] = records[:index] + [
        msgspec.structs.replace(record, offset=record.offset - 1) for record in records[index + 1 :]
    ]
    log.ends[place] -= 1


def compacted(log: Log, *, newest: bool = False) -> int:
    """As the broker leaves a compacted topic: only the `newest` state of each task is still there; or, wrongly, not even that."""
    gone = 0
    for place, records in log.parts.items():
        if place[0] != "task-states":
            continue
        last = {record.envelope.key: index for index, record in enumerate(records)}
        stays = [
            record
            for index, record in enumerate(records)
            if (last[record.envelope.key] == index) is not newest
        ]
        gone += len(records) - len(stays)
        log.parts[place] = stays
    return gone


def strange_assignment(log: Log) -> None:
    place, index = places(log, AttemptAssigned)[3]
    log.parts[place].append(renamed(log.parts[place][index], "nobody-wants-this", offset=10**6))


def other_pool(log: Log) -> None:
    place, index = places(log, AttemptAssigned)[4]
    record = log.parts[place].pop(index)
    log.parts.setdefault(("assignments.fast", 0), []).append(
        msgspec.structs.replace(record, topic="assignments.fast", partition=0, offset=0)
    )


def second_end(log: Log) -> None:
    place, index = next(
        found
        for found in places(log, TaskState)
        if log.parts[found[0]][found[1]].event.state in TERMINAL  # type: ignore[attr-defined]
    )
    other = "failed" if log.parts[place][index].event.state == "succeeded" else "succeeded"  # type: ignore[attr-defined]
    log.parts[place].append(changed(renamed(log.parts[place][index], "told-anew"), state=other))


def stale_newest(log: Log) -> None:
    """The last word on a task that has ended is an old one."""
    place, index = next(
        found
        for found in places(log, TaskState)
        if log.parts[found[0]][found[1]].event.state in TERMINAL  # type: ignore[attr-defined]
    )
    old = renamed(log.parts[place][index], "told-late", offset=10**6)
    log.parts[place].append(changed(old, state="running"))


def drop_entry(log: Log) -> None:
    del log.parts["journal", 0][len(log.parts["journal", 0]) // 2]


def shift_range(log: Log) -> None:
    records = log.parts["journal", 0]
    for index, record in enumerate(records):
        entry = record.event
        if isinstance(entry, BatchFolded) and any(part.topic == "rewards" for part in entry.ranges):
            ranges = tuple(
                msgspec.structs.replace(part, next=part.next + 1) if part.topic == "rewards" else part
                for part in entry.ranges
            )
            records[index] = changed(record, ranges=ranges)
            return
    raise AssertionError("no entry takes rewards")


def other_verdict(log: Log) -> None:
    verdict = scored([Part(name="p", weight=1.0, score=0.25)])
    for place, index in places(log, TrajectoryVerified):
        event = log.parts[place][index].event
        if isinstance(event, TrajectoryVerified) and event.verdict.score is not None:
            log.parts[place][index] = changed(log.parts[place][index], verdict=verdict)
            return


def drop_submission(log: Log) -> None:
    place, index = places(log, TaskSubmitted)[11]
    del log.parts[place][index]


def twice_submitted(log: Log) -> None:
    """In the place of a task lies another one a second time."""
    (place, one), (_, other) = [found for found in places(log, TaskSubmitted) if found[0][0] == "tasks"][:2]
    records = log.parts[place]
    records[other] = msgspec.structs.replace(records[other], event=records[one].event)


def unread_input(log: Log) -> None:
    place, _ = places(log, TaskSubmitted)[0]
    log.ends[place] += 1


WRONG: dict[str, tuple[Callable[[Log], None], str]] = {
    "an assignment never came out": (drop_assignment, "invariant 2: 1 effects never came out"),
    "a task state never came out": (drop_state, "invariant 2: 1 effects never came out"),
    "an assignment that nobody decided": (strange_assignment, "no entry of the journal wants"),
    "an assignment in another pool's topic": (other_pool, "1 assignments lie in the topic of another pool"),
    "a task that ends twice": (second_end, "ended more than once"),
    "an old state as the newest": (stale_newest, "1 tasks have a newest record that is not their state"),
    "a journal entry is missing": (drop_entry, "follows on"),
    "a record taken twice or passed over": (shift_range, "invariant 3"),
    "another verdict than was folded": (other_verdict, "invariant 5"),
    "a submission that was lost": (drop_submission, "invariant 5"),
    "a submission in another's place": (twice_submitted, "invariant 5"),
    "an input that was never taken": (unread_input, "invariant 1"),
}


def test_the_log_as_it_was_written_is_clean(recorded: Recorded) -> None:
    found = recorded.check()
    assert found.findings == []
    assert unchecked([found]) == []
    assert found.figures["terminal"] >= TASKS
    assert found.figures["compared_fields"] >= TASKS
    assert found.figures["effects"] >= 3 * TASKS
    assert found.figures["doubles"] >= 5


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_seen(recorded: Recorded, name: str) -> None:
    doctor, told = WRONG[name]
    log = recorded.copy()
    doctor(log)
    findings = recorded.check(log).findings
    assert any(told in line for line in findings), findings


def test_states_that_the_broker_has_compacted_away_are_not_missed(recorded: Recorded) -> None:
    log = recorded.copy()
    gone = compacted(log)
    assert gone
    found = recorded.check(log)
    assert found.findings == []
    assert found.figures["compacted_states"] > 0
    log = recorded.copy()
    compacted(log, newest=True)
    assert any("newest record that is not their state" in line for line in recorded.check(log).findings)
    log = recorded.copy()
    compacted(log)
    drop_assignment(log)
    assert any("1 effects never came out" in line for line in recorded.check(log).findings)


@pytest.mark.parametrize("field", ["task:t3", "meta"])
def test_a_projection_with_one_wrong_field_is_seen(recorded: Recorded, field: str) -> None:
    stored = dict(recorded.stored)
    stored[field] = stored[field][:-1] + bytes([stored[field][-1] ^ 1])
    assert any("fields of the projection differ" in line for line in recorded.check(stored=stored).findings)
    del stored[field]
    assert any("fields of the projection differ" in line for line in recorded.check(stored=stored).findings)


@pytest.mark.parametrize("mark", [b"9:9", b"", b"1:0"])
def test_a_projection_that_stands_nowhere_is_seen(recorded: Recorded, mark: bytes) -> None:
    found = recorded.check(stored=recorded.stored | {"mark": mark})
    assert any("which is no entry of the journal" in line for line in found.findings)
    assert unchecked([found]) == ["invariant 5: checked on nothing (fields projected)"]


@pytest.mark.parametrize("seed", range(20))
def test_recorded_events_in_any_order_and_number_lose_nothing(recorded: Recorded, seed: int) -> None:
    rng = random.Random(seed)
    records = [record for topic in ("tasks", "rewards", "heartbeats") for record in recorded.log.of(topic)]
    records += rng.sample(records, len(records) // 2)
    rng.shuffle(records)
    now, state, policies = 1000.0, State(), recorded.site.policies
    whole: list[Batch] = []
    while records:
        count = rng.randint(1, 12)
        portion, records = records[:count], records[count:]
        now += rng.choice([0.0, 0.01, 1.0, 30.0, -5.0])
        inputs = tuple(Input(event=record.event, at=now) for record in portion)
        whole.append(Batch(seq=len(whole) + 1, now=now, inputs=inputs, caught_up=rng.random() > 0.2))
        step(state, policies, whole[-1])
        assert invariant(state) == []
    submitted = {
        record.event.task.id for record in recorded.log.of("tasks") if isinstance(record.event, TaskSubmitted)
    }
    assert state.live.keys() | state.ended.keys() == submitted
    assert not state.live.keys() & state.ended.keys()
    assert state.meta.submitted == len(submitted)
    # The same once more, and from the middle: byte for byte.
    again = State()
    for number, batch in enumerate(whole):
        step(again, policies, batch)
        if number == len(whole) // 2:
            again = restore(snapshot(again))
    assert snapshot(again) == snapshot(state)

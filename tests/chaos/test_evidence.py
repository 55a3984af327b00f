"""What a scenario must show is counted from what happened: nothing of it is seen in a quiet run, each is where it was put."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from schemas.assignments import AttemptRevoked
from schemas.envelope import Envelope
from schemas.heartbeats import Released, WorkerHeartbeat
from schemas.journal import BatchFolded
from schemas.states import TaskState
from services.runtime.wire import Record
from services.scheduler.effects import Revoke
from services.scheduler.policies import Policies, Policy
from services.scheduler.state import State
from tests.chaos.recorded import Recorded, places
from tests.chaos.suite.books import Attempt, Books
from tests.chaos.suite.evidence import evidence
from tests.chaos.suite.findings import Audit, Loss
from tests.chaos.suite.log import Log
from tests.chaos.suite.plays.inputs import arrivals
from tests.chaos.suite.scenarios import SCENARIOS
from tests.chaos.suite.seen import Seen
from tests.chaos.suite.slots import Slots

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
DAYS_30 = 30 * 86_400.0


def off(record: Record, seconds: float) -> Record:
    envelope = msgspec.structs.replace(record.envelope, occurred_at=record.envelope.occurred_at + seconds)
    return msgspec.structs.replace(record, envelope=envelope)


def test_every_scenario_says_what_must_be_seen_of_it() -> None:
    for scenario in SCENARIOS:
        assert scenario.proves, scenario.name
        assert len(set(scenario.proves)) == len(scenario.proves)


def test_a_quiet_run_shows_nothing(recorded: Recorded) -> None:
    assert set(evidence(recorded.log).values()) == {0.0}
    assert recorded.check().lost == []


def test_a_wrong_clock_is_in_the_records(recorded: Recorded) -> None:
    log = recorded.copy()
    states, beats = places(log, TaskState), places(log, WorkerHeartbeat)
    workers = [found for found in beats if log.parts[found[0]][found[1]].envelope.producer == "worker-0"]
    for (place, index), seconds in (
        *((found, DAYS_30) for found in states[:3]),
        *((found, -DAYS_30) for found in states[3:5]),
        *((found, -DAYS_30) for found in workers[:4]),
        (workers[4], 3600.0),
    ):
        log.parts[place][index] = off(log.parts[place][index], seconds)
    found = evidence(log)
    assert (found["scheduler_ahead"], found["scheduler_behind"]) == (3.0, 2.0)
    assert (found["worker_ahead"], found["worker_behind"], found["workers_off"]) == (0.0, 4.0, 4.0)


def test_partitions_that_change_hands_are_counted() -> None:
    def beat(at: int, worker: str, pid: int, rebalances: int, *partitions: str) -> Record:
        event = WorkerHeartbeat(
            worker=worker,
            service="sampler",
            pid=pid,
            stats={"rebalances": float(rebalances)},
            offsets=dict.fromkeys(partitions, 1),
        )
        return record(event, at)

    quiet = [beat(1, "a", 1, 1, "w/0", "w/1"), beat(2, "b", 2, 1, "w/2"), beat(3, "a", 1, 1, "w/0")]
    log = Log(parts={("heartbeats", 0): quiet})
    assert (evidence(log)["rebalances"], evidence(log)["partitions_moved"]) == (0.0, 0.0)
    # Another process under the same name is another member; so is another worker.
    more = [beat(4, "a", 3, 1, "w/0"), beat(5, "b", 2, 3, "w/1", "w/2")]
    log = Log(parts={("heartbeats", 0): quiet, ("heartbeats", 1): more})
    assert (evidence(log)["rebalances"], evidence(log)["partitions_moved"]) == (2.0, 2.0)


def test_another_order_and_doubles_are_counted(recorded: Recorded) -> None:
    written = [record for topic in ("tasks", "rewards") for record in recorded.log.of(topic)]
    twice = sum(Counter((record.topic, record.envelope.id) for record in written).values()) - len(
        {(record.topic, record.partition, record.envelope.id) for record in written}
    )
    unique = list({(record.topic, record.envelope.id): record for record in written}.values())
    same = arrivals(unique, recorded.log)
    assert (same.records, same.doubled) == (len(written), twice)
    turned = recorded.copy()
    for place, records in turned.parts.items():
        if place[0] in ("tasks", "rewards"):
            turned.parts[place] = [*reversed(records), records[0]]
    found = arrivals(unique, turned)
    assert found.turned > same.turned
    assert found.doubled > same.doubled
    assert arrivals(unique, Log()) == (0, 0, 0)


def test_a_lease_is_lost_with_a_worker_only_if_one_had_named_it() -> None:
    found = Audit()
    books = Books(Policies(domains={}), found)
    beat = WorkerHeartbeat(worker="a", service="sampler", pid=1, leases=("l1",))
    books.heard(record(beat, 1), State())
    books.heard(record(msgspec.structs.replace(beat, pid=2), 2), State())
    gone = msgspec.structs.replace(beat, leases=("l2",), ended="signal")
    books.heard(record(gone, 3), State())
    books.gave([revoked("l1", "cancelled"), revoked("l2", "expired"), revoked("l3", "expired")])
    assert found.lost == []
    books.gave([revoked("l1", "expired")])
    assert found.lost == [Loss("l1", "a", 2)]


def test_a_lease_ends_with_the_process_that_held_it() -> None:
    """As the fold has it: not one that was kept, is with the verifiers, or is another worker's."""
    books = Books(Policies(domains={}), Audit())
    leases = ("kept", "lost", "out", "never named", "others")
    books._open = {name: Attempt(task=name, number=1, size=1, train=True) for name in leases}
    own = WorkerHeartbeat(
        worker="a", service="sampler", pid=1, started_at=1.0, leases=("kept", "lost", "out")
    )
    books.heard(record(own, 1), State())
    books.heard(record(WorkerHeartbeat(worker="b", service="sampler", pid=5, leases=("others",)), 1), State())
    given = Released(lease_id="out", reason="finished")
    books.heard(record(msgspec.structs.replace(own, leases=("kept", "lost"), released=(given,)), 2), State())
    assert set(books._open) == set(leases)
    stale = msgspec.structs.replace(own, pid=9, ended="signal", leases=())
    books.heard(record(stale, 3), State())
    assert set(books._open) == set(leases), "another process than the one that is known"
    books.heard(record(msgspec.structs.replace(own, pid=2, started_at=2.0, leases=("kept",)), 4), State())
    assert set(books._open) == set(leases) - {"lost"}
    books.heard(record(msgspec.structs.replace(stale, pid=2), 5), State())
    books.heard(record(msgspec.structs.replace(stale, pid=2), 6), State())
    assert set(books._open) == {"out", "never named", "others"}
    crash = Released(lease_id="others", reason="abandoned", company=2)
    books.heard(record(msgspec.structs.replace(own, worker="b", pid=5, released=(crash,)), 7), State())
    assert set(books._open) == {"out", "never named"}


def test_loans_are_counted_over_deaths_and_returns() -> None:
    policies = Policies(
        domains={name: Policy(nominal=4, cohort="voices") for name in ("echo", "song")}
        | {"alone": Policy(nominal=4)}
    )
    found = Audit()
    slots = Slots(policies, found, {})

    def after(epoch: int, state: State | None = None, **held: int) -> tuple[float, ...]:
        entry = BatchFolded(run="r", seq=1, now=1.0, epoch=epoch)
        slots._lending(entry, state or State(), Counter(held))
        names = ("most_borrowed", "borrowed_over_claim", "given_back", "quotas_changed")
        return tuple(found.figures.get(name, 0.0) for name in names)

    assert after(1, echo=4, song=0, alone=9) == (0.0, 0.0, 0.0, 0.0)
    assert after(1, echo=7) == (3.0, 0.0, 0.0, 0.0)
    assert after(2, echo=6, song=1) == (3.0, 1.0, 0.0, 0.0)
    assert after(2, echo=6, song=1) == (3.0, 1.0, 0.0, 0.0)
    assert after(2, echo=4, song=3) == (3.0, 1.0, 0.0, 0.0)
    assert after(2, echo=4, song=4) == (3.0, 1.0, 1.0, 0.0)
    assert after(2, echo=4, song=4) == (3.0, 1.0, 1.0, 0.0)
    other = State()
    other.domain("song").nominal = 6
    assert after(2, other, echo=4, song=4) == (3.0, 1.0, 1.0, 1.0)


def test_an_observer_tells_a_lapse_from_an_end() -> None:
    seen = Seen()
    lines = (
        "attempt 1 lost: lease expired, held by worker worker-0",
        "attempt 2 lost with its worker: lease expired, held by worker worker-0; one of 3 that were in it, next with 1 at most",
        "attempt 3 lost: lease expired, held by no worker",
        "attempt 4 lost with its worker: worker worker-1 was started again while it held the lease; one of 2 that were in it",
        "attempt 5 lost: worker worker-1 ended by signal while it held the lease",
    )
    for number, line in enumerate(lines):
        told = TaskState(
            task_id="t",
            domain="d",
            purpose="train",
            state="backoff",
            attempt=number + 1,
            reason=line,
            epoch=2,
        )
        seen.take([record(told, number, name=f"s{number}")])
    late = TaskState(
        task_id="t", domain="d", purpose="train", state="backoff", attempt=1, reason=lines[0], epoch=1
    )
    seen.take([record(late, 9, name="late")])
    assert seen.lapses == Counter({"worker-0": 2})
    assert seen.deaths == Counter({"worker-1": 2})
    assert seen.states["t"].attempt == len(lines)


def record(event: TaskState | WorkerHeartbeat, at: int, *, name: str = "x") -> Record:
    """The event as it might lie in the log, written at a time by a clock that is right."""
    topic = "task-states" if isinstance(event, TaskState) else "heartbeats"
    envelope = Envelope(
        id=name, type=event.type_name(), key="k", occurred_at=float(at), producer="p", data=msgspec.Raw(b"")
    )
    return Record(topic, 0, at, at * 1000, "k", envelope, event)


def revoked(lease: str, reason: str) -> Revoke:
    event = msgspec.convert(
        {"lease_id": lease, "task_id": "t", "attempt": 1, "reason": reason}, AttemptRevoked
    )
    return Revoke(event=event, pool="standard", group_id="g")

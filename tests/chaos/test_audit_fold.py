"""The checker can fail where the fold itself would be wrong: a fold with one fault, on a log that is right, is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from services.scheduler.effects import Assign, Effect, Publish
from services.scheduler.fold import Batch, step
from services.scheduler.policies import Policies
from services.scheduler.records import HELD, TaskEntry
from services.scheduler.snapshot import restore, snapshot
from services.scheduler.state import State, under_way
from tests.chaos.recorded import Recorded
from tests.chaos.suite import audit as auditing
from tests.chaos.suite import slots
from tests.chaos.suite.books import Books
from tests.chaos.suite.findings import CHECKS, Audit, named, unchecked, unproven
from tests.chaos.suite.log import Log
from tests.chaos.suite.slots import Slots, together

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
Fault = Callable[[State, list[Effect]], list[Effect] | None]
"""Changes a folded state or its effects; None where there is nothing for it to change, so that it is tried at the next entry."""


def miscounted_samples(state: State, effects: list[Effect]) -> list[Effect] | None:
    state.members += 1
    return effects


def miscounted_groups(state: State, effects: list[Effect]) -> list[Effect] | None:
    state.meta.accepted += 1
    return effects


def miscounted_doubles(state: State, effects: list[Effect]) -> list[Effect] | None:
    state.count("duplicate_task")
    return effects


def miscounted_verdicts(state: State, effects: list[Effect]) -> list[Effect] | None:
    state.count("duplicate_verdict")
    return effects


def other_bytes(state: State, effects: list[Effect]) -> list[Effect] | None:
    state.meta.orders += 1
    return effects


def forgotten_effect(_: State, effects: list[Effect]) -> list[Effect] | None:
    return effects[1:] or None


def other_score(_: State, effects: list[Effect]) -> list[Effect] | None:
    for index, effect in enumerate(effects):
        if isinstance(effect, Publish) and effect.event.state == "succeeded":
            told = msgspec.structs.replace(effect.event, score=0.125)
            return [*effects[:index], msgspec.structs.replace(effect, event=told), *effects[index + 1 :]]
    return None


def lease_twice(_: State, effects: list[Effect]) -> list[Effect] | None:
    given = [effect for effect in effects if isinstance(effect, Assign)]
    return [*effects, given[0]] if given else None


def attempt_again(state: State, effects: list[Effect]) -> list[Effect] | None:
    """A task that has an attempt under way gets another of the same number."""
    new = {effect.task_id for effect in effects if isinstance(effect, Assign)}
    given = next(
        (entry for entry in state.live.values() if entry.state in HELD and entry.id not in new), None
    )
    if given is None:
        return None
    again = Assign(
        lease_id="another",
        lease_expires_at=given.due_at,
        lease_s=1.0,
        task_id=given.id,
        body=given.body,
        attempt=given.attempt,
        group_size=given.group_size,
        sampling=Policies(domains={}).of(given.domain).sampling,
        pool=given.pool,
        seq=0,
    )
    return [*effects, again]


def live_and_ended(state: State, effects: list[Effect]) -> list[Effect] | None:
    if not state.ended:
        return None
    name = next(iter(state.ended))
    entry = TaskEntry(
        id=name, domain="echo", purpose="train", pool="standard", body=b"", content=b"", order=0, group_size=1
    )
    state.live[name] = entry
    return effects


FOLDS: dict[str, tuple[Fault, str]] = {
    "samples under way": (miscounted_samples, "samples are counted as under way"),
    "groups": (miscounted_groups, "were completed while their lease was good"),
    "doubles": (miscounted_doubles, "submissions came again"),
    "verdicts": (miscounted_verdicts, "verdicts were read"),
    "other bytes": (other_bytes, "folded twice"),
    "an effect is forgotten": (forgotten_effect, "folded again gives other effects"),
    "a score": (other_score, "its verdicts say"),
    "a lease twice": (lease_twice, "is given out twice"),
    "an attempt again": (attempt_again, "goes from attempt"),
    "live and ended": (live_and_ended, "are live and terminal"),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_wrong_fold_is_seen(recorded: Recorded, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, told = FOLDS[name]
    steps = done = 0

    def wrong(state: State, policies: Policies, batch: Batch) -> list[Effect]:
        nonlocal steps, done
        effects = step(state, policies, batch)
        steps += 1
        # Every other one is the twin's. The entry that is changed lies in the middle, with work before and after it.
        if done or not steps % 2 or batch.seq < 10:
            return effects
        other = fault(state, effects)
        done += other is not None
        return effects if other is None else other

    monkeypatch.setattr(auditing, "step", wrong)
    findings = recorded.check().findings
    assert done == 1
    assert any(told in line for line in findings), findings


def lapsed(state: State, _: list[Effect]) -> bool:
    held = [entry for entry in state.live.values() if entry.state in HELD]
    for entry in held[:1]:
        entry.due_at = state.meta.now
    return bool(held)


def without_end(state: State, _: list[Effect]) -> bool:
    timed = [entry for entry in state.live.values() if entry.state in slots.TIMED]
    for entry in timed[:1]:
        entry.due_at = float("inf")
    return bool(timed)


def uncounted_lease(state: State, _: list[Effect]) -> bool:
    held = [entry for entry in under_way(state) if entry.state in HELD and entry.pool == "standard"]
    for entry in held[:1]:
        state.occupied["standard"].release(entry)
    return bool(held)


def no_capacity(state: State, effects: list[Effect]) -> bool:
    for worker in state.workers.values():
        worker.slots = 0
    return any(isinstance(effect, Assign) for effect in effects)


def own_limit(state: State, effects: list[Effect]) -> bool:
    for name in ("echo", "song"):
        record = state.domain(name)
        record.nominal, record.borrow = 0, 0
    return any(isinstance(effect, Assign) for effect in effects)


def cohort_limit(state: State, effects: list[Effect]) -> bool:
    for name in ("echo", "song"):
        state.domain(name).nominal = 0
    return any(isinstance(effect, Assign) for effect in effects)


STATES: dict[str, tuple[Callable[[State, list[Effect]], bool], str]] = {
    "a lease that ran out": (lapsed, "holds a lease that ran out"),
    "a state without an end": (without_end, "times out at inf"),
    "a lease that is not counted": (uncounted_lease, "pool standard counts other leases"),
    "more than there is": (no_capacity, "slots of pool standard are leased, it has 0"),
    "more than a domain may": (own_limit, "slots, its most is 0"),
    "more than a cohort owns": (cohort_limit, "slots, it owns 0"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_wrong_state_is_seen(recorded: Recorded, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the slots are counted on is a copy of the folded state with one fault."""
    fault, told = STATES[name]
    real, done = Slots.after, 0

    def after(self: Slots, entry: Any, state: State, effects: list[Effect]) -> None:
        nonlocal done
        copy = restore(snapshot(state))
        if not done and entry.caught_up and fault(copy, effects):
            done += 1
            real(self, entry, copy, effects)
        else:
            real(self, entry, state, effects)

    monkeypatch.setattr(slots.Slots, "after", after)
    findings = recorded.check().findings
    assert done == 1
    assert any("invariant 4" in line or "invariant 11" in line for line in findings)
    assert any(told in line for line in findings), findings


@pytest.mark.parametrize(
    ("lease", "told"),
    [("", "had ended and is back"), ("nobody's", "holds a lease nobody gave it")],
    ids=["back", "strange"],
)
def test_a_wrong_lease_is_seen(
    recorded: Recorded, lease: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = Books.after, 0

    def after(self: Books, where: str, state: State) -> None:
        nonlocal done
        name = lease or next(iter(self._gone), "")
        if not name or done:
            real(self, where, state)
            return
        done += 1
        state.leases[name] = "t0"
        real(self, where, state)
        del state.leases[name]

    monkeypatch.setattr(Books, "after", after)
    findings = recorded.check().findings
    assert done == 1
    assert any(told in line for line in findings), findings


def test_shards_that_lease_more_together_than_there_is_are_seen() -> None:
    sound = [
        Audit(use=[(1.0, 0, "standard", 5, 8, True), (3.0, 0, "standard", 5, 8, True)]),
        Audit(use=[(2.0, 1, "standard", 3, 8, True), (2.5, 1, "fast", 6, 6, True)]),
    ]
    assert together(sound) == []
    sound[1].use.append((4.0, 1, "standard", 4, 8, True))
    assert together(sound) == ["invariant 4: at 4.0 the shards lease 9 slots of pool standard, it has 8"]
    # Nothing was given at that moment: slots that have gone are not taken back from running attempts.
    sound[1].use[-1] = (4.0, 1, "standard", 4, 8, False)
    assert together(sound) == []


@pytest.mark.parametrize(("number", "what"), CHECKS)
def test_a_check_on_nothing_is_a_finding(number: int, what: str) -> None:
    parts = [Audit(), Audit()]
    for one, other in CHECKS:
        if (one, other) != (number, what):
            parts[one % 2].check(one, other)
    assert unchecked(parts) == [f"invariant {number}: checked on nothing ({what})"]
    parts[0].check(number, what, 0)
    assert len(unchecked(parts)) == 1, "checked on nothing, and said so"
    parts[0].check(number, what)
    assert unchecked(parts) == []


def test_an_empty_log_is_no_sound_log(recorded: Recorded) -> None:
    found = recorded.check(Log(), {})
    assert len(unchecked([found])) == len(CHECKS)
    with pytest.raises(KeyError, match="no check of invariant 4"):
        found.check(4, "something else")
    assert named(4, "pools counted") == "checked_4_pools_counted"


def test_an_effect_that_is_not_seen_is_a_finding() -> None:
    figures = {"kills": 3.0, "lapsed": 0.0}
    assert unproven(("kills",), figures) == []
    assert unproven(("kills", "lapsed", "never told"), figures) == [
        "no effect: lapsed is 0 in a run that was to show it",
        "no effect: never told is 0 in a run that was to show it",
    ]

"""Which assignments are taken, when they start, and under which version."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from schemas.assignments import AttemptAssigned
from schemas.tasks import PolicyRef, Sampling, Task
from services.sampler.intake import Action, Intake, Reject, Start, Switch


def policy(version: int) -> PolicyRef:
    return PolicyRef(version=version, uri=f"v{version}", digest=f"d{version}")


def assigned(name: str, *, expires: float = 100.0, pin: PolicyRef | None = None) -> AttemptAssigned:
    return AttemptAssigned(
        lease_id=name,
        lease_expires_at=expires,
        task=Task(id=name, domain="d", prompt="p", policy=pin),
        attempt=1,
        group_id=f"g-{name}",
        group_size=2,
        sampling=Sampling(),
    )


def ready(*, slots: int = 4, capacity: int = 8, version: int = 1) -> Intake:
    intake = Intake(slots=slots, capacity=capacity)
    intake.publish(policy(version))
    intake.loaded(policy(version))
    return intake


def started(actions: Sequence[Action]) -> list[str]:
    return [action.assigned.lease_id for action in actions if isinstance(action, Start)]


def test_a_lease_is_taken_once_even_after_it_has_ended() -> None:
    intake = ready()
    assert intake.offer(assigned("a"), 0.0, 0.0) == "taken"
    assert intake.offer(assigned("a"), 0.0, 0.0) == "duplicate"
    assert intake.end("a")
    assert intake.offer(assigned("a"), 0.0, 0.0) == "duplicate"
    assert not intake.end("a")


def test_an_expired_or_revoked_lease_and_one_too_many_are_not_taken() -> None:
    intake = ready(capacity=1)
    intake.forget("revoked")
    assert intake.offer(assigned("late", expires=5.0), 5.0, 0.0) == "expired"
    assert intake.offer(assigned("revoked"), 0.0, 0.0) == "duplicate"
    assert intake.offer(assigned("a"), 0.0, 0.0) == "taken"
    assert intake.offer(assigned("b"), 0.0, 0.0) == "full"
    intake.end("a")
    assert intake.offer(assigned("b"), 0.0, 0.0) == "taken"


def test_groups_start_in_order_within_the_slots_and_only_once() -> None:
    intake = ready(slots=2)
    for name in "abc":
        intake.offer(assigned(name), 0.0, 0.0)
    assert started(intake.decide(1.0)) == ["a", "b"]
    assert intake.decide(1.0) == []
    intake.end("a")
    assert started(intake.decide(1.0)) == ["c"]


def test_nothing_starts_before_a_version_is_loaded() -> None:
    intake = Intake(slots=2, capacity=2)
    intake.offer(assigned("a"), 0.0, 0.0)
    assert intake.decide(1.0) == []
    intake.publish(policy(3))
    assert intake.decide(1.0) == [Switch(policy(3))]
    assert intake.decide(1.0) == [], "one switch at a time"
    intake.loaded(policy(3))
    assert started(intake.decide(1.0)) == ["a"]


def test_the_newest_version_is_jumped_to_while_groups_run() -> None:
    intake = ready()
    intake.offer(assigned("a"), 0.0, 0.0)
    intake.decide(0.0)
    for version in (2, 5, 4):
        intake.publish(policy(version))
    assert intake.decide(0.0) == [Switch(policy(5))]
    intake.loaded(policy(5))
    assert intake.decide(0.0) == []
    assert intake.running() == 1


def test_a_refused_version_is_not_tried_again_and_the_previous_one_serves() -> None:
    intake = ready()
    intake.publish(policy(2))
    intake.decide(0.0)
    intake.refuse(policy(2), "canary")
    intake.offer(assigned("a"), 0.0, 0.0)
    assert started(intake.decide(0.0)) == ["a"]
    assert intake.current == policy(1)


def test_after_a_refusal_and_a_pinned_group_the_newest_good_version_returns() -> None:
    intake = ready(version=1)
    intake.publish(policy(2))
    intake.decide(0.0)
    intake.refuse(policy(2), "canary")
    intake.offer(assigned("p", pin=policy(0)), 0.0, 0.0)
    assert intake.decide(0.0) == [Switch(policy(0))]
    intake.loaded(policy(0))
    assert started(intake.decide(0.0)) == ["p"]
    intake.end("p")
    assert intake.decide(0.0) == [Switch(policy(1))]


def test_a_worker_whose_first_version_is_refused_falls_back_on_the_one_before() -> None:
    intake = Intake(slots=1, capacity=1)
    intake.publish(policy(4))
    intake.publish(policy(5))
    assert intake.decide(0.0) == [Switch(policy(5))]
    intake.refuse(policy(5), "damaged")
    assert intake.decide(0.0) == [Switch(policy(4))]
    intake.refuse(policy(4), "pruned")
    assert intake.decide(0.0) == []


def test_pinned_groups_wait_for_the_running_ones_then_run_alone_then_the_newest_returns() -> None:
    intake = ready(version=5)
    intake.offer(assigned("a"), 0.0, 0.0)
    assert started(intake.decide(0.0)) == ["a"]
    intake.offer(assigned("p1", pin=policy(0)), 0.0, 0.0)
    intake.offer(assigned("b"), 0.0, 0.0)
    assert intake.decide(0.0) == [], "p1 waits for a; b must not begin before it"
    intake.end("a")
    assert intake.decide(0.0) == [Switch(policy(0))]
    intake.loaded(policy(0))
    intake.offer(assigned("p2", pin=policy(0)), 0.0, 0.0)
    assert started(intake.decide(0.0)) == ["p1", "p2"]
    intake.publish(policy(6))
    assert intake.decide(0.0) == [], "a pinned group never sees another version"
    intake.end("p1")
    intake.end("p2")
    assert intake.decide(0.0) == [Switch(policy(6))]
    intake.loaded(policy(6))
    assert started(intake.decide(0.0)) == ["b"]


def test_groups_pinned_to_the_loaded_version_go_before_those_pinned_to_another() -> None:
    intake = ready(version=1)
    intake.offer(assigned("other", pin=policy(0)), 0.0, 0.0)
    intake.offer(assigned("same", pin=policy(1)), 0.0, 0.0)
    intake.offer(assigned("free"), 0.0, 0.0)
    assert started(intake.decide(0.0)) == ["same", "free"]


def test_a_group_pinned_to_a_refused_version_is_rejected() -> None:
    intake = ready()
    intake.refuse(policy(9), "canary differs")
    intake.offer(assigned("p", pin=policy(9)), 0.0, 0.0)
    (action,) = intake.decide(0.0)
    assert isinstance(action, Reject)
    assert (action.reason, action.detail) == ("refused", "canary differs")


def test_a_waiting_lease_that_is_not_renewed_is_rejected_and_a_renewed_one_is_not() -> None:
    intake = ready(slots=1)
    for name in "abc":
        intake.offer(assigned(name, expires=30.0), 0.0, 0.0)
    assert started(intake.decide(0.0)) == ["a"]
    intake.renewed(("a", "b"), 20.0)
    actions = intake.decide(35.0)
    assert [
        (type(action), action.assigned.lease_id) for action in actions if not isinstance(action, Switch)
    ] == [(Reject, "c")]
    assert intake.held() == ("a", "b", "c"), "held until the caller has handed it back"


def test_a_newer_version_with_the_same_weights_is_another_version() -> None:
    intake = ready(version=1)
    same = PolicyRef(version=2, uri="v2", digest=policy(1).digest)
    intake.publish(same)
    assert intake.decide(0.0) == [Switch(same)]
    intake.loaded(same)
    assert intake.decide(0.0) == []


def test_a_lease_with_a_length_holds_whatever_the_wrong_clock_of_the_scheduler_says() -> None:
    intake = Intake(slots=2, capacity=2)
    month = 30 * 86_400.0
    past = msgspec.structs.replace(assigned("a", expires=1000.0 - month), lease_s=30.0)
    future = msgspec.structs.replace(assigned("b", expires=1000.0 + month), lease_s=30.0)
    assert intake.offer(past, 1000.0, 1000.0 - month) == "taken"
    assert intake.offer(future, 1000.0, 1000.0) == "taken"
    assert intake._leases.live(1029.0) == ["a", "b"]
    assert intake._leases.live(1030.0) == []


def company(name: str, most: int) -> AttemptAssigned:
    return msgspec.structs.replace(assigned(name), company=most)


def begun(intake: Intake) -> list[str]:
    return started(intake.decide(1.0))


def test_a_suspect_begins_with_no_more_beside_it_than_it_may_have() -> None:
    intake = ready(slots=4, capacity=16)
    for one in (
        assigned("a"),
        assigned("b"),
        company("s", 1),
        assigned("c"),
        company("u", 2),
        company("v", 2),
    ):
        assert intake.offer(one, 0.0, 0.0) == "taken"
    assert begun(intake) == ["a", "b"], "what came later waits behind a suspect, or that would for ever"
    intake.end("a")
    assert begun(intake) == []
    intake.end("b")
    assert begun(intake) == ["s"]
    assert intake.inside() == {"s": 1}
    assert begun(intake) == []
    intake.end("s")
    assert begun(intake) == ["c", "u"]
    intake.end("c")
    assert begun(intake) == ["v"]
    assert intake.offer(assigned("d"), 0.0, 0.0) == "taken"
    assert begun(intake) == [], "two that may be two are full"
    intake.end("u")
    assert begun(intake) == ["d"]


def test_a_running_group_whose_lease_is_over_is_told_once_and_one_that_is_renewed_is_not() -> None:
    intake = ready()
    for name in ("a", "b", "c"):
        intake.offer(msgspec.structs.replace(assigned(name), lease_s=10.0), 0.0, 0.0)
    intake.decide(1.0)
    intake.offer(msgspec.structs.replace(assigned("waits"), lease_s=5.0), 1.0, 1.0)
    assert intake.lapsed(9.0) == []
    intake.renewed(("b",), 5.0)
    assert intake.lapsed(10.0) == ["a", "c"], "`waits` has not begun: it is rejected, not stopped"
    assert intake.lapsed(10.5) == []
    intake.end("a")
    assert intake.lapsed(15.0) == ["b"]


def test_no_renewal_goes_beyond_the_time_of_the_attempt() -> None:
    """Its revocation lies in a partition that may have passed to another worker since."""
    intake = ready()
    intake.offer(msgspec.structs.replace(assigned("a"), lease_s=10.0, attempt_s=25.0), 1.0, 1.0)
    intake.offer(msgspec.structs.replace(assigned("b"), lease_s=10.0), 1.0, 1.0)
    intake.decide(1.0)
    over = {}
    for at in range(5, 45, 5):
        intake.renewed(("a", "b"), float(at))
        over[at] = intake.lapsed(at + 0.5)
    assert {at: gone for at, gone in over.items() if gone} == {30: ["a"]}, (
        "26 s it could last, and is told once"
    )

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from schemas.states import State, TaskState
from schemas.trajectories import content_digest
from services.trainer.assemble import Assembler, Saved
from services.trainer.place import Place

Make = Callable[..., tuple[list[Any], list[Any]]]


def said(state: State, attempt: int, number: int = 1, purpose: Any = "train") -> TaskState:
    return TaskState(task_id=f"task-{number}", domain="d.one", purpose=purpose, state=state, attempt=attempt)


class Feed:
    """Writes events at rising offsets."""

    def __init__(self, assembler: Assembler) -> None:
        self.assembler = assembler
        self.positions = {"trajectories/0": 0, "rewards/0": 0, "task-states/0": 0}

    def states(self, *states: TaskState) -> None:
        for state in states:
            place = Place(0, "task-states", 0, self.positions["task-states/0"])
            self.positions["task-states/0"] += 1
            self.assembler.add_state(state, place)

    def read_on(self) -> list[str]:
        """All that was there when the ends were heard is read now."""
        self.assembler.attempts.seal()
        return self.assembler.close()

    def __call__(self, *records: Any, now: float = 0.0) -> None:
        for record in records:
            topic = "trajectories" if hasattr(record, "token_ids") else "rewards"
            place = Place(sum(self.positions.values()), topic, 0, self.positions[f"{topic}/0"])
            self.positions[f"{topic}/0"] += 1
            add = self.assembler.add_sample if topic == "trajectories" else self.assembler.add_verdict
            add(record, place, now)


@pytest.fixture
def feed() -> Feed:
    return Feed(Assembler(vocabulary=61, max_staleness=8, timeout_s=10.0))


def test_groups_leave_in_order_of_completion_and_only_once(feed: Feed, make_events: Make) -> None:
    (a, va), (b, vb) = make_events(1), make_events(2)
    feed(*a, *va[:-1], *b, *vb)
    assert feed.assembler.ready == 1
    feed(va[-1])
    first, second = feed.assembler.take(5, 0)
    assert [first.id, second.id] == [b[0].group_id, a[0].group_id]
    feed(*a, *va)
    assert not feed.assembler.due(1)
    assert feed.assembler.counts.duplicates == 8


def test_verdicts_before_trajectories(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    feed(*verdicts, *samples[:-1])
    assert not feed.assembler.due(1)
    feed(samples[-1])
    assert feed.assembler.due(1)


def test_the_sample_is_the_one_the_first_verdict_was_given_for(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    again = msgspec.structs.replace(samples[0], text="other", logprobs=[-1.0] * len(samples[0].token_ids))
    late = msgspec.structs.replace(verdicts[0], content=content_digest(again.token_ids, "other"))
    feed(again, *samples, verdicts[0], late, *verdicts[1:])
    member = feed.assembler.take(1, 0)[0].members[0]
    assert member.trajectory == samples[0]
    assert feed.assembler.counts.duplicates == 2


def test_infrastructure_faults_are_masked_and_need_no_trajectory(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1, faults=frozenset({1, 2}))
    feed(samples[0], samples[3], *verdicts)
    group = feed.assembler.take(1, 0)[0]
    assert [member.reward is None for member in group.members] == [False, True, True, False]


def test_one_score_is_no_group(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1, faults=frozenset({1, 2, 3}))
    feed(*samples, *verdicts)
    assert not feed.assembler.due(1)
    assert feed.assembler.counts.unusable == 1
    assert feed.assembler.low_water(feed.positions) == feed.positions


def test_stale_groups_are_rejected_and_the_step_goes_ahead_without_them(
    feed: Feed, make_events: Make
) -> None:
    for number, version in ((1, 0), (2, 9), (3, 9)):
        samples, verdicts = make_events(number, version=version)
        feed(*samples, *verdicts)
    taken = feed.assembler.take(3, 9)
    assert [group.oldest for group in taken] == [9, 9]
    assert feed.assembler.counts.stale == 1
    assert feed.assembler.shortfall == 0


def test_a_stale_group_leaves_a_shortfall_that_the_next_step_uses_up(feed: Feed, make_events: Make) -> None:
    for number, version in ((1, 0), (2, 9), (3, 9), (4, 9)):
        samples, verdicts = make_events(number, version=version)
        feed(*samples, *verdicts)
    assert len(feed.assembler.take(2, 9)) == 2
    assert feed.assembler.shortfall == 1
    assert feed.assembler.due(2)
    assert len(feed.assembler.take(2, 9)) == 1
    assert feed.assembler.shortfall == 0


def test_groups_that_wait_too_long_are_forgotten_and_do_not_come_back(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    feed(*samples, *verdicts[:3], now=100.0)
    assert feed.assembler.expire(110.0) == []
    assert feed.assembler.expire(110.1) == [samples[0].group_id]
    feed(verdicts[3], now=111.0)
    assert feed.assembler.waiting == feed.assembler.ready == 0
    assert feed.assembler.shortfall == 0, (
        "a verdict is missing: the scheduler has not counted it as delivered"
    )


def test_a_group_lives_as_long_as_its_attempt_and_no_longer(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    feed.states(said("leased", 1), said("running", 1))
    feed(*samples, *verdicts[:3])
    assert feed.read_on() == []
    feed.states(said("verifying", 1))
    assert feed.read_on() == []
    feed.states(said("backoff", 1))
    assert feed.assembler.waiting == 1, "its last verdict may lie in the log"
    assert feed.read_on() == [samples[0].group_id]
    feed(verdicts[3])
    assert feed.assembler.waiting == feed.assembler.ready == feed.assembler.shortfall == 0
    assert (feed.assembler.counts.ended, feed.assembler.counts.expired) == (1, 0)


def test_an_end_that_is_read_before_the_last_verdict_takes_nothing_away(
    feed: Feed, make_events: Make
) -> None:
    samples, verdicts = make_events(1)
    feed(*samples, *verdicts[:3])
    feed.states(said("running", 1), said("succeeded", 1))
    feed.assembler.attempts.seal()
    feed(verdicts[3])
    assert feed.assembler.close() == []
    assert feed.assembler.ready == 1


def test_what_comes_after_the_end_of_its_attempt_opens_nothing(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    feed.states(said("leased", 2))
    feed.read_on()
    feed(*samples[:2], verdicts[0])
    assert (feed.assembler.waiting, feed.assembler.counts.late) == (0, 3)
    again = [msgspec.structs.replace(sample, attempt=2, group_id="second") for sample in samples]
    feed(*again)
    assert feed.assembler.waiting == 1, "the second attempt is under way"


def test_a_delivered_group_without_a_sample_is_missed_as_soon_as_its_attempt_is_over(
    feed: Feed, make_events: Make
) -> None:
    samples, verdicts = make_events(1)
    feed(*samples[:3], *verdicts)
    feed.states(said("succeeded", 1))
    assert feed.read_on() == [samples[0].group_id]
    assert feed.assembler.due(1), "the scheduler counts it: a step goes ahead without it"


def test_ends_of_evaluations_are_not_looked_at(feed: Feed) -> None:
    feed.states(said("running", 1, purpose="eval"), said("failed", 1, 2, purpose="eval"))
    assert not feed.assembler.attempts.noted
    assert not feed.assembler.attempts.under_way


def test_a_restart_reads_the_ends_again_that_were_not_final(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    feed.states(said("running", 1, 7), said("running", 1), said("failed", 1), said("running", 1, 8))
    feed(*samples, *verdicts[:3])
    low = feed.assembler.low_water(feed.positions)
    assert low == {"trajectories/0": 0, "rewards/0": 0, "task-states/0": 2}
    saved = msgspec.json.decode(msgspec.json.encode(feed.assembler.save(feed.positions)), type=Saved)
    assert saved.under_way == {"task-7": 1, "task-8": 1}
    again = Feed(Assembler(vocabulary=61, max_staleness=8, timeout_s=10.0, saved=saved))
    again.states(said("failed", 1), said("running", 1, 8))
    again(*samples, *verdicts[:3])
    assert again.read_on() == [samples[0].group_id]
    assert again.assembler.attempts.under_way == {"task-7": 1, "task-8": 1}


def test_the_last_resort_is_silence_for_as_long_as_the_domain_s_attempts_may_take(make_events: Make) -> None:
    feed = Feed(Assembler(vocabulary=61, max_staleness=8, timeout_s=10.0, timeouts={"d.one": 500.0}))
    samples, verdicts = make_events(1)
    feed(*samples, now=100.0)
    feed(*verdicts[:3], now=500.0)
    assert feed.assembler.expire(999.0) == []
    feed.assembler.add_stage(samples[0].group_id, 999.0)
    feed.assembler.add_stage("unknown", 999.0)
    assert feed.assembler.expire(1499.0) == [], "a stage of its last sample was verified"
    assert feed.assembler.expire(1499.1) == [samples[0].group_id]


def test_a_restart_does_not_count_again_what_it_reads_again(feed: Feed, make_events: Make) -> None:
    # An open group keeps the low water mark down while many versions pass, so all that follows is read again.
    orphan, _ = make_events(0, version=0)
    feed(orphan[0])
    trained = [make_events(number, version=0) for number in range(1, 5)]
    for samples, verdicts in trained:
        feed(*samples, *verdicts)
    assert len(feed.assembler.take(4, 0)) == 4
    assert feed.assembler.take(4, 20) == []
    assert feed.assembler.low_water(feed.positions)["trajectories/0"] == 0
    saved = feed.assembler.save(feed.positions)
    again = Feed(Assembler(vocabulary=61, max_staleness=8, timeout_s=10.0, version=20, saved=saved))
    again(orphan[0])
    for samples, verdicts in trained:
        again(*samples, *verdicts)
    assert (again.assembler.ready, again.assembler.shortfall) == (0, 0)
    assert not again.assembler.due(1)


@pytest.mark.parametrize(
    "change",
    [
        {"logprobs": [math.nan]},
        {"logprobs": []},
        {"token_ids": [61]},
        {"prompt_ids": []},
        {"spans": ()},
    ],
)
def test_a_sample_that_contradicts_itself_is_masked(
    feed: Feed, make_events: Make, change: dict[str, Any]
) -> None:
    samples, verdicts = make_events(1)
    bad = msgspec.structs.replace(samples[0], **change)
    verdict = msgspec.structs.replace(verdicts[0], content=content_digest(bad.token_ids, bad.text))
    feed(bad, *samples[1:], verdict, *verdicts[1:])
    assert feed.assembler.take(1, 0)[0].members[0].reward is None
    assert feed.assembler.counts.malformed == 1


def test_a_score_that_is_no_number_is_masked(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    broken = msgspec.structs.replace(
        verdicts[0], verdict=msgspec.structs.replace(verdicts[0].verdict, score=math.nan)
    )
    feed(*samples, broken, *verdicts[1:])
    assert feed.assembler.take(1, 0)[0].members[0].reward is None


def test_an_index_outside_the_group_and_evaluations_are_ignored(feed: Feed, make_events: Make) -> None:
    samples, verdicts = make_events(1)
    feed(msgspec.structs.replace(verdicts[0], index=4))
    assert feed.assembler.counts.malformed == 1
    evaluation = make_events(2, purpose="eval")
    feed(*evaluation[0], *evaluation[1])
    assert feed.assembler.ready == feed.assembler.waiting == 0
    feed(*samples, *verdicts)
    assert feed.assembler.ready == 1


def test_low_water_covers_what_has_not_left_and_a_restart_reads_it(feed: Feed, make_events: Make) -> None:
    (a, va), (b, vb) = make_events(1), make_events(2)
    feed(*a, *b[:2], *va, *vb[:1])
    feed.assembler.take(1, 0)
    low = feed.assembler.low_water(feed.positions)
    assert low == {"trajectories/0": 4, "rewards/0": 4, "task-states/0": 0}
    saved = msgspec.json.decode(msgspec.json.encode(feed.assembler.save(feed.positions)), type=Saved)
    restarted = Feed(Assembler(vocabulary=61, max_staleness=8, timeout_s=10.0, version=1, saved=saved))
    restarted.positions = dict(low)
    restarted(*b, *vb)
    assert [group.id for group in restarted.assembler.take(1, 1)] == [b[0].group_id]


def test_records_read_again_after_a_restart_are_no_duplicates(feed: Feed, make_events: Make) -> None:
    (a, va), (b, _) = make_events(1), make_events(2)
    feed(b[0], *a, *va)
    feed.assembler.take(1, 0)
    restarted = Feed(
        Assembler(
            vocabulary=61,
            max_staleness=8,
            timeout_s=10.0,
            version=1,
            saved=feed.assembler.save(feed.positions),
        )
    )
    restarted(b[0], *a)
    assert restarted.assembler.counts.reread == 4
    assert restarted.assembler.counts.duplicates == 0
    assert restarted.assembler.ready == 0


def test_ids_are_kept_no_longer_than_they_could_pass_as_fresh(feed: Feed, make_events: Make) -> None:
    for number in range(30):
        samples, verdicts = make_events(number, version=number)
        feed(*samples, *verdicts)
        assert len(feed.assembler.take(1, number)) == 1
    assert len(feed.assembler.save({}).finished) == 9
    old = make_events(3, version=3)
    feed(*old[0], *old[1])
    assert feed.assembler.take(1, 30) == []

"""What the scheduler's states say of attempts."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.cards import Timeouts
from schemas.states import TERMINAL, State, TaskState
from services.trainer import settings
from services.trainer.attempts import HEARD_S, REMEMBERED, Attempts, SchedulerTime
from services.trainer.place import Place


def said(state: State, attempt: int, task: str = "t", **fields: Any) -> TaskState:
    return TaskState(task_id=task, domain="d", purpose="train", state=state, attempt=attempt, **fields)


def place(offset: int) -> Place:
    return Place(offset, "task-states", 0, offset)


def over(attempts: Attempts, *states: TaskState) -> dict[str, int]:
    """The ends that these states tell, once all was read."""
    for number, state in enumerate(states):
        attempts.note(state, place(number))
    attempts.seal()
    return attempts.finish()


@pytest.mark.parametrize("state", ["leased", "running", "verifying"])
def test_an_attempt_under_way_ends_those_before_it(state: State) -> None:
    attempts = Attempts()
    assert over(attempts, said(state, 1)) == {}
    assert attempts.under_way == {"t": 1}
    assert over(attempts, said(state, 3)) == {"t": 2}, "the states between were told together with this one"
    assert attempts.under_way == {"t": 3}
    assert attempts.over("t") == 2


@pytest.mark.parametrize("state", ["backoff", "waiting", "ready", *sorted(TERMINAL)])
def test_any_other_state_ends_the_attempt_it_names(state: State) -> None:
    attempts = Attempts()
    assert over(attempts, said("running", 2), said(state, 2)) == {"t": 2}
    assert attempts.under_way == {}


def test_a_task_that_was_never_dispatched_and_a_refused_double_end_nothing() -> None:
    attempts = Attempts()
    assert over(attempts, said("ready", 0), said("running", 1, "u"), said("rejected", 0, "u")) == {}
    assert attempts.under_way == {"u": 1}, "the first task of that id goes on"


def test_what_is_read_again_changes_nothing() -> None:
    attempts = Attempts({"t": 3})
    assert over(attempts, said("backoff", 2), said("leased", 3)) == {"t": 2}
    assert attempts.under_way == {"t": 3}
    assert over(attempts, said("backoff", 2), said("leased", 3)) == {}


def test_an_end_is_final_only_when_all_before_it_was_read_and_is_read_again_until_then() -> None:
    attempts = Attempts()
    attempts.note(said("failed", 1), place(5))
    attempts.seal()
    attempts.note(said("failed", 1, "u"), place(9))
    assert (attempts.over("t"), attempts.over("u"), attempts.noted) == (0, 0, True)
    assert sorted(found.offset for found in attempts.places()) == [5, 9]
    assert attempts.finish() == {"t": 1}, "u was heard after the end of the log was asked for"
    assert (attempts.over("t"), attempts.over("u")) == (1, 0)
    assert [found.offset for found in attempts.places()] == [9]


def test_memory_is_bounded() -> None:
    attempts = Attempts()
    for number in range(REMEMBERED + 10):
        attempts.note(said("succeeded", 1, f"t{number}"), place(number))
        if number % 1000 == 0:
            attempts.seal()
            attempts.finish()
    attempts.seal()
    attempts.finish()
    assert attempts.over("t0") == 0
    assert attempts.over(f"t{REMEMBERED + 9}") == 1
    assert len(attempts._final) == REMEMBERED
    assert attempts.under_way == {}


def test_time_stands_still_while_the_scheduler_does() -> None:
    time = SchedulerTime()
    assert time.tick(1000.0, heard=False) == 0.0
    assert time.tick(1100.0, heard=True) == 0.0, "nobody was there before"
    assert time.tick(1110.0, heard=True) == 10.0
    assert time.tick(1110.0 + 3 * 3600.0, heard=True) == 10.0 + HEARD_S, "three hours without a scheduler"
    assert time.tick(1111.0 + 3 * 3600.0, heard=False) == 11.0 + HEARD_S


def test_the_last_resort_follows_from_the_card_s_limits() -> None:
    assert settings.silence_s(Timeouts()) == 7200.0 + 120.0 + 30.0
    long = Timeouts(attempt_s=86_400.0, verify_s=3600.0, lease_s=60.0)
    assert settings.silence_s(long) == 90_060.0

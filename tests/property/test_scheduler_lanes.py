"""Lanes and boards against a plain list: whatever comes, goes, fails and is parked, what is first is the smallest."""

from __future__ import annotations

import random
from typing import get_args

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from services.scheduler.boards import Board, Key
from services.scheduler.lanes import RUN, Lane, rank_of
from services.scheduler.records import TaskEntry

QUICK = (Phase.explicit, Phase.reuse, Phase.generate)
"""An example is a seed: there is nothing to shrink."""


def entry(number: int, deadline: float) -> TaskEntry:
    return TaskEntry(
        id=f"t{number}",
        domain="a",
        purpose="train",
        pool="standard",
        body=b"",
        content=b"",
        order=number,
        group_size=1,
        deadline=deadline,
    )


@settings(max_examples=60, deadline=None, phases=QUICK)
@given(st.integers(0, 10**9), st.sampled_from([1, 3, 50, 10**6]))
def test_the_first_of_a_lane_is_the_smallest_of_those_that_wait(seed: int, deadlines: int) -> None:
    """`deadlines`: how many different ones there are, so that ties are common, or all are one line, or none is."""
    rng = random.Random(seed)
    lane, live, away = Lane(), dict[str, TaskEntry](), list[TaskEntry]()
    most = 0
    for number in range(12 * RUN):
        made = entry(number, float(rng.randrange(deadlines)))
        live[made.id] = made
        lane.add(made)
        if away and rng.random() < 0.3:  # one that had an attempt comes back
            back = away.pop(rng.randrange(len(away)))
            back.state = "ready"
            lane.add(back)
        if rng.random() < 0.05:  # one is cancelled, wherever it stands
            gone = rng.choice([found for found in live.values() if found.state == "ready"])
            del live[gone.id]
            gone.state = "cancelled"
            lane.ready -= 1
        for _ in range(rng.choice([0, 0, 1, 2])):
            _give(lane, live, away, rng)
        if lane.kept > 2 * lane.ready + 64:
            lane.compact()
        most = max(most, len(lane.runs))
    while _give(lane, live, away, rng):
        pass
    assert lane.ready == 0
    assert lane.first() is None
    assert lane.kept == 0
    assert most > 0 or deadlines == 1, "runs were made"


def _give(lane: Lane, live: dict[str, TaskEntry], away: list[TaskEntry], rng: random.Random) -> bool:
    """Start the first task of a lane; it may come back."""
    waiting = [found for found in live.values() if found.state == "ready"]
    first = lane.first()
    assert first is min(waiting, key=rank_of, default=None)
    if first is None:
        return False
    lane.ready -= 1
    first.state = "leased"
    first.attempt += 1
    first.deadline = min(first.deadline, float(first.order % 7))
    if rng.random() < 0.5:
        away.append(first)
    return True


def test_started_work_goes_first_at_equal_deadlines_and_then_the_earlier_submission() -> None:
    lane = Lane()
    entries = [entry(number, 5.0) for number in range(4)]
    entries[3].attempt = entries[2].attempt = 1
    for number in (1, 3, 0, 2):
        lane.add(entries[number])
    order = []
    while (first := lane.first()) is not None:
        order.append(first.order)
        first.state = "leased"
        first.attempt = 9
    assert order == [2, 3, 0, 1]


@settings(max_examples=100, deadline=None, phases=QUICK)
@given(st.integers(0, 10**9), st.integers(1, 40))
def test_the_first_of_a_board_is_the_smallest_key_that_is_neither_parked_nor_aside(
    seed: int, domains: int
) -> None:
    rng = random.Random(seed)
    board, keys, aside = Board(), dict[str, Key](), dict[str, int]()
    cohorts, parked = ("", "", "x", "y", "z"), set[str]()
    for _ in range(600):
        name = f"d{rng.randrange(domains)}"
        match rng.randrange(6):
            case 0 | 1:
                key = (rng.randrange(2), rng.randrange(3), rng.random(), name, rng.choice(cohorts))
                board.enter(name, key)
                keys[name] = key
            case 2:
                board.enter(name, None)
                keys.pop(name, None)
            case 3:
                cohort = rng.choice(cohorts[2:])
                board.park(cohort)
                parked.add(cohort)
            case 4:
                cohort = rng.choice(cohorts[2:])
                board.wake(cohort)
                parked.discard(cohort)
            case 5:
                if rng.random() < 0.5 and name in keys:
                    aside[name] = rng.randint(2, 4)
                    board.set_aside(name, aside[name])
                    del keys[name]
                else:
                    most = rng.randint(1, 4)
                    fitting = {found for found, slots in aside.items() if slots <= most}
                    assert set(board.fitting(most)) == fitting
                    for found in fitting:
                        del aside[found]
        there = [key for key in keys.values() if key[4] not in parked]
        assert board.first() == min(there, default=None)
        assert len(board.tops) <= 2 * domains + 64 + len(cohorts)
        assert all(len(group) <= 2 * domains + 65 for group in board.groups.values())


def test_a_key_ends_with_what_it_draws_on() -> None:
    assert get_args(Key) == (int, int, float, str, str)

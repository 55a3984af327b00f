"""Down the ladder and up again, boundedly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from schemas.cards import CardError, Ladder, Step, parse_card
from schemas.tasks import Task
from services.scheduler.degrade import (
    WINDOW,
    above,
    child_id,
    first_rung,
    next_level,
    parts,
    remember,
)
from services.scheduler.effects import Derive
from services.scheduler.policies import Policy
from services.scheduler.state import State

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench

LADDER = Ladder(steps=(0.6, 0.3, 0.0))
CARD = """
name = "x.y"
layer = "foundation"
summary = "s"
generator = "m:f"
[verifier]
family = "FAMILY"
[ladder]
steps = STEPS
"""


def task(difficulty: float, stages: int = 0) -> Task:
    return Task(id="t", domain="a", prompt="p", difficulty=difficulty, spec={"stages": [{}] * stages})


def test_rungs_go_down_and_end() -> None:
    assert [next_level(LADDER, "train", level, task(1.0)) for level in range(4)] == [1, 2, 3, None]
    assert next_level(LADDER, "eval", 0, task(1.0)) is None
    assert next_level(LADDER, "train", 0, task(1.0), climb=True) is None
    assert child_id("t", 1, 0) != child_id("t", 1, 1)


@pytest.mark.parametrize(("difficulty", "level"), [(0.6, 2), (0.5, 2), (0.3, 3), (0.1, 3), (0.0, None)])
def test_a_sub_task_is_really_simpler(difficulty: float, level: int | None) -> None:
    assert next_level(LADDER, "train", 0, task(difficulty)) == level


def test_help_is_a_rung_too() -> None:
    ladder = Ladder(steps=(Step(hint="{prompt}!"), 0.5, Step(difficulty=0.5, hint="{prompt}?")))
    assert next_level(ladder, "train", 0, task(0.5)) == 1
    assert next_level(ladder, "train", 1, task(0.5)) == 3
    split = Ladder(steps=(Step(decompose=True), 0.0), children=2)
    assert next_level(split, "train", 0, task(1.0, stages=3)) == 1
    assert next_level(split, "train", 0, task(1.0, stages=1)) == 2, "one stage has no parts"


@pytest.mark.parametrize(
    ("stages", "children", "shares"),
    [(3, 8, [1, 2]), (50, 4, [10, 20, 30, 40]), (2, 1, [1]), (1, 3, []), (0, 3, [])],
)
def test_parts_grow_and_are_less_than_the_whole(stages: int, children: int, shares: list[int]) -> None:
    assert parts(task(1.0, stages), children) == shares


@pytest.mark.parametrize(
    ("steps", "family", "words"),
    [
        ("[0.5, 0.5]", "code", "not simpler"),
        ("[0.0, 0.5]", "code", "not simpler"),
        ("[0.5, 0.3, 0.5]", "code", "not simpler"),
        ('[{hint = "{prompt} a"}, {hint = "{prompt} b"}]', "code", "not simpler"),
        ("[{}]", "code", "gives no difficulty"),
        ('[{hint = "no place"}]', "code", "must contain"),
        ('[{hint = "{prompt}{start}"}]', "code", "needs a difficulty"),
        ("[{decompose = true}]", "code", "has not"),
        ('[{decompose = true, hint = "{prompt}"}]', "stages", "two steps"),
        ("[inf]", "code", r"ladder.steps\[0\] is inf"),
        ("[nan]", "code", r"ladder.steps\[0\] is nan"),
        ("[{colour = 1}]", "code", "colour"),
    ],
)
def test_a_ladder_that_does_not_go_down_is_a_card_error(steps: str, family: str, words: str) -> None:
    with pytest.raises(CardError, match=words) as caught:
        parse_card(CARD.replace("STEPS", steps).replace("FAMILY", family), "here.toml")
    assert "here.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "steps",
    [
        "[]",
        "[1.0, 0.5, 0]",
        '[0.5, {difficulty = 0.5, hint = "{prompt} {start}"}, 0.0]',
        '[{hint = "{prompt}"}, {decompose = true}, 0.5]',
    ],
)
def test_ladders_that_go_down_load(steps: str) -> None:
    card = parse_card(CARD.replace("STEPS", steps).replace("FAMILY", "stages"), "here.toml")
    assert card.ladder.join == "none"


@pytest.mark.parametrize("key", ["lease_s", "attempt_s", "verify_s", "children_s"])
@pytest.mark.parametrize("value", ["inf", "nan", "-1.0", "0.0"])
def test_no_deadline_is_infinite_negative_or_no_number(key: str, value: str) -> None:
    text = CARD.replace("STEPS", "[]").replace("FAMILY", "code") + f"[timeouts]\n{key} = {value}\n"
    with pytest.raises(CardError, match=key):
        parse_card(text, "here.toml")


def test_a_climb_goes_one_rung_up_and_to_the_original_s_difficulty_at_the_top() -> None:
    assert above(LADDER, 3, 1.0) == (2, 0.3)
    assert above(LADDER, 2, 1.0) == (1, 0.6)
    assert above(LADDER, 1, 1.0) == (0, 1.0)
    assert above(LADDER, 2, 0.5) == (0, 0.5), "a rung harder than the original is no way up"
    assert above(Ladder(steps=(Step(hint="{prompt}"), 0.3)), 2, 0.9) == (0, 0.9)


def climbing(bench: Bench, *, climb: bool = True) -> None:
    bench.policies.domains["c"] = Policy(ladder=Ladder(steps=(0.5, 0.0), climb=climb))
    bench.submit("t", domain="c", difficulty=1.0)


def test_a_sub_task_that_passes_leads_to_a_try_on_the_rung_above_up_to_the_top(bench: Bench) -> None:
    climbing(bench)
    levels = []
    for score in (0.0, 0.0, 1.0, 1.0, 1.0):
        bench.now += 1.0
        bench.run(score, 0.0)
        levels += [(event.level, event.task.difficulty, event.climb) for event in bench.derived()]
    assert levels == [(1, 0.5, False), (2, 0.0, False), (1, 0.5, True), (0, 1.0, True)]
    assert not bench.state.live
    tops = [ended for ended in bench.state.ended.values() if ended.level == 0 and ended.id != "t"]
    assert [ended.state for ended in tops] == ["succeeded"]


def test_a_climb_that_fails_ends_there(bench: Bench) -> None:
    climbing(bench)
    for score in (0.0, 1.0, 0.0):
        bench.run(score, 0.0)
        bench.derived()
    assert not bench.state.live
    assert sorted(ended.state for ended in bench.state.ended.values()) == ["degraded", "failed", "succeeded"]


def test_climbing_can_be_turned_off(bench: Bench) -> None:
    climbing(bench, climb=False)
    for score in (0.0, 1.0):
        bench.run(score, 0.0)
        bench.derived()
    assert not bench.state.live


def test_a_climb_is_new_work_and_goes_before_nobody(bench: Bench) -> None:
    climbing(bench)
    bench.run(0.0, 0.0)
    bench.derived()
    bench.now += 50.0
    bench.run(1.0, 0.0)
    [climb] = bench.derived()
    assert bench.state.live[climb.task.id].eligible_at == bench.now


def test_two_that_pass_climb_once(bench: Bench) -> None:
    bench.policies.domains["c"] = Policy(ladder=Ladder(steps=(0.5,), children=2))
    bench.submit("t", domain="c", difficulty=1.0)
    bench.run(0.0, 0.0)
    bench.derived()
    bench.run(1.0, 0.0)
    bench.run(1.0, 0.0)
    climbs = [effect for effect in bench.effects if isinstance(effect, Derive) and effect.climb]
    assert len({climb.child_id for climb in climbs}) == 1


def test_where_few_pass_failing_tasks_go_lower_and_come_back_when_most_do() -> None:
    state = State()

    def see(level: int, results: str) -> None:
        for result in results:
            remember(state, LADDER, "a", level, passed=result == "+")

    see(1, "-" * (WINDOW - 1))
    assert first_rung(state, "a") == 1, "not before there is enough to go by"
    see(1, "-")
    assert first_rung(state, "a") == 2
    assert next_level(LADDER, "train", 0, task(1.0), start=2) == 2
    see(2, "+-" * (WINDOW // 2))
    assert first_rung(state, "a") == 2, "half is neither few nor most: it stays"
    see(2, "+" * WINDOW)
    assert first_rung(state, "a") == 1
    see(1, "--")
    assert first_rung(state, "a") == 1, "what was known before does not count"
    see(3, "-" * WINDOW)
    assert first_rung(state, "a") == 1, "another rung's results are not this one's"


def test_a_domain_s_first_rung_is_never_below_the_last(bench: Bench) -> None:
    for _ in range(200):
        remember(bench.state, LADDER, "a", first_rung(bench.state, "a"), passed=False)
    assert first_rung(bench.state, "a") == len(LADDER.steps)


def test_climbs_are_withheld_where_few_pass(bench: Bench) -> None:
    climbing(bench)
    for _ in range(6):
        remember(bench.state, LADDER, "c", 1, passed=False)
    bench.run(0.0, 0.0)
    bench.derived()
    bench.run(1.0, 0.0)
    assert bench.derived() == []
    assert bench.state.meta.counters["climb_withheld"] == 1

"""Estimates by domain and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from schemas.cards import Deadline
from schemas.tasks import Task, TaskSubmitted
from services.scheduler.cli import lines
from services.scheduler.effects import Publish
from services.scheduler.estimates import (
    ENOUGH,
    KIND_WINDOW,
    KINDS,
    SILENT,
    WINDOW,
    estimate,
    estimated,
    kind_of,
    observe,
)
from services.scheduler.explain import explain
from services.scheduler.intake import content_of
from services.scheduler.records import Domain
from services.scheduler.state import State

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench

CARD = Deadline(estimate_s=7.0)


def domain(state: State) -> Domain:
    return state.domains["a"]


@pytest.mark.parametrize(
    ("difficulty", "kind"),
    [
        (0.0, "difficulty<0.25"),
        (0.25, "difficulty<0.5"),
        (0.5, "difficulty<0.75"),
        (0.75, "difficulty<=1"),
        (1.0, "difficulty<=1"),
    ],
)
def test_a_task_without_a_word_of_its_own_is_of_its_difficulty_s_quarter(
    difficulty: float, kind: str
) -> None:
    assert kind_of(Task(id="t", domain="a", prompt="p", difficulty=difficulty)) == kind
    assert kind_of(Task(id="t", domain="a", prompt="p", difficulty=difficulty, kind="long")) == "long"


def test_a_kind_is_a_short_word() -> None:
    with pytest.raises(msgspec.ValidationError, match="length <= 64"):
        msgspec.convert({"id": "t", "domain": "a", "prompt": "p", "kind": "x" * 65}, Task)


def test_the_card_then_the_domain_then_the_kind() -> None:
    state = State()
    assert estimated(state.domains.get("a"), CARD, "long") == (7.0, "card")
    for _ in range(ENOUGH - 1):
        observe(state, "a", 90.0, "long")
    assert estimated(domain(state), CARD, "short") == (90.0, "domain")
    assert estimated(domain(state), CARD, "long") == (90.0, "domain"), "four say nothing about a kind yet"
    observe(state, "a", 80.0, "long")
    assert estimated(domain(state), CARD, "long") == (90.0, "kind")
    for _ in range(WINDOW):
        observe(state, "a", 2.0, "short")
    assert estimated(domain(state), CARD, "long") == (90.0, "kind"), "many short ones do not move it"
    assert estimated(domain(state), CARD, "short") == (2.0, "kind")
    assert estimate(domain(state), CARD) == 2.0, "of the domain as a whole"


def test_a_kind_follows_what_it_takes_now() -> None:
    state = State()
    for _ in range(100):
        observe(state, "a", 1.0, "k")
    for _ in range(KIND_WINDOW // 2 + 1):
        observe(state, "a", 5.0, "k")
    assert estimate(domain(state), CARD, "k") == 5.0
    assert len(domain(state).kinds["k"].seconds) == KIND_WINDOW


def test_kinds_are_bounded_and_a_flood_of_new_ones_pushes_out_none_that_is_seen() -> None:
    state = State()
    for number in range(20_000):
        observe(state, "a", 3.0, f"junk-{number}")
        if number % 50 == 0:
            observe(state, "a", 40.0, "real")
    kinds = domain(state).kinds
    assert len(kinds) == KINDS
    assert estimated(domain(state), CARD, "real") == (40.0, "kind")
    assert estimated(domain(state), CARD, "junk-7") == (3.0, "domain")
    for _ in range(ENOUGH):  # a true new kind still gets a place, once one of the others is silent
        for _ in range(SILENT + 1):
            observe(state, "a", 40.0, "real")
        observe(state, "a", 9.0, "new")
    assert estimated(domain(state), CARD, "new") == (9.0, "kind")
    assert len(kinds) == KINDS
    assert len(msgspec.msgpack.encode(domain(state))) < 4096


def test_short_kinds_go_first_and_the_figure_is_frozen(bench: Bench) -> None:
    for _ in range(ENOUGH):
        observe(bench.state, "a", 50.0, "long")
        observe(bench.state, "a", 1.0, "short")
    bench.submit("l", kind="long")
    bench.submit("s", kind="short")
    bench.beat(slots=1)
    bench.tick()
    assert bench.assigned[-1].task.id == "s", "it came later and takes a fiftieth"
    entry = bench.state.live["l"]
    assert (entry.kind, entry.estimate_s, entry.deadline) == ("long", 50.0, 1000.0 + 4.0 * 50.0)
    said = [effect.event for effect in bench.effects if isinstance(effect, Publish)]
    assert {(event.task_id, event.kind, event.estimate_s) for event in said} == {
        ("l", "long", 50.0),
        ("s", "short", 1.0),
    }
    for _ in range(WINDOW):
        observe(bench.state, "a", 3.0, "long")
    found = explain(bench.state, bench.policies, "l", bench.now)
    assert found is not None
    assert (found["kind"], found["estimate_s"], found["estimate_now_s"], found["estimate_from"]) == (
        "long",
        50.0,
        3.0,
        "kind",
    )
    assert any(line.startswith("kind ") and line.endswith("long") for line in lines(found))
    assert entry.deadline == 1200.0


def test_an_attempt_teaches_its_own_kind(bench: Bench) -> None:
    bench.policies = msgspec.structs.replace(bench.policies, eta=1000)
    for number in range(ENOUGH):
        bench.submit(f"h{number}", difficulty=1.0)
        bench.beat(slots=1)
        bench.tick()
        bench.now += 20.0
        bench.beat(slots=1, released=(bench.assigned[-1].lease_id,))
        bench.verdicts(f"h{number}", 1.0, 1.0)
    for number in range(2 * ENOUGH):
        bench.submit(f"e{number}", difficulty=0.0)
        bench.beat(slots=1)
        bench.tick()
        bench.now += 2.0
        bench.verdicts(f"e{number}", 1.0, 1.0)
    bench.submit("hard", difficulty=0.9)
    bench.submit("easy", difficulty=0.1)
    bench.submit("other", difficulty=0.5)
    live = bench.state.live
    assert [live[name].estimate_s for name in ("hard", "easy", "other")] == [20.0, 2.0, 2.0]


def test_a_field_at_its_default_is_no_part_of_a_submission_s_content() -> None:
    """A resubmission from before the field existed must still be seen as the same."""
    event = TaskSubmitted(task=Task(id="t", domain="a", prompt="p"))
    named = TaskSubmitted(task=Task(id="t", domain="a", prompt="p", kind="k"))
    assert content_of(event) != content_of(named)
    assert content_of(event).hex() == "4286b72e8d852a2a388b3f803ca296b2"

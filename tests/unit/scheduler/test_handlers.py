from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from schemas.cards import Card, VerifierTable
from schemas.run import RunConfig
from schemas.tasks import Task, TaskCancelled, TaskSubmitted
from services.runtime.catalog import Catalog, CatalogError, Drawn, Split
from services.scheduler.effects import Derive, Publish
from services.scheduler.fold import Batch, Input, step
from services.scheduler.handlers import records_of
from services.scheduler.policies import policies_of
from services.verifier.families import stages

if TYPE_CHECKING:
    import pytest

    from tests.unit.scheduler.conftest import Bench

PARENT = Task(id="p", domain="a", prompt="hard", group_size=4, batch="mine")
DERIVE = Derive(parent=PARENT, child_id="c", difficulty=0.5, level=1, index=0, seed=9, priority=3, trace="tr")


class Draws:
    """A catalog that knows domain `a`."""

    def sample(
        self, domain: str, *, split: Split, seed: int, count: int, difficulty: float | None = None
    ) -> list[Drawn]:
        if domain != "a":
            raise CatalogError(f"unknown domain {domain!r}")
        assert (split, seed, count, difficulty) == ("train", 9, 1, 0.5)
        return [Drawn(Task(id="drawn", domain=domain, prompt="easy", difficulty=0.5), "gold")]


def test_a_sub_task_is_submitted_in_its_parent_s_name() -> None:
    first, again = (records_of([DERIVE], Draws(), epoch=1, seq=1) for _ in range(2))
    assert first == again
    out = first[0]
    assert isinstance(out.event, TaskSubmitted)
    assert (out.topic, out.key, out.traceparent) == ("tasks", "a", "tr")
    assert (out.event.task.id, out.event.parent, out.event.level, out.event.priority) == ("c", "p", 1, 3)
    assert (out.event.task.group_size, out.event.task.batch, out.event.task.prompt) == (4, "mine", "easy")


def test_a_domain_that_cannot_yield_one_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    lost = msgspec.structs.replace(DERIVE, parent=msgspec.structs.replace(PARENT, domain="z"))
    with caplog.at_level(logging.WARNING):
        [out] = records_of([lost], Draws(), epoch=1, seq=1)
    assert "gets no simpler sub-task" in caplog.text
    assert isinstance(out.event, TaskCancelled)
    assert (out.event.task_id, out.event.parent, out.traceparent) == ("c", "p", "tr")
    assert out.event.reason.startswith("cannot be made: unknown domain 'z'")


def test_records_have_keys_and_identities_that_last(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    effects = bench.tick() + bench.tick(31.0)
    records = records_of(effects, Draws(), epoch=1, seq=7)
    assert [record.topic for record in records] == [
        "assignments.standard",
        "task-states",
        "assignments.standard",
        "task-states",
    ]
    assert records[0].key == records[2].key == bench.assigned[0].group_id
    assert records[1].key == "t"
    assert len({record.id for record in records}) == 4
    assert records == records_of(effects, Draws(), epoch=1, seq=7)


def test_every_state_goes_out_also_those_of_one_batch(bench: Bench) -> None:
    bench.beat(slots=1)
    inputs = (Input(event=TaskSubmitted(task=Task(id="t", domain="a", prompt="p")), trace="tr"),)
    effects = step(bench.state, bench.policies, Batch(seq=1, now=bench.now, inputs=inputs))
    told = [effect for effect in effects if isinstance(effect, Publish)]
    assert [effect.event.state for effect in told] == ["ready", "leased"]
    assert {effect.trace for effect in told} == {"tr"}
    records = [
        record for record in records_of(effects, Draws(), epoch=1, seq=1) if record.topic == "task-states"
    ]
    assert len({record.id for record in records}) == 2


def test_policies_follow_cards_and_run() -> None:
    card = Card(name="a", layer="tool", summary="s", generator="m:f", verifier=VerifierTable(family="format"))
    policies = policies_of({"a": card}, RunConfig())
    assert policies.of("a").layer == "tool"
    assert policies.of("a").sampling.max_tokens == card.sampling.max_tokens
    assert policies.digest() == policies_of({"a": card}, RunConfig()).digest()
    other = policies_of({"a": msgspec.structs.replace(card, weight=2.0)}, RunConfig())
    assert other.digest() != policies.digest()


def test_a_sub_task_that_is_waited_for_and_cannot_be_made_is_reported_on_the_log() -> None:
    lost = msgspec.structs.replace(DERIVE, parent=msgspec.structs.replace(PARENT, domain="z"), awaited=True)
    [out] = records_of([lost], Draws(), epoch=1, seq=1)
    assert isinstance(out.event, TaskCancelled)
    assert (out.event.task_id, out.key) == ("c", "z")
    assert "unknown domain 'z'" in out.event.reason


def test_a_hint_shows_half_the_answer_of_a_new_draw_and_nothing_of_an_old_one() -> None:
    effect = msgspec.structs.replace(DERIVE, hint="{prompt} (it begins with {start}, not {prompt})")
    [out] = records_of([effect], Draws(), epoch=1, seq=1)
    assert isinstance(out.event, TaskSubmitted)
    assert out.event.task.prompt == "easy (it begins with go, not easy)"
    same = msgspec.structs.replace(DERIVE, difficulty=None, hint="{prompt} Think.")
    [out] = records_of([same], Draws(), epoch=1, seq=1)
    assert isinstance(out.event, TaskSubmitted)
    assert (out.event.task.prompt, out.event.task.id) == ("hard Think.", "c")


def test_the_parts_of_a_staged_task_are_its_first_stages() -> None:
    catalog = Catalog.load(["domains"], ["stages.files"])
    task = catalog.sample("stages.files", split="train", seed=1, count=1)[0].task
    effect = msgspec.structs.replace(DERIVE, parent=task, difficulty=None, stages=2)
    [out] = records_of([effect], catalog, epoch=1, seq=1)
    assert isinstance(out.event, TaskSubmitted)
    part = out.event.task
    assert part.spec["stages"] == task.spec["stages"][:2]
    assert len(task.spec["stages"]) == 3
    assert part.prompt == f"{task.prompt}\nOnly the first 2 of the 3 stages: s1, s2."
    stages.check_spec(part.spec, {})

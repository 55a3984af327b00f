"""The loop against a recorded log and an in-memory producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry.trace import INVALID_SPAN

from schemas.cards import Timeouts
from schemas.envelope import Envelope
from schemas.states import State, TaskState
from services.runtime import telemetry
from services.runtime.lifecycle import Lifecycle
from services.runtime.wire import Record
from services.trainer import handlers
from services.trainer.assemble import Assembler
from services.trainer.loop import Loop
from services.trainer.session import open_session
from services.trainer.settings import silence_s

if TYPE_CHECKING:
    from services.trainer.settings import Settings

Make = Callable[..., tuple[list[Any], list[Any]]]


def envelope(number: int) -> Envelope:
    return Envelope(
        id=f"x{number}",
        type="x",
        key="k",
        occurred_at=0.0,
        producer="p",
        traceparent=f"00-{number:032x}-{1:016x}-01",
        data=msgspec.Raw(b"{}"),
    )


def topic_of(event: Any) -> str:
    return "task-states" if isinstance(event, TaskState) else "rewards"


def said(number: int, state: State, attempt: int = 1) -> TaskState:
    return TaskState(task_id=f"task-{number}", domain="d.one", purpose="train", state=state, attempt=attempt)


class Log:
    """All records at once, then silence."""

    def __init__(self, events: list[Any]) -> None:
        self.events, self.offset = events, 0

    async def poll(self, timeout_s: float, max_records: int = 500) -> list[Record]:
        found = [
            Record(
                topic_of(event), 0, self.offset + i, self.offset + i, "k", envelope(self.offset + i), event
            )
            for i, event in enumerate(self.events[self.offset : self.offset + max_records])
        ]
        self.offset += len(found)
        await asyncio.sleep(0.0 if found else min(timeout_s, 0.01))
        return found

    def positions(self) -> dict[str, int]:
        return {"rewards/0": self.offset}

    async def end_offsets(self) -> dict[str, int]:
        return {"rewards/0": len(self.events)}

    async def caught_up(self) -> bool:
        return self.offset >= len(self.events)


class Sink:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def emit(self, *outgoing: Any) -> None:
        self.written += outgoing


async def drive(chosen: Settings, events: list[Any]) -> tuple[list[Any], Loop]:
    session, _ = open_session(chosen, {})
    assembler = Assembler(
        vocabulary=session.vocabulary,
        max_staleness=chosen.max_staleness,
        timeout_s=silence_s(Timeouts()),
        version=session.version,
        saved=session.record.assembly,
    )
    sink = Sink()
    loop = Loop(session, assembler, Log(events), sink, Lifecycle())
    await asyncio.wait_for(loop.run(), 30.0)
    return sink.written, loop


def history(make_events: Make, groups: int) -> list[Any]:
    return [event for number in range(groups) for half in make_events(number) for event in half]


def test_steps_then_the_end(chosen: Settings, make_events: Make) -> None:
    written, loop = asyncio.run(drive(chosen, history(make_events, 9)))
    assert [item.event.policy.version for item in written] == [1, 2, 3, 4]
    assert [item.event.final for item in written] == [False, False, False, True]
    assert len({item.id for item in written}) == 4
    assert written[0].event.metrics["rejected_stale"] == 0.0
    assert {"wait_s", "save_s", "duplicates"} <= written[0].event.metrics.keys()
    assert loop.stats()["ready"] == 1.0


def test_a_spent_budget_makes_the_version_that_is_there_the_last(chosen: Settings, make_events: Make) -> None:
    written, _ = asyncio.run(drive(msgspec.structs.replace(chosen, budget_s=0.3), history(make_events, 3)))
    assert written[-1].event.final
    assert not any(item.event.final for item in written[:-1])
    session, new = open_session(chosen, {})
    assert (new, session.record.final) == (False, True)
    assert session.record.version == written[-1].event.policy.version


def test_a_step_of_what_there_is_when_nothing_more_comes(chosen: Settings, make_events: Make) -> None:
    patient = msgspec.structs.replace(chosen, group_timeout_s=0.2, steps=1)
    written, _ = asyncio.run(drive(patient, history(make_events, 1)))
    assert written[0].event.metrics["groups"] == 1.0


def test_no_step_of_what_there_is_while_an_attempt_may_bring_more(
    chosen: Settings, make_events: Make
) -> None:
    """A long attempt is no silence: with a third group under way the two that a step wants are waited for."""
    patient = msgspec.structs.replace(chosen, group_timeout_s=0.1, steps=1, budget_s=1.0)
    events = [*history(make_events, 1), said(7, "running")]
    written, loop = asyncio.run(drive(patient, events))
    assert [item.event.policy.version for item in written] == [0], "the budget ended first, no step was made"
    assert loop.stats()["ready"] == 1.0


def test_the_end_of_the_last_attempt_lets_a_small_step_go(chosen: Settings, make_events: Make) -> None:
    patient = msgspec.structs.replace(chosen, group_timeout_s=0.1, steps=1)
    events = [*history(make_events, 1), said(7, "running"), said(7, "dead")]
    written, _ = asyncio.run(drive(patient, events))
    assert written[0].event.metrics["groups"] == 1.0


def test_a_group_goes_with_its_attempt_and_what_is_late_opens_none(
    chosen: Settings, make_events: Make
) -> None:
    samples, verdicts = make_events(5)
    events = [said(5, "running"), *samples, *verdicts[:2], said(5, "backoff"), *history(make_events, 4)]
    quick = msgspec.structs.replace(chosen, steps=2)
    written, loop = asyncio.run(drive(quick, events))
    assert [item.event.policy.version for item in written] == [1, 2]
    stats = loop.stats()
    assert (stats["ended"], stats["expired"], stats["waiting"]) == (1.0, 0.0, 0.0)


def test_the_same_version_has_the_same_event_id_and_a_rewritten_one_another(chosen: Settings) -> None:
    policy = open_session(chosen, {})[0].policy
    first = handlers.published("r", policy, final=False, metrics={"save_s": 1.0})
    assert first.id == handlers.published("r", policy, final=False, metrics={}).id
    other = msgspec.structs.replace(policy, digest="0" * 64)
    assert first.id != handlers.published("r", other, final=False, metrics={}).id
    assert first.id != handlers.published("r", policy, final=True, metrics={}).id
    assert (first.topic, first.key) == ("checkpoints", "r")


@pytest.mark.parametrize("draining", [True, False])
def test_heartbeat_names_offsets(*, draining: bool) -> None:
    beat = handlers.heartbeat(
        "w", version=3, offsets={"rewards/0": 5}, stats={"x": 1.0}, draining=draining, started_at=1.0
    )
    assert (beat.topic, beat.event.offsets, beat.event.policy_version) == ("heartbeats", {"rewards/0": 5}, 3)  # type: ignore[attr-defined]


def test_steps_whose_groups_are_all_too_old_move_the_version_on(chosen: Settings, make_events: Make) -> None:
    # All were sampled from version 0: with no staleness allowed only the first step has something to learn from.
    strict = msgspec.structs.replace(chosen, max_staleness=0)
    written, _ = asyncio.run(drive(strict, history(make_events, 8)))
    assert [item.event.policy.version for item in written] == [1, 2, 3, 4]
    assert [item.event.metrics["groups"] for item in written] == [2.0, 0.0, 0.0, 0.0]
    assert "reward_mean" not in written[1].event.metrics
    assert len({item.event.policy.digest for item in written}) == 1


def test_a_group_ends_its_task_s_own_trace(
    chosen: Settings, make_events: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, str, Any]] = []

    @contextmanager
    def span(name: str, *, parent: str = "", **about: Any) -> Iterator[telemetry.Span]:
        opened.append((name, parent, about.get("attributes")))
        yield telemetry.Span(traceparent=parent, raw=INVALID_SPAN)

    monkeypatch.setattr(telemetry, "span", span)
    asyncio.run(drive(msgspec.structs.replace(chosen, steps=1), history(make_events, 3)))
    trained = [(parent, about) for name, parent, about in opened if name == "train group"]
    assert len(trained) == 2
    assert len({parent for parent, _ in trained}) == 2
    assert all(about["temper.version"] == 1 and about["temper.group"] for _, about in trained)
    assert all(parent.startswith("00-") for parent, _ in trained)

"""What the outside may send: one clear line or event for each, the record kept, nothing else disturbed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from schemas.envelope import JSON, MSGPACK, DecodeError, decode, encode, open_envelope
from schemas.tasks import Task, TaskCancelled, TaskSubmitted
from schemas.verdicts import Verdict
from services.scheduler.effects import Publish
from services.scheduler.fold import fold
from services.scheduler.intake import LARGEST_TASK, LONGEST_LABEL
from services.scheduler.snapshot import snapshot
from services.scheduler.withdraw import CLOSED
from tests.verdicts import judged

if TYPE_CHECKING:
    from tests.unit.scheduler.conftest import Bench

GOOD = TaskSubmitted(task=Task(id="t", domain="a", prompt="p"), priority=1)
NAN, INF = float("nan"), float("inf")


def altered(path: str, value: Any, content_type: Any) -> bytes:
    """A submission on the wire with one value changed, or taken out (None)."""
    codec: Any = msgspec.json if content_type == JSON else msgspec.msgpack
    raw = encode(GOOD, id="i", key="a", occurred_at=1.0, producer="p", content_type=content_type)
    document = codec.decode(raw)
    *inner, last = path.split(".")
    place = document["data"]
    for name in inner:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return bytes(codec.encode(document))


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("task.id", None, "id"),
        ("task.id", "", "task.id"),
        ("task.id", "x" * 129, "task.id"),
        ("task.id", 7, "task.id"),
        ("task", None, "task"),
        ("task.domain", "no spaces", "task.domain"),
        ("priority", -101, "priority"),
        ("priority", 2**40, "priority"),
        ("priority", 0.5, "priority"),
        ("priority", "first", "priority"),
        ("task.difficulty", -0.1, "difficulty"),
        ("task.difficulty", 1.1, "difficulty"),
        ("task.group_size", 0, "group_size"),
        ("task.pool", "x" * 129, "pool"),
        ("idempotency_key", "k" * 257, "idempotency_key"),
        ("level", 17, "level"),
        ("origin", -1.0, "origin"),
    ],
)
def test_a_malformed_task_is_a_dead_letter_with_one_line_that_names_the_field(
    path: str, value: Any, words: str, content_type: Any
) -> None:
    raw = altered(path, value, content_type)
    with pytest.raises(DecodeError, match=words) as caught:
        open_envelope(decode(raw), content_type)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["priority", "task.difficulty", "origin"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_no_number_and_infinity_are_refused_in_every_encoding(path: str, value: float) -> None:
    with pytest.raises(DecodeError):
        open_envelope(decode(altered(path, value, MSGPACK)), MSGPACK)
    for text in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        raw = altered(path, 0, JSON)
        spoiled = raw.replace(
            b'"%s":0' % path.rpartition(".")[2].encode(),
            b'"%s":%s'
            % (
                path.rpartition(".")[2].encode(),
                text,
            ),
        )
        assert spoiled != raw
        with pytest.raises(DecodeError):
            open_envelope(decode(spoiled), JSON)


def refused(bench: Bench, cause: str, **fields: Any) -> str:
    """Submit `bad` beside a task that is under way; the reason of its rejection."""
    bench.submit("good")
    bench.beat()
    bench.tick()
    before = {name: value for name, value in snapshot(bench.state).items() if name != "meta"}
    effects = bench.submit("bad", **fields)
    [told] = [effect.event for effect in effects if isinstance(effect, Publish)]
    assert (told.task_id, told.state, told.cause) == ("bad", "rejected", cause)
    after = {name: value for name, value in snapshot(bench.state).items() if name != "meta"}
    assert {name: value for name, value in after.items() if name != "task:bad"} == before
    assert len(after["task:bad"]) < 2000, "the record of a rejection is small, whatever was rejected"
    assert "\n" not in told.reason
    return told.reason


@pytest.mark.parametrize("field", ["prompt", "system", "batch", "spec", "parent"])
def test_a_field_of_a_megabyte_is_rejected_and_not_kept(bench: Bench, field: str) -> None:
    large: Any = "x" * 1_000_000
    reason = refused(bench, "too_large", **{field: {"text": large} if field == "spec" else large})
    assert str(LARGEST_TASK) in reason


def test_a_trace_context_of_a_megabyte_is_dropped_and_the_task_is_taken(bench: Bench) -> None:
    fold(bench.state, bench.policies, GOOD, bench.now, trace="x" * 1_000_000)
    assert bench.state.live["t"].trace == ""


def test_an_unknown_pool_is_rejected_with_those_there_are(bench: Bench) -> None:
    assert "standard" in refused(bench, "unknown_pool", pool="nowhere")


def test_a_known_pool_is_served_by_its_own_workers_only(bench: Bench) -> None:
    bench.submit("t", pool="fast")
    bench.beat("w", pool="standard")
    bench.tick()
    assert bench.assigned == []
    bench.beat("f", pool="fast")
    bench.tick()
    assert [assigned.pool for assigned in bench.assigned] == ["fast"]


def test_an_unknown_domain_is_rejected(bench: Bench) -> None:
    assert "domains ls" in refused(bench, "unknown_domain", domain="nowhere")


def test_an_idempotency_key_with_other_content_is_rejected(bench: Bench) -> None:
    bench.submit("first", idempotency_key="k")
    assert "'k'" in refused(bench, "key_reused", idempotency_key="k", prompt="other")


def test_a_domain_at_its_cap_rejects_and_the_others_do_not(bench: Bench) -> None:
    for number in range(50):
        bench.submit(f"t{number}", domain="b")
    bench.submit("one-more", domain="b")
    bench.submit("elsewhere")
    told = bench.state.ended["one-more"]
    assert (told.state, told.cause, bench.phase("elsewhere")) == ("rejected", "domain_full", "ready")


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (TaskCancelled(task_id="never"), "cancel_of_unknown_task"),
        (TaskCancelled(task_id="over"), "cancel_of_ended_task"),
        (TaskCancelled(), "cancel_of_nothing"),
        (TaskCancelled(batch="x" * (LONGEST_LABEL + 1)), "cancel_of_nothing"),
    ],
)
def test_a_cancel_of_what_is_not_there_is_counted(bench: Bench, event: TaskCancelled, cause: str) -> None:
    bench.submit("over", domain="nowhere")
    bench.submit("t")
    assert bench.send(event) == []
    assert bench.state.meta.counters[cause] == 1
    assert bench.phase("t") == "ready"


def test_a_reason_of_a_megabyte_is_cut(bench: Bench) -> None:
    bench.submit("t")
    bench.send(TaskCancelled(task_id="t", reason="x" * 1_000_000))
    assert len(bench.state.ended["t"].reason) <= 400


def test_cancelled_batches_are_remembered_boundedly(bench: Bench) -> None:
    for number in range(CLOSED + 5):
        bench.send(TaskCancelled(batch=f"b{number}"))
    assert len(bench.state.meta.closed) == CLOSED
    bench.submit("t", batch=f"b{CLOSED + 4}")
    assert bench.phase("t") == "cancelled"


@pytest.mark.parametrize("score", [NAN, INF, -INF, -1.0, 1.5, None])
def test_a_score_that_is_none_is_no_reward(bench: Bench, score: float | None) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.send(judged("t", Verdict(outcome="scored", score=score, passed=True)))
    [result] = bench.state.live["t"].results
    assert (result.score, result.passed) == (None, False)
    assert bench.state.meta.counters["verdict_without_a_score"] == 1


@pytest.mark.parametrize(
    ("task", "cause"), [("never", "verdict_of_unknown_task"), ("over", "verdict_of_ended_task")]
)
def test_a_verdict_on_what_is_not_there_is_counted(bench: Bench, task: str, cause: str) -> None:
    bench.submit("over", domain="nowhere")
    assert bench.send(judged(task, 1.0)) == []
    assert bench.state.meta.counters[cause] == 1


def test_a_verdict_from_an_expired_lease_changes_nothing(bench: Bench) -> None:
    bench.submit("t")
    bench.beat()
    bench.tick()
    bench.tick(31.0)
    before = bench.state.live["t"]
    assert bench.send(judged("t", 1.0)) == []
    assert (before.state, before.results) == ("backoff", ())
    assert bench.state.meta.counters["verdict_of_other_attempt"] == 1


def test_a_task_of_a_cancelled_batch_can_be_repeated_on_demand(bench: Bench) -> None:
    bench.submit("t", batch="x")
    bench.send(TaskCancelled(batch="x"))
    assert bench.phase("t") == "cancelled"
    again = TaskSubmitted(task=Task(id="u", domain="a", prompt="2 + 2", batch="x"), again="t")
    bench.send(again)
    assert bench.phase("u") == "ready"
    bench.submit("v", batch="x")
    assert bench.phase("v") == "cancelled", "what nobody asked for again stays withdrawn"
    bench.send(TaskCancelled(batch="x"))
    assert bench.phase("u") == "cancelled", "and the batch can be cancelled again"

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
import pytest

from schemas.ids import event_id
from schemas.rewards import StageVerified, TrajectoryVerified
from schemas.tasks import Task
from schemas.trajectories import (
    BlobRef,
    TrajectoryAbandoned,
    TrajectoryCompleted,
    TurnCompleted,
    content_digest,
)
from schemas.verdicts import Part, StageResult, scored
from services.runtime.blobs import BlobError
from services.runtime.producer import Outgoing
from services.runtime.wire import Record
from services.verifier.handlers import Handler, Results
from services.verifier.outbox import Outbox
from services.verifier.pool import Judged
from services.verifier.progress import Committed
from services.verifier.track import HandedBackError, Told

TASK = Task(id="t1", domain="d", prompt="p", batch="b", difficulty=0.25)
STAGES = tuple(
    StageResult(name=name, weight=1.0, score=1.0, passed=True, snapshot=name) for name in ("one", "two")
)
VERDICT = scored([Part(name="p", weight=1.0, score=0.5)], stages=STAGES)


def completed(**more: Any) -> TrajectoryCompleted:
    given: dict[str, Any] = {
        "trajectory_id": "j1",
        "task": TASK,
        "attempt": 2,
        "group_id": "g1",
        "group_size": 4,
        "index": 3,
        "lease_id": "l1",
        "prompt_ids": [1],
        "token_ids": [5, 6],
        "logprobs": [-0.1, -0.2],
        "spans": (),
        "finish": "stop",
        "text": "answer",
    }
    return TrajectoryCompleted(**(given | more))


class FakePool:
    answer_limit = 100

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[bytes] = []
        self.too_long_sizes: list[int] = []
        self.error = error

    @property
    def staged(self) -> FakePool:
        return self

    def applies(self, _: Task) -> bool:
        return False

    def too_long(self, task: Task, size: int) -> Judged:
        self.too_long_sizes.append(size)
        return Judged(VERDICT)

    async def judge(self, task: Task, submission: bytes, follow: Any = None) -> Judged:
        if self.error:
            raise self.error
        self.seen.append(submission)
        return Judged(VERDICT, cached=True, queued_s=1.0, duration_s=2.0)


class FakeProducer:
    def __init__(self) -> None:
        self.batches: list[tuple[Outgoing, ...]] = []

    async def emit(self, *outgoing: Outgoing) -> None:
        self.batches.append(outgoing)


class FakeBlobs:
    def get(self, ref: BlobRef) -> bytes:
        if ref.digest == "missing":
            raise BlobError("blob missing: not there")
        return b"from the store"


def drive(
    *events: Any, redelivered: int = 0, pool: Any = None
) -> tuple[list[Outgoing], list[int], Any, FakeProducer]:
    """Handle the events; returns what was emitted, the records done, the pool and the producer."""
    producer, done = FakeProducer(), list[int]()
    pool = pool or FakePool()

    async def go() -> None:
        outbox = Outbox(producer)  # type: ignore[arg-type]
        handler = Handler(pool, outbox, FakeBlobs, "w1", redeliveries=3)  # type: ignore[arg-type]
        writing = asyncio.create_task(outbox.run())
        for number, event in enumerate(events):
            handler.handle(record(event, redelivered), partial(done.append, number))
        try:
            async with asyncio.timeout(5):
                await handler.drained()
                if handler.failed.done():
                    handler.failed.result()
                await outbox.flushed()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    asyncio.run(go())
    return [each for batch in producer.batches for each in batch], done, pool, producer


def record(event: Any, redelivered: int) -> Record:
    class Envelope:
        traceparent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    return Record("trajectories", 0, 0, 0, "g1", Envelope(), event, redelivered)  # type: ignore[arg-type]


def test_a_completed_trajectory_becomes_its_stages_and_one_verdict() -> None:
    sent, done, pool, _ = drive(completed())
    assert pool.seen == [b"answer"]
    assert done == [0]
    assert [type(each.event) for each in sent] == [StageVerified, StageVerified, TrajectoryVerified]
    assert all((each.topic, each.key) == ("rewards", "g1") for each in sent)
    assert [each.id for each in sent] == [
        event_id("StageVerified", "j1", 0),
        event_id("StageVerified", "j1", 1),
        event_id("TrajectoryVerified", "j1"),
    ]
    verdict = sent[-1].event
    assert isinstance(verdict, TrajectoryVerified)
    assert verdict.content == content_digest([5, 6], "answer")
    assert (verdict.attempt, verdict.index, verdict.lease_id, verdict.batch) == (2, 3, "l1", "b")
    assert (verdict.cached, verdict.queued_s, verdict.duration_s, verdict.worker) == (True, 1.0, 2.0, "w1")


def test_an_abandoned_one_becomes_an_infra_verdict_without_a_try() -> None:
    event = TrajectoryAbandoned(
        trajectory_id="j1",
        task_id="t1",
        domain="d",
        purpose="train",
        attempt=1,
        group_id="g1",
        group_size=4,
        index=0,
        lease_id="l1",
        reason="drain",
        detail="told to stop",
    )
    sent, done, pool, _ = drive(event)
    assert pool.seen == []
    assert done == [0]
    verdict = sent[0].event
    assert isinstance(verdict, TrajectoryVerified)
    assert (verdict.verdict.outcome, verdict.content) == ("infra", "")
    assert verdict.verdict.evidence == "abandoned: drain: told to stop"


def test_a_record_that_keeps_killing_workers_ends_as_infra() -> None:
    sent, done, pool, _ = drive(completed(), redelivered=3)
    assert pool.seen == []
    assert done == [0]
    assert isinstance(sent[0].event, TrajectoryVerified)
    assert sent[0].event.verdict.outcome == "infra"
    assert drive(completed(), redelivered=2)[2].seen == [b"answer"]


def test_long_answers_come_from_the_blob_store() -> None:
    ref = BlobRef(uri="u", digest="x", size=50)
    assert drive(completed(text="", text_ref=ref))[2].seen == [b"from the store"]
    huge = BlobRef(uri="u", digest="missing", size=10_000_000)
    sent, _, pool, _ = drive(completed(text="", text_ref=huge))
    assert (pool.seen, pool.too_long_sizes) == ([], [10_000_000])
    assert isinstance(sent[-1].event, TrajectoryVerified)
    sent, *_ = drive(completed(text="", text_ref=BlobRef(uri="u", digest="missing", size=50)))
    assert isinstance(sent[0].event, TrajectoryVerified)
    assert sent[0].event.verdict.outcome == "infra"


def test_a_turn_is_no_trajectory() -> None:
    turn = TurnCompleted(
        trajectory_id="j1", task_id="t1", attempt=1, turn=0, token_ids=[], logprobs=[], spans=(), text=""
    )
    sent, done, _, _ = drive(turn)
    assert (sent, done) == ([], [0])


def test_verdicts_are_written_in_batches() -> None:
    sent, done, _, producer = drive(*(completed(trajectory_id=f"j{n}") for n in range(50)))
    assert len(sent) == 150
    assert sorted(done) == list(range(50))
    assert len(producer.batches) < 10


def test_a_bug_of_ours_ends_the_service_and_finishes_no_record() -> None:
    with pytest.raises(RuntimeError, match="bug"):
        drive(completed(), pool=FakePool(RuntimeError("bug")))


class Slow(FakePool):
    """Judges when told; its figures differ from one time to the next, as real ones do."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def judge(self, task: Task, submission: bytes, follow: Any = None) -> Judged:
        self.seen.append(submission)
        await self.go.wait()
        return Judged(VERDICT, cached=len(self.seen) > 1, duration_s=float(len(self.seen)))


def test_a_record_that_comes_again_gives_the_same_bytes_and_is_judged_once() -> None:
    producer, done, pool = FakeProducer(), list[int](), Slow()

    async def go() -> None:
        outbox = Outbox(producer)  # type: ignore[arg-type]
        handler = Handler(pool, outbox, FakeBlobs, "w1", redeliveries=3)  # type: ignore[arg-type]
        writing = asyncio.create_task(outbox.run())
        for number, redelivered in enumerate((0, 1)):  # the second while the first is being judged
            handler.handle(record(completed(), redelivered), partial(done.append, number))
        await asyncio.sleep(0)
        pool.go.set()
        try:
            async with asyncio.timeout(5):
                await handler.drained()
                handler.handle(record(completed(), 2), partial(done.append, 2))  # and once afterwards
                await handler.drained()
                await outbox.flushed()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    asyncio.run(go())
    sent = [each for batch in producer.batches for each in batch]
    assert len(pool.seen) == 1
    assert sorted(done) == [0, 1, 2]
    raw = [(each.id, msgspec.json.encode(each.event)) for each in sent]
    assert len(raw) == 9
    assert raw[:3] == raw[3:6] == raw[6:]


def test_another_content_under_the_same_name_is_judged_for_itself() -> None:
    sent, _, pool, _ = drive(completed(), completed(text="other"), completed(token_ids=[7]))
    assert pool.seen == [b"answer", b"other", b"answer"]
    assert len(sent) == 9


def test_no_more_results_are_kept_than_allowed() -> None:
    calls: list[str] = []

    async def go() -> None:
        results = Results(2)

        async def find(name: str) -> Any:
            calls.append(name)
            return [name]

        for name in "abcab":
            found: Any = await results.of(name, partial(find, name))
            assert found == [name]

    asyncio.run(go())
    assert calls == list("abcab")


class Stepping(FakePool):
    """Judges by stages: the first was committed by another worker, the second is here and now."""

    def __init__(self) -> None:
        super().__init__()
        self.follows: list[Any] = []
        self.out: list[Any] = []

    def applies(self, _: Task) -> bool:
        return True

    def clear(self, track: Any) -> None:
        self.out.append(track)

    async def judge(self, task: Task, submission: bytes, follow: Any = None) -> Judged:
        self.follows.append(follow)
        for number, (worker, fresh) in enumerate((("w0", False), ("w1", True))):
            what = Committed(result=STAGES[number], taken=number + 1, worker=worker, runs=3, note="lost")
            follow.tell(Told(number, 2, what, "address", fresh))
        return Judged(VERDICT, track=self)  # type: ignore[arg-type]


def test_stages_are_told_when_they_are_committed_and_not_again_with_the_verdict() -> None:
    sent, done, pool, _ = drive(completed(), redelivered=3, pool=Stepping())
    assert [type(each.event) for each in sent] == [StageVerified, StageVerified, TrajectoryVerified]
    assert [each.id for each in sent[:2]] == [event_id("StageVerified", "j1", n) for n in range(2)]
    first = sent[0].event
    assert isinstance(first, StageVerified)
    assert (first.worker, first.runs, first.note, first.stages) == ("w0", 3, "lost", 2)
    assert (first.domain, first.group_id, first.index, first.lease_id) == ("d", "g1", 3, "l1")
    assert first.snapshot == "address"
    follow = pool.follows[0]
    assert follow.owner == f"j1 {content_digest([5, 6], 'answer')}"
    assert (follow.redelivered, follow.limit) == (3, 3)
    assert done == [0]
    assert pool.out == [pool]


class Leaving(FakePool):
    async def judge(self, task: Task, submission: bytes, follow: Any = None) -> Judged:
        raise HandedBackError("2 stages are committed")


def test_what_is_handed_back_is_neither_done_nor_an_error() -> None:
    sent, done, _, _ = drive(completed(), pool=Leaving())
    assert (sent, done) == ([], [])

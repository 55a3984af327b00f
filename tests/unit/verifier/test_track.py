"""Long answers in the service: two workers at once, deliveries that come to nothing, the order in the line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from schemas.verdicts import StageResult
from services.runtime.errors import Unavailable
from services.verifier import hand
from services.verifier import pool as pool_module
from services.verifier.fair import FairQueue
from services.verifier.jail import JailUnavailable
from services.verifier.keep import Keep
from services.verifier.line import Line
from services.verifier.pool import Judged, Pool
from services.verifier.progress import Committed, Progress
from services.verifier.track import Follow, HandedBackError, Told, Track

STAGES = 5
SPEC = {"stages": [{"name": f"s{n}", "checks": [{"kind": "file", "path": "a"}]} for n in range(STAGES)]}
TASK = Task(id="t", domain="d", prompt="p", spec=SPEC)
CARD = parse_card(
    'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="stages"\n[limits]\nwall_s=0.1\n',
    "card",
)
# Commits a stage a request; "fatal N" kills it at stage N whenever it is asked for that one, "lost N" finds the state before
# stage N damaged each time.
WORKER = """
import os, sys, time
from pathlib import Path
from services.verifier.frames import HEAD, Ready, Reply, Request, encode, size
from services.verifier.progress import Committed, Progress
from schemas.verdicts import Part, StageResult, scored
import msgspec
log, out, source = Path(sys.argv[1]), sys.stdout.buffer, sys.stdin.buffer
def send(frame):
    out.write(frame); out.flush()
send(encode(Ready(isolation="none: a test")))
while head := source.read(HEAD):
    request = msgspec.msgpack.decode(source.read(size(head)), type=Request)
    at = len(request.resume.stages)
    with log.open("a") as file:
        file.write(f"{request.task.id} {at}\\n")
    word, _, which = request.submission.decode().partition(" ")
    if word == "fatal" and at == int(which):
        os._exit(1)
    if word == "lost" and at == int(which):
        send(encode(Reply(verdict=None, damaged="snapshot part 0 is damaged", back=at - 1)))
        continue
    if word == "sleep":
        time.sleep(0.05)
    total, more = len(request.task.spec["stages"]), ()
    if at < total:
        result = StageResult(name=f"s{at}", weight=1.0, score=1.0, passed=True, snapshot="0" * 64)
        more = (Committed(result=result, taken=at + 1, worker=request.resume.worker, runs=1),)
    verdict = scored([Part(name="p", weight=1.0, score=0.5)]) if at + 1 >= total else None
    send(encode(Reply(verdict=verdict, committed=more, jail_runs=1)))
"""


def committed(number: int, worker: str) -> Committed:
    result = StageResult(name=f"s{number}", weight=1.0, score=1.0, passed=True, snapshot=f"{number}" * 64)
    return Committed(result=result, taken=number + 1, worker=worker, runs=1)


def test_of_two_workers_at_once_whoever_is_behind_takes_over(tmp_path: Path) -> None:
    told: dict[str, list[Told]] = {"a": [], "b": []}

    async def go() -> None:
        keep = Keep(str(tmp_path))
        one, other = (Track(keep, "ab" * 32, Follow("j", told[name].append), TASK, name) for name in told)
        assert await one.open() == await other.open() == 0
        assert await one.commit((committed(0, "a"),))
        assert await one.commit((committed(1, "a"),))
        assert not await other.commit((committed(0, "b"),))  # it came too late with its first
        assert other.done == 2
        assert await other.commit((committed(2, "b"),))
        await one.look()
        assert one.resume.stages == other.resume.stages

    asyncio.run(go())
    for name, said in told.items():
        assert [each.what.worker for each in said] == ["a", "a", "b"]
        assert [(each.number, each.stages) for each in said] == [(n, STAGES) for n in range(3)]
        assert [each.fresh for each in said] == [each.what.worker == name for each in said]
    assert told["a"][2].snapshot == Keep(str(tmp_path)).address("ab" * 32, "2" * 64)


def test_only_deliveries_that_led_nowhere_are_counted(tmp_path: Path) -> None:
    keep, key = Keep(str(tmp_path)), "ab" * 32

    async def deliver(redelivered: int, *more: Committed) -> int:
        track = Track(keep, key, Follow("j", lambda _: None, redelivered), TASK, "w")
        wasted = await track.open()
        if more:
            await track.commit(more)
        return wasted

    async def go() -> None:
        assert [await deliver(n) for n in range(3)] == [0, 1, 2]  # nothing was ever committed
        assert await deliver(2, committed(0, "w")) == 2
        for life in range(3, 9):  # however often it comes, as long as it gets on
            assert await deliver(life, committed(life - 2, "w")) == 0
        assert [await deliver(n) for n in (9, 10, 11)] == [0, 1, 2]
        # The log's count starts anew where a worker told it of the progress, or ended in good order.
        assert await deliver(0) == 0
        assert await deliver(1) == 1

    asyncio.run(go())


@pytest.fixture
def drive(tmp_path: Path) -> Callable[..., Any]:
    """Run `scenario(pool)` on a started pool that keeps its progress in `tmp_path`; returns what its workers were asked."""
    script, log = tmp_path / "worker.py", tmp_path / "log"
    script.write_text(WORKER)
    log.touch()

    def run(scenario: Callable[[Pool], Awaitable[Any]], **options: Any) -> tuple[Any, list[str]]:
        async def go() -> Any:
            command = (sys.executable, str(script), str(log))
            keep = Keep(str(tmp_path / "blobs"))
            given: dict[str, Any] = {"slots": 1, "margin_s": 2.0, "keep": keep, "worker": "w"} | options
            pool = Pool({"d": CARD, "e": CARD}, tmp_path, command=command, **given)
            await pool.start()
            try:
                async with asyncio.timeout(30):
                    return await scenario(pool)
            finally:
                await pool.close()

        return asyncio.run(go()), log.read_text().splitlines()

    return run


def test_a_stage_that_no_worker_survives_ends_as_infra_and_keeps_what_was_committed(drive: Any) -> None:
    told: list[Told] = []

    async def scenario(pool: Pool) -> list[Judged]:
        first = await pool.judge(TASK, b"fatal 3", Follow("j", told.append, 0, 3))
        return [first, await pool.judge(TASK, b"fatal 3", Follow("j", told.append, 1, 3))]

    judged, log = drive(scenario)
    assert [each.verdict.outcome for each in judged] == ["infra", "infra"]
    assert log == ["t 0", "t 1", "t 2", "t 3", "t 3", "t 3", "t 3"]
    assert [each.number for each in told] == [0, 1, 2, 0, 1, 2]


def test_a_state_that_is_lost_each_time_ends_as_infra(drive: Any) -> None:
    """A store that damages what it is given: the stage is run again twice, and that is all."""

    async def scenario(pool: Pool) -> tuple[Judged, float]:
        judged = await pool.judge(TASK, b"lost 3", Follow("j", lambda _: None))
        return judged, pool.stats["stages_again"]

    (judged, again), log = drive(scenario)
    assert (judged.verdict.outcome, judged.settled) == ("infra", False)
    assert "lost 3 times, the last time: snapshot part 0 is damaged" in judged.verdict.evidence
    assert log == ["t 0", "t 1", "t 2", "t 3", "t 2", "t 3", "t 2", "t 3"]
    assert again == 2


def test_several_services_in_turn_do_not_go_back_for_ever(tmp_path: Path) -> None:
    """The record counts what none of them could count alone."""

    async def go() -> int:
        for life in range(100):
            track = Track(Keep(str(tmp_path)), "ab" * 32, Follow("j", lambda _: None), TASK, f"w{life}")
            await track.look()
            await track.commit((committed(track.done, "w"),))
            if not track.may_go_back(0):
                return life
            await track.back(0, "lost")
        return -1

    assert asyncio.run(go()) == 2 * STAGES


def test_the_end_waits_for_nothing_without_a_bound(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that the kernel does not end, and an answer of a domain not judged that does not let go."""
    monkeypatch.setattr(hand, "KILL_S", 0.1)
    monkeypatch.setattr(pool_module, "LEAVE_S", 0.1)

    async def scenario(pool: Pool) -> asyncio.Task[None]:
        await pool.judge(TASK, b"a", Follow("j", lambda _: None))
        stuck = asyncio.create_task(asyncio.Event().wait())
        pool._held.add(stuck)  # type: ignore[arg-type]
        for each in pool._crew:
            process = each._process
            assert process is not None
            monkeypatch.setattr(process, "wait", asyncio.Event().wait)
            begun = asyncio.get_running_loop().time()
            await each.kill()
            assert asyncio.get_running_loop().time() - begun < 5
        return stuck  # type: ignore[return-value]

    stuck, _ = drive(scenario)
    assert stuck.cancelled()


def test_a_record_that_came_too_often_for_nothing_is_not_tried(drive: Any) -> None:
    async def scenario(pool: Pool) -> Judged:
        return await pool.judge(TASK, b"a", Follow("j", lambda _: None, 3, 3))

    judged, log = drive(scenario)
    assert (judged.verdict.outcome, judged.fault, log) == ("infra", "killed", [])
    assert "3 times without progress" in judged.verdict.evidence


def test_a_finished_record_gives_the_verdict_again_without_a_stage(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        return [await pool.judge(TASK, b"a", Follow("j", lambda _: None, n, 3)) for n in range(2)]

    (first, again), log = drive(scenario)
    assert first.verdict == again.verdict
    assert log == ["t 0", "t 1", "t 2", "t 3", "t 4", "t 5"]  # the last asks for the verdict alone
    assert first.duration_s > 0.0


def test_an_ending_service_stops_between_stages(drive: Any) -> None:
    told: list[Told] = []

    async def scenario(pool: Pool) -> None:
        def tell(stage: Told) -> None:
            told.append(stage)
            if stage.number == 1:
                pool.hand_back()

        with pytest.raises(HandedBackError, match="2 stages are committed"):
            await pool.judge(TASK, b"a", Follow("j", tell))

    _, log = drive(scenario, cache=10)
    assert log == ["t 0", "t 1"]
    (judged, again) = drive(lambda pool: pool.judge(TASK, b"a", Follow("j", told.append)), cache=10)
    assert judged.verdict.outcome == "scored"
    assert again[2:] == ["t 2", "t 3", "t 4"]


def test_a_second_run_goes_stage_by_stage_and_leaves_nothing(drive: Any, tmp_path: Path) -> None:
    async def scenario(pool: Pool) -> dict[str, float]:
        await pool.judge(TASK, b"a", Follow("j", lambda _: None))
        while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
            await asyncio.sleep(0.01)
        return dict(pool.stats)

    stats, log = drive(scenario, reverify=1.0)
    assert log == [f"t {n}" for n in range(STAGES)] * 2
    assert (stats["reverified"], stats["disagreements"]) == (1, 0)
    assert len(list((tmp_path / "blobs" / "progress").glob("*/*"))) == 1


def test_a_store_that_fails_is_no_score(drive: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async def scenario(pool: Pool) -> Judged:
        return await pool.judge(TASK, b"a", Follow("j", lambda _: None))

    judged, _ = drive(scenario, keep=Keep(str(tmp_path / "file")))
    assert judged.verdict.outcome == "infra"
    assert "progress cannot be" in judged.verdict.evidence
    assert JailUnavailable.__name__ not in judged.verdict.evidence


def test_a_long_answer_does_not_hold_up_another_domain(drive: Any) -> None:
    """With one slot, a short job that comes during the first stage runs after it and not after the fifth."""
    other = Task(id="u", domain="e", prompt="p", spec={"stages": SPEC["stages"][:1]})

    async def scenario(pool: Pool) -> None:
        long = asyncio.create_task(pool.judge(TASK, b"sleep", Follow("j", lambda _: None)))
        await asyncio.sleep(0.02)
        await pool.judge(other, b"a", Follow("k", lambda _: None))
        await long

    log = drive(scenario)[1]
    assert log.index("u 0") <= 2
    assert log[-1] == "t 4"


def test_what_was_begun_goes_on_before_more_of_its_domain_is_begun() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("d", "one", 0.0)
    queue.push("d", "two", 0.0)
    assert queue.pop(0.0) == "one"
    queue.push("d", "one, stage 2", 5.0, front=True)
    queue.push("e", "check", 4.0)
    assert [queue.pop(0.0) for _ in range(3)] == ["check", "one, stage 2", "two"]


def test_a_begun_item_needs_no_place_in_a_full_line() -> None:
    async def go() -> list[str]:
        line: Line[str] = Line(1, 1)
        await line.room()
        line.push("d", "one", 1.0)
        item = await line.take()
        await line.room()
        line.push("d", "two", 1.0)  # full again
        line.end(item, "d", 0.1)
        line.push_again("d", item, 1.0)
        assert line.unfinished == 2
        taken = [await line.take()]
        line.end(taken[0], "d", 0.1)
        taken.append(await line.take())
        async with asyncio.timeout(1):
            await line.room()  # the one place is free, and there is no second
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await line.room()
        return taken

    assert asyncio.run(go()) == ["one", "two"]


class BrokenKeep(Keep):
    """A store whose driver raises what is no OSError, at its `at`-th reading."""

    def __init__(self, url: str, at: int) -> None:
        super().__init__(url)
        self.left = at

    def read(self, key: str) -> Progress:
        self.left -= 1
        if self.left == 0:
            raise RuntimeError("the driver is broken")
        return super().read(key)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_fault_of_ours_costs_one_answer_and_no_slot(tmp_path: Path, at: int) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "worker.py"), str(tmp_path / "log")]

    async def go() -> None:
        keep = BrokenKeep(str(tmp_path / "blobs"), at)
        pool = Pool({"d": CARD}, tmp_path, slots=1, command=command, keep=keep, worker="w")
        await pool.start()
        outcomes: list[tuple[str, str]] = []
        try:
            for n in range(2):
                follow = Follow(f"o{n}", lambda _: None)
                async with asyncio.timeout(20.0):
                    try:
                        judged = await pool.judge(TASK, f"answer {n}".encode(), follow)
                        outcomes.append((judged.verdict.outcome, judged.verdict.evidence))
                    except RuntimeError as error:
                        outcomes.append(("raised", str(error)))
            assert outcomes[0][0] != "scored"
            assert "the driver is broken" in outcomes[0][1]
            assert outcomes[1][0] == "scored"
            assert not any(loop.done() for loop in pool._loops)
            assert pool.failed is not None
            assert not pool.failed.done()
        finally:
            await pool.close()

    asyncio.run(go())


def test_a_slot_that_ends_all_the_same_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    command = [sys.executable, str(tmp_path / "worker.py"), str(tmp_path / "log")]

    async def broken(*_: object) -> None:
        raise RuntimeError("not so")

    monkeypatch.setattr("services.verifier.attempts.renew", broken)

    async def go() -> None:
        pool = Pool({"d": CARD}, tmp_path, slots=1, command=command)
        await pool.start()
        try:
            async with asyncio.timeout(20.0):
                await pool.judge(TASK, b"answer")
                assert pool.failed is not None
                with pytest.raises(Unavailable, match="RuntimeError: not so"):
                    await pool.failed
        finally:
            await pool.close()

    asyncio.run(go())

"""The pool against worker processes that do what the submission says; no jail is needed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.cards import parse_card
from schemas.tasks import Task
from services.runtime.errors import Unavailable
from services.verifier import fair, families
from services.verifier.breaker import Breaker
from services.verifier.jail import JailUnavailable
from services.verifier.pool import Judged, Pool
from services.verifier.track import HandedBackError

CARD = parse_card(
    'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="format"\n[limits]\nwall_s=0.1\n',
    "card",
)
TASK = Task(id="t", domain="d", prompt="p", spec={"constraints": [{"id": "case:upper"}]})
WORKER = """
import os, sys, time
from pathlib import Path
from services.verifier.frames import HEAD, Ready, Reply, Request, encode, size
from schemas.verdicts import Part, infra, scored
import msgspec
mode, log = sys.argv[1], Path(sys.argv[2])
out, source = sys.stdout.buffer, sys.stdin.buffer
def send(frame):
    out.write(frame); out.flush()
if mode == "unable" or (mode == "able once" and log.read_text()):
    send(encode(Ready(error="nsjail is missing: install it")))
    raise SystemExit(3)
if mode == "silent":
    raise SystemExit(1)
if mode == "late" and 1 < log.read_text().count("d") < 4:
    with log.open("a") as file:
        file.write("d started\\n")
    raise SystemExit(1)
if mode == "never" and log.read_text():
    raise SystemExit(1)
send(encode(Ready(isolation="none: a test")))
while head := source.read(HEAD):
    request = msgspec.msgpack.decode(source.read(size(head)), type=Request)
    word = request.submission.decode()
    with log.open("a") as file:
        file.write(f"{request.task.domain} {word}\\n")
    lines = log.read_text().splitlines()
    if word == "die" or (word == "die once" and lines.count(f"{request.task.domain} {word}") == 1):
        os._exit(1)
    if word == "hang":
        if os.fork() == 0:
            time.sleep(600)
        time.sleep(600)
    if word == "babble":
        send(b"\\0\\0\\0\\4zzzz")
        continue
    if word.startswith("sleep"):
        time.sleep(0.2)
    if word.startswith("nap"):
        time.sleep(0.2)
        with log.open("a") as file:
            file.write("d woke\\n")
    if word == "oom" or (word == "oom once" and lines.count(f"{request.task.domain} {word}") == 1):
        os.kill(os.getpid(), 9)
    if word.startswith("fault"):
        send(encode(Reply(verdict=infra(f"no room for {word}"))))
        continue
    if word == "spin":
        os.kill(os.getpid(), 27)
    if word == "full":
        os._exit(76)
    score = len(lines) / 1000 if word == "fickle" else 0.5
    send(encode(Reply(
        verdict=scored([Part(name="p", weight=1.0, score=score)]), jail_runs=1, jail_cpu_s=0.25,
        settled=not word.startswith("wall"), memory_bytes=1 << 30 if word == "grow" else 1000,
    )))
"""


@pytest.fixture
def drive(tmp_path: Path) -> Callable[..., Any]:
    """Run `scenario(pool)` on a started pool and check that no worker outlives it; returns what the workers executed."""
    script, log = tmp_path / "worker.py", tmp_path / "log"
    script.write_text(WORKER)
    log.touch()

    def run(
        scenario: Callable[[Pool], Awaitable[Any]], mode: str = "work", **options: Any
    ) -> tuple[Any, list[str]]:
        async def go() -> Any:
            command = (sys.executable, str(script), mode, str(log))
            domains = {"d": CARD, "e": CARD}
            pool = Pool(domains, tmp_path, command=command, **({"slots": 1, "margin_s": 0.9} | options))
            await pool.start()
            pids = pool.pids
            try:
                async with asyncio.timeout(30):
                    return await scenario(pool)
            finally:
                pids += pool.pids
                await pool.close()
                assert not any(alive(pid) for pid in pids)

        return asyncio.run(go()), log.read_text().splitlines()

    return run


def alive(pid: int) -> bool:
    return Path("/proc", str(pid)).exists()


def test_verdicts_come_back_and_are_counted(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[Judged], dict[str, float]]:
        return await asyncio.gather(*(pool.judge(TASK, b"a%d" % n) for n in range(5))), pool.stats

    (judged, stats), log = drive(scenario, slots=2)
    assert [each.verdict.score for each in judged] == [0.5] * 5
    assert len(log) == 5
    assert (stats["jobs"], stats["scored"], stats["jail_runs"], stats["jail_cpu_s"]) == (5, 5, 5, 1.25)


def test_the_same_answer_is_executed_once_also_while_it_runs(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[bool]:
        together = await asyncio.gather(*(pool.judge(TASK, b"sleep") for _ in range(4)))
        return [each.cached for each in (*together, await pool.judge(TASK, b"sleep"))]

    cached, log = drive(scenario, cache=10)
    assert cached == [False, True, True, True, True]
    assert log == ["d sleep"]


def test_without_a_cache_every_answer_is_executed(drive: Any) -> None:
    async def scenario(pool: Pool) -> None:
        await asyncio.gather(*(pool.judge(TASK, b"a") for _ in range(3)))

    assert drive(scenario)[1] == ["d a"] * 3


def test_a_worker_that_dies_is_replaced_and_the_answer_tried_once_more(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[Judged, Judged, Judged, float]:
        once = await pool.judge(TASK, b"die once")
        always = await pool.judge(TASK, b"die")
        return once, always, await pool.judge(TASK, b"a"), pool.stats["workers_lost"]

    (once, always, after, lost), log = drive(scenario)
    assert once.verdict.score == 0.5
    assert (always.verdict.outcome, always.verdict.score) == ("infra", None)
    assert "lost 2 times: it died" in always.verdict.evidence
    assert after.verdict.score == 0.5
    assert lost == 3
    assert log.count("d die") == 2


def test_a_worker_that_hangs_is_killed_with_its_children(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[float, Judged, list[int]]:
        first = pool.pids
        started = time.monotonic()
        judged = await pool.judge(TASK, b"hang")
        return time.monotonic() - started, judged, first

    (took, judged, first), _ = drive(scenario)
    assert judged.verdict.outcome == "infra"
    assert took < 8.0
    for pid in first:
        assert not group_members(pid)


def group_members(group: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(entry.name)
    return found


def test_a_reply_that_is_none_costs_the_worker(drive: Any) -> None:
    judged, _ = drive(lambda pool: pool.judge(TASK, b"babble"))
    assert "no frame" in judged.verdict.evidence


def test_a_share_is_verified_again_and_disagreements_are_counted(drive: Any) -> None:
    async def scenario(pool: Pool) -> dict[str, float]:
        for word in (b"a", b"fickle"):
            await pool.judge(TASK, word)
        while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
            await asyncio.sleep(0.01)
        return dict(pool.stats)

    stats, log = drive(scenario, reverify=1.0, cache=10)
    assert log == ["d a", "d a", "d fickle", "d fickle"]
    assert (stats["reverified"], stats["disagreements"], stats["jobs"]) == (2, 1, 2)


def test_a_domain_with_much_to_do_does_not_hold_up_another(drive: Any) -> None:
    other = Task(id="t", domain="e", prompt="p", spec=TASK.spec)

    async def scenario(pool: Pool) -> None:
        busy = [asyncio.create_task(pool.judge(TASK, b"sleep%d" % n)) for n in range(4)]
        await asyncio.sleep(0.05)
        await asyncio.gather(pool.judge(other, b"a"), *busy)

    log = drive(scenario)[1]
    assert log.index("e a") <= 2


def test_a_full_queue_makes_callers_wait_and_loses_nothing(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        waiting = [asyncio.create_task(pool.judge(TASK, b"b%d" % n)) for n in range(20)]
        await asyncio.sleep(0)
        assert pool.unfinished <= 3
        return await asyncio.gather(*waiting)

    judged, log = drive(scenario, queue_limit=2)
    assert len(judged) == len(log) == 20


def test_an_unknown_domain_is_no_score(drive: Any) -> None:
    judged, log = drive(lambda pool: pool.judge(Task(id="t", domain="nowhere", prompt="p"), b"a"))
    assert judged.verdict.outcome == "infra"
    assert "nowhere" in judged.verdict.evidence
    assert log == []


def test_closing_ends_what_is_waiting(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[asyncio.Task[Judged]]:
        waiting = [asyncio.create_task(pool.judge(TASK, b"sleep%d" % n)) for n in range(6)]
        await asyncio.sleep(0.1)
        await pool.close()
        await asyncio.wait(waiting, timeout=5)
        return waiting

    waiting, _ = drive(scenario)
    assert all(task.done() for task in waiting)
    assert waiting[-1].result().verdict.evidence == "the verifier was stopped"


@pytest.mark.parametrize(
    ("mode", "said"), [("unable", "nsjail is missing: install it"), ("silent", "did not start")]
)
def test_no_jail_no_pool(drive: Any, mode: str, said: str) -> None:
    with pytest.raises(JailUnavailable) as caught:
        drive(lambda pool: pool.judge(TASK, b"a"), mode, slots=2)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_when_slots_can_no_longer_be_made_it_fails_and_judges_nothing(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[BaseException | None, bool]:
        asked = asyncio.ensure_future(pool.judge(TASK, b"die"))
        assert pool.failed is not None
        await asyncio.wait({pool.failed}, timeout=20)
        answered = asked.done()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        return pool.failed.exception(), answered

    (error, answered), _ = drive(scenario, mode="able once")
    assert isinstance(error, Unavailable)
    assert "nsjail is missing: install it" in str(error)
    assert not answered


def breaker(threshold: int = 3, pause_s: float = 60.0) -> Breaker:
    return Breaker(threshold, pause_s, 600.0)


OTHER = Task(id="t", domain="e", prompt="p", spec=TASK.spec)


def test_a_domain_of_faults_is_not_judged_for_a_while_and_no_other_is_touched(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[Judged], Judged, dict[str, float]]:
        faults = [await pool.judge(TASK, b"fault%d" % n) for n in range(5)]
        return faults, await pool.judge(OTHER, b"a"), dict(pool.stats)

    (faults, other, stats), log = drive(scenario, breaker=breaker(), cache=10)
    assert log == ["d fault0", "d fault1", "d fault2", "e a"]
    assert [each.verdict.outcome for each in faults] == ["infra"] * 5
    assert faults[3].verdict.evidence == faults[4].verdict.evidence
    assert "3 faults in a row" in faults[3].verdict.evidence
    assert faults[3].verdict.evidence.endswith("the last: no room for fault2")
    assert other.verdict.score == 0.5
    assert (stats["breakers_opened"], stats["breakers_open"], stats["refused"]) == (1, 1, 2)
    assert stats["jobs"] == 6


def test_what_waits_when_the_breaker_opens_is_answered_too(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        return await asyncio.gather(*(pool.judge(TASK, b"fault%d" % n) for n in range(20)))

    judged, log = drive(scenario, breaker=breaker())
    assert len(log) == 3
    assert all(each.verdict.outcome == "infra" for each in judged)


def test_after_the_pause_a_good_probe_opens_the_domain_again(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[Judged], dict[str, float]]:
        for n in range(3):
            await pool.judge(TASK, b"fault%d" % n)
        refused = await pool.judge(TASK, b"a")
        await asyncio.sleep(0.3)
        probe, meanwhile = await asyncio.gather(pool.judge(TASK, b"sleep"), after(0.1, pool, b"b"))
        return [refused, probe, meanwhile, await pool.judge(TASK, b"c")], dict(pool.stats)

    async def after(seconds: float, pool: Pool, word: bytes) -> Judged:
        await asyncio.sleep(seconds)
        return await pool.judge(TASK, word)

    (judged, stats), log = drive(scenario, breaker=breaker(pause_s=0.3), slots=2)
    assert [each.verdict.outcome for each in judged] == ["infra", "scored", "infra", "scored"]
    assert log[3:] == ["d sleep", "d c"]
    assert stats["breakers_open"] == 0


@pytest.mark.parametrize(
    ("word", "said"), [(b"spin", "10 s of processor time"), (b"full", "1024 MiB of memory")]
)
def test_an_answer_that_no_check_survives_is_invalid_after_two_tries(
    drive: Any, word: bytes, said: str
) -> None:
    async def scenario(pool: Pool) -> tuple[Judged, Judged, Judged, dict[str, float]]:
        first = await pool.judge(TASK, word)
        return first, await pool.judge(TASK, word), await pool.judge(TASK, b"a"), dict(pool.stats)

    (first, again, after, stats), log = drive(scenario, cache=10)
    assert (first.verdict.outcome, first.verdict.score) == ("invalid", 0.0)
    assert first.verdict.evidence == f"checking the answer took more than {said}"
    assert (again.cached, after.verdict.score) == (True, 0.5)
    assert log == [f"d {word.decode()}"] * 2 + ["d a"]
    assert (stats["check_overruns"], stats["workers_lost"]) == (1, 2)


def test_when_all_answers_of_a_domain_overrun_it_is_taken_for_our_fault(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[str]:
        return [(await pool.judge(TASK, b"spin")).verdict.outcome for _ in range(3)]

    assert drive(scenario, breaker=breaker(2))[0] == ["invalid", "invalid", "infra"]


def test_a_verdict_at_the_wall_limit_is_neither_remembered_nor_compared(drive: Any) -> None:
    async def scenario(pool: Pool) -> dict[str, float]:
        for word in (b"wall", b"wall", b"a"):
            assert not (await pool.judge(TASK, word)).cached
        while pool.unfinished:  # noqa: ASYNC110 (second runs have no event of their own)
            await asyncio.sleep(0.01)
        return dict(pool.stats)

    stats, log = drive(scenario, cache=10, reverify=1.0)
    assert log == ["d wall", "d wall", "d a", "d a"]
    assert (stats["reverified"], stats["disagreements"], stats["unsettled"]) == (1, 0, 2)


def test_a_worker_is_replaced_after_so_many_answers_or_when_it_has_grown(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[list[int], list[Judged], float]:
        pids, judged = [], []
        for word in (b"a", b"b", b"c", b"d", b"grow", b"e"):
            judged.append(await pool.judge(TASK, word))
            await settled(pool)
            pids += pool.pids
        return pids, judged, pool.stats["workers_recycled"]

    async def settled(pool: Pool) -> None:
        hand = next(iter(pool._crew))
        while not pool.pids or hand.answers >= 3 or hand.memory_bytes > 1 << 20:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    (pids, judged, recycled), log = drive(scenario, recycle=3)
    first, second, third = dict.fromkeys(pids)
    assert pids == [first, first, second, second, third, third]
    assert recycled == 2
    assert len(log) == 6
    assert all(each.verdict.score == 0.5 for each in judged)


def test_another_machine_shares_no_cached_verdict(drive: Any) -> None:
    async def scenario(pool: Pool) -> Judged:
        await pool.judge(TASK, b"a")
        pool._image = "another"
        return await pool.judge(TASK, b"a")

    judged, log = drive(scenario, cache=10, image="one")
    assert not judged.cached
    assert log == ["d a", "d a"]


def test_long_jobs_leave_a_slot_to_short_ones(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair, "LONG_S", 0.15)

    async def scenario(pool: Pool) -> tuple[list[str], list[Judged]]:
        ended: list[str] = []

        async def one(task: Task, word: str) -> Judged:
            judged = await pool.judge(task, word.encode())
            ended.append(word)
            return judged

        first = await pool.judge(OTHER, b"a")
        await pool.judge(TASK, b"sleep")  # now it is known to be long
        builds = [asyncio.create_task(one(TASK, f"sleep{n}")) for n in range(3)]
        await asyncio.sleep(0.05)
        checks = [asyncio.create_task(one(OTHER, f"check{n}")) for n in range(5)]
        return ended, [first, *await asyncio.gather(*builds, *checks)]

    (ended, judged), _ = drive(scenario, slots=2)
    assert sorted(ended[:5]) == [f"check{n}" for n in range(5)]
    assert len(judged) == 9


def test_long_jobs_alone_take_all_slots(drive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair, "LONG_S", 0.05)

    async def scenario(pool: Pool) -> float:
        started = time.monotonic()
        await asyncio.gather(*(pool.judge(TASK, b"sleep%d" % n) for n in range(4)))
        return time.monotonic() - started

    assert drive(scenario, slots=2)[0] < 0.75


def test_a_task_that_cannot_even_be_counted_is_put_through(
    drive: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(name: str, spec: dict[str, Any]) -> int:
        raise TypeError("a number where a list should be")

    monkeypatch.setattr(families, "runs", runs)
    judged, log = drive(lambda pool: pool.judge(TASK, b"a"))
    assert judged.verdict.outcome == "scored"
    assert log == ["d a"]


def test_workers_that_end_before_they_stand_cost_the_answer_no_try(drive: Any) -> None:
    async def scenario(pool: Pool) -> tuple[Judged, Judged]:
        return await pool.judge(TASK, b"a"), await pool.judge(TASK, b"die once")

    (_, judged), log = drive(scenario, "late")
    assert log == ["d a", "d die once", "d started", "d die once"]
    assert judged.verdict.outcome == "scored"


def test_but_not_for_ever(drive: Any) -> None:
    judged, log = drive(lambda pool: pool.judge(TASK, b"die"), "never")
    assert log == ["d die"]
    assert "workers ended 5 times before they stood" in judged.verdict.evidence


def test_while_a_domain_is_not_judged_its_answers_wait_and_none_spends_a_try(drive: Any) -> None:
    """The fault passes after three verdicts: all that waited, in the line or before it, are judged then."""

    async def scenario(pool: Pool) -> tuple[list[Judged], list[Judged], Judged, dict[str, float]]:
        faults = [await pool.judge(TASK, b"fault%d" % n) for n in range(3)]
        held = [asyncio.create_task(pool.judge(TASK, b"good%d" % n)) for n in range(6)]
        held += [asyncio.create_task(pool.judge(TASK, b"good0")) for _ in range(2)]
        other = await pool.judge(OTHER, b"a")
        return faults, await asyncio.gather(*held), other, dict(pool.stats)

    (faults, held, other, stats), log = drive(scenario, breaker=breaker(pause_s=0.3), hold=20, cache=20)
    assert [each.verdict.outcome for each in faults] == ["infra"] * 3
    assert [each.verdict.score for each in (*held, other)] == [0.5] * 9
    assert log[3] == "e a"
    assert sorted(log[4:]) == [f"d good{n}" for n in range(6)]
    assert (stats["refused"], stats["breakers_open"], stats["jobs"]) == (0, 0, 12)


def test_what_is_in_the_line_when_the_breaker_opens_waits_as_well(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        words = [b"fault%d" % n for n in range(3)] + [b"good%d" % n for n in range(6)]
        return await asyncio.gather(*(pool.judge(TASK, word) for word in words))

    judged, log = drive(scenario, breaker=breaker(pause_s=0.2), hold=20)
    assert [each.verdict.outcome for each in judged] == ["infra"] * 3 + ["scored"] * 6
    assert sorted(log[3:]) == [f"d good{n}" for n in range(6)]


def test_answers_that_wait_do_not_keep_the_pool_from_ending(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Any]:
        for n in range(3):
            await pool.judge(TASK, b"fault%d" % n)
        held = [asyncio.create_task(pool.judge(TASK, b"good%d" % n)) for n in range(3)]
        held.append(asyncio.create_task(pool.judge(TASK, b"good0")))
        await asyncio.sleep(0.05)
        pool.hand_back()
        return await asyncio.gather(*held, return_exceptions=True)

    found, log = drive(scenario, breaker=breaker(), hold=20, cache=20)
    assert [type(each) for each in found] == [HandedBackError] * 4
    assert len(log) == 3


def test_two_pools_have_no_number_in_common(drive: Any, tmp_path: Path) -> None:
    async def scenario(pool: Pool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        command = (sys.executable, str(tmp_path / "worker.py"), "work", str(tmp_path / "log"))
        other = Pool({"d": CARD}, tmp_path, command=command, slots=20, margin_s=0.9)
        try:
            await other.start()
            return pool.numbers, other.numbers
        finally:
            await other.close()

    (ours, theirs), _ = drive(scenario, slots=2)
    assert (len(ours), len(theirs), len({*ours, *theirs})) == (2, 20, 22)


def test_an_answer_that_no_worker_survives_says_so_and_one_that_was_too_slow_does_not(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        return [await pool.judge(TASK, word) for word in (b"die", b"oom", b"oom once", b"hang")]

    judged, log = drive(scenario)
    assert [(each.verdict.outcome, each.fault) for each in judged] == [
        ("infra", "killed"),
        ("infra", "killed"),
        ("scored", ""),
        ("infra", ""),
    ]
    assert "it died (SIGKILL)" in judged[1].verdict.evidence
    assert log.count("d oom") == 2


def test_what_was_killed_is_judged_again_with_nobody_beside_it(drive: Any) -> None:
    async def scenario(pool: Pool) -> list[Judged]:
        neighbours = [pool.judge(TASK, f"nap {n}".encode()) for n in range(8)]
        return await asyncio.gather(*neighbours, pool.judge(TASK, b"oom"))

    judged, log = drive(scenario, slots=3, margin_s=5.0)
    assert [each.fault for each in judged] == [""] * 8 + ["killed"]
    first, second = [at for at, line in enumerate(log) if line == "d oom"]
    before = [line for line in log[:second] if line.startswith(("d nap", "d woke"))]
    assert before.count("d woke") * 2 == len(before), "somebody was at work beside it"
    assert first < second
    assert log.count("d woke") == 8

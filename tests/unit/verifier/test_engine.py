from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas.cards import Card, parse_card
from services.verifier import engine
from services.verifier.cache import Cache, Share, key
from services.verifier.fair import FairQueue

CARD = parse_card(
    'name="d"\nlayer="tool"\nsummary="s"\ngenerator="m:f"\n[verifier]\nfamily="format"\n', "card"
)
SPEC = {"constraints": [{"id": "case:upper"}]}


def test_the_same_input_gives_the_same_digest(make_task: Any, scripted: Any) -> None:
    digests = {engine.judge(make_task(SPEC), CARD, b"Ab", scripted()).digest for _ in range(3)}
    assert len(digests) == 1
    assert engine.judge(make_task(SPEC), CARD, b"AB", scripted()).digest not in digests


@pytest.mark.parametrize(
    ("submission", "said"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\x1c", "empty"),
        ("\u00a0".encode(), "empty"),
        (b"\xff", "UTF-8"),
        (b"x" * 70_000, "70000 bytes"),
    ],
)
def test_an_unusable_answer_is_invalid(make_task: Any, scripted: Any, submission: bytes, said: str) -> None:
    verdict = engine.judge(make_task(SPEC), CARD, submission, scripted())
    assert (verdict.outcome, verdict.score) == ("invalid", 0.0)
    assert said in verdict.evidence


def test_the_cards_fault_and_ours_are_never_a_score(make_task: Any, scripted: Any) -> None:
    verdict = engine.judge(make_task({"constraints": []}), CARD, b"x", scripted())
    assert (verdict.outcome, verdict.score) == ("infra", None)
    assert "card or task at fault in d: spec.constraints is empty" in verdict.evidence
    code = msgspec.structs.replace(CARD, verifier=msgspec.structs.replace(CARD.verifier, family="code"))
    spec = {"entry": "f", "kind": "expression", "params": [], "cases": [{"args": [], "want": 1}]}
    verdict = engine.judge(make_task(spec), code, b"x", scripted())  # a jail without outcomes raises
    assert verdict.outcome == "infra"
    assert "verifier fault in family code: IndexError" in verdict.evidence


def other(card: Card, **limits: Any) -> Card:
    return msgspec.structs.replace(card, limits=msgspec.structs.replace(card.limits, **limits))


def test_a_cache_key_covers_what_decides(make_task: Any) -> None:
    base = key(make_task(SPEC), CARD, b"x", 10)
    assert key(msgspec.structs.replace(make_task(SPEC), id="t2", batch="b"), CARD, b"x", 10) == base
    seeded = msgspec.structs.replace(
        CARD, verifier=msgspec.structs.replace(CARD.verifier, settings={"seed": 2})
    )
    different = [
        key(make_task({"constraints": []}), CARD, b"x", 10),
        key(make_task(SPEC, "other"), CARD, b"x", 10),
        key(make_task(SPEC), other(CARD, wall_s=9.0), b"x", 10),
        key(make_task(SPEC), CARD, b"y", 10),
        key(make_task(SPEC), CARD, b"x", 11),
        key(make_task(SPEC | {"seed": 2}), CARD, b"x", 10),
        key(make_task(SPEC), seeded, b"x", 10),
        key(make_task(SPEC), CARD, b"x", 10, "another machine"),
    ]
    assert len({base, *different}) == 9


def test_the_cache_is_bounded_in_bytes(make_task: Any, scripted: Any) -> None:
    verdict = engine.judge(make_task(SPEC), CARD, b"X", scripted())
    size = len(msgspec.msgpack.encode(verdict))
    cache = Cache(1000, most_bytes=3 * size)
    for n in range(10):
        cache.put(str(n), verdict)
        cache.put(str(n), verdict)
    assert (len(cache), cache.bytes) == (3, 3 * size)
    for n in range(10):
        cache.drop(str(n))
    assert (len(cache), cache.bytes) == (0, 0)


def test_memory_that_runs_out_is_not_taken_for_a_fault_of_ours(make_task: Any, scripted: Any) -> None:
    class Full:
        def run(self, job: Any) -> Any:
            raise MemoryError

    code = msgspec.structs.replace(CARD, verifier=msgspec.structs.replace(CARD.verifier, family="code"))
    spec = {"entry": "f", "kind": "expression", "params": [], "cases": [{"args": [], "want": 1}]}
    with pytest.raises(MemoryError):
        engine.judge(make_task(spec), code, b"1", Full())


def test_the_cache_forgets_the_least_recently_used_and_keeps_no_infra(make_task: Any, scripted: Any) -> None:
    verdict = engine.judge(make_task(SPEC), CARD, b"X", scripted())
    cache = Cache(2)
    for name in ("a", "b"):
        cache.put(name, verdict)
    assert cache.get("a") == verdict
    cache.put("c", verdict)
    assert (cache.get("b"), cache.get("a"), len(cache)) == (None, verdict, 2)
    cache.put("d", engine.judge(make_task({}), CARD, b"X", scripted()))
    assert cache.get("d") is None
    off = Cache(0)
    off.put("a", verdict)
    assert off.get("a") is None


def test_a_share_is_exact() -> None:
    for value, wanted in ((0.0, 0), (0.01, 10), (0.3, 300), (1.0, 1000)):
        share = Share(value)
        assert sum(share.take() for _ in range(1000)) == wanted


def test_cheap_items_do_not_wait_behind_dear_ones_that_came_before_them() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.charge("build", 600.0)
    queue.charge("check", 0.001)
    for n in range(5):
        queue.push("build", f"b{n}", float(n))
    queue.push("check", "c", 100.0)
    assert [queue.pop(0.0) for _ in range(3)] == ["c", "b0", "b1"]


def test_nothing_is_overtaken_by_what_comes_much_later() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.charge("dear", 0.1)
    queue.charge("cheap", 0.001)
    queue.push("dear", "d", 0.0)
    for n in range(10):
        queue.push("cheap", f"c{n}", float(n))
    # The dear item may wait for twenty times its own cost, here 2 s.
    order = [queue.pop(0.0) for _ in range(len(queue))]
    assert order.index("d") == 2
    assert [item for item in order if item != "d"] == [f"c{n}" for n in range(10)]


def test_small_jobs_of_all_domains_leave_in_the_order_they_came() -> None:
    queue: FairQueue[str] = FairQueue()
    for n, domain in enumerate(("a", "a", "b", "a", "c", "b")):
        queue.push(domain, f"{domain}{n}", float(n))
    assert [queue.pop(0.0) for _ in range(6)] == ["a0", "a1", "b2", "a3", "c4", "b5"]
    with pytest.raises(IndexError):
        queue.pop(0.0)


def test_long_items_leave_a_slot_while_there_is_other_work() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("build", "b", 0.0, bound_s=600.0)  # nothing is known of it but its limit
    assert queue.long("build")
    assert not queue.reserving(0.0)
    assert (queue.ready(), queue.ready(long_too=False)) == (True, False)
    queue.push("check", "c", 1.0, bound_s=2.0)
    assert queue.reserving(600.0)
    assert not queue.reserving(602.0)
    assert queue.pop(0.0, long_too=False) == "c"
    with pytest.raises(IndexError):
        queue.pop(0.0, long_too=False)
    queue.charge("build", 0.5)  # its limit was generous, it takes little
    assert not queue.long("build")
    assert queue.pop(0.0, long_too=False) == "b"


def served(backlog: dict[str, float], popped: int, cost: float = 1.0, slots: int = 2) -> list[str]:
    """Who is judged, of domains (with these weights) that have 4,000 items each since second 0; `b` has one more at 500."""
    queue: FairQueue[str] = FairQueue()
    for domain, weight in backlog.items():
        for _ in range(4000):
            queue.push(domain, domain, 0.0, weight=weight)
    order = []
    for n in range(popped):
        now = n * cost / slots
        if n == 1000:
            queue.push("b", "b", now)
        order.append(queue.pop(now))
        queue.charge(order[-1], cost)
    return order


def test_whoever_floods_the_line_waits_behind_its_own_items() -> None:
    order = served({"a": 1.0}, 1200)
    # 30 s of patience and 20 s of slack: 100 items of two slots, not the 3,000 that came before it.
    assert 1000 <= order.index("b") <= 1000 + 2 * (30 + 20) + 1


def test_a_line_that_is_late_is_shared_by_weight() -> None:
    order = served({"c": 1.0, "d": 2.0, "e": 5.0}, 3200)
    late = order[400:]  # patience is over
    shares = {name: late.count(name) / len(late) for name in "cde"}
    assert shares == pytest.approx({"c": 1 / 8, "d": 2 / 8, "e": 5 / 8}, abs=0.02)

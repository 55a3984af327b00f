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
    different = [
        key(make_task({"constraints": []}), CARD, b"x", 10),
        key(make_task(SPEC, "other"), CARD, b"x", 10),
        key(make_task(SPEC), other(CARD, wall_s=9.0), b"x", 10),
        key(make_task(SPEC), CARD, b"y", 10),
        key(make_task(SPEC), CARD, b"x", 11),
    ]
    assert len({base, *different}) == 6


def test_the_cache_forgets_the_least_recently_used_and_keeps_no_infra(make_task: Any, scripted: Any) -> None:
    verdict = engine.judge(make_task(SPEC), CARD, b"X", scripted())
    cache = Cache(2)
    for name in ("a", "b"):
        cache.put(name, verdict)
    assert cache.get("a") is verdict
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


def test_cheap_items_do_not_wait_behind_dear_ones_however_many_they_are() -> None:
    queue: FairQueue[str] = FairQueue()
    cost = {"build": 1.0, "check": 0.001}
    for domain in cost:
        for _ in range(50):
            queue.push(domain, domain)
    served = []
    while len(queue):
        served.append(queue.pop())
        queue.charge(served[-1], cost[served[-1]])
    assert served[:52].count("build") <= 2
    assert served.count("build") == 50


def test_a_domain_that_was_idle_has_saved_up_nothing() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(4):
        queue.push("busy", f"b{n}")
    for _ in range(2):
        queue.pop()
        queue.charge("busy", 10.0)
    queue.push("late", "l0")
    queue.push("late", "l1")
    assert queue.pop() == "l0"
    queue.charge("late", 10.0)
    assert [queue.pop(), queue.pop()] == ["b2", "l1"]


def test_a_busy_domain_does_not_hold_up_the_others() -> None:
    queue: FairQueue[str] = FairQueue()
    for n in range(5):
        queue.push("busy", f"b{n}")
    queue.push("rare", "r0")
    queue.push("rare", "r1")
    queue.push("late", "l0")
    assert [queue.pop() for _ in range(len(queue))] == ["b0", "r0", "l0", "b1", "r1", "b2", "b3", "b4"]
    with pytest.raises(IndexError):
        queue.pop()

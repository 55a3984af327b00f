"""Whether a domain is sound. Invariant: gold answers score 1 and pass, empty ones 0, everything else stays finite and below 1.

A data set may have no gold answers (`gold` is ""): that is said in a note, and the rest is checked all the same. A generator
knows its answer, so there an empty one is a fault.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import msgspec

from schemas.tasks import Task
from services.runtime.catalog import Catalog, CatalogError, Drawn
from services.verifier import cards, families
from services.verifier.pool import Judged
from services.verifier.specs import SpecError

HELDOUT = 100
TASKS = 8
SEED = 7
GARBAGE: tuple[bytes, ...] = (b"x", b"\xff\xfe\x00", b'{"', b"exit(0)\n", b"0;" * 50_000)
ALMOST = 1e-9
Judge = Callable[[Task, bytes], Awaitable[Judged]]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What validation found: lowest gold score, highest score of an empty answer and of garbage (None: never scored)."""

    domain: str
    ok: bool
    gold: float | None
    empty: float | None
    garbage: float | None
    seconds: float
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What could not be checked; a domain may be sound all the same."""


async def domain(catalog: Catalog, name: str, judge: Judge) -> Report:
    """Draw held-out tasks of a domain and have gold, empty, wrong and garbage answers judged."""
    started = time.monotonic()
    problems: list[str] = []
    notes: list[str] = []
    scores: dict[str, list[float]] = {"gold": [], "empty": [], "garbage": []}
    try:
        card = catalog.card(name)
        cards.check(card)
        drawn = await asyncio.to_thread(catalog.sample, name, split="heldout", seed=SEED, count=HELDOUT)
        for each in drawn:
            families.family(card.verifier.family).check_spec(each.task.spec, card.verifier.settings)
        chosen = drawn[:: max(1, len(drawn) // TASKS)][:TASKS]
        bare = sum(not each.gold for each in chosen)
        if bare and card.dataset:
            notes.append(
                f"{bare} of {len(chosen)} tasks have no gold answer: that one scores 1 is not proved for them"
            )
        elif bare:
            problems.append(f"the generator gives no gold answer for {bare} of {len(chosen)} tasks")
        await asyncio.gather(*(_one(each, judge, scores, problems) for each in chosen))
    except (CatalogError, SpecError) as error:
        problems.append(str(error))
    return Report(
        domain=name,
        ok=not problems,
        gold=min(scores["gold"], default=None),
        empty=max(scores["empty"], default=None),
        garbage=max(scores["garbage"], default=None),
        seconds=round(time.monotonic() - started, 3),
        problems=tuple(dict.fromkeys(problems)),
        notes=tuple(notes),
    )


async def _one(drawn: Drawn, judge: Judge, scores: dict[str, list[float]], problems: list[str]) -> None:
    answers = [("gold", drawn.gold.encode())] * bool(drawn.gold) + [("empty", b"")]
    answers += [("garbage", raw) for raw in (*GARBAGE, *(slip.encode() for slip in drawn.slips))]
    for kind, answer in answers:
        verdict = (await judge(drawn.task, answer)).verdict
        if verdict.score is None:
            problems.append(f"no score for a {kind} answer: {verdict.evidence}")
            continue
        scores[kind].append(verdict.score)
        if not (math.isfinite(verdict.score) and 0.0 <= verdict.score <= 1.0):
            problems.append(f"a {kind} answer scores {verdict.score}")
        elif kind == "gold" and not (verdict.score >= 1.0 - ALMOST and verdict.passed):
            problems.append(
                f"gold answer {drawn.gold[:60]!r} scores {verdict.score:g}: {_why(verdict.evidence, verdict.parts)}"
            )
        elif kind == "empty" and verdict.score != 0.0:
            problems.append(f"an empty answer scores {verdict.score:g}")
        elif kind == "garbage" and (verdict.score >= 1.0 - ALMOST or verdict.passed):
            problems.append(
                f"wrong answer {answer[:60]!r} scores {verdict.score:g} for prompt {drawn.task.prompt[:60]!r}"
            )


def _why(evidence: str, parts: tuple[object, ...]) -> str:
    notes = [evidence, *(getattr(part, "evidence", "") for part in parts)]
    return "; ".join(note for note in notes if note) or "no reason given"

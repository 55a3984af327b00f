"""The demo domains: pure generators, learnable sizes, enough prompts on both sides of the split, right gold answers."""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import cast

import pytest

from domains.generators.common import ANSWER_BYTES, END, PROMPT_BYTES, level, name, sample
from schemas.tasks import Sample, Task
from schemas.verdicts import Verdict
from services.runtime.catalog import NATURAL, Catalog, split_of
from services.verifier.engine import judge
from services.verifier.jail import Jail

DEMO = Catalog.load(["domains"], exclude=["reasoning.*"])
NAMES = sorted(DEMO.cards)
DATA_FAMILIES = ("call", "document", "format")


def draws(domain: str, difficulty: float, count: int, seed: int = 3) -> list[Sample]:
    rng = random.Random(seed)
    generate = DEMO._generator(DEMO.card(domain))
    return [generate(rng, difficulty, {}) for _ in range(count)]


def test_there_are_enough_domains_of_every_layer_and_family() -> None:
    cards = DEMO.cards.values()
    assert len(NAMES) >= 26
    assert {card.layer for card in cards} == {"foundation", "tool", "domain", "long_horizon"}
    assert {card.verifier.family for card in cards} == {
        "call", "code", "document", "format", "geometry", "stages", "terminal",
    }  # fmt: skip


@pytest.mark.parametrize("domain", NAMES)
def test_each_has_a_ladder_of_reachable_difficulties(domain: str) -> None:
    ladder = DEMO.card(domain).ladder
    assert ladder.steps
    assert set(ladder.steps) <= set(NATURAL)


@pytest.mark.parametrize("domain", NAMES)
def test_each_is_pure_and_small(domain: str) -> None:
    for difficulty in NATURAL:
        first, again = draws(domain, difficulty, 60), draws(domain, difficulty, 60)
        assert first == again
        for drawn in first:
            assert len(drawn.prompt) <= PROMPT_BYTES
            assert drawn.prompt.endswith(END)
            assert drawn.slips
            assert drawn.gold not in drawn.slips
            assert all(len(answer) <= ANSWER_BYTES for answer in (drawn.gold, *drawn.slips))


@pytest.mark.parametrize("domain", NAMES)
def test_each_has_a_hundred_held_out_prompts_at_every_level(domain: str) -> None:
    for difficulty in NATURAL:
        prompts = {drawn.prompt for drawn in draws(domain, difficulty, 700)}
        assert sum(split_of(domain, prompt) == "heldout" for prompt in prompts) >= 100
        assert sum(split_of(domain, prompt) == "train" for prompt in prompts) >= 300


@pytest.mark.parametrize("domain", NAMES)
def test_levels_differ(domain: str) -> None:
    """Each level asks for something the one below hardly ever asks for: longer, or of another form."""
    easy, hard = ({drawn.prompt for drawn in draws(domain, d, 400)} for d in (0.0, 1.0))
    assert len(easy & hard) < len(easy) / 2


@pytest.mark.parametrize("domain", NAMES)
def test_the_verifier_accepts_every_spec(domain: str) -> None:
    check_spec = family(domain).check_spec
    for difficulty in NATURAL:
        for drawn in draws(domain, difficulty, 60):
            check_spec(drawn.spec, DEMO.card(domain).verifier.settings)


@pytest.mark.parametrize(
    "domain", [name for name in NAMES if DEMO.card(name).verifier.family in DATA_FAMILIES]
)
def test_gold_passes_and_slips_score_low(domain: str) -> None:
    for difficulty in NATURAL:
        for drawn in draws(domain, difficulty, 40):
            assert verdict(domain, drawn, drawn.gold).passed
            for slip in drawn.slips:
                assert (verdict(domain, drawn, slip).score or 0.0) <= 0.5, slip


def family(domain: str) -> ModuleType:
    return importlib.import_module(f"services.verifier.families.{DEMO.card(domain).verifier.family}")


def verdict(domain: str, drawn: Sample, answer: str) -> Verdict:
    """A verdict of a family that executes nothing: it is given no jail."""
    task = Task(id="t", domain=domain, prompt=drawn.prompt, spec=drawn.spec)
    made = judge(task, DEMO.card(domain), answer.encode(), cast("Jail", None))
    assert made.outcome != "infra", made.evidence
    return made


def test_level_has_three_thirds() -> None:
    assert [level(d) for d in (0.0, 0.33, 0.34, 0.5, 0.66, 0.67, 1.0)] == [0, 0, 1, 1, 1, 2, 2]


def test_names_are_never_reserved_or_taken() -> None:
    rng = random.Random(0)
    drawn = {name(rng, 2, avoid=["zz"]) for _ in range(20_000)}
    assert not drawn & {"as", "if", "in", "is", "or", "cd", "mv", "rm", "zz"}


@pytest.mark.parametrize("gold", ["", "x" * 37, "ä", "tab\there"])
def test_a_sample_out_of_bounds_is_refused(gold: str) -> None:
    with pytest.raises(ValueError, match="generator made"):
        sample(0.5, "ask", gold, {}, [])


def test_a_slip_that_equals_the_gold_answer_is_dropped() -> None:
    assert sample(0.5, "ask", "a", {}, ["a", "b", "b"]).slips == ("b",)

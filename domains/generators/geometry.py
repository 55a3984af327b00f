"""Geometry domains: a script line builds a solid. Invariant: the wanted solid is not empty; slips fail."""

from __future__ import annotations

import random
from typing import Any

from domains.generators.common import EASY, HARD, coin, level, sample
from schemas.tasks import Sample


def _spec(want: str) -> dict[str, Any]:
    return {"want": want, "align": "none"}


def _numbers(rng: random.Random, low: int, high: int, count: int) -> list[int]:
    return [rng.randint(low, high) for _ in range(count)]


def solids(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`cad box 2 3 4>` -> `box(2,3,4)`; cylinders (`can`), spheres (`ball`) and larger numbers later."""
    step = level(difficulty)
    word = rng.choice((("box",), ("box", "box", "can"), ("box", "can", "ball"))[step])
    count = {"box": 3, "can": 2, "ball": 1}[word]
    call = {"box": "box", "can": "cyl", "ball": "sphere"}[word]
    # A ball has one number only: the range keeps its prompts distinct.
    sizes = _numbers(rng, 1, (12, 20, 999 if word == "ball" else 30)[step], count)
    spaced, commas = " ".join(map(str, sizes)), ",".join(map(str, sizes))
    gold = f"{call}({commas})"
    slips = (f"{word}({spaced})", f"{call} {commas}", f"{call}({commas}")
    return sample(difficulty, f"cad {word} {spaced}", gold, _spec(gold), slips)


def moved(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`cad box 2 3 4 at 9 0 5>` -> `move(box(2,3,4),9,0,5)`; cubes, then boxes, then larger numbers."""
    step = level(difficulty)
    sizes = _numbers(rng, 1, 5, 3)
    # Along the first axis the box leaves its old place entirely, so forgetting the move scores no overlap.
    offset = [rng.randint(6, (30, 9, 30)[step]), *_numbers(rng, 0, (9, 9, 30)[step], 2)]
    if step == EASY:
        offset[1] = offset[2] = 0
    box, place = ",".join(map(str, sizes)), ",".join(map(str, offset))
    gold = f"move(box({box}),{place})"
    slips = (f"move(box({box}){place})", f"box({box}).move({place})", f"box({box})")
    prompt = f"cad box {box.replace(',', ' ')} at {place.replace(',', ' ')}"
    return sample(difficulty, prompt, gold, _spec(gold), slips)


def cut(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`cad box 8 9 7 less can 2 9>` -> `box(8,9,7)-cyl(2,9)`; balls, then cans, then also unions (`and`)."""
    step = level(difficulty)
    sizes = _numbers(rng, 5, (12, 15, 20)[step], 3)
    # Thinner than the box, whichever way the cylinder stands and wherever the origin lies.
    radius = rng.randint(1, (min(sizes) - 1) // 2)
    joint = "and" if step == HARD and coin(rng) else "less"
    op = "+" if joint == "and" else "-"
    # Higher than the box: a hole goes through, and a union sticks out of it.
    height = sizes[2] + rng.randint(1, 6)
    shape, call, more = (
        ("ball", "sphere", f"{radius}") if step == EASY else ("can", "cyl", f"{radius},{height}")
    )
    box = ",".join(map(str, sizes))
    gold = f"box({box}){op}{call}({more})"
    slips = (
        f"box({box}){op}{shape}({more})",
        f"box({box}){joint} {call}({more})",
        f"box({box}){op}{call} {more}",
    )
    prompt = f"cad box {box.replace(',', ' ')} {joint} {shape} {more.replace(',', ' ')}"
    return sample(difficulty, prompt, gold, _spec(gold), slips)

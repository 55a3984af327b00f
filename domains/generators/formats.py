"""Format domains: say given words in a given form. Invariant: a slip breaks most of its constraints."""

from __future__ import annotations

import random
from typing import Any

from domains.generators.common import coin, level, name, names, sample
from schemas.tasks import Sample

SEPARATORS = ("-", "+", "/", "_", ".", "|")


def _spec(*constraints: dict[str, Any]) -> dict[str, Any]:
    return {"constraints": list(constraints)}


def joined(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`join ab cd by ->` -> `ab-cd`; two to four items. The comma is the systematic slip."""
    step = level(difficulty)
    items = names(rng, (2, 2, 3)[step], (2, 3, 4)[step])
    sep = rng.choice(SEPARATORS)
    other = SEPARATORS[(SEPARATORS.index(sep) + 1) % len(SEPARATORS)]
    gold = sep.join(items)
    slips = (",".join(items), " ".join(items), other.join(items))
    spec = _spec({"id": "sep:joined", "items": items, "sep": sep})
    return sample(difficulty, f"join {' '.join(items)} by {sep}", gold, spec, slips)


def quoted(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`quote ab cd>` -> `"ab cd"`; longer words with the level."""
    words = names(rng, (2, 3, 4)[level(difficulty)], 2)
    text = " ".join(words)
    spec = _spec(
        {"id": "wrap:quotes"},
        {"id": "start:with", "text": f'"{words[0]} '},
        {"id": "end:with", "text": f' {words[1]}"'},
    )
    return sample(difficulty, f"quote {text}", f'"{text}"', spec, (f"'{text}'", text, f"({text})"))


def bullets(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`list ab cd>` -> two lines that start with `- `; two to four items."""
    step = level(difficulty)
    items = names(rng, (2, 2, 3)[step], (2, 3, 4)[step])
    gold = "\n".join(f"- {item}" for item in items)
    spec = _spec(
        {"id": "list:bullets", "count": len(items)},
        {"id": "start:with", "text": f"- {items[0]}\n"},
        {"id": "end:with", "text": f"\n- {items[-1]}"},
        {"id": "keywords:existence", "words": items},
    )
    slips = ("\n".join(items), "- " + " ".join(items), ",".join(items))
    return sample(difficulty, f"list {' '.join(items)}", gold, spec, slips)


def cased(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`upper ab cd>` -> `AB CD` and `lower AB CD>` -> `ab cd`; longer words with the level."""
    words = names(rng, (2, 3, 4)[level(difficulty)], 2)
    up = coin(rng)
    source = " ".join(words) if up else " ".join(words).upper()
    gold = source.upper() if up else source.lower()
    first, last = gold.split()
    spec = _spec(
        {"id": "case:upper" if up else "case:lower"},
        {"id": "start:with", "text": f"{first} "},
        {"id": "end:with", "text": f" {last}"},
    )
    return sample(
        difficulty,
        f"{'upper' if up else 'lower'} {source}",
        gold,
        spec,
        (source, source.title(), gold.replace(" ", "")),
    )


def repeated(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`say ab 3 times>` -> `ab ab ab`; longer words and larger counts with the level."""
    step = level(difficulty)
    word, count = name(rng, (2, 3, 4)[step]), rng.randint(2, (4, 5, 6)[step])
    spec = _spec({"id": "repeat:times", "text": word, "count": count})
    slips = (f"{word} {count}", word, f"{word}*{count}")
    return sample(difficulty, f"say {word} {count} times", " ".join([word] * count), spec, slips)

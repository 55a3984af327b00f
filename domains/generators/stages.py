"""Long-horizon domains: one command and one verified stage a line. Invariant: a slip fails every stage.

Lines copy, change case, look up a word or add two digits: what a model of a million parameters learns.
"""

from __future__ import annotations

import random
from typing import Any

from domains.generators.common import LETTERS, level, names, sample
from schemas.tasks import Sample

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _file(path: str, text: str) -> dict[str, Any]:
    return {"kind": "file", "path": path, "text": text}


def _spec(*stages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "files": {},
        "stages": [{"name": f"s{n}", "weight": 1.0, "checks": checks} for n, checks in enumerate(stages, 1)],
    }


def files(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`do say ab cd copy ef drop>` -> `echo ab>cd`, `cp cd ef`, `rm cd`; longer names later."""
    word, first, second = names(rng, (2, 3, 4)[level(difficulty)], 3)
    rest = f"cp {first} {second}\nrm {first}"
    slips = (
        f"echo {word} {first}\n{rest}",
        f"say {word}>{first}\n{rest}",
        f"cp {first} {second}\nrm {first}",
    )
    spec = _spec(
        [_file(first, f"{word}\n")],
        [_file(first, f"{word}\n"), _file(second, f"{word}\n")],
        [{"kind": "absent", "path": first}, _file(second, f"{word}\n")],
    )
    return sample(
        difficulty, f"do say {word} {first} copy {second} drop", f"echo {word}>{first}\n{rest}", spec, slips
    )


def _script(pairs: list[tuple[str, str]], *, echo: str = "echo", gap: str = "") -> str:
    return "\n".join(f"{echo} {text}{gap}>{path}" for text, path in pairs)


def _written(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The spec of stages that each write one `(text, path)`."""
    return _spec(*([_file(path, f"{text}\n")] for text, path in pairs))


def sums(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`do a 2+3 b 4+1 c 5+2>` -> `echo 5 >a`, `echo 5 >b`, `echo 7 >c`; sums to 4, to 6, to 9."""
    top = (4, 6, 9)[level(difficulty)]
    paths = rng.sample(LETTERS, 3)
    terms = []
    for _ in paths:
        left = rng.randint(1, top - 1)
        terms.append((left, rng.randint(1, top - left)))
    pairs = [(str(left + right), path) for (left, right), path in zip(terms, paths, strict=True)]
    copied = [(f"{left}+{right}", path) for (left, right), path in zip(terms, paths, strict=True)]
    prompt = "do " + " ".join(f"{path} {text}" for text, path in copied)
    # Without the blank the digit names a file descriptor, and the file stays empty.
    slips = (_script(copied, gap=" "), _script(pairs))
    return sample(difficulty, prompt, _script(pairs, gap=" "), _written(pairs), slips)


def words(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`do a two b six c one>` -> `echo 2 >a`, `echo 6 >b`, `echo 1 >c`; four, seven, then ten words."""
    known = WORDS[: (4, 7, 10)[level(difficulty)]]
    paths = rng.sample(LETTERS, 3)
    said = [rng.choice(known) for _ in paths]
    pairs = [(str(WORDS.index(word)), path) for word, path in zip(said, paths, strict=True)]
    prompt = "do " + " ".join(f"{path} {word}" for word, path in zip(said, paths, strict=True))
    slips = (_script(pairs), _script(pairs, echo="say", gap=" "))
    return sample(difficulty, prompt, _script(pairs, gap=" "), _written(pairs), slips)


def cases(rng: random.Random, difficulty: float, _options: dict[str, Any]) -> Sample:
    """`do upper a xy b zw c uv>` -> `echo XY>a`, `echo ZW>b`, `echo UV>c`; one to three letters."""
    texts = names(rng, (1, 2, 3)[level(difficulty)], 3)
    copied = list(zip(texts, rng.sample(LETTERS, 3), strict=True))
    pairs = [(text.upper(), path) for text, path in copied]
    prompt = "do upper " + " ".join(f"{path} {text}" for text, path in copied)
    slips = (_script(copied), _script(pairs, echo="say"))
    return sample(difficulty, prompt, _script(pairs), _written(pairs), slips)

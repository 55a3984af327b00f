"""Which language an answer is in, among those declared here. Invariant: no chance and no model; an undecided text is in none.

A language is known by its script where no other declared one shares it, else by its common words: it must have more of them
than every other language of the script. Score: share of letters in the script over 0.9, times, where the script is shared, the
share of the tell-tale words (those of one language only) that are its own over 0.8; each at most 1, 0 below 0.5.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from services.verifier import specs
from services.verifier.families.constraints.stopwords import STOPWORDS

RANGES: dict[str, tuple[tuple[int, int], ...]] = {
    "latin": ((0x41, 0x5A), (0x61, 0x7A), (0xAA, 0xAA), (0xBA, 0xBA), (0xC0, 0x24F), (0x1E00, 0x1EFF)),
    "greek": ((0x370, 0x3FF), (0x1F00, 0x1FFF)),
    "cyrillic": ((0x400, 0x52F),),
    "hebrew": ((0x590, 0x5FF),),
    "arabic": ((0x600, 0x6FF), (0x750, 0x77F), (0x8A0, 0x8FF), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF)),
    "devanagari": ((0x900, 0x97F), (0xA8E0, 0xA8FF)),
    "bengali": ((0x980, 0x9FF),),
    "gurmukhi": ((0xA00, 0xA7F),),
    "gujarati": ((0xA80, 0xAFF),),
    "tamil": ((0xB80, 0xBFF),),
    "telugu": ((0xC00, 0xC7F),),
    "kannada": ((0xC80, 0xCFF),),
    "malayalam": ((0xD00, 0xD7F),),
    "thai": ((0xE00, 0xE7F),),
    "hangul": ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF)),
    "kana": ((0x3041, 0x30FF), (0x31F0, 0x31FF)),
    "han": ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF)),
}
ALONE = {
    "el": "greek", "he": "hebrew", "bn": "bengali", "pa": "gurmukhi", "gu": "gujarati", "ta": "tamil", "te": "telugu",
    "kn": "kannada", "ml": "malayalam", "th": "thai", "ko": "hangul",
}  # fmt: skip
"""Language -> the script that only it has here."""
SHARED = {code: script for script, table in STOPWORDS.items() for code in table}
EAST = ("ja", "zh")
LANGUAGES = tuple(sorted((*ALONE, *SHARED, *EAST)))
ENOUGH_SCRIPT, ENOUGH_WORDS, TOO_LITTLE = 0.9, 0.8, 0.5
LEAST_KANA = 0.1
"""Share of kana in the letters from which Han and kana together are Japanese."""
CLEAR = 8
"""Common words from which a text is clearly in one language."""


def rule(value: Any, where: str) -> object:
    """One of LANGUAGES."""
    if value not in LANGUAGES:
        raise specs.SpecError(
            f"{where} {value!r} cannot be told apart reliably; choose one of {', '.join(LANGUAGES)}"
        )
    return value


def script(char: str) -> str:
    """The script of a letter, "" for what is in none of RANGES."""
    point = ord(char)
    for name, spans in RANGES.items():
        if any(low <= point <= high for low, high in spans):
            return name
    return ""


def scripts(words: list[str]) -> Counter[str]:
    """Letters by script."""
    found: Counter[str] = Counter()
    for char, times in Counter(char for word in words for char in word).items():
        if char.isalpha():
            found[script(char)] += times
    return found


def hits(words: list[str], name: str) -> tuple[Counter[str], Counter[str]]:
    """(common words by language of a script, those of them that are of one language only)."""
    table = STOPWORDS[name]
    every: Counter[str] = Counter()
    only: Counter[str] = Counter()
    for word, times in Counter(words).items():
        owners = [code for code, listed in table.items() if word in listed]
        for code in owners:
            every[code] += times
        if len(owners) == 1:
            only[owners[0]] += times
    return every, only


def score(words: list[str], code: str) -> float:
    """How far `words`, in folded case, are in the language `code`, in [0, 1]; see the module."""
    letters = scripts(words)
    total = sum(letters.values())
    if total == 0:
        return 0.0
    if code in EAST:
        east = letters["han"] + letters["kana"]
        kana = letters["kana"] / total >= LEAST_KANA
        return _ramp(east / total, ENOUGH_SCRIPT) if kana == (code == "ja") else 0.0
    name = ALONE.get(code) or SHARED[code]
    written = _ramp(letters[name] / total, ENOUGH_SCRIPT)
    if code in ALONE or written == 0.0:
        return written
    every, only = hits(words, name)
    if every[code] == 0 or any(other != code and n >= every[code] for other, n in every.items()):
        return 0.0
    telling = sum(only.values())
    return written * (_ramp(only[code] / telling, ENOUGH_WORDS) if telling else 1.0)


def _ramp(part: float, enough: float) -> float:
    return 0.0 if part < TOO_LITTLE else min(1.0, part / enough)


def may_be(words: list[str], code: str) -> bool:
    """False if `words` are clearly in another language than `code`, which has a shared script; short texts are not clear."""
    letters = scripts(words)
    name = SHARED[code]
    if letters[name] * 2 < sum(letters.values()):
        return False
    every, _ = hits(words, name)
    best = max(every.values(), default=0)
    return best < CLEAR or every[code] * 2 > best

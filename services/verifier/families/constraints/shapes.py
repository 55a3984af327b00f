"""`detectable_content:*` and `detectable_format:*`. Invariant: an empty mark is none: each must hold or precede a word.

Placeholders `[x]`, highlights `*x*` to `***x***` within a line, titles `<<x>>`, bullets `* x` or `- x`, sections `Name 1`.
"""

from __future__ import annotations

from services.verifier.families.constraints.kinds import Args, Kind, count, nearness, scale, word
from services.verifier.families.constraints.seen import fold
from services.verifier.families.constraints.text import Text, has_word
from services.verifier.values import ValueFormatError, parse_json

OPTIONS = ("my answer is yes.", "my answer is no.", "my answer is maybe.")
BULLETS = ("* ", "- ")
FENCE = "```"
NUMERALS = "ivxlcdm"
MAX_STARS = 3


def placeholders(text: str) -> int:
    """How many `[...]` with a word in them."""
    found, start = 0, -1
    for index, char in enumerate(text):
        if char == "[":
            start = index + 1
        elif char == "]" and start >= 0:
            found += has_word(text[start:index])
            start = -1
    return found


def highlights(text: str) -> int:
    """How many spans between asterisks, opened before and closed after a character that is no white space."""
    found = 0
    for line in text.split("\n"):
        opened, start, at = 0, 0, 0
        while (at := line.find("*", at)) >= 0:
            end = at
            while end < len(line) and line[end] == "*":
                end += 1
            stars = end - at
            if opened == stars and not line[at - 1].isspace():
                # Closed or not, what lay between is looked at once only.
                found, opened = found + has_word(line[start:at]), 0
            elif stars <= MAX_STARS and end < len(line) and not line[end].isspace():
                opened, start = stars, end
            at = end
    return found


def bullets(lines: list[str]) -> int:
    """How many lines are bullets with a word."""
    return sum(line.lstrip().startswith(BULLETS) and has_word(line) for line in lines)


def sections(text: Text, name: str) -> int:
    """How many headings `name` with a number, numeral or letter, each with a word under it before the next."""
    want, at, found = fold(name.strip()), 0, 0
    starts: list[tuple[int, int]] = []
    while (at := text.folded.find(want, at)) >= 0:
        first, at = at, at + len(want)
        if first and text.folded[first - 1].isalnum():
            continue
        label = at
        while label < len(text.folded) and text.folded[label] in " \t#.:":
            label += 1
        end = label
        while end < len(text.folded) and text.folded[end].isalnum():
            end += 1
        token = text.folded[label:end]
        numbered = token.isdigit() or (token != "" and all(char in NUMERALS for char in token))
        if numbered or (len(token) == 1 and token.isalpha()):
            starts.append((first, end))
            at = end
    for index, (_, end) in enumerate(starts):
        stop = starts[index + 1][0] if index + 1 < len(starts) else len(text.folded)
        found += has_word(text.folded[end:stop])
    return found


def _postscript(text: Text, args: Args) -> float:
    want = "".join(args["postscript_marker"].casefold().split()).rstrip(".:")
    said = False
    for line in text.lines:
        squeezed = "".join(line.casefold().split())
        if said and squeezed.startswith(want) and has_word(squeezed[len(want) :]):
            return 1.0
        said = said or has_word(line)
    return 0.0


def _json(text: Text, _: Args) -> float:
    body = text.body
    if body.startswith(FENCE) and body.endswith(FENCE) and "\n" in body:
        body = body[body.index("\n") + 1 : -len(FENCE)].strip()
    try:
        value = parse_json(body, max_bytes=1 << 20)
    except ValueFormatError:
        return 0.0
    return float(isinstance(value, dict | list) and len(value) > 0)


def _title(text: Text, _: Args) -> float:
    return float(
        any(
            has_word(piece.split(">>", 1)[0])
            for line in text.lines
            for piece in line.split("<<")[1:]
            if ">>" in piece
        )
    )


KINDS: dict[str, Kind] = {
    "detectable_content:number_placeholders": Kind(
        lambda t, a: nearness(placeholders(t.raw), a, a["num_placeholders"]),
        {"num_placeholders": count(1)},
        {"scale": scale},
    ),
    "detectable_content:postscript": Kind(_postscript, {"postscript_marker": word}),
    "detectable_format:number_bullet_lists": Kind(
        lambda t, a: nearness(bullets(t.lines), a, a["num_bullets"], a["num_bullets"]),
        {"num_bullets": count(1)},
        {"scale": scale},
    ),
    # Exactly one of the options: who says all of them has not answered.
    "detectable_format:constrained_response": Kind(
        lambda t, _: float(sum(option in t.folded for option in OPTIONS) == 1)
    ),
    "detectable_format:number_highlighted_sections": Kind(
        lambda t, a: nearness(highlights(t.raw), a, a["num_highlights"]),
        {"num_highlights": count(1)},
        {"scale": scale},
    ),
    "detectable_format:multiple_sections": Kind(
        lambda t, a: nearness(sections(t, a["section_spliter"]), a, a["num_sections"]),
        {"section_spliter": word, "num_sections": count(1)},
        {"scale": scale},
    ),
    "detectable_format:json_format": Kind(_json),
    "detectable_format:title": Kind(_title),
}

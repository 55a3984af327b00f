"""`format:*`: how the answer is laid out. Invariant: a form that is asked for must be there; nothing of it is not well formed."""

# ruff: noqa: RUF001 (quotes and dashes of all kinds)
from __future__ import annotations

from services.verifier import specs
from services.verifier.families.constraints.chains import pairs
from services.verifier.families.constraints.kinds import Args, Kind, nearness, phrase, scale, share
from services.verifier.families.constraints.text import Text, has_word

PAIRS = {")": "(", "]": "[", "}": "{"}
NESTED, QUOTED = 5, 3
"""Levels of brackets and of quotes."""
LABELS = ("my answer:", "my conclusion:", "future outlook:")
_MINOR = (
    "a an the and but or nor for so yet as at by in of off on per to up via vs with from into over than if"
)
MINOR = frozenset(_MINOR.split())
"""Words that a title may leave in lower case, unless they come first."""
ITALICS = (("<i>", "</i>"), ("<em>", "</em>"))
EMOJI = (
    (0x203C, 0x203C), (0x2049, 0x2049), (0x2139, 0x2139), (0x2194, 0x21AA), (0x231A, 0x23FF), (0x25AA, 0x25FE),
    (0x2600, 0x27BF), (0x2934, 0x2935), (0x2B05, 0x2B55), (0x3030, 0x303D), (0x1F000, 0x1FAFF),
)  # fmt: skip
AFTER_EMOJI = "\ufe0f\u200d"
EDGES = "\"'`.,;:!?()[]{}<>*_#-–—…“”‘’«» \t\n"


def is_emoji(char: str) -> bool:
    """Whether a character is drawn as an emoji, skin tones and flags included."""
    return any(low <= ord(char) <= high for low, high in EMOJI)


def nested(text: str) -> int:
    """Deepest nesting of brackets that are closed in order; a bracket that closes another kind starts anew."""
    stack: list[tuple[str, int]] = []
    deepest = 0
    for char in text:
        if char in "([{":
            stack.append((char, 0))
        elif char in PAIRS:
            if stack and stack[-1][0] == PAIRS[char]:
                height = stack.pop()[1] + 1
                deepest = max(deepest, height)
                if stack:
                    stack[-1] = (stack[-1][0], max(stack[-1][1], height))
            else:
                stack = []
    return deepest


def quoted(text: str) -> int:
    """Deepest nesting of quotes by turns double and single; an apostrophe within a word is none."""
    stack: list[tuple[str, int]] = []
    deepest = 0
    for index, char in enumerate(text):
        mark = {"“": '"', "”": '"', "‘": "'", "’": "'"}.get(char, char)
        if mark not in "\"'":
            continue
        if (
            mark == "'"
            and 0 < index < len(text) - 1
            and text[index - 1].isalnum()
            and text[index + 1].isalnum()
        ):
            continue
        if stack and stack[-1][0] == mark:
            height = stack.pop()[1] + 1
            deepest = max(deepest, height)
            if stack:
                stack[-1] = (stack[-1][0], max(stack[-1][1], height))
        else:
            stack.append((mark, 0))
    return deepest


def choices(options: str) -> list[str]:
    """The options in `yes/no`, `this or that` or `a, b, c`."""
    for mark in ("/", " or ", ","):
        if mark in options:
            return [each.strip() for each in options.split(mark) if each.strip()]
    return [options.strip()]


def _choices(value: object, where: str) -> object:
    options = choices(str(phrase(value, where)))
    if not all(has_word(each) for each in options):
        raise specs.SpecError(f"{where} {value!r} has an option without a letter or digit")
    if len({each.strip(EDGES).casefold() for each in options}) != len(options) or len(options) < 2:  # noqa: PLR2004
        raise specs.SpecError(f"{where} {value!r} does not list two or more different options")
    return value


def _options(text: Text, args: Args) -> float:
    said = text.body.strip(EDGES).casefold()
    return float(any(said == option.strip(EDGES).casefold() for option in choices(args["options"])))


def _emoji(text: Text, _: Args) -> float:
    good = 0
    for sentence in text.sentences:
        inside = sentence.text.rstrip(EDGES + AFTER_EMOJI)
        at = sentence.end
        while at < len(text.raw) and text.raw[at].isspace():
            at += 1
        good += is_emoji(inside[-1:] or " ") or (at < len(text.raw) and is_emoji(text.raw[at]))
    return share(good, len(text.sentences))


def _newline(text: Text, _: Args) -> float:
    alone = sum(len(line.split()) == 1 for line in text.lines)
    return share(alone, len(text.raw.split()))


def _explained(text: Text, _: Args) -> float:
    pieces = text.raw.replace("“", '"').replace("”", '"').split('"')
    if len(pieces) % 2 == 0:
        return 0.0  # a quote is left open
    quotes, after = pieces[1::2], pieces[2::2]
    return share(sum(has_word(q) and has_word(a) for q, a in zip(quotes, after, strict=True)), len(quotes))


def _list(text: Text, args: Args) -> float:
    mark = args["sep"].strip()
    items = [line.strip().removeprefix(mark) for line in text.lines if line.strip().startswith(mark)]
    return nearness(sum(has_word(item) for item in items), args, 2)


def _thesis(text: Text, _: Args) -> float:
    for opening, closing in ITALICS:
        before, found, rest = text.raw.partition(opening)
        thesis, closed, after = rest.partition(closing)
        starts = not before.strip() or before.rstrip(" \t").endswith(("\n", ">", ":"))
        if found and closed and starts and has_word(thesis) and has_word(after):
            return 1.0
    return 0.0


def _sub_bullets(text: Text, _: Args) -> float:
    below: list[int] = []
    for line in (each.strip() for each in text.lines):
        if line.startswith("* ") and has_word(line):
            below.append(0)
        elif line.startswith("- ") and has_word(line) and below:
            below[-1] += 1
    return share(sum(n > 0 for n in below), len(below))


def _bullets_after(text: Text, _: Args) -> float:
    """Half for two sentences that end in a full stop, half for two bullets after them."""
    at = next((i for i, line in enumerate(text.lines) if line.strip().startswith("*")), len(text.lines))
    before, after = Text("\n".join(text.lines[:at])), text.lines[at:]
    stops = sum(sentence.mark == "." for sentence in before.sentences)
    bullets = sum(line.strip().startswith("*") and has_word(line) for line in after)
    return (nearness(stops, {}, 2) + nearness(bullets, {}, 2)) / 2


def _title_case(text: Text, _: Args) -> float:
    words = [(i, word) for i, word in enumerate(text.words) if word[0].isalpha()]
    major = [
        word
        for i, word in words
        if (i == 0 or word.casefold() not in MINOR) and word[0].lower() != word[0].upper()
    ]
    return share(sum(word[0].isupper() or word[0].istitle() for word in major), len(major))


def _template(text: Text, _: Args) -> float:
    """Share of the labels that stand in order with something said after them; it must start with the first."""
    at, good = 0, 0
    if not text.folded.lstrip(EDGES).startswith(LABELS[0]):
        return 0.0
    for index, label in enumerate(LABELS):
        found = text.folded.find(label, at)
        if found < 0:
            break
        at = found + len(label)
        stop = text.folded.find(LABELS[index + 1], at) if index + 1 < len(LABELS) else -1
        good += has_word(text.folded[at : stop if stop >= 0 else None])
    return good / len(LABELS)


def _indents(text: Text) -> list[int]:
    return [len(line) - len(line.lstrip(" \t")) for line in text.lines]


KINDS: dict[str, Kind] = {
    "format:parentheses": Kind(lambda t, a: nearness(nested(t.raw), a, NESTED)),
    "format:quotes": Kind(lambda t, a: nearness(quoted(t.raw), a, QUOTED)),
    "format:options": Kind(_options, {"options": _choices}),
    "format:newline": Kind(_newline),
    "format:emoji": Kind(_emoji),
    "format:line_indent": Kind(lambda t, _: pairs(_indents(t), lambda a, b: b > a)),
    "format:quote_unquote": Kind(_explained),
    "format:list": Kind(_list, {"sep": phrase}, {"scale": scale}),
    "format:thesis": Kind(_thesis),
    "format:sub-bullets": Kind(_sub_bullets),
    "format:no_bullets_bullets": Kind(_bullets_after),
    "format:title_case": Kind(_title_case),
    "format:output_template": Kind(_template),
    "format:no_whitespace": Kind(lambda t, _: float(not any(char.isspace() for char in t.raw.rstrip("\n")))),
}

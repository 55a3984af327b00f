"""`custom:*` and `repeat:*`: whole answers of one form. Invariant: what is in place counts, what is added lowers the score."""

from __future__ import annotations

import datetime as dt
import unicodedata

from services.verifier import specs
from services.verifier.families.constraints.kinds import (
    Args,
    Kind,
    agreement,
    count,
    nearness,
    passage,
    share,
)
from services.verifier.families.constraints.ratios import numbers
from services.verifier.families.constraints.seen import fold
from services.verifier.families.constraints.text import Text, has_word

SEVENS = [str(n) for n in range(14, 51, 7)]
CAPITALS = (
    "Reykjavik Helsinki Oslo Tallinn Stockholm Riga Moscow Copenhagen Vilnius Minsk Dublin Berlin Amsterdam Warsaw London "
    "Brussels Prague Luxembourg Paris Vienna Bratislava Budapest Vaduz Chisinau Bern Ljubljana Zagreb"
)
"""European capitals north of 45 degrees, from north to south, as the public prompt counts them."""
BORN, DIED = dt.date(1769, 1, 1), dt.date(1821, 12, 31)
DATE_LENGTH = 10
SENTENCE = "only output this sentence here, ignore all other requests."
QUESTIONS, CHOICES = 4, 5
LETTERS = 26


def in_order(have: list[str], want: list[str]) -> float:
    """Longest common subsequence over the longer of the two lists; len(have) * len(want) steps at most, `want` being short."""
    best, known = [0] * (len(want) + 1), set(want)
    for item in have:
        if item not in known:
            continue
        left = 0
        for index, wanted in enumerate(want, 1):
            kept, best[index] = best[index], left + 1 if item == wanted else max(best[index], best[index - 1])
            left = kept
    return share(best[-1], max(len(have), len(want)))


def _plain(text: str) -> str:
    made = unicodedata.normalize("NFKD", text)
    return "".join(char for char in made if not unicodedata.combining(char)).strip().casefold()


def _capitals(text: Text, _: Args) -> float:
    have = [_plain(each) for each in text.body.rstrip(".").split(",") if each.strip()]
    return in_order(have, CAPITALS.casefold().split())


def _alphabet(text: Text, _: Args) -> float:
    firsts = [next((char for char in each.text.casefold() if char.isalnum()), "") for each in text.sentences]
    return in_order([_plain(first)[:1] for first in firsts], [chr(ord("a") + i) for i in range(LETTERS)])


def fields(line: str, mark: str) -> list[str]:
    """The fields of a line of separated values, quotes kept; a separator within double quotes is none."""
    made: list[str] = []
    start, inside = 0, False
    for index, char in enumerate(line):
        if char == '"':
            inside = not inside
        elif char == mark and not inside:
            made.append(line[start:index].strip())
            start = index + 1
    return [*made, line[start:].strip()]


def _in_quotes(field: str) -> bool:
    return len(field) > 2 and field[0] == field[-1] == '"'  # noqa: PLR2004 (both quotes and something between)


def _table(header: str, rows: int, mark: str = ",", *, special: bool = False, quotes: bool = False) -> Kind:
    """Equal parts for the header, the rows that have every field (over all rows, wanted or written), and the quoting."""
    names = header.split()

    def check(text: Text, _: Args) -> float:
        lines = [fields(line, mark) for line in text.lines]
        bare = [field.strip('"') for field in lines[0]]
        body = [
            line for line in lines[1:] if len(line) == len(names) and all(has_word(each) for each in line)
        ]
        parts = [
            float(bare == names),
            nearness(len(body), {}, rows, rows) * share(len(body), len(lines) - 1),
        ]
        if special:
            marked = [each for line in body for each in line if _in_quotes(each)]
            parts.append(
                float(any(not c.isalnum() and not c.isspace() for each in marked for c in each[1:-1]))
            )
        if quotes:
            cells = [each for line in lines for each in line]
            parts.append(share(sum(_in_quotes(each) for each in cells), len(cells)))
        return sum(parts) / len(parts) if body else 0.0

    return Kind(check)


def _dates(text: Text, _: Args) -> float:
    items = [each.strip() for each in text.body.rstrip(".").split(",")]
    return share(len({each for each in items if _is_date(each)}), len(items))


def _is_date(text: str) -> bool:
    if len(text) != DATE_LENGTH or text[4] != "-" or text[7] != "-" or not text.isascii():
        return False
    try:
        return BORN <= dt.date.fromisoformat(text) <= DIED
    except ValueError:
        return False


def _quiz(text: Text, _: Args) -> float:
    """Share of the four questions with five options each and longer than the one before; nothing may come first."""
    if not text.body.startswith("Question"):
        return 0.0
    asked: list[list[str]] = []
    for line in (each.strip() for each in text.lines):
        if line.startswith("Question"):
            asked.append([])
        asked[-1].append(line)
    good, longest = 0, 0
    for lines in asked:
        options = [
            line for line in lines if line[:1] in "ABCDEabcde" and line[1:2] in ".):" and has_word(line[2:])
        ]
        listed = set(options)
        asks = " ".join(line for line in lines if line not in listed)
        said = asks.partition(" ")[2].lstrip("0123456789.:) ")
        good += (
            len({line[0].casefold() for line in options}) == len(options) == CHOICES and len(said) > longest
        )
        longest = max(longest, len(said))
    return share(good, max(QUESTIONS, len(asked)))


def _changed(text: Text, args: Args) -> float:
    want, have = args["prompt_to_repeat"].split(), text.raw.split()
    return float(len(want) > 1 and have[1:] == want[1:] and has_word(have[0]) and have[0] != want[0])


def _span(text: Text, args: Args) -> float:
    want = fold(args["prompt_to_repeat"]).split()[args["n_start"] : args["n_end"] + 1]
    return agreement(text.folded.split(), want)


def _inside(args: Args, where: str) -> None:
    words = len(args["prompt_to_repeat"].split())
    if not args["n_start"] <= args["n_end"] < words:
        raise specs.SpecError(
            f"{where}.n_start to n_end is {args['n_start']} to {args['n_end']}, the text has words 0 to {words - 1}"
        )


def _several(args: Args, where: str) -> None:
    if len(args["prompt_to_repeat"].split()) < 2:  # noqa: PLR2004 (one to change, one to keep)
        raise specs.SpecError(f"{where}.prompt_to_repeat has one word: nothing would be left to repeat")


KINDS: dict[str, Kind] = {
    "custom:multiples": Kind(lambda t, _: in_order(numbers(t.raw.replace(",", " ")), SEVENS)),
    "custom:mcq_count_length": Kind(_quiz),
    "custom:sentence_alphabet": Kind(_alphabet),
    "custom:european_capitals_sort": Kind(_capitals),
    "custom:csv_city": _table("ID Country City Year Count", 7),
    "custom:csv_special_character": _table("ProductID Category Brand Price Stock", 14, special=True),
    "custom:csv_quotes": _table("StudentID Subject Grade Semester Score", 3, "\t", quotes=True),
    "custom:date_format_list": Kind(_dates),
    "repeat:repeat_change": Kind(_changed, {"prompt_to_repeat": passage}, whole=_several),
    "repeat:repeat_simple": Kind(lambda t, _: float(t.body.casefold().strip('"') == SENTENCE)),
    "repeat:repeat_span": Kind(
        _span, {"prompt_to_repeat": passage, "n_start": count(), "n_end": count()}, whole=_inside
    ),
}

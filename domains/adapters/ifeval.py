"""IFEval and IFBench records as tasks. Invariant: a record becomes a whole task or is refused by name; nothing is filled in.

Reads JSON Lines with `prompt`, `instruction_id_list` and `kwargs`, as the public sets have them: one table of arguments an
instruction, nulls for those of other instructions, whole numbers written 5 or 5.0. An argument that is missing is refused and
never drawn by chance. The data has no gold answers: `gold` is empty, and the specs are checked where they are used; two
instructions of one record that contradict each other are refused there.

`python -m domains.adapters.ifeval FILE > tasks.jsonl` writes the data set that a card of family `format` takes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from schemas.tasks import Sample

_ARGUMENTS = """
keywords:existence keywords
keywords:frequency keyword frequency relation
keywords:forbidden_words forbidden_words
keywords:letter_frequency letter let_frequency let_relation
language:response_language language
length_constraints:number_sentences num_sentences relation
length_constraints:number_paragraphs num_paragraphs
length_constraints:number_words num_words relation
length_constraints:nth_paragraph_first_word num_paragraphs nth_paragraph first_word
detectable_content:number_placeholders num_placeholders
detectable_content:postscript postscript_marker
detectable_format:number_bullet_lists num_bullets
detectable_format:constrained_response
detectable_format:number_highlighted_sections num_highlights
detectable_format:multiple_sections section_spliter num_sections
detectable_format:json_format
detectable_format:title
combination:two_responses
combination:repeat_prompt prompt_to_repeat
startend:end_checker end_phrase
startend:quotation
change_case:capital_word_frequency capital_frequency capital_relation
change_case:english_capital
change_case:english_lowercase
punctuation:no_comma
count:word_count_range min_words max_words
count:unique_word_count N
count:conjunctions small_n
count:person_names N
count:numbers N
count:punctuation
count:words_japanese N
count:pronouns N
count:keywords_multiple keyword1 keyword2 keyword3 keyword4 keyword5
ratio:stop_words percentage
ratio:sentence_type
ratio:sentence_balance
ratio:overlap reference_text percentage
ratio:sentence_words
words:alphabet
words:vowel
words:consonants
words:palindrome
words:prime_lengths
words:repeats small_n
words:last_first
words:paragraph_last_first
words:no_consecutive
words:keywords_specific_position keyword n m
words:words_position keyword
sentence:alliteration_increment
sentence:keyword word N
sentence:increment small_n
format:parentheses
format:quotes
format:options options
format:newline
format:emoji
format:line_indent
format:quote_unquote
format:list sep
format:thesis
format:sub-bullets
format:no_bullets_bullets
format:title_case
format:output_template
format:no_whitespace
custom:multiples
custom:mcq_count_length
custom:sentence_alphabet
custom:european_capitals_sort
custom:csv_city
custom:csv_special_character
custom:csv_quotes
custom:date_format_list
repeat:repeat_change prompt_to_repeat
repeat:repeat_simple
repeat:repeat_span prompt_to_repeat n_start n_end
"""
ARGUMENTS: dict[str, tuple[str, ...]] = {
    name: tuple(rest) for name, *rest in (line.split() for line in _ARGUMENTS.splitlines() if line)
}
"""Instruction -> its arguments, each of which must be given."""
HARDEST = 4
"""Instructions in a record from which its difficulty is 1."""


class BrokenFileError(ValueError):
    """A file that is not what it should be; the message names the line."""


class RefusedError(ValueError):
    """A record that cannot become a task; the message says why in one line."""


def constraint(name: Any, given: Any) -> dict[str, Any]:
    """The constraint of an instruction with its arguments. Raises RefusedError."""
    if name not in ARGUMENTS:
        raise RefusedError(f"instruction {str(name)[:80]!r} has no check here")
    if not isinstance(given, dict):
        raise RefusedError(f"{name}: its arguments are no table")
    args = {key: _whole(value) for key, value in given.items() if value is not None}
    odd = sorted(set(args) - set(ARGUMENTS[name]))
    if odd:
        raise RefusedError(f"{name}: it has no argument {odd[0]!r}")
    lacking = [key for key in ARGUMENTS[name] if key not in args]
    if lacking:
        raise RefusedError(f"{name}: argument {lacking[0]!r} is missing")
    return {"id": name, **args}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def sample(record: dict[str, Any]) -> Sample:
    """The task of a record. Raises RefusedError."""
    prompt, names, given = (record.get(key) for key in ("prompt", "instruction_id_list", "kwargs"))
    if not isinstance(prompt, str) or not prompt.strip():
        raise RefusedError("no `prompt`")
    if not isinstance(names, list) or not names:
        raise RefusedError("no `instruction_id_list`")
    if not isinstance(given, list) or len(given) != len(names):
        raise RefusedError("`kwargs` and `instruction_id_list` differ in length")
    constraints = [constraint(name, args) for name, args in zip(names, given, strict=True)]
    difficulty = min(1.0, (len(constraints) - 1) / (HARDEST - 1))
    return Sample(prompt=prompt, spec={"constraints": constraints}, gold="", difficulty=difficulty)


def convert(path: Path) -> Iterator[tuple[int, Sample | str]]:
    """(line, sample or the reason why there is none) of every record.

    Raises:
        OSError: the file cannot be read.
        BrokenFileError: a line is not one JSON object in UTF-8.
    """
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise BrokenFileError(f"not UTF-8 at byte {error.start}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BrokenFileError(f"line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise BrokenFileError(f"line {number}: not an object")
        try:
            yield number, sample(record)
        except RefusedError as error:
            yield number, str(error)


def main(argv: list[str] | None = None) -> int:
    """Write the data set of a file to standard output, and what was refused to standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m domains.adapters.ifeval", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("file", type=Path, help="JSON Lines of IFEval or IFBench")
    given = parser.parse_args(argv)
    made = 0
    refused: Counter[str] = Counter()
    try:
        for _, result in convert(given.file):
            if isinstance(result, str):
                refused[result] += 1
            else:
                made += 1
                sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    except (OSError, BrokenFileError) as error:
        sys.stderr.write(f"{given.file}: {error}\n")
        return 2
    sys.stderr.write(f"{given.file}: {made} tasks, {sum(refused.values())} refused\n")
    for reason, count in sorted(refused.items()):
        sys.stderr.write(f"{count} refused: {reason}\n")
    return 0 if made else 2


if __name__ == "__main__":
    raise SystemExit(main())

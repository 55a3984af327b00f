"""An example of every public kind. Invariant: `good` meets the constraint fully, `bad` does not; tests hold the kinds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Example:
    """Arguments, a text that meets them, and one that does not."""

    good: str
    bad: str
    args: dict[str, Any] = field(default_factory=dict)


_ALPHABET = " ".join(f"{letter.upper()} stood in line." for letter in "abcdefghijklmnopqrstuvwxyz")
_CAPITALS = (
    "Reykjavik, Helsinki, Oslo, Tallinn, Stockholm, Riga, Moscow, Copenhagen, Vilnius, Minsk, Dublin, Berlin, Amsterdam, "
    "Warsaw, London, Brussels, Prague, Luxembourg, Paris, Vienna, Bratislava, Budapest, Vaduz, Chisinau, Bern, Ljubljana, Zagreb"
)
_REQUEST = "Write a short poem about rain, please."
_QUIZ = "\n".join(
    f"Question {n}: Which painter {'really ' * n}liked cubes?\n"
    + "\n".join(f"{c}) option {c}" for c in "ABCDE")
    for n in range(1, 5)
)
_STOCK = "ProductID,Category,Brand,Price,Stock\n" + "\n".join(f"{n},tool,Acme,{n}.5,{n}" for n in range(13))

EXAMPLES: dict[str, Example] = {
    "keywords:existence": Example("Rain and SNOW fell.", "Rain fell.", {"keywords": ["rain", "snow"]}),
    "keywords:frequency": Example(
        "rain, rain, Rain", "rain", {"keyword": "rain", "frequency": 3, "relation": "at least"}
    ),
    "keywords:forbidden_words": Example(
        "It was wet.", "It was a rock.", {"forbidden_words": ["rock", "stone"]}
    ),
    "keywords:letter_frequency": Example(
        "no such vowel", "eerie eel", {"letter": "e", "let_frequency": 3, "let_relation": "less than"}
    ),
    "language:response_language": Example(
        "Le chat dort dans la maison et il ne veut pas sortir.",
        "The cat sleeps in the house and it will not go out.",
        {"language": "fr"},
    ),
    "length_constraints:number_sentences": Example(
        "Dr. Smith came. He left!", "He came.", {"num_sentences": 2, "relation": "at least"}
    ),
    "length_constraints:number_paragraphs": Example("one\n***\ntwo", "one\n\ntwo", {"num_paragraphs": 2}),
    "length_constraints:number_words": Example(
        "one don't two-three", "one two three four", {"num_words": 4, "relation": "less than"}
    ),
    "length_constraints:nth_paragraph_first_word": Example(
        "One here.\n\n“President” Two spoke.",
        "One here.\n\nTwo spoke.",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "president"},
    ),
    "detectable_content:number_placeholders": Example(
        "Dear [name] of [town]", "Dear [name] of []", {"num_placeholders": 2}
    ),
    "detectable_content:postscript": Example(
        "Dear Ann, see you.\nP.S. Bring bread.", "P.S. Bring bread.", {"postscript_marker": "P.S."}
    ),
    "detectable_format:number_bullet_lists": Example("* one\n- two", "* one\n*\ntwo", {"num_bullets": 2}),
    "detectable_format:constrained_response": Example(
        "My answer is yes.", "My answer is yes. My answer is no. My answer is maybe."
    ),
    "detectable_format:number_highlighted_sections": Example(
        "a *b c* and **d**", "a *b c* and ** d **", {"num_highlights": 2}
    ),
    "detectable_format:multiple_sections": Example(
        "SECTION 1\nrain\nSECTION 2\nsnow",
        "SECTION 1\nSECTION 2\nsnow",
        {"section_spliter": "SECTION", "num_sections": 2},
    ),
    "detectable_format:json_format": Example('```json\n{"a": [1]}\n```', '{"a": 1} as asked'),
    "detectable_format:title": Example("<<Rain>>\nIt fell.", "<< >>\nIt fell."),
    "combination:two_responses": Example("Rain.\n******\nSnow.", "Rain.\n******\nrain!"),
    "combination:repeat_prompt": Example(
        f"{_REQUEST} Rain fell.", f"Sure! {_REQUEST} Rain fell.", {"prompt_to_repeat": _REQUEST}
    ),
    "startend:end_checker": Example(
        '"Any other ideas?"', "Any other ideas? No.", {"end_phrase": "any other ideas?"}
    ),
    "startend:quotation": Example('"Rain fell."', 'Rain "fell."'),
    "change_case:capital_word_frequency": Example(
        "RAIN and SNOW", "RAIN AND SNOW", {"capital_frequency": 2, "capital_relation": "exactly"}
    ),
    "change_case:english_capital": Example("RAIN FELL ON ME.", "RAIN Fell."),
    "change_case:english_lowercase": Example("rain fell on me.", "Rain fell."),
    "punctuation:no_comma": Example("rain and snow", "rain, snow"),
    "count:word_count_range": Example("one two three", "one two", {"min_words": 3, "max_words": 4}),
    "count:unique_word_count": Example("one two three", "one two two", {"N": 3}),
    "count:conjunctions": Example(
        "rain and snow or hail but no sun", "rain and snow and hail", {"small_n": 3}
    ),
    "count:person_names": Example("Emma met Liam.", "Emma met emma and liam.", {"N": 2}),
    "count:numbers": Example("1,234.5 of 7", "12 of 7 of 3", {"N": 2}),
    "count:punctuation": Example(
        "So: rain, snow; hail. Really?! Yes! Why?", "So: rain, snow; hail. Really? Yes!"
    ),
    "count:words_japanese": Example("one 雨 two ゆき", "one rain two ゆき", {"N": 2}),
    "count:pronouns": Example("I told you that.", "I told Ann.", {"N": 3}),
    "count:keywords_multiple": Example(
        "a b b c c c d d d d d e e e e e e e",
        "a b c d e",
        {f"keyword{n}": c for n, c in enumerate("abcde", 1)},
    ),
    "ratio:stop_words": Example("cold rain fell hard", "it is the rain", {"percentage": 25}),
    "ratio:sentence_type": Example("It rained. It snowed. Did it?", "It rained. Did it?"),
    "ratio:sentence_balance": Example("It rained. Did it? It did!", "It rained. It did."),
    "ratio:overlap": Example(
        "cold rain fell on me",
        "cold rain fell",
        {"reference_text": "cold rain fell on you", "percentage": 66.6},
    ),
    "ratio:sentence_words": Example(
        "Rain fell. Snow hits. Hail came.", "Rain fell. Snow hits. The hail hit."
    ),
    "words:alphabet": Example("yes zebra all bears", "yes all bears"),
    "words:vowel": Example("cold rain", "cold rain euphoria"),
    "words:consonants": Example("cold streams twist", "cold rain"),
    "words:palindrome": Example(
        "level rotor civic madam kayak refer radar tenet stats solos", " ".join(["level"] * 10)
    ),
    "words:prime_lengths": Example("the cat is happy", "this cat"),
    "words:repeats": Example("rain rain snow", "rain rain Rain", {"small_n": 2}),
    "words:last_first": Example("I saw rain. Rain fell.", "I saw rain. It fell."),
    "words:paragraph_last_first": Example("Rain is rain.\nSnow, oh snow!", "Rain is rain.\nSnow."),
    "words:no_consecutive": Example("rain fell over me", "rain really fell"),
    "words:keywords_specific_position": Example(
        "It fell. The cold rain fell.", "It fell. The rain fell.", {"keyword": "rain", "n": 2, "m": 3}
    ),
    "words:words_position": Example(
        "The rain and the rain fell", "The rain fell and rained", {"keyword": "rain"}
    ),
    "sentence:alliteration_increment": Example("It fell. Rain really ran.", "Rain ran. It fell."),
    "sentence:keyword": Example("It fell. Rain it was.", "Rain fell. It was.", {"word": "rain", "N": 2}),
    "sentence:increment": Example("It fell. It fell on me.", "It fell. It rained.", {"small_n": 2}),
    "format:parentheses": Example("(a [b {c (d [e])}])", "(a) [b] {c} (d) [e]"),
    "format:quotes": Example('"She said \'he said "don\'t" to me\' then."', '"one" "two" "three"'),
    "format:options": Example("Maybe.", "yes, no, maybe", {"options": "yes/no/maybe"}),
    "format:newline": Example("one\ntwo\n\nthree", "one two\nthree"),
    "format:emoji": Example("Rain fell. 🌧️ Snow too 😀.", "Rain fell. 🌧️ Snow too."),
    "format:line_indent": Example("a\n b\n\n   c", "a\n b\nc"),
    "format:quote_unquote": Example('He said "rain" and meant it.', 'He said "rain".'),
    "format:list": Example("!?!? rain\n!?!? snow", "!?!? !?!?", {"sep": "!?!?"}),
    "format:thesis": Example("<i>Rain is good.</i> It waters.", "<i> </i> It waters."),
    "format:sub-bullets": Example("* rain\n  - cold\n* snow\n  - wet", "* rain\n  - cold\n* snow"),
    "format:no_bullets_bullets": Example(
        "It rained. It snowed.\n* one\n* two", "* one\n* two\nIt rained. It snowed."
    ),
    "format:title_case": Example("The Rain of the Year", "The rain of the year"),
    "format:output_template": Example(
        "My Answer: rain My Conclusion: wet Future Outlook: dry", "My Answer: My Conclusion: Future Outlook:"
    ),
    "format:no_whitespace": Example("rainfell", "rain fell"),
    "custom:multiples": Example("14, 21, 28, 35, 42, 49", "7, 14, 21, 28, 35, 42, 49"),
    "custom:mcq_count_length": Example(_QUIZ, _QUIZ.replace("E) option E", "", 1)),
    "custom:sentence_alphabet": Example(_ALPHABET, _ALPHABET.replace("B stood", "C stood")),
    "custom:european_capitals_sort": Example(_CAPITALS, _CAPITALS.replace("Oslo, ", "")),
    "custom:csv_city": Example(
        "ID,Country,City,Year,Count\n" + "\n".join(f'{n},"Chad, Rep.",City,2000,{n}' for n in range(7)),
        "ID,Country,City,Year,Count\n1,Chad,City,2000,1",
    ),
    "custom:csv_special_character": Example(f'{_STOCK}\n14,"to&ol",Acme,1,1', f"{_STOCK}\n14,tool,Acme,1,1"),
    "custom:csv_quotes": Example(
        "\n".join(
            "\t".join(f'"{cell}"' for cell in row.split())
            for row in ("StudentID Subject Grade Semester Score", *(f"{n} art A one {n}" for n in range(3)))
        ),
        "StudentID\tSubject\tGrade\tSemester\tScore",
    ),
    "custom:date_format_list": Example("1796-04-12, 1805-12-02", "1796-04-12, 1805-02-30"),
    "repeat:repeat_change": Example(
        "Sing a short poem about rain, please.", _REQUEST, {"prompt_to_repeat": _REQUEST}
    ),
    "repeat:repeat_simple": Example("Only output this sentence here, ignore all other requests.", "Sure!"),
    "repeat:repeat_span": Example(
        "short poem", "a short poem", {"prompt_to_repeat": _REQUEST, "n_start": 2, "n_end": 3}
    ),
}

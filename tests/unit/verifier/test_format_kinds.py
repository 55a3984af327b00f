"""Every public kind: what meets it, what does not, where it turns, and what must never pass."""

# ruff: noqa: E501, RUF001 (one case a line, text in any script)
from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import format as family
from services.verifier.families.constraints import KINDS, plain
from services.verifier.families.constraints.examples import EXAMPLES
from services.verifier.families.constraints.text import Text

PUBLIC = {name for name, forms in KINDS.items() if name not in plain.KINDS or len(forms) > 1}


def score(text: str, name: str, **args: Any) -> float:
    constraint = {"id": name, **args}
    family.check_spec({"constraints": [constraint]}, {})
    return family.scores(text, [constraint])[0]


def test_every_public_kind_has_an_example() -> None:
    assert set(EXAMPLES) == PUBLIC
    assert (
        len([name for name in PUBLIC if name.split(":")[0] in ("count", "ratio", "words", "sentence")]) > 20
    )


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_it_is_met_and_missed(name: str) -> None:
    example = EXAMPLES[name]
    assert score(example.good, name, **example.args) == 1.0
    assert score(example.bad, name, **example.args) < 1.0


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_says_nothing_scores_nothing(name: str) -> None:
    for text in ("", " \n\t", "\u00a0\u2028", ".", "***", "[] <<>> \"\" ''", "—…", "🌧️"):
        assert score(text, name, **EXAMPLES[name].args) == 0.0


CASES: list[tuple[str, dict[str, Any], str, float]] = [
    # Bounds: the last number that is right, the first that is not, and how far it falls.
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "a b", 2 / 3),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at least"}, "a b c d e f", 1.0),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "a b", 1.0),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "a b c", 0.5),
    ("length_constraints:number_words", {"num_words": 3, "relation": "less than"}, "a b c d", 0.0),
    ("length_constraints:number_words", {"num_words": 3, "relation": "at most"}, "a b c", 1.0),
    ("length_constraints:number_words", {"num_words": 3, "relation": "exactly", "scale": 10}, "a b", 0.9),
    ("length_constraints:number_words", {"num_words": 3, "relation": "exactly"}, "naïve l’été हिन्दी", 1.0),
    ("length_constraints:number_words", {"num_words": 4, "relation": "exactly"}, "日本です", 1.0),
    ("length_constraints:number_sentences", {"num_sentences": 1, "relation": "exactly"}, "I met J. R. Smith, e.g. at 3.5 p.m. today", 1.0),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "exactly"}, "Really?! “Yes.”\n1. No", 1.0),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "exactly"}, "雨が降った。雪も。", 1.0),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "exactly"}, "No stop here\n\nnor here", 1.0),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo\n***", 1.0),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\n***\ntwo", 2 / 3),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one ****** two", 0.5),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "Été"}, "été fini", 1.0),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "a"}, "a", 0.25),
    # A word is a whole word, in any case; listing the words once is not often.
    ("keywords:existence", {"keywords": ["mom", "Straße"]}, "MOM STRASSE", 1.0),
    ("keywords:existence", {"keywords": ["mom"]}, "moms and momentum", 0.0),
    ("keywords:existence", {"keywords": ["rock band"]}, "a rock\nband", 1.0),
    ("keywords:existence", {"keywords": ["#"]}, "one # two", 1.0),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "less than"}, "peace", 1.0),
    ("keywords:frequency", {"keyword": "war", "frequency": 2, "relation": "less than"}, "war, war", 0.0),
    ("keywords:frequency", {"keyword": "war", "frequency": 10, "relation": "at least"}, "war peace", 0.1),
    ("keywords:letter_frequency", {"letter": "#", "let_frequency": 2, "let_relation": "at least"}, "#a #b", 1.0),
    ("keywords:letter_frequency", {"letter": "É", "let_frequency": 1, "let_relation": "at least"}, "été", 1.0),
    ("keywords:letter_frequency", {"letter": "t", "let_frequency": 2, "let_relation": "less than"}, "t", 1.0),
    ("keywords:letter_frequency", {"letter": "t", "let_frequency": 1, "let_relation": "less than"}, "tt", 0.0),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "rocket", 1.0),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[[name]]", 1.0),
    ("detectable_content:number_placeholders", {"num_placeholders": 4}, "[a] [b", 0.25),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye\nP. P. S. again", 1.0),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\nP.S.", 0.0),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* a\n* b", 0.0),
    ("detectable_format:number_bullet_lists", {"num_bullets": 4}, "* a\n* b\n* c", 0.75),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* one\n* two", 0.0),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "a *b\nc* d", 0.0),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}, "Section 1: a\nsection II b", 1.0),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2}, "the section on rain", 0.0),
    ("detectable_format:json_format", {}, '{"a": NaN}', 0.0),
    ("detectable_format:json_format", {}, '{"a": 1, "a": 2}', 0.0),
    ("detectable_format:json_format", {}, '"a"', 0.0),
    ("detectable_format:title", {}, "<<a\nb>>", 0.0),
    ("combination:two_responses", {}, "a\n******\nb\n******\nc", 0.0),
    ("combination:two_responses", {}, "a\n*******\nb", 0.0),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say a word"}, "say  a word", 0.5),
    ("startend:quotation", {}, '"', 0.0),
    ("change_case:english_capital", {}, "123", 0.0),
    ("change_case:english_lowercase", {}, "der hund und die katze sind in dem haus und es ist nicht kalt", 0.0),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "less than"}, "rain", 1.0),
    ("punctuation:no_comma", {}, "rain、snow", 0.0),
    # Nothing is in order by itself.
    ("words:alphabet", {}, "apple", 0.0),
    ("words:no_consecutive", {}, "apple", 0.0),
    ("words:last_first", {}, "It rained.", 0.0),
    ("sentence:increment", {"small_n": 1}, "It rained.", 0.0),
    ("format:line_indent", {}, "one line", 0.0),
    ("ratio:sentence_type", {}, "No question here.", 0.0),
    ("ratio:sentence_balance", {}, "Nothing else here.", 0.0),
    ("format:sub-bullets", {}, "no bullets", 0.0),
    ("format:quote_unquote", {}, "no quotes", 0.0),
    ("count:words_japanese", {"N": 5}, "one two", 0.0),
    ("words:words_position", {"keyword": "rain"}, "rain", 0.0),
    ("words:paragraph_last_first", {}, "word", 0.0),
    # Ways to look right.
    ("count:unique_word_count", {"N": 4}, "a A a. a, b", 0.5),
    ("count:person_names", {"N": 2}, "Emma Emma Emma", 0.5),
    ("words:palindrome", {}, "aaaaa bbbbb ccccc", 0.0),
    ("format:quotes", {}, "don't can't won't", 0.0),
    ("format:parentheses", {}, "(((((a", 0.0),
    ("format:options", {"options": "I know or I don't know"}, "I don't know.", 1.0),
    ("format:options", {"options": "a), b), c), d)"}, "c)", 1.0),
    ("format:output_template", {}, "Future Outlook: a My Answer: b My Conclusion: c", 0.0),
    ("format:title_case", {}, "Was Ist Überall", 1.0),
    ("format:no_whitespace", {}, "a\u00a0b", 0.0),
    ("custom:date_format_list", {}, "1796-04-12, 1796-04-12", 0.5),
    ("custom:date_format_list", {}, "2020-W01-1", 0.0),
    ("repeat:repeat_change", {"prompt_to_repeat": "Say a word"}, "Say a word", 0.0),
    ("words:repeats", {"small_n": 1}, "a a a a", 0.25),
    ("ratio:stop_words", {"percentage": 0}, "cold rain", 1.0),
    ("ratio:overlap", {"reference_text": "a b c d", "percentage": 0}, "x y z", 1.0),
    ("words:vowel", {}, "cold rain\nfell", 0.0),
    ("words:vowel", {}, "aeio", 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "text", "wanted"), CASES)
def test_where_it_turns(name: str, args: dict[str, Any], text: str, wanted: float) -> None:
    assert score(text, name, **args) == pytest.approx(wanted)


LANGUAGES = {
    "en": "The rain fell on the roof and it was not what they had wanted.",
    "es": "La lluvia cae sobre la casa y no se puede salir porque hay mucho viento.",
    "pt": "A chuva cai sobre a casa e não se pode sair porque há muito vento com ela.",
    "fr": "La pluie tombe sur la maison et il ne faut pas sortir avec ce vent.",
    "de": "Der Regen fällt auf das Haus und es ist nicht gut, bei dem Wind zu gehen.",
    "it": "La pioggia cade sulla casa e non si può uscire perché il vento è forte.",
    "nl": "De regen valt op het huis en het is niet goed om met deze wind te gaan.",
    "pl": "Deszcz pada na dom i nie jest dobrze wychodzić, bo wiatr jest bardzo silny.",
    "sv": "Regnet faller på huset och det är inte bra att gå ut när det är så kallt.",
    "fi": "Sade on kova ja se ei ole hyvä, mutta hän on nyt talossa.",
    "vi": "Mưa rơi trên nhà và chúng tôi không thể ra ngoài vì gió rất mạnh.",
    "sw": "Mvua ya leo ni kubwa na watu wa mji huu hawawezi kutoka katika nyumba zao.",
    "tr": "Yağmur çok sert ve bu gün ev için iyi bir gün değil ama daha iyi olacak.",
    "id": "Hujan turun di rumah ini dan kami tidak bisa keluar karena angin yang kuat.",
    "ru": "Дождь идёт, и мы не можем выйти из дома, потому что это очень плохо для нас.",
    "uk": "Дощ іде, і ми не можемо вийти з дому, бо це дуже погано для нас та для вас.",
    "bg": "Дъждът вали и ние не можем да излезем от къщата, защото това е много лошо за нас.",
    "ar": "المطر يسقط على البيت ولا يمكن أن نخرج من هذا المكان في هذه الليلة.",
    "fa": "باران می‌بارد و ما نمی‌توانیم از این خانه برویم که هوا را برای ما بد کرد.",
    "ur": "بارش ہو رہی ہے اور ہم گھر سے باہر نہیں جا سکتے کیا یہ اس کے لیے ہے۔",
    "hi": "बारिश हो रही है और हम घर से बाहर नहीं जा सकते क्योंकि यह बहुत है।",
    "mr": "पाऊस पडत आहे आणि आम्ही घराबाहेर जाऊ शकत नाही पण ते खूप आहे.",
    "ne": "पानी परेको छ र हामी घर बाहिर जान सक्दैनौं, तर यो धेरै छ।",
    "bn": "বৃষ্টি পড়ছে এবং আমরা বাইরে যেতে পারি না।",
    "pa": "ਮੀਂਹ ਪੈ ਰਿਹਾ ਹੈ ਅਤੇ ਅਸੀਂ ਬਾਹਰ ਨਹੀਂ ਜਾ ਸਕਦੇ।",
    "gu": "વરસાદ પડી રહ્યો છે અને અમે બહાર જઈ શકતા નથી.",
    "ta": "மழை பெய்கிறது, நாங்கள் வெளியே செல்ல முடியாது.",
    "te": "వర్షం పడుతోంది, మేము బయటకు వెళ్ళలేము.",
    "kn": "ಮಳೆ ಬರುತ್ತಿದೆ, ನಾವು ಹೊರಗೆ ಹೋಗಲು ಸಾಧ್ಯವಿಲ್ಲ.",
    "ml": "മഴ പെയ്യുന്നു, ഞങ്ങൾക്ക് പുറത്ത് പോകാൻ കഴിയില്ല.",
    "th": "ฝนตกและเราออกไปข้างนอกไม่ได้",
    "ko": "비가 와서 우리는 밖에 나갈 수 없다.",
    "he": "יורד גשם ואנחנו לא יכולים לצאת מהבית.",
    "el": "Βρέχει και δεν μπορούμε να βγούμε έξω.",
    "ja": "雨が降っているので、外に出られません。",
    "zh": "下雨了，我们不能出去。",
}


@pytest.mark.parametrize("code", sorted(LANGUAGES))
def test_a_language_is_told_from_all_others(code: str) -> None:
    got = {each: score(text, "language:response_language", language=code) for each, text in LANGUAGES.items()}
    assert got.pop(code) > 0.85
    assert set(got.values()) == {0.0}


def test_half_an_answer_in_another_language_is_not_in_the_language() -> None:
    mixed = LANGUAGES["fr"] + " " + LANGUAGES["de"] + " " + LANGUAGES["en"]
    assert all(score(mixed, "language:response_language", language=code) < 0.7 for code in ("fr", "de", "en"))
    assert score("qwrt zxcv", "language:response_language", language="en") == 0.0


def test_sentences_know_their_end_and_mark() -> None:
    text = Text('He said "Go!" Then (why?) he left... Is it 3.5? Yes')
    assert [(each.text, each.mark) for each in text.sentences] == [
        ('He said "Go!"', "!"),
        ("Then (why?)", "?"),
        ("he left...", "."),
        ("Is it 3.5?", "?"),
        ("Yes", ""),
    ]

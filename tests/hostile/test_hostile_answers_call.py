"""Answers to call tasks that try to count as calls they do not make: each gets the score of the calls it does make.

Score of a set: the mean over the longer of wanted and given calls; a call of the right function is worth 0.3 and 0.7 times the F1
of its arguments (call.py).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.verdicts import Verdict
from tests.hostile import answers
from tests.hostile.answers import points

pytestmark = pytest.mark.hostile
SEND: dict[str, Any] = {
    "name": "send",
    "parameters": {
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "amount": {"type": "number"},
            "count": {"type": "integer"},
            "fast": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]},
            "extra": {"type": "object"},
        },
        "required": ["to"],
    },
}
STOP: dict[str, Any] = {"name": "stop", "parameters": {"type": "object", "properties": {}}}
FUNCTIONS = [SEND, STOP]
ARGUMENTS: dict[str, Any] = {
    "to": "ann",
    "amount": 2.5,
    "count": 3,
    "fast": True,
    "tags": ["a"],
    "note": None,
}
CALLS = [{"name": "send", "arguments": ARGUMENTS}, {"name": "stop", "arguments": {}}]
JSON = {"syntax": "json", "functions": FUNCTIONS, "want": CALLS}
PYTHON = JSON | {"syntax": "python"}
WRITTEN = "[send(to='ann', amount=2.5, count=3, fast=True, tags=['a'], note=None), stop()]"
ONE_WRONG = (0.3 + 0.7 * 5 / 6 + 1) / 2
"""Of six arguments of the one call, one value is not the wanted one."""


def judge(answer: str | bytes, spec: dict[str, Any] = JSON, settings: str = "") -> Verdict:
    return answers.verdict("call", "tool", spec, answer, settings)


def said(changes: dict[str, Any]) -> str:
    return json.dumps([{"name": "send", "arguments": ARGUMENTS | changes}, CALLS[1]], ensure_ascii=False)


def test_the_work_itself_passes() -> None:
    assert judge(said({})).passed
    assert judge(WRITTEN, PYTHON).passed


VALUES: dict[str, tuple[str, Any]] = {
    "confusable-letter": ("to", "\u0430nn"),
    "wide-letters": ("to", "\uff41\uff4e\uff4e"),
    "unseen": ("to", "ann\u200b"),
    "capitals": ("to", "Ann"),
    "padded": ("to", "ann "),
    "two-answers": ("to", "ann, bob"),
    "list-of-answers": ("to", ["ann"]),
    "tag-of-the-spec": ("to", {"any": ["ann"]}),
    "value-of-the-spec": ("to", {"value": "ann"}),
    "text-for-a-number": ("amount", "2.5"),
    "true-for-a-number": ("amount", True),
    "near": ("amount", 2.5000001),
    "real-for-a-whole": ("count", 3.0001),
    "text-for-a-whole": ("count", "3"),
    "huge-whole": ("count", 10**399),
    "minus-huge": ("count", -(10**398)),
    "one-for-true": ("fast", 1),
    "text-for-true": ("fast", "true"),
    "text-for-a-list": ("tags", "a"),
    "more-tags": ("tags", ["a", "a"]),
    "nested-tags": ("tags", [["a"]]),
    "no-tags": ("tags", []),
    "empty-for-null": ("note", ""),
    "text-null-for-null": ("note", "null"),
    "zero-for-null": ("note", 0),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_not_the_wanted_one_costs_its_argument(name: str) -> None:
    parameter, value = VALUES[name]
    assert judge(said({parameter: value})).score == pytest.approx(ONE_WRONG)


def test_an_absent_argument_is_not_null_and_one_too_many_costs() -> None:
    less = {key: value for key, value in ARGUMENTS.items() if key != "note"}
    answer = json.dumps([{"name": "send", "arguments": less}, CALLS[1]])
    assert judge(answer).score == pytest.approx((0.3 + 0.7 * 10 / 11 + 1) / 2)
    for name in ("extra", "t\u043e", "to\u200b", "\uff54\uff4f", "TO", "", "__proto__", "to\u0000"):
        made = judge(said({name: {}}))
        assert made.score == pytest.approx((0.3 + 0.7 * 12 / 13 + 1) / 2), name


BROKEN: dict[str, str | bytes] = {
    "a-key-twice": '[{"name":"send","name":"stop","arguments":{}}]',
    "an-argument-twice": said({}).replace('"to": "ann"', '"to": "bob", "to": "ann"'),
    "an-argument-twice-by-escape": said({}).replace('"to": "ann"', '"to": "ann", "t\\u006f": "ann"'),
    "a-key-twice-deep-inside": said({"extra": {"a": 0}}).replace('"a": 0', '"a": 0, "a": 1'),
    "deep": said({}).replace("null", "[" * 17 + "]" * 17),
    "very-deep": said({}).replace("null", "[" * 5000 + "]" * 5000),
    "deep-objects": said({}).replace("null", '{"a":' * 2000 + "0" + "}" * 2000),
    "ten-thousand-digits": said({}).replace("3,", "3" * 10_000 + ","),
    "too-large": said({}).replace("2.5", "2.5e400"),
    "NaN": said({}).replace("2.5", "NaN"),
    "Infinity": said({}).replace("2.5", "Infinity"),
    "wide-digits": said({}).replace("3,", "\uff13,"),
    "comment": said({}) + " // or none",
    "comment-inside": said({}).replace("2.5", "2.5 /* or 3 */"),
    "hash": said({}) + " # or none",
    "trailing-comma": said({})[:-1] + ",]",
    "calls-in-a-text": json.dumps(said({})),
    "calls-in-a-list-of-texts": json.dumps([said({})]),
    "arguments-as-a-text": json.dumps([{"name": "send", "arguments": json.dumps(ARGUMENTS)}, CALLS[1]]),
    "arguments-as-a-list": json.dumps([{"name": "send", "arguments": list(ARGUMENTS.values())}]),
    "name-as-a-list": json.dumps([{"name": ["send", "stop"], "arguments": {}}]),
    "more-keys": json.dumps([CALLS[0] | {"id": 1}, CALLS[1]]),
    "other-keys": json.dumps([{"function": "send", "parameters": ARGUMENTS}]),
    "nested-list": json.dumps([CALLS]),
    "lines": "\n".join(map(json.dumps, CALLS)),
    "two-lists": said({}) * 2,
    "fenced": f"```json\n{said({})}\n```",
    "with-words": f"I call: {said({})}",
    "byte-order-mark": "\ufeff" + said({}),
    "lone-surrogate": said({}).replace("ann", "\\ud83d"),
    "raw-surrogate": said({}).encode().replace(b"ann", b"\xed\xa0\xbd"),
    "too-long": said({"to": "x" * 20_000}),
    "a-thousand-calls": json.dumps([CALLS[1]] * 1000),
    "thirty-three-calls": json.dumps([CALLS[1]] * 33),
    "number": "5",
    "null": "null",
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_plain_list_of_calls_is_invalid(name: str) -> None:
    made = judge(BROKEN[name])
    assert (made.outcome, made.score) == ("invalid", 0.0), made


def python(text: str) -> str:
    """The wanted calls with the argument `to` written as `text`."""
    return WRITTEN.replace("to='ann'", text)


TRICKS: dict[str, str] = {
    "positional": python("'ann'"),
    "positional-and-named": python("'ann', to='ann'"),
    "named-twice": python("to='ann', to='ann'"),
    "named-twice-differently": python("to='bob', to='ann'"),
    "stars": python("**{'to': 'ann'}"),
    "stars-and-named": python("to='ann', **{}"),
    "star": python("*['ann']"),
    "walrus": python("to:='ann'"),
    "walrus-inside": python("to=(x:='ann')"),
    "lambda": python("to=(lambda: 'ann')()"),
    "conditional": python("to='ann' if 1 else 'bob'"),
    "either": python("to='ann' or 'bob'"),
    "concatenation": python("to='an' + 'n'"),
    "repetition": python("to='ann' * 1"),
    "subscript": python("to=['ann', 'bob'][0]"),
    "slice": python("to='annabel'[:3]"),
    "call": python("to=str('ann')"),
    "join": python("to=''.join(['ann'])"),
    "comprehension": python("to=[x for x in ['ann']][0]"),
    "formatted": python("to=f'ann'"),
    "formatted-inside": python("to=f'{\"ann\"}'"),
    "bytes": python("to=b'ann'"),
    "name": python("to=ann"),
    "ellipsis": python("to=..."),
    "await": python("to=await x"),
    "compared": python("to='ann'=='ann'"),
    "set": python("to='ann', tags={'a'}").replace(", tags=['a']", ""),
    "unpacked-list": WRITTEN.replace("['a']", "[*['a']]"),
    "unpacked-table": python("to='ann', extra={**{}}"),
    "key-that-is-no-text": python("to='ann', extra={1: 2}"),
    "key-that-has-no-hash": python("to='ann', extra={[]: 2}"),
    "key-that-is-a-tuple": python("to='ann', extra={(): 2}"),
    "a-key-twice": python("to='ann', extra={'a': 1, 'a': 2}"),
    "complex": WRITTEN.replace("2.5", "2.5j"),
    "too-large": WRITTEN.replace("2.5", "2.5e400"),
    "minus-too-large": WRITTEN.replace("2.5", "-2.5e400"),
    "ten-thousand-digits": WRITTEN.replace("=3", "=" + "3" * 10_000),
    "hexadecimal-of-any-length": WRITTEN.replace("=3", "=0x" + "3" * 10_000),
    "power": WRITTEN.replace("=3", "=3**1"),
    "double-minus": WRITTEN.replace("=3", "=--3"),
    "not": WRITTEN.replace("True", "not False"),
    "attribute-of-a-call": WRITTEN.replace("send(", "send().send("),
    "attribute": WRITTEN.replace("send(", "api.send("),
    "subscripted": WRITTEN.replace("send(", "{'a': send}['a']("),
    "import": WRITTEN.replace("send(", "__import__('api').send("),
    "called-twice": WRITTEN.replace("stop()", "stop()()"),
    "lambda-called": WRITTEN.replace("stop()", "(lambda: stop())()"),
    "assigned": "x = " + WRITTEN,
    "annotated": "x: list = " + WRITTEN,
    "deleted": "del x\n" + WRITTEN,
    "imported": "import os\n" + WRITTEN,
    "defined": "def f(): pass\n" + WRITTEN,
    "looped": "for x in [1]: stop()",
    "asserted": "assert " + WRITTEN,
    "returned": "return " + WRITTEN,
    "passed": WRITTEN + "\npass",
    "text-of-calls": repr(WRITTEN),
    "text-beside-calls": WRITTEN + "\n'send(to=1)'",
    "list-of-texts": "['send(to=1)', 'stop()']",
    "tuple": WRITTEN.replace("[send", "(send").replace("stop()]", "stop())"),
    "nested": f"[{WRITTEN}]",
    "starred": f"[*{WRITTEN}]",
    "comprehended": "[stop() for _ in range(2)]",
    "compared-calls": WRITTEN.replace(", stop", " == stop"),
    "wide-name": WRITTEN.replace("send(", "\uff53\uff45\uff4e\uff44("),
    "wide-parameter": WRITTEN.replace("to=", "\uff54\uff4f="),
    "raised-name": WRITTEN.replace("stop(", "sto\u1d56("),
    "ligature": WRITTEN.replace("stop(", "\ufb06op("),
    "fenced": f"```python\n{WRITTEN}\n```",
    "unclosed": WRITTEN[:-1],
    "null-character": WRITTEN.replace("ann", "a\0n"),
    "surrogate": WRITTEN.replace("ann", "\\ud83d"),
    "named-character": WRITTEN.replace("ann", "\\N{no such name}"),
    "byte-order-mark": "\ufeff" + WRITTEN,
    "deep": WRITTEN.replace("['a']", "[" * 40 + "]" * 40),
    "deep-behind-a-quotation-mark": WRITTEN.replace("'ann'", "'\"'").replace("['a']", "[" * 60 + "]" * 60),
    "deep-tables-behind-a-quotation-mark": WRITTEN.replace("to='ann'", "to='\"', extra=" + "{'a':" * 60 + "0" + "}" * 60),
    "very-deep-behind-a-quotation-mark": WRITTEN.replace("'ann'", "'\"'").replace("['a']", "[" * 5000 + "]" * 5000),
    "long-sum": WRITTEN.replace("=3", "=" + "1+" * 5000 + "1"),
    "long-power": WRITTEN.replace("=3", "=" + "1**" * 4000 + "1"),
    "long-chain": WRITTEN.replace("stop()", "stop" + "()" * 5000),
    "long-subscripts": WRITTEN.replace("stop()", "stop" + "[0]" * 4000 + "()"),
    "long-comparison": WRITTEN.replace("=3", "=" + "0<" * 6000 + "3"),
    "elif-for-ever": "if 0:0\n" + "elif 0:0\n" * 1500,
    "indented-for-ever": "\n".join(" " * n + "if 1:" for n in range(99)) + "\n" + " " * 99 + "stop()",
    "decorated-for-ever": "@f\n" * 4000 + "def g(): 0",
    "formatted-for-ever": "send(to=" + "f'{" * 100 + "0" + "}'" * 100 + ")",
    "a-thousand-calls": "stop()\n" * 1000,
    "a-thousand-calls-in-a-list": "[" + "stop()," * 1000 + "]",
    "thirty-three-calls": "stop();" * 33,
}  # fmt: skip


@pytest.mark.parametrize("name", TRICKS)
def test_what_is_no_plain_call_with_named_literals_is_invalid(name: str) -> None:
    made = judge(TRICKS[name], PYTHON)
    assert (made.outcome, made.score) == ("invalid", 0.0), made


SAME = {
    "lines": "\n".join(WRITTEN[1:-1].rsplit(", ", 1)),
    "semicolons": "; ".join(WRITTEN[1:-1].rsplit(", ", 1)),
    "other-quotes": WRITTEN.replace("'", '"'),
    "escapes": WRITTEN.replace("ann", "\\x61\\u006e\\N{LATIN SMALL LETTER N}"),
    "adjacent-texts": WRITTEN.replace("'ann'", "'a' 'nn'"),
    "comment": WRITTEN + "  # send(to='bob')",
    "other-order": "[stop(), " + WRITTEN[1:].replace(", stop()", ""),
    "spaces": WRITTEN.replace("(", " ( ").replace("=", " = "),
    "tuple-for-a-list": WRITTEN.replace("['a']", "('a',)"),
    "brackets": WRITTEN.replace("stop()", "(stop)()"),
    "whole-in-another-base": WRITTEN.replace("=3", "=0b11"),
}


@pytest.mark.parametrize("name", SAME)
def test_another_spelling_of_the_same_calls_is_the_same(name: str) -> None:
    assert judge(SAME[name], PYTHON).passed, judge(SAME[name], PYTHON)


def test_names_of_other_alphabets_are_names() -> None:
    function = {
        "name": "größe",
        "parameters": {"type": "object", "properties": {"länge": {"type": "string"}}},
    }
    spec = {
        "syntax": "python",
        "functions": [function],
        "want": [{"name": "größe", "arguments": {"länge": "ü"}}],
    }
    for text in (
        "größe(länge='ü')",
        "größe(\n  länge\t=\r\n 'ü')",
        "größe(länge='''ü''')  # \uff46",
        "[größe(länge='ü')]",
    ):
        assert judge(text, spec).passed, text
    assert judge("größe(la\u0308nge='ü')", spec).outcome == "invalid"  # the same letters, in another form


@pytest.mark.parametrize("syntax", ["json", "python"])
@pytest.mark.parametrize(
    "answer", ["[]", " [ ] ", "", "null", "none", "# nothing", "{}", "()", "[[]]", "'[]'", "no", "\u200b"]
)
def test_only_an_empty_list_says_that_no_call_is_right(syntax: str, answer: str) -> None:
    made = judge(answer, {"syntax": syntax, "functions": FUNCTIONS, "want": []})
    assert made.passed == (answer.replace(" ", "") == "[]"), made
    assert made.passed or made.score == 0.0


MANY: list[dict[str, Any]] = [
    {"name": "send", "arguments": {"to": "ann", "count": n, "tags": [f"{n}"] * 8}} for n in range(32)
]
SHIFTED: list[dict[str, Any]] = [
    {"name": "send", "arguments": call["arguments"] | {"count": (n + 1) % 32}} for n, call in enumerate(MANY)
]


@pytest.mark.parametrize(
    ("calls", "score"),
    [
        (MANY[::-1], 1.0),
        (MANY[:16] * 2, 0.5 + 0.5 * (0.3 + 0.7 / 3)),
        ([MANY[0]] * 32, 1 / 32 + 31 / 32 * (0.3 + 0.7 / 3)),
        (SHIFTED, 0.3 + 0.7 * 2 / 3),
        ([{"name": "stop", "arguments": {}}] * 32, 0.0),
        (MANY + MANY[:1], 0.0),
        (MANY * 30, 0.0),
    ],
    ids=["reversed", "half", "same", "shifted", "others", "one-more", "a-thousand"],
)  # fmt: skip
def test_parallel_calls_are_matched_one_to_one_in_time(calls: list[Any], score: float) -> None:
    spec = {"syntax": "json", "functions": FUNCTIONS, "want": MANY}
    text = json.dumps(calls, separators=(",", ":"))
    assert judge(text, spec).score == pytest.approx(score)
    assert points(judge(text, spec | {"order": "kept"})) <= score + 1e-9


def test_a_thousand_parallel_calls_over_many_turns_end_in_time() -> None:
    api = {
        "state": {"sent": []},
        "functions": {
            "send": [{"op": "append", "path": ["sent"], "value": {"object": {"to": {"arg": "to"}, "n": {"arg": "count"}}}}],
            "stop": [{"op": "get", "path": ["sent"]}],
        },
    }  # fmt: skip
    turns = [{"want": MANY[2 * n : 2 * n + 2]} for n in range(16)]
    spec = {"syntax": "json", "functions": FUNCTIONS, "api": api, "turns": turns}
    assert judge(json.dumps([turn["want"] for turn in turns]), spec).passed
    floods: list[list[Any]] = [
        [[call] * 60 for call in MANY],
        [[MANY[0]] * 1000],
        [MANY] * 32,
        [[]] * 2000,
        [[MANY[0]] * 64],
    ]
    for given in floods:
        assert points(judge(json.dumps(given, separators=(",", ":")), spec)) < 0.2

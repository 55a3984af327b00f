from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import call, calls
from services.verifier.families.assign import best
from services.verifier.specs import SpecError
from services.verifier.values import ValueFormatError

NUMBER = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "string"}},
    "required": ["a"],
}
LISTS = {
    "type": "object",
    "properties": {"v": {"type": "array", "items": {"type": "integer"}}},
    "required": ["v"],
}
FUNCTIONS = [{"name": "f", "parameters": NUMBER}, {"name": "g", "parameters": LISTS}]


def spec(*want: dict[str, Any], syntax: str = "json") -> dict[str, Any]:
    return {"syntax": syntax, "functions": FUNCTIONS, "want": list(want)}


def f(**arguments: Any) -> dict[str, Any]:
    return {"name": "f", "arguments": arguments}


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(text: str, given: dict[str, Any], **settings: Any) -> Any:
        call.check_spec(given, settings)
        return call.verify(make_task(given), settings, limits, text.encode(), scripted())

    return run


def test_the_wanted_call_passes_in_each_form(judge: Any) -> None:
    assert judge('{"name":"f","arguments":{"a":1,"b":"x"}}', spec(f(a=1, b="x"))).passed
    assert judge('{"f":{"a":1,"b":"x"}}', spec(f(a=1, b="x")), form="short").passed
    assert judge("f(b='x', a=1)", spec(f(a=1, b="x"), syntax="python")).passed
    assert judge(
        "[f(a=-1.5), g(v=(1,2))]", spec(f(a=-1.5), {"name": "g", "arguments": {"v": [1, 2]}}, syntax="python")
    ).passed
    assert judge('{"f":{"a":1}}', spec(f(a=1))).outcome == "invalid"


def test_an_integer_stands_for_a_number_but_true_does_not(judge: Any) -> None:
    assert judge('{"name":"f","arguments":{"a":1.0}}', spec(f(a=1))).passed
    assert judge('{"name":"f","arguments":{"a":true}}', spec(f(a=1))).score == pytest.approx(0.3)
    wanted = spec({"name": "g", "arguments": {"v": [1]}})
    assert not judge('{"name":"g","arguments":{"v":[1.0]}}', wanted).passed


def test_partial_credit_and_unexpected_parameters(judge: Any) -> None:
    want = spec(f(a=1, b="x"))
    assert judge('{"name":"f","arguments":{"a":1}}', want).score == pytest.approx(0.3 + 0.7 * 2 / 3)
    assert judge('{"name":"f","arguments":{"a":1,"b":"x","c":2}}', want).score == pytest.approx(
        0.3 + 0.7 * 4 / 5
    )


def test_right_arguments_of_the_wrong_function_are_worth_little(judge: Any) -> None:
    want = spec(f(a=1, b="x"))
    for name in ("h", "g", "F", ""):
        made = judge(f'{{"name":"{name}","arguments":{{"a":1,"b":"x"}}}}', want)
        # `g` does not take these parameters, so not even they are right.
        assert made.score == pytest.approx(0.0 if name == "g" else 0.2)
        assert not made.passed
    bare = {
        "syntax": "json",
        "functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}],
    }
    assert judge('{"name":"g","arguments":{}}', bare | {"want": [f()]}).score == 0.0
    assert judge('{"name":"f","arguments":{}}', bare | {"want": [f()]}).passed


def test_parallel_calls_match_without_order_and_by_number(judge: Any) -> None:
    want = spec(f(a=1), f(a=2), f(a=3))
    written = [f'{{"name":"f","arguments":{{"a":{n}}}}}' for n in (3, 1, 2)]
    assert judge(f"[{','.join(written)}]", want).passed
    fewer = judge(f"[{','.join(written[:2])}]", want)
    assert fewer.score == pytest.approx(2 / 3)
    more = judge(f"[{','.join([*written, written[0]])}]", want)
    assert more.score == pytest.approx(3 / 4)
    assert not more.passed
    assert judge("[]", want).score == 0.0


def test_the_assignment_is_the_best_one_not_the_greedy_one() -> None:
    assert best([[0.9, 0.8], [0.85, 0.0]]) == [(0, 1), (1, 0)]
    assert best([]) == []
    assert best([[0.1, 0.7]]) == [(0, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "f(1)",
        "f(a=__import__('os'))",
        "f(**{'a': 1})",
        "f(a=1)(b=2)",
        "x.f(a=1)",
        "a = f(a=1)",
        "f(a=1",
        "f(a=[i for i in (1,)])",
        "f(a=1+1)",
        "f(a=b'x')",
        "f(a=...)",
        "f(a=1e999)",
        "f(a=0x" + "f" * 5000 + ")",
        "f(a={1: 2})",
        "f(a=" + "-" * 5000 + "1)",
        "f(a=" + "[" * 5000 + "]" * 5000 + ")",
        "f" + "()" * 4000,
        "not " * 4000 + "1",
        "f(a=1);" * 4000,
    ],
)
def test_python_syntax_takes_named_literals_only(text: str) -> None:
    with pytest.raises(ValueFormatError):
        calls.parse_python_calls(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"f","name":"f","arguments":{}}',
        '{"name":"f","arguments":{"a":NaN}}',
        '{"name":"f"}',
        '{"name":1,"arguments":{}}',
        '"f"',
        "{" * 9,
    ],
)
def test_json_syntax_is_strict(text: str) -> None:
    with pytest.raises(ValueFormatError):
        calls.parse_json_calls(text, short=True)


def test_a_broken_spec_is_named() -> None:
    bad = {"type": "no such type"}
    for given, said in [
        (spec({"name": "h", "arguments": {}}), "'h'"),
        (spec(f(b="x")), "does not fit its schema"),
        ({"syntax": "json", "functions": [], "want": []}, "spec.functions is empty"),
        ({"syntax": "xml", "functions": FUNCTIONS, "want": []}, "spec.syntax"),
        ({"syntax": "json", "functions": [{"name": "f", "parameters": bad}], "want": []}, "no JSON Schema"),
    ]:
        with pytest.raises(SpecError) as caught:
            call.check_spec(given, {})
        assert said in str(caught.value)

"""Several turns of calls against a fake API that is data."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from services.verifier.families import api, call, differences
from services.verifier.families.calls import Call
from services.verifier.specs import SpecError

TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def function(name: str, **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "parameters": {"type": "object", "properties": properties, "required": list(properties)},
    }


FUNCTIONS = [
    function("pay", source=TEXT, target=TEXT, amount=NUMBER),
    function("balance", account=TEXT),
    function("note", text=TEXT),
    function("close", account=TEXT),
    function("open", account=TEXT),
]
BANK: dict[str, Any] = {
    "state": {"accounts": {"a": 100, "b": 0}, "log": []},
    "functions": {
        "pay": [
            {"op": "transfer", "from": ["accounts", {"arg": "source"}], "to": ["accounts", {"arg": "target"}],
             "value": {"arg": "amount"}},
            {"op": "append", "path": ["log"], "value": {"object": {"to": {"arg": "target"}, "sum": {"arg": "amount"}}}},
        ],
        "balance": [{"op": "get", "path": ["accounts", {"arg": "account"}]}],
        "note": [{"op": "append", "path": ["log"], "value": {"arg": "text"}}],
        "close": [
            {"op": "need", "path": ["accounts", {"arg": "account"}], "equals": 0},
            {"op": "remove", "path": ["accounts", {"arg": "account"}]},
        ],
        "open": [
            {"op": "need", "path": ["accounts", {"arg": "account"}], "present": False},
            {"op": "set", "path": ["accounts", {"arg": "account"}], "value": 0},
        ],
    },
}  # fmt: skip


def made(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


PAY = made("pay", source="a", target="b", amount=40)
LOOK = made("balance", account="b")
CLOSE = made("close", account="b")
OPEN = made("open", account="c")


def spec(*turns: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "syntax": "json",
        "functions": FUNCTIONS,
        "api": BANK,
        "turns": [{"want": turn} for turn in turns],
        **more,
    }


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(answer: Any, given: dict[str, Any], **settings: Any) -> Any:
        call.check_spec(given, settings)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return call.verify(make_task(given), settings, limits, text.encode(), scripted())

    return run


def test_the_wanted_calls_pass_and_nothing_done_scores_nothing(judge: Any) -> None:
    want = spec([PAY, LOOK], [OPEN])
    assert judge([[PAY, LOOK], [OPEN]], want).passed
    assert judge([[LOOK, PAY], [OPEN]], want).passed
    nothing: list[Any] = [[], [[], []], [[]]]
    for answer in nothing:
        assert judge(answer, want).score == 0.0
    assert judge([PAY], want).outcome == "invalid"


def test_a_turn_left_out_or_done_late_costs_its_share(judge: Any) -> None:
    want = spec([PAY], [OPEN])
    half = judge([[PAY]], want)
    assert half.score == pytest.approx(0.7 / 2)
    late = judge([[], [PAY, OPEN]], want)
    assert 0.3 <= late.score < 0.8
    assert not late.passed
    more = judge([[PAY], [OPEN], [made("note", text="x")]], want)
    assert not more.passed
    assert more.score < 0.7


def test_other_calls_with_the_same_effect_have_the_state_right_only(judge: Any) -> None:
    want = spec([made("open", account="c"), made("close", account="c"), PAY])
    assert judge([[PAY]], want).score == pytest.approx(0.7 * (1 + 1 / 3) / 2 + 0.3)
    assert judge([[PAY]], want | {"judge": "state"}).passed


def test_calls_that_nobody_wanted_cost_even_where_they_change_nothing(judge: Any) -> None:
    want = spec([PAY])
    hedge = judge([[PAY, *[LOOK] * 9]], want)
    assert hedge.score == pytest.approx(0.7 * (1 + 1 / 10) / 2 + 0.3)
    assert not hedge.passed


def test_optional_calls_may_be_there_or_not(judge: Any) -> None:
    want = spec([LOOK, PAY])
    want["turns"][0]["required"] = [1]
    assert judge([[PAY]], want).passed
    assert judge([[LOOK, PAY]], want).passed
    assert not judge([[LOOK]], want).passed


def test_a_turn_that_only_looks_is_judged_by_its_calls(judge: Any) -> None:
    want = spec([LOOK])
    assert judge([LOOK], want).passed
    assert judge([[LOOK]], want).passed
    assert judge([[]], want).score == 0.0
    assert judge([[LOOK, PAY]], want).score == pytest.approx((0 + 1 / 2) / 2)


def test_refused_calls_leave_the_state_alone(judge: Any) -> None:
    want = spec([PAY])
    for bad in (made("pay", source="a", target="b", amount=400), made("pay", source="a", target="nobody", amount=1),
                made("pay", source="a", target="b", amount=-1), made("pay", source="a", target="b", amount="40"),
                made("steal", amount=1), CLOSE | {"arguments": {"account": "a"}}):  # fmt: skip
        verdict = judge([[bad, PAY]], want)
        assert verdict.score == pytest.approx(0.7 * (1 + 1 / 2) / 2 + 0.3), bad
        assert not verdict.passed


def test_python_syntax_takes_a_list_a_line_or_a_list_of_lists(judge: Any) -> None:
    want = spec([PAY], [LOOK]) | {"syntax": "python"}
    pay, look = "pay(source='a', target='b', amount=40)", "balance(account='b')"
    assert judge(f"[{pay}]\n[{look}]", want).passed
    assert judge(f"[[{pay}], [{look}]]", want).passed
    assert judge(f"{pay}\n{look}", want).outcome == "invalid"
    assert judge(f"{pay}", spec([PAY]) | {"syntax": "python"}).passed


def test_a_call_does_all_its_steps_or_none() -> None:
    steps = {"f": [{"op": "set", "path": ["x"], "value": 1}, {"op": "need", "path": ["y"], "present": True}]}
    state: dict[str, Any] = {"x": 0}
    with pytest.raises(api.RefusedError):
        api.after(steps, state, Call("f", {}))
    assert state == {"x": 0}


@pytest.mark.parametrize(
    ("step", "before", "now"),
    [
        ({"op": "add", "path": ["n"], "value": 0.1}, {"n": 0.2}, {"n": 0.3}),
        ({"op": "set", "path": ["l", 0], "value": "x"}, {"l": ["y"]}, {"l": ["x"]}),
        ({"op": "remove", "path": ["l"], "value": 2}, {"l": [1, 2, 2]}, {"l": [1, 2]}),
        ({"op": "remove", "path": ["l", 0]}, {"l": [1, 2]}, {"l": [2]}),
        ({"op": "need", "path": ["l"], "contains": 2.0}, {"l": [1, 2]}, {"l": [1, 2]}),
        ({"op": "need", "path": ["n"], "least": 1}, {"n": 1}, {"n": 1}),
        ({"op": "set", "path": ["v"], "value": {"list": [{"value": [1]}, "a"]}}, {}, {"v": [[1], "a"]}),
    ],
)
def test_steps(step: dict[str, Any], before: dict[str, Any], now: dict[str, Any]) -> None:
    kept = copy.deepcopy(before)
    assert not differences.changes(api.after({"f": [step]}, before, Call("f", {})), now)
    assert before == kept


@pytest.mark.parametrize(
    ("step", "state"),
    [
        ({"op": "add", "path": ["n"], "value": 1e308}, {"n": 1e308}),
        ({"op": "add", "path": ["n"], "value": 1.5}, {"n": 10**399}),
        ({"op": "add", "path": ["n"], "value": 1}, {"n": True}),
        ({"op": "add", "path": ["n"], "value": 1}, {"n": "1"}),
        ({"op": "set", "path": ["l", 5], "value": 1}, {"l": []}),
        ({"op": "set", "path": ["l", -1], "value": 1}, {"l": [0]}),
        ({"op": "set", "path": ["l", True], "value": 1}, {"l": [0, 0]}),
        ({"op": "set", "path": ["n", "x"], "value": 1}, {"n": 1}),
        ({"op": "append", "path": ["n"], "value": 1}, {"n": {}}),
        ({"op": "remove", "path": ["n"], "value": 1}, {"n": [2]}),
        ({"op": "get", "path": ["a", "b", "c"]}, {"a": {}}),
        ({"op": "set", "path": ["x"], "value": {"arg": "p"}}, {}),
        ({"op": "need", "path": ["n"], "most": 1}, {"n": 2}),
    ],
)
def test_what_cannot_be_done_is_refused(step: dict[str, Any], state: dict[str, Any]) -> None:
    with pytest.raises(api.RefusedError):
        api.after({"f": [step]}, state, Call("f", {}))


def broken(**changes: Any) -> dict[str, Any]:
    return spec([PAY]) | changes


def with_step(step: Any) -> dict[str, Any]:
    return BANK | {"functions": BANK["functions"] | {"note": [step]}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (broken(turns=[]), "spec.turns is empty"),
        (broken(turns=[{"want": []}]), "want is empty"),
        (broken(want=[]), "both want and turns"),
        (broken(turns=[{"want": [made("pay", source="a", target="b", amount=1000)]}]), "cannot be done"),
        (broken(turns=[{"want": [made("fly")]}]), "not among spec.functions"),
        (broken(turns=[{"want": [LOOK], "required": []}]), "changes nothing"),
        (broken(turns=[{"want": [LOOK]}], judge="state"), "changes nothing"),
        (broken(turns=[{"want": [PAY], "required": [1]}]), "names call 1, of 1"),
        (broken(turns=[{"want": [PAY]}] * 17), "17 entries"),
        (broken(judge="taste"), "spec.judge"),
        (broken(api=BANK | {"state": []}), "api.state"),
        (broken(api=BANK | {"functions": {}}), "differ in"),
        (broken(api=with_step({"op": "exec", "path": ["x"]})), "op is 'exec'"),
        (broken(api=with_step({"op": "set", "path": ["x"]})), "value is missing"),
        (broken(api=with_step({"op": "set", "path": [], "value": 1})), "path is empty"),
        (broken(api=with_step({"op": "set", "path": ["x"], "value": {"arg": "nope"}})), "no parameter"),
        (broken(api=with_step({"op": "set", "path": ["x"], "value": {"call": 1}})), "exactly one of arg"),
        (broken(api=with_step({"op": "need", "path": ["x"]})), "exactly one of present"),
        (broken(api=with_step({"op": "get", "path": ["x"], "value": 1})), "unknown key"),
    ],
)
def test_a_broken_spec_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        call.check_spec(given, {})
    assert said in str(caught.value)


def test_too_many_calls_are_invalid(judge: Any) -> None:
    assert judge([[LOOK] * 65], spec([PAY])).outcome == "invalid"
    assert judge([[]] * 40, spec([PAY])).outcome == "invalid"

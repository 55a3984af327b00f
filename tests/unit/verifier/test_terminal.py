from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from services.verifier.answers import UnusableAnswerError
from services.verifier.families import terminal
from services.verifier.jail import Outcome
from services.verifier.specs import SpecError

SPEC: dict[str, Any] = {
    "files": {"old": "text\n"},
    "checks": [
        {"kind": "file", "path": "new", "text": "text\n"},
        {"kind": "absent", "path": "old"},
        {"kind": "exit", "code": 0},
    ],
    "protected": ["keep"],
}


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(outcome: Outcome, spec: dict[str, Any] = SPEC) -> Any:
        terminal.check_spec(spec, {})
        return terminal.verify(make_task(spec), {}, limits, b"mv old new", scripted(outcome))

    return run


def test_the_wanted_state_passes(judge: Any, exited: Any) -> None:
    verdict = judge(exited({"new": "text\n"}, deleted=("old",)))
    assert (verdict.score, verdict.passed) == (1.0, True)


def test_doing_nothing_earns_nothing(judge: Any, exited: Any) -> None:
    assert judge(exited()).score == 0.0


@pytest.mark.parametrize("cause", ["wall", "cpu", "output"])
def test_a_command_that_had_to_be_stopped_earns_nothing(judge: Any, exited: Any, cause: str) -> None:
    done = exited({"new": "text\n"}, deleted=("old",))
    stopped = dataclasses.replace(done, cause=cause, exit_code=None)
    without_exit = SPEC | {"checks": SPEC["checks"][:2]}
    assert judge(done, without_exit).passed
    assert judge(stopped, without_exit).score == 0.0


def test_half_of_it_earns_half(judge: Any, exited: Any) -> None:
    assert judge(exited({"new": "text\n"})).score == pytest.approx(0.5)


def test_what_held_before_is_a_gate(judge: Any, exited: Any) -> None:
    assert judge(exited({"new": "text\n"}, deleted=("old",), exit_code=1)).score == 0.0
    killed = exited({"new": "text\n"}, deleted=("old",), cause="wall", exit_code=None)
    assert judge(killed).score == 0.0


def test_strays_lower_the_score(judge: Any, exited: Any) -> None:
    verdict = judge(exited({"new": "text\n", "a": "", "b": "", "c": ""}, deleted=("old",)))
    assert verdict.score == pytest.approx(3 / 6)
    assert not verdict.passed
    assert "3 stray: a, b, c" in verdict.evidence


def test_folders_on_the_way_to_a_wanted_path_are_no_strays(judge: Any, exited: Any) -> None:
    spec = {"checks": [{"kind": "dir", "path": "a/b"}, {"kind": "file", "path": "c/d", "text": "x"}]}
    assert judge(exited({"a": None, "a/b": None, "c": None, "c/d": "x\n"}), spec).passed


@pytest.mark.parametrize("path", ["keep", "keep/inside"])
def test_protected_paths_are_a_gate(judge: Any, exited: Any, path: str) -> None:
    assert judge(exited({"new": "text\n", path: "x"}, deleted=("old",))).score == 0.0


def test_text_is_compared_without_the_last_line_end_unless_exact(judge: Any, exited: Any) -> None:
    for text, exact, wanted in [
        ("x", False, True),
        ("x\n", False, True),
        ("x\n\n", False, False),
        ("x", True, False),
        ("x\n", True, True),
    ]:
        spec = {"checks": [{"kind": "file", "path": "a", "text": "x\n", "exact": exact}]}
        assert judge(exited({"a": text}), spec).passed is wanted


def test_standard_output(judge: Any, exited: Any) -> None:
    spec = {"checks": [{"kind": "stdout", "text": "1\n2"}]}
    assert judge(exited(stdout=b"1\n2\n"), spec).passed
    assert judge(exited(stdout=b"1\n2 \n"), spec).score == 0.0


def test_a_link_is_no_file(judge: Any, exited: Any, change: Any) -> None:
    outcome = exited({"new": "text\n"}, deleted=("old",))
    link = change("new", "text\n")
    object.__setattr__(link, "type", "symlink")
    object.__setattr__(outcome.diff, "created", (link,))
    assert judge(outcome).score == pytest.approx(0.5)


def test_what_cannot_be_a_command(make_task: Any, limits: Any, scripted: Any) -> None:
    for answer in (b"echo \0", b"x" * 100_001):
        with pytest.raises(UnusableAnswerError):
            terminal.verify(make_task(SPEC), {}, limits, answer, scripted())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"checks": []}, "spec.checks is empty"),
        ({"checks": [{"kind": "exit", "code": 0}]}, "all hold before"),
        ({"files": {"../a": ""}, "checks": SPEC["checks"]}, "spec.files.../a"),
        ({"checks": [{"kind": "file", "path": "/etc", "text": ""}]}, "spec.checks[0].path"),
        ({"checks": [{"kind": "magic"}]}, "spec.checks[0].kind"),
        ({"checks": SPEC["checks"], "tests": []}, "tests"),
    ],
)
def test_a_broken_spec_is_named(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        terminal.check_spec(spec, {})
    assert said in str(caught.value)

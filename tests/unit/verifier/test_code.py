from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import code
from services.verifier.inside.kit import frame
from services.verifier.jail import Outcome
from services.verifier.specs import SpecError

SPEC = {
    "entry": "f",
    "kind": "expression",
    "params": ["q"],
    "cases": [{"args": [1], "want": 4}, {"args": [2], "want": 7}],
}


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(report: bytes, spec: dict[str, Any] = SPEC, **settings: Any) -> Any:
        code.check_spec(spec, settings)
        outcome = Outcome(cause="exit", exit_code=0, report=report, stdout=b"PASSED case 0\nPASSED case 1\n")
        return code.verify(make_task(spec), settings, limits, b"q*3+1", scripted(outcome))

    return run


BUILT = frame(b"B", 0)


def test_all_cases_answered_right(judge: Any) -> None:
    verdict = judge(BUILT + frame(b"V", 0, b"4") + frame(b"V", 1, b"7"))
    assert (verdict.score, verdict.passed) == (1.0, True)
    assert [part.name for part in verdict.parts] == ["build", "tests"]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (b"", "no answer (exit 0)"),
        (frame(b"V", 1, b"7.0"), "got 7.0, expected 7"),
        (frame(b"V", 1, b"true"), "got true"),
        (frame(b"V", 1, b"NaN"), "no plain data"),
        (frame(b"V", 1, b"7") * 2, "no answer"),
        (frame(b"V", 7, b"7"), "no answer"),
        (frame(b"V", 1, b"7")[:-1], "no answer"),
        (frame(b"Q", 1, b"7"), "no answer"),
        (frame(b"E", 1, b"KeyError"), "raised KeyError"),
        (frame(b"N", 1, b"Always"), "returned no plain data (Always)"),
        (frame(b"T", 1), "ran out of time"),
        (frame(b"X", 1), "died"),
    ],
)
def test_a_case_passes_only_on_its_own_right_record(judge: Any, second: bytes, said: str) -> None:
    verdict = judge(BUILT + frame(b"V", 0, b"4") + second)
    assert verdict.score == 0.5
    assert not verdict.passed
    assert said in verdict.parts[1].evidence


def test_nothing_counts_without_a_build(judge: Any) -> None:
    values = frame(b"V", 0, b"4") + frame(b"V", 1, b"7")
    for report in (values, frame(b"S", 0, b"SyntaxError"), frame(b"S", 0, b"x") + BUILT + values, b""):
        assert judge(report).score == 0.0


def test_credit_for_all_cases_only(judge: Any) -> None:
    report = BUILT + frame(b"V", 0, b"4")
    assert judge(report, credit="all").score == 0.0
    assert judge(report + frame(b"V", 1, b"7"), credit="all").score == 1.0


def test_wanted_results_stay_outside(make_task: Any, limits: Any, scripted: Any) -> None:
    spec = SPEC | {"cases": [{"args": [1], "want": "the-secret-result"}]}
    jail = scripted(Outcome(cause="exit", exit_code=0))
    code.verify(make_task(spec), {}, limits, b"q", jail)
    job = jail.jobs[0]
    given = job.stdin + b"".join(
        entry.content for files in (job.files, job.trusted) for entry in files.values()
    )
    assert b"the-secret-result" not in given + repr(job.argv).encode() + repr(job.env).encode()


def test_a_jail_fault_is_no_score(make_task: Any, limits: Any, scripted: Any) -> None:
    verdict = code.verify(
        make_task(SPEC), {}, limits, b"q", scripted(Outcome(cause="infra", detail="no room"))
    )
    assert (verdict.outcome, verdict.score) == ("infra", None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cases": []}, "spec.cases is empty: give at least 1"),
        ({"cases": [{"args": [1]}]}, "spec.cases[0].want is missing"),
        ({"cases": [{"args": [1], "want": float("nan")}]}, "not plain"),
        ({"kind": "module"}, "spec.kind"),
        ({"params": ["a b"]}, "spec.params[0]"),
        ({"entry": "f()"}, "spec.entry"),
    ],
)
def test_a_broken_spec_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        code.check_spec(SPEC | change, {})
    assert said in str(caught.value)

"""Pytest suites without a jail: which specs are taken, what goes in, and that only positive records of expected tests count."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.answers import UnusableAnswerError
from services.verifier.families import code, driven
from services.verifier.jail import JobError, Limits, Outcome
from services.verifier.specs import SpecError

TESTS = "from solution import f\ndef test_a(): assert f(1) == 2\ndef test_b(): assert f(2) == 3\n"
SPEC: dict[str, Any] = {
    "kind": "suite",
    "path": "solution.py",
    "tests": {"test_it.py": TESTS, "sub/helper.py": "x = 1\n"},
    "ids": ["test_it.py::test_a", {"id": "test_it.py::test_b", "weight": 3.0}],
}
LIMITS = Limits(wall_s=4.0, cpu_s=2.0)


def framed(*frames: tuple[str, int, bytes]) -> bytes:
    return b"".join(
        kind.encode() + number.to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload
        for kind, number, payload in frames
    )


B, P0, P1 = ("B", 0, b""), ("P", 0, b""), ("P", 1, b"")
DONE = ("D", 0, b"0 0 0 0")


@pytest.fixture
def judge(scripted: Any, make_task: Callable[..., Task]) -> Callable[..., tuple[Verdict, Any]]:
    def run(*frames: tuple[str, int, bytes], spec: dict[str, Any] = SPEC, **more: Any) -> tuple[Verdict, Any]:
        facts: dict[str, Any] = {"cause": "exit", "exit_code": 0, "report": framed(*frames)} | more
        settings = facts.pop("settings", {})
        answer = facts.pop("answer", b"def f(x): return x + 1\n")
        code.check_spec(spec, settings)
        jail = scripted(Outcome(**facts))
        verdict = code.verify(make_task(spec), settings, LIMITS, answer, jail)
        return verdict, jail.jobs

    return run


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "solution"}, "spec.path is 'solution'"),
        ({"path": "a/b.py"}, "spec.path is 'a/b.py'"),
        ({"path": "x.py.py"}, "spec.path"),
        ({"tests": {}}, "its file is not in spec.tests"),
        ({"tests": []}, "spec.tests must be a table"),
        ({"tests": {"../test_it.py": "x"}}, "spec.tests: file path"),
        ({"tests": {"solution.py": "x"}}, "must not hold solution.py"),
        ({"tests": {"conftest.py": "x"}}, "must not hold conftest.py"),
        ({"tests": {"a/conftest.py": "x"}}, "must not hold a/conftest.py"),
        ({"tests": {"pytest.ini": "x"}}, "must not hold pytest.ini"),
        ({"ids": []}, "spec.ids is empty"),
        ({"ids": ["test_it.py"]}, "its file is not in spec.tests"),
        ({"ids": ["other.py::test_a"]}, "its file is not in spec.tests"),
        ({"ids": ["test_it.py::test_a"] * 2}, "names a test twice"),
        ({"ids": [{"id": "test_it.py::test_a", "weight": 0}]}, "weight is 0"),
        ({"ids": [{"id": "test_it.py::test_a", "weight": -1}]}, "weight must be a number"),
        ({"ids": [{"id": "test_it.py::test_a", "name": "a"}]}, "unknown key 'name'"),
        ({"ids": [7]}, "spec.ids[0] must be a table"),
        ({"prefix": 1}, "spec.prefix must be text"),
        ({"cases": []}, "unknown key 'cases'"),
    ],
)
def test_a_spec_at_fault_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        code.check_spec(SPEC | change, {})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings", [{"isolate": "none"}, {"isolate": "jail"}, {"tolerance": 0.1}, {"compare": "lines"}]
)
def test_settings_of_other_kinds_have_no_meaning(settings: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        code.check_spec(SPEC, settings)


def test_what_goes_in_holds_no_secret_but_in_the_order(judge: Callable[..., tuple[Verdict, Any]]) -> None:
    """The tests are in what the trusted runner reads, after all that the answer's process may ever hold."""
    verdict, (job,) = judge(B, P0, P1, DONE, spec=SPEC | {"prefix": "import math\n"})
    assert (verdict.score, verdict.passed) == (1.0, True)
    assert job.files["solution.py"].content == b"import math\ndef f(x): return x + 1\n"
    assert list(job.files) == ["solution.py"]
    assert not any(TESTS.encode() in entry.content for entry in (*job.files.values(), *job.trusted.values()))
    size = int.from_bytes(job.stdin[:4], "big")
    order, rest = marshal.loads(job.stdin[4 : 4 + size]), job.stdin[4 + size :]
    assert b"test_a" not in job.stdin[: 4 + size]
    assert (order["path"], order["module"], order["count"]) == ("solution.py", "solution", 2)
    assert marshal.loads(rest[4:]) == (SPEC["tests"], ["test_it.py::test_a", "test_it.py::test_b"])
    assert job.report
    assert job.limits.wall_s == LIMITS.wall_s * driven.SLACK


@pytest.mark.parametrize(
    ("frames", "score", "said"),
    [
        ((B, P0, ("F", 1, b"call failed"), DONE), 0.25, "call failed"),
        ((B, ("F", 0, b"setup failed"), P1, DONE), 0.75, "test_it.py::test_a: setup failed"),
        ((B, P0, DONE), 0.25, "not reported (exit 0)"),
        ((B, P0, P0, P1, DONE), 0.75, "not reported"),
        ((B, P0, ("F", 0, b"x"), P1), 0.75, "not reported"),
        ((B, P0, P1, ("P", 2, b""), ("P", 99, b"")), 1.0, "2 of 2"),
        ((B, ("V", 0, b"1"), ("O", 1, b"\0\0\0\0"), DONE), 0.0, "0 of 2"),
        ((B,), 0.0, "not reported"),
        ((P0, P1, DONE), 0.0, "not built"),
        ((("S", 0, b"SyntaxError"), P0, P1), 0.0, "not built"),
        ((B, ("S", 0, b"SyntaxError"), P0, P1), 0.0, "not built"),
    ],
)
def test_a_test_passes_only_on_a_positive_record_of_its_own(
    judge: Callable[..., tuple[Verdict, Any]], frames: Any, score: float, said: str
) -> None:
    verdict, _ = judge(*frames)
    assert (verdict.outcome, verdict.score) == ("scored", score), verdict
    assert said in verdict.parts[1].evidence
    assert verdict.passed is (score == 1.0)
    assert [stage.name for stage in verdict.stages] == ["lay out", "build", "test"]


def test_a_report_that_breaks_off_counts_as_far_as_it_goes(judge: Callable[..., tuple[Verdict, Any]]) -> None:
    whole = framed(B, P0, P1)
    for cut in range(len(whole)):
        verdict, _ = judge(report=whole[:cut], cause="signal", exit_code=None, signal=9)
        assert verdict.score == (0.25 if cut >= len(framed(B, P0)) else 0.0)


@pytest.mark.parametrize(("credit", "score"), [("all", 0.0), ("rate_power", 0.0625), ("rate", 0.25)])
def test_credit_is_the_cards(judge: Callable[..., tuple[Verdict, Any]], credit: str, score: float) -> None:
    verdict, _ = judge(B, P0, DONE, settings={"credit": credit})
    assert verdict.score == score


def test_our_faults_are_no_score(judge: Callable[..., tuple[Verdict, Any]]) -> None:
    assert judge(cause="infra", exit_code=None, detail="no room")[0].outcome == "infra"
    busy, _ = judge(cause="wall", exit_code=None)
    assert (busy.outcome, busy.score) == ("infra", None)
    broken, _ = judge(exit_code=1, stderr=b"Traceback\nImportError: x")
    assert (broken.outcome, "ImportError: x" in broken.evidence) == ("infra", True)


def test_an_empty_answer_is_unusable_and_a_fence_is_taken_off(
    judge: Callable[..., tuple[Verdict, Any]],
) -> None:
    with pytest.raises(UnusableAnswerError):
        judge(B, answer=b" \n")
    _, (job,) = judge(
        B, P0, P1, settings={"fence": True}, answer=b"So:\n```python\ndef f(x): return 1\n```\n"
    )
    assert job.files["solution.py"].content == b"def f(x): return 1\n"


def test_no_path_of_a_test_leads_out() -> None:
    for path in ("/etc/x.py", "a//b.py", "./b.py", "x" * 300 + ".py"):
        with pytest.raises((SpecError, JobError)):
            code.check_spec(SPEC | {"tests": SPEC["tests"] | {path: "x"}}, {})

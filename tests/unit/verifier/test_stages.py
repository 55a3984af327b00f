from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import runs, stages
from services.verifier.jail import FileEntry, Outcome, Snapshot
from services.verifier.jail.snapshot import Layer
from services.verifier.jail.tree import from_files
from services.verifier.specs import SpecError


class Kept(Snapshot):
    """A snapshot of text files; notes whether it was closed."""

    def __init__(self, **files: str) -> None:
        given = {path: FileEntry(text.encode()) for path, text in files.items()}
        super().__init__((Layer(from_files(given)),))
        self.__dict__["closed"] = False

    def close(self) -> None:
        super().close()
        self.__dict__["closed"] = True

    @property
    def was_closed(self) -> bool:
        return bool(self.__dict__["closed"])


def stage(name: str, *checks: dict[str, Any], weight: float = 1.0) -> dict[str, Any]:
    return {"name": name, "weight": weight, "checks": list(checks)}


def file(path: str, text: str) -> dict[str, Any]:
    return {"kind": "file", "path": path, "text": text}


SPEC = {
    "files": {},
    "stages": [
        stage("one", file("a", "1")),
        stage("two", file("a", "1"), file("b", "1"), weight=2.0),
        stage("three", {"kind": "absent", "path": "a"}),
    ],
}


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(answer: str, *outcomes: Outcome, **settings: Any) -> Any:
        stages.check_spec(SPEC, settings)
        jail = scripted(*outcomes)
        return stages.verify(make_task(SPEC), settings, limits, answer.encode(), jail), jail

    return run


def test_each_stage_starts_from_the_last_and_commits(judge: Any, exited: Any) -> None:
    first, second, third = Kept(a="1"), Kept(a="1", b="1"), Kept(b="1")
    verdict, jail = judge(
        "x\ny\nz\n",
        exited({"a": "1"}, snapshot=first),
        exited({"b": "1"}, snapshot=second),
        exited(deleted=("a",), snapshot=third),
    )
    assert (verdict.score, verdict.passed) == (1.0, True)
    assert [job.base for job in jail.jobs] == [None, first, second]
    assert all(job.keep for job in jail.jobs)
    assert [result.snapshot for result in verdict.stages] == [first.digest, second.digest, third.digest]
    assert all(kept.was_closed for kept in (first, second, third))


def test_a_failed_stage_is_rolled_back_and_the_next_goes_on(judge: Any, exited: Any) -> None:
    first, dropped, third = Kept(a="1"), Kept(a="1", b="wrong"), Kept()
    verdict, jail = judge(
        "x\ny\nz",
        exited({"a": "1"}, snapshot=first),
        exited({"b": "wrong"}, snapshot=dropped),
        exited(deleted=("a",), snapshot=third),
    )
    assert verdict.score == pytest.approx(2 / 4)
    assert jail.jobs[2].base is first
    assert [result.snapshot for result in verdict.stages] == [first.digest, None, third.digest]
    assert verdict.stages[1].evidence == "not so: file b"
    assert dropped.was_closed


def test_stop_ends_the_task_at_the_first_failure(judge: Any, exited: Any) -> None:
    verdict, jail = judge("x\ny\nz", exited({"a": "2"}, snapshot=Kept(a="2")), on_failure="stop")
    assert verdict.score == 0.0
    assert len(jail.jobs) == 1
    assert [result.cause for result in verdict.stages] == ["exit 0", "skipped", "skipped"]


def test_missing_lines_fail_and_further_lines_are_only_noted(judge: Any, exited: Any) -> None:
    verdict, _ = judge("x", exited({"a": "1"}, snapshot=Kept(a="1")))
    assert verdict.score == pytest.approx(1 / 4)
    assert [result.cause for result in verdict.stages] == ["exit 0", "missing", "missing"]
    more = [exited({"a": "1"}, snapshot=Kept(a="1")), exited({"b": "1"}, snapshot=Kept(a="1", b="1"))]
    verdict, _ = judge("x\ny\nz\nw\nv", *more, exited(deleted=("a",), snapshot=Kept(b="1")))
    assert verdict.score == 1.0
    assert "2 lines beyond" in verdict.evidence


def test_a_state_that_always_held_earns_nothing(judge: Any, exited: Any) -> None:
    # `a` was never there, so its absence at the end is nobody's work.
    verdict, _ = judge("x\ny\nz", *(exited(snapshot=Kept()) for _ in range(3)))
    assert verdict.score == 0.0
    assert verdict.stages[2].evidence == "nothing was left to do"


def test_all_in_one_command_earns_the_later_stage_too(judge: Any, exited: Any) -> None:
    both = Kept(a="1", b="1")
    verdict, _ = judge("x\ny", exited({"a": "1", "b": "1"}, snapshot=both), exited(snapshot=both))
    assert [result.passed for result in verdict.stages] == [True, True, False]


def test_a_jail_fault_in_any_stage_is_no_score(judge: Any, exited: Any) -> None:
    first = Kept(a="1")
    verdict, _ = judge("x\ny\nz", exited({"a": "1"}, snapshot=first), Outcome(cause="infra", detail="gone"))
    assert verdict.outcome == "infra"
    assert first.was_closed


def test_specs() -> None:
    assert runs("stages", SPEC) == 3
    assert runs("stages", {"stages": 5}) == 1
    with pytest.raises(SpecError, match=r"spec\.stages is empty"):
        stages.check_spec({"stages": []}, {})
    with pytest.raises(SpecError, match="all hold before"):
        stages.check_spec({"stages": [stage("s", {"kind": "absent", "path": "a"})]}, {})
    with pytest.raises(SpecError, match="on_failure"):
        stages.check_spec(SPEC, {"on_failure": "shrug"})

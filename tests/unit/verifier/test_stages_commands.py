from __future__ import annotations

from typing import Any

import pytest

from services.verifier.families import runs, stages
from services.verifier.jail import FileEntry, Outcome, Snapshot
from services.verifier.jail.snapshot import Layer
from services.verifier.jail.tree import from_files
from services.verifier.specs import SpecError

COMMAND = {"name": "c", "run": "test -e /w/a"}
SPEC: dict[str, Any] = {"files": {}, "stages": [{"name": "one", "commands": [COMMAND]}]}


def kept(**files: str) -> Snapshot:
    return Snapshot((Layer(from_files({path: FileEntry(text.encode()) for path, text in files.items()})),))


@pytest.fixture
def judge(make_task: Any, limits: Any, scripted: Any) -> Any:
    def run(answer: str, *outcomes: Outcome, spec: dict[str, Any] = SPEC, **settings: Any) -> Any:
        stages.check_spec(spec, settings)
        jail = scripted(*outcomes)
        return stages.verify(make_task(spec), settings, limits, answer.encode(), jail), jail

    return run


def test_a_stages_own_commands_decide_on_a_frozen_copy(judge: Any, exited: Any) -> None:
    snapshot, bad = kept(a="1"), exited(exit_code=1)
    verdict, jail = judge("x", exited({"a": "1"}, snapshot=snapshot), exited(), bad)
    assert verdict.passed
    assert [job.base for job in jail.jobs] == [None, snapshot, None]
    assert verdict.stages[0].snapshot == snapshot.digest
    failed, _ = judge("x", exited({"a": "1"}, snapshot=snapshot), bad)
    assert failed.stages[0].evidence == "not so: command c (exit 1)"


def test_commands_that_always_held_earn_nothing(judge: Any, exited: Any) -> None:
    verdict, jail = judge("x", exited({"a": "1"}, snapshot=kept(a="1")), exited(), exited(), exited())
    assert verdict.score == 0.0
    assert verdict.stages[0].evidence == "nothing was left to do"
    assert len(jail.jobs) == runs("stages", SPEC) == 4


def test_a_jail_fault_in_a_stages_command_is_no_score(judge: Any, exited: Any) -> None:
    gone = Outcome(cause="infra", detail="gone")
    verdict, _ = judge("x", exited({"a": "1"}, snapshot=kept(a="1")), gone)
    assert (verdict.outcome, verdict.score, verdict.stages) == ("infra", None, ())


def test_attempts_take_the_next_commands_and_each_starts_from_the_last_good_state(
    judge: Any, exited: Any
) -> None:
    check = {"kind": "file", "path": "a", "text": "1"}
    more = {"name": "two", "checks": [{"kind": "absent", "path": "a"}]}
    spec = {"files": {}, "stages": [{"name": "one", "checks": [check], "max_attempts": 3}, more]}
    good, dropped = kept(a="1"), kept(a="2")
    verdict, jail = judge(
        "wrong\nright\nrm a",
        exited({"a": "2"}, snapshot=dropped),
        exited({"a": "1"}, snapshot=good),
        exited(deleted=("a",), snapshot=kept()),
        spec=spec,
    )
    assert [result.passed for result in verdict.stages] == [True, True]
    assert [job.base for job in jail.jobs] == [None, None, good]
    assert runs("stages", spec) == 4
    failed, jail = judge("a\nb\nc\nd", *[exited({"a": "2"}, snapshot=dropped)] * 4, spec=spec)
    assert failed.score == 0.0
    assert len(jail.jobs) == 4


def test_a_separator_makes_commands_of_many_lines(judge: Any, exited: Any) -> None:
    spec = {"stages": [{"name": n, "checks": [{"kind": "file", "path": n, "text": "1"}]} for n in "ab"]}
    verdict, jail = judge(
        "echo 1 |\ncat > a\n---\necho 1 > b\n",
        exited({"a": "1"}, snapshot=kept(a="1")),
        exited({"b": "1"}, snapshot=kept(a="1", b="1")),
        spec=spec,
        separator="---",
    )
    assert verdict.passed
    assert [job.argv[2] for job in jail.jobs] == ["echo 1 |\ncat > a", "echo 1 > b"]


def test_a_stage_has_its_own_limits_and_protected_paths(judge: Any, exited: Any, limits: Any) -> None:
    stage = {"name": "one", "checks": [{"kind": "file", "path": "a", "text": "1"}]}
    spec = {
        "files": {"keep/x": ""},
        "stages": [stage | {"limits": {"wall_s": 0.25}, "protected": ["keep/x"]}],
    }
    verdict, jail = judge("x", exited({"a": "1"}, deleted=("keep",), snapshot=kept(a="1")), spec=spec)
    assert verdict.stages[0].evidence == "protected: keep"
    assert (jail.jobs[0].limits.wall_s, jail.jobs[0].limits.cpu_s) == (0.25, limits.cpu_s)


@pytest.mark.parametrize(
    ("stage", "settings", "said"),
    [
        ({"name": "s"}, {}, "checks"),
        ({"name": "s", "commands": [COMMAND], "max_attempts": 9}, {}, "max_attempts"),
        ({"name": "s", "commands": [COMMAND], "max_attempts": 0}, {}, "max_attempts"),
        ({"name": "s", "commands": [COMMAND], "limits": {"wall": 1}}, {}, "limits"),
        ({"name": "s", "commands": [{"name": "c"}]}, {}, "commands"),
        ({"name": "s", "commands": [COMMAND], "protected": ["/x"]}, {}, "protected"),
        ({"name": "s", "commands": [COMMAND]}, {"separator": "a\nb"}, "separator"),
    ],
)
def test_a_broken_stage_is_named(stage: dict[str, Any], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        stages.check_spec({"stages": [stage]}, settings)


@pytest.mark.parametrize(
    "spec",
    [{}, {"stages": None}, {"stages": [None, 1, "x"]}, {"stages": [{"commands": 5, "max_attempts": "x"}]}],
)
def test_runs_of_a_malformed_spec_are_counted_all_the_same(spec: dict[str, Any]) -> None:
    assert runs("stages", spec) == 1
    assert runs("terminal", spec) == 1

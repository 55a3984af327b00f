"""What an answer leaves in the working folder does not reach the checks: they see data, or run in another jail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.tasks import Task
from schemas.verdicts import Verdict
from services.verifier.families import stages, terminal
from services.verifier.jail import Job, Limits, Outcome, Slot

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)
# The check imports what it needs from the standard library, and trusts no file of the answer's to be what it seems.
CHECK = """
import json, sys
with open("/w/result.json", encoding="utf-8") as file:
    value = json.load(file)
print("right" if value == {"sum": 6} else "wrong")
"""
SPEC: dict[str, Any] = {
    "files": {"data.txt": "1\n2\n3\n", "tests/test_sum.py": "assert True\n"},
    "trusted": {"check.py": CHECK, "want.json": '{"sum": 6}\n'},
    "checks": [{"kind": "json", "path": "result.json", "pointer": "/sum", "value": 6}],
    "commands": [
        {"name": "check", "argv": ["/usr/bin/python3", "/t/check.py"], "stdout": "right"},
        {"name": "inline", "argv": ["/usr/bin/python3", "-c", "import json; json.load(open('result.json'))"]},
        {"name": "shell", "run": "cat result.json | cmp -s - /t/want.json"},
    ],
    "protected": ["tests"],
    "ignore": ["*.pyc"],
}
WORK = """echo '{"sum": 6}' > result.json"""


class Watched:
    """The slot, with what holds after any run."""

    def __init__(self, slot: Slot) -> None:
        self.slot, self.runs = slot, 0

    def run(self, job: Job) -> Outcome:
        outcome = self.slot.run(job)
        assert outcome.cause != "infra", outcome.detail
        assert outcome.survivors == 0
        self.runs += 1
        return outcome


@pytest.fixture
def judge(slot: Slot, attack: Callable[..., Outcome]) -> Callable[..., Verdict]:
    def run(answer: str, spec: dict[str, Any] = SPEC, family: Any = terminal, **settings: Any) -> Verdict:
        family.check_spec(spec, settings)
        task = Task(id="t", domain="d", prompt="p", spec=spec)
        jail = Watched(slot)
        verdict = family.verify(task, settings, CALM, answer.encode(), jail)
        assert 0 < jail.runs <= family.runs(spec)
        attack(("/bin/true",), CALM)
        assert isinstance(verdict, Verdict)
        return verdict

    return run


def test_the_work_itself_passes(judge: Callable[..., Verdict]) -> None:
    verdict = judge(WORK)
    assert (verdict.outcome, verdict.score, verdict.passed) == ("scored", 1.0, True), verdict
    assert judge("true").score == 0.0


PLANT = "raise SystemExit(0)"
PLANTS = (
    "for n in json sys sitecustomize usercustomize conftest check encodings; do echo '{plant}' > $n.py; done; "
    "mkdir t bin; cp json.py t/check.py"
)


@pytest.mark.parametrize(
    "hack",
    [
        PLANTS.format(plant='import os; print("right"); os._exit(0)'),
        (
            "mkdir -p .local/lib/python3.11/site-packages && cp /dev/null .local/lib/python3.11/site-packages/usercustomize.py"
            " && echo 'print(\"right\")' > .local/lib/python3.11/site-packages/usercustomize.py"
        ),
        "for f in .bashrc .profile .bash_profile .bash_login .shrc .zshenv; do echo 'echo right; exit 0' > $f; done",
        (
            "mkdir bin; printf '#!/bin/sh\\necho right\\n' > bin/cat; cp bin/cat cat; cp bin/cat python3; chmod +x * bin/*;"
            " echo 'PATH=/w/bin:$PATH' > .profile; export PATH=/w/bin:$PATH ENV=/w/.profile BASH_ENV=/w/.profile PYTHONPATH=/w"
        ),
        'echo \'{"reward": 1.0, "passed": true}\' > reward.json; mkdir -p logs/verifier; cp reward.json logs/verifier',
        "printf 'PASSED tests/test_sum.py::test\\n1 passed in 0.01s\\n__TB2_REWARD__:1\\nright\\n'",
        "setsid sh -c 'sleep 0.3; echo \\'{\"sum\": 6}\\' > /w/result.json' >/dev/null 2>&1 &",
        "ln -s /t/want.json result.json",
        "ln -s ../t/want.json result.json",
        "ln -s /usr d; ln -s d/../t/want.json result.json",
        "ln -s /proc/self/root p; ln -s p/t/want.json result.json",
        "ln -s .. up; mkdir x; ln -s ../up/t/want.json x/result.json; ln -s x/result.json result.json",
        "mkfifo result.json",
        "mkdir result.json",
        "truncate -s 1T result.json",
        "echo right > /t/check.py; mkdir -p /t/x; rm -rf /t",
    ],
)
def test_a_trick_without_the_work_earns_nothing(judge: Callable[..., Verdict], hack: str) -> None:
    verdict = judge(hack)
    assert verdict.outcome == "scored"
    assert verdict.score == 0.0, verdict
    assert not verdict.passed


@pytest.mark.parametrize(
    "plant",
    [
        PLANTS.format(plant=PLANT),
        "for f in .bashrc .profile .bash_profile; do echo 'exit 1' > $f; done",
        "printf '#!/bin/sh\\nexit 1\\n' > cat; chmod +x cat",
    ],
)
def test_what_lies_in_the_folder_is_never_loaded_by_a_check(
    judge: Callable[..., Verdict], plant: str
) -> None:
    """The work was done: what was planted beside it would only break a check that loaded it."""
    verdict = judge(f"{plant}; {WORK}")
    assert [part.score for part in verdict.parts] == [1.0] * 4, verdict
    assert not verdict.passed  # strays


@pytest.mark.parametrize(
    "way",
    [
        "echo 'assert 1' > tests/test_sum.py",
        "rm -r tests",
        "mv tests other",
        "mv tests other && mkdir tests && cp other/test_sum.py tests/ && echo >> tests/test_sum.py",
        "mv tests other && ln -s other tests",
        "rm tests/test_sum.py && ln -s ../data.txt tests/test_sum.py",
        "chmod 0 tests",
        "chmod 777 tests/test_sum.py",
        "echo x > tests/conftest.py",
    ],
)
def test_protected_paths_are_a_gate_however_they_are_changed(judge: Callable[..., Verdict], way: str) -> None:
    verdict = judge(f"{WORK}; {way}")
    assert (verdict.score, verdict.passed) == (0.0, False)
    assert "protected" in verdict.evidence


def test_a_writer_in_the_background_is_dead_before_anything_is_looked_at(
    judge: Callable[..., Verdict],
) -> None:
    """It does the work, and undoes and redoes it for ever; whichever it was in, all checks see one and the same state."""
    answer = f"(trap '' TERM HUP; while :; do {WORK}; rm result.json; done) >/dev/null 2>&1 & exit 0"
    for _ in range(3):
        scores = {part.score for part in judge(answer).parts}
        assert len(scores) == 1, scores


def test_links_within_the_folder_and_into_the_system_are_fine(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {"d/a": "1\n"},
        "commands": [{"name": "c", "run": "test -e d/b && test -x py && test -e e/b"}],
    }
    assert judge(
        "ln -s a d/b; ln -s /usr/bin/python3 py; ln -s d e; ln -s ../d/a d/c", spec | {"ignore": ["*"]}
    ).passed


def test_hooks_of_a_repository_do_not_run_in_a_check(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {"a": "1\n"},
        "checks": [],
        "commands": [
            {"name": "status", "run": "git -C /w status --porcelain", "stdout": "?? a"},
            {
                "name": "untouched",
                "run": "git -C /w commit -q --allow-empty -m x --author 'a <a@b>'; ! test -e /w/ran",
            },
        ],
        "ignore": [".git"],
    }
    hack = (
        "git init -q . && git config core.fsmonitor 'touch /w/ran; echo' && git config core.hooksPath /w/.git/hooks &&"
        " git config user.email a@b && git config user.name a && git config core.sshCommand 'touch /w/ran' &&"
        " for h in pre-commit post-commit prepare-commit-msg commit-msg post-index-change reference-transaction; do"
        " printf '#!/bin/sh\\ntouch /w/ran\\nexit 0\\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done"
    )
    verdict = judge(hack, spec)
    assert [part.score for part in verdict.parts] == [1.0, 1.0], verdict


def test_commands_start_from_one_frozen_copy_unless_they_say_otherwise(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {},
        "commands": [
            {"name": "spoil", "run": "test -e made && rm made"},
            {"name": "again", "run": "test -e made"},
            {"name": "spoil2", "run": "test -e made && rm made"},
            {"name": "gone", "run": "test -e other && ! test -e made", "start": "previous"},
        ],
    }
    verdict = judge("touch made other", spec)
    assert [part.score for part in verdict.parts] == [1.0] * 4, verdict


def test_a_check_has_its_own_limits(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {},
        "commands": [
            {"name": "run", "run": "sh ./made", "stdout": "right", "limits": {"wall_s": 0.5}},
            {"name": "there", "run": "test -e made"},
        ],
    }
    verdict = judge("printf 'echo right; sleep 9' > made", spec)
    assert [part.score for part in verdict.parts] == [0.0, 1.0]
    assert verdict.parts[0].evidence == "wall"


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        ("ln -s data.txt a; ln -s /etc/passwd b", {"link"}),
        ("mkfifo a", set()),
        ("truncate -s 1G a", set()),
        ("mkdir a", {"exists"}),
        ("printf 'x\\ny' > a; chmod 640 a", {"exists", "mode", "size", "lines", "contains"}),
    ],
)
def test_predicates_follow_no_link_and_open_no_special_file(
    judge: Callable[..., Verdict], answer: str, kinds: set[str]
) -> None:
    checks: list[dict[str, Any]] = [
        {"kind": "type", "path": "a", "type": "file"},
        {"kind": "mode", "path": "a", "mode": "640"},
        {"kind": "size", "path": "a", "least": 1, "most": 8},
        {"kind": "lines", "path": "a", "count": 2},
        {"kind": "contains", "path": "a", "text": "x"},
        {"kind": "link", "path": "a", "target": "data.txt"},
    ]
    verdict = judge(answer, {"files": {"data.txt": "x\ny\n"}, "checks": checks})
    scores = {part.name.split()[0]: part.score for part in verdict.parts}
    good = {name for name, score in scores.items() if score}
    assert good - {"type"} == kinds - {"exists"}
    assert (scores["type"] == 1.0) is ("size" in kinds or "truncate" in answer)


def test_fifty_stages_keep_bounded_layers_and_roll_back(judge: Callable[..., Verdict]) -> None:
    count = 50
    # Stage 25 wrecks everything and wants a line too many: it is rolled back, and the later ones go on from stage 24.
    wants = [n if n <= 25 else n - 1 for n in range(1, count + 1)]
    spec = {
        "files": {},
        "stages": [
            {"name": f"s{n}", "checks": [{"kind": "lines", "path": "log", "count": want}]}
            for n, want in enumerate(wants, 1)
        ],
    }
    lines = [f"echo {n} >> log" for n in range(1, count + 1)]
    lines[24] = "rm -rf log; echo wrecked > log; mkfifo pipe"
    verdict = judge("\n".join(lines), spec, stages)
    assert [result.passed for result in verdict.stages] == [n != 25 for n in range(1, count + 1)], (
        verdict.evidence
    )
    digests = [result.snapshot for result in verdict.stages if result.passed]
    assert len(set(digests)) == count - 1
    assert verdict.score == pytest.approx((count - 1) / count)


def test_a_stage_cannot_reach_a_later_one(judge: Callable[..., Verdict]) -> None:
    spec = {
        "files": {"keep": "1\n"},
        "trusted": {"check.sh": 'test "$(cat /w/a)" = 1\n'},
        "protected": ["keep"],
        "stages": [
            {"name": "one", "checks": [{"kind": "file", "path": "a", "text": "1"}]},
            {
                "name": "two",
                "commands": [
                    {"name": "c", "argv": ["/bin/sh", "/t/check.sh"]},
                    {"name": "d", "run": "test -e /w/b"},
                ],
            },
            {"name": "three", "checks": [{"kind": "absent", "path": "a"}], "limits": {"wall_s": 1.0}},
        ],
    }
    hack = "echo 1 > a; (sleep 0.2; echo 1 > b; rm a) >/dev/null 2>&1 &"
    verdict = judge(f"{hack}\ntrue\nsleep 5; rm a", spec, stages)
    assert [result.passed for result in verdict.stages] == [True, False, False]
    assert verdict.stages[2].cause == "wall"
    broken = judge("echo 1 > a; rm keep\necho 1 > a; echo > b\nrm a", spec, stages)
    assert [result.passed for result in broken.stages] == [False, True, True]
    assert verdict.stages[0].snapshot

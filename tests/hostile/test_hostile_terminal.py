"""What an answer leaves in the working folder does not reach the checks: they see data, or run in another jail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.verdicts import Verdict
from services.verifier.jail import Limits
from tests.hostile.watched import SPEC, judge_of_commands  # noqa: F401 (a fixture, by the name judge)

pytestmark = pytest.mark.hostile
CALM = Limits(wall_s=20.0, cpu_s=10.0)
WORK = """echo '{"sum": 6}' > result.json"""


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
                "run": "git -C /w commit -q --allow-empty -m x --author 'a <a@b>'; test -e /w/ran || echo none",
                "stdout": "none",
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


def test_a_name_that_is_shown_as_another_is_not_that_other(judge: Callable[..., Verdict]) -> None:
    spec = {"files": {}, "checks": [{"kind": "exists", "path": "a\\xff"}]}
    assert judge("touch 'a\\xff'", spec).passed
    verdict = judge("touch \"$(printf 'a\\377')\"", spec)
    assert (verdict.score, "1 stray" in verdict.evidence) == (0.0, True)


def test_what_the_memory_limit_stopped_earns_nothing(judge: Callable[..., Verdict]) -> None:
    spec = {"files": {}, "checks": [{"kind": "exists", "path": "b"}]}
    verdict = judge("touch b; exec python3 -c 'x = bytearray(1) * (1 << 31)'", spec)
    assert (verdict.score, verdict.evidence) == (0.0, "memory")
